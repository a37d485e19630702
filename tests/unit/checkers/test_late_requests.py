"""Checker of records that were appended after their client had given them up."""

from __future__ import annotations

from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.late_requests import MARGIN_MS, check_late_requests
from pyhooks.history.event_log import Event, Outcome
from written_histories import MS, event

KEY = "p/t/0/0"
GAVE_UP_MS = 1000


def history(append_ms: int, *, end: Outcome, committed: bool, outcome: Outcome = "unknown") -> list[Event]:
    """Return a transaction that ended with ``end``; the client gave up its one record at ``GAVE_UP_MS``."""
    chunk: dict[str, Any] = {"pass": "1", "topic": "t", "partition": 0, "partitions": 1, "isolation": "read_committed"}
    chunk |= {"low": 0, "end": 1, "begin": 0, "next": 1, "runs": [[0, 1]] if committed else []}
    return [
        event(GAVE_UP_MS * MS, "producer", "produce", outcome, run="p", topic="t", key=KEY, partition=0, txn=0),
        event(2 * GAVE_UP_MS * MS, "producer", "txn", end, run="p", txn=0, records=1, begun_ns=0),
        event(9 * GAVE_UP_MS * MS, "test", "appended", topic="t", partition=0, key=KEY, append_ms=append_ms),
        event(10 * GAVE_UP_MS * MS, "reader", "read", **chunk, keys=[KEY] if committed else []),
    ]


LATE_MS = GAVE_UP_MS + 3000


@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (history(LATE_MS, end="fail", committed=False), "true"),
        (history(LATE_MS, end="unknown", committed=True), "true"),
        (history(LATE_MS, end="fail", committed=True), "false"),
        (history(GAVE_UP_MS + MARGIN_MS, end="fail", committed=True), "unknown"),
        (history(LATE_MS, end="ok", committed=True, outcome="ok"), "unknown"),
    ],
)
def test_late_records(events: list[Event], valid: str) -> None:
    assert check_late_requests(events).valid == valid


def test_the_planted_violation_is_found() -> None:
    events = history(LATE_MS, end="ok", committed=True)
    for changed in planted("commit-late", events):
        assert check_late_requests(changed).valid == "false"
