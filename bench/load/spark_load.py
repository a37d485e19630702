"""Load as a Spark job: each task drives all arms of the load, with its share of the records of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import BarrierTaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench.load import clock_offsets, executors
from bench.load.pacer import ACKED, FAILED, UNKNOWN, ArmPacer, PacedClient, columns, serving_reports
from bench.load.schedule import Slot, by_arm

if TYPE_CHECKING:
    from bench.plan.cell_setting import ClientKind

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
# From the moment when all tasks of a load are ready to its start, in nanoseconds. Longer than a second, because
# a task waits at the barrier in steps of one second.
START_DELAY_NS = 1_300_000_000


def outcome_counts() -> list[Column]:
    """Return columns for ``agg``: the number of ``intended`` records, and of those with each outcome, by its name."""
    outcomes = [F.count_if(F.col("outcome") == name).alias(name) for name in (ACKED, FAILED, UNKNOWN)]
    return [F.count("*").alias("intended"), *outcomes]


@dataclass(frozen=True)
class SparkLoad:
    """Input of a task; plain values only, because Spark sends it to the executors."""

    run_id: str  # part of every record's key
    name: str  # name of the load, unique in the run; part of every record's key
    bootstrap: str
    # properties of the producer, without addresses and acks
    config: Mapping[str, str | int | float | bool] = field(repr=False)  # passwords may be in it
    record_bytes: int
    seed: int  # seed of the payload
    flush_s: float  # bound on waiting for the last reports, in seconds
    slots: tuple[Slot, ...]
    cell: str | None = None
    state: str | None = "outage"  # of the cell, or ``outage``
    client: ClientKind = "confluent"
    tasks: int = 1
    partitions: int = 1  # number of partitions of each topic
    # ids of the arms whose producer uses ``acks=1``; the others use ``acks=all``
    leader_only: frozenset[str] = frozenset()
    # result of ``bench.load.clock_offsets.host_offsets``; for hosts that can't reach the driver
    known_offsets_ns: Mapping[str, int] = field(default_factory=dict)


def observations(spark: SparkSession, load: SparkLoad, driver: clock_offsets.DriverAddress) -> DataFrame:
    """Return the raw observations of a load; computing them drives it.

    All tasks run at the same time, in a barrier stage, and start together when the last one is ready. The result must
    be consumed exactly once (written to Parquet): computing it again would send the records again.

    Returns:
        One row per intended record, see ``SCHEMA``.
    """

    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for task in frame["id"]:
                yield from run_task(load, int(task), lambda: _agree_on_start(load, driver))

    return spark.range(0, load.tasks, 1, load.tasks).mapInPandas(work, schema=SCHEMA, barrier=True)


def _agree_on_start(load: SparkLoad, driver: clock_offsets.DriverAddress) -> int:
    """Wait until all tasks are ready; report the start of the load to the driver, and return it on this clock."""
    reading = clock_offsets.read_clocks(driver.address)
    ahead_ns = clock_offsets.ahead_of_driver_ns(reading, driver.boot_id, load.known_offsets_ns)
    context = BarrierTaskContext.get()
    ready_ns = context.allGather(str(time.monotonic_ns() - ahead_ns))
    start_ns = max(map(int, ready_ns)) + START_DELAY_NS
    # one report is enough, because not every host may reach the driver
    with suppress(OSError):
        clock_offsets.report_start(driver.address, start_ns)
    return start_ns + ahead_ns


def run_task(load: SparkLoad, task: int, agree_on_start: Callable[[], int]) -> Iterator[pd.DataFrame]:
    """Drive one task's share of the load, with a thread and a client for each arm.

    ``agree_on_start`` is called when all clients are ready; it returns the start of the load on this host's clock.

    Raises:
        RuntimeError: this host's clock can't be compared with the driver's.
    """
    executors.use_sent_client()
    client_of = _librdkafka_client
    if load.client == "java":
        executors.use_sent_jars()
        client_of = _java_client
    value = random.Random(load.seed).randbytes(load.record_bytes)  # noqa: S311 - payload, not a secret
    arms = list(by_arm(load.slots).values())
    labels = {
        "run_id": load.run_id,
        "load": load.name,
        "host": executors.executor_name(),
        "cell": load.cell,
        "state": load.state,
    }
    with ExitStack() as stack:
        clients = [stack.enter_context(client_of(load, slots, task)) for slots in arms]
        start_ns = agree_on_start()
        pacers = [
            ArmPacer(
                run_id=load.run_id,
                load=load.name,
                slots=slots,
                start_ns=start_ns,
                value=value,
                task=task,
                tasks=load.tasks,
                flush_s=load.flush_s,
                partitions=load.partitions,
            )
            for slots in arms
        ]
        with ThreadPoolExecutor(max_workers=len(pacers)) as pool:
            running = [pool.submit(pacer.drive, client) for pacer, client in zip(pacers, clients, strict=True)]
            for done in running:
                frames = [pd.DataFrame(columns(slot, start_ns, labels, task)) for slot in done.result()]
                yield pd.concat(frames, ignore_index=True)


def _client_config(load: SparkLoad, arm: str) -> dict[str, str | int | float | bool]:
    """Return the properties of an arm's producer without the addresses; idempotence requires acks=all."""
    if arm in load.leader_only:
        return {**load.config, "acks": "1", "enable.idempotence": False}
    return {**load.config, "acks": "all"}


@contextmanager
def _librdkafka_client(load: SparkLoad, slots: tuple[Slot, ...], task: int) -> Iterator[PacedClient]:
    from confluent_kafka import Producer

    arm = slots[0].arm
    config: dict[str, Any] = {
        **_client_config(load, arm),
        "bootstrap.servers": load.bootstrap,
        "log_level": CLIENT_LOG_LEVEL,
        "client.id": f"rackgate-{arm}-{task}",
    }
    producer = Producer(config)
    with serving_reports(producer.poll):
        yield producer


@contextmanager
def _java_client(load: SparkLoad, slots: tuple[Slot, ...], task: int) -> Iterator[PacedClient]:  # noqa: ARG001 - as above
    from bench.load.java_client import CLOSE_S, JavaClient
    from pyhooks.jvm.producer import Producer

    config = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in _client_config(load, slots[0].arm).items()
    }
    topics = sorted({slot.topic for slot in slots})
    client = JavaClient(Producer(load.bootstrap, config, close_timeout_s=CLOSE_S), topics)
    try:
        yield client
    finally:
        client.purge()
