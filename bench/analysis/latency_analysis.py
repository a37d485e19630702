"""Analysis of the latency phase: Spark jobs that reduce raw observations to a few plain numbers.

Times are whole nanoseconds and quantiles are exact: they equal those of the sorted observations, with linear
interpolation between neighbours. The plan's ``min_beyond`` limits how far into the tail quantiles are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench.analysis.availability import REJECTIONS
from bench.analysis.comparisons import COMPARED, US_PER_MS, CellMeasurements, compare, family_size, quantile_name
from bench.analysis.quantiles import (
    BinCounts,
    Key,
    QuantileQuery,
    align_counts,
    count_bins,
    exact_quantiles,
    pool_counts,
)
from bench.load.spark_load import SCHEMA, outcome_counts
from bench.plan.scenario import BenchArm, BenchCell, LatencyPlan, Scenario
from pyhooks.core import statistics
from pyhooks.core.errors import RackgateError

# Version of the structure of results.json.
SCHEMA_VERSION = 5
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

    def is_text(kind: Any) -> bool:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    checks = {"string": is_text, "boolean": pa.types.is_boolean}
    columns = {name: checks.get(kind, pa.types.is_integer) for name, kind in map(str.split, SCHEMA.split(","))}
    files = sorted(path for path in raw.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise RackgateError(f"{raw}: contains no observations; start over with --fresh")
    for file in files:
        try:
            schema = parquet.read_schema(file)
        except (OSError, pa.ArrowException) as error:
            raise RackgateError(f"{file}: not Parquet: {' '.join(str(error).split()):.200}") from error
        if missing := sorted(REQUIRED - set(schema.names)):
            raise RackgateError(f"{file}: not observations: column {missing[0]} is missing")
        for name in sorted(set(schema.names) & columns.keys()):
            kind = schema.field(name).type
            if not (columns[name](kind) or pa.types.is_null(kind)):
                raise RackgateError(f"{file}: not observations: column {name} is of type {kind}")


def measurements(
    raw: DataFrame, planned: Sequence[BenchCell], rejections: Mapping[Key, str] | None = None
) -> list[CellMeasurements]:
    """Return the measurements of the latency phase for each cell.

    ``raw`` is of ``read_raw``; its column ``cell`` may be missing if there is one cell. ``planned`` has all cells of
    the run, ``rejections`` the exception by cell and arm, for arms that got no load because a probe was rejected.

    Raises:
        ValueError: there are several cells, but no column ``cell``.
    """
    frame = _prepared(raw, planned)
    sent, acked = frame.where("measured"), frame.where("outcome = 'acked'")
    counts = sent.groupBy(*ARM).agg(*outcome_counts()).collect()
    outcomes = {(row["cell"], row["arm"]): row.asDict() for row in counts}
    # why an arm that got no load was rejected, or the most frequent error of an arm without acknowledgements
    errors = dict(rejections or {})
    errors |= _errors(frame) if any(row["acked"] == 0 for row in outcomes.values()) else {}
    slots = count_bins(acked.where("kept"), "latency_ns", SLOT)
    quantiles = {
        "latency": _quantiles(acked.where("kept"), "latency_ns", SLOT, slots, planned),
        "client": _quantiles(acked.where("measured"), "client_ns", ARM, None, planned),
        "late": _quantiles(sent, "late_ns", ARM, None, planned),
    }
    shares = _late_shares(acked.where("measured"), quantiles["latency"])
    run = []
    for cell in planned:
        summary, counts = {}, {}
        for arm in cell.scenario.latency_arms:
            key = cell.id, arm.id
            if key in outcomes or key in (rejections or {}):
                blocks = {slot[2]: bins for slot, bins in slots.items() if slot[:2] == key and slot[2] >= 0}
                counts[arm.id] = blocks
                summary[arm.id] = _arm(cell, arm, outcomes.get(key), quantiles, errors.get(key))
                summary[arm.id]["late_share"] = shares.get(key)
                summary[arm.id]["curve"] = _curve(blocks, cell.scenario) if blocks else None
        run.append(CellMeasurements(cell, _rounds(cell, slots, quantiles["latency"]), summary, counts))
    return run


def cells(run: Sequence[CellMeasurements]) -> list[dict[str, Any]]:
    """Return the numbers of the latency phase for each cell; the verdicts of all cells form one family.

    Returns:
        One entry per cell, latencies in ms. ``arms``: counts, quantiles, pacer lateness and curve of each arm;
        ``rejected`` is true only if a gate rejected it, and ``error`` is set if nothing was acknowledged. ``rounds``:
        quantiles of each arm in each block, warm-up included. ``comparisons``: paired ratios with intervals and
        verdicts. ``detectable``: the smallest detectable ratio of the worst comparison.
    """
    family = family_size([measured.cell for measured in run])
    return [_numbers(measured, rows, family) for measured, rows in zip(run, compare(run), strict=True)]


def _numbers(measured: CellMeasurements, rows: list[dict[str, Any]], family: int) -> dict[str, Any]:
    cell, plan = measured.cell, measured.cell.scenario.latency
    return {
        "cell": cell.id,
        "label": cell.label,
        "state": cell.state,
        "setting": cell.setting.as_json(),
        "judged": [quantile_name(q) for q in cell.judged],
        "arms": list(measured.summary.values()),
        "rounds": list(measured.rounds),
        "comparisons": rows,
        "detectable": {name: _worst(rows, name) for name in map(quantile_name, COMPARED)},
        "family": family,
        "bands": {quantile_name(q): plan.band(q) for q in COMPARED},
        "margins_ms": {quantile_name(q): plan.margin_ms(q) for q in COMPARED},
        "confidence": plan.confidence,
        "unit": "ms",
    }


def _worst(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the smallest detectable ratio of a cell's worst comparison; None if a comparison has none."""
    ratios = [row["detectable_ratio"] for row in rows if row["at"] == name and row["role"] == "candidate"]
    return None if None in ratios else max(ratios, default=None)


