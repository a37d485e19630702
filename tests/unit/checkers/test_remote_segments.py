"""Segments in tiered storage while racks are missing."""

from __future__ import annotations

import random
from typing import Any

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.remote_segments import check_remote_segments
from pyhooks.history.event_log import Event
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from written_histories import S, event

LOST_S, BACK_S, END_S = 10.0, 25.0, 40.0


def history(*, early: bool = False, waits: bool = True, copies: bool = True, leader: bool = True) -> list[Event]:
    """Return a history with a segment of ten records every second, of which remote storage has what is committed.

    Args:
        early: whether a segment that is not committed is remote.
        waits: whether records are written while racks are missing.
        copies: whether segments are copied while enough racks are in sync.
        leader: whether the leader returns its high watermark.
    """
    events: list[Event] = []

    def note(at_s: float, process: str, op: str, outcome: Any = "ok", **data: Any) -> None:
        events.append(event(round(at_s * S), process, op, outcome, **data))

    settings: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": 2, "step": "seen", "topic": "t"}
    note(0, "isr-watch", "settings", **settings)
    for step in range(int(2 * END_S)):
        at_s = step / 2
        short = LOST_S <= at_s < BACK_S
        state = {"leader": 1, "isr": [1, 2] if short else [1, 2, 3], "replicas": [1, 2, 3]}
        note(at_s, "isr-watch", "look", racks={"1": "a", "2": "a", "3": "b"}, partitions={"t-0": state})
        written = int(LOST_S if short and not waits else at_s)
        committed = int(LOST_S) if short else written
        bases = [10 * second for second in range(written + 1)]
        remote = bases[: committed + (1 if early and short else 0)] if copies else bases[:1]
        asked_ns = round((at_s + 0.1) * S)
        note(at_s + 0.2, "test", "remote-segments", None, topic="t", asked_ns=asked_ns, local=bases, remote=remote)
        if leader:
            high = {"t-0": 10 * committed}
            note(at_s + 0.4, "viewer", "visible", run="v", asked_ns=round((at_s + 0.3) * S), next=high, high=high)
    return events


def test_segments_that_wait_are_valid() -> None:
    verdict = check_remote_segments(history())
    assert verdict.valid == "true", verdict
    assert verdict.notes == ("t-0: ISR [1, 2] in rack(s) a, too few: 14 complete segments wait, 10 are remote",)


def test_a_segment_beyond_the_high_watermark_is_wrong() -> None:
    verdict = check_remote_segments(history(early=True))
    assert verdict.valid == "false"
    assert verdict.because[0] == (
        "t-0: the segment of offsets 100 to 109 was remote while the high watermark was 100"
    )  # fmt: skip


def test_missing_evidence_is_unknown() -> None:
    assert check_remote_segments(history(waits=False)).because == (
        "no complete segment was seen to wait while too few were in sync",
    )
    assert check_remote_segments(history(copies=False)).because == (
        "no segment was seen to be copied while enough were in sync",
    )
    assert check_remote_segments(history(leader=False)).because == (
        "t-0: no high watermark was returned after its segments were listed",
    )


def test_the_checker_applies_to_listings() -> None:
    assert any(map(CHECKERS["remote"].applies, history()))
    assert not any(CHECKERS["remote"].applies(one) for one in history() if one.op != "remote-segments")


def test_a_planted_violation_is_found() -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == "copy-uncommitted"]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_remote_segments(planted).valid == "false"
