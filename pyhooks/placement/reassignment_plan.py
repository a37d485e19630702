"""A reassignment that lets placements reach their R: as few replicas as possible move, and preferred leaders stay.

A replica that moves brings at most one new rack, so the least number of moves is the number of racks that are missing.
It suffices: what moves is always a replica whose rack has another one, or that is on a broker which has no rack or
which the cluster does not know. Among those the first of the assignment, the preferred leader, moves last if it can
lead now: if its broker is known and not fenced, and it is in sync. One that is gone moves first, as any other that is
gone; its place goes to the replica that comes for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pyhooks.kafka import gate
from pyhooks.kafka.gate import NO_RACK
from pyhooks.placement.gate_forecast import Cluster, Partition, rack_name, reaches


@dataclass(frozen=True)
class Move:
    """A partition that gets another assignment.

    Attributes:
        partition: as it is.
        replicas: the new assignment; as long as the old one, and in its order but for the replicas that move.
    """

    partition: Partition
    replicas: tuple[int, ...]

    @property
    def moved(self) -> int:
        """How many replicas move."""
        return len(set(self.replicas) - set(self.partition.target))


@dataclass(frozen=True)
class Refusal:
    """A partition that can't be mended by moving its replicas.

    Attributes:
        partition: as it is.
        because: why, in a sentence.
    """

    partition: Partition
    because: str


@dataclass(frozen=True)
class Unknown:
    """A topic of which it is not known whether it reaches R.

    Attributes:
        topic: its name.
        because: why, in a sentence.
    """

    topic: str
    because: str


@dataclass(frozen=True)
class Plan:
    """What to move.

    Attributes:
        moves: in the order of topics and partitions.
        refusals: partitions that are short of racks and stay so.
        unknown: topics that are left alone because what they require or where they are is not known.
    """

    moves: tuple[Move, ...]
    refusals: tuple[Refusal, ...]
    unknown: tuple[Unknown, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that can't reach R is in it, as far as known for certain."""
        return not self.refusals and not self.unknown

    def to_json(self) -> str:
        """The file that ``kafka-reassign-partitions --reassignment-json-file`` takes."""
        partitions = [
            {"topic": move.partition.topic, "partition": move.partition.number, "replicas": list(move.replicas)}
            for move in self.moves
        ]
        return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def plan(cluster: Cluster, topics: frozenset[str] | None = None) -> Plan:
    """What to move so that each placement reaches its R.

    Replicas go to brokers that are not fenced and have a rack, to the ones with the fewest replicas first. Racks are
    counted as the gate counts them: a broker without a rack counts for none. Set its ``broker.rack`` first, which
    copies no data.

    Args:
        cluster: as it was seen.
        topics: which ones to mend; all if None. The others count for the balance.
    """
    racks = cluster.racks
    load = Counter(
        replica for topic in cluster.topics for partition in topic.partitions for replica in partition.target
    )
    moves: list[Move] = []
    refusals: list[Refusal] = []
    unknown: list[Unknown] = []
    for topic in cluster.topics:
        if topics is not None and topic.name not in topics:
            continue
        if topic.need is None:
            because = topic.unanswered or "no broker told its settings"
            unknown.append(Unknown(topic.name, because))
            continue
        for partition in topic.partitions:
            if reaches(partition.target, topic.need.min_racks, racks):
                continue
            needed = gate.capped(topic.need.min_racks, len(partition.target))
            if partition.adding or partition.removing:
                because = "it is being reassigned: wait for the end or cancel that, then ask again"
                refusals.append(Refusal(partition, because))
                continue
            if "reassignments" in cluster.unanswered:
                because = "it may be being reassigned, which no broker told: ask again"
                refusals.append(Refusal(partition, because))
                continue
            replicas = _spread(partition, needed, cluster, racks, load)
            if replicas is None:
                refusals.append(Refusal(partition, _why_not(partition, needed, cluster, racks)))
            else:
                load.subtract(partition.target)
                load.update(replicas)
                moves.append(Move(partition, replicas))
    return Plan(tuple(moves), tuple(refusals), tuple(unknown))


def _spread(
    partition: Partition, needed: int, cluster: Cluster, racks: Mapping[int, str], load: Mapping[int, int]
) -> tuple[int, ...] | None:
    """The new assignment, or None if there are too few racks to move to."""
    replicas = list(partition.replicas)
    while len(held := gate.racks_of(replicas, racks)) < needed:
        free = [
            broker.broker_id
            for broker in cluster.brokers.values()
            if not broker.fenced and broker.rack != NO_RACK and broker.rack not in held
        ]
        if not free:
            return None
        per_rack = Counter(racks[replica] for replica in replicas if replica in racks)
        spare = [
            position
            for position, replica in enumerate(replicas)
            if racks.get(replica, NO_RACK) == NO_RACK or per_rack[racks[replica]] > 1
        ]
        # Whoever is preferred as the leader and can lead stays. What is gone or behind has to be copied anyway.
        can_lead = _leads(partition, cluster)
        leaving = min(
            spare,
            key=lambda position: (
                position == 0 and can_lead,
                replicas[position] in racks,
                replicas[position] in partition.isr,
                -load[replicas[position]],
                -position,
            ),
        )
        replicas[leaving] = min(free, key=lambda broker: (load[broker], broker))
    return tuple(replicas)


def _leads(partition: Partition, cluster: Cluster) -> bool:
    """Whether the preferred leader can lead now."""
    broker = cluster.brokers.get(partition.replicas[0])
    return broker is not None and not broker.fenced and broker.broker_id in partition.isr


def _why_not(partition: Partition, needed: int, cluster: Cluster, racks: Mapping[int, str]) -> str:
    live = {broker.rack for broker in cluster.brokers.values() if not broker.fenced and broker.rack != NO_RACK}
    known = {broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK}
    held = gate.racks_of(partition.target, racks)
    away = sorted(known - live - held)
    usable = ", ".join(rack_name(rack) for rack in sorted(live | held))
    text = f"{needed} racks are needed, and brokers that are up or have a replica are in {len(live | held)} ({usable})"
    if away:
        return f"{text}; start the brokers of {', '.join(away)}, or lower min.insync.racks"
    return f"{text}; add brokers in another rack, or lower min.insync.racks"
