"""Figures with intervals from the results of replications, for each setting and against the first one.

Replications are independent. Intervals are of 95 %: of fractions of time, of partitions that lost records and of
differences by Student's t over replications, of events exactly for a Poisson count (Garwood 1936). Student's t covers
too rarely if few losses were seen: with 2 events 7 times of 10, with
``MIN_EVENTS`` or more in ``MIN_REPLICATIONS`` or more 9 times of 10 (``tests/unit/simulation``). So partitions that
lost records have no interval below that; the exact one of the events is always given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyhooks.core.statistics import Interval, mean_interval
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.partition_machine import ALONE, LOWERED, Cause, Floats, GateSetting, Status
from pyhooks.simulation.replication import ReplicationResult, SimulationPlan

CONFIDENCE = 0.95
MIN_EVENTS, MIN_REPLICATIONS = 20, 5
REJECTED = tuple(status for status in Status if status is not Status.ACCEPTED)


@dataclass(frozen=True)
class Figure:
    """Mean over replications.

    ``interval`` is None if all replications are equal, or there are too few events or replications. ``number`` counts
    the events behind the figure, or for differences the replications with one; None for times.
    """

    value: float
    interval: Interval | None
    number: float | None = None

    @property
    def too_few(self) -> bool:
        """Whether there were events, but too few for an interval."""
        return bool(self.number) and self.interval is None


@dataclass(frozen=True)
class SettingSummary:
    """Figures of a setting."""

    setting: GateSetting
    rejected: Figure  # fraction of partition-time in which acks=all is rejected or waits
    by_status: dict[Status, Figure]
    alone: Figure  # fraction in which one rack acknowledges alone
    lowered: Figure  # fraction in which the operator has lowered R
    lost: Figure  # partitions that lose acknowledged records in a year of the cluster
    by_cause: dict[Cause, Figure]
    events: Figure  # losses of any number of partitions in a year of the cluster
    tail_s: float | None  # mean seconds of acknowledged writes lost by partitions that do not lose all; None if none
    rejected_less: Figure  # how much less is rejected than with the first setting
    lost_less: Figure  # how many partitions fewer lose records in a year


def summarize(results: Sequence[ReplicationResult], plan: SimulationPlan) -> list[SettingSummary]:
    """Return the figures of each setting of a plan."""
    years = plan.counted_s / YEAR_S
    ordered = sorted(results, key=lambda result: result.replication)
    summaries: list[SettingSummary] = []
    first: tuple[Floats, Floats] | None = None
    for index, setting in enumerate(plan.settings):
        setting_results = [result for result in ordered if result.setting == index]
        shares = np.array([result.shares for result in setting_results])
        lost = np.array([result.lost for result in setting_results]) / years
        rejected, total_lost = shares[:, list(REJECTED)].sum(axis=1), lost.sum(axis=1)
        first = first or (rejected, total_lost)
        fewer_lost = first[1] - total_lost
        events = sum(result.events for result in setting_results)
        by_cause = np.sum([result.by_cause for result in setting_results], axis=0)
        with_tail = sum(result.with_tail for result in setting_results)
        fewest, most = poisson_interval(events, CONFIDENCE)
        low, rate, high = (number / years / len(setting_results) for number in (fewest, events, most))
        summaries.append(
            SettingSummary(
                setting=setting,
                rejected=figure(rejected),
                by_status={status: figure(shares[:, status]) for status in REJECTED},
                alone=figure(shares[:, ALONE]),
                lowered=figure(shares[:, LOWERED]),
                lost=figure(total_lost, events),
                by_cause={cause: figure(lost[:, cause], int(by_cause[cause])) for cause in Cause},
                events=Figure(rate, Interval(low, rate, high)),
                tail_s=sum(result.tail_s for result in setting_results) / with_tail if with_tail else None,
                rejected_less=figure(first[0] - rejected),
                lost_less=figure(fewer_lost, int(np.count_nonzero(fewer_lost))),
            )
        )
    return summaries


def figure(values: Floats, number: float | None = None) -> Figure:
    """Return the mean of the values of replications, and its interval if there are enough events."""
    mean = float(values.mean())
    too_few = number is not None and (number < MIN_EVENTS or len(values) < MIN_REPLICATIONS)
    if len(values) < 2 or (values == values[0]).all() or too_few:
        return Figure(mean, None, number)
    interval = mean_interval(values, CONFIDENCE)
    # no negative end for what can't be negative
    return Figure(mean, Interval(max(interval.low, min(0.0, float(values.min()))), mean, interval.high), number)


def poisson_interval(number: int, confidence: float) -> tuple[float, float]:
    """Return the exact interval of the mean of a Poisson distribution of which ``number`` was drawn (Garwood 1936)."""
    from scipy import stats

    tail = (1 - confidence) / 2
    low = float(stats.chi2.ppf(tail, 2 * number)) / 2 if number else 0.0
    return low, float(stats.chi2.isf(tail, 2 * number + 2)) / 2
