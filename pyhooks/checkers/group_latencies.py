"""Latencies of consumer groups' commits and rebalances before, during and after an outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.group_view import Commit, Group, GroupMemberLife, groups
from pyhooks.checkers.settling_times import NS
from pyhooks.history.event_log import Event

BEFORE, DURING, AFTER = "before", "during the outage", "after"


def figures(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the results of each group's commits and changes before, during and after its outage.

    An outage is from the proof of a fault to the start of its heal; commits in flight at either moment are left out. A
    group that went through no outage, or through several, is left out.
    """
    faults = cluster_view.faults(events)
    found = []
    for group in groups(events):
        begin_ns = min(one.join_ns for one in group.members)
        end_ns = max(one.left_ns or events[-1].mono_ns for one in group.members)
        own = [one for one in faults if one.proved_ns and one.heal_ns and begin_ns < one.inject_ns < end_ns]
        if len(own) == 1:
            found.append(_group(group, own[0]))
    return found


def _group(group: Group, fault: RecordedFault) -> dict[str, Any]:
    commits = [one for member in group.members for one in member.commits]
    told: dict[str, Any] = {"group": group.name, "protocol": group.protocol, "commits": {}, "changes": []}
    for phase in (BEFORE, DURING, AFTER):
        told["commits"][phase] = _commits(
            [one for one in commits if _phase(fault, one.begun_ns, one.ended_ns) == phase]
        )
    for at_ns, what in group.changes:
        if not any(one.lives(at_ns) for one in group.members):
            continue
        over_ns = group.balanced_ns(at_ns)
        one: dict[str, Any] = {"what": what.partition(" ")[0], "when": _phase(fault, at_ns, at_ns)}
        one["over_after_s"] = None if over_ns is None else round((over_ns - at_ns) / NS, 1)
        if over_ns is not None and fault.heal_ns and at_ns < fault.heal_ns < over_ns:
            one["over_after_the_heal_s"] = round((over_ns - fault.heal_ns) / NS, 1)
        told["changes"].append(one)
    heal_ns = fault.heal_ns or 0
    firsts = [_first(member, heal_ns) for member in group.members if member.join_ns < heal_ns and member.lives(heal_ns)]
    told["first_commit_after_the_heal_s"] = [None if at is None else round((at - heal_ns) / NS, 1) for at in firsts]
    told["longest_pause_of_reading_s"] = _longest(group.members, fault)
    there = [one for one in group.members if one.join_ns < fault.inject_ns]
    told["longest_pause_of_who_was_there_s"] = _longest(there, fault)
    return told


def _phase(fault: RecordedFault, from_ns: int, to_ns: int) -> str | None:
    assert fault.proved_ns is not None  # noqa: S101 - chosen like that
    assert fault.heal_ns is not None  # noqa: S101 - chosen like that
    if to_ns < fault.inject_ns:
        return BEFORE
    if from_ns > fault.heal_ns:
        return AFTER
    return DURING if fault.proved_ns <= from_ns and to_ns <= fault.heal_ns else None


def _commits(commits: Sequence[Commit]) -> dict[str, Any]:
    good = [one.latency_s for one in commits if one.outcome == "ok"]
    bad = Counter((one.exception or "").rpartition(".")[2] for one in commits if one.outcome != "ok")
    waited = [one.latency_s for one in commits if one.outcome != "ok"]
    return {
        "ok": len(good),
        "median_ms": round(1000 * median(good), 1) if good else None,
        "slowest_ms": round(1000 * max(good), 1) if good else None,
        "failed": dict(bad),
        "median_of_failed_ms": round(1000 * median(waited), 1) if waited else None,
    }


def _first(member: GroupMemberLife, since_ns: int) -> int | None:
    return min(
        (one.ended_ns for one in member.commits if one.outcome == "ok" and one.ended_ns > since_ns), default=None
    )


def _longest(members: Sequence[GroupMemberLife], fault: RecordedFault) -> float:
    return round(max((_pause(one, fault) for one in members), default=0.0), 1)


def _pause(member: GroupMemberLife, fault: RecordedFault) -> float:
    """Return the longest time in an outage in which a member got no record, in seconds."""
    begin_ns, end_ns = max(fault.inject_ns, member.join_ns), fault.heal_ns or 0
    marks = [at for at, _, _ in member.fetches if begin_ns <= at <= end_ns]
    edges = [begin_ns, *marks, min(end_ns, member.leave_ns or end_ns)]
    return max((two - one) / NS for one, two in pairwise(edges))
