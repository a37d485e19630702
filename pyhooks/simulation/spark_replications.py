"""Replications as Spark tasks: any number of them on any executors, with the same result.

Each replication has a seed of its own, and what it gives depends on nothing else. The code is shipped by Spark
(``addPyFile``); executors need Python with numpy, pandas and pyarrow, and nothing of this project.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import pack, start_session
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.replication import Found, Plan, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "none"
SCHEMA = (
    "replication long, setting int, shares array<double>, lost array<double>, events int, by_cause array<long>,"
    " tail_s double, with_tail double, cpu_s double"
)
# so many tasks for each core, so that none is idle for long at the end and progress can be told
_TASKS_A_CORE = 12
# broker-years that are played together: enough for numpy, and not too much for a core's cache
_TOGETHER = 200.0
_LOOK_S = 0.5

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Done:
    """What was run.

    Attributes:
        found: of each replication and setting.
        cpu_s: CPU time of the simulation itself, wherever it ran; without Spark's own.
    """

    found: list[Found]
    cpu_s: float


def chunks(plan: Plan, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """As many replications as are played together; what they give does not depend on it."""
    size = max(1, round(_TOGETHER / sum(plan.racks) * YEAR_S / plan.stretch.total_s))
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def here(plan: Plan, replications: int, tell: Tell) -> Done:
    """Runs all replications in this process.

    Args:
        plan: what.
        replications: how many.
        tell: takes how many are done, and of how many.
    """
    found: list[Found] = []
    began = time.process_time()
    for numbers in chunks(plan, range(replications)):
        found += play(plan, numbers)
        tell(numbers[-1] + 1, replications)
    return Done(found, time.process_time() - began)


def simulate(plan: Plan, replications: int, *, master: str, tell: Tell, slices: int | None = None) -> Done:
    """Runs all replications.

    Args:
        plan: what.
        replications: how many.
        master: Spark's, or ``none`` for this process without Spark.
        tell: takes how many are done, and of how many.
        slices: into how many tasks; None for as many as suit the cores.

    Raises:
        RackgateError: Spark does not start, or a task failed.
    """
    if master == HERE:
        return here(plan, replications, tell)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.TemporaryDirectory(prefix="rackgate-model-") as folder:
        try:
            with _session(Path(folder), master) as spark:
                return _run(spark, plan, replications, tell, slices)
        except (PySparkException, Py4JError) as error:
            said = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
            raise RackgateError(
                f"--master {master}: Spark could not run the simulation: {(said or ['see below'])[-1]}",
                detail=str(error),
            ) from error


def _run(spark: SparkSession, plan: Plan, replications: int, tell: Tell, slices: int | None) -> Done:
    cores = max(1, int(spark.sparkContext.defaultParallelism))
    wanted = slices or min(replications, _TASKS_A_CORE * cores)

    def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for numbers in chunks(plan, [int(number) for number in frame["id"]]):
                began = time.process_time()
                found = play(plan, numbers)
                yield _table(found, time.process_time() - began)

    frame = spark.range(0, replications, 1, wanted).mapInPandas(task, schema=SCHEMA)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(frame.collect)
        try:
            while True:
                try:
                    rows = waiting.result(timeout=_LOOK_S)
                    break
                except NotYet:
                    tell(_done(spark, replications), replications)
        except BaseException:
            spark.sparkContext.cancelAllJobs()
            raise
    tell(replications, replications)
    found = [
        Found(
            row.replication,
            row.setting,
            np.array(row.shares),
            np.array(row.lost),
            row.events,
            np.array(row.by_cause),
            row.tail_s,
            row.with_tail,
        )
        for row in rows
    ]
    return Done(found, sum(row.cpu_s for row in rows))


def _done(spark: SparkSession, replications: int) -> int:
    """How many replications are in tasks that have ended."""
    tracker = spark.sparkContext.statusTracker()
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None and info.numTasks:
            return int(replications * info.numCompletedTasks / info.numTasks)
    return 0


def _table(found: Sequence[Found], cpu_s: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "replication": [one.replication for one in found],
            "setting": [one.setting for one in found],
            "shares": [one.shares for one in found],
            "lost": [one.lost for one in found],
            "events": [one.events for one in found],
            "by_cause": [one.by_cause for one in found],
            "tail_s": [one.tail_s for one in found],
            "with_tail": [one.with_tail for one in found],
            "cpu_s": cpu_s / len(found),
        }
    )


@contextmanager
def _session(work: Path, master: str) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = start_session(work, master=master, name="rackgate-model")
    try:
        spark.sparkContext.addPyFile(str(pack(work, ["pyhooks"])))
        yield spark
    finally:
        spark.stop()
