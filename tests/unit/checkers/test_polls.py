"""Checker of what running consumers receive, and of early and differing reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.polls import check_polls
from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.transactions import check_transactions
from pyhooks.history.event_log import Event, Outcome
from written_histories import MS, S, Simulated, changed, drop, event, is_, key

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def final(keys: Sequence[str | None], isolation: str = COMMITTED, low: int = 0) -> Event:
    """Return the final read of partition 0; None is an offset without a record."""
    data: dict[str, Any] = {"pass": isolation, "topic": "t", "partition": 0, "partitions": 1, "isolation": isolation}
    held = [(low + at, name) for at, name in enumerate(keys) if name is not None]
    data |= {"low": low, "begin": low, "next": low + len(keys), "end": low + len(keys)}
    data |= {"runs": [[at, 1] for at, _ in held], "keys": [name for _, name in held]}
    return event(1000 * S, "reader", "read", "ok", **data)


def follow(at_s: int, position: int, records: int, stable: int | None) -> Event:
    """Return the progress of a reader; without ``stable`` its leader did not respond."""
    data: dict[str, Any] = {"run": "f", "topic": "t", "partition": 0, "isolation": COMMITTED, "position": position}
    data |= {"records": records, "asked_ns": at_s * S}
    if stable is None:
        return event(at_s * S, "follower", "follow", "unknown", **data)
    return event(at_s * S, "follower", "follow", "ok", **data, stable=stable, end=stable + 5)


def visible(at_s: int, after: int, high: int | None) -> Event:
    data: dict[str, Any] = {"run": "v", "asked_ns": at_s * S, "next": {"t-0": after}}
    return event(at_s * S, "viewer", "visible", "ok", **data, high={} if high is None else {"t-0": high})


def fetch(at_s: int, first: int, after: int, run: str = "m") -> Event:
    data: dict[str, Any] = {"run": run, "group": "g", "protocol": "classic", "count": after - first, "from_ns": 0}
    return event(at_s * S, "member", "fetch", None, **data, next={"t-0": after}, first={"t-0": first})


def assigned(at_s: int, *partitions: str, op: str = "assigned", now: Sequence[str] = ("t-0",)) -> Event:
    data: dict[str, Any] = {"run": "m", "group": "g", "protocol": "classic", "partitions": list(partitions)}
    return event(at_s * S, "member", op, None, **data, now=list(now))


def arrivals(at_s: int, *seqs: int) -> Event:
    keys = [key(seq) for seq in seqs]
    return event(at_s * S, "follower", "fetched", "ok", topic="t", keys=keys, ago_ms=[0.0] * len(keys))


def produced(seq: int, outcome: Outcome) -> Event:
    return event(S, "producer", "produce", outcome, topic="t", key=key(seq), partition=0, seq=seq, sent_ns=1)


def cut(*steps: str) -> list[Event]:
    """Return steps of a network partition, one second each."""
    return [
        event(at * S, "fault", "cut-rack", "ok" if step == "healed" else None, "b", step=step)
        for at, step in enumerate(steps, start=1)
    ]


LOG = [key(0), key(1), None, key(2), key(3), None]
UNC = final([key(0), key(1), key(2), key(3)], UNCOMMITTED)
GONE_BACK = "t-0: f went back from offset 4 to 2"


@pytest.mark.parametrize(
    ("events", "valid", "because"),
    [
        ([follow(1, 0, 0, 0), follow(2, 3, 2, 4), follow(3, 6, 4, 6), final(LOG)], "true", ()),
        # the offset after a marker, and one without a response of the leader
        ([follow(1, 2, 2, 4), follow(2, 3, 2, None), final(LOG)], "true", ()),
        # precommitted-read: beyond the last stable offset
        ([follow(1, 4, 3, 3), final(LOG)], "false", ("t-0: f had read up to 4 when the last stable offset was 3",)),
        ([*cut("inject"), follow(4, 4, 3, 3), final(LOG)], "unknown",
         ("t-0: f had read up to 4 when the last stable offset was 3, in a fault that separates brokers",)),
        ([*cut("inject", "healed"), follow(4, 4, 3, 3), final(LOG)], "false",
         ("t-0: f had read up to 4 when the last stable offset was 3",)),
        # poll-skip and duplicates
        ([follow(1, 6, 3, 6), final(LOG)], "false",
         ("t-0: f had received 3 records up to offset 6, the final read has 4",)),
        ([follow(1, 3, 2, 6), follow(2, 5, 5, 6), final(LOG)], "false",
         ("t-0: f had received 5 records up to offset 5, the final read has 4",)),
        ([follow(1, 8, 4, 8), final(LOG)], "false", ("t-0: f had read up to 8, the log ends at 6",)),
        # nonmonotonic-poll
        ([follow(1, 4, 3, 6), follow(2, 2, 2, 6), final(LOG)], "false", (GONE_BACK,)),
        ([follow(1, 2, 2, 4)], "unknown", ("t: no final read (read_committed)",)),
        ([follow(1, 2, 2, 4), final(LOG, low=1)], "unknown",
         ("t-0: the final read (read_committed) begins at offset 1",)),
        ([visible(1, 3, 3), visible(2, 4, None), visible(3, 6, 8)], "true", ()),
        ([visible(1, 3, 2)], "false", ("t-0: v had read up to 3 when the high watermark was 2",)),
        ([visible(1, 3, 3), visible(2, 2, 3)], "false", ("t-0: v went back from offset 3 to 2",)),
        ([visible(1, 3, None)], "unknown", ("no progress of a consumer could be compared",)),
        ([assigned(0, "t-0"), fetch(1, 0, 2), fetch(2, 2, 4), UNC], "true", ()),
        ([fetch(1, 0, 2), fetch(2, 1, 4), UNC], "false",
         ("g: m: t-0: received offset 1 after all up to 2, a second time",)),
        ([fetch(1, 0, 1), fetch(2, 3, 4), UNC], "false",
         ("g: m: t-0: received offset 3 after all up to 1, and skipped 2 records",)),
        # offsets without a record, such as markers, are not skipped
        ([fetch(1, 0, 2), fetch(2, 3, 4), final(LOG, UNCOMMITTED)], "true", ()),
        ([fetch(1, 0, 2), fetch(2, 3, 4)], "unknown", ("t: no final read (read_uncommitted)",)),
        # a new assignment begins at the committed offset, and members are independent
        ([fetch(1, 0, 2), fetch(2, 2, 3), assigned(3, "t-0", op="revoked", now=()), assigned(4, "t-0"), fetch(5, 1, 2)],
         "true", ()),
        ([fetch(1, 0, 2), fetch(2, 2, 3), assigned(3, "t-0"), fetch(4, 1, 2)], "true", ()),
        ([fetch(1, 0, 2), fetch(2, 0, 2, "n"), fetch(3, 2, 3)], "true", ()),
        ([fetch(1, 0, 2), assigned(2, "t-1", now=("t-0", "t-1")), fetch(3, 1, 4), UNC], "false",
         ("g: m: t-0: received offset 1 after all up to 2, a second time",)),
        ([arrivals(1, 1, 2), arrivals(2, 3), UNC], "true", ()),
        ([arrivals(1, 1, 3), UNC], "false", (f"t-0: 1 records were skipped between {key(1)} and {key(3)}",)),
        ([arrivals(1, 1, 2, 1), UNC], "false",
         (f"t-0: {key(1)} was received after {key(2)}, and is not behind it",)),
        ([arrivals(1, 1, 1), UNC], "false", (f"t-0: {key(1)} was received after {key(1)}, and is not behind it",)),
        ([arrivals(1, 1, 9, 2), UNC], "false",
         (f"t-0: 1 records were received that the final read does not have: {key(9)}",)),
        # G1a
        ([arrivals(1, 1, 2), produced(2, "fail"), UNC], "false", (f"t-0: rejected record {key(2)} was received",)),
        ([arrivals(1, 1, 2), produced(2, "unknown"), UNC], "true", ()),
        # an aborted record, which only the uncommitted read has
        ([arrivals(1, 0, 1, 2), UNC, final([key(0), key(1), None, key(3)], COMMITTED)], "false",
         (f"t-0: 1 records were received that the final read does not have: {key(2)}",)),
        # which of two copies arrived is unknown
        ([arrivals(1, 0, 1, 2, 1), final([key(0), key(1), key(2), key(1)], UNCOMMITTED)], "true", ()),
        ([arrivals(1, 1, 2)], "unknown", ("t: no final read (read_uncommitted)",)),
        ([], "unknown", ("no progress of a consumer could be compared",)),
    ],
)  # fmt: skip
def test_verdict_on_consumers(events: list[Event], valid: str, because: tuple[str, ...]) -> None:
    verdict = check_polls(events)
    assert (verdict.valid, verdict.because[: len(because)] if valid == "unknown" else verdict.because) == (
        valid, because
    )  # fmt: skip


def test_the_checker_applies_to_histories_with_consumers() -> None:
    assert all(map(CHECKERS["polls"].applies, (follow(1, 0, 0, 0), visible(1, 0, 0), fetch(1, 0, 1), arrivals(1, 0))))
    assert "polls" not in {verdict.checker for verdict in judge(read_twice())[0]}


def read_twice(mode: str = "plain") -> list[Event]:
    """Return a history with reads before and after the second half of the records."""
    cluster = Simulated(mode=mode)
    cluster.rest(4)
    cluster.send(3)
    for isolation in (UNCOMMITTED, COMMITTED):
        cluster.read(f"early-{isolation}", isolation)
    cluster.send(3)
    return cluster.finish()


@pytest.mark.parametrize("name", ["early-read_uncommitted", "early-read_committed", "p1", "p1c"])
def test_an_earlier_read_that_skips_a_record_is_found(name: str) -> None:
    events = read_twice()
    assert check_offsets(events).valid == "true"
    isolation = COMMITTED if name.endswith(("committed", "c")) and "un" not in name else UNCOMMITTED
    verdict = check_offsets(drop(events, key(1), is_("read", **{"pass": name})))
    assert verdict.valid == "false"
    assert (
        f"t-0: 1 offsets were read in one {isolation} read and skipped in another, the first is 1 with {key(1)}"
        in verdict.because
    )


def test_an_aborted_record_in_an_earlier_read_is_found() -> None:
    events = read_twice("transactional")
    assert check_transactions(events).valid == "true"
    # the second transaction has one record, the one after the first marker
    aborted = changed(events, is_("txn", txn=1), outcome="fail")
    final_reads = is_("read", isolation=COMMITTED)
    without_it = drop(aborted, key(1), lambda one: final_reads(one) and not one.data["pass"].startswith("early"))
    verdict = check_transactions(without_it)
    assert (verdict.valid, verdict.because) == (
        "false", (f"transaction 1 of run producer-1, aborted: {key(1)} was read",)
    )  # fmt: skip


def test_a_record_read_before_its_transaction_had_sent_all_is_found() -> None:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, "ok")
    first = cluster.produce(txn=1)
    cluster.read("early", COMMITTED)
    second = cluster.produce(txn=1)
    cluster.write(None)
    data: dict[str, Any] = {"run": cluster.run, "txn": 1, "asked": "commit", "records": 2, "begun_ns": cluster.now - MS}
    cluster.note("producer", "txn", "ok", **data)
    events = cluster.finish()
    verdict = check_transactions(events)
    assert (verdict.valid, verdict.because) == (
        "false",
        (
            f"transaction 1 of run producer-1: {first} was read as committed before {second} of the same transaction"
            " was sent",
        ),
    )
    late = drop(events, first, is_("read", **{"pass": "early"}))
    assert check_transactions(late).valid == "true"
