"""Analysis of the latency phase: Spark jobs that reduce raw observations to a few plain numbers.

Times are whole nanoseconds and quantiles are exact: they equal those of the sorted observations, with linear
interpolation between neighbours. The plan's ``min_beyond`` limits how far into the tail quantiles are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.analysis.availability import REFUSALS
from bench.analysis.comparisons import COMPARED, CellMeasurements, compare, family_size, quantile_name
from bench.analysis.quantiles import BinCounts, Key, QuantileQuery, count_bins, exact_quantiles, pool_counts
from bench.load.spark_load import SCHEMA, outcome_counts
from bench.plan.scenario import BenchArm, BenchCell, LatencyPlan, Scenario
from pyhooks.core import statistics
from pyhooks.core.errors import RackgateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Version of the structure of results.json.
SCHEMA_VERSION = 4
CURVE_RESAMPLES = 1000
# From the median to 99.99 %, evenly spaced on the axis of the plot.
CURVE_POINTS_PER_DECADE = 16
CURVE_DECADES = 4
NS_PER_MS = 1e6
# Columns that every file needs; others may be missing, such as the cell if there is only one.
REQUIRED = frozenset({"arm", "outcome", "intended_ns", "sent_ns", "done_ns"})
SLOT = ("cell", "arm", "block")
ARM = ("cell", "arm")


def curve_quantiles() -> list[float]:
    """Return the quantiles at which percentile curves are computed, ascending from 0.5."""
    steps = np.arange(CURVE_DECADES * CURVE_POINTS_PER_DECADE + 1) / CURVE_POINTS_PER_DECADE
    beyond = 10.0**-steps
    return [0.5, *(float(1 - share) for share in beyond if share < 0.45)]


def read_raw(spark: SparkSession, raw: Path) -> DataFrame:
    """Read raw observations and add latencies in microseconds.

    ``latency_us`` counts from the intended time to the delivery report, ``late_us`` from the intended time to the
    call of produce(). The column ``client_us`` is the client's own measurement, from that call to the report.

    Raises:
        RackgateError: there are no observations, or a file is damaged, lacks a column or has a column of another type.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    _check_files(raw)

    return (
        spark.read.option("recursiveFileLookup", "true")
        .parquet(str(raw))
        .withColumn("latency_us", (F.col("done_ns") - F.col("intended_ns")) / 1000.0)
        .withColumn("late_us", (F.col("sent_ns") - F.col("intended_ns")) / 1000.0)
    )


