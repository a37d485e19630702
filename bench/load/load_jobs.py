"""Spark jobs that drive a load: start, wait, lead time, and errors of late or failed loads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from bench.load import schedule
from bench.load.spark_load import LATE, SparkLoad, observations
from bench.plan.scenario import OutagePlan
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import LoadDetails
from pyhooks.workload.pacing import NS

T = TypeVar("T")
# Highest number of seconds from the request of a load to its first record, in which clients must get ready.
MOST_LEAD_S = 64.0
# Time limit for Spark to write the observations of a load after its last record.
WRITE_S = 60.0


class LateError(RackgateError):
    """The tasks of a load were not ready at the start of its schedule, so it sent none or only some of its records."""


@contextmanager
def running_load(
    spark: SparkSession, history: History, load: SparkLoad, path: Path, *, carried: bool = False
) -> Iterator[Future[None]]:
    """Drive a load while the block runs, then wait for its end for a limited time.

    Its observations are written to ``path``: by this host if ``carried``, else by the executors.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: it failed, or did not end in time.
    """
    history.add(LoadDetails(step="start", start_ns=load.start_ns, slots=len(load.slots)), op=load.name)
    frame = observations(spark, load)
    pool = ThreadPoolExecutor(1)
    job = pool.submit(_fetch if carried else _write, frame, path)
    end_ns = load.start_ns + schedule.length_ns(load.slots)
    try:
        yield job
        left_s = max(0.0, (end_ns - time.monotonic_ns()) / NS)
        timeout_s = left_s + load.flush_s + WRITE_S
        wait_for(lambda: job.done() or None, goal=f"the end of load {load.name}", timeout_s=timeout_s, interval_s=0.03)
        raise_failure(job)
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


def repeat_while_late(lead_s: float, drive: Callable[[float], T]) -> T:
    """Drive a load with a lead time; while its tasks are late, repeat with twice the lead time.

    Raises:
        LateError: the load was late with a lead time of ``MOST_LEAD_S``.
    """
    while True:
        try:
            return drive(lead_s)
        except LateError:
            if lead_s >= MOST_LEAD_S:
                raise
            lead_s = min(2 * lead_s, MOST_LEAD_S)


def raise_failure(job: Future[None]) -> None:
    """Raise the error of a load that has failed.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: a task failed; its error is in the message, Spark's in the detail.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not job.done():
        return
    try:
        job.result()
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        kind = LateError if any(LATE in line for line in lines) else RackgateError
        raise kind(f"the load failed: {lines[0] if lines else 'see below'}", detail=str(error)) from error


def wait_until_due(at_ns: int, job: Future[None], moment: str) -> None:
    """Wait until a moment of the schedule; a load that fails meanwhile ends the wait with its error."""

    def is_due() -> bool | None:
        raise_failure(job)
        return time.monotonic_ns() >= at_ns or None

    left_s = max(0.0, (at_ns - time.monotonic_ns()) / NS)
    wait_for(is_due, goal=moment, timeout_s=left_s + 10, interval_s=0.02)


def hold_fault(load: SparkLoad, job: Future[None], plan: OutagePlan, fault: AbstractContextManager[object]) -> str:
    """Apply a fault at its time in the schedule of a load, and heal it.

    Returns:
        The error of a fault that could not be applied, proved or healed; the load continues after it. Otherwise an
        empty text.

    Raises:
        RackgateError: the load was late or failed.
    """
    fault_ns = load.start_ns + round(plan.before_s * NS)
    wait_until_due(fault_ns, job, "the time of the fault")
    try:
        with fault:
            wait_until_due(fault_ns + round(plan.during_s * NS), job, "the time of the heal")
    except LateError:
        raise
    except RackgateError as error:
        return str(error)
    return ""
