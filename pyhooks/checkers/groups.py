"""Check that consumer groups commit, rebalance and fetch exactly as their coordinator's partition allows.

Reads the events of ``pyhooks.workload.group_members``, faults, observations and settings of ``__consumer_offsets``, and
the final committed offsets of groups (``pyhooks.checkers.group_commits``). A coordinator appends to its partition with
acks=1, so the gate does not apply. But it responds only when the record is below the high watermark, which does not
advance while the ISR has too few replicas or racks. So a commit or a change of a group's members gets no response then,
other than the coordinator's timeout (``offsets.commit.timeout.ms``), and no rejection is ever seen. The expected
outcome is computed from M (``min.insync.replicas``), R (``min.insync.racks``), placement and ISR of the group's
partition; a replication factor below either caps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.group_commits import check_commits, coordinator_offsets
from pyhooks.checkers.group_view import Group, RecordedMember, groups
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.settling_times import NEVER_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails
from pyhooks.history.outcomes import CONSUMER, ERRORS, REBALANCING

TOPIC = "__consumer_offsets"
# Members find their coordinator again, and join again if a rebalance failed while it did not respond. A rebalance that
# waits for all members takes as long as their heartbeats and requests take to fail.
BOUND_S = 45.0
# A change that the next one overtakes within this time is no evidence; with more time it should have completed.
OVERTAKEN_S = 20.0
# A member that an outage keeps from reading reads nothing until its end. Shorter pauses occur on a busy machine: one
# with a load of 30 on two cores did not respond for 24 s.
FETCH_S = 30.0
# Client errors for a coordinator that does not respond, or not yet; the client turns the others into the first.
WAITING = frozenset(
    {
        f"{CONSUMER}.RetriableCommitFailedException",
        *(
            f"{ERRORS}.{name}"
            for name in (
                "TimeoutException",
                "CoordinatorNotAvailableException",
                "CoordinatorLoadInProgressException",
                "NotCoordinatorException",
                "DisconnectException",
            )
        ),
        "not-reported",
    }
)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode of a text."""
    code = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def partition_of(group: str, count: int) -> int:
    """Return the partition of ``__consumer_offsets`` whose leader coordinates a group, as Kafka's Utils.abs does."""
    return (java_hash(group) & 0x7FFFFFFF) % count


def offsets_windows(cluster: ClusterView, settle_s: float = SETTLE_S) -> dict[int, list[SettledWindow]]:
    """Return the settled intervals of each partition of ``__consumer_offsets``, by its number."""
    return {
        partition.number: list(windows(partition, cluster, round(settle_s * NS)))
        for partition in cluster.observations
        if partition.topic == TOPIC
    }


def check_groups(events: Sequence[Event], *, settle_s: float = SETTLE_S, bound_s: float = BOUND_S) -> Verdict:
    """Check commits, rebalances and fetches of groups: fetches always continue, the rest only with a sufficient ISR.

    A sufficient ISR of the coordinator's partition has enough replicas and racks. While it is settled and sufficient,
    these are wrong:

    * a commit that fails, unless a rebalance overtook it, in an interval that has been sufficient under the same leader
      for longer than ``bound_s``;
    * a commit that takes longer than the bound;
    * a change of the group's members that does not complete within the bound, counted from the change or from the start
      of the interval: each member owns a partition, each partition has one owner;
    * a member that commits, but not successfully within the bound after the start of an interval.

    For the last two, consecutive intervals under one leader are one, though its ISR changes in between, and is unknown
    for a moment. While the ISR is insufficient, a commit that began and succeeded in the interval is wrong, and so is a
    rebalance.

    Always wrong:

    * a failed poll;
    * a commit that fails with an error other than those of an unresponsive coordinator or a rebalance;
    * a pause of more than ``FETCH_S`` in reading an owned partition, though records that the member had not read were
      acknowledged before;
    * a lost commit or a skipped record, see ``pyhooks.checkers.group_commits``.

    Unknown:

    * no member, or no observations and settings of ``__consumer_offsets``;
    * no judged commit of a group;
    * a change that is not known to have completed, or a history that ends before the bound;
    * a change that the next one overtakes within the bound. It is excused if that was within ``OVERTAKEN_S`` and one of
      these is true: all members leave then; the new member was still one when the next change completed; another change
      of the same kind (join or leave) completed in the same interval.
    """
    findings = Findings()
    all_groups, windows_by_number = groups(events), offsets_windows(ClusterView.of(events), settle_s)
    acked = acknowledgements(events)
    if not all_groups:
        findings.missing.append("no member of a group in the history")
    if not windows_by_number:
        findings.missing.append(f"{TOPIC} was not observed")
    for group in all_groups:
        check_commits(group, acked, coordinator_offsets(events, group.name), findings)
        if not windows_by_number:
            continue
        number = partition_of(group.name, len(windows_by_number))
        if known := windows_by_number.get(number):
            _GroupJudge(group, known, round(bound_s * NS), findings).check(acked)
        else:
            findings.missing.append(f"{group.name}: no settled interval of {PartitionName(TOPIC, number)} was observed")
    return findings.verdict("groups")


