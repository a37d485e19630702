"""Records that are copied with their group's offsets: each exactly once, also in an outage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyhooks.checkers.copied_records import check_copied
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.record_format import key_of
from written_histories import S, chunks, event

INJECT, HEAL, HEALED, READ = 30, 60, 65, 200


def at(moment_s: float) -> int:
    return round(moment_s * S)


@dataclass
class Copied:
    """A source with records at all offsets but some, and a copier."""

    size: int = 40
    holes: Sequence[int] = (9,)
    copied: int = 0
    seq: int = 0
    txn: int = 0
    events: list[Event] = field(default_factory=list)
    shown: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps: list[tuple[float, str, Outcome | None]] = [
            (INJECT, "inject", None), (INJECT + 1, "proved", "ok"), (HEAL, "heal", None), (HEALED, "healed", "ok")
        ]  # fmt: skip
        self.events += [event(at(moment), "fault", "kill-rack", how, "b", step=step) for moment, step, how in steps]

    def tell(self, moment_s: float, op: str, outcome: Outcome | None = None, **more: Any) -> None:
        self.events.append(event(at(moment_s), "copier", op, outcome, run="c", **more))

    def copy(
        self,
        moment_s: float,
        count: int,
        outcome: Outcome | None = "ok",
        *,
        first: int | None = None,
        seen: bool | None = None,
    ) -> Copied:
        """A transaction over the next offsets, or others; one that is uncertain may be seen."""
        first = self.copied if first is None else first
        span = [first, first + count]
        self.tell(moment_s, "copy", txn=self.txn, group="g", source="s", taken={"s-0": span})
        held = [offset for offset in range(*span) if offset not in self.holes]
        seen = outcome == "ok" if seen is None else seen
        for _ in held:
            key = key_of("c", "d", 0, self.seq)
            fields = {"topic": "d", "key": key, "seq": self.seq, "partition": 0, "txn": self.txn, "offset": self.seq}
            self.tell(moment_s + 0.2, "produce", "ok", **fields)
            self.shown += [key] if seen else []
            self.seq += 1
        fields = {"txn": self.txn, "asked": "commit", "records": len(held), "begun_ns": at(moment_s)}
        self.tell(moment_s + 0.5, "txn", outcome, **fields)
        self.txn += 1
        if seen:
            self.copied = max(self.copied, span[1])
        return self

    def whole(self, committed: int | None = None, outcome: Outcome | None = "ok") -> list[Event]:
        """With the final reads, and what the group has committed."""
        offset = self.copied if committed is None else committed
        self.tell(READ - 1, "copied", outcome, group="g", source="s", committed={"s-0": offset})
        source = [(offset, f"k{offset}") for offset in range(self.size) if offset not in self.holes]
        for topic, held, end in (("s", source, self.size), ("d", [*enumerate(self.shown)], len(self.shown))):
            about: dict[str, Any] = {"pass": "p", "topic": topic, "partition": 0, "partitions": 1}
            about["isolation"] = "read_committed"
            for part in chunks([(at, str(key)) for at, key in held], 7, end):
                self.events.append(event(at(READ), "reader", "read", **about, low=0, end=end, **part))
        return sorted(self.events, key=lambda one: one.mono_ns)


def good() -> Copied:
    """Given up in the outage, and copied after it."""
    return Copied().copy(10, 5).copy(40, 7, "fail").copy(50, 7, "unknown").copy(70, 7).copy(75, 20)


def test_each_record_is_copied_once_through_an_outage() -> None:
    found = check_copied(good().whole())
    assert found.valid == "true", found.because
    assert [re.findall(r"\d+", note) for note in found.notes] == [["31", "3", "5"]], "records, committed of all"


def test_an_uncertain_transaction_that_was_committed_counts() -> None:
    made = Copied().copy(10, 5).copy(50, 7, "unknown", seen=True).copy(70, 7)
    assert check_copied(made.whole()).valid == "true"


@pytest.mark.parametrize(
    ("made", "committed", "expected"),
    [
        (good().copy(80, 3, first=30), None, "offset 30 of s-0 was copied before, up to 32"),
        # it was committed, and the consumer went back all the same
        (Copied().copy(10, 5).copy(50, 7, "unknown", seen=True).copy(70, 7, first=5), None, "copied before, up to 12"),
        (good().copy(80, 3, first=34), None, "2 records of s-0 were left out, the first at offset 32"),
        (good(), 30, "group g: has committed offset 30 of s-0, and the readable copy ends at 32"),
        (good(), 40, "has committed offset 40"),
        (Copied().copy(10, 5).copy(40, 7, "fail").copy(160, 7), None, "no transaction that was begun after the heal"),
        (Copied().copy(10, 5).copy(155, 7, "unknown"), None, "no transaction that was begun after the heal"),
    ],
)
def test_wrong_copies_are_found(made: Copied, committed: int | None, expected: str) -> None:
    found = check_copied(made.whole(committed))
    assert found.valid == "false", found
    assert any(expected in reason for reason in found.because), found.because


def test_more_records_than_were_consumed_are_wrong() -> None:
    made = good()
    made.shown.append(made.shown[-1])
    found = check_copied(made.whole())
    assert (found.valid, len(found.because)) == ("false", 1)
    assert re.findall(r"\d+", found.because[0]) == ["4", "21", "20"], "the transaction, records read, records consumed"


def test_a_gap_in_the_offsets_is_not_a_missing_copy() -> None:
    """Markers, and what was aborted, have offsets."""
    made = Copied(holes=(5, 6)).copy(10, 5).copy(70, 8, first=7)
    assert check_copied(made.whole()).valid == "true"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "nothing was copied"),
        (Copied().copy(70, 5).whole(), "no transaction was committed before the outage"),
        ([one for one in good().whole() if one.process != "fault"], "no outage that was healed"),
        ([one for one in good().whole() if one.op != "copied"], "the committed offsets of the group are not recorded"),
        (good().whole(outcome="unknown"), "group g: its offsets are unknown"),
        ([one for one in good().whole() if one.op != "read"], "s: no final read (read_committed)"),
        (Copied().copy(10, 5).copy(61, 5, "fail").whole()[:-8], "no transaction that was begun after the heal"),
    ],
)
def test_missing_evidence_is_unknown(events: list[Event], expected: str) -> None:
    found = check_copied(events)
    assert found.valid == "unknown", found
    assert any(expected in reason for reason in found.because), found.because


def test_the_checker_applies_to_copies() -> None:
    assert CHECKERS["copied"].applies(event(1, "copier", "copy"))
    assert not CHECKERS["copied"].applies(event(1, "producer", "txn"))
