"""Checker of committed group offsets, on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from group_histories import OVERTAKEN, RETRIABLE, at, has, member
from planted_violations import planted
from pyhooks.checkers.group_commits import check_commits, coordinator_offsets
from pyhooks.checkers.group_view import groups
from pyhooks.checkers.groups import acknowledgements, check_groups
from pyhooks.checkers.verdict import Findings
from pyhooks.history.event_log import Event, Outcome
from written_histories import event

D = "d-0"


def commit(run: str, from_s: float, to_s: float, offset: int, exception: str | None = None) -> Event:
    """Commit of an offset from its request to its response, which is an acknowledgement or an exception."""
    outcome: Outcome | None = "ok" if exception is None else "fail" if exception == OVERTAKEN else "unknown"
    more: dict[str, Any] = {} if exception is None else {"exception": exception, "message": "", "retriable": True}
    return member(to_s, "commit", run, outcome, begun_ns=at(from_s), latency_ms=1.0, offsets={D: offset}, **more)


def fetch(run: str, moment_s: float, first: int, after: int, *, exact: bool = True) -> Event:
    """Fetch of the offsets from ``first`` to before ``after``; unless ``exact``, the first offset is not recorded."""
    more: dict[str, Any] = {"first": {D: first}} if exact else {}
    return member(moment_s, "fetch", run, count=after - first, next={D: after}, from_ns=at(moment_s - 0.5), **more)


def acked(*offsets: int) -> list[Event]:
    """Acknowledgements of records at these offsets."""
    return [
        event(at(1.5), "producer", "produce", "ok", topic="d", partition=0, offset=offset, key=f"k{offset}")
        for offset in offsets
    ]


def coordinator_reports(moment_s: float, **offsets: int) -> Event:
    """Report of the coordinator: the committed offset of partition d-0 as ``d``, or none."""
    return event(at(moment_s), "test", "committed", "ok", group="g", offsets={"d-0": offsets["d"]} if offsets else {})


# The first owner reads from the beginning, commits 10 and 20; in GIVEN_UP it then revokes the partition.
FIRST = [
    member(1, "join", "r1"), has(2, "r1", D), fetch("r1", 3, 0, 10), commit("r1", 3, 3.5, 10), fetch("r1", 5, 10, 20),
    commit("r1", 5, 5.5, 20),
]  # fmt: skip
GIVEN_UP = [*FIRST, has(8, "r1", op="revoked"), member(7, "join", "r2"), has(10, "r2", D)]


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (FIRST, "true", ""),
        ([*FIRST, fetch("r1", 6.5, 5, 6), commit("r1", 7, 7.5, 5)], "false", "committed 5 after 20 was acknowledged"),
        # the later commit began before the earlier one was acknowledged
        ([*FIRST, commit("r1", 5.2, 7, 15)], "true", ""),
        # the failed commit may not have been applied
        ([*FIRST, commit("r1", 6, 6.5, 30, RETRIABLE), commit("r1", 7, 7.5, 25)], "true", ""),
        ([*FIRST, commit("r1", 6, 6.5, 5, RETRIABLE), commit("r1", 7, 7.5, 6, OVERTAKEN)], "true", ""),
        ([*GIVEN_UP, commit("r2", 11, 11.5, 12)], "false", "r2 committed 12 after 20 was acknowledged"),
        ([*GIVEN_UP, fetch("r2", 11, 20, 25), commit("r2", 11, 11.5, 25)], "true", ""),
        ([*GIVEN_UP, fetch("r2", 11, 19, 25)], "false", "r2 began at 19, though 20 was committed before"),
        # the first offset of the fetch is not recorded; it may have been 20
        ([*GIVEN_UP, fetch("r2", 11, 10, 25, exact=False)], "true", ""),
        ([*GIVEN_UP, fetch("r2", 11, 10, 20, exact=False)], "false", "r2 began at 19"),
        # acknowledged only after the new owner fetched the committed offset
        ([*GIVEN_UP, commit("r1", 6, 10.5, 30), fetch("r2", 11, 20, 25)], "true", ""),
        ([*GIVEN_UP, commit("r1", 6, 10.5, 30), fetch("r2", 11, 30, 35)], "true", ""),
        # whether the offset was committed is unknown
        ([*GIVEN_UP, commit("r1", 6, 7, 30, RETRIABLE), fetch("r2", 11, 30, 35)], "true", ""),
        ([*GIVEN_UP, commit("r1", 6, 7, 30, RETRIABLE), fetch("r2", 11, 20, 35)], "true", ""),
        ([*GIVEN_UP, commit("r1", 6, 7, 30, OVERTAKEN), fetch("r2", 11, 30, 35), *acked(29)], "false", "began at 30"),
        ([*GIVEN_UP, fetch("r2", 11, 22, 25), *acked(19, 21, 22)], "false", "began at 22, though no more than 20"),
        # a member's own commits do not explain its first offset
        ([*GIVEN_UP, fetch("r2", 12, 22, 25), *acked(21), commit("r2", 11, 11.5, 25)], "false", "began at 22"),
        ([*GIVEN_UP, fetch("r2", 11, 22, 25), *acked(19, 22)], "unknown", "whether a record was skipped is unknown"),
        # the same member starts from the committed offset after it had lost the partition
        ([*FIRST, has(8, "r1", op="revoked"), has(9, "r1", D), fetch("r1", 11, 20, 25)], "true", ""),
        ([*FIRST, has(8, "r1", op="revoked"), has(9, "r1", D), fetch("r1", 11, 15, 25)], "false", "r1 began at 15"),
        # the member kept the partition and continues from its position
        ([*FIRST, has(8, "r1", D), fetch("r1", 11, 30, 35)], "true", ""),
        ([member(1, "join", "r1"), has(2, "r1", D), fetch("r1", 3, 4, 9), *acked(0, 3)], "false", "r1 began at 4"),
        ([*FIRST, coordinator_reports(40, d=20)], "true", ""),
        ([*FIRST, coordinator_reports(40, d=10)], "false", "the coordinator has 10 in the end, 20 was acknowledged"),
        ([*FIRST, coordinator_reports(40)], "false", "the coordinator has nothing in the end"),
        ([*FIRST, coordinator_reports(40, d=25)], "false", "25 in the end, which was never committed"),
        ([*FIRST, commit("r1", 6, 7, 30, RETRIABLE), coordinator_reports(40, d=30)], "true", ""),
    ],
)  # fmt: skip
def test_verdict_on_committed_offsets(events: Sequence[Event], valid: str, reason: str) -> None:
    events = sorted(events, key=lambda entry: entry.mono_ns)
    findings = Findings()
    (group,) = groups(events)
    check_commits(group, acknowledgements(events), coordinator_offsets(events, "g"), findings)
    verdict = findings.verdict("groups")
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict


def test_offsets_are_judged_without_coordinator_reports() -> None:
    verdict = check_groups([*FIRST, commit("r1", 7, 7.5, 5)])
    assert verdict.valid == "false"


def test_the_planted_violation_lose_commit_is_found() -> None:
    events = sorted([*FIRST, coordinator_reports(40, d=20)], key=lambda entry: entry.mono_ns)
    for lost in planted("lose-commit", events):
        verdict = check_groups(lost)
        assert verdict.valid == "false"
        assert "g: d-0: the coordinator has 19 in the end, 20 was acknowledged" in verdict.because
