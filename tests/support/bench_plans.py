"""Plan for tests that need an outage and a healthy cell."""

from __future__ import annotations

import dataclasses

from bench.plan import scenarios
from bench.plan.scenario import Scenario

BLOCKS = 20


def healthy_with_outage() -> Scenario:
    """Return a plan of one healthy cell with 20 blocks and two judged quantiles, and the outage of plan ``question``.

    Its latency arms are A, A' and B. Without a positive control a cell compares two pairs.
    """
    tail, outage = scenarios.load("tail"), scenarios.load("question")
    by_id = {arm.id: arm for arm in (*outage.arms, *tail.arms)}
    plan = dataclasses.replace(
        tail,
        latency=dataclasses.replace(tail.latency, blocks=BLOCKS),
        outage=outage.outage,
        arms=tuple(by_id[arm_id] for arm_id in ("A", "A'", "B", "D", "E")),
        cells=(),
    )
    return dataclasses.replace(plan, cells=(dataclasses.replace(tail.cells[0], scenario=plan),))
