"""Search for the load that a lab sustains: each rate is twice the previous one, until the lab does not keep up.

A lab keeps up with a rate if every record was acknowledged and the median latency, counted from the intended time, is
at most ``slower`` times (see the plan) that of the first rate. This latency shows a growing queue, no matter whether
broker or client is too slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.plan.cell_setting import CellSetting
from bench.plan.scenario import BenchCell, RampPlan

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RampStep:
    """Result of one rate.

    Attributes:
        rate_per_s: intended records per second.
        acked: share of the records that were acknowledged.
        p50_ms: median latency of the second half of the acknowledged records; None if there are none.
        late_p50_ms: median lateness of the pacer.
    """

    rate_per_s: float
    acked: float
    p50_ms: float | None
    late_p50_ms: float


def rate_key(cell: BenchCell) -> str:
    """Return the key of a cell's sustained load; cells with the same key share it."""
    own: CellSetting = cell.setting
    return f"{cell.topology}, link {own.link}, {own.record_bytes} B, linger {own.linger_ms} ms, {own.client}"


def ramp_step(rate_per_s: float, seen: pd.DataFrame) -> RampStep:
    """Return the step of a rate from its raw observations."""
    acked = seen[seen["outcome"] == "acked"].sort_values("intended_ns")
    half = acked.iloc[len(acked) // 2 :]
    took = (half["done_ns"] - half["intended_ns"]) / 1e6
    late = (seen["sent_ns"] - seen["intended_ns"]) / 1e6
    return RampStep(
        rate_per_s,
        len(acked) / len(seen),
        float(np.median(took)) if len(took) else None,
        float(np.median(late)),
    )


def keeps_up(step: RampStep, first: RampStep, ramp: RampPlan) -> bool:
    """Return whether the lab keeps up with a step.

    Args:
        step: the step.
        first: the step with the lowest rate.
        ramp: rule of the plan.
    """
    if step.acked < 1 or step.p50_ms is None or first.p50_ms is None:
        return False
    return step.p50_ms <= ramp.slower * first.p50_ms


def sustained_rate(steps: Sequence[RampStep], ramp: RampPlan) -> dict[str, Any]:
    """Return the highest rate with which the lab kept up; the first one if it never did.

    Returns:
        ``sustained_per_s``, ``kept_up`` (whether it kept up with any rate), ``ended`` (whether there was a rate with
        which it did not) and ``steps``.
    """
    good = [step for step in steps if keeps_up(step, steps[0], ramp)]
    return {
        "sustained_per_s": good[-1].rate_per_s if good else steps[0].rate_per_s,
        "kept_up": bool(good),
        "ended": len(good) < len(steps),
        "steps": [asdict(step) for step in steps],
    }
