"""Checker of read-committed readers and transactions after a heal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers import transaction_recovery
from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.transaction_recovery import check_transaction_recovery, longest_stall_s, reader_progress
from pyhooks.history.event_log import Event, Outcome
from written_histories import S, event

HEAL = 50
BOUND = 20.0


def at(moment_s: float) -> int:
    return round(moment_s * S)


def fault(inject_s: float = 10, heal_s: float | None = HEAL, rack: str = "b") -> list[Event]:
    steps: list[tuple[float, str, Outcome | None]] = [(inject_s, "inject", None), (inject_s + 1, "proved", "ok")]
    if heal_s is not None:
        steps += [(heal_s, "heal", None), (heal_s + 5, "healed", "ok")]
    return [event(at(moment), "fault", "kill-rack", outcome, rack, step=step) for moment, step, outcome in steps]


def step(moment_s: float, position: int, end: int | None, topic: str = "t") -> Event:
    """Report of a read-committed reader: its position and the log end offset; None if it could not be queried."""
    fields: dict[str, Any] = {
        "run": "r1",
        "topic": topic,
        "partition": 0,
        "isolation": "read_committed",
        "position": position,
    }
    fields |= {"records": position, "asked_ns": at(moment_s - 0.1)}
    if end is None:
        return event(at(moment_s), "follower", "follow", "unknown", **fields, error="_TIMED_OUT")
    return event(at(moment_s), "follower", "follow", "ok", **fields, stable=position, end=end)


def txn(begun_s: float, ended_s: float, outcome: Outcome | None = "ok", run: str = "p1") -> Event:
    data: dict[str, Any] = {"run": run, "txn": round(begun_s), "asked": "commit", "records": 1, "begun_ns": at(begun_s)}
    return event(at(ended_s), "producer", "txn", outcome, **data)


def reader(*, end_s: float | None, last_s: float = 80) -> list[Event]:
    """Reader that stalls at offset 10 from the fault on; the log end offset is 40 at the heal."""
    stalled = [step(moment, 10, 10 + min(moment, 30)) for moment in range(5, int(last_s) + 1, 5)]
    if end_s is None:
        return stalled
    return [entry for entry in stalled if entry.mono_ns < at(end_s)] + [step(end_s, 42, 42)]


TXNS = [txn(5, 6), txn(20, 58), txn(59, 60)]


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        ([*fault(), *reader(end_s=62), *TXNS], "true", ""),
        # the log end offset at the heal counts, not a later one
        ([*fault(), *reader(end_s=62), step(80, 42, 99), *TXNS], "true", ""),
        ([*fault(), *reader(end_s=None), *TXNS], "false", "30.0 s after the heal at offset 10, the end was 40"),
        ([*fault(), *reader(end_s=79), *TXNS], "false", "the end was 40 then"),
        # not observed in between: it may have caught up in time
        ([*fault(), step(51, 10, 40), step(79, 40, 40), *TXNS], "unknown", "not seen at 40"),
        ([*fault(), *reader(end_s=None, last_s=60), *TXNS], "unknown", "not observed later than 10.0 s"),
        ([*fault(), *reader(end_s=None, last_s=45), *TXNS], "unknown", "did not report the log's end"),
        ([*fault(), step(55, 10, None), step(80, 10, None), *TXNS], "unknown", "did not report the log's end"),
        ([*fault(), *fault(60, 100, "c"), *reader(end_s=62), *TXNS], "unknown", "not observed later than 5.0 s"),
        ([*fault(heal_s=None), *reader(end_s=62), *TXNS], "unknown", "never healed"),
        ([*reader(end_s=62), *TXNS], "unknown", "no heal"),
        ([*fault(), *TXNS], "unknown", "no reader of committed records"),
        ([*fault(), *reader(end_s=62)], "unknown", "no transaction in the history"),
        # a transaction open at the heal does not show that another can begin
        ([*fault(), *reader(end_s=62), txn(5, 6), txn(20, 58)], "unknown", "none ended after 8.0 s"),
        ([*fault(), *reader(end_s=62), txn(5, 6), txn(55, 75, "unknown")], "false", "within 20 s"),
        ([*fault(), *reader(end_s=62), txn(5, 6), txn(55, 75)], "false", "within 20 s"),
        ([*fault(), *reader(end_s=62), txn(5, 6), txn(55, 60, "fail")], "unknown", "none ended after 10.0 s"),
        # a producer that began after the heal needs no transaction
        ([*fault(), *reader(end_s=62), *TXNS, txn(55, 75, "unknown", "p2")], "true", ""),
        ([*fault(), *reader(end_s=62), *TXNS, txn(8, 9, run="p2")], "unknown", "p2: no transaction"),
    ],
)  # fmt: skip
def test_verdict_on_readers_and_transactions_after_a_heal(
    events: Sequence[Event], valid: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_recovery, "BOUND_S", BOUND)
    verdict = check_transaction_recovery(events)
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict


def test_the_notes_report_how_long_readers_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_recovery, "BOUND_S", BOUND)
    verdict = check_transaction_recovery([*fault(), *reader(end_s=62), *TXNS])
    assert [re.findall(r"[\d.]+ s", note) for note in verdict.notes] == [["40.0 s"], ["12.0 s"], ["10.0 s"]]
    assert all(note.startswith("kill-rack b: ") for note in verdict.notes)
    assert ["r1 on t-0" in note for note in verdict.notes] == [True, True, False]


def test_a_reader_at_the_end_of_the_log_does_not_stall() -> None:
    ((_, steps),) = reader_progress(
        [step(1, 10, 10), step(2, 10, 10), step(3, 10, 12), step(5, 10, 12), step(6, 12, 12)]
    ).items()
    assert longest_stall_s(steps, 0, at(9)) == pytest.approx(2.0)


def test_the_checker_applies_to_followers() -> None:
    assert CHECKERS["unstuck"].applies(step(1, 1, 1))
    assert not CHECKERS["unstuck"].applies(txn(1, 2))


def test_the_planted_violation_stick_reader_is_found() -> None:
    for events in planted("stick-reader", [*fault(), *reader(end_s=62, last_s=200), *TXNS, step(180, 42, 42)]):
        assert check_transaction_recovery(events).valid == "false"
