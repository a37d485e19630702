"""The load as a Spark job: each task drives all arms of a phase, its share of the records of each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from bench.pacer import ACKED, FAILED, UNKNOWN, Lane, Observations, rows, serving
from bench.pacing import Slot, by_arm
from bench.scenarios import Scenario

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Times are nanoseconds of the monotonic clock of the host that ran the task; 0 or -1 where there is none.
SCHEMA = (
    "run_id string, phase string, block int, arm string, topic string, task int, seq long, measured boolean,"
    " intended_ns long, sent_ns long, done_ns long, client_us long, outcome string, error string,"
    " partition int, offset long"
)
# librdkafka sends to one broker over one connection, and a broker answers a connection's requests in order, so
# arms that shared a client would wait for each other.
FIXED_CLIENT = {"acks": "all"}
# Only what is critical: under a fault librdkafka would tell of every connection that it loses.
CLIENT_LOG_LEVEL = 2


def outcome_counts() -> list[Column]:
    """Columns for ``agg``: how many records were ``intended``, and how many had each outcome, named after it."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    outcomes = (ACKED, FAILED, UNKNOWN)
    return [F.count("*").alias("intended"), *(F.count_if(F.col("outcome") == one).alias(one) for one in outcomes)]


@dataclass(frozen=True)
class Load:
    """What a task needs to know; plain values only, because Spark carries it to the executors.

    Attributes:
        run_id: part of every record's key.
        bootstrap: addresses of brokers.
        client: librdkafka properties.
        record_bytes: size of a value.
        seed: of the payload.
        flush_s: bound on waiting for the last reports, in seconds.
        tasks: number of tasks.
        start_ns: start of the phase on the monotonic clock.
        slots: the schedule.
        scenario: the plan, for its arms.
    """

    run_id: str
    bootstrap: str
    client: Mapping[str, str | int | float | bool]
    record_bytes: int
    seed: int
    flush_s: float
    tasks: int
    start_ns: int
    slots: tuple[Slot, ...]
    scenario: Scenario

    @staticmethod
    def of(scenario: Scenario, slots: tuple[Slot, ...], *, run_id: str, bootstrap: str, start_ns: int) -> Load:
        """The load that a scenario asks for."""
        return Load(
            run_id=run_id,
            bootstrap=bootstrap,
            client=dict(scenario.client),
            record_bytes=scenario.record_bytes,
            seed=scenario.seed,
            flush_s=scenario.flush_s,
            tasks=scenario.tasks,
            start_ns=start_ns,
            slots=slots,
            scenario=scenario,
        )


def observations(spark: SparkSession, load: Load) -> DataFrame:
    """The raw observations of a phase; computing them drives the load.

    The result must be consumed exactly once (written to Parquet): computing it again would send again.

    Returns:
        One row per intended record, see ``SCHEMA``.
    """

    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for task in frame["id"]:
                yield from run_task(load, int(task))

    return spark.range(0, load.tasks, 1, load.tasks).mapInPandas(work, schema=SCHEMA)


def run_task(load: Load, task: int) -> Iterator[pd.DataFrame]:
    """Drives one task's share of the load: a thread and a client for each arm.

    Raises:
        RuntimeError: the task began after the start of the phase, so its schedule is void.
    """
    late_ns = time.monotonic_ns() - load.start_ns
    if late_ns > 0:
        raise RuntimeError(f"load task {task} began {late_ns / 1e9:.1f} s after the start of its schedule")
    value = random.Random(load.seed).randbytes(load.record_bytes)  # noqa: S311 - payload, not a secret
    lanes = [
        Lane(
            run_id=load.run_id,
            slots=slots,
            start_ns=load.start_ns,
            value=value,
            task=task,
            tasks=load.tasks,
            flush_s=load.flush_s,
        )
        for _, slots in by_arm(load.slots, load.scenario.arms)
    ]
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        for done in [pool.submit(_drive, load, lane) for lane in lanes]:
            for seen in done.result():
                yield _frame(load, task, seen)


def _drive(load: Load, lane: Lane) -> list[Observations]:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {
        **load.client,
        **FIXED_CLIENT,
        "bootstrap.servers": load.bootstrap,
        "log_level": CLIENT_LOG_LEVEL,
        "client.id": f"rackgate-{lane.slots[0].arm}-{lane.task}",
    }
    producer = Producer(settings)
    with serving(producer.poll):
        return lane.drive(producer)


def _frame(load: Load, task: int, seen: Observations) -> pd.DataFrame:
    return pd.DataFrame(dict(rows(load.run_id, task, load.start_ns, seen)))
