"""What load a lab sustains: one rate after the other, each twice the one before, until it does not keep up.

A lab keeps up with a rate if every record was acknowledged and the median latency, counted from the intended time, is
at most some times that of the first rate (``slower`` of the plan): a queue that grows shows in it, whoever is behind,
broker or client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.plan import Cell, Ramp
from bench.settings import Setting

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Step:
    """One rate that was tried.

    Attributes:
        rate_per_s: intended records per second.
        acked: share of the records that were acknowledged.
        p50_ms: median latency of the second half of them; None if none was acknowledged.
        late_p50_ms: median lateness of the pacer.
    """

    rate_per_s: float
    acked: float
    p50_ms: float | None
    late_p50_ms: float


def key(cell: Cell) -> str:
    """Cells that share this share what their lab sustains."""
    own: Setting = cell.setting
    return f"{cell.topology}, link {own.link}, {own.record_bytes} B, linger {own.linger_ms} ms, {own.client}"


def step_of(rate_per_s: float, seen: pd.DataFrame) -> Step:
    """A step from its raw observations."""
    acked = seen[seen["outcome"] == "acked"].sort_values("intended_ns")
    half = acked.iloc[len(acked) // 2 :]
    took = (half["done_ns"] - half["intended_ns"]) / 1e6
    late = (seen["sent_ns"] - seen["intended_ns"]) / 1e6
    return Step(
        rate_per_s,
        len(acked) / len(seen),
        float(np.median(took)) if len(took) else None,
        float(np.median(late)),
    )


def keeps_up(step: Step, first: Step, ramp: Ramp) -> bool:
    """Whether the lab keeps up with a step.

    Args:
        step: which.
        first: the one with the lowest rate.
        ramp: the rule.
    """
    if step.acked < 1 or step.p50_ms is None or first.p50_ms is None:
        return False
    return step.p50_ms <= ramp.slower * first.p50_ms


def found(steps: Sequence[Step], ramp: Ramp) -> dict[str, Any]:
    """What the steps say: the highest rate with which the lab kept up; the first one if it never did.

    Returns:
        ``sustained_per_s``, ``kept_up`` (whether it did at all), ``ended`` (whether a rate was found with which it did
        not) and ``steps``.
    """
    good = [step for step in steps if keeps_up(step, steps[0], ramp)]
    return {
        "sustained_per_s": good[-1].rate_per_s if good else steps[0].rate_per_s,
        "kept_up": bool(good),
        "ended": len(good) < len(steps),
        "steps": [asdict(step) for step in steps],
    }
