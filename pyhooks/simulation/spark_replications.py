"""Replications as Spark tasks: any number of them on any executors, with the same result.

Spark ships the code (``addPyFile``); executors need Python with numpy and pandas, and nothing of this project.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneYet
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import pack, start_session
from pyhooks.core.terminal import show_progress
from pyhooks.simulation.replication import ReplicationResult, SimulationPlan, run_replications

if TYPE_CHECKING:
    from pyspark import SparkContext

# enough tasks for each core to keep all cores busy until the end and to show progress
_TASKS_PER_CORE = 12
_POLL_S = 0.5


def simulate(
    plan: SimulationPlan, replications: int, *, master: str, console: Console, tasks: int | None = None
) -> tuple[list[ReplicationResult], float]:
    """Run all replications, with a progress bar, on a Spark master, or ``none`` for this process without Spark.

    ``tasks`` is the number of Spark tasks; None for one that suits the cores.

    Returns:
        Results of all replications and settings, and the CPU time of the simulation without Spark's own.

    Raises:
        RackgateError: Spark does not start, or a task failed.
    """
    with show_progress(console, "simulating", replications) as update:

        def show(done: int) -> None:
            update(completed=done, description=f"simulating: {done} of {replications}")

        if master != "none":
            return _simulate_on_spark(plan, replications, master, tasks, show)
        began, results = time.process_time(), []
        for number in range(replications):
            results += run_replications(plan, [number])
            show(number + 1)
        return results, time.process_time() - began


def _simulate_on_spark(
    plan: SimulationPlan, replications: int, master: str, tasks: int | None, show: Callable[[int], None]
) -> tuple[list[ReplicationResult], float]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="rackgate-model-") as folder:
        try:
            spark = start_session(Path(folder), master=master, name="rackgate-model")
            try:
                spark.sparkContext.addPyFile(str(pack(Path(folder), ["pyhooks"])))
                return _run(spark.sparkContext, plan, replications, tasks, show)
            finally:
                spark.stop()
        except (PySparkException, Py4JError) as error:
            lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
            raise RackgateError(
                f"--master {master}: Spark could not run the simulation: {(lines or ['see below'])[-1]}",
                detail=str(error),
            ) from error


def _run(
    context: SparkContext, plan: SimulationPlan, replications: int, tasks: int | None, show: Callable[[int], None]
) -> tuple[list[ReplicationResult], float]:
    def task(number: int) -> tuple[list[ReplicationResult], float]:
        began = time.process_time()
        return run_replications(plan, [number]), time.process_time() - began

    slices = tasks or min(replications, _TASKS_PER_CORE * context.defaultParallelism)
    job = context.parallelize(range(replications), slices).map(task)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job.collect)
        try:
            while True:
                try:
                    parts = waiting.result(timeout=_POLL_S)
                    return [result for results, _ in parts for result in results], sum(cpu_s for _, cpu_s in parts)
                except NotDoneYet:
                    tracker = context.statusTracker()
                    for stage in (tracker.getStageInfo(number) for number in tracker.getActiveStageIds()):
                        if stage is not None and stage.numTasks:
                            show(replications * stage.numCompletedTasks // stage.numTasks)
        except BaseException:
            context.cancelAllJobs()
            raise
