"""View of the consumer groups in a history: members, ownership, commits and fetches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyhooks.checkers.settling_times import NS
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.events import (
    AssignmentDetails,
    CommitDetails,
    FetchDetails,
    JoinDetails,
    LeaveDetails,
    MemberDetails,
    MemberPollFailureDetails,
)


@dataclass(frozen=True)
class Commit:
    """An offset commit that has ended, see ``CommitDetails``; ``ended_ns`` and ``outcome`` are those of the event."""

    begun_ns: int
    ended_ns: int
    outcome: Outcome
    exception: str | None
    offsets: Mapping[str, int]

    @property
    def latency_s(self) -> float:
        """Latency in seconds."""
        return (self.ended_ns - self.begun_ns) / NS


@dataclass
class RecordedMember:
    """History of one group member. Times are monotonic."""

    run: str
    join_ns: int  # when it began to join
    leave_ns: int | None = None  # when it began to leave, or None
    left_ns: int | None = None  # when it had left, or None
    # time of an assignment event, and the partitions owned from then on
    assignments: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)  # all commits that ended
    # time of a fetch event, and the next offset of each partition
    fetches: list[tuple[int, Mapping[str, int]]] = field(default_factory=list)
    # time of a fetch event, and bounds of the first offset fetched of each partition since the previous event
    firsts: list[tuple[int, Mapping[str, tuple[int, int]]]] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)  # time and exception of each failed poll

    def is_member(self, at_ns: int) -> bool:
        """Return whether it has begun to join and not begun to leave."""
        return self.join_ns <= at_ns and (self.leave_ns is None or at_ns < self.leave_ns)

    def owns(self, at_ns: int) -> frozenset[str]:
        """Return the partitions that it owns at a moment."""
        assigned = [now for assigned_ns, now in self.assignments if assigned_ns <= at_ns]
        return assigned[-1] if assigned and self.is_member(at_ns) else frozenset()


@dataclass
class Group:
    """A consumer group, from its members' events."""

    name: str
    protocol: str  # group protocol of its members
    members: list[RecordedMember] = field(default_factory=list)  # in the order of joining

    @property
    def partitions(self) -> frozenset[str]:
        """All partitions that any member ever owned."""
        return frozenset().union(*(now for member in self.members for _, now in member.assignments))

    @property
    def changes(self) -> list[tuple[int, str]]:
        """Time and description of each join and leave, in order of time."""
        joins = [(member.join_ns, f"join of {member.run}") for member in self.members]
        leaves = [(member.leave_ns, f"leave of {member.run}") for member in self.members if member.leave_ns]
        return sorted([*joins, *leaves])

    def balanced(self, at_ns: int) -> bool:
        """Return whether each member owns a partition, and each partition has one owner."""
        owned = [member.owns(at_ns) for member in self.members if member.is_member(at_ns)]
        count = len(self.partitions)
        return bool(owned) and all(owned) and sum(map(len, owned)) == count == len(frozenset().union(*owned))

    def balanced_ns(self, since_ns: int) -> int | None:
        """Return when the group is first balanced between a change at ``since_ns`` and the next change, or None."""
        until_ns = min((at_ns for at_ns, _ in self.changes if at_ns > since_ns), default=None)
        moments = sorted(at_ns for member in self.members for at_ns, _ in member.assignments if at_ns >= since_ns)
        return next((at for at in moments if (until_ns is None or at < until_ns) and self.balanced(at)), None)


def groups(events: Sequence[Event]) -> list[Group]:
    """Return all groups of a history, sorted by name."""
    groups_by_name: dict[str, Group] = {}
    members: dict[tuple[str, str], RecordedMember] = {}
    for event, details in MemberDetails.each(events):
        name, run = details.group, details.run
        if JoinDetails.describes(event):
            group = groups_by_name.setdefault(name, Group(name, details.protocol))
            members[name, run] = RecordedMember(run, event.mono_ns)
            group.members.append(members[name, run])
        else:
            _apply(members[name, run], event)
    return [groups_by_name[name] for name in sorted(groups_by_name)]


def _apply(member: RecordedMember, event: Event) -> None:
    """Add an event to the history of a member."""
    at_ns = event.mono_ns
    if change := AssignmentDetails.of(event):
        member.assignments.append((at_ns, frozenset(change.now)))
    elif commit := CommitDetails.of(event):
        member.commits.append(
            Commit(commit.begun_ns, at_ns, event.outcome or "unknown", commit.exception, commit.offsets)
        )
    elif fetch := FetchDetails.of(event):
        bounds = {name: (after - fetch.count, after - 1) for name, after in fetch.next.items()}
        member.firsts.append((at_ns, bounds | {name: (offset, offset) for name, offset in fetch.first.items()}))
        member.fetches.append((at_ns, fetch.next))
    elif failure := MemberPollFailureDetails.of(event):
        member.failures.append((at_ns, failure.exception))
    elif leave := LeaveDetails.of(event):
        member.leave_ns, member.left_ns = leave.begun_ns, at_ns
