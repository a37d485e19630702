"""Bursts take as many brokers as was asked for, of each rack, and meet partitions as often as is reckoned."""

from __future__ import annotations

import numpy as np
import pytest

from model_plans import made
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.bursts import Law
from pyhooks.simulation.failures import Bursts, Faults, Spells
from pyhooks.simulation.machine_script import Code
from pyhooks.simulation.outage_history import draw
from pyhooks.simulation.replication import layout

NONE = Spells(0.0, 1.0)


def law(rooms: tuple[int, ...], size: float, one_rack: float) -> Law:
    faults = Faults(Spells(2.0, 3600.0), NONE, NONE, NONE, NONE, NONE, 0.0, Bursts(0.5, size, one_rack, 60.0))
    return Law.of(faults, rooms)


@pytest.mark.parametrize("racks", ["a:2,b:2,c:1", "a:5,b:1", "a:1,b:1,c:1"])
@pytest.mark.parametrize("size", ["2", "3", "12"])
def test_each_broker_fails_as_often_as_was_asked_for(racks: str, size: str) -> None:
    """Bursts in small racks and clusters take fewer brokers than elsewhere, so more of them come."""
    given = {"broker_failure": "2000x1ms", "burst_share": "0.6", "burst_size": size, "burst_spread": "1ms"}
    one = made(racks, ["1,1"], rf=1, partitions=1, given=given)
    cluster, _ = layout(one)
    found = np.zeros(cluster.brokers)
    for number in range(4):
        history = draw(cluster, one.faults, one.stretch, np.random.default_rng(number))
        events = np.diff(history.first_event)
        failed = np.add.reduceat((history.event_code == Code.CRASH).astype(float), history.first_event[:-1])
        assert (events == failed + 1).all()
        found += np.bincount(history.broker, weights=failed, minlength=cluster.brokers)
    # their number scatters by 1.2 % where bursts take each broker once, as Poisson's does
    assert found / (4 * one.stretch.total_s / YEAR_S) == pytest.approx(np.full(cluster.brokers, 2000.0), rel=0.05)


@pytest.mark.parametrize("rooms", [(2, 2, 1), (5, 4, 3), (1, 6)])
@pytest.mark.parametrize(("size", "one_rack"), [(2.0, 0.0), (3.0, 0.5), (9.0, 1.0)])
def test_bursts_meet_partitions_as_often_as_is_reckoned(rooms: tuple[int, ...], size: float, one_rack: float) -> None:
    one, random = law(rooms, size, one_rack), np.random.default_rng(1)
    rack = np.repeat(np.arange(len(rooms)), rooms)
    partitions = np.array([random.choice(len(rack), 3, replace=False) for _ in range(10)])
    in_rack = np.array([np.bincount(rack[each], minlength=len(rooms)) for each in partitions])
    met, many = np.zeros(10), 4000
    for _ in range(many):
        met += np.isin(partitions, one.draw(random)).any(axis=1)
    expected = one.meets(in_rack)
    error = np.sqrt(expected * (1 - expected) / many)
    assert (np.abs(met / many - expected) <= 4.5 * error + 1e-12).all()


def test_a_burst_that_takes_everybody_meets_everybody() -> None:
    assert law((2, 2), 1000.0, 0.0).meets(np.array([[1, 0], [1, 1]])) == pytest.approx(1.0, rel=0.01)
    assert law((1, 1), 2.0, 0.0).meets(np.array([[1, 0]])).tolist() == [1.0]
