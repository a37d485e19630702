"""Latencies of consumer groups' commits and rebalances before, during and after an outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.group_view import Commit, Group, RecordedMember, groups
from pyhooks.checkers.settling_times import NS
from pyhooks.history.event_log import Event

BEFORE, DURING, AFTER = "before", "during the outage", "after"


def figures(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the results of each group's commits and changes before, during and after its outage.

    An outage is from the proof of a fault to the start of its heal; commits in flight at either moment are left out. A
    group that went through no outage, or through several, is left out.
    """
    faults = cluster_view.faults(events)
    results = []
    for group in groups(events):
        begin_ns = min(member.join_ns for member in group.members)
        end_ns = max(member.left_ns or events[-1].mono_ns for member in group.members)
        met = [fault for fault in faults if fault.proved_ns and fault.heal_ns and begin_ns < fault.inject_ns < end_ns]
        if len(met) == 1:
            results.append(_group(group, met[0]))
    return results


def _group(group: Group, fault: RecordedFault) -> dict[str, Any]:
    heal_ns = fault.heal_ns or 0
    commits = [commit for member in group.members for commit in member.commits]
    changes: list[dict[str, Any]] = []
    for at_ns, description in group.changes:
        if not any(member.is_member(at_ns) for member in group.members):
            continue
        over_ns = group.balanced_ns(at_ns)
        change: dict[str, Any] = {"what": description.partition(" ")[0], "when": _phase(fault, at_ns, at_ns)}
        change["over_after_s"] = None if over_ns is None else round((over_ns - at_ns) / NS, 1)
        if over_ns is not None and at_ns < heal_ns < over_ns:
            change["over_after_the_heal_s"] = round((over_ns - heal_ns) / NS, 1)
        changes.append(change)
    at_heal = [member for member in group.members if member.join_ns < heal_ns and member.is_member(heal_ns)]
    firsts = [_first_commit_ns(member, heal_ns) for member in at_heal]
    before = [member for member in group.members if member.join_ns < fault.inject_ns]
    return {
        "group": group.name,
        "protocol": group.protocol,
        "commits": {
            phase: _commits([commit for commit in commits if _phase(fault, commit.begun_ns, commit.ended_ns) == phase])
            for phase in (BEFORE, DURING, AFTER)
        },
        "changes": changes,
        "first_commit_after_the_heal_s": [None if at is None else round((at - heal_ns) / NS, 1) for at in firsts],
        "longest_pause_of_reading_s": _longest_pause_s(group.members, fault),
        "longest_pause_of_who_was_there_s": _longest_pause_s(before, fault),
    }


def _phase(fault: RecordedFault, from_ns: int, to_ns: int) -> str | None:
    assert fault.proved_ns is not None  # noqa: S101 - chosen like that
    assert fault.heal_ns is not None  # noqa: S101 - chosen like that
    if to_ns < fault.inject_ns:
        return BEFORE
    if from_ns > fault.heal_ns:
        return AFTER
    return DURING if fault.proved_ns <= from_ns and to_ns <= fault.heal_ns else None


def _commits(commits: Sequence[Commit]) -> dict[str, Any]:
    acked = [commit.latency_s for commit in commits if commit.outcome == "ok"]
    failed = [commit for commit in commits if commit.outcome != "ok"]
    waited = [commit.latency_s for commit in failed]
    return {
        "ok": len(acked),
        "median_ms": round(1000 * median(acked), 1) if acked else None,
        "slowest_ms": round(1000 * max(acked), 1) if acked else None,
        "failed": dict(Counter((commit.exception or "").rpartition(".")[2] for commit in failed)),
        "median_of_failed_ms": round(1000 * median(waited), 1) if waited else None,
    }


def _first_commit_ns(member: RecordedMember, since_ns: int) -> int | None:
    return min(
        (commit.ended_ns for commit in member.commits if commit.outcome == "ok" and commit.ended_ns > since_ns),
        default=None,
    )


def _longest_pause_s(members: Sequence[RecordedMember], fault: RecordedFault) -> float:
    """Return the longest time in an outage in which a member got no record, in seconds."""
    longest_ns = 0
    for member in members:
        begin_ns, end_ns = max(fault.inject_ns, member.join_ns), fault.heal_ns or 0
        fetched_ns = [at_ns for at_ns, _ in member.fetches if begin_ns <= at_ns <= end_ns]
        moments = [begin_ns, *fetched_ns, min(end_ns, member.leave_ns or end_ns)]
        longest_ns = max(longest_ns, *(later - earlier for earlier, later in pairwise(moments)))
    return round(longest_ns / NS, 1)
