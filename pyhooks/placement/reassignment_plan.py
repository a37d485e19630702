"""Reassignment plan that lets placements reach their R with as few moves as possible and keeps preferred leaders.

A moved replica adds at most one rack, so at least as many moves are needed as racks are missing. This number suffices:
only replicas move whose rack has another replica, or whose broker has no rack or is unknown to the cluster. Among these
the preferred leader (the first of the assignment) moves last if it can lead now: its broker is known and not fenced,
and it is in sync. Replicas on unknown brokers move first, the preferred leader included. A new replica takes the
position of the one that it replaces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pyhooks.kafka import gate
from pyhooks.kafka.gate import NO_RACK
from pyhooks.placement.gate_forecast import ClusterSnapshot, ReportedPartition, rack_name, reaches


@dataclass(frozen=True)
class PartitionMove:
    """Partition with a new assignment."""

    partition: ReportedPartition  # the partition with its current assignment
    # the new assignment; it differs from the current one only at the positions of moved replicas
    replicas: tuple[int, ...]

    @property
    def moved(self) -> int:
        """Number of moved replicas."""
        return len(set(self.replicas) - set(self.partition.target))


@dataclass(frozen=True)
class UnfixablePartition:
    """Partition whose placement can't be fixed by moving replicas, and the reason in a sentence."""

    partition: ReportedPartition
    because: str


@dataclass(frozen=True)
class UnknownTopic:
    """Name of a topic for which it is unknown whether its placements reach R, and the reason in a sentence."""

    topic: str
    because: str


@dataclass(frozen=True)
class ReassignmentPlan:
    """Reassignment plan."""

    moves: tuple[PartitionMove, ...]  # moves in the order of topics and partitions
    rejections: tuple[UnfixablePartition, ...]  # partitions with too few racks that the plan does not fix
    unknown: tuple[UnknownTopic, ...] = ()  # topics left out because their requirements or placements are unknown

    @property
    def complete(self) -> bool:
        """Whether the plan fixes every partition that can't reach R, and no topic is unknown."""
        return not self.rejections and not self.unknown

    def to_json(self) -> str:
        """Return the JSON for ``kafka-reassign-partitions --reassignment-json-file``."""
        partitions = [
            {"topic": move.partition.topic, "partition": move.partition.number, "replicas": list(move.replicas)}
            for move in self.moves
        ]
        return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def plan_reassignment(cluster: ClusterSnapshot, topics: frozenset[str] | None = None) -> ReassignmentPlan:
    """Plan the moves with which each placement reaches its R.

    Replicas move to brokers that are not fenced and have a rack, those with the fewest replicas first. As for the gate,
    a broker without a rack counts for no rack. For such a broker set ``broker.rack`` first, which copies no data.

    Only ``topics`` are fixed if they are given. The replicas of others count as load of their brokers.
    """
    racks = cluster.racks
    load = Counter(
        replica for topic in cluster.topics for partition in topic.partitions for replica in partition.target
    )
    moves: list[PartitionMove] = []
    rejections: list[UnfixablePartition] = []
    unknown: list[UnknownTopic] = []
    for topic in cluster.topics:
        if topics is not None and topic.name not in topics:
            continue
        if topic.requirements is None:
            unknown.append(UnknownTopic(topic.name, topic.unanswered or "no broker reported its settings"))
            continue
        for partition in topic.partitions:
            if reaches(partition.target, topic.requirements.min_racks, racks):
                continue
            needed = gate.capped(topic.requirements.min_racks, len(partition.target))
            if partition.adding or partition.removing:
                reason = "it is being reassigned: wait until that ends or cancel it, then check again"
                rejections.append(UnfixablePartition(partition, reason))
                continue
            if "reassignments" in cluster.unanswered:
                reason = "no broker reported whether it is being reassigned: check again"
                rejections.append(UnfixablePartition(partition, reason))
                continue
            replicas = _new_assignment(partition, needed, cluster, racks, load)
            if replicas is None:
                rejections.append(UnfixablePartition(partition, _rejection_reason(partition, needed, cluster, racks)))
            else:
                load.subtract(partition.target)
                load.update(replicas)
                moves.append(PartitionMove(partition, replicas))
    return ReassignmentPlan(tuple(moves), tuple(rejections), tuple(unknown))


def _new_assignment(
    partition: ReportedPartition,
    needed: int,
    cluster: ClusterSnapshot,
    racks: Mapping[int, str],
    load: Mapping[int, int],
) -> tuple[int, ...] | None:
    """Return the new assignment, or None if there are too few racks to move to."""
    replicas = list(partition.replicas)
    while len(covered_racks := gate.racks_of(replicas, racks)) < needed:
        candidates = [
            broker.broker_id
            for broker in cluster.brokers.values()
            if not broker.fenced and broker.rack != NO_RACK and broker.rack not in covered_racks
        ]
        if not candidates:
            return None
        replicas_by_rack = Counter(racks[replica] for replica in replicas if replica in racks)
        movable = [
            position
            for position, replica in enumerate(replicas)
            if racks.get(replica, NO_RACK) == NO_RACK or replicas_by_rack[racks[replica]] > 1
        ]
        # A preferred leader that can lead stays. Unknown or out-of-sync replicas have to be copied anyway.
        can_lead = _preferred_leader_can_lead(partition, cluster)
        replaced = min(
            movable,
            key=lambda position: (
                position == 0 and can_lead,
                replicas[position] in racks,
                replicas[position] in partition.isr,
                -load[replicas[position]],
                -position,
            ),
        )
        replicas[replaced] = min(candidates, key=lambda broker: (load[broker], broker))
    return tuple(replicas)


def _preferred_leader_can_lead(partition: ReportedPartition, cluster: ClusterSnapshot) -> bool:
    """Return whether the preferred leader can lead now."""
    broker = cluster.brokers.get(partition.replicas[0])
    return broker is not None and not broker.fenced and broker.broker_id in partition.isr


def _rejection_reason(
    partition: ReportedPartition, needed: int, cluster: ClusterSnapshot, racks: Mapping[int, str]
) -> str:
    available = {broker.rack for broker in cluster.brokers.values() if not broker.fenced and broker.rack != NO_RACK}
    all_racks = {broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK}
    covered = gate.racks_of(partition.target, racks)
    unavailable = sorted(all_racks - available - covered)
    usable = ", ".join(rack_name(rack) for rack in sorted(available | covered))
    count = len(available | covered)
    text = f"{needed} racks are needed, and brokers that are up or have a replica are in {count} ({usable})"
    if unavailable:
        return f"{text}; start the brokers of {', '.join(unavailable)}, or lower min.insync.racks"
    return f"{text}; add brokers in another rack, or lower min.insync.racks"
