"""Check that committed offsets of groups are kept, and that each new owner continues where the last one committed.

Reads ``MemberDetails``, and the offsets that a group's coordinator has in the end (``CommittedOffsetsDetails``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers.group_view import Commit, Group, GroupMemberLife
from pyhooks.history.event_log import Event
from pyhooks.history.events import CommittedOffsetsDetails


@dataclass(frozen=True)
class CoordinatorOffsets:
    """Committed offsets of a group, as its coordinator returned them.

    Attributes:
        at_ns: time of the response, monotonic.
        offsets: partition to committed offset.
    """

    at_ns: int
    offsets: Mapping[str, int]


@dataclass(frozen=True)
class PartitionCommit:
    """A commit of one partition.

    Attributes:
        run: run id of the member.
        commit: the commit.
        offset: committed offset.
    """

    run: str
    commit: Commit
    offset: int


@dataclass(frozen=True)
class Ownership:
    """An interval in which a member owns a partition that it did not own before.

    Attributes:
        from_ns: time of the assignment, monotonic.
        read_ns: time of the first fetch event, or None.
        low: lower bound of the first record's offset.
        high: upper bound of the first record's offset.
    """

    from_ns: int
    read_ns: int | None
    low: int = 0
    high: int = 0


def left(events: Sequence[Event], group: str) -> list[CoordinatorOffsets]:
    """Return a group's committed offsets from all queries of its coordinator."""
    return [
        CoordinatorOffsets(event.mono_ns, one.offsets)
        for event, one in CommittedOffsetsDetails.each(events)
        if one.group == group
    ]


def check_commits(
    group: Group,
    acked: Mapping[str, Sequence[tuple[int, int]]],
    told: Sequence[CoordinatorOffsets],
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge the offsets that a group has committed of each partition.

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
        told: responses of the coordinator.
        wrong: receives what is wrong.
        missing: receives what is unknown.
    """
    for place in sorted(group.topics | {place for one in told for place in one.offsets}):
        name = f"{group.name}: {place}"
        own = [
            PartitionCommit(member.run, commit, int(commit.offsets[place]))
            for member in group.members
            for commit in member.commits
            if place in commit.offsets and commit.outcome != "fail"
        ]
        wrong += _back(name, own)
        for member in group.members:
            for one in _ownerships(member, place):
                _begun(f"{name}: {member.run}", member.run, one, own, acked.get(place, ()), wrong, missing)
        for at in told:
            wrong += _in_the_end(name, at, place, own)


def _acked_by(own: Sequence[PartitionCommit], moment_ns: int) -> int:
    """Return the highest offset whose commit was acknowledged before a moment, or 0."""
    done = [one.offset for one in own if one.commit.outcome == "ok" and one.commit.ended_ns < moment_ns]
    return max(done, default=0)


def _back(name: str, own: Sequence[PartitionCommit]) -> Iterator[str]:
    for one in own:
        before = _acked_by(own, one.commit.begun_ns)
        if one.commit.outcome == "ok" and one.offset < before:
            yield f"{name}: {one.run} committed {one.offset} after {before} was acknowledged"


def _ownerships(member: GroupMemberLife, place: str) -> Iterator[Ownership]:
    had = False
    for at, (from_ns, now) in enumerate(member.has):
        has, had = place in now and not had, place in now
        if not has:
            continue
        ends = [to_ns for to_ns, after in member.has[at + 1 :] if place not in after]
        ends += [member.left_ns] if member.left_ns is not None else []
        read = next(
            (
                (told_ns, first[place])
                for told_ns, first in member.firsts
                if told_ns >= from_ns and place in first and (not ends or told_ns <= min(ends))
            ),
            None,
        )
        yield Ownership(from_ns, None) if read is None else Ownership(from_ns, read[0], *read[1])


def _begun(
    name: str,
    run: str,
    one: Ownership,
    own: Sequence[PartitionCommit],
    acked: Sequence[tuple[int, int]],
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge the first record of an owner."""
    if one.read_ns is None:
        return
    least = _acked_by(own, one.from_ns)
    if one.high < least:
        wrong.append(f"{name} began at {one.high}, though {least} was committed before")
    others = [
        told.offset
        for told in own
        if told.commit.begun_ns < one.read_ns and not (told.run == run and told.commit.begun_ns >= one.from_ns)
    ]
    most = max(others, default=0)
    if one.low <= most:
        return
    skipped = f"{name} began at {one.low}, though no more than {most} was ever committed"
    if any(most <= offset < one.low for _, offset in acked):
        wrong.append(skipped)
    else:
        missing.append(f"{skipped}, and nothing tells whether there is a record between")


def _in_the_end(name: str, at: CoordinatorOffsets, place: str, own: Sequence[PartitionCommit]) -> Iterator[str]:
    possible = {one.offset for one in own if one.commit.begun_ns < at.at_ns}
    least = _acked_by(own, at.at_ns)
    has = at.offsets.get(place)
    if has is None:
        if any(one.commit.outcome == "ok" and one.commit.ended_ns < at.at_ns for one in own):
            yield f"{name}: the coordinator has nothing in the end, {least} was acknowledged"
    elif has < least:
        yield f"{name}: the coordinator has {has} in the end, {least} was acknowledged"
    elif has not in possible:
        yield f"{name}: the coordinator has {has} in the end, which nobody committed"
