"""Check that committed offsets of groups are kept, and that each new owner continues where the last one committed.

Reads ``MemberDetails``, and the offsets that a group's coordinator has in the end (``CommittedOffsetsDetails``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers.group_view import Commit, Group, RecordedMember
from pyhooks.checkers.verdict import Findings
from pyhooks.history.event_log import Event
from pyhooks.history.events import CommittedOffsetsDetails

# Time and value of a group's committed offsets, as its coordinator returned them.
CoordinatorOffsets = tuple[int, Mapping[str, int]]


@dataclass(frozen=True)
class PartitionCommit:
    """A commit of one partition."""

    run: str
    commit: Commit
    offset: int


@dataclass(frozen=True)
class Ownership:
    """An interval in which a member owns a partition that it did not own before, and a first record was fetched."""

    from_ns: int  # time of the assignment, monotonic
    read_ns: int  # time of the first fetch event
    low: int  # lower bound of the first record's offset
    high: int  # upper bound of the first record's offset


def coordinator_offsets(events: Sequence[Event], group: str) -> list[CoordinatorOffsets]:
    """Return a group's committed offsets from all queries of its coordinator."""
    return [
        (event.mono_ns, committed.offsets)
        for event, committed in CommittedOffsetsDetails.each(events)
        if committed.group == group
    ]


def check_commits(
    group: Group,
    acked: Mapping[str, Sequence[tuple[int, int]]],
    queried: Sequence[CoordinatorOffsets],
    findings: Findings,
) -> None:
    """Check the offsets that a group has committed of each partition.

    Wrong:

    * an acknowledged commit below another one that was acknowledged before it began;
    * a new owner whose first record is before the offset acknowledged at its assignment;
    * a new owner whose first record is after all that may have been committed, so that an acknowledged record was
      skipped;
    * a coordinator that has less in the end than was acknowledged, or an offset that was never committed.

    Commits that definitely failed do not count. After a commit with an unknown outcome, or two that overlap, either
    offset may apply.

    Args:
        group: the group.
        acked: partition to times and offsets of acknowledgements to its producer.
        queried: responses of the coordinator.
        findings: receives the results.
    """
    for partition in sorted(group.partitions | {name for _, offsets in queried for name in offsets}):
        name = f"{group.name}: {partition}"
        commits = [
            PartitionCommit(member.run, commit, int(commit.offsets[partition]))
            for member in group.members
            for commit in member.commits
            if partition in commit.offsets and commit.outcome != "fail"
        ]
        for later in commits:
            before = _acked_offset(commits, later.commit.begun_ns)
            if later.commit.outcome == "ok" and later.offset < before:
                findings.wrong.append(f"{name}: {later.run} committed {later.offset} after {before} was acknowledged")
        for member in group.members:
            for ownership in _ownerships(member, partition):
                _check_first_record(name, member.run, ownership, commits, acked.get(partition, ()), findings)
        for at_ns, offsets in queried:
            if problem := _coordinator_problem(at_ns, offsets.get(partition), commits):
                findings.wrong.append(f"{name}: the coordinator has {problem}")


def _acked_offset(commits: Sequence[PartitionCommit], moment_ns: int) -> int:
    """Return the highest offset whose commit was acknowledged before a moment, or 0."""
    acked = [each.offset for each in commits if each.commit.outcome == "ok" and each.commit.ended_ns < moment_ns]
    return max(acked, default=0)


def _ownerships(member: RecordedMember, partition: str) -> Iterator[Ownership]:
    owned = False
    for index, (from_ns, now) in enumerate(member.assignments):
        new, owned = partition in now and not owned, partition in now
        if not new:
            continue
        ends = [to_ns for to_ns, after in member.assignments[index + 1 :] if partition not in after]
        ends += [member.left_ns] if member.left_ns is not None else []
        for read_ns, first in member.firsts:
            if read_ns >= from_ns and partition in first and (not ends or read_ns <= min(ends)):
                yield Ownership(from_ns, read_ns, *first[partition])
                break


def _check_first_record(
    name: str,
    run: str,
    owner: Ownership,
    commits: Sequence[PartitionCommit],
    acked: Sequence[tuple[int, int]],
    findings: Findings,
) -> None:
    """Check the first record of an owner."""
    name = f"{name}: {run} began at"
    least = _acked_offset(commits, owner.from_ns)
    if owner.high < least:
        findings.wrong.append(f"{name} {owner.high}, though {least} was committed before")
    others = [
        each.offset
        for each in commits
        if each.commit.begun_ns < owner.read_ns and not (each.run == run and each.commit.begun_ns >= owner.from_ns)
    ]
    most = max(others, default=0)
    if owner.low <= most:
        return
    skipped = f"{name} {owner.low}, though no more than {most} was ever committed"
    if any(most <= offset < owner.low for _, offset in acked):
        findings.wrong.append(skipped)
    else:
        findings.missing.append(f"{skipped}, and whether a record was skipped is unknown")


def _coordinator_problem(at_ns: int, offset: int | None, commits: Sequence[PartitionCommit]) -> str:
    """Describe the problem with a coordinator's offset, if any."""
    least = _acked_offset(commits, at_ns)
    if offset is None:
        acked = any(each.commit.outcome == "ok" and each.commit.ended_ns < at_ns for each in commits)
        return f"nothing in the end, {least} was acknowledged" if acked else ""
    if offset < least:
        return f"{offset} in the end, {least} was acknowledged"
    possible = {each.offset for each in commits if each.commit.begun_ns < at_ns}
    return "" if offset in possible else f"{offset} in the end, which was never committed"
