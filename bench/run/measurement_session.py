"""State that the loads of one lab share, and the loads, probes and checks that use it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.analysis import record_check
from bench.analysis.availability import REJECTIONS
from bench.load import schedule
from bench.load.arm_topics import BenchTopics
from bench.load.load_jobs import RunningLoad, running_load
from bench.load.spark_load import SparkLoad
from bench.machine import UsageSampler
from bench.plan.scenario import BenchCell, Scenario
from bench.progress import RunSteps
from bench.run.cluster_under_test import ClusterUnderTest
from bench.run.run_store import RunStore
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.jvm.producer import Producer

# Limit of consecutive attempts at a load.
MAX_ATTEMPTS = 3
# Probe by a Java producer without retries, which therefore hides no rejection: time limit and number of attempts.
RESPONSE_S = 60.0
PROBES = 3
PROBE_CONFIG = {
    "acks": "all",
    "retries": "0",
    "enable.idempotence": "false",
    "linger.ms": "0",
    "request.timeout.ms": "8000",
    "delivery.timeout.ms": "9000",
    "max.block.ms": "9000",
}


@dataclass
class MeasurementSession:
    """State that the loads of one lab share."""

    target: ClusterUnderTest
    scenario: Scenario
    store: RunStore
    number: int
    spark: SparkSession
    topics: BenchTopics
    history: History
    steps: RunSteps
    sampler: UsageSampler
    warm: bool = False  # whether this lab has had its long warm-up
    # round-trip times between places: ``idle`` and ``under load``
    round_trips: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # errors that did not end the run
    prefix: str = ""  # prefix of its topics' names
    # clock differences of the load hosts, see ``bench.load.clock_offsets.host_offsets``
    known_offsets_ns: Mapping[str, int] = field(default_factory=dict)
    # whether executors do not share this host's file system, so that observations are sent to and from it
    carried: bool = False

    def rejections(self, bootstrap: str, topics: Sequence[str]) -> dict[str, str]:
        """Send one record to each topic; return the gate's exception without its package, empty if it accepts."""
        config = {**self.target.security.java, **PROBE_CONFIG}
        with Producer(bootstrap, config, close_timeout_s=RESPONSE_S) as producer:
            return {topic: rejection(producer, topic) for topic in topics}

    def check_records(self, paths: Sequence[Path], topics: list[str]) -> dict[str, Any]:
        """Compare stored observations with the contents of the topics; see ``bench.analysis.record_check``."""
        log = record_check.read_back(self.spark, self.target.bootstrap, topics, self.target.security.spark)
        return record_check.check_records(self.observed(paths), log, self.store.run_id)

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
        *,
        cell: BenchCell | None = None,
        bootstrap: str = "",
    ) -> SparkLoad:
        """Return a load as its tasks receive it.

        Time and session number are appended to ``name``, which separates its records from those of an earlier attempt.
        Without ``cell`` librdkafka sends records of the first cell's size; ``bootstrap`` replaces the addresses of all
        brokers.
        """
        setting = (cell or self.scenario.cells[0]).setting
        client = setting.client if cell else "confluent"
        security = self.target.security
        secure: Mapping[str, str] = security.java if client == "java" else security.librdkafka
        config = self.scenario.java if client == "java" else self.scenario.client
        return SparkLoad(
            run_id=self.store.run_id,
            name=f"{name}-{time.monotonic_ns() // 1_000_000}.{self.number}",
            cell=cell.id if cell else None,
            state=cell.state if cell else "outage",
            bootstrap=bootstrap or self.target.bootstrap,
            client=client,
            config={**config, **secure, "linger.ms": setting.linger_ms if cell else 0},
            record_bytes=setting.record_bytes,
            seed=self.scenario.seed,
            flush_s=self.scenario.flush_s,
            tasks=self.scenario.tasks,
            slots=slots,
            partitions=setting.partitions if cell else 1,
            leader_only=frozenset(arm.id for arm in self.scenario.arms if arm.acks == "1"),
            known_offsets_ns=self.known_offsets_ns,
        )

    def running(self, load: SparkLoad, path: Path) -> AbstractContextManager[RunningLoad]:
        """Drive a load while the block runs; see ``running_load``."""
        return running_load(self.spark, self.history, load, path, carried=self.carried)

    def drive(self, name: str, slots: tuple[schedule.Slot, ...], *, cell: BenchCell, bootstrap: str = "") -> Path:
        """Drive a load to its end and return the folder of its observations.

        A load that fails, for example because an executor was lost, is repeated. What it sent is not counted.

        Raises:
            RackgateError: it failed in ``MAX_ATTEMPTS`` consecutive attempts; the error is that of the last one.
        """
        failed = 0
        while True:
            load = self.load(name, slots, cell=cell, bootstrap=bootstrap)
            path = self.store.unfinished(load.name)
            try:
                with self.running(load, path):
                    pass
            except RackgateError as error:
                failed += 1
                if failed == MAX_ATTEMPTS:
                    raise
                self.notes.append(f"load {load.name} is repeated: {error}")
            else:
                return path


def rejection(producer: Producer, topic: str, response_s: float = RESPONSE_S) -> str:
    """Probe one topic; see ``MeasurementSession.rejections``.

    Raises:
        RackgateError: the topic neither accepted nor rejected a record in any attempt.
    """
    error = ""
    for _ in range(PROBES):
        try:
            sent = producer.send_batch(topic, [b"probe"], keys=[b"probe"]).result(timeout=response_s)
        except TimeoutError:
            error = f"no response within {response_s:.0f} s"
            continue
        error = sent.errors[0].java_class.rsplit(".", 1)[-1] if sent.errors else ""
        if not error or error in REJECTIONS:
            return error
    raise RackgateError(f"a probe of topic {topic} got {error} {PROBES} times, neither an ack nor a rejection")
