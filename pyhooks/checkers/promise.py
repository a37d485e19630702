"""Check the guarantee itself: when all brokers are stopped, acknowledged records are in the logs of enough racks.

Reads ``produce`` events, the events of ``pyhooks.lab.disks`` (``disk``, ``disk-end``), observations and settings (see
``pyhooks.checkers.cluster_view``), and the steps of faults whose op begins with ``wipe``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pyhooks.checkers.cluster_view import ClusterView, RecordedFault, RecordedPartition
from pyhooks.checkers.record_view import Attempt, PartitionName, Read, Records, fill_read
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import DiskChunkDetails, DiskEndDetails
from pyhooks.kafka import gate


@dataclass(frozen=True)
class Disks:
    """Logs of all brokers at one stop."""

    at_ns: int  # time of the first event of the reading
    logs: Mapping[tuple[int, PartitionName], Read]  # broker and partition to the contents of the log
    complete: frozenset[int]  # brokers that were stopped while their disk was read completely
    racks: Mapping[int, str]  # broker id to rack
    missing: tuple[str, ...]  # descriptions of missing parts


def disks_of(events: Sequence[Event]) -> Disks | None:
    """Return the last reading of the disks in a history, or None."""
    parts = [(event, part) for event in events if (part := DiskChunkDetails.of(event) or DiskEndDetails.of(event))]
    if not parts:
        return None
    last = [(event, part) for event, part in parts if part.read_id == parts[-1][1].read_id]
    chunks: defaultdict[tuple[int, PartitionName], list[tuple[Event, DiskChunkDetails]]] = defaultdict(list)
    missing: list[str] = []
    complete: set[int] = set()
    listed: set[tuple[int, PartitionName]] = set()
    ended: set[int] = set()
    racks = {part.broker: event.rack or "" for event, part in last}
    for event, part in last:
        broker = part.broker
        if isinstance(part, DiskChunkDetails):
            chunks[broker, PartitionName(part.topic, part.partition)].append((event, part))
            continue
        ended.add(broker)
        listed |= {(broker, PartitionName(*replica)) for replica in part.replicas}
        if event.outcome != "ok":
            missing.append(f"the disk of broker {broker}: {part.error or 'not read'}")
        elif not part.stopped:
            missing.append(f"broker {broker} was not proved to be stopped when its disk was read")
        else:
            complete.add(broker)
    missing += [f"the disk of broker {broker} was not read to its end" for broker in sorted(racks.keys() - ended)]
    logs: dict[tuple[int, PartitionName], Read] = {}
    for broker, partition in sorted(listed | chunks.keys()):
        log = logs[broker, partition] = Read("disk", partition, 0, "disk")
        if (broker, partition) in chunks:
            fill_read(log, chunks[broker, partition])
        else:
            log.gaps.append("its content was not recorded")
        missing += [f"{partition} on broker {broker}: {gap}" for gap in log.gaps]
    return Disks(min(event.mono_ns for event, _ in last), logs, frozenset(complete), racks, tuple(missing))


def check_promise(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that records acknowledged before the stop are in the logs of replicas in at least min(R, RF) racks.

    Racks are those of the brokers when the record was acknowledged, from the observations around that time. A broker
    that restarts in another rack removes its copies from the old rack, which is no violation.

    R (``min.insync.racks``) is the topic's requirement when the record was acknowledged: the requested value, where
    the history has it. A broker that reports another value is wrong (see ``RequirementTimeline.strays``). If R
    changed meanwhile, too few racks for the lowest value are wrong, and too few for the highest alone are unknown.

    RF is the lower of the replication factors at the acknowledgement and at the stop. If replicas were moved in
    between, a record in too few racks is unknown, and a record on no replica is wrong. The same applies to a record
    sent before the first observation. The replicas at the stop are those of the last observation, which must be later
    than the acknowledgement.

    Members of the ISR have all acknowledged records. So a broker whose disk was wiped after the acknowledgement counts
    as having had the record if an observation between the two shows it in the ISR. This ends with an observation after
    the proved heal that shows it in the ISR again: from then on it must have all acknowledged records again. Between
    the start of the heal and such an observation, the result is unknown. An observation shows a state up to ``LAG_S``
    old.

    The broker does not count if all observations show it outside the ISR, or if it was definitely wiped before the
    record was sent. Between the start of a wipe and its proof, this is unknown. If neither is known, or the wipe was
    not proved, a record that depends on the broker is unknown. The same applies to a broker whose log could not be
    read, or begins after the record.

    Records with acks=1 are excluded: only the leader acknowledges them. A record acknowledged without an offset is
    located by its key. An example is a batch that was sent again and that the broker recognizes as a duplicate
    (DUPLICATE_SEQUENCE_NUMBER).
    """
    records = Records(events)
    findings = Findings(missing=records.unrecorded())
    disks = disks_of(events)
    if disks is None:
        findings.missing.append("no disk was read")
        return findings.verdict("promise")
    findings.missing += disks.missing
    acked = [
        attempt
        for attempt in records.attempts
        if attempt.outcome == "ok" and records.acks_all(attempt) and attempt.done_ns < disks.at_ns
    ]
    if not acked:
        findings.missing.append("no acknowledged record before the disks were read")
    cluster, settle_ns = ClusterView.of(events), round(settle_s * NS)
    judge = _PromiseJudge(disks, cluster, settle_ns)
    for topic in sorted({attempt.topic for attempt in acked}):
        findings.wrong += cluster.settings.strays(topic, cluster.faults, settle_ns)
    for attempt in acked:
        problem, certain = judge.problem(attempt)
        if problem:
            findings.add(problem, certain=certain)
    findings.notes.append(f"settings that changed up to {settle_s:g} s before a record was sent may have applied to it")
    return findings.verdict("promise", unique=True)


