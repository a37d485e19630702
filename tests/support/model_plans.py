"""Simulation plans whose only faults are those that the test sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.cli import make_plan
from pyhooks.simulation.replication import SimulationPlan

# No fault by default, and no delay: detection, restart and catch-up take no time or 1 ms.
PLAIN = {
    "--broker-failure": "0", "--broker-restart": "0", "--lag": "0", "--disk-loss": "0", "--rack-outage": "0",
    "--rack-loss": "0", "--power-share": "0", "--burst-share": "0", "--session": "1ms", "--catch-up": "0",
    "--copy": "1ms",
}  # fmt: skip


def made(racks: str, settings: Sequence[str], **more: Any) -> SimulationPlan:
    fault_options = PLAIN | {
        f"--{option.replace('_', '-')}": text for option, text in more.pop("fault_options", {}).items()
    }
    years = more.pop("years", 1.0)
    plan, _ = make_plan(racks, settings=list(settings), fault_options=fault_options, **more)
    return replace(plan, counted_s=years * YEAR_S)
