"""Possible settings (RF, M, R, placement) of a topic, their guarantees and costs, and a recommendation for each goal.

RF is the replication factor, M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from pyhooks.kafka.gate import Limits
from pyhooks.placement.exact_model import Evaluation, evaluate_groups, isr_groups
from pyhooks.placement.failure_rates import FailureProbabilities
from pyhooks.placement.replica_placement import Placement

# replaces the limits where evaluations are compared without them
ANY_LIMITS = Limits(1, 1)


@dataclass(frozen=True)
class Choice:
    """Settings for a topic and their evaluation."""

    placement: Placement  # placement of each partition, up to the names of the racks
    min_replicas: int  # M
    # all R up to M that have the same effect, ascending. An R above M has the same effect as M = R
    min_racks: tuple[int, ...]
    evaluation: Evaluation  # availability and durability with these settings
    cross_rack_copies: float  # mean number of copies of each record that are sent from one rack to another
    dominated: bool = False  # another choice is at least as good in all of ``criteria`` and better in at least one

    @property
    def copies(self) -> int:
        """Replication factor: bytes stored for each byte produced."""
        return self.placement.replicas

    @property
    def criteria(self) -> tuple[float, float, float, float]:
        """Criteria of the comparison, lower is better: rejected, worst loss, copies, copies across racks."""
        return self.evaluation.rejected.total, self.evaluation.worst.total, float(self.copies), self.cross_rack_copies


@dataclass(frozen=True)
class Recommendation:
    """Recommended choice for a goal."""

    goal: str  # description of the goal
    choice: Choice | None  # the recommended choice; None if no choice reaches the goal
    because: str  # what the choice guarantees and what it does not; or why no choice reaches the goal


def cross_rack_copies(placement: Placement) -> float:
    """Return the mean number of copies of each record that are sent from one rack to another.

    Followers fetch from the leader, and over many partitions each replica leads equally often. With one replica in each
    rack the result is RF - 1. Traffic of producers and consumers is left out: for producers it does not depend on the
    placement if producers and leaders are spread evenly over the racks.
    """
    replicas = placement.replicas
    return sum(count / replicas * (replicas - count) for count in placement.counts)


def evaluate_choices(placements: Iterable[Placement], probabilities: FailureProbabilities) -> tuple[Choice, ...]:
    """Return all settings that allow writes, in the order of placements, M and R, with dominated ones marked."""
    choices = [choice for placement in placements for choice in _choices_of_placement(placement, probabilities)]
    return tuple(replace(choice, dominated=flag) for choice, flag in zip(choices, _dominated(choices), strict=True))


def _choices_of_placement(placement: Placement, probabilities: FailureProbabilities) -> Iterable[Choice]:
    groups = isr_groups(placement, probabilities)
    for min_replicas in range(1, placement.replicas + 1):
        evaluations = [
            evaluate_groups(placement, groups, min_replicas=min_replicas, min_racks=min_racks)
            for min_racks in range(1, min(min_replicas, len(placement.racks)) + 1)
        ]
        # with a higher R fewer ISRs pass the gate; if none is lost, the higher R is the same choice
        for _, equal in groupby(evaluations, key=lambda evaluation: replace(evaluation, limits=ANY_LIMITS)):
            same = tuple(equal)
            min_racks = tuple(evaluation.limits.racks for evaluation in same)
            yield Choice(placement, min_replicas, min_racks, same[-1], cross_rack_copies(placement))


def _dominated(choices: Sequence[Choice]) -> list[bool]:
    """Return for each choice whether another dominates it; a tolerance absorbs rounding differences between sums."""
    criteria = np.array([choice.criteria for choice in choices], dtype=np.float64).reshape(-1, 4)
    tolerance = 1 + 1e-9
    return [
        bool(((criteria <= row * tolerance).all(axis=1) & (criteria * tolerance < row).any(axis=1)).any())
        for row in criteria
    ]


@dataclass(frozen=True)
class _Goal:
    """Goal: its condition, the order of preference among choices that meet it, and the reason why none may."""

    text: str
    is_met: Callable[[Evaluation], bool]
    preference: Callable[[Choice], tuple[float, ...]]
    requirement: str


def _for_durability(choice: Choice) -> tuple[float, ...]:
    evaluation = choice.evaluation
    return (
        -min(1, evaluation.writes_without_brokers),
        choice.copies,
        evaluation.rejected.total,
        choice.cross_rack_copies,
    )


def _for_availability(choice: Choice) -> tuple[float, ...]:
    evaluation = choice.evaluation
    kept = (-min(1, evaluation.outlives_racks), -min(1, evaluation.outlives_brokers))
    return (*kept, choice.copies, evaluation.worst.total, choice.cross_rack_copies, evaluation.rejected.total)


def _for_cost(choice: Choice) -> tuple[float, ...]:
    return (choice.copies, choice.cross_rack_copies, choice.evaluation.worst.total, choice.evaluation.rejected.total)


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


def recommend(choices: Sequence[Choice]) -> tuple[Recommendation, ...]:
    """Return a recommendation for each goal: the preferred choice among those that reach it.

    - One rack destroyed: prefer writes that continue without any one broker, then fewest copies, then rejections.
    - One rack unavailable: prefer no loss with a rack destroyed, else with a broker destroyed; then fewest copies.
    - Least cost: fewest copies, then fewest copies across racks.
    """
    recommendations = []
    for goal in GOALS:
        suitable = [choice for choice in choices if goal.is_met(choice.evaluation)]
        best = min(suitable, key=goal.preference, default=None)
        reason = _reason(best, choices) if best else f"no choice in the table: {goal.requirement}"
        recommendations.append(Recommendation(goal.text, best, reason))
    return tuple(recommendations)


def _reason(choice: Choice, choices: Sequence[Choice]) -> str:
    reasons = [*guarantees(choice.evaluation)]
    if len(choice.min_racks) > 1:
        reasons.append(
            f"R={choice.min_racks[-1]} has the same effect as R={choice.min_racks[0]} until replicas are moved"
        )
    unevenness = choice.placement.unevenness
    if any(other.copies == choice.copies and other.placement.unevenness < unevenness for other in choices):
        reasons.append("assign it by hand: Kafka itself spreads over as many racks as it can")
    return "; ".join(reasons)


def guarantees(evaluation: Evaluation) -> tuple[str, str]:
    """Describe how many arbitrary racks or brokers may be unavailable, and how many destroyed."""
    racks, brokers = evaluation.writes_without_racks, evaluation.writes_without_brokers
    if racks < 1 and brokers < 1:
        available = "one unavailable broker can stop writes"
    else:
        verb = "is" if max(racks, brokers) == 1 else "are"
        stops = "; without a rack they may stop" if racks < 1 else ""
        available = f"writes continue while any {_failures_text(racks, brokers)} {verb} unavailable{stops}"
    racks, brokers = evaluation.outlives_racks, evaluation.outlives_brokers
    if racks < 1 and brokers < 1:
        return available, "one broker may be the only one with acknowledged records"
    alone = "; one rack may be the only one with them" if racks < 1 else ""
    return available, f"acknowledged records survive the loss of any {_failures_text(racks, brokers)}{alone}"


def _failures_text(racks: int, brokers: int) -> str:
    if racks == brokers == 1:
        return "one rack or broker"
    counts = [(number, noun) for number, noun in ((racks, "rack"), (brokers, "broker")) if number > 0]
    return " or ".join(f"{'one' if number == 1 else number} {noun}{'s' * (number > 1)}" for number, noun in counts)
