"""Failures that come together: how many brokers a burst takes, from where, and how likely it meets some of them.

A burst takes two brokers or more, geometrically many, but no more than there are where it takes them from: a rack, or
the whole cluster. So small clusters have more bursts of fewer brokers: ``Law.per_s`` counts with those that are there.
Racks are chosen so that each broker is as likely as any other to be taken, whatever the size of its rack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.failures import Bursts, Faults
from pyhooks.simulation.machine_script import Floats, Ints


@dataclass(frozen=True)
class Law:
    """How bursts come to a cluster.

    Attributes:
        bursts: as they are asked for.
        rooms: how many brokers are in each rack.
        per_s: how many come in a second.
        of_rack: the chance of each rack to be that of a burst that stays in one.
    """

    bursts: Bursts
    rooms: tuple[int, ...]
    per_s: float
    of_rack: Floats

    @staticmethod
    def of(faults: Faults, rooms: tuple[int, ...]) -> Law:
        """So many that each broker fails as often as was asked for, by bursts and alone."""
        bursts, brokers = faults.bursts, sum(rooms)
        sizes = np.array([_at_least(bursts, room).sum() for room in rooms])
        alike = np.array(rooms) / sizes
        of_rack = alike / alike.sum()
        taken = bursts.one_rack * float(of_rack @ sizes)
        taken += (1 - bursts.one_rack) * float(_at_least(bursts, brokers).sum())
        return Law(bursts, rooms, faults.broker.per_year * bursts.share * brokers / taken / YEAR_S, of_rack)

    def meets(self, in_rack: Ints) -> Floats:
        """The chance that a burst takes at least one of some brokers.

        Args:
            in_rack: shape (partitions, racks): how many of them are in each rack.
        """
        number = in_rack.sum(axis=1)
        most = int(number.max(initial=0))
        anywhere = np.array([_meets(self.bursts, sum(self.rooms), own) for own in range(most + 1)])[number]
        one = np.zeros(len(in_rack))
        for rack, (room, chance) in enumerate(zip(self.rooms, self.of_rack, strict=True)):
            some = [_meets(self.bursts, room, own) for own in range(int(in_rack[:, rack].max(initial=0)) + 1)]
            one += chance * np.array(some)[in_rack[:, rack]]
        met: Floats = self.bursts.one_rack * one + (1 - self.bursts.one_rack) * anywhere
        return met

    def draw(self, random: np.random.Generator) -> Ints:
        """The brokers that a burst takes, numbered rack by rack."""
        size = 1 + int(random.geometric(1 / (self.bursts.size - 1)))
        first, room = 0, sum(self.rooms)
        if random.random() < self.bursts.one_rack:
            rack = int(random.choice(len(self.rooms), p=self.of_rack))
            first, room = sum(self.rooms[:rack]), self.rooms[rack]
        return first + random.choice(room, size=min(size, room), replace=False).astype(np.int64)


def _at_least(bursts: Bursts, room: int) -> Floats:
    """The chance that a burst where there are so many brokers takes at least 1, 2, … of them."""
    found: Floats = (1 - 1 / (bursts.size - 1)) ** np.maximum(np.arange(room) - 1.0, 0.0)
    return found


def _meets(bursts: Bursts, room: int, own: int) -> float:
    """The chance that it takes at least one of ``own`` of them."""
    at_least = _at_least(bursts, room)
    size = np.arange(1, room + 1)
    none = np.ones(room)
    for one in range(own):
        none *= np.maximum(room - size - one, 0) / (room - one)
    return float((at_least - np.append(at_least[1:], 0.0)) @ (1 - none))
