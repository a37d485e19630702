"""Bursts of broker failures: the failure rate of each broker is as configured."""

from __future__ import annotations

import numpy as np
import pytest

from model_plans import made
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.fault_history import draw_history
from pyhooks.simulation.partition_machine import EventCode


@pytest.mark.parametrize("racks", ["a:2,b:2,c:1", "a:5,b:1", "a:1,b:1,c:1"])
@pytest.mark.parametrize("size", ["2", "3", "12"])
def test_each_broker_fails_as_often_as_configured(racks: str, size: str) -> None:
    """Bursts in small racks hit fewer brokers, so they must occur more often."""
    fault_options = {"broker_failure": "2000x1ms", "burst_share": "0.6", "burst_size": size, "burst_spread": "1ms"}
    plan = made(racks, ["1,1"], rf=1, partitions=1, fault_options=fault_options)
    failures = np.zeros(sum(plan.racks))
    for number in range(4):
        history = draw_history(plan.racks, plan.faults, plan.warm_s, plan.counted_s, np.random.default_rng(number))
        events = np.diff(history.first_event)
        failed = np.add.reduceat((history.event_code == EventCode.CRASH).astype(float), history.first_event[:-1])
        assert (events == failed + 1).all()
        failures += np.bincount(history.broker, weights=failed, minlength=sum(plan.racks))
    # the relative standard deviation is 1.2 % if bursts hit each broker once, as for a Poisson process
    assert failures / (4 * (plan.warm_s + plan.counted_s) / YEAR_S) == pytest.approx(
        np.full(sum(plan.racks), 2000.0), rel=0.05
    )