def _prepared(raw: DataFrame, planned: Sequence[BenchCell]) -> DataFrame:
    """Select the latency phase in nanoseconds; ``kept`` marks measured rows and warm-up rows after the opening."""
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


def _errors(frame: DataFrame) -> dict[Key, str]:
    """Return the most frequent error of each arm."""
    not_acked = frame.where("measured and outcome <> 'acked'")
    rows = not_acked.groupBy(*ARM, "error").agg(F.count("*").alias("n")).orderBy("n", "error").collect()
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
    for arm, members in by_arm.items():
        pooled = pool_counts([groups[key] for key in members])
        quantiles = {*plans[arm[0]].quantiles, *COMPARED, 1.0}
        queries += [(arm, QuantileQuery(tuple(members), pooled, quantile)) for quantile in sorted(quantiles)]
    if len(keys) > len(ARM):
        queries += [(key, QuantileQuery((key,), bins, q)) for key, bins in groups.items() for q in COMPARED]
    values = exact_quantiles(frame, value, keys, [query for _, query in queries])
    quantiles_ms: dict[Key, dict[float, float]] = {}
    for (key, query), number in zip(queries, values, strict=True):
        quantiles_ms.setdefault(key, {})[query.quantile] = number / NS_PER_MS
    return quantiles_ms


def _late_shares(acked: DataFrame, quantiles: Mapping[Key, Mapping[float, float]]) -> dict[Key, dict[str, float]]:
    """Return the share of the pacer's own lateness in the latency of each arm (cell, arm) from each quantile on.

    Lateness is the latency less the client's own time. The share is that of the sums over all records at or above the
    quantile, since slow records have another lateness. It is 1 if no record has a client time.
    """
    arms = [key for key in quantiles if len(key) == len(ARM)]
    if not arms:
        return {}
    names = [quantile_name(q) for q in COMPARED]
    starts = [(*arm, *(quantiles[arm][q] * NS_PER_MS for q in COMPARED)) for arm in arms]
    schema = ", ".join(["cell string", "arm string", *(f"{name} double" for name in names)])
    limits = F.broadcast(acked.sparkSession.createDataFrame(starts, schema))

    def total(column: Column, name: str) -> Column:
        # half a nanosecond for the conversion from ms
        return F.sum(F.when(F.col("latency_ns") >= F.col(name) - 0.5, column))

    late = [
        (total(F.col("latency_ns") - F.col("client_ns"), name) / total(F.col("latency_ns"), name)).alias(f"late_{name}")
        for name in names
    ]
    timed = acked.where("client_ns >= 0").join(limits, list(ARM))
    late_rows = {(row["cell"], row["arm"]): row for row in timed.groupBy(*ARM).agg(*late).collect()}
    return {
        arm: {name: 1.0 if arm not in late_rows else max(0.0, late_rows[arm][f"late_{name}"] or 0.0) for name in names}
        for arm in arms
    }


