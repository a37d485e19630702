"""Placement of new topics as by Kafka's controller, rack-aware and striped.

Written from the documentation of ``org.apache.kafka.metadata.placement.StripedReplicaPlacer``. The partitions
of a topic take racks in turn, each starting one rack after the previous one. Within a rack brokers are taken in turn,
each partition starting one broker later. Both start at random for each topic, and everything is shuffled after as many
partitions as there are brokers. All brokers are available. ``tests/live/simulation`` compares it with Kafka's class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_MULTIPLIER, _INCREMENT, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1


class JavaRandom:
    """``java.util.Random`` by its specification, so that the same seed gives the same placement as in Kafka."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def next_int(self, bound: int) -> int:
        """``nextInt(bound)``: a number below the bound."""
        while True:
            self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
            drawn = self._state >> 17
            if bound & (bound - 1) == 0:
                return (bound * drawn) >> 31
            # numbers of the last, incomplete run of ``bound`` numbers are rejected
            if drawn - drawn % bound + bound <= 1 << 31:
                return drawn % bound

    def shuffle(self, things: list[T]) -> None:
        """``Collections.shuffle``."""
        for size in range(len(things), 1, -1):
            other = self.next_int(size)
            things[size - 1], things[other] = things[other], things[size - 1]


class _RackTurn:
    """Brokers of a rack in turn; each partition starts one later."""

    def __init__(self, brokers: Sequence[int], random: JavaRandom) -> None:
        self.brokers = sorted(brokers)
        self._offset = random.next_int(len(self.brokers))
        self._taken = self._partition = 0

    def next(self, partition: int) -> int | None:
        """Return the next broker for a partition, or None if it has all of them."""
        if partition != self._partition:
            self._partition, self._taken = partition, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken == len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._offset + self._taken - 1) % len(self.brokers)]


def place_topic(racks: Sequence[Sequence[int]], partitions: int, replicas: int, random: JavaRandom) -> list[list[int]]:
    """Return the replicas of each partition of a new topic, the preferred leader first.

    ``racks`` has the brokers of each rack, none of them empty, in the order of the racks' names. ``replicas`` is at
    most the number of brokers.
    """
    named = [_RackTurn(rack, random) for rack in racks]
    turns, brokers = list(named), sum(len(rack) for rack in racks)
    start, epoch = random.next_int(len(turns)), 0
    placed: list[list[int]] = []
    for _ in range(partitions):
        if epoch == brokers > 1:
            random.shuffle(turns)
            for turn in named:
                random.shuffle(turn.brokers)
            epoch = 0
        chosen: list[int] = []
        rack = start
        while len(chosen) < replicas:
            if (broker := turns[rack % len(turns)].next(epoch)) is not None:
                chosen.append(broker)
            rack += 1
        placed.append(chosen)
        epoch += 1
        start = (start + 1) % len(turns)
    return placed


def place(racks: Sequence[Sequence[int]], *, topics: int, partitions: int, replicas: int, seed: int) -> list[list[int]]:
    """Place topics that share at least as many partitions evenly; other arguments as of ``place_topic``."""
    random = JavaRandom(seed)
    sizes = [partitions // topics + (topic < partitions % topics) for topic in range(topics)]
    return [replica for size in sizes for replica in place_topic(racks, size, replicas, random)]