def _check_files(raw: Path) -> None:
    """Check the schema of every file: Spark reads the schema of one file and does not report which other differs."""
    import pyarrow as pa
    from pyarrow import parquet

    is_of = {"string": _is_text, "boolean": pa.types.is_boolean}
    columns = {name: is_of.get(kind, pa.types.is_integer) for name, kind in map(str.split, SCHEMA.split(","))}
    files = sorted(path for path in raw.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise RackgateError(f"{raw}: there are no observations in it; begin anew with --fresh")
    for file in files:
        try:
            found = parquet.read_schema(file)
        except (OSError, pa.ArrowException) as error:
            raise RackgateError(f"{file}: not Parquet: {' '.join(str(error).split()):.200}") from error
        if missing := sorted(REQUIRED - set(found.names)):
            raise RackgateError(f"{file}: not observations: column {missing[0]} is missing")
        for name in (*REQUIRED, *(set(found.names) & columns.keys())):
            kind = found.field(name).type
            if not (columns[name](kind) or pa.types.is_null(kind)):
                raise RackgateError(f"{file}: not observations: column {name} is of type {kind}")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def cells(
    raw: DataFrame, planned: Sequence[BenchCell], refusals: Mapping[Key, str] | None = None
) -> list[dict[str, Any]]:
    """Return the numbers of the latency phase for each cell; the verdicts of all cells form one family.

    Args:
        raw: observations of ``read_raw``; rows of other phases are ignored. The column ``cell`` may be missing if there
            is only one cell.
        planned: all cells of the run.
        refusals: exception by cell and arm, for arms that got no load because a probe was refused.

    Returns:
        One entry per cell. ``arms``: counts, quantiles, pacer lateness and curve of each arm. A refused arm has no
        latencies, and its counts are 0 if it got no load; ``refused`` is true only if a gate refused it, and ``error``
        is set if nothing was acknowledged. ``rounds``: quantiles of each arm in each block, warm-up included.
        ``comparisons``: paired ratios with intervals and verdicts. ``detectable``: the smallest detectable ratio of the
        worst comparison. All latencies are in ms.

    Raises:
        ValueError: there are several cells, but no column ``cell``.
    """
    frame = _prepared(raw, planned)
    outcomes = {(row["cell"], row["arm"]): row.asDict() for row in _outcomes(frame)}
    errors = _errors(frame) if any(row["acked"] == 0 for row in outcomes.values()) else {}
    sent, acked = frame.where("measured"), frame.where("outcome = 'acked'")
    slots = count_bins(acked.where("kept"), "latency_ns", SLOT)
    found = {
        "latency": _quantiles(acked.where("kept"), "latency_ns", SLOT, slots, planned),
        "client": _quantiles(acked.where("measured"), "client_ns", ARM, None, planned),
        "late": _quantiles(sent, "late_ns", ARM, None, planned),
    }
    run = []
    for cell in planned:
        summary = {
            arm.id: _arm(cell, arm, outcomes[cell.id, arm.id], found, errors.get((cell.id, arm.id)))
            for arm in _arms(cell)
            if (cell.id, arm.id) in outcomes
        }
        not_driven = {key[1]: why for key, why in (refusals or {}).items() if key[0] == cell.id and key not in outcomes}
        summary |= {arm.id: _refusing(cell, arm, not_driven[arm.id]) for arm in _arms(cell) if arm.id in not_driven}
        for arm_id in summary:
            own = {key[2]: one for key, one in slots.items() if key[:2] == (cell.id, arm_id) and key[2] >= 0}
            summary[arm_id]["curve"] = _curve(own, cell.scenario) if own else None
        summary = {arm.id: summary[arm.id] for arm in _arms(cell) if arm.id in summary}
        run.append(CellMeasurements(cell, _rounds(cell, slots, found["latency"]), summary))
    family = family_size(planned)
    return [_numbers(one, rows, family) for one, rows in zip(run, compare(run), strict=True)]


def _numbers(one: CellMeasurements, rows: list[dict[str, Any]], family: int) -> dict[str, Any]:
    plan = one.cell.scenario.latency
    names = [quantile_name(q) for q in COMPARED]
    return {
        "cell": one.cell.id,
        "label": one.cell.label,
        "state": one.cell.state,
        "setting": asdict(one.cell.setting),
        "judged": [quantile_name(q) for q in one.cell.judged],
        "arms": list(one.summary.values()),
        "rounds": list(one.rounds),
        "comparisons": rows,
        "detectable": {name: _worst(rows, name) for name in names},
        "family": family,
        "bands": {quantile_name(q): plan.band(q) for q in COMPARED},
        "confidence": plan.confidence,
        "unit": "ms",
    }


def _arms(cell: BenchCell) -> tuple[BenchArm, ...]:
    return cell.scenario.latency_arms


def _worst(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the smallest detectable ratio of a cell's worst comparison; None if a comparison has none."""
    own = [row["detectable_ratio"] for row in rows if row["at"] == name and not row["is_control"]]
    return None if None in own else max(own, default=None)


def _prepared(raw: DataFrame, planned: Sequence[BenchCell]) -> DataFrame:
    """Select the latency phase in nanoseconds; ``kept`` marks measured rows and warm-up rows after the opening."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    if "cell" not in raw.columns:
        if len(planned) != 1:
            raise ValueError("observations of several cells need a column 'cell'")
        raw = raw.withColumn("cell", F.lit(planned[0].id))
    frame = raw.where("phase = 'latency'").select(
        *SLOT,
        "measured",
        "outcome",
        "error",
        "intended_ns",
        (F.col("done_ns") - F.col("intended_ns")).alias("latency_ns"),
        (F.col("sent_ns") - F.col("intended_ns")).alias("late_ns"),
        (F.col("client_us") * 1000).alias("client_ns"),
    )
    discard_ns = {cell.id: round(cell.scenario.latency.opening_s * 1e9) for cell in planned}
    first = frame.where("block < 0").groupBy(*SLOT).agg(F.min("intended_ns").alias("first_ns")).collect()
    heads = [(row["cell"], row["arm"], row["block"], row["first_ns"] + discard_ns[row["cell"]]) for row in first]
    if not heads:
        return frame.withColumn("kept", F.col("measured"))
    starts = raw.sparkSession.createDataFrame(heads, "cell string, arm string, block int, from_ns long")
    behind = F.coalesce(F.col("intended_ns") >= F.col("from_ns"), F.lit(False))
    return frame.join(F.broadcast(starts), list(SLOT), "left").withColumn("kept", F.col("measured") | behind)


def _outcomes(frame: DataFrame) -> list[Any]:
    return list(frame.where("measured").groupBy(*ARM).agg(*outcome_counts()).collect())


def _errors(frame: DataFrame) -> dict[Key, str]:
    """Return the most frequent error of each arm."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    bad = frame.where("measured and outcome <> 'acked'")
    rows = bad.groupBy(*ARM, "error").agg(F.count("*").alias("n")).orderBy("n", "error").collect()
    return {(row["cell"], row["arm"]): str(row["error"]) for row in rows}


def _quantiles(
    frame: DataFrame, value: str, keys: Sequence[str], counts: dict[Key, BinCounts] | None, planned: Sequence[BenchCell]
) -> dict[Key, dict[float, float]]:
    """Return exact quantiles in ms by arm (cell, arm) and, if ``keys`` has the block, by slot (cell, arm, block)."""
    groups = count_bins(frame, value, keys) if counts is None else counts
    plans = {cell.id: cell.scenario.latency for cell in planned}
    by_arm: dict[Key, list[Key]] = {}
    for key in groups:
        if len(key) == len(ARM) or key[2] >= 0:
            by_arm.setdefault(key[:2], []).append(key)
    queries: list[tuple[Key, QuantileQuery]] = []
    for arm, own in by_arm.items():
        together = pool_counts([groups[key] for key in own])
        quantiles = {*plans[arm[0]].quantiles, *COMPARED, 1.0}
        queries += [(arm, QuantileQuery(tuple(own), together, quantile)) for quantile in sorted(quantiles)]
    if len(keys) > len(ARM):
        queries += [(key, QuantileQuery((key,), one, quantile)) for key, one in groups.items() for quantile in COMPARED]
    values = exact_quantiles(frame, value, keys, [wanted for _, wanted in queries])
    found: dict[Key, dict[float, float]] = {}
    for (key, wanted), number in zip(queries, values, strict=True):
        found.setdefault(key, {})[wanted.quantile] = number / NS_PER_MS
    return found


def _rounds(
    cell: BenchCell, slots: Mapping[Key, BinCounts], found: Mapping[Key, Mapping[float, float]]
) -> list[dict[str, Any]]:
    return [
        {
            "block": key[2],
            "arm": key[1],
            "n": slots[key].total,
            **{f"{quantile_name(q)}_ms": found[key][q] for q in COMPARED},
        }
        for key in sorted(slots, key=lambda one: (one[2], one[1]))
        if key[0] == cell.id
    ]


def _arm(
    cell: BenchCell, arm: BenchArm, counts: Mapping[str, Any], found: Mapping[str, Any], error: str | None
) -> dict[str, Any]:
    plan, key = cell.scenario.latency, (cell.id, arm.id)
    highest = statistics.highest_quantile(counts["acked"], plan.min_beyond)
    latencies, late = found["latency"].get(key, {}), found["late"][key]
    # Only a gate's error is a refusal; records that all timed out are not known to have been refused.
    refused = counts["acked"] == 0 and error in REFUSALS

    def allowed(values: Mapping[float, float]) -> dict[str, float | None]:
        return {quantile_name(q): values.get(q) if q <= highest + 1e-12 else None for q in plan.quantiles}

    return {
        "arm": arm.id,
        "label": arm.label,
        "role": arm.latency,
        **{name: counts[name] for name in ("intended", "acked", "failed", "unknown")},
        # A refused arm has no latency.
        "refused": refused,
        "refused_with": error if refused else None,
        # Why nothing was acknowledged.
        "error": error if counts["acked"] == 0 else None,
        "percentiles_ms": allowed(latencies),
        "client_percentiles_ms": allowed(found["client"].get(key, {})),
        "max_ms": latencies.get(1.0),
        "highest_quantile": highest,
        "pacer_late_ms": {"p50": late[0.5], "p99": late[0.99], "max": late[1.0]},
    }


def _refusing(cell: BenchCell, arm: BenchArm, why: str) -> dict[str, Any]:
    """Return the entry of an arm that got no load, because a probe showed that it refuses records."""
    names = [quantile_name(q) for q in cell.scenario.latency.quantiles]
    return {
        "arm": arm.id,
        "label": arm.label,
        "role": arm.latency,
        **dict.fromkeys(("intended", "acked", "failed", "unknown"), 0),
        "refused": True,
        "refused_with": why,
        "error": why,
        "percentiles_ms": dict.fromkeys(names),
        "client_percentiles_ms": dict.fromkeys(names),
        "max_ms": None,
        "highest_quantile": 0.0,
        "pacer_late_ms": None,
        "curve": None,
    }


def _curve(blocks: Mapping[int, BinCounts], scenario: Scenario) -> dict[str, Any]:
    """Return a percentile curve with its interval, from the blocks' counts in bins of 0.1 %."""
    plan: LatencyPlan = scenario.latency
    bins = np.unique(np.concatenate([one.bins for one in blocks.values()]))
    counts = np.zeros((len(blocks), bins.size), dtype=np.int64)
    for row, one in enumerate(blocks[block] for block in sorted(blocks)):
        counts[row, np.searchsorted(bins, one.bins)] = one.counts
    highest = statistics.highest_quantile(int(counts.sum()), plan.min_beyond)
    quantiles = np.array([q for q in curve_quantiles() if q <= highest + 1e-12])
    values = statistics.bin_value(bins)
    low, high = statistics.curve_intervals(
        counts, values, quantiles, confidence=plan.confidence, resamples=CURVE_RESAMPLES, seed=scenario.seed
    )
    point = statistics.histogram_quantiles(counts.sum(axis=0, keepdims=True), values, quantiles)[0]
    return {
        "quantiles": quantiles.tolist(),
        "latency_ms": (point / 1000).tolist(),
        "low_ms": (low / 1000).tolist(),
        "high_ms": (high / 1000).tolist(),
    }
