"""Figures of the simulation: means, confidence intervals and their coverage, and rare events."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from model_plans import made
from pyhooks.simulation.partition_machine import Cause, Status
from pyhooks.simulation.replication import ReplicationResult, run_replications
from pyhooks.simulation.summary import MIN_EVENTS, MIN_REPLICATIONS, Figure, figure, poisson_interval, summarize


@pytest.mark.parametrize(
    ("number", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (100, 81.36, 121.6)]
)
def test_poisson_intervals_equal_published_tables(number: int, low: float, high: float) -> None:
    assert poisson_interval(number, 0.95) == pytest.approx((low, high), rel=1e-3)


def test_figures_have_intervals_where_replications_vary() -> None:
    assert figure(np.zeros(10)).interval is None
    assert figure(np.array([1.0])).interval is None
    found = figure(np.random.default_rng(1).normal(5, 1, 2500))
    assert found.interval is not None
    assert found.interval.low < 5 < found.interval.high
    assert found.interval.high - found.interval.low == pytest.approx(2 * 1.96 / 50, rel=0.2)


def test_summary_of_replications() -> None:
    plan = made("a:2,b:1", ["2,1", "2,2"], placement_text="a,a,b", partitions=2, fault_options={"rack_outage": "5x4h"})
    found = run_replications(plan, range(6))
    accepted = [each.shares[Status.ACCEPTED] for each in found if each.setting == 0]
    first, second = summarize(found, plan)
    assert first.rejected.value == pytest.approx(1 - np.mean(accepted))
    assert second.rejected_less.value == pytest.approx(first.rejected.value - second.rejected.value)
    assert first.rejected_less.value == 0.0
    assert second.events is not None
    assert second.events.interval is not None
    assert second.events.interval.high == pytest.approx(3.689 / 6, rel=1e-3)
    assert summarize(list(reversed(found)), plan) == [first, second]


def test_the_lost_tail_is_the_mean_over_partial_losses() -> None:
    """All causes count: a leader elected instead of an unavailable replica also lacks some seconds of records."""
    fault_options = {
        "broker_failure": "300x2h",
        "power_share": "0.5",
        "burst_share": "0.5",
        "burst_spread": "1s",
        "session": "9s",
    }
    plan = made("a:2,b:1", ["1,1"], placement_text="a,a,b", partitions=1, fault_options=fault_options, years=3.0)
    found = run_replications(plan, range(8))
    forgotten = sum(each.lost[Cause.FORGOTTEN] for each in found)
    assert forgotten > sum(each.lost[Cause.UNFLUSHED] for each in found) > 0
    # no disk is destroyed, so all losses are partial
    assert sum(each.with_tail for each in found) == sum(each.lost.sum() for each in found)
    (summary,) = summarize(found, plan)
    assert summary.tail_s == sum(each.tail_s for each in found) / sum(each.with_tail for each in found)
    shares, lost = found[0].shares, np.array([2.0, 0.0, 0.0, 1.0, 3.0])
    by_cause = np.array([1, 0, 0, 1, 1])
    (summary,) = summarize([ReplicationResult(0, 0, shares, lost, 1, by_cause, 40.0, 4.0)], plan)
    assert summary.tail_s == 10.0
    (summary,) = summarize([ReplicationResult(0, 0, shares, lost, 1, by_cause, 0.0, 0.0)], plan)
    assert summary.tail_s is None


def draw_losses(
    random: np.random.Generator, events: float, sizes: str, replications: int = 1000
) -> tuple[int, np.ndarray[Any, np.dtype[np.float64]]]:
    """Draw losses; return the number of events, and the partitions that lose records in each replication."""
    number = int(random.poisson(events))
    lost = np.zeros(replications)
    each = np.ones(number) if sizes == "equal" else random.geometric(1 / MEAN_SIZE, number).astype(float)
    np.add.at(lost, random.integers(0, replications, number), each)
    return number, lost


MEAN_SIZE = 5.0


@pytest.mark.parametrize("sizes", ["equal", "geometric"])
@pytest.mark.parametrize("events", [25.0, 60.0])
@pytest.mark.parametrize("replications", [MIN_REPLICATIONS, 1000])
def test_intervals_of_losses_cover_the_truth(replications: int, events: float, sizes: str) -> None:
    """At least 9 of 10 of the computed intervals contain the mean."""
    random, mean = np.random.default_rng(3), events / replications * (1.0 if sizes == "equal" else MEAN_SIZE)
    every = (draw_losses(random, events, sizes, replications) for _ in range(250))
    intervals = [figure(lost, number).interval for number, lost in every]
    covers = [interval.low <= mean <= interval.high for interval in intervals if interval is not None]
    assert len(covers) > 200
    # 0.9 minus two standard errors of 250 trials
    assert np.mean(covers) >= 0.9 - 2 * math.sqrt(0.9 * 0.1 / 250)


def test_few_losses_have_no_interval_but_a_number_of_events() -> None:
    random = np.random.default_rng(3)
    intervals = [
        figure(lost).interval for _, lost in (draw_losses(random, 2.0, "geometric") for _ in range(250)) if lost.any()
    ]
    # the reason: a bootstrap of about two events covers too rarely
    assert np.mean([each.low <= 2.0 / 1000 * MEAN_SIZE <= each.high for each in intervals if each is not None]) < 0.85
    number, lost = draw_losses(random, 2.0, "geometric")
    assert 0 < number < MIN_EVENTS
    assert figure(lost, number) == Figure(lost.mean(), None, number)
    assert figure(lost, number).too_few
    assert figure(np.array([30.0, 40.0, 50.0]), 120).too_few
    assert not figure(np.zeros(10), 0).too_few
    for mean in (0.5, 2.0, 10.0):
        ends = [poisson_interval(int(each), 0.95) for each in random.poisson(mean, 400)]
        assert np.mean([low <= mean <= high for low, high in ends]) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 400)


def test_events_are_counted_by_cause() -> None:
    fault_options = {"disk_loss": "6x20h", "broker_failure": "300x10h", "power_share": "0.5", "copy": "4h"}
    plan = made("a:2,b:1", ["1,1", "2,1"], placement_text="a,a,b", partitions=5, fault_options=fault_options)
    found = run_replications(plan, range(5))
    for summary in summarize(found, plan):
        results = [each for each in found if plan.settings[each.setting] == summary.setting]
        assert summary.lost.number == sum(each.events for each in results)
        assert (summary.lost.interval is None) == (summary.setting.min_replicas == 2)
        for cause, each in summary.by_cause.items():
            assert each.number == sum(int(other.by_cause[cause]) for other in results)
            assert (each.number > 0) == (each.value > 0)
            assert (each.interval is None) == (each.number < MIN_EVENTS)
        # an event with several causes is counted once in the total
        assert summary.lost.number <= sum(each.number or 0 for each in summary.by_cause.values())
