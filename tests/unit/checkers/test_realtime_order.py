"""Checker of real-time order on histories of several producers, and of several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.realtime_order import check_realtime_order
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.events import ClockDetails
from written_histories import MS, Simulated, changed, event, is_, key, outage


def sent(name: str, sent_ms: int, done_ms: int, offset: int | None, outcome: Outcome = "ok", **more: Any) -> Event:
    """Return the result of a record of topic ``t``, partition 0, from a run with the record's name."""
    data: dict[str, Any] = {"run": more.pop("run", None), "topic": "t", "key": name, "partition": 0}
    data |= {"sent_ns": sent_ms * MS, **({} if offset is None else {"offset": offset}), **more}
    return event(done_ms * MS, "producer", "produce", outcome, **data)


def read(keys: Sequence[str], low: int = 0, isolation: str = "read_uncommitted") -> Event:
    """Return the final read of partition 0."""
    data: dict[str, Any] = {"pass": "p", "topic": "t", "partition": 0, "partitions": 1, "isolation": isolation}
    end = low + len(keys)
    data |= {"low": low, "begin": low, "next": end, "end": end, "runs": [[low, len(keys)]], "keys": list(keys)}
    return event(10**6 * MS, "reader", "read", "ok", **data)


def announced(run: str, acks: str = "all") -> list[Event]:
    """Return announcement and end of a run whose records have no sequence numbers."""
    return [
        event(0, "producer", "intend", None, run=run, topic="t", first_only=True, idempotent=False, acks=acks, to={}),
        event(10**5 * MS, "producer", "end", None, run=run, topic="t", to={}),
    ]


def clock(run: str, host: str, error_ms: int) -> Event:
    return ClockDetails(run=run, host=host, error_ns=error_ms * MS).event_at(0, 0, process="workload")


NOTHING = "no record was sent after another one of its partition was acknowledged"


@pytest.mark.parametrize(
    ("events", "valid", "because"),
    [
        ([sent("a", 0, 10, 0), sent("b", 11, 20, 1)], "true", ()),
        # concurrent records have no order, and one acknowledged at the moment of the send is concurrent
        ([sent("a", 0, 10, 2), sent("b", 10, 20, 1), sent("c", 30, 40, 3)], "true", ()),
        ([sent("a", 0, 10, 1), sent("b", 11, 20, 0)], "false",
         ("t-0: record b is at offset 0, though it was sent 1.000 ms after record a was acknowledged at offset 1",)),
        ([sent("a", 0, 10, 1), sent("b", 11, 20, 1)], "false",
         ("t-0: record b is at offset 1, though it was sent 1.000 ms after record a was acknowledged at offset 1",)),
        # the highest acknowledged offset counts, not the last one
        ([sent("a", 0, 10, 7), sent("b", 0, 12, 3), sent("c", 13, 20, 5), sent("d", 21, 30, 6)], "false",
         ("t-0: record c is at offset 5, though it was sent 3.000 ms after record a was acknowledged at offset 7,"
          " and 1 more",)),
        # partitions are independent
        ([sent("a", 0, 10, 7), sent("b", 11, 20, 3, partition=1), sent("c", 12, 20, 8)], "true", ()),
        # a record that was not acknowledged has the offset at which it was read
        ([sent("a", 0, 10, 1), sent("b", 11, 20, None, "unknown"), read(["b", "a"])], "false",
         ("t-0: record b is at offset 0, though it was sent 1.000 ms after record a was acknowledged at offset 1",)),
        ([sent("a", 0, 10, 0), sent("b", 11, 20, None, "unknown"), read(["a", "b"])], "true", ()),
        # of several copies the first counts
        ([sent("a", 0, 10, 1), sent("b", 11, 20, 2), read(["b", "a", "b"])], "false",
         ("t-0: record b is at offset 0, though it was sent 1.000 ms after record a was acknowledged at offset 1",)),
        # so has a record that was acknowledged without an offset
        ([sent("a", 0, 10, -1), sent("b", 11, 20, 0), read(["b", "a"])], "false",
         ("t-0: record b is at offset 0, though it was sent 1.000 ms after record a was acknowledged at offset 1",)),
        ([], "unknown", (NOTHING,)),
        ([sent("a", 0, 10, 0)], "unknown", (NOTHING,)),
        ([sent("a", 0, 10, None), sent("b", 11, 20, None)], "unknown", (NOTHING,)),
        ([sent("a", 0, 10, 0, "unknown"), sent("b", 11, 20, 1)], "unknown", (NOTHING,)),
        ([sent("a", 0, 10, 0), sent("b", 11, 20, None, "fail")], "unknown", (NOTHING,)),
        ([sent("a", 0, 10, 0), sent("b", 11, 20, 1), sent("c", 30, 30, 2)], "unknown",
         ("1 acknowledged records have no recorded send time",)),
        # the outcome of a client that ended without one
        ([sent("a", 0, 10, 1), sent("b", 11, 20, 2), sent("c", 30, 30, None, "unknown"), read(["c", "a", "b"])],
         "true", ()),
    ],
)  # fmt: skip
def test_verdict_on_pairs(events: list[Event], valid: str, because: tuple[str, ...]) -> None:
    verdict = check_realtime_order(events)
    assert (verdict.valid, verdict.because) == (valid, because)