def _rounds(
    cell: BenchCell, slots: Mapping[Key, BinCounts], quantiles: Mapping[Key, Mapping[float, float]]
) -> list[dict[str, Any]]:
    return [
        {
            "block": block,
            "arm": arm,
            "n": slots[cell.id, arm, block].total,
            **{f"{quantile_name(q)}_ms": quantiles[cell.id, arm, block][q] for q in COMPARED},
        }
        for block, arm in sorted((slot[2], slot[1]) for slot in slots if slot[0] == cell.id)
    ]


def _arm(
    cell: BenchCell,
    arm: BenchArm,
    outcomes: Mapping[str, Any] | None,
    quantiles: Mapping[str, Mapping[Key, Mapping[float, float]]],
    error: str | None,
) -> dict[str, Any]:
    """Return the entry of an arm; its ``outcomes`` are None if it got no load, because a probe was rejected."""
    plan, key = cell.scenario.latency, (cell.id, arm.id)
    counts = outcomes or dict.fromkeys(("intended", "acked", "failed", "unknown"), 0)
    highest = statistics.highest_quantile(counts["acked"], plan.min_beyond)
    latencies, late = quantiles["latency"].get(key, {}), quantiles["late"].get(key)
    # Only a gate's error is a rejection; records that all timed out are not known to have been rejected.
    rejected = outcomes is None or (counts["acked"] == 0 and error in REJECTIONS)

    def allowed(values: Mapping[float, float]) -> dict[str, float | None]:
        return {quantile_name(q): values.get(q) if q <= highest + 1e-12 else None for q in plan.quantiles}

    return {
        "arm": arm.id,
        "label": arm.label,
        "role": arm.latency,
        **{name: counts[name] for name in ("intended", "acked", "failed", "unknown")},
        # A rejected arm has no latency.
        "rejected": rejected,
        "rejected_with": error if rejected else None,
        # Why nothing was acknowledged.
        "error": error if counts["acked"] == 0 else None,
        "percentiles_ms": allowed(latencies),
        "client_percentiles_ms": allowed(quantiles["client"].get(key, {})),
        "max_ms": latencies.get(1.0),
        "highest_quantile": highest,
        "pacer_late_ms": late and {"p50": late[0.5], "p99": late[0.99], "max": late[1.0]},
    }


def _curve(blocks: Mapping[int, BinCounts], scenario: Scenario) -> dict[str, Any]:
    """Return a percentile curve with its interval, from the blocks' counts in bins of 0.1 %."""
    plan: LatencyPlan = scenario.latency
    bins, counts = align_counts(list(blocks.values()))
    highest = statistics.highest_quantile(int(counts.sum()), plan.min_beyond)
    quantiles = np.array([q for q in curve_quantiles() if q <= highest + 1e-12])
    values_ms = statistics.bin_value(bins) / US_PER_MS
    drawn = statistics.resampled_quantiles(counts, values_ms, quantiles, resamples=plan.resamples, seed=scenario.seed)
    tail = (1.0 - plan.confidence) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    point = statistics.histogram_quantiles(counts.sum(axis=0, keepdims=True), values_ms, quantiles)[0]
    return {
        "quantiles": quantiles.tolist(),
        "latency_ms": point.tolist(),
        "low_ms": low.tolist(),
        "high_ms": high.tolist(),
    }
