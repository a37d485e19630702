"""The latency phase from raw observations to numbers: a Spark job whose result is small and plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.load import outcome_counts
from bench.scenarios import Arm, LatencyPlan, Scenario
from pyhooks import stats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COMPARED = (0.5, 0.99)
CURVE_RESAMPLES = 1000
# From the median to 99.99 %, evenly on the scale on which the curve is drawn.
CURVE_POINTS_PER_DECADE = 16
CURVE_DECADES = 4


def quantile_name(quantile: float) -> str:
    """``p50``, ``p99.9`` and the like."""
    return f"p{quantile * 100:.6g}"


def curve_quantiles() -> list[float]:
    """The quantiles at which percentile curves are computed, ascending from 0.5."""
    steps = np.arange(CURVE_DECADES * CURVE_POINTS_PER_DECADE + 1) / CURVE_POINTS_PER_DECADE
    beyond = 10.0**-steps
    return [0.5, *(float(1 - share) for share in beyond if share < 0.45)]


def read_raw(spark: SparkSession, raw: Path) -> DataFrame:
    """Raw observations with what every analysis needs: latencies in microseconds.

    ``latency_us`` counts from the intended time to the delivery report, ``late_us`` from the intended time to the
    call of produce(), ``client_us`` is librdkafka's own, from that call to its report.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    return (
        spark.read.parquet(str(raw))
        .withColumn("latency_us", (F.col("done_ns") - F.col("intended_ns")) / 1000.0)
        .withColumn("late_us", (F.col("sent_ns") - F.col("intended_ns")) / 1000.0)
    )


