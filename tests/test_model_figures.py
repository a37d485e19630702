"""From replications to figures: means, intervals and whether they cover, and what is told of few events."""

from __future__ import annotations

import numpy as np
import pytest
from model_plans import made

from pyhooks.model.simulation.replication import Found, play
from pyhooks.model.simulation.script import Cause, Status
from pyhooks.model.simulation.summary import figure, poisson_interval, summarise


@pytest.mark.parametrize(
    ("number", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (100, 81.36, 121.6)]
)
def test_poisson_intervals_are_those_of_the_tables(number: int, low: float, high: float) -> None:
    assert poisson_interval(number, 0.95) == pytest.approx((low, high), rel=1e-3)


def test_figures_have_intervals_where_something_varies() -> None:
    assert figure(np.zeros(10)).interval is None
    assert figure(np.array([1.0])).interval is None
    found = figure(np.random.default_rng(1).normal(5, 1, 2500))
    assert found.interval is not None
    assert found.interval.low < 5 < found.interval.high
    assert found.interval.high - found.interval.low == pytest.approx(2 * 1.96 / 50, rel=0.2)


def test_a_summary_tells_what_replications_gave() -> None:
    one = made("a:2,b:1", ["2,1", "2,2"], where="a,a,b", partitions=2, given={"rack_outage": "5x4h"})
    found = play(one, range(6))
    taken = [each.shares[Status.TAKEN] for each in found if each.setting == 0]
    first, second = summarise(found, one)
    assert first.refused.value == pytest.approx(1 - np.mean(taken))
    assert second.refused_less.value == pytest.approx(first.refused.value - second.refused.value)
    assert first.refused_less.value == 0.0
    assert second.events is not None
    assert second.events.interval is not None
    assert second.events.interval.high == pytest.approx(3.689 / 6, rel=1e-3)
    assert summarise(list(reversed(found)), one) == [first, second]


def test_the_tail_is_of_those_that_did_not_lose_everything() -> None:
    """Whatever the cause: who is elected in place of one that is away lacks some seconds, too."""
    given = {
        "broker_failure": "300x2h",
        "power_share": "0.5",
        "burst_share": "0.5",
        "burst_spread": "1s",
        "session": "9s",
    }
    one = made("a:2,b:1", ["1,1"], where="a,a,b", partitions=1, given=given, years=3.0)
    found = play(one, range(8))
    forgotten = sum(each.lost[Cause.FORGOTTEN] for each in found)
    assert forgotten > sum(each.lost[Cause.UNFLUSHED] for each in found) > 0
    # nothing is destroyed
    assert sum(each.with_tail for each in found) == sum(each.lost.sum() for each in found)
    (told,) = summarise(found, one)
    assert told.tail_s == sum(each.tail_s for each in found) / sum(each.with_tail for each in found)
    shares, lost = found[0].shares, np.array([2.0, 0.0, 0.0, 1.0, 3.0])
    (told,) = summarise([Found(0, 0, shares, lost, 1, 40.0, 4.0)], one)
    assert told.tail_s == 10.0
    (told,) = summarise([Found(0, 0, shares, lost, 1, 0.0, 0.0)], one)
    assert told.tail_s is None
