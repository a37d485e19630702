"""Possible settings (RF, M, R, placement) of a topic, their guarantees and costs, and a recommendation for each goal.

RF is the replication factor, M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyhooks.placement.exact_model import Evaluation, evaluate_groups, isr_groups
from pyhooks.placement.failure_rates import FailureProbabilities
from pyhooks.placement.replica_placement import Placement


@dataclass(frozen=True)
class Choice:
    """Settings for a topic and their evaluation.

    Attributes:
        placement: placement of each partition, up to the names of the racks.
        min_replicas: M.
        min_racks: all R up to M that have the same effect, ascending. An R above M has the same effect as M = R.
        evaluation: availability and durability with these settings.
        cross_rack_copies: mean number of copies of each record that are sent from one rack to another.
        dominated: another choice is at least as good in all of ``criteria`` and better in at least one.
    """

    placement: Placement
    min_replicas: int
    min_racks: tuple[int, ...]
    evaluation: Evaluation
    cross_rack_copies: float
    dominated: bool = False

    @property
    def copies(self) -> int:
        """Replication factor: bytes stored for each byte produced."""
        return self.placement.replicas

    @property
    def criteria(self) -> tuple[float, float, float, float]:
        """Criteria of the comparison, lower is better: refused, worst loss, copies, copies across racks."""
        return self.evaluation.refused.total, self.evaluation.worst.total, float(self.copies), self.cross_rack_copies


@dataclass(frozen=True)
class Advice:
    """Recommended choice for a goal.

    Attributes:
        goal: description of the goal.
        choice: the recommended choice; None if no choice reaches the goal.
        because: what the choice guarantees and what it does not; or why no choice reaches the goal.
    """

    goal: str
    choice: Choice | None
    because: str


def cross_rack_copies(placement: Placement) -> float:
    """Return the mean number of copies of each record that are sent from one rack to another.

    Followers fetch from the leader, and over many partitions each replica leads equally often. With one replica in each
    rack the result is RF - 1. Traffic of producers and consumers is left out: for producers it does not depend on the
    placement if producers and leaders are spread evenly over the racks.
    """
    replicas = placement.replicas
    return sum(count / replicas * (replicas - count) for count in placement.counts)


def choices(placements: Iterable[Placement], probabilities: FailureProbabilities) -> tuple[Choice, ...]:
    """Return all settings that allow writes, in the order of placements, M and R, with dominated ones marked.

    Args:
        placements: placements to consider.
        probabilities: failure probabilities.
    """
    found = [choice for placement in placements for choice in _of_placement(placement, probabilities)]
    return tuple(replace(one, dominated=beaten) for one, beaten in zip(found, _beaten(found), strict=True))


def _of_placement(placement: Placement, probabilities: FailureProbabilities) -> Iterable[Choice]:
    seen = isr_groups(placement, probabilities)
    for min_replicas in range(1, placement.replicas + 1):
        # with a higher R fewer ISRs pass the gate; if none is lost, the higher R is the same choice
        last: Choice | None = None
        for min_racks in range(1, min(min_replicas, len(placement.racks)) + 1):
            evaluation = evaluate_groups(placement, seen, min_replicas=min_replicas, min_racks=min_racks)
            if last is not None and evaluation == replace(last.evaluation, limits=evaluation.limits):
                last = replace(last, min_racks=(*last.min_racks, min_racks), evaluation=evaluation)
                continue
            if last is not None:
                yield last
            last = Choice(placement, min_replicas, (min_racks,), evaluation, cross_rack_copies(placement))
        if last is not None:
            yield last


def _beaten(found: Sequence[Choice]) -> list[bool]:
    """Return for each choice whether another dominates it; a tolerance absorbs rounding differences between sums."""
    criteria = np.array([one.criteria for one in found], dtype=np.float64).reshape(-1, 4)
    slack = 1 + 1e-9
    return [
        bool(((criteria <= own * slack).all(axis=1) & (criteria * slack < own).any(axis=1)).any()) for own in criteria
    ]


@dataclass(frozen=True)
class _Goal:
    """Goal: its condition, the order of preference among choices that meet it, and the reason why none may."""

    text: str
    reached: Callable[[Evaluation], bool]
    order: Callable[[Choice], tuple[float, ...]]
    missing: str


def _for_durability(choice: Choice) -> tuple[float, ...]:
    evaluation = choice.evaluation
    return (
        -min(1, evaluation.writes_without_brokers),
        choice.copies,
        evaluation.refused.total,
        choice.cross_rack_copies,
    )


def _for_availability(choice: Choice) -> tuple[float, ...]:
    evaluation = choice.evaluation
    kept = (-min(1, evaluation.outlives_racks), -min(1, evaluation.outlives_brokers))
    return (*kept, choice.copies, evaluation.worst.total, choice.cross_rack_copies, evaluation.refused.total)


def _for_cost(choice: Choice) -> tuple[float, ...]:
    return (choice.copies, choice.cross_rack_copies, choice.evaluation.worst.total, choice.evaluation.refused.total)


GOALS = (
    _Goal(
        "never lose acknowledged data with one rack destroyed",
        lambda evaluation: evaluation.outlives_racks >= 1,
        _for_durability,
        "that requires two racks and RF 2",
    ),
    _Goal(
        "keep writing with one rack unavailable",
        lambda evaluation: evaluation.writes_without_racks >= 1,
        _for_availability,
        "that requires two racks and RF 2",
    ),
    _Goal(
        "least cost with which any one broker may be unavailable or destroyed",
        lambda evaluation: evaluation.writes_without_brokers >= 1 and evaluation.outlives_brokers >= 1,
        _for_cost,
        "that requires RF 3",
    ),
)


def advice(found: Sequence[Choice]) -> tuple[Advice, ...]:
    """Return a recommendation for each goal: the preferred choice among those that reach it.

    - One rack destroyed: prefer writes that continue without any one broker, then fewest copies, then fewest refusals.
    - One rack unavailable: prefer no loss with a rack destroyed, else with a broker destroyed; then fewest copies.
    - Least cost: fewest copies, then fewest copies across racks.
    """
    given = []
    for goal in GOALS:
        reached = [choice for choice in found if goal.reached(choice.evaluation)]
        best = min(reached, key=goal.order, default=None)
        because = _because(best, found) if best else f"no choice in the table: {goal.missing}"
        given.append(Advice(goal.text, best, because))
    return tuple(given)


def _because(choice: Choice, found: Sequence[Choice]) -> str:
    evaluation = choice.evaluation
    reasons = [
        availability_text(evaluation.writes_without_racks, evaluation.writes_without_brokers),
        durability_text(evaluation.outlives_racks, evaluation.outlives_brokers),
    ]
    if len(choice.min_racks) > 1:
        few, many = choice.min_racks[0], choice.min_racks[-1]
        reasons.append(f"R={many} has the same effect as R={few} until replicas are moved")
    if any(one.copies == choice.copies and _crowded(one) < _crowded(choice) for one in found):
        reasons.append("assign it by hand: Kafka itself spreads over as many racks as it can")
    return "; ".join(reasons)


def _crowded(choice: Choice) -> int:
    """Return a measure of how unevenly the replicas are spread over racks."""
    return sum(count * count for count in choice.placement.counts)


def availability_text(racks: int, brokers: int) -> str:
    """Describe how many arbitrary racks or brokers may be unavailable while writes continue."""
    if racks < 1 and brokers < 1:
        return "one unavailable broker can stop writes"
    stops = "; without a rack they may stop" if racks < 1 else ""
    return f"writes continue while any {_either(racks, brokers)} unavailable{stops}"


def durability_text(racks: int, brokers: int) -> str:
    """Describe how many arbitrary racks or brokers may be destroyed without loss of acknowledged records."""
    if racks < 1 and brokers < 1:
        return "one broker may be the only one with acknowledged records"
    alone = "; one rack may be the only one with them" if racks < 1 else ""
    return f"acknowledged records survive the loss of any {_either(racks, brokers, verb=False)}{alone}"


def _either(racks: int, brokers: int, *, verb: bool = True) -> str:
    if racks == brokers == 1:
        return "one rack or broker" + " is" * verb
    things = [(number, what) for number, what in ((racks, "rack"), (brokers, "broker")) if number > 0]
    text = " or ".join(f"{'one' if number == 1 else number} {what}{'s' * (number > 1)}" for number, what in things)
    return text + (" is" if things[-1][0] == 1 else " are") * verb
