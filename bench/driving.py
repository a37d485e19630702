"""What the loads of one lab share, and how a load is driven: as a Spark job that ends in a folder of observations."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import pacing
from bench.load import LATE, Load, observations
from bench.machine import Sampler
from bench.plan import Cell, Scenario
from bench.progress import Steps
from bench.store import Store
from bench.target import Target
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.kafka.gate import Requirement
from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

# From asking Spark for a load to its first record: clients must be ready by then. A load that was not is given more.
LEAD_S = 1.0
MOST_LEAD_S = 64.0
EASE = 0.9
# Of loads with a fault in their middle, of which each beginning takes long.
SURE_LEAD_S = 6.0
# Spark's way of writing a load's observations after the last record.
WRITE_S = 60.0


class LateError(RackgateError):
    """A load's tasks were not ready at the start of its schedule, and it sent nothing, or not all."""


@dataclass
class Session:
    """What the loads of one lab share.

    Attributes:
        target: the cluster.
        scenario: the plan.
        store: what the run keeps.
        number: of the session.
        spark: the Spark session.
        admin: for topics.
        history: of the lab.
        steps: for the terminal.
        sampler: of the machine's use.
        warm: whether this lab has had its long warm-up.
        lead_s: from asking for a load to its first record.
        known: what topics ask for.
        round_trips: measured between places: ``idle`` and ``under load``.
        notes: what went wrong and did not end the run.
        prefix: of the names of its topics.
        announce: is told of topics before they are made.
        ahead_ns: how clocks of load hosts stand to this one's, see ``bench.clocks.distances``.
        carried: executors do not see this host's files: what they observe, and what they are to look at, is carried.
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
        """Observations that were kept, for Spark to look at."""
        if not self.carried:
            return self.spark.read.parquet(*[str(path) for path in paths])
        import pyarrow as pa
        from pyarrow import parquet

        return self.spark.createDataFrame(
            pa.concat_tables([parquet.read_table(path, page_checksum_verification=True) for path in paths])
        )

    def load(
        self, name: str, slots: tuple[pacing.Slot, ...], start_ns: int, *, cell: Cell | None = None, bootstrap: str = ""
    ) -> Load:
        """A load as a task gets it.

        Args:
            name: of the load; the session's number is added to it.
            slots: the schedule.
            start_ns: of it, on the monotonic clock.
            cell: in whose setting it is driven; without one in that of the first cell, by librdkafka.
            bootstrap: addresses of brokers, if not of all.
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
        """Drives a load while the block runs; see ``driven``."""
        return driven(self.spark, self.history, load, path, carried=self.carried)

    def drive(self, name: str, slots: tuple[pacing.Slot, ...], *, cell: Cell, bootstrap: str = "") -> tuple[Load, Path]:
        """Drives a load to its end, anew with more time if its tasks were not ready; returns it and its observations.

        Raises:
            RackgateError: it failed, or was late though it had ``MOST_LEAD_S``.
        """
        late = False
        while True:
            start_ns = time.monotonic_ns() + round(self.lead_s * NS)
            # A record of a load that was given up must not be taken for one of the load that stands for it.
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
                    # What was in the way, such as a JVM that had to start first, is over some time.
                    self.lead_s = max(LEAD_S, self.lead_s * EASE)
                return load, path


@contextmanager
def driven(
    spark: SparkSession, history: History, load: Load, path: Path, *, carried: bool = False
) -> Iterator[Future[None]]:
    """Drives a load while the block runs, and waits, bounded, for its end.

    Args:
        spark: runs it.
        history: where its start and end are noted.
        load: which.
        path: for its observations.
        carried: executors can't write to it: what they observed is carried here.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: it failed, or did not end in time.
    """
    history.note("load", load.name, "info", step="start", start_ns=load.start_ns, slots=len(load.slots))
    frame = observations(spark, load)
    pool = ThreadPoolExecutor(1)
    done = pool.submit(_carry if carried else _write, frame, path)
    end_ns = load.start_ns + pacing.length_ns(load.slots)
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
    history.note("load", load.name, "info", step="end")


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.parquet(str(path))


def _carry(frame: DataFrame, path: Path) -> None:
    from pyarrow import parquet

    table = frame.toArrow()
    path.mkdir(parents=True)
    parquet.write_table(table, path / "carried.parquet", write_page_checksum=True)


def with_lead(lead_s: float, drive: Callable[[float], None]) -> None:
    """Drives a load, and again with twice the lead as long as its tasks were not ready at the start of its schedule.

    Args:
        lead_s: the first one, in seconds.
        drive: drives it with a lead.

    Raises:
        LateError: it was late though it had ``MOST_LEAD_S``.
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
    """Raises what ended a load, if it has ended badly.

    Raises:
        LateError: its tasks were not ready in time.
        RackgateError: a task failed; its words are in the message, Spark's in the detail.
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
    """Waits until a moment of the schedule; a load that fails meanwhile ends the wait with its error."""

    def reached() -> bool | None:
        raise_failure(done)
        return time.monotonic_ns() >= at_ns or None

    left_s = max(0.0, (at_ns - time.monotonic_ns()) / NS)
    wait_for(reached, what=what, timeout_s=left_s + 10, interval_s=0.02)
