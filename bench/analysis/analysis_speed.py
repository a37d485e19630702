"""Speed of the analysis, measured with synthetic observations of a whole run."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench import machine
from bench.analysis import latency_analysis
from bench.plan import scenarios
from bench.plan.scenario import BenchCell
from bench.spark_session import spark_session
from pyhooks.core import resource_usage
from pyhooks.core.errors import RackgateError
from pyhooks.core.repeated_calls import calling_every
from pyhooks.core.targets import Target

# A run as large as a plan allows: 12 cells with the arms A, A', B and one more candidate, 20 blocks.
SIZES = (5_000_000, 50_000_000)
CELLS = 12
BLOCKS = 20
SAMPLE_S = 0.5
SEED = 1290
# Latency of a record: a lognormal body around 3 ms, and one record in fifty after a pause of mean 20 ms.
MEDIAN_MS, SIGMA, PAUSED, PAUSE_MS = 3.0, 0.4, 0.02, 20.0
WARM_UP = 200_000
# Targets for ``SIZES``.
MAX_S, MAX_GIB, MAX_GROWTH = 90.0, 4.0, 11.0


def synthetic_cells(blocks: int = BLOCKS) -> tuple[BenchCell, ...]:
    """Return the cells of a synthetic run: the arms of the plan "full" in as many cells as a plan can have."""
    full = scenarios.load("full")
    scenario = dataclasses.replace(full, latency=dataclasses.replace(full.latency, blocks=blocks))
    return tuple(BenchCell(f"cell-{n}", f"synthetic, number {n}", "healthy", scenario) for n in range(CELLS))


def synthetic_observations(spark: SparkSession, number: int, cells: Sequence[BenchCell]) -> DataFrame:
    """Return synthetic raw observations, equally many per arm and block, in an order of no help to the analysis."""
    arms = [arm.id for arm in cells[0].scenario.latency_arms]
    blocks = cells[0].scenario.latency.blocks
    at = F.col("id")

    def one_of(names: Sequence[str], index: Any) -> Any:
        return F.element_at(F.array(*[F.lit(name) for name in names]), (index + 1).cast("int"))

    block = (F.floor(at / (len(arms) * len(cells))) % blocks).cast("int")
    body = MEDIAN_MS * 1e6 * F.exp(F.randn(SEED) * SIGMA)
    pause = F.when(F.rand(SEED + 1) < PAUSED, -F.log(1.0 - F.rand(SEED + 2)) * PAUSE_MS * 1e6).otherwise(0.0)
    # Blocks differ, as on real machines; the arms are equal.
    level = 1.0 + 0.2 * F.sin(block * 1.7)
    return (
        spark.range(number)
        .withColumn("late", (F.rand(SEED + 3) * 200_000).cast("long"))
        .withColumn("took", ((body + pause) * level).cast("long"))
        .select(
            F.lit("speed").alias("run_id"),
            F.lit("latency").alias("phase"),
            one_of([cell.id for cell in cells], F.floor(at / len(arms)) % len(cells)).alias("cell"),
            F.lit("healthy").alias("state"),
            block.alias("block"),
            one_of(arms, at % len(arms)).alias("arm"),
            F.lit("made-up").alias("topic"),
            F.lit(0).alias("task"),
            at.alias("seq"),
            F.lit(True).alias("measured"),
            (at * 20_000).alias("intended_ns"),
            (at * 20_000 + F.col("late")).alias("sent_ns"),
            (at * 20_000 + F.col("took") + F.col("late")).alias("done_ns"),
            F.floor(F.col("took") / 1000).alias("client_us"),
            F.lit("acked").alias("outcome"),
            F.lit(None).cast("string").alias("error"),
            F.lit(0).alias("partition"),
            at.alias("offset"),
        )
    )


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Sample the memory of this process and its descendants; yield a function that returns the peak so far in GiB."""
    samples = [0.0]
    with calling_every(SAMPLE_S, lambda: samples.append(resource_usage.tree()[0]), "memory"):
        yield lambda: max(*samples, resource_usage.tree()[0])


