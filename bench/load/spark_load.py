"""Load as a Spark job: each task drives all arms of the load, with its share of the records of each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench.load import clock_offsets, executors
from bench.load.pacer import ACKED, FAILED, UNKNOWN, ArmPacer, Observations, columns, serving_reports
from bench.load.schedule import Slot, by_arm
from bench.plan import cell_setting

# Times are nanoseconds of the monotonic clock of the host that ran the task; 0 or -1 if there is none. ``load`` names
# the job that sent a record, ``host`` the executor. ``cell`` and ``state`` are those of the plan; the outage phase has
# no cell.
SCHEMA = (
    "run_id string, load string, host string, cell string, state string, phase string, block int, arm string,"
    " topic string, task int, seq long, measured boolean, intended_ns long, sent_ns long, done_ns long, client_us long,"
    " outcome string, error string, partition int, offset long"
)
# Critical messages only: under a fault librdkafka would log every connection that it loses.
CLIENT_LOG_LEVEL = 2
# Text that identifies the error of a late load; the caller may repeat the load with more lead time.
LATE = "after the start of its schedule"


def outcome_counts() -> list[Column]:
    """Return columns for ``agg``: the number of ``intended`` records, and of those with each outcome, by its name."""
    outcomes = [F.count_if(F.col("outcome") == name).alias(name) for name in (ACKED, FAILED, UNKNOWN)]
    return [F.count("*").alias("intended"), *outcomes]


@dataclass(frozen=True)
class SparkLoad:
    """Input of a task; plain values only, because Spark sends it to the executors.

    Attributes:
        run_id: part of every record's key.
        name: name of the load, unique in the run; part of every record's key.
        state: state of the cell, or ``outage``.
        config: properties of the producer, without addresses and acks.
        seed: seed of the payload.
        flush_s: bound on waiting for the last reports, in seconds.
        start_ns: start of the load on the monotonic clock of the driver.
        leader_only: ids of the arms whose producer uses ``acks=1``; the others use ``acks=all``.
        ahead_ns: result of ``bench.load.clock_offsets.host_offsets``; empty if all tasks run on the driver's host.
    """

    run_id: str
    name: str
    cell: str | None
    state: str | None
    bootstrap: str
    client: cell_setting.ClientKind
    config: Mapping[str, str | int | float | bool] = field(repr=False)  # passwords may be in it
    record_bytes: int
    seed: int
    flush_s: float
    tasks: int
    start_ns: int
    slots: tuple[Slot, ...]
    leader_only: frozenset[str] = frozenset()
    ahead_ns: Mapping[str, int] = field(default_factory=dict)


def observations(spark: SparkSession, load: SparkLoad) -> DataFrame:
    """Return the raw observations of a load; computing them drives it.

    The result must be consumed exactly once (written to Parquet): computing it again would send the records again.

    Returns:
        One row per intended record, see ``SCHEMA``.
    """

    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for task in frame["id"]:
                yield from run_task(load, int(task))

    return spark.range(0, load.tasks, 1, load.tasks).mapInPandas(work, schema=SCHEMA)


def run_task(load: SparkLoad, task: int) -> Iterator[pd.DataFrame]:
    """Drive one task's share of the load, with a thread and a client for each arm.

    Raises:
        RuntimeError: the task was ready only after the start of the load, so its schedule is void; or this host's clock
            was not compared.
    """
    executors.use_sent_client()
    load = replace(load, start_ns=clock_offsets.host_time(load.start_ns, load.ahead_ns, clock_offsets.boot_id()))
    value = random.Random(load.seed).randbytes(load.record_bytes)  # noqa: S311 - payload, not a secret
    pacers = [
        ArmPacer(
            run_id=load.run_id,
            load=load.name,
            slots=slots,
            start_ns=load.start_ns,
            value=value,
            task=task,
            tasks=load.tasks,
            flush_s=load.flush_s,
        )
        for slots in by_arm(load.slots).values()
    ]
    drive = _drive
    if load.client == "java":
        executors.use_sent_jars()
        drive = _drive_java
    labels = {
        "run_id": load.run_id,
        "load": load.name,
        "host": executors.executor_name(),
        "cell": load.cell,
        "state": load.state,
    }
    with ThreadPoolExecutor(max_workers=len(pacers)) as pool:
        for done in [pool.submit(drive, load, pacer) for pacer in pacers]:
            frames = [pd.DataFrame(columns(slot, load.start_ns, labels, task)) for slot in done.result()]
            yield pd.concat(frames, ignore_index=True)


def _check_start(load: SparkLoad, task: int) -> None:
    late_ns = time.monotonic_ns() - load.start_ns
    if late_ns > 0:
        raise RuntimeError(f"load task {task} was ready {late_ns / 1e9:.1f} s {LATE}")


def _client_config(load: SparkLoad, pacer: ArmPacer) -> dict[str, str | int | float | bool]:
    """Return the properties of an arm's producer without the addresses; idempotence requires acks=all."""
    if pacer.slots[0].arm in load.leader_only:
        return {**load.config, "acks": "1", "enable.idempotence": False}
    return {**load.config, "acks": "all"}


def _drive(load: SparkLoad, pacer: ArmPacer) -> list[Observations]:
    from confluent_kafka import Producer

    config: dict[str, Any] = {
        **_client_config(load, pacer),
        "bootstrap.servers": load.bootstrap,
        "log_level": CLIENT_LOG_LEVEL,
        "client.id": f"rackgate-{pacer.slots[0].arm}-{pacer.task}",
    }
    producer = Producer(config)
    _check_start(load, pacer.task)
    with serving_reports(producer.poll):
        return pacer.drive(producer)


def _drive_java(load: SparkLoad, pacer: ArmPacer) -> list[Observations]:
    from bench.load.java_client import CLOSE_S, JavaClient
    from pyhooks.jvm.producer import Producer

    config = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in _client_config(load, pacer).items()
    }
    topics = sorted({slot.topic for slot in pacer.slots})
    client = JavaClient(Producer(load.bootstrap, config, close_timeout_s=CLOSE_S), topics)
    try:
        _check_start(load, pacer.task)
        return pacer.drive(client)
    finally:
        client.purge()