def test_acks_one_is_excluded_unless_it_was_read() -> None:
    runs = [*announced("one", "1"), *announced("all")]
    first, second = sent("a", 0, 10, 5, run="one"), sent("b", 11, 20, 3, run="all")
    last = sent("c", 21, 30, 6, run="all")
    assert check_realtime_order([*runs, first, second, last]).valid == "true"
    reassigned = sent("d", 31, 40, 2, run="one")
    assert check_realtime_order([*runs, first, second, last, reassigned]).valid == "true"
    verdict = check_realtime_order([*runs, first, second, last, reassigned, read(["d", "b", "x", "x", "c"], 2)])
    assert verdict.valid == "false"
    assert verdict.because == (
        "t-0: record d is at offset 2, though it was sent 1.000 ms after record c was acknowledged at offset 6",
    )


@pytest.mark.parametrize(
    ("clocks", "valid"),
    [
        ([], "false"),
        # the pair is 10 ms apart
        ([clock("a", "h1", 4), clock("b", "h2", 5)], "false"),
        ([clock("a", "h1", 5), clock("b", "h2", 5)], "unknown"),
        ([clock("b", "h2", 9)], "false"),
        ([clock("b", "h2", 10)], "unknown"),
        # the largest error of a host counts for all its runs
        ([clock("b", "h2", 1), clock("c", "h2", 10)], "unknown"),
        # one clock orders its own events exactly
        ([clock("a", "h1", 100), clock("b", "h1", 100)], "false"),
    ],
)
def test_clocks_are_compared_with_their_error(clocks: list[Event], valid: str) -> None:
    runs = [*announced("a"), *announced("b"), *announced("c")]
    records = [sent("a", 0, 10, 1, run="a"), sent("b", 20, 30, 0, run="b"), sent("c", 500, 510, 9, run="c")]
    verdict = check_realtime_order([*clocks, *runs, *records])
    assert verdict.valid == valid
    assert "t-0: record b is at offset 0, though it was sent 10.000 ms after record a" in verdict.because[0]
    assert ("; clocks are compared to within" in verdict.because[0]) is (valid == "unknown")


def test_missing_results_are_unknown() -> None:
    records = [sent("a", 0, 10, 0, run="a"), sent("b", 11, 20, 1, run="a")]
    assert check_realtime_order([*announced("a"), *records]).valid == "true"
    verdict = check_realtime_order([announced("a")[0], *records])
    assert (verdict.valid, verdict.because) == (
        "unknown", ("t: run a did not end, and no deliberate kill is recorded",)
    )  # fmt: skip


def probed() -> list[Event]:
    """Return the history of an outage in which a second run sends one record between those of the producer."""
    cluster = Simulated()
    cluster.rest(4)
    for number in range(6):
        if number == 2:
            cluster.note(
                "probe", "intend", None, run="probe", topic="t", first_only=True, idempotent=False, to={"0": 1}
            )
            at = cluster.now
            cluster.now += 3 * MS
            data: dict[str, Any] = {
                "run": "probe",
                "topic": "t",
                "key": "probe/t/0/0",
                "seq": 0,
                "partition": 0,
                "sent_ns": at,
            }
            cluster.note("probe", "produce", "ok", offset=cluster.write("probe/t/0/0"), **data)
            cluster.note("probe", "end", None, run="probe", topic="t", to={"0": 1})
        cluster.produce()
        cluster.look()
    return cluster.finish()


def rotated(events: list[Event]) -> list[Event]:
    """Move the probe's record behind all later ones: in acknowledgements, reads and disks."""
    order = ["probe/t/0/0" if offset == 6 else key(offset) for offset in (0, 1, 2, 3, 4, 5, 6)]
    found = [changed([one], is_("produce", "ok"), offset=order.index(one.data["key"]))[0]
             if is_("produce", "ok")(one) else one for one in events]  # fmt: skip
    return [
        event(one.mono_ns, one.process, one.op, one.outcome, one.rack, **{**one.data, "keys": order})
        if one.op in ("read", "disk") else one for one in found
    ]  # fmt: skip


def test_a_record_moved_behind_later_ones_everywhere_is_found_by_no_other_checker() -> None:
    events = probed()
    assert check_realtime_order(events).valid == "true"
    moved = rotated(events)
    assert {verdict.checker for verdict in judge(moved)[0] if verdict.valid == "false"} == {"realtime_order"}
    assert check_offsets(moved).valid == check_promise(moved).valid == "true"
    (reason,) = check_realtime_order(moved).because
    assert reason.startswith(f"t-0: record {key(2)} is at offset 2, though it was sent")
    assert reason.endswith("ms after record probe/t/0/0 was acknowledged at offset 6, and 3 more")


@pytest.mark.parametrize("mode", ["plain", "idempotent", "transactional"])
def test_a_history_of_an_outage_is_in_order(mode: str) -> None:
    verdict = check_realtime_order(outage(mode).finish())
    assert (verdict.valid, verdict.because) == ("true", ())
