"""Check that running consumers receive each record once, in the order of offsets, and none before it is committed.

Reads the progress of readers of committed records (``follow``), rounds of readers (``visible``), records that group
members fetched (``fetch``), arrivals at a follower (``fetched``), the final reads, and faults.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.record_view import COMMITTED, UNCOMMITTED, PartitionName, Read, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import (
    ArrivalsDetails,
    AssignmentDetails,
    FetchDetails,
    FollowDetails,
    LeaderOffsetsDetails,
    MemberDetails,
    VisibleDetails,
)
from pyhooks.history.record_format import parts_of

# Faults under which a former leader may run on and respond with its old offsets.
SEPARATING = ("cut", "pause", "slow")


def check_polls(events: Sequence[Event]) -> Verdict:
    """Check what consumers received while producers and faults ran.

    Wrong:

    * a reader that has read up to an offset above the one that its leader returns afterwards: the last stable offset
      with read_committed, else the high watermark. While a fault separates brokers, this is unknown, because a former
      leader may respond;
    * a reader whose position goes back;
    * a reader of committed records that has received more or fewer records than the final read_committed read has up to
      its position;
    * a group member that receives a record again, or skips one that the final read has, though it owned the partition
      all the time;
    * an arrival of a rejected record, of a record that the final read does not have, of a record before an earlier one
      or a second time, or after one that was skipped.

    Unknown:

    * nothing of the above could be compared;
    * no complete final read of a partition from its first offset on.
    """
    polls = _Polls(Records(events), cluster_view.faults(events))
    polls.check_progress(events)
    polls.check_rounds(events)
    polls.check_members(events)
    polls.check_arrivals(events)
    if not polls.compared:
        polls.findings.missing.append("no progress of a consumer could be compared")
    polls.findings.notes.append(f"{polls.compared} observations of consumers were compared")
    return polls.findings.verdict("polls", unique=True)


@dataclass
class _Polls:
    """Checks of all consumers of a history."""

    records: Records
    faults: Sequence[RecordedFault]
    findings: Findings = field(default_factory=Findings)
    compared: int = 0  # number of observations that were compared
    _finals: dict[tuple[str, str], Mapping[int, Read]] = field(default_factory=dict)

    def check_progress(self, events: Sequence[Event]) -> None:
        """Check the readers of committed records."""
        steps: defaultdict[tuple[str, PartitionName], list[tuple[Event, FollowDetails]]] = defaultdict(list)
        for event, follow in FollowDetails.each(events):
            steps[follow.run, PartitionName(follow.topic, follow.partition)].append((event, follow))
        for (run, partition), reported in sorted(steps.items()):
            name = f"{partition}: {run}"
            for (_, before), (_, after) in pairwise(reported):
                if after.position < before.position or after.records < before.records:
                    self.findings.wrong.append(f"{name} went back from offset {before.position} to {after.position}")
            for event, _ in reported:
                leader = LeaderOffsetsDetails.of(event)
                if leader is not None:
                    self._check_limit(name, leader.position, leader.stable, "last stable offset", leader.asked_ns)
            if final := self._final(partition, COMMITTED):
                self._check_counts(name, [follow for _, follow in reported], final)

    def _check_counts(self, name: str, steps: Sequence[FollowDetails], final: Read) -> None:
        """Compare the number of records received with those of the final read, and report the first difference."""
        offsets = sorted(final.keys)
        index = 0
        for step in sorted(steps, key=lambda each: each.position):
            while index < len(offsets) and offsets[index] < step.position:
                index += 1
            self.compared += 1
            if step.position > final.end:
                self.findings.wrong.append(f"{name} had read up to {step.position}, the log ends at {final.end}")
                return
            if step.records != index:
                self.findings.wrong.append(
                    f"{name} had received {step.records} records up to offset {step.position}, the final read has"
                    f" {index}"
                )
                return

    def check_rounds(self, events: Sequence[Event]) -> None:
        """Check the readers that read in rounds."""
        positions: dict[tuple[str, str], int] = {}
        for _, visible in VisibleDetails.each(events):
            for partition, position in visible.next.items():
                name = f"{partition}: {visible.run}"
                before = positions.get((visible.run, partition), position)
                if position < before:
                    self.findings.wrong.append(f"{name} went back from offset {before} to {position}")
                positions[visible.run, partition] = position
                high = visible.high.get(partition)
                if high is not None:
                    self._check_limit(name, position, high, "high watermark", visible.asked_ns)

    def check_members(self, events: Sequence[Event]) -> None:
        """Check the group members between changes of their assignments."""
        positions: dict[tuple[str, str], dict[str, int]] = {}
        for event, member in MemberDetails.each(events):
            known = positions.setdefault((member.run, member.group), {})
            if change := AssignmentDetails.of(event):
                for partition in [*(known.keys() - set(change.now)), *change.partitions]:
                    known.pop(partition, None)
            elif fetch := FetchDetails.of(event):
                for partition, after in fetch.next.items():
                    first, before = fetch.first.get(partition), known.get(partition)
                    if first is not None and before is not None:
                        self._check_continuation(f"{member.group}: {member.run}", partition, before, first)
                    known[partition] = after

    def _check_continuation(self, name: str, partition_name: str, before: int, first: int) -> None:
        """Check that a member that had read up to an offset continues there."""
        self.compared += 1
        name = f"{name}: {partition_name}: received offset {first} after all up to {before}"
        if first < before:
            self.findings.wrong.append(f"{name}, a second time")
        elif first > before and (final := self._final(PartitionName.parse(partition_name), UNCOMMITTED)):
            skipped = [offset for offset in range(before, first) if offset in final.keys]
            if skipped:
                self.findings.wrong.append(f"{name}, and skipped {len(skipped)} records")

    def check_arrivals(self, events: Sequence[Event]) -> None:
        """Check the arrivals at followers, which read committed records; a topic has one follower at most."""
        committed = {read.partition.topic for read in self.records.reads if read.isolation == COMMITTED}
        arrived: defaultdict[PartitionName, list[str]] = defaultdict(list)
        for _, arrivals in ArrivalsDetails.each(events):
            for key in arrivals.keys:
                parts = parts_of(key) if key else None
                if key is not None and parts is not None:
                    arrived[PartitionName(arrivals.topic, parts[2])].append(key)
        rejected = (
            {(attempt.topic, attempt.key) for attempt in self.records.attempts if attempt.outcome == "fail"}
            if arrived
            else set()
        )
        for partition, keys in sorted(arrived.items()):
            self.findings.wrong += [
                f"{partition}: rejected record {key} was received" for key in keys if (partition.topic, key) in rejected
            ]
            # without transactions, both reads have the same records
            isolation = COMMITTED if partition.topic in committed else UNCOMMITTED
            if final := self._final(partition, isolation):
                self._check_order(partition, keys, final)

    def _check_order(self, partition: PartitionName, arrived: Sequence[str], final: Read) -> None:
        """Compare arrivals with the final read; records that it has at several offsets are left out."""
        count = Counter(final.keys.values())
        log = [key for _, key in sorted(final.keys.items()) if count[key] == 1]
        places = {key: place for place, key in enumerate(log)}
        absent = [key for key in arrived if key not in count]
        if absent:
            self.findings.wrong.append(
                f"{partition}: {len(absent)} records were received that the final read does not have: {absent[0]}"
            )
        once = [key for key in arrived if key in places]
        for before, after in pairwise(once):
            self.compared += 1
            if places[after] <= places[before]:
                self.findings.wrong.append(f"{partition}: {after} was received after {before}, and is not behind it")
            elif skipped := places[after] - places[before] - 1:
                self.findings.wrong.append(f"{partition}: {skipped} records were skipped between {before} and {after}")

    def _check_limit(self, name: str, position: int, limit: int, kind: str, at_ns: int) -> None:
        """Check that a position is not above the offset that the leader returned later."""
        self.compared += 1
        if position > limit:
            separated = any(
                fault.op.startswith(SEPARATING)
                and fault.inject_ns <= at_ns
                and (fault.healed_ns is None or at_ns <= fault.healed_ns)
                for fault in self.faults
            )
            reason = f"{name} had read up to {position} when the {kind} was {limit}"
            self.findings.add(
                f"{reason}, in a fault that separates brokers" if separated else reason, certain=not separated
            )

    def _final(self, partition: PartitionName, isolation: str) -> Read | None:
        """Return the final read of a partition, or None with a reason in ``missing`` if it is incomplete."""
        name = partition.topic, isolation
        if name not in self._finals:
            reads, gaps = self.records.final(*name)
            self.findings.missing += gaps
            self._finals[name] = {} if gaps else reads
        read = self._finals[name].get(partition.number)
        if read is None:
            return None
        if read.low:
            self.findings.missing.append(f"{partition}: the final read ({isolation}) begins at offset {read.low}")
            return None
        return read