def _at_ns(observation: RecordedPartition) -> int:
    return observation.at_ns


@dataclass(frozen=True)
class _PromiseJudge:
    """Finds the problem with an acknowledged record."""

    disks: Disks
    cluster: ClusterView
    settle_ns: int

    @cached_property
    def _wipes(self) -> Sequence[RecordedFault]:
        return [fault for fault in self.cluster.faults if fault.op.startswith("wipe")]

    @cached_property
    def _placements(self) -> Mapping[PartitionName, Sequence[RecordedPartition]]:
        """First observation of each placement of a partition, in order of time."""
        placements = {}
        for partition, observed in self.cluster.observations.items():
            placed = [observation for observation in observed if observation.replicas]
            changed = [later for earlier, later in pairwise(placed) if set(earlier.replicas) != set(later.replicas)]
            placements[partition] = placed[:1] + changed
        return placements

    def problem(self, attempt: Attempt) -> tuple[str, bool]:
        """Return the problem with a record, empty if there is none, and whether it is certain."""
        attempt = self._located(attempt)
        if attempt.partition is None or attempt.offset is None or attempt.offset < 0:
            return f"{attempt.topic}: the offset at which {attempt.key} was acknowledged is unknown", False
        partition = PartitionName(attempt.topic, attempt.partition)
        placed, before_end = self._placed(partition, attempt)
        if not placed:
            return f"{partition}: its placement was not observed", False
        required = self.cluster.settings.possible(attempt.topic, attempt.sent_ns - self.settle_ns, attempt.done_ns)
        if not required:
            return f"{attempt.topic}: its required replicas and racks are unknown", False
        certain: set[str] = set()
        possible: set[str] = set()
        # Copies on brokers that are no longer replicas do not count.
        last = placed[-1].replicas
        # Fewer replicas span fewer racks at most.
        needed = [
            min(requirement.effective(observation).racks, gate.capped(requirement.racks, len(last)))
            for requirement in required
            for observation in placed[: max(1, before_end)]
        ]
        if len(placed) > 1 or placed[0].at_ns > attempt.sent_ns:
            # A reassignment determines the spread of records acknowledged before it, so one rack may be enough. A
            # placement before the first observation is unknown.
            needed.append(1)
        for broker in last:
            had = self._had(broker, partition, attempt)
            if had is not False:
                racks = frozenset[str]().union(
                    *(gate.racks_of([broker], {broker: rack}) for rack in self._racks(broker, partition, attempt))
                )
                (certain if had and len(racks) == 1 else possible).update(racks)
        least, most = min(needed), max(needed)
        if len(certain) >= most:
            return "", True
        reason = (
            f"{partition}: record {attempt.key}, acknowledged at offset {attempt.offset}, lies in {len(certain)}"
            f" rack(s) ({', '.join(sorted(certain)) or 'none'}), {most} are required"
        )
        if len(certain | possible) >= least and (len(certain) < least or most > least):
            more = len(possible - certain)
            return f"{reason}, which may have been {least}, and {more} more may have had it", False
        if self.cluster.observations[partition][-1].at_ns < attempt.done_ns:
            return f"{reason}; its replicas were not observed afterwards", False
        return reason, True

    @cached_property
    def _offsets(self) -> Mapping[tuple[str, str | None], frozenset[tuple[int, int]]]:
        """Partitions and offsets of each key on the disks, by topic and key; needed only if an offset is unknown."""
        places: defaultdict[tuple[str, str | None], set[tuple[int, int]]] = defaultdict(set)
        for (_, (topic, partition)), log in self.disks.logs.items():
            for offset, key in log.keys.items():
                places[topic, key].add((partition, offset))
        return {key: frozenset(offsets) for key, offsets in places.items()}

    def _located(self, attempt: Attempt) -> Attempt:
        """Return the attempt; if it has no offset, with the offset of its key on the disks if there is exactly one."""
        if attempt.offset is not None and attempt.offset >= 0:
            return attempt
        places = [
            (partition, offset)
            for partition, offset in self._offsets.get((attempt.topic, attempt.key), ())
            if attempt.partition in (None, partition)
        ]
        if len(places) != 1:
            return attempt
        partition, offset = places[0]
        return replace(attempt, partition=partition, offset=offset)

    def _racks(self, broker: int, partition: PartitionName, attempt: Attempt) -> frozenset[str]:
        """Return the rack of a broker when a record was acknowledged; several if observations differ.

        A broker leaves the ISR before it joins another rack, so observations of the broker in sync take precedence.
        """
        observed = self.cluster.observations[partition]
        first = max(0, bisect_right(observed, attempt.sent_ns, key=_at_ns) - 1)
        after = bisect_left(observed, attempt.done_ns + LAG_NS, key=lambda observation: observation.since_ns)
        near = observed[first : after + 1]
        in_sync = [observation for observation in near if broker in observation.isr]
        racks = {observation.racks[broker] for observation in in_sync or near if broker in observation.racks}
        others = {**observed[-1].racks, **self.disks.racks}
        return frozenset(racks or ({others[broker]} if broker in others else ()))

    def _placed(self, partition: PartitionName, attempt: Attempt) -> tuple[list[RecordedPartition], int]:
        """Return one observation per placement since the send, and how many placements are from before the outcome."""
        observed, placements = self.cluster.of_partition(partition), self._placements.get(partition, ())
        first = max(0, bisect_right(placements, attempt.sent_ns, key=_at_ns) - 1)
        after = bisect_left(observed, attempt.done_ns, key=_at_ns)
        until_ns = observed[after].at_ns if after < len(observed) else attempt.done_ns
        return list(placements[first:]), bisect_right(placements, until_ns, key=_at_ns) - first

    def _had(self, broker: int, partition: PartitionName, attempt: Attempt) -> bool | None:
        """Return whether the broker had the record at the stop or before its disk was wiped; None if unknown."""
        assert attempt.offset is not None  # noqa: S101 - located before
        log = self.disks.logs.get((broker, partition))
        if log is not None and attempt.offset in log.keys and log.keys[attempt.offset] == attempt.key:
            return True
        before_wipes = {
            self._had_before_wipe(wipe, broker, partition, attempt)
            for wipe in self._wipes
            if wipe.hits(broker, self.disks.racks)
        }
        if True in before_wipes:
            return True
        if None in before_wipes or broker not in self.disks.complete:
            return None
        return None if log is not None and (log.gaps or attempt.offset < log.low) else False

    def _had_before_wipe(
        self, wipe: RecordedFault, broker: int, partition: PartitionName, attempt: Attempt
    ) -> bool | None:
        """Return whether a wipe removed the record and the broker need not have fetched it again; None if unknown."""
        removed = self._removed(wipe, broker, partition, attempt)
        if removed is False:
            return False
        if wipe.healed_ns is not None and any(
            broker in observation.isr and wipe.healed_ns + LAG_NS < observation.since_ns
            for observation in self.cluster.of_partition(partition)
        ):
            return False
        # From the start of the heal it may be in sync again at any moment, observed or not.
        return None if wipe.heal_ns is not None or wipe.proved_ns is None else removed

    def _removed(self, wipe: RecordedFault, broker: int, partition: PartitionName, attempt: Attempt) -> bool | None:
        """Return whether a broker had the record when a wipe removed its log; None if unknown."""
        over_ns = wipe.heal_ns if wipe.proved_ns is None else wipe.proved_ns
        if over_ns is not None and over_ns <= attempt.sent_ns:
            return False
        if wipe.inject_ns <= attempt.done_ns:
            # The disk was destroyed at an unknown moment between the start of the wipe and its proof.
            return None
        # A broker with a wiped disk does not rejoin the ISR before the heal.
        until_ns = wipe.heal_ns if wipe.heal_ns is not None else self.disks.at_ns
        observed = self.cluster.of_partition(partition)
        after = [observation for observation in observed if attempt.done_ns + LAG_NS < observation.since_ns]
        if any(broker in observation.isr for observation in after if observation.at_ns < until_ns):
            return True
        before_wipe = [observation for observation in observed if observation.at_ns < wipe.inject_ns]
        first = bisect_right(before_wipe, attempt.sent_ns, key=_at_ns) - 1
        if first < 0 or not after or after[0] not in before_wipe:
            return None
        between = before_wipe[first:]
        moments = [*map(_at_ns, between), wipe.inject_ns]
        gap = any(later - earlier > BLIND_S * NS for earlier, later in pairwise(moments))
        return None if gap or any(broker in observation.isr for observation in between) else False