def latency(raw: DataFrame, scenario: Scenario) -> dict[str, Any]:
    """The latency phase's numbers.

    Args:
        raw: of ``read_raw``; rows of other phases are left out.
        scenario: the plan that was driven.

    Returns:
        ``arms``: per arm counts, percentiles, pacer lateness and curve; ``rounds``: percentiles of each arm in each
        round, warm-up included; ``comparisons``: paired ratios with intervals and words. All latencies in ms.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    plan = scenario.latency
    frame = raw.where(F.col("phase") == "latency")
    arms = {arm.id: arm for arm in scenario.latency_arms}
    acked = frame.where(F.col("measured") & (F.col("outcome") == "acked"))
    # The head of a slot is discarded in warm-up rounds too, so that rounds compare.
    head_over = F.col("intended_ns") - F.min("intended_ns").over(_slot_window()) >= plan.discard_s * 1e9
    rounds = _rounds(frame.withColumn("head_over", head_over).where("head_over and outcome = 'acked'"))
    summary = {
        arm_id: _arm_summary(plan, row, arms[arm_id]) for arm_id, row in _per_arm(frame.where("measured"), plan).items()
    }
    for arm_id, curve in _curves(acked, plan, scenario.seed).items():
        summary[arm_id]["curve"] = curve
    return {
        "arms": [summary[arm_id] for arm_id in arms if arm_id in summary],
        "rounds": rounds,
        "comparisons": compare(scenario, rounds, summary),
        "bands": {quantile_name(q): plan.band(q) for q in COMPARED},
        "confidence": plan.confidence,
        "unit": "ms",
    }


def _slot_window() -> Any:
    from pyspark.sql import Window

    return Window.partitionBy("arm", "block")


def _percentiles(column: str, quantiles: Sequence[float]) -> Column:
    """Exact percentiles (Spark's ``percentile`` sorts, it does not sketch)."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    return F.expr(f"percentile({column}, array({', '.join(map(repr, quantiles))}))")


def _rounds(acked: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    rows = (
        acked.groupBy("block", "arm")
        .agg(_percentiles("latency_us", COMPARED).alias("at"), F.count("*").alias("n"))
        .orderBy("block", "arm")
        .collect()
    )
    return [
        {
            "block": row["block"],
            "arm": row["arm"],
            "n": row["n"],
            **{f"{quantile_name(q)}_ms": value / 1000 for q, value in zip(COMPARED, row["at"], strict=True)},
        }
        for row in rows
    ]


def _per_arm(measured: DataFrame, plan: LatencyPlan) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    acked = F.col("outcome") == "acked"
    rows = (
        measured.withColumn("acked_us", F.when(acked, F.col("latency_us")))
        .withColumn("own_us", F.when(acked, F.col("client_us")))
        .groupBy("arm")
        .agg(
            *outcome_counts(),
            _percentiles("acked_us", plan.quantiles).alias("at"),
            F.max("acked_us").alias("max_us"),
            _percentiles("own_us", plan.quantiles).alias("own"),
            _percentiles("late_us", COMPARED).alias("late"),
            F.max("late_us").alias("late_max_us"),
        )
        .collect()
    )
    return {row["arm"]: row for row in rows}


def _arm_summary(plan: LatencyPlan, row: Any, arm: Arm) -> dict[str, Any]:
    highest = stats.highest_quantile(row["acked"], plan.min_beyond)

    def allowed(values: Sequence[float] | None) -> dict[str, float | None]:
        pairs = zip(plan.quantiles, values or [0.0] * len(plan.quantiles), strict=True)
        return {quantile_name(q): value / 1000 if q <= highest + 1e-12 else None for q, value in pairs}

    return {
        "arm": arm.id,
        "label": arm.label,
        "topic": arm.topic,
        "role": arm.latency,
        **{key: row[key] for key in ("intended", "acked", "failed", "unknown")},
        "percentiles_ms": allowed(row["at"]),
        "client_percentiles_ms": allowed(row["own"]),
        "max_ms": None if row["max_us"] is None else row["max_us"] / 1000,
        "highest_quantile": highest,
        "pacer_late_ms": {
            "p50": row["late"][0] / 1000,
            "p99": row["late"][1] / 1000,
            "max": row["late_max_us"] / 1000,
        },
    }


def _curves(acked: DataFrame, plan: LatencyPlan, seed: int) -> dict[str, dict[str, Any]]:
    """Percentile curves with intervals, from counts in bins of 0.1 % per arm and block."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    index = F.floor(F.log(F.greatest(F.col("latency_us"), F.lit(1.0))) * stats.BINS_PER_E).alias("bin")
    rows = acked.groupBy("arm", "block", index).agg(F.count("*").alias("n")).collect()
    curves: dict[str, dict[str, Any]] = {}
    for arm in sorted({row["arm"] for row in rows}):
        own = [row for row in rows if row["arm"] == arm]
        blocks = {block: at for at, block in enumerate(sorted({row["block"] for row in own}))}
        bins = np.array(sorted({row["bin"] for row in own}), dtype=np.int64)
        counts = np.zeros((len(blocks), bins.size), dtype=np.int64)
        for row in own:
            counts[blocks[row["block"]], np.searchsorted(bins, row["bin"])] = row["n"]
        highest = stats.highest_quantile(int(counts.sum()), plan.min_beyond)
        quantiles = np.array([q for q in curve_quantiles() if q <= highest + 1e-12])
        values = stats.bin_value(bins)
        low, high = stats.curve_intervals(
            counts, values, quantiles, confidence=plan.confidence, resamples=CURVE_RESAMPLES, seed=seed
        )
        point = stats.histogram_quantiles(counts.sum(axis=0, keepdims=True), values, quantiles)[0]
        curves[arm] = {
            "quantiles": quantiles.tolist(),
            "latency_ms": (point / 1000).tolist(),
            "low_ms": (low / 1000).tolist(),
            "high_ms": (high / 1000).tolist(),
        }
    return curves


def compare(
    scenario: Scenario, rounds: Sequence[dict[str, Any]], summary: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every arm against the baseline at p50 and p99, block by block.

    A comparison is ``undecided`` if a block lacks one of its arms or if any of their measured records was not
    acknowledged: a percentile of the acknowledged ones alone would flatter the arm that lost more.
    """
    plan, base = scenario.latency, scenario.role("baseline")
    control = scenario.role("control")
    found: list[dict[str, Any]] = []
    for quantile in COMPARED:
        name = quantile_name(quantile)
        at = {(row["block"], row["arm"]): row[f"{name}_ms"] for row in rounds if row["block"] >= 0}
        ratios = {
            arm.id: _paired(at, plan, arm.id, base.id, scenario.seed)
            for arm in scenario.latency_arms
            if arm is not base
        }
        for arm_id, ratio in ratios.items():
            open_records = sum(
                summary.get(one, {}).get("intended", 0) - summary.get(one, {}).get("acked", 0)
                for one in (arm_id, base.id)
            )
            control_ratio = ratios[control.id]
            word: stats.Word = "undecided"
            if ratio is not None and control_ratio is not None and open_records == 0:
                band = plan.band(quantile)
                is_control = arm_id == control.id
                word = stats.word(ratio, band) if is_control else stats.verdict(ratio, control_ratio, band)
            found.append(
                {
                    "arm": arm_id,
                    "against": base.id,
                    "is_control": arm_id == control.id,
                    "at": name,
                    "ratio": None if ratio is None else asdict(ratio),
                    "band": plan.band(quantile),
                    "band_ends": list(stats.band_ends(plan.band(quantile))),
                    "blocks": plan.blocks,
                    "not_acked": open_records,
                    "detectable_ratio": None if ratio is None else stats.detectable_ratio(ratio),
                    "word": word,
                }
            )
    return found


def _paired(
    at: dict[tuple[int, str], float], plan: LatencyPlan, arm: str, base: str, seed: int
) -> stats.Interval | None:
    blocks = range(plan.blocks)
    if any((block, one) not in at for block in blocks for one in (arm, base)):
        return None
    return stats.ratio_interval(
        [at[block, arm] for block in blocks],
        [at[block, base] for block in blocks],
        confidence=plan.confidence,
        resamples=plan.resamples,
        seed=seed,
    )
