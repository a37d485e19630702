"""Verdicts of all checkers on complete histories, and on histories with missing events or inserted defects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.transactions import check_transactions
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from written_histories import Simulated, Where, changed, drop, event, is_, key, outage, random_run, without

MODES = ("plain", "idempotent", "transactional")


def judge_with(name: str, events: Sequence[Event]) -> Verdict:
    return CHECKERS[name].check(events)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rack", ["a", "b"])
def test_a_complete_history_of_an_outage_is_valid(mode: str, rack: str) -> None:
    verdicts, left_out = judge(outage(mode, rack).finish())
    assert all((verdict.valid, verdict.because) == ("true", ()) for verdict in verdicts), verdicts
    assert left_out == (["phases"] if mode == "transactional" else ["phases", "transactions"])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(MODES))
def test_every_random_history_of_a_correct_cluster_is_valid(seed: int, mode: str) -> None:
    verdicts, _ = judge(random_run(seed, mode).finish())
    for verdict in verdicts:
        assert (verdict.valid, verdict.because) == ("true", ()), verdict


# Evidence of each checker: without any one of these events its verdict must not be true.
EVIDENCE: dict[str, list[Where]] = {
    "delivery": [is_("produce"), is_("end"), is_("read", isolation="read_uncommitted", **{"pass": "p2"})],
    "offsets": [is_("produce"), is_("end"), is_("read", isolation="read_uncommitted", **{"pass": "p2"})],
    "realtime_order": [is_("produce"), is_("end")],
    "transactions": [
        is_("produce"),
        is_("end"),
        is_("txn"),
        is_("read", isolation="read_committed", **{"pass": "p2c"}),
    ],
    "promise": [is_("produce"), is_("end"), is_("disk"), is_("disk-end")],
    "progress": [is_("produce"), is_("end"), is_("settings")],
    "faults": [is_("kill-rack")],
}


@pytest.mark.parametrize("name", EVIDENCE)
@pytest.mark.parametrize("mode", MODES)
def test_without_a_single_event_of_its_evidence_no_verdict_is_true(name: str, mode: str) -> None:
    events = outage(mode).finish()
    if name == "transactions" and mode != "transactional":
        assert judge_with(name, events).valid == "unknown"
        return
    for where in EVIDENCE[name]:
        for which in range(sum(map(where, events))):
            reduced = without(events, where, which)
            assert judge_with(name, reduced).valid != "true", (
                which,
                [event for event in events if where(event)][which],
            )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["progress", "recovery"])
def test_without_a_period_of_observations_the_verdict_is_unknown(name: str, mode: str) -> None:
    """Without observations while records are sent or a heal is due, the verdict is not true."""
    events = outage(mode).finish()
    edges = [entry.mono_ns for entry in events if is_("kill-rack")(entry)] + [events[-1].mono_ns]
    inject, heal, healed, last = edges[1], edges[4], edges[5], edges[6]
    periods = {"progress": [(0, inject), (inject, heal), (healed, last)], "recovery": [(heal, last)]}
    for from_ns, to_ns in periods[name]:
        incomplete = [entry for entry in events if entry.op != "look" or not from_ns <= entry.mono_ns <= to_ns]
        assert judge_with(name, incomplete).valid == "unknown", (from_ns, to_ns)


@pytest.mark.parametrize(
    ("name", "op"),
    [("promise", "settings"), ("promise", "look"), ("progress", "settings"), ("progress", "look"), ("recovery", "look"),
     ("recovery", "kill-rack"), ("recovery", "produce"), ("faults", "kill-rack"), ("delivery", "read"),
     ("promise", "disk")],
)  # fmt: skip
def test_without_events_of_one_kind_the_verdict_is_unknown(name: str, op: str) -> None:
    assert judge_with(name, [entry for entry in outage().finish() if entry.op != op]).valid == "unknown"


@pytest.mark.parametrize("name", CHECKERS)
def test_the_verdict_on_an_empty_history_is_unknown(name: str) -> None:
    assert judge_with(name, []).valid == "unknown"


def lose_record(events: list[Event]) -> list[Event]:
    """Remove an acknowledged record from all reads."""
    return drop(events, key(0), is_("read"))


def swap_keys(events: list[Event]) -> list[Event]:
    return changed(events, is_("read"), keys=lambda keys: [keys[1], keys[0], *keys[2:]])


def append_record(name: str) -> Callable[[list[Event]], list[Event]]:
    """Return a defect: another record at the end of each final read."""

    def append(events: list[Event]) -> list[Event]:
        where = is_("read", isolation="read_uncommitted", **{"pass": "p2"})
        last = [entry for entry in events if where(entry)][-1]
        end = last.data["end"]
        fields = {"keys": [*last.data["keys"], name], "runs": [*last.data["runs"], [end, 1]]}
        fields |= {"end": end + 1, "next": end + 1}
        others = [entry for entry in events if not where(entry)]
        changed_reads = [
            event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "end": end + 1})
            for entry in events
            if where(entry) and entry is not last
        ]
        return [*others, *changed_reads, event(last.mono_ns, "reader", "read", "ok", **{**last.data, **fields})]

    return append


@pytest.mark.parametrize(
    ("name", "mode", "defect", "reason"),
    [
        ("delivery", "plain", lose_record, f"acknowledged record {key(0)} is lost"),
        ("delivery", "plain", append_record(key(5)), f"rejected record {key(5)} was read"),
        ("delivery", "plain", append_record("stranger"), "stranger was read but never produced"),
        ("delivery", "plain", append_record(key(15)), "its producer never sent it"),
        ("delivery", "plain", append_record(key_of("producer-2", "t", 0, 0)), "was read but never produced"),
        ("delivery", "plain", append_record(key(1)), f"{key(1)} was read 2 times"),
        ("delivery", "idempotent", append_record(key(1)), f"{key(1)} was read 2 times"),
        ("offsets", "plain", lose_record, "holds nothing"),
        ("offsets", "plain", swap_keys, "was read as"),
        ("offsets", "idempotent", append_record(key(1)), "behind record"),
        ("offsets", "plain", lambda e: changed(e, is_("produce", "ok"), 1, offset=0), "acknowledged for"),
        ("offsets", "plain", lambda e: [*e, next(entry for entry in e if entry.op == "produce")], "two outcomes"),
        ("transactions", "transactional", lose_record, f"committed: {key(0)} was not read"),
        ("transactions", "transactional", lambda e: changed(e, is_("txn", "fail"), outcome="ok"), "was not read"),
        ("transactions", "transactional", lambda e: changed(e, is_("txn", "ok"), outcome="fail"), "aborted:"),
    ],
)  # fmt: skip
def test_an_inserted_defect_is_found(
    name: str, mode: str, defect: Callable[[list[Event]], list[Event]], reason: str
) -> None:
    verdict = judge_with(name, defect(outage(mode).finish()))
    assert verdict.valid == "false", verdict.because
    assert reason in "; ".join(verdict.because)


def test_a_record_with_another_value_is_wrong() -> None:
    events = changed(outage().finish(), is_("read", **{"pass": "p2"}), damaged=[0])
    verdict = check_delivery(events)
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert f"{key(0)} was read with another value" in verdict.because[0]


def test_a_client_that_retries_without_idempotence_may_write_twice() -> None:
    events = append_record(key(1))(outage().finish())
    for which in range(sum(map(is_("intend"), events))):
        events = changed(events, is_("intend"), which, first_only=False)
    verdict = check_delivery(events)
    assert (verdict.valid, len(verdict.notes)) == ("true", 1)
    assert f"{key(1)} was read 2 times" in verdict.notes[0]


def uncertain_transaction(*, committed: bool) -> list[Event]:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(3, "ok")
    cluster.transaction(3, "unknown", committed=committed)
    return cluster.finish()


@pytest.mark.parametrize("committed", [True, False])
def test_an_uncertain_transaction_is_all_or_nothing(committed: bool) -> None:
    assert check_transactions(uncertain_transaction(committed=committed)).valid == "true"


def test_a_partly_readable_uncertain_transaction_is_wrong() -> None:
    events = uncertain_transaction(committed=True)
    half = {key(4)}
    runs = [[0, 3], [4, 1], [6, 1]]
    partly_read = [
        event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{
            **entry.data, "keys": [name for name in entry.data["keys"] if name not in half], "runs": runs
        })
        if entry.op == "read" and entry.data["isolation"] == "read_committed" else entry
        for entry in events
    ]  # fmt: skip
    verdict = check_transactions(partly_read)
    assert verdict.valid == "false"
    assert f"uncertain: {key(3)} was read and {key(4)} was not read" in "; ".join(verdict.because)


# -- a producer that is killed ----------------------------------------------------------------------------------------


def killed_producer(*, kill_recorded: bool = True, unlogged_seq: int | None = None) -> list[Event]:
    """A killed producer, whose last record is in the log but not in the history."""
    cluster = Simulated()
    cluster.rest(4)
    for _ in range(4):
        cluster.produce()
    cluster.events.pop()
    if unlogged_seq is not None:
        cluster.write(key(unlogged_seq))
    if kill_recorded:
        cluster.note("test", "killed", None, run=cluster.run)
    cluster.read()
    return cluster.events


def test_an_unlogged_record_of_a_killed_producer_is_valid() -> None:
    assert check_delivery(killed_producer()).valid == "true"
    assert check_offsets(killed_producer()).valid == "true"


def test_a_record_that_a_killed_producer_never_announced_is_wrong() -> None:
    assert check_delivery(killed_producer(unlogged_seq=9)).valid == "true", "it was announced"
    verdict = check_delivery(killed_producer(unlogged_seq=10))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert f"{key(10)} was read" in verdict.because[0]


def test_a_producer_without_an_end_or_a_recorded_kill_is_unknown() -> None:
    verdict = check_delivery(killed_producer(kill_recorded=False))
    assert verdict.valid == "unknown"
    assert "did not end" in "; ".join(verdict.because)


def test_a_torn_line_is_unknown_unless_its_writer_was_killed() -> None:
    def torn(text: str) -> Event:
        return event(0, "history", "torn", "unknown", line=3, text=text)

    line = next(entry for entry in killed_producer() if entry.op == "produce").line()
    assert check_delivery([*outage().finish(), torn(line[:-9])]).valid == "unknown"
    # torn after the run, and after the process
    for length in (len(line) - 9, line.index('"run"')):
        assert check_delivery([*killed_producer(), torn(line[:length])]).valid == "true"
        assert check_delivery([*killed_producer(), torn(line[:length]), torn(line[:length])]).valid == "unknown", (
            "a killed process tears one line only"
        )
    for other in (line.replace("producer-1", "producer-2"), line[:20], line.replace('"producer"', '"reader"')[:90]):
        assert check_delivery([*killed_producer(), torn(other[:-9])]).valid == "unknown", other


def test_a_record_below_the_first_offset_is_unknown() -> None:
    events = [
        event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{
              **entry.data, "low": 1, "begin": 1, "runs": [[1, 6]],
              "keys": entry.data["keys"][1:]})
        if entry.op == "read" and entry.data["begin"] == 0 else entry
        for entry in outage().finish()
    ]  # fmt: skip
    assert check_delivery(events).valid == "unknown"
    events = [
        entry if entry.op != "read" or entry.data["low"] else event(
            entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "low": 1})
        for entry in events
    ]  # fmt: skip
    verdict = check_delivery(events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert f"{key(0)} is below" in verdict.because[0]
