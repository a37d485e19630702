"""Search for the load that a lab sustains: each rate is twice the previous one, until the lab does not keep up.

It keeps up if every record was acknowledged and the median latency, from the intended time, is at most ``slower`` times
(see the plan) that of the first rate: this shows a growing queue in broker or client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from bench.plan.scenario import BenchCell, RampPlan


@dataclass(frozen=True)
class RampStep:
    """Result of one rate."""

    rate_per_s: float  # intended records per second
    acked: float  # share of the records that were acknowledged
    p50_ms: float | None  # median latency of the second half of the acknowledged records; None if there are none
    late_p50_ms: float  # median lateness of the pacer


def rate_key(cell: BenchCell) -> str:
    """Return the key of a cell's sustained load; cells with the same key share it."""
    setting = cell.setting
    client = f"linger {setting.linger_ms} ms, {setting.client}"
    return f"{cell.topology}, link {setting.link}, {setting.record_bytes} B, {client}"


def ramp_step(rate_per_s: float, observations: pd.DataFrame) -> RampStep:
    """Return the step of a rate from its raw observations."""
    acked = observations[observations["outcome"] == "acked"].sort_values("intended_ns")
    half = acked.iloc[len(acked) // 2 :]
    latency_ms = (half["done_ns"] - half["intended_ns"]) / 1e6
    late_ms = (observations["sent_ns"] - observations["intended_ns"]) / 1e6
    return RampStep(
        rate_per_s,
        len(acked) / len(observations),
        float(latency_ms.median()) if len(half) else None,
        float(late_ms.median()),
    )


def keeps_up(step: RampStep, first: RampStep, ramp: RampPlan) -> bool:
    """Return whether the lab keeps up with a step, compared with that of the lowest rate."""
    if step.acked < 1 or step.p50_ms is None or first.p50_ms is None:
        return False
    return step.p50_ms <= ramp.slower * first.p50_ms


def sustained_rate(steps: Sequence[RampStep], ramp: RampPlan) -> dict[str, Any]:
    """Return the highest rate with which the lab kept up; the first one if it never did.

    Returns:
        ``sustained_per_s``, ``kept_up`` (whether it kept up with any rate), ``ended`` (whether there was a rate with
        which it did not) and ``steps``.
    """
    sustained = [step for step in steps if keeps_up(step, steps[0], ramp)]
    return {
        "sustained_per_s": sustained[-1].rate_per_s if sustained else steps[0].rate_per_s,
        "kept_up": bool(sustained),
        "ended": len(sustained) < len(steps),
        "steps": [asdict(step) for step in steps],
    }
