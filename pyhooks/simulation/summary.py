"""From replications to figures with intervals: what each setting gives, and how it differs from the first one.

Replications are independent. Intervals are of 95 %: of shares of time, of partitions that lost records and of
differences by a bootstrap over replications (``pyhooks.core.statistics.mean_interval``), of events exactly for a
Poisson count (Garwood). A bootstrap knows nothing of losses that were not seen: with 2 events it covers 7 times of 10,
with ``LEAST`` or more, in ``LEAST_REPLICATIONS`` or more, 9 times of 10
(``tests/unit/simulation/test_simulation_figures.py``). So
partitions that lost records have none with fewer; that of the events, which holds for any number of them, none too,
tells how often they may happen. Where losses weigh differently (``rare``), it is their effective sample size that must
be ``LEAST``, and where none was drawn nothing is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pyhooks.core.statistics import Interval, mean_interval
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.machine_script import ALONE, LOWERED, Cause, Floats, Setting, Status
from pyhooks.simulation.rare_losses import effective
from pyhooks.simulation.replication import Found, Plan

CONFIDENCE = 0.95
RESAMPLES = 2000
# events, and replications, that it takes for an interval of how many partitions lost records
LEAST, LEAST_REPLICATIONS = 20, 5
# replications beyond this are averaged in groups, which are independent too: ``mean_interval`` takes some 300
_MOST_BLOCKS = 300
REFUSED = tuple(one for one in Status if one is not Status.TAKEN)


@dataclass(frozen=True)
class Figure:
    """A mean over replications.

    Attributes:
        value: the mean.
        interval: of 95 %; None if it was the same in all replications, if there is one only, or if ``number`` is too
            small to tell.
        number: of events that it is told from; of differences, in how many replications there are any; with what is
            drawn more often than it happens, the effective sample size; None of what has no events.
    """

    value: float
    interval: Interval | None
    number: float | None = None

    @property
    def too_few(self) -> bool:
        """Whether something was seen, and too little of it for an interval."""
        return bool(self.number) and self.interval is None


@dataclass(frozen=True)
class Judged:
    """What a setting gives.

    Attributes:
        setting: which.
        refused: the share of partition-time in which acks=all is not taken.
        by_status: of each status that refuses.
        alone: the share in which one rack acknowledges alone.
        lowered: the share in which the operator has R lowered.
        lost: partitions that lose acknowledged records, in a year of the cluster.
        by_cause: of each cause.
        events: how often in a year of the cluster any do; None with what is drawn more often than it happens.
        tail_s: seconds of acknowledged writes that a partition loses where it does not lose all, on average; None if
            that never happened.
        refused_less: by how much less is refused than with the first setting.
        lost_less: how many partitions less lose records in a year.
    """

    setting: Setting
    refused: Figure
    by_status: dict[Status, Figure]
    alone: Figure
    lowered: Figure
    lost: Figure
    by_cause: dict[Cause, Figure]
    events: Figure | None
    tail_s: float | None
    refused_less: Figure
    lost_less: Figure


def summarise(found: Sequence[Found], plan: Plan) -> list[Judged]:
    """For each setting.

    Args:
        found: of all replications.
        plan: that they are of.
    """
    years = plan.counts_s / YEAR_S
    ordered = sorted(found, key=lambda one: (one.setting, one.replication))
    by_setting = [[one for one in ordered if one.setting == setting] for setting in range(len(plan.settings))]

    def weigh(values: Floats, number: int) -> float:
        return number if plan.biased is None else effective(values)

    judged: list[Judged] = []
    first: tuple[Floats, Floats] | None = None
    for setting, ones in zip(plan.settings, by_setting, strict=True):
        shares = np.array([one.shares for one in ones])
        lost = np.array([one.lost for one in ones]) / years
        refused = shares[:, list(REFUSED)].sum(axis=1)
        first = first or (refused, lost.sum(axis=1))
        total, less = lost.sum(axis=1), first[1] - lost.sum(axis=1)
        events, by_cause = sum(one.events for one in ones), np.sum([one.by_cause for one in ones], axis=0)
        tails = sum(one.tail_s for one in ones)
        with_tail = sum(one.with_tail for one in ones)
        judged.append(
            Judged(
                setting=setting,
                refused=figure(refused),
                by_status={one: figure(shares[:, one]) for one in REFUSED},
                alone=figure(shares[:, ALONE]),
                lowered=figure(shares[:, LOWERED]),
                lost=figure(total, weigh(total, events)),
                by_cause={one: figure(lost[:, one], weigh(lost[:, one], int(by_cause[one]))) for one in Cause},
                events=None if plan.biased else _events(events, years * len(ones)),
                tail_s=tails / with_tail if with_tail else None,
                refused_less=figure(first[0] - refused),
                lost_less=figure(less, weigh(less, int(np.count_nonzero(less)))),
            )
        )
    return judged


def figure(values: Floats, number: float | None = None) -> Figure:
    """The mean of what replications gave.

    Args:
        values: of each.
        number: of events in all of them.
    """
    mean = float(values.mean())
    too_few = number is not None and (number < LEAST or len(values) < LEAST_REPLICATIONS)
    if len(values) < 2 or (values == values[0]).all() or too_few:
        return Figure(mean, None, number)
    size = math.ceil(len(values) / _MOST_BLOCKS)
    whole = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    found = mean_interval(whole.tolist(), confidence=CONFIDENCE, resamples=RESAMPLES, seed=len(values))
    return Figure(mean, Interval(found.low, mean, found.high), number)


def _events(number: int, years: float) -> Figure:
    low, high = poisson_interval(number, CONFIDENCE)
    return Figure(number / years, Interval(low / years, number / years, high / years))


def poisson_interval(number: int, confidence: float) -> tuple[float, float]:
    """The exact interval of the mean of a Poisson distribution of which ``number`` was seen (Garwood 1936)."""
    tail = (1 - confidence) / 2
    low = 0.0 if number == 0 else _mean_where(lambda mean: 1 - _at_most(number - 1, mean) >= tail)
    return low, _mean_where(lambda mean: _at_most(number, mean) <= tail)


def _mean_where(reached: Callable[[float], bool]) -> float:
    """The least mean for which it holds, if it does for all above."""
    low, high = 0.0, 1.0
    while not reached(high):
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _at_most(number: int, mean: float) -> float:
    """The chance of at most so many."""
    terms = np.arange(number + 1)
    logs = terms * math.log(mean) - mean - np.cumsum(np.log(np.maximum(terms, 1)))
    return float(np.exp(logs).sum())
