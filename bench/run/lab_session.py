"""Loads of one lab: the session that they share, and Spark jobs that drive a load and write its observations."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.load import schedule
from bench.load.spark_load import LATE, Load, observations
from bench.machine import Sampler
from bench.plan.scenario import Cell, Scenario
from bench.progress import Steps
from bench.run.cluster_under_test import Target
from bench.run.run_store import Store
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import LoadDetails
from pyhooks.kafka.gate import Requirement
from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

# Seconds from the request of a load to its first record, in which clients must get ready. A late load gets more.
LEAD_S = 1.0
MOST_LEAD_S = 64.0
EASE = 0.9
# For loads with a fault in the middle, which take long to repeat.
SURE_LEAD_S = 6.0
# Time limit for Spark to write the observations of a load after its last record.
WRITE_S = 60.0


class LateError(RackgateError):
    """The tasks of a load were not ready at the start of its schedule, so it sent none or only some of its records."""


@dataclass
class Session:
    """State that the loads of one lab share.

    Attributes:
        target: cluster under test.
        scenario: plan of the run.
        store: stored results of the run.
        number: number of the session.
        spark: the Spark session.
        admin: client for topic operations.
        history: history of the lab.
        steps: progress on the terminal.
        sampler: resource usage of the machine.
        warm: whether this lab has had its long warm-up.
        lead_s: seconds from the request of a load to its first record.
        known: requirements that are in force on topics.
        round_trips: round-trip times between places: ``idle`` and ``under load``.
        notes: errors that did not end the run.
        prefix: prefix of its topics' names.
        announce: called with the names of topics before they are created.
        ahead_ns: clock differences of the load hosts, see ``bench.load.clock_offsets.distances``.
        carried: whether executors do not share this host's file system, so that observations are sent to and from it.
    """

    target: Target
    scenario: Scenario
    store: Store
    number: int
    spark: SparkSession
    admin: AdminClient
    history: History
    steps: Steps
    sampler: Sampler
    warm: bool = False
    lead_s: float = LEAD_S
    known: dict[str, Requirement] = field(default_factory=dict)
    round_trips: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    prefix: str = ""
    announce: Callable[[Sequence[str]], None] = lambda _names: None
    ahead_ns: Mapping[str, int] = field(default_factory=dict)
    carried: bool = False

    def observed(self, paths: Sequence[Path]) -> DataFrame:
        """Return stored observations as a Spark data frame."""
        if not self.carried:
            return self.spark.read.parquet(*[str(path) for path in paths])
        import pyarrow as pa
        from pyarrow import parquet

        return self.spark.createDataFrame(
            pa.concat_tables([parquet.read_table(path, page_checksum_verification=True) for path in paths])
        )

    def load(
        self,
        name: str,
        slots: tuple[schedule.Slot, ...],
        start_ns: int,
        *,
        cell: Cell | None = None,
        bootstrap: str = "",
    ) -> Load:
        """Return a load as its tasks receive it.

        Args:
            name: name of the load; the session's number is appended.
            slots: the schedule.
            start_ns: start of the schedule on the monotonic clock.
            cell: cell with the setting; without one librdkafka sends records of the first cell's size.
            bootstrap: broker addresses, if not those of all brokers.
        """
        setting = (cell or self.scenario.cells[0]).setting
        client = setting.client if cell else "confluent"
        security = self.target.security
        own: Mapping[str, str] = security.java if client == "java" else security.librdkafka
        config = self.scenario.java if client == "java" else self.scenario.client
        return Load(
            run_id=self.store.run_id,
            name=f"{name}.{self.number}",
            cell=cell.id if cell else None,
            state=cell.state if cell else "outage",
            bootstrap=bootstrap or self.target.bootstrap,
            client=client,
            config={**config, **own, "linger.ms": setting.linger_ms if cell else 0},
            record_bytes=setting.record_bytes,
            seed=self.scenario.seed,
            flush_s=self.scenario.flush_s,
            tasks=self.scenario.tasks,
            start_ns=start_ns,
            slots=slots,
            ahead_ns=self.ahead_ns,
        )

    def driven(self, load: Load, path: Path) -> AbstractContextManager[Future[None]]:
        """Drive a load while the block runs; see the function ``driven``."""
        return driven(self.spark, self.history, load, path, carried=self.carried)

    def drive(
        self, name: str, slots: tuple[schedule.Slot, ...], *, cell: Cell, bootstrap: str = ""
    ) -> tuple[Load, Path]:
        """Drive a load to its end and return it with its observations; a late load is repeated with more lead time.

        Raises:
            RackgateError: the load failed, or was late with a lead time of ``MOST_LEAD_S``.
        """
        late = False
        while True:
            start_ns = time.monotonic_ns() + round(self.lead_s * NS)
            # The unique name separates these records from those of an abandoned attempt.
            load = self.load(f"{name}-{start_ns // 1_000_000}", slots, start_ns, cell=cell, bootstrap=bootstrap)
            path = self.store.unfinished(load.name)
            try:
                with self.driven(load, path):
                    pass
            except LateError:
                shutil.rmtree(path, ignore_errors=True)
                if self.lead_s >= MOST_LEAD_S:
                    raise
                self.lead_s *= 2
                late = True
            else:
                if not late:
                    # Causes of a late load, such as the start of a JVM, are temporary.
                    self.lead_s = max(LEAD_S, self.lead_s * EASE)
                return load, path


@contextmanager
def driven(
    spark: SparkSession, history: History, load: Load, path: Path, *, carried: bool = False
) -> Iterator[Future[None]]:
    """Drive a load while the block runs, then wait for its end for a limited time.

    Args:
        spark: session that runs the load.
        history: history for its start and end.
        load: the load.
        path: folder for its observations.
        carried: whether executors can't write to ``path``, so that observations are sent to this host.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: it failed, or did not end in time.
    """
    history.add(LoadDetails(step="start", start_ns=load.start_ns, slots=len(load.slots)), op=load.name)
    frame = observations(spark, load)
    pool = ThreadPoolExecutor(1)
    done = pool.submit(_carry if carried else _write, frame, path)
    end_ns = load.start_ns + schedule.length_ns(load.slots)
    try:
        yield done
        left_s = max(0.0, (end_ns - time.monotonic_ns()) / NS)
        timeout_s = left_s + load.flush_s + WRITE_S
        wait_for(lambda: done.done() or None, what=f"the end of load {load.name}", timeout_s=timeout_s, interval_s=0.03)
        raise_failure(done)
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


def _carry(frame: DataFrame, path: Path) -> None:
    from pyarrow import parquet

    table = frame.toArrow()
    path.mkdir(parents=True)
    parquet.write_table(table, path / "carried.parquet", write_page_checksum=True)


def with_lead(lead_s: float, drive: Callable[[float], None]) -> None:
    """Drive a load; as long as its tasks are late, repeat it with twice the lead time.

    Args:
        lead_s: first lead time, in seconds.
        drive: function that drives the load with a lead time.

    Raises:
        LateError: the load was late with a lead time of ``MOST_LEAD_S``.
    """
    while True:
        try:
            drive(lead_s)
        except LateError:
            if lead_s >= MOST_LEAD_S:
                raise
            lead_s = min(2 * lead_s, MOST_LEAD_S)
        else:
            return


def raise_failure(done: Future[None]) -> None:
    """Raise the error of a load that has failed.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: a task failed; its error is in the message, Spark's in the detail.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not done.done():
        return
    try:
        done.result()
    except (PySparkException, Py4JError) as error:
        words = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        kind = LateError if any(LATE in line for line in words) else RackgateError
        raise kind(f"the load failed: {words[0] if words else 'see below'}", detail=str(error)) from error


def pause_until(at_ns: int, done: Future[None], what: str) -> None:
    """Wait until a moment of the schedule; a load that fails meanwhile ends the wait with its error."""

    def reached() -> bool | None:
        raise_failure(done)
        return time.monotonic_ns() >= at_ns or None

    left_s = max(0.0, (at_ns - time.monotonic_ns()) / NS)
    wait_for(reached, what=what, timeout_s=left_s + 10, interval_s=0.02)