@dataclass(frozen=True)
class _GroupJudge:
    """Checks of a group."""

    group: Group
    known: Sequence[SettledWindow]  # settled intervals of its coordinator's partition
    bound_ns: int  # bound for commits and rebalances
    findings: Findings

    def check(self, acked: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Check all members, and all changes of members."""
        judged = 0
        joined = _joined(self.known)
        for member in self.group.members:
            name = f"{self.group.name}: {member.run}"
            judged += self._check_member_commits(name, member)
            self._check_resumption(name, member, joined)
            self.findings.wrong += _reading_pauses(name, member, acked)
        if not judged:
            self.findings.missing.append(f"{self.group.name}: no commit could be judged")
        for at_ns, change in self.group.changes:
            self._check_rebalance(change, at_ns, joined)

    def _check_member_commits(self, name: str, member: RecordedMember) -> int:
        """Check a member's commits; return the number of commits whose expected outcome is known."""
        judged, overtaken, wrong = 0, 0, self.findings.wrong
        for commit in member.commits:
            if commit.exception is not None and commit.exception not in REBALANCING | WAITING:
                wrong.append(f"{name}: a commit failed with {commit.exception}")
            window = _around(self.known, commit.begun_ns, commit.ended_ns)
            if window is None:
                continue
            judged += 1
            state = _state(window)
            if not window.enough:
                if commit.outcome == "ok":
                    wrong.append(f"{name}: a commit succeeded after {commit.latency_s:.1f} s while {state}: too few")
                continue
            overtaken += commit.exception in REBALANCING
            fresh = commit.begun_ns < _sufficient_since_ns(self.known, window) + self.bound_ns
            if commit.outcome == "ok" and commit.ended_ns - commit.begun_ns > self.bound_ns:
                wrong.append(f"{name}: a commit took {commit.latency_s:.1f} s while {state}: enough")
            elif commit.exception in WAITING and commit.exception != "not-reported" and not fresh:
                wrong.append(f"{name}: a commit failed with {commit.exception} while {state}: enough")
        wrong += [f"{name}: a poll failed with {exception} at {at_ns}" for at_ns, exception in member.failures]
        if overtaken:
            self.findings.notes.append(f"{name}: {overtaken} commits were overtaken by a rebalance")
        return judged

    def _check_resumption(self, name: str, member: RecordedMember, joined: Sequence[SettledWindow]) -> None:
        """Check that a member commits again once the ISR of its coordinator's partition is sufficient."""
        for before, window in pairwise(joined):
            if not window.enough or before.enough or not member.is_member(window.from_ns):
                continue
            later = [commit for commit in member.commits if commit.ended_ns >= window.from_ns]
            bound_ns = window.from_ns + self.bound_ns
            if any(commit.outcome == "ok" and commit.ended_ns <= bound_ns for commit in later):
                continue
            reason = f"{name}: no commit succeeded within {self.bound_ns / NS:g} s after {_state(window)}"
            until_ns = min(member.leave_ns or window.to_ns, window.to_ns)
            if not later:
                self.findings.missing.append(f"{reason}, and none was tried")
            elif until_ns >= bound_ns:
                self.findings.wrong.append(reason)
            else:
                self.findings.missing.append(f"{reason}, known for {(until_ns - window.from_ns) / NS:.1f} s only")

    def _check_rebalance(self, change: str, at_ns: int, joined: Sequence[SettledWindow]) -> None:
        """Check that one change of the group's members completes in time, and not with an insufficient ISR."""
        name, over_ns = f"{self.group.name}: {change}", self.group.balanced_ns(at_ns)
        if not any(member.is_member(at_ns) for member in self.group.members):
            return  # the last one has left
        window = _around(joined, at_ns, at_ns)
        if window is not None and not window.enough:
            if over_ns is not None and over_ns <= window.to_ns:
                lasted_s = (over_ns - at_ns) / NS
                self.findings.wrong.append(f"{name}: was over after {lasted_s:.1f} s while {_state(window)}: too few")
                return
            window = None
        if window is None:
            # The change could not complete, or the state is unknown: take the first later interval in which it must
            # complete.
            window = next((each for each in joined if each.enough and each.from_ns > at_ns), None)
        if window is None:
            if over_ns is None:
                self.findings.missing.append(f"{name}: no evidence that it was over, nor that it had to be")
            return
        since_ns = max(at_ns, window.from_ns)
        if over_ns is not None and over_ns - since_ns <= self.bound_ns:
            return
        next_ns = min((other_ns for other_ns, _ in self.group.changes if other_ns > at_ns), default=None)
        if next_ns is not None and next_ns - since_ns <= self.bound_ns:
            # If it was overtaken before the bound began, any other change is equally good evidence.
            kind = change.partition(" ")[0] if next_ns > since_ns else ""
            excused = (
                _dissolves(self.group, at_ns)
                or _over_with(self.group, at_ns, next_ns)
                or _another_over(self.group, at_ns, kind, window)
            )
            if next_ns - since_ns > OVERTAKEN_S * NS or not excused:
                left_s = max(0, next_ns - since_ns) / NS
                self.findings.missing.append(f"{name}: not over at the next change, {left_s:.1f} s later")
            return
        reason = f"{name}: not over within {self.bound_ns / NS:g} s after {_state(window)}"
        if window.to_ns - since_ns > self.bound_ns:
            self.findings.wrong.append(reason)
        else:
            self.findings.missing.append(f"{reason}, known for {(window.to_ns - since_ns) / NS:.1f} s only")


def _dissolves(group: Group, at_ns: int) -> bool:
    """Return whether all members leave within ``OVERTAKEN_S`` and none joins any more."""
    until_ns = at_ns + OVERTAKEN_S * NS
    return all(
        member.join_ns <= at_ns and member.leave_ns is not None and member.leave_ns <= until_ns
        for member in group.members
    )


def _over_with(group: Group, at_ns: int, next_ns: int) -> bool:
    """Return whether the member that joined was still one when the next change completed: then both completed."""
    over_ns = group.balanced_ns(next_ns)
    return over_ns is not None and any(
        member.join_ns == at_ns and member.is_member(over_ns) for member in group.members
    )


def _another_over(group: Group, at_ns: int, kind: str, window: SettledWindow) -> bool:
    """Return whether another change, of ``kind`` if not empty, completed in a window or since ``at_ns`` before it."""
    over = [
        group.balanced_ns(other_ns) for other_ns, other in group.changes if other_ns != at_ns and other.startswith(kind)
    ]
    from_ns = min(at_ns, window.from_ns)
    return any(moment is not None and from_ns <= moment <= window.to_ns for moment in over)


def _reading_pauses(name: str, member: RecordedMember, acked: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[str]:
    """Describe pauses in reading the partitions that a member owns, though there were records to read."""
    ends = [at_ns for at_ns, _ in member.assignments[1:]] + ([member.leave_ns] if member.leave_ns else [])
    for (from_ns, now), to_ns in zip_longest(member.assignments, ends[: len(member.assignments)]):
        for partition in sorted(now):
            fetched = [(at_ns, after[partition]) for at_ns, after in member.fetches if partition in after]
            for since_ns, until_ns, offset in _pauses(fetched, from_ns, to_ns):
                if any(
                    since_ns <= at_ns < until_ns - FETCH_S * NS and acked_offset >= offset
                    for at_ns, acked_offset in acked.get(partition, ())
                ):
                    yield f"{name}: nothing of {partition} for {(until_ns - since_ns) / NS:.1f} s, though readable"


def _pauses(fetched: Sequence[tuple[int, int]], from_ns: int, to_ns: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield pauses of more than ``FETCH_S`` in fetches of an owned partition, with the offset that was next."""
    inside = [(at, after) for at, after in fetched if at >= from_ns and (to_ns is None or at <= to_ns)]
    before = [after for at, after in fetched if at < from_ns]
    since_ns, offset = from_ns, before[-1] if before else 0
    for at, after in [*inside, *([(to_ns, 0)] if to_ns is not None else [])]:
        if at - since_ns > FETCH_S * NS:
            yield since_ns, at, offset
        since_ns, offset = at, after


def acknowledgements(events: Sequence[Event]) -> dict[str, list[tuple[int, int]]]:
    """Return time and offset of each acknowledgement, by partition."""
    acked: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for event, produced in ProduceDetails.each(events):
        if event.outcome == "ok" and produced.offset is not None:
            acked[f"{produced.topic}-{produced.partition}"].append((event.mono_ns, produced.offset))
    return acked


def _joined(known: Sequence[SettledWindow]) -> list[SettledWindow]:
    """Merge consecutive intervals that have the same leader and the same expected outcome."""
    joined: list[SettledWindow] = []
    for window in known:
        last = joined[-1] if joined else None
        if last is not None and (last.enough, last.observation.leader) == (window.enough, window.observation.leader):
            joined[-1] = replace(last, to_ns=window.to_ns)
        else:
            joined.append(window)
    return joined


def _around(known: Sequence[SettledWindow], from_ns: int, to_ns: int) -> SettledWindow | None:
    """Return the interval that contains all of a period, or None."""
    return next((window for window in known if window.from_ns <= from_ns and to_ns <= window.to_ns), None)


def _sufficient_since_ns(known: Sequence[SettledWindow], window: SettledWindow) -> int:
    """Return since when an ISR has been sufficient under its leader, or ``-NEVER_NS`` if no change was observed."""
    for before, later in reversed([*pairwise(known[: known.index(window) + 1])]):
        if not before.enough or before.observation.leader != later.observation.leader:
            return later.from_ns
    return -NEVER_NS


def _state(window: SettledWindow) -> str:
    return f"{TOPIC} had {window.isr_text}"
