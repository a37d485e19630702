"""Where Kafka puts the replicas of new topics: the rack-aware, striped placement of its controller.

Written from what Kafka documents of ``org.apache.kafka.metadata.placement.StripedReplicaPlacer`` (4.3.1): a topic's
partitions take racks in turn, each partition beginning one rack further than the one before; within a rack brokers are
taken in turn, beginning one further for each partition; both begin at random for each topic, and all are shuffled when
as many partitions were placed as there are brokers. All brokers are taken to be there.
``tests/live/simulation/test_placement_by_kafka.py``
holds it against the class itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")
_MULTIPLIER, _INCREMENT, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1


class JavaRandom:
    """``java.util.Random`` as the Java API specifies it, so that the same seed gives the same placement as in Kafka."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def _bits(self, number: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return self._state >> (48 - number)

    def below(self, bound: int) -> int:
        """``nextInt(bound)``: from 0 on, each equally likely."""
        drawn = self._bits(31)
        if bound & (bound - 1) == 0:
            return (bound * drawn) >> 31
        # the last, incomplete run of ``bound`` numbers is drawn again
        while drawn - drawn % bound + bound > 1 << 31:
            drawn = self._bits(31)
        return drawn % bound

    def shuffle(self, things: list[_T]) -> None:
        """``Collections.shuffle``."""
        for size in range(len(things), 1, -1):
            other = self.below(size)
            things[size - 1], things[other] = things[other], things[size - 1]


class _Turn:
    """Brokers of a rack in turn: each partition begins one further."""

    def __init__(self, brokers: Sequence[int], random: JavaRandom) -> None:
        self.brokers = sorted(brokers)
        self._offset = random.below(len(self.brokers))
        self._taken = 0
        self._partition = 0

    def next(self, partition: int) -> int | None:
        """The next one for a partition, or None if it has them all."""
        if partition != self._partition:
            self._partition, self._taken = partition, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken == len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._offset + self._taken - 1) % len(self.brokers)]


def place_topic(racks: Sequence[Sequence[int]], partitions: int, replicas: int, random: JavaRandom) -> list[list[int]]:
    """Places a topic.

    Args:
        racks: the brokers of each rack, in the order of the racks' names; none empty.
        partitions: how many.
        replicas: the replication factor, at most as many as there are brokers.
        random: from it.

    Returns:
        For each partition its replicas, the preferred leader first.
    """
    named = [_Turn(rack, random) for rack in racks]
    turns = list(named)
    brokers = sum(len(rack) for rack in racks)
    start = random.below(len(turns))
    placed: list[list[int]] = []
    epoch = 0
    for _ in range(partitions):
        if epoch == brokers > 1:
            random.shuffle(turns)
            for turn in named:
                random.shuffle(turn.brokers)
            epoch = 0
        start %= len(turns)
        placed.append(_place(turns, start, epoch, replicas))
        epoch += 1
        start += 1
    return placed


def _place(turns: Sequence[_Turn], start: int, epoch: int, replicas: int) -> list[int]:
    """Round after round over the racks, until there are enough."""
    chosen: list[int] = []
    rack = start
    while len(chosen) < replicas:
        broker = turns[rack].next(epoch)
        if broker is not None:
            chosen.append(broker)
        rack = (rack + 1) % len(turns)
    return chosen


def place(racks: Sequence[Sequence[int]], *, topics: int, partitions: int, replicas: int, seed: int) -> list[list[int]]:
    """Places topics that share the partitions evenly.

    Args:
        racks: as in ``place_topic``.
        topics: how many.
        partitions: of all of them, at least as many.
        replicas: the replication factor.
        seed: of what is drawn.
    """
    random = JavaRandom(seed)
    placed: list[list[int]] = []
    for topic in range(topics):
        size = partitions // topics + (topic < partitions % topics)
        placed += place_topic(racks, size, replicas, random)
    return placed
