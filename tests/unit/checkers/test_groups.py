"""Checker of consumer groups through an outage, on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from group_histories import OVERTAKEN, RETRIABLE, at, has, member
from pyhooks.checkers.group_latencies import figures
from pyhooks.checkers.group_view import groups
from pyhooks.checkers.groups import TOPIC, WAITING, check_groups, java_hash, partition_of
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.outcomes import REBALANCING
from written_histories import event

RACKS = {"1": "a", "2": "a", "3": "b"}
INJECT, HEAL, HEALED, END = 30, 60, 65, 140
BOUND = 30.0
UNKNOWN = "org.apache.kafka.common.errors.UnknownServerException"


def cluster_events(racks: int = 2, replicas: Sequence[int] = (1, 2, 3), end_s: float = END) -> list[Event]:
    """Rack b is down from INJECT to HEALED, with two observations a second."""
    fields: dict[str, Any] = {"topic": TOPIC, "step": "seen", "min.insync.replicas": 1, "min.insync.racks": racks}
    events = [event(0, "isr-watch", "settings", **fields)]
    steps: list[tuple[float, str, Outcome | None]] = [
        (INJECT, "inject", None), (INJECT + 1, "proved", "ok"), (HEAL, "heal", None), (HEALED, "healed", "ok")
    ]  # fmt: skip
    events += [event(at(moment), "fault", "kill-rack", outcome, "b", step=step) for moment, step, outcome in steps]
    for half in range(round(end_s * 2)):
        moment = half / 2
        isr = [broker for broker in replicas if broker != 3 or not INJECT + 1 <= moment < HEALED - 1]
        state = {"leader": replicas[0], "isr": isr, "replicas": list(replicas)}
        events.append(event(at(moment), "isr-watch", "look", racks=RACKS, partitions={f"{TOPIC}-0": state}))
    return events


def commits(run: str, from_s: float, to_s: float, exception: str | None = None, duration_s: float = 0.5) -> list[Event]:
    outcome: Outcome | None = "ok" if exception is None else "fail" if exception in REBALANCING else "unknown"
    more = {} if exception is None else {"exception": exception, "message": "", "retriable": True}
    events, moment = [], from_s
    while moment + duration_s <= to_s:
        fields = {"begun_ns": at(moment), "latency_ms": duration_s * 1000, "offsets": {}, **more}
        events.append(member(moment + duration_s, "commit", run, outcome, **fields))
        moment += duration_s + 1
    return events


def fetches(run: str, from_s: float, to_s: float, partition: str) -> list[Event]:
    """Fetch one record per second; the first fetch also returns all earlier records."""
    return [
        member(moment, "fetch", run, count=1 if moment > from_s else moment + 1, next={partition: moment + 1},
               from_ns=at(moment - 1))
        for moment in range(round(from_s), round(to_s))
    ]  # fmt: skip


def acked(partition: str, end_s: int = END) -> list[Event]:
    topic, _, number = partition.rpartition("-")
    return [
        event(at(moment - 0.5), "producer", "produce", "ok", topic=topic, partition=int(number), offset=moment, key="k")
        for moment in range(1, end_s)
    ]


def leave(run: str, moment_s: float, duration_s: float = 0.5) -> Event:
    return member(moment_s + duration_s, "leave", run, "ok", begun_ns=at(moment_s), latency_ms=duration_s * 1000)


def two_members() -> list[Event]:
    """Two members that share three partitions."""
    return [member(1, "join", "r1"), member(1, "join", "r2"), has(3, "r1", "d-0", "d-2"), has(3, "r2", "d-1")]


def late_assignment() -> list[Event]:
    """Two members that get their partitions only after the outage began."""
    late = INJECT + 0.5
    return [member(1, "join", "r1"), member(1.1, "join", "r2"), has(late, "r1", "d-0", "d-2"), has(late, "r2", "d-1")]


def blocked_commits() -> list[Event]:
    """Commits that succeed before and after the outage and get no response during it."""
    events = []
    for run in ("r1", "r2"):
        events += [
            *commits(run, 4, INJECT - 1),
            *commits(run, INJECT + 4, HEAL, RETRIABLE, 5),
            *commits(run, 70, END - 1),
        ]
    return events


def continuous_commits() -> list[Event]:
    """Commits that succeed throughout."""
    return [*commits("r1", 4, END - 1), *commits("r2", 4, END - 1)]


R2 = [*cluster_events(), *two_members(), *blocked_commits()]
BEFORE_HEAL = [entry for entry in blocked_commits() if entry.mono_ns < at(66)]
UNTIL_HEAL = [*cluster_events(), *two_members(), *BEFORE_HEAL]
R1 = [*cluster_events(racks=1), *two_members(), *continuous_commits()]
# a member joins in the outage, and the rebalance ends after it
THIRD_JOINS = [
    member(40, "join", "r3"), has(75, "r1", "d-0"), has(75, "r2", "d-1"), has(76, "r3", "d-2"),
    *commits("r3", 77, END - 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (R2, "true", ""),
        (R1, "true", ""),
        # with a single replica one rack is sufficient
        ([*cluster_events(replicas=(1,)), *two_members(), *continuous_commits()], "true", ""),
        ([*cluster_events(), *two_members(), *continuous_commits()], "false", "a commit succeeded after 0.5 s"),
        ([*cluster_events(racks=1), *two_members(), *blocked_commits()], "false", f"a commit failed with {RETRIABLE}"),
        ([*R2, *commits("r1", 40, 42, UNKNOWN)], "false", f"a commit failed with {UNKNOWN}"),
        ([*R1, *commits("r1", 40, 41, OVERTAKEN)], "true", ""),
        ([*R2, member(50, "poll", "r1", "unknown", exception=UNKNOWN, message="")], "false", "a poll failed"),
        ([*R2, *commits("r1", 100, 139, None, 35)], "false", "a commit took 35.0 s"),
        # after the heal the coordinator may be unavailable until the bound
        ([*R2, *commits("r1", 68, 74, RETRIABLE, 5)], "true", ""),
        ([*R2, *commits("r1", 110, 116, RETRIABLE, 5)], "false", f"a commit failed with {RETRIABLE}"),
        ([*UNTIL_HEAL, *commits("r1", 70, 90, RETRIABLE, 5)], "false", "r1: no commit succeeded within"),
        ([*UNTIL_HEAL, *commits("r1", 70, 90, RETRIABLE, 5)], "false", "r2: no commit succeeded within"),
        (UNTIL_HEAL, "unknown", "none was tried"),
        ([*cluster_events(end_s=80), *two_members(), *BEFORE_HEAL, *commits("r1", 70, 79, RETRIABLE, 5)], "unknown",
         "for 1"),
        ([*R2, *THIRD_JOINS], "true", ""),
        ([*R1, *THIRD_JOINS], "false", "join of r3: not over within 30 s"),
        ([*R1, member(40, "join", "r3"), has(41, "r1", "d-0"), has(42, "r3", "d-2")], "true", ""),
        ([*R2, member(40, "join", "r3"), has(41, "r1", "d-0"), has(42, "r3", "d-2")], "false", "was over after 2.0 s"),
        ([*R2, member(40, "join", "r3")], "false", "join of r3: not over within 30 s"),
        ([*R2, member(120, "join", "r3")], "unknown", "known for 19.5 s only"),
        ([*R1, member(50, "join", "r3"), leave("r3", 52)], "false", "leave of r3: not over"),
        ([*R1, member(50, "join", "r3"), leave("r3", 52), has(60, "r1", "d-0", "d-2")], "true", ""),
        # the leave superseded the join, whose completion was never observed
        ([*R1, member(50, "join", "r3"), leave("r3", 75), has(80, "r1", "d-0", "d-2")], "unknown", "25.0 s later"),
        # the same, with an immediate leave and no other completed join since the outage
        ([*R2, member(100, "join", "r4"), leave("r4", 101), has(102, "r1", "d-0", "d-2")], "unknown", "join of r4"),
        ([*R2, *THIRD_JOINS, member(100, "join", "r4"), leave("r4", 101), has(102, "r1", "d-0")], "true", ""),
        # two members that join almost at the same time
        ([*cluster_events(), *late_assignment(), *blocked_commits()], "true", ""),
        # during the outage no rebalance can complete
        ([*R2, member(35, "join", "r4"), leave("r4", 38), *THIRD_JOINS], "true", ""),
        # r3 gets no partition; then d-2 has no owner; then d-0 has two owners and d-2 none
        ([*R1, member(90, "join", "r3"), has(91, "r1", "d-0", "d-2")], "false", "join of r3"),
        ([*R1, member(90, "join", "r3"), has(91, "r1", "d-0"), has(92, "r3", "d-0")], "false", "join of r3"),
        ([*R1, member(90, "join", "r3"), has(92, "r3", "d-0")], "false", "join of r3"),
        ([*R2, *fetches("r1", 4, END, "d-0"), *acked("d-0"), leave("r1", 138), leave("r2", 139)], "true", ""),
        ([*R2, *fetches("r1", 4, 40, "d-0"), *fetches("r1", 75, END, "d-0"), *acked("d-0")], "false", "nothing of d-0"),
        ([*R2, *fetches("r1", 4, 40, "d-0"), *fetches("r1", 75, END, "d-0"), *acked("d-0", 40)], "true", ""),
        # an unassigned partition is not read
        ([*R2, *fetches("r1", 4, 40, "d-0"), has(41, "r1", op="revoked"), *acked("d-0")], "true", ""),
        ([*cluster_events()], "unknown", "no member"),
        ([*two_members(), *blocked_commits()], "unknown", "was not observed"),
        ([*cluster_events(), *two_members()], "unknown", "no commit could be judged"),
    ],
)  # fmt: skip
def test_verdict_on_groups(events: Sequence[Event], valid: str, reason: str) -> None:
    verdict = check_groups(sorted(events, key=lambda entry: entry.mono_ns), bound_s=BOUND)
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict


def test_commits_overtaken_by_a_rebalance_are_noted() -> None:
    verdict = check_groups(
        sorted([*R1, *commits("r1", 40, 41, OVERTAKEN)], key=lambda entry: entry.mono_ns), bound_s=BOUND
    )
    (note,) = verdict.notes
    assert note.startswith("g: r1: 1 commits")


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31))]
)
def test_the_partition_of_a_group_is_computed_with_java_s_string_hash(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert 0 <= partition_of(text, 3) < 3


def test_a_group_is_balanced_when_all_members_and_partitions_are_assigned() -> None:
    (group,) = groups([*two_members(), *THIRD_JOINS])
    assert [group.balanced(at(moment)) for moment in (2, 10, 50, 80)] == [False, True, False, True]
    assert group.balanced_ns(at(40)) == at(76)


def test_errors_of_waiting_and_of_rebalancing_are_disjoint() -> None:
    assert not WAITING & REBALANCING


def test_figures_include_commits_before_and_during_the_outage() -> None:
    (events,) = figures(sorted([*R2, *THIRD_JOINS], key=lambda entry: entry.mono_ns))
    assert events["commits"]["during the outage"]["ok"] == 0
    assert events["commits"]["during the outage"]["failed"] == {"RetriableCommitFailedException": 8}
    assert events["commits"]["before"]["ok"] > 20
    assert events["changes"][-1] == {
        "what": "join", "when": "during the outage", "over_after_s": 36.0, "over_after_the_heal_s": 16.0,
    }  # fmt: skip
    assert events["first_commit_after_the_heal_s"] == [10.5, 10.5, 17.5]


def test_a_group_without_an_outage_has_no_figures() -> None:
    assert figures([*two_members()]) == []


def test_the_checker_applies_to_members() -> None:
    assert CHECKERS["groups"].applies(member(1, "join", "r1"))
    assert not CHECKERS["groups"].applies(acked("d-0")[0])
