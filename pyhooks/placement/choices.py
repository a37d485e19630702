"""Which RF, M, R and placement a cluster with given racks can have, what each gives and costs, and which to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyhooks.placement.exact_model import Weighed, cells, weigh_cells
from pyhooks.placement.failure_rates import Chances
from pyhooks.placement.replica_placement import Placement


@dataclass(frozen=True)
class Choice:
    """Settings for a topic.

    Attributes:
        placement: of each partition, but for the names of the racks.
        min_replicas: M.
        min_racks: all R up to M that have the same effect there, ascending. An R above M is as M = R.
        weighed: what they give.
        cross_rack: how many copies of each record go from one rack to another, on average.
        dominated: another choice is as good in refusals, in the worst loss, in copies and in those across racks, and
            better in one of them.
    """

    placement: Placement
    min_replicas: int
    min_racks: tuple[int, ...]
    weighed: Weighed
    cross_rack: float
    dominated: bool = False

    @property
    def copies(self) -> int:
        """Bytes stored for each byte produced: the replication factor."""
        return self.placement.replicas

    @property
    def merits(self) -> tuple[float, float, float, float]:
        """What is compared, the less the better: refused, lost at worst, copies, copies across racks."""
        return self.weighed.refused.total, self.weighed.worst.total, float(self.copies), self.cross_rack


@dataclass(frozen=True)
class Advice:
    """Which choice to take for a goal.

    Attributes:
        goal: in words.
        choice: the one to take; None if none of them reaches it.
        because: what it gives and what it gives up; or why there is none.
    """

    goal: str
    choice: Choice | None
    because: str


def cross_rack(placement: Placement) -> float:
    """How many copies of each record go from one rack to another.

    Followers fetch from the leader, and each replica leads equally often over many partitions. With one replica in each
    rack that is RF - 1. What producers send to leaders in other racks is the same for all placements if both are
    spread evenly, and left out; so is what consumers fetch.
    """
    replicas = placement.replicas
    return sum(count / replicas * (replicas - count) for count in placement.counts)


def choices(placements: Iterable[Placement], chances: Chances) -> tuple[Choice, ...]:
    """All settings that can take writes, in the order of placements, M and R; those that others beat are marked.

    Args:
        placements: where replicas could be.
        chances: of failures.
    """
    found = [choice for placement in placements for choice in _of_placement(placement, chances)]
    return tuple(replace(one, dominated=beaten) for one, beaten in zip(found, _beaten(found), strict=True))


def _of_placement(placement: Placement, chances: Chances) -> Iterable[Choice]:
    seen = cells(placement, chances)
    for min_replicas in range(1, placement.replicas + 1):
        # what passes the gate shrinks with R; the same choice as before if nothing of it went
        last: Choice | None = None
        for min_racks in range(1, min(min_replicas, len(placement.racks)) + 1):
            weighed = weigh_cells(placement, seen, min_replicas=min_replicas, min_racks=min_racks)
            if last is not None and weighed == replace(last.weighed, limits=weighed.limits):
                last = replace(last, min_racks=(*last.min_racks, min_racks), weighed=weighed)
                continue
            if last is not None:
                yield last
            last = Choice(placement, min_replicas, (min_racks,), weighed, cross_rack(placement))
        if last is not None:
            yield last


def _beaten(found: Sequence[Choice]) -> list[bool]:
    """Of each whether another is nowhere more and somewhere less; sums of floats that should be equal count as such."""
    merits = np.array([one.merits for one in found], dtype=np.float64).reshape(-1, 4)
    slack = 1 + 1e-9
    return [bool(((merits <= own * slack).all(axis=1) & (merits * slack < own).any(axis=1)).any()) for own in merits]


@dataclass(frozen=True)
class _Goal:
    """A goal: what reaches it, which of those to prefer, and why none may."""

    text: str
    reached: Callable[[Weighed], bool]
    order: Callable[[Choice], tuple[float, ...]]
    missing: str


def _for_durability(choice: Choice) -> tuple[float, ...]:
    weighed = choice.weighed
    return (-min(1, weighed.writes_without_brokers), choice.copies, weighed.refused.total, choice.cross_rack)


def _for_availability(choice: Choice) -> tuple[float, ...]:
    weighed = choice.weighed
    kept = (-min(1, weighed.outlives_racks), -min(1, weighed.outlives_brokers))
    return (*kept, choice.copies, weighed.worst.total, choice.cross_rack, weighed.refused.total)


def _for_cost(choice: Choice) -> tuple[float, ...]:
    return (choice.copies, choice.cross_rack, choice.weighed.worst.total, choice.weighed.refused.total)


GOALS = (
    _Goal(
        "never lose acknowledged data with one rack destroyed",
        lambda weighed: weighed.outlives_racks >= 1,
        _for_durability,
        "it takes two racks and RF 2",
    ),
    _Goal(
        "keep writing with one rack away",
        lambda weighed: weighed.writes_without_racks >= 1,
        _for_availability,
        "it takes two racks and RF 2",
    ),
    _Goal(
        "least cost with which one broker, of any rack, may be away or be destroyed",
        lambda weighed: weighed.writes_without_brokers >= 1 and weighed.outlives_brokers >= 1,
        _for_cost,
        "it takes RF 3",
    ),
)


def advice(found: Sequence[Choice]) -> tuple[Advice, ...]:
    """For each goal what to take, of what there is: the cheapest that reaches it, and what else there is to want.

    - One rack destroyed: rather what writes on without any one broker; then the fewest copies, the fewest refusals.
    - One rack away: rather what outlives a destroyed rack, or at least a destroyed broker; then the fewest copies.
    - Least cost: the fewest copies, then the fewest across racks.
    """
    given = []
    for goal in GOALS:
        reached = [choice for choice in found if goal.reached(choice.weighed)]
        best = min(reached, key=goal.order, default=None)
        because = _because(best, found) if best else f"nothing in the table does: {goal.missing}"
        given.append(Advice(goal.text, best, because))
    return tuple(given)


def _because(choice: Choice, found: Sequence[Choice]) -> str:
    weighed = choice.weighed
    told = [
        goes_on(weighed.writes_without_racks, weighed.writes_without_brokers),
        outlived(weighed.outlives_racks, weighed.outlives_brokers),
    ]
    if len(choice.min_racks) > 1:
        few, many = choice.min_racks[0], choice.min_racks[-1]
        told.append(f"R={many} does what R={few} does until replicas are moved")
    if any(one.copies == choice.copies and _crowded(one) < _crowded(choice) for one in found):
        told.append("assign it by hand: Kafka itself spreads over as many racks as it can")
    return "; ".join(told)


def _crowded(choice: Choice) -> int:
    """The more, the less evenly the replicas are spread over racks."""
    return sum(count * count for count in choice.placement.counts)


def goes_on(racks: int, brokers: int) -> str:
    """How many, whichever, may be away while writes are taken, in words."""
    if racks < 1 and brokers < 1:
        return "one broker that is away can stop writes"
    stops = "; without a rack they may stop" if racks < 1 else ""
    return f"writes go on while any {_either(racks, brokers)} away{stops}"


def outlived(racks: int, brokers: int) -> str:
    """How many, whichever, may be destroyed without loss of acknowledged records, in words."""
    if racks < 1 and brokers < 1:
        return "one broker may be the only one with acknowledged records"
    alone = "; one rack may be the only one with them" if racks < 1 else ""
    return f"acknowledged records outlive the loss of any {_either(racks, brokers, verb=False)}{alone}"


def _either(racks: int, brokers: int, *, verb: bool = True) -> str:
    if racks == brokers == 1:
        return "one rack or broker" + " is" * verb
    things = [(number, what) for number, what in ((racks, "rack"), (brokers, "broker")) if number > 0]
    told = " or ".join(f"{'one' if number == 1 else number} {what}{'s' * (number > 1)}" for number, what in things)
    return told + (" is" if things[-1][0] == 1 else " are") * verb
