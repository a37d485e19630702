"""Measurements of an arm by other instruments than the pacer: Kafka's own performance tools, and transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.plan.cell_setting import CellSetting
from bench.plan.scenario import InstrumentName
from pyhooks.core.errors import RackgateError

# Length of one measurement in seconds, and the share of its records that warms up the client.
MEASURED_S, WARM_UP_SHARE = 3.0, 0.3
# The tool of end-to-end latency and a transaction handle one record at a time.
SERIAL_RECORDS = 50
TIMEOUT_S = 120.0

# Runs a tool of Kafka against the lab's brokers and returns its output.
RunTool = Callable[[str, list[str]], str]


@dataclass(frozen=True)
class Measurement:
    """Result of one instrument for one arm."""

    records: int  # number of measured records, or of transactions
    # median latency; whole milliseconds for Kafka's tools, which count from send() and not from the intended time; None
    # if the tool does not report it
    p50_ms: float | None
    p99_ms: float | None  # 99th percentile, likewise
    mean_ms: float | None = None  # mean latency
    mb_per_s: float | None = None  # throughput in megabytes per second; None for instruments that wait for each record


def summarise(runs: Sequence[Measurement]) -> dict[str, Any]:
    """Return the median over runs of each figure, the number of all records, and the ``runs`` themselves."""
    plain = [asdict(run) for run in runs]
    figures = {name: [run[name] for run in plain if run[name] is not None] for name in plain[0]}
    medians = {name: float(np.median(values)) if values else None for name, values in figures.items()}
    return {**medians, "records": sum(figures["records"]), "runs": plain}


def producer_perf_test(
    run_tool: RunTool, topic: str, setting: CellSetting, rate_per_s: float, acks: str
) -> Measurement:
    """Measure with ``kafka-producer-perf-test`` at the rate of a cell.

    Raises:
        RackgateError: the tool failed, or its output has no summary.
    """
    warm_up = max(1, round(rate_per_s * MEASURED_S * WARM_UP_SHARE))
    records = warm_up + max(1, round(rate_per_s * MEASURED_S))
    return _perf_test(run_tool, topic, setting, acks, records, warm_up, f"{rate_per_s:g}")


def ceiling(run_tool: RunTool, topic: str, setting: CellSetting, acks: str, size_bytes: int) -> Measurement:
    """Measure the highest throughput with ``kafka-producer-perf-test``, with batches as the Java client makes them.

    The first fifth of ``size_bytes`` warms up the client.

    Raises:
        RackgateError: the tool failed, or its output has no summary.
    """
    records = max(1, size_bytes // setting.record_bytes)
    return _perf_test(run_tool, topic, setting, acks, records, records // 5, "-1")


def _perf_test(
    run_tool: RunTool, topic: str, setting: CellSetting, acks: str, records: int, warm_up: int, throughput: str
) -> Measurement:
    properties = [f"acks={acks}", f"linger.ms={setting.linger_ms}", "compression.type=none"]
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(setting.record_bytes)]
    arguments += ["--command-property", *properties, "--throughput", throughput, "--warmup-records", str(warm_up)]
    return read_perf_summary(run_tool("producer-perf-test", arguments))


_SUMMARY = re.compile(
    r"(\d+) (?:steady state )?records sent, [\d.]+ records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, "
    r"[\d.]+ ms max latency, (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th"
)


def read_perf_summary(output: str) -> Measurement:
    """Read the last summary of ``kafka-producer-perf-test``, which is that of the records after the warm-up.

    Raises:
        RackgateError: there is none.
    """
    summaries = _SUMMARY.findall(output)
    if not summaries:
        raise RackgateError("kafka-producer-perf-test: its output has no summary", detail=output)
    records, mib_per_s, mean, p50, p99 = summaries[-1]
    # the tool divides by 1024 * 1024
    return Measurement(int(records), float(p50), float(p99), float(mean), float(mib_per_s) * 1.048576)


def end_to_end(run_tool: RunTool, bootstrap: str, topic: str, setting: CellSetting, acks: str) -> Measurement:
    """Measure from send() to the consumer's poll() with Kafka's ``EndToEndLatency``, one record at a time.

    Raises:
        RackgateError: the tool failed, or its output has no percentiles.
    """
    arguments = [bootstrap, topic, str(SERIAL_RECORDS), acks, str(setting.record_bytes)]
    output = run_tool("e2e-latency", arguments)
    percentiles = re.search(r"50th = (\d+), 99th = (\d+)", output)
    if percentiles is None:
        raise RackgateError("kafka-e2e-latency: its output has no percentiles", detail=output)
    return Measurement(SERIAL_RECORDS, float(percentiles[1]), float(percentiles[2]))


def transaction(bootstrap: str, topic: str, setting: CellSetting, config: Mapping[str, Any]) -> Measurement:
    """Measure ``commit_transaction`` of transactions of one record each, from the call to its return.

    Raises:
        RackgateError: a transaction failed.
    """
    from confluent_kafka import KafkaException, Producer

    latency_ms: list[float] = []
    try:
        producer = Producer(transactional_properties(bootstrap, topic, setting, config))
        producer.init_transactions(TIMEOUT_S)
        for number in range(SERIAL_RECORDS + 10):
            producer.begin_transaction()
            producer.produce(topic, bytes(setting.record_bytes))
            begun_ns = time.monotonic_ns()
            producer.commit_transaction(TIMEOUT_S)
            # the first ones warm up client and coordinator
            if number >= 10:
                latency_ms.append((time.monotonic_ns() - begun_ns) / 1e6)
    except KafkaException as error:
        raise RackgateError(f"transaction on {topic}: {error}") from error
    p50_ms, p99_ms = np.quantile(latency_ms, [0.5, 0.99])
    return Measurement(len(latency_ms), float(p50_ms), float(p99_ms), float(np.mean(latency_ms)))


def transactional_properties(
    bootstrap: str, topic: str, setting: CellSetting, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the librdkafka properties of a transactional producer."""
    return {
        **config,
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "transactional.id": topic,
        # librdkafka requires message.timeout.ms to be at most this
        "transaction.timeout.ms": round(TIMEOUT_S * 1000),
        "linger.ms": setting.linger_ms,
        "log_level": 2,
    }


def measure(
    instrument: InstrumentName,
    run_tool: RunTool,
    bootstrap: str,
    topic: str,
    setting: CellSetting,
    *,
    rate_per_s: float,
    acks: str,
    client: Mapping[str, Any],
) -> Measurement | None:
    """Measure one arm with an instrument, on a topic with its settings; None if it does not apply.

    A transaction needs acks=all. ``client`` has librdkafka properties.
    """
    if instrument == "producer-perf-test":
        return producer_perf_test(run_tool, topic, setting, rate_per_s, acks)
    if instrument == "end-to-end":
        return end_to_end(run_tool, bootstrap, topic, setting, acks)
    return transaction(bootstrap, topic, setting, client) if acks == "all" else None
