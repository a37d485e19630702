"""Spark jobs that drive a load: start, wait, and errors of failed loads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.load import clock_offsets, schedule
from bench.load.spark_load import SparkLoad, observations
from bench.plan.scenario import OutagePlan
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import LoadDetails
from pyhooks.workload.pacing import NS

# Time limit for the tasks of a load to get ready, which may include the start of a JVM.
READY_S = 120.0
# Beginning of the line in Spark's error that reports a lost executor.
EXECUTOR_LOST = "ExecutorLostFailure"
# Time limit for Spark to write the observations of a load after its last record.
WRITE_S = 60.0


@dataclass(frozen=True)
class RunningLoad:
    """Load that is being driven."""

    job: Future[None]  # Spark job of the load
    start_ns: int  # start of its schedule on this process's monotonic clock

    def raise_failure(self) -> None:
        """Raise the error of the load if it has failed.

        Raises:
            RackgateError: a task failed; its error is in the message, Spark's in the detail.
        """
        _raise_failure(self.job)

    def wait_until(self, offset_s: float, moment: str) -> None:
        """Wait until a moment of the schedule; a load that fails meanwhile ends the wait with its error."""
        at_ns = self.start_ns + round(offset_s * NS)

        def is_due() -> bool | None:
            self.raise_failure()
            return time.monotonic_ns() >= at_ns or None

        wait_for(is_due, goal=moment, timeout_s=max(0.0, (at_ns - time.monotonic_ns()) / NS) + 10, interval_s=0.02)


@contextmanager
def running_load(
    spark: SparkSession, history: History, load: SparkLoad, path: Path, *, carried: bool = False
) -> Iterator[RunningLoad]:
    """Drive a load while the block runs, from its start on, then wait for its end for a limited time.

    Its observations are written to ``path``: by this host if ``carried``, else by the executors.

    Raises:
        RackgateError: its tasks were not ready in time, it failed, or it did not end in time.
    """
    conf = spark.sparkContext.getConf()
    host = str(conf.get("spark.driver.host"))
    pool = ThreadPoolExecutor(1)
    with clock_offsets.serving_clock(str(conf.get("spark.driver.bindAddress", host))) as clock:
        driver = clock_offsets.DriverAddress((host, clock.at.address[1]), clock.at.boot_id)
        job = pool.submit(_fetch if carried else _write, observations(spark, load, driver), path)
        try:
            wait_for(
                lambda: clock.start_ns.done() or job.done() or None,
                goal=f"the clients of load {load.name} to be ready",
                timeout_s=READY_S,
                interval_s=0.02,
            )
            _raise_failure(job)
            if not clock.start_ns.done():
                raise RackgateError(
                    f"no load host could report the start of load {load.name} to {host}:{clock.at.address[1]}:"
                    f" {clock_offsets.REMEDY}"
                )
            running = RunningLoad(job, clock.start_ns.result(timeout=0))
            history.add(LoadDetails(step="start", start_ns=running.start_ns, slots=len(load.slots)), op=load.name)
            yield running
            left_s = max(0.0, (running.start_ns + schedule.length_ns(load.slots) - time.monotonic_ns()) / NS)
            timeout_s = left_s + load.flush_s + WRITE_S
            wait_for(
                lambda: job.done() or None, goal=f"the end of load {load.name}", timeout_s=timeout_s, interval_s=0.03
            )
            _raise_failure(job)
        except KeyboardInterrupt:
            raise
        except BaseException:
            spark.sparkContext.cancelAllJobs()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    history.add(LoadDetails(step="end"), op=load.name)


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.parquet(str(path))


def _fetch(frame: DataFrame, path: Path) -> None:
    from pyarrow import parquet

    table = frame.toArrow()
    path.mkdir(parents=True)
    parquet.write_table(table, path / "carried.parquet", write_page_checksum=True)


def _raise_failure(job: Future[None]) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not job.done():
        return
    try:
        job.result()
    except (PySparkException, Py4JError) as error:
        lines = [
            line.strip() for line in str(error).splitlines() if "Error: " in line or line.startswith(EXECUTOR_LOST)
        ]
        raise RackgateError(f"the load failed: {lines[0] if lines else 'see below'}", detail=str(error)) from error


def hold_fault(load: RunningLoad, plan: OutagePlan, fault: AbstractContextManager[object]) -> str:
    """Apply a fault at its time in the schedule of a load, and heal it.

    Returns:
        The error of a fault that could not be applied, proved or healed, after which the load continues; else empty.

    Raises:
        RackgateError: the load failed.
    """
    load.wait_until(plan.before_s, "the time of the fault")
    try:
        with fault:
            load.wait_until(plan.before_s + plan.during_s, "the time of the heal")
    except RackgateError as error:
        load.raise_failure()
        return str(error)
    return ""
