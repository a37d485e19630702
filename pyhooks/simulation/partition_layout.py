"""The partitions of a cluster: where their replicas are, and which live the same when one broker or rack is away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyhooks.simulation.machine_script import Ints
from pyhooks.simulation.outage_history import Cluster


@dataclass(frozen=True)
class Groups:
    """Partitions that live the same while nothing is disturbed but one broker, or one rack, by the owner of that name.

    Attributes:
        first: where the groups of each owner begin, brokers and then racks; and at the end how many there are.
        replicas: which replicas are disturbed, as bits, in one partition of each group.
        pattern: of each group.
        members: the partitions of each group.
    """

    first: Ints
    replicas: Ints
    pattern: Ints
    members: tuple[Ints, ...]


@dataclass(frozen=True)
class Layout:
    """The partitions of a cluster.

    Attributes:
        replicas: shape (partitions, RF): brokers, the preferred leader first.
        pattern: of each partition: an index into ``patterns``.
        patterns: the rack of each replica, as numbers in the order in which they come.
        groups: see there.
    """

    replicas: Ints
    pattern: Ints
    patterns: tuple[tuple[int, ...], ...]
    groups: Groups

    @staticmethod
    def of(placed: Sequence[Sequence[int]], cluster: Cluster) -> Layout:
        """Of partitions that are placed on brokers."""
        known: dict[tuple[int, ...], int] = {}
        pattern = []
        for partition in placed:
            racks = [int(cluster.rack[broker]) for broker in partition]
            order = {rack: number for number, rack in enumerate(dict.fromkeys(racks))}
            pattern.append(known.setdefault(tuple(order[rack] for rack in racks), len(known)))
        groups = _groups(placed, pattern, tuple(known), cluster)
        return Layout(np.array(placed, dtype=np.int64), np.array(pattern, dtype=np.int64), tuple(known), groups)

    @property
    def partitions(self) -> int:
        """How many."""
        return len(self.replicas)

    @property
    def factor(self) -> int:
        """The replication factor."""
        return int(self.replicas.shape[1])


def _groups(
    placed: Sequence[Sequence[int]], patterns: Sequence[int], known: Sequence[tuple[int, ...]], cluster: Cluster
) -> Groups:
    """Two partitions are alike to an owner if the same replicas of the same pattern are disturbed.

    For one replica it is enough that both lead or both follow, and that the others are in as many racks.
    """
    found: list[dict[tuple[object, ...], list[int]]] = [{} for _ in range(cluster.brokers + cluster.racks)]
    first_bits: dict[tuple[int, tuple[object, ...]], int] = {}
    alike_of: dict[tuple[int, int], tuple[object, ...]] = {}
    rack_of, brokers = cluster.rack.tolist(), cluster.brokers
    for number, (partition, pattern) in enumerate(zip(placed, patterns, strict=True)):
        bits: dict[int, int] = defaultdict(int)
        for slot, broker in enumerate(partition):
            bits[broker] |= 1 << slot
            bits[brokers + rack_of[broker]] |= 1 << slot
        for owner, mask in bits.items():
            alike = alike_of.get((mask, pattern)) or _alike(mask, pattern, known[pattern])
            alike_of[mask, pattern] = alike
            found[owner].setdefault(alike, []).append(number)
            first_bits.setdefault((owner, alike), mask)
    every = [(owner, alike, members) for owner, one in enumerate(found) for alike, members in one.items()]
    return Groups(
        np.cumsum([0, *(len(one) for one in found)]),
        np.array([first_bits[owner, alike] for owner, alike, _ in every], dtype=np.int64),
        np.array([patterns[members[0]] for _, _, members in every], dtype=np.int64),
        tuple(np.array(members, dtype=np.int64) for _, _, members in every),
    )


def _alike(mask: int, pattern: int, racks: tuple[int, ...]) -> tuple[object, ...]:
    if mask & (mask - 1):
        return (pattern, mask)
    others = {rack for slot, rack in enumerate(racks) if not mask >> slot & 1}
    return (pattern, mask == 1, len(others))
