"""Checker of exactly-once copying: records and their group's offsets in one transaction, also in an outage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.copied_records import check_copied
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.record_format import key_of
from written_histories import S, chunks, event

INJECT, HEAL, HEALED, READ = 30, 60, 65, 200


def at(moment_s: float) -> int:
    return round(moment_s * S)


@dataclass
class CopyRun:
    """Run of a copier through an outage; the source has records at all offsets except ``holes``."""

    size: int = 40
    holes: Sequence[int] = (9,)
    copied: int = 0
    seq: int = 0
    txn: int = 0
    events: list[Event] = field(default_factory=list)
    readable_keys: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps: list[tuple[float, str, Outcome | None]] = [
            (INJECT, "inject", None), (INJECT + 1, "proved", "ok"), (HEAL, "heal", None), (HEALED, "healed", "ok")
        ]  # fmt: skip
        self.events += [
            event(at(moment), "fault", "kill-rack", outcome, "b", step=step) for moment, step, outcome in steps
        ]

    def note(self, moment_s: float, op: str, outcome: Outcome | None = None, **more: Any) -> None:
        self.events.append(event(at(moment_s), "copier", op, outcome, run="c", **more))

    def copy(
        self,
        moment_s: float,
        count: int,
        outcome: Outcome | None = "ok",
        *,
        first: int | None = None,
        readable: bool | None = None,
    ) -> CopyRun:
        """Copy ``count`` offsets in a transaction, from ``first`` or the current position.

        ``readable``: whether the copies can be read; by default, if the transaction was committed.
        """
        first = self.copied if first is None else first
        span = [first, first + count]
        self.note(moment_s, "copy", txn=self.txn, group="g", source="s", taken={"s-0": span})
        present = [offset for offset in range(*span) if offset not in self.holes]
        readable = outcome == "ok" if readable is None else readable
        for _ in present:
            key = key_of("c", "d", 0, self.seq)
            fields = {"topic": "d", "key": key, "seq": self.seq, "partition": 0, "txn": self.txn, "offset": self.seq}
            self.note(moment_s + 0.2, "produce", "ok", **fields)
            self.readable_keys += [key] if readable else []
            self.seq += 1
        fields = {"txn": self.txn, "asked": "commit", "records": len(present), "begun_ns": at(moment_s)}
        self.note(moment_s + 0.5, "txn", outcome, **fields)
        self.txn += 1
        if readable:
            self.copied = max(self.copied, span[1])
        return self

    def finish(self, committed: int | None = None, outcome: Outcome | None = "ok") -> list[Event]:
        """Return the history with the final reads and the group's committed offset."""
        offset = self.copied if committed is None else committed
        self.note(READ - 1, "copied", outcome, group="g", source="s", committed={"s-0": offset})
        source = [(offset, f"k{offset}") for offset in range(self.size) if offset not in self.holes]
        for topic, records, end in (
            ("s", source, self.size),
            ("d", [*enumerate(self.readable_keys)], len(self.readable_keys)),
        ):
            about: dict[str, Any] = {"pass": "p", "topic": topic, "partition": 0, "partitions": 1}
            about["isolation"] = "read_committed"
            for part in chunks([(at, str(key)) for at, key in records], 7, end):
                self.events.append(event(at(READ), "reader", "read", **about, low=0, end=end, **part))
        return sorted(self.events, key=lambda entry: entry.mono_ns)


def retried_copy() -> CopyRun:
    """Copy attempts fail in the outage and are repeated after it."""
    return CopyRun().copy(10, 5).copy(40, 7, "fail").copy(50, 7, "unknown").copy(70, 7).copy(75, 20)


def test_each_record_is_copied_once_through_an_outage() -> None:
    verdict = check_copied(retried_copy().finish())
    assert verdict.valid == "true", verdict.because
    assert [re.findall(r"\d+", note) for note in verdict.notes] == [["31", "3", "5"]], "records, committed of all"


def test_an_uncertain_transaction_that_was_committed_counts() -> None:
    run = CopyRun().copy(10, 5).copy(50, 7, "unknown", readable=True).copy(70, 7)
    assert check_copied(run.finish()).valid == "true"


@pytest.mark.parametrize(
    ("run", "committed", "expected"),
    [
        (retried_copy().copy(80, 3, first=30), None, "offset 30 of s-0 was copied before, up to 32"),
        # committed, but the consumer starts from its previous position
        (
            CopyRun().copy(10, 5).copy(50, 7, "unknown", readable=True).copy(70, 7, first=5),
            None,
            "copied before, up to 12",
        ),
        (retried_copy().copy(80, 3, first=34), None, "2 records of s-0 were left out, the first at offset 32"),
        (retried_copy(), 30, "group g: has committed offset 30 of s-0, and the readable copy ends at 32"),
        (retried_copy(), 40, "has committed offset 40"),
        (CopyRun().copy(10, 5).copy(40, 7, "fail").copy(160, 7), None, "no transaction that was begun after the heal"),
        (CopyRun().copy(10, 5).copy(155, 7, "unknown"), None, "no transaction that was begun after the heal"),
    ],
)
def test_wrong_copies_are_found(run: CopyRun, committed: int | None, expected: str) -> None:
    verdict = check_copied(run.finish(committed))
    assert verdict.valid == "false", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_more_records_than_were_consumed_are_wrong() -> None:
    run = retried_copy()
    run.readable_keys.append(run.readable_keys[-1])
    verdict = check_copied(run.finish())
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert re.findall(r"\d+", verdict.because[0]) == ["4", "21", "20"], (
        "the transaction, records read, records consumed"
    )


def test_a_gap_in_the_offsets_is_not_a_missing_copy() -> None:
    """Transaction markers and aborted records have offsets."""
    run = CopyRun(holes=(5, 6)).copy(10, 5).copy(70, 8, first=7)
    assert check_copied(run.finish()).valid == "true"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "nothing was copied"),
        (CopyRun().copy(70, 5).finish(), "no transaction was committed before the outage"),
        ([entry for entry in retried_copy().finish() if entry.process != "fault"], "no outage that was healed"),
        (
            [entry for entry in retried_copy().finish() if entry.op != "copied"],
            "the committed offsets of the group are not recorded",
        ),
        (retried_copy().finish(outcome="unknown"), "group g: its offsets are unknown"),
        ([entry for entry in retried_copy().finish() if entry.op != "read"], "s: no final read (read_committed)"),
        (CopyRun().copy(10, 5).copy(61, 5, "fail").finish()[:-8], "no transaction that was begun after the heal"),
    ],
)
def test_missing_evidence_is_unknown(events: list[Event], expected: str) -> None:
    verdict = check_copied(events)
    assert verdict.valid == "unknown", verdict
    assert any(expected in reason for reason in verdict.because), verdict.because


def test_the_checker_applies_to_copies() -> None:
    assert CHECKERS["copied"].applies(event(1, "copier", "copy"))
    assert not CHECKERS["copied"].applies(event(1, "producer", "txn"))


def test_the_planted_violation_copy_twice_is_found() -> None:
    for events in planted("copy-twice", retried_copy().finish()):
        assert check_copied(events).valid == "false"