def measure(sizes: Sequence[int], work: Path, *, master: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Create and analyse observations of each size in turn, in one Spark session."""
    cells = synthetic_cells()
    slots = CELLS * BLOCKS * len(cells[0].scenario.latency_arms)
    if min(sizes) < slots:
        raise RackgateError(f"{min(sizes):,} observations: at least {slots:,} are needed, one for every arm and block")
    rows: list[dict[str, Any]] = []
    with spark_session(work / "spark", master=master) as spark, peak_memory() as memory:
        # Spark's and Python's code is compiled once per run, so the warm-up has a row of its own.
        for size in (WARM_UP, *sizes):
            folder = work / "raw"
            shutil.rmtree(folder, ignore_errors=True)
            begun = time.monotonic()
            synthetic_observations(spark, size, cells).write.parquet(str(folder))
            made_s = time.monotonic() - begun
            with resource_usage.others() as others:
                numbers = latency_analysis.cells(
                    latency_analysis.measurements(latency_analysis.read_raw(spark, folder), cells)
                )
            duration_s, cpu_s = others.seconds, others.own_s
            counted = sum(arm["acked"] for cell in numbers for arm in cell["arms"])
            if counted != size:
                raise RackgateError(f"the analysis counted {counted:,} of {size:,} observations")
            parquet_mb = sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6
            row: dict[str, Any] = {"observations": size, "made_s": made_s, "analysed_s": duration_s, "cpu_s": cpu_s}
            row |= {"parquet_mb": parquet_mb, "peak_gib_so_far": memory(), "others_cpus": others.cpus}
            rows.append(row | {"warm_up": not rows})
            left = "" if size == sizes[-1] or size == WARM_UP else f"; the next may take {_next_s(row, size, sizes)}"
            tell(f"{size:>12,} observations: analysed in {duration_s:.1f} s, {cpu_s:.1f} s of CPU{left}")
        shutil.rmtree(work / "raw")
    return {
        "schema": 1,
        "master": master,
        "cells": CELLS,
        "blocks": BLOCKS,
        "machine": machine.describe_machine(),
        "rows": rows,
    }


def _next_s(row: dict[str, Any], size: int, sizes: Sequence[int]) -> str:
    following = sizes[list(sizes).index(size) + 1]
    return f"about {(row['made_s'] + row['analysed_s']) * following / size:.0f} s"


def growth(result: dict[str, Any]) -> float | None:
    """Return the ratio of the analysis times of the largest and the smallest size; None for one size."""
    rows = [row for row in result["rows"] if not row["warm_up"]]
    return rows[-1]["analysed_s"] / rows[0]["analysed_s"] if len(rows) > 1 else None


def targets_of(result: dict[str, Any]) -> list[Target]:
    """Return the targets of the measurement; none unless its sizes are ``SIZES``."""
    rows = [row for row in result["rows"] if not row["warm_up"]]
    if tuple(row["observations"] for row in rows) != SIZES:
        return []
    first, last, busiest = rows[0], rows[-1], max(row["others_cpus"] for row in rows)
    name = f"analysis of {SIZES[-1]:,} observations"
    return [
        Target(name, MAX_S, "s", last["analysed_s"], last["others_cpus"]),
        # work of other processes does not increase it
        Target(f"greatest memory in the {name}", MAX_GIB, "GiB", last["peak_gib_so_far"], 0.0),
        Target(
            f"time of {SIZES[-1]:,} over that of {SIZES[0]:,}",
            MAX_GROWTH,
            "times",
            growth(result),
            busiest,
            unjudged=_flattered(first, last),
        ),
    ]


def _flattered(first: dict[str, Any], last: dict[str, Any]) -> str:
    """Return why a growth below the target proves nothing: the smallest size might be faster without other work."""
    undisturbed_s = first["analysed_s"] * max(0.0, 1.0 - first["others_cpus"])
    if last["analysed_s"] / first["analysed_s"] > MAX_GROWTH or last["analysed_s"] <= MAX_GROWTH * undisturbed_s:
        return ""
    return f"other processes used {first['others_cpus']:.2f} CPUs during the smaller size, so the growth may be larger"
