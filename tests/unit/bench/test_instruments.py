"""Kafka's own benchmark tools, and the comparison of stock Kafka with the overlay."""

from __future__ import annotations

import math

import pytest
from confluent_kafka import KafkaException, Producer

from bench.plan import scenarios
from bench.plan.cell_setting import CellSetting
from bench.run import instruments, overlay_cost
from pyhooks.core.errors import RackgateError

PERF_OUTPUT = (
    "12 records sent, 2.4 records/sec (0.00 MB/sec), 99.1 ms avg latency, 300.0 ms max latency.\n"
    "156 records sent, 39.9 records/sec (0.04 MB/sec), 30.10 ms avg latency, 310.00 ms max latency,"
    " 26 ms 50th, 40 ms 95th, 300 ms 99th, 310 ms 99.9th.\n"
    "120 steady state records sent, 40.1 records/sec (10.00 MB/sec), 25.50 ms avg latency, 61.00 ms max latency,"
    " 24 ms 50th, 33 ms 95th, 48 ms 99th, 61 ms 99.9th.\n"
)
SETTING = CellSetting(record_bytes=100, linger_ms=5)


def test_the_perf_summary_after_the_warm_up_is_read() -> None:
    summary = instruments.read_perf_summary(PERF_OUTPUT)
    assert (summary.records, summary.p50_ms, summary.p99_ms, summary.mean_ms) == (120, 24, 48, 25.5)
    # One MB of the tool is 1024 * 1024 bytes.
    assert summary.mb_per_s == pytest.approx(10.48576)
    with pytest.raises(RackgateError):
        instruments.read_perf_summary("12 records sent, 2.4 records/sec\n")


@pytest.mark.parametrize(("acks", "rate"), [("all", 40.0), ("1", 2000.0)])
def test_the_perf_test_uses_the_setting_of_the_cell(acks: str, rate: float) -> None:
    calls: list[tuple[str, list[str]]] = []

    def run_tool(name: str, arguments: list[str]) -> str:
        calls.append((name, arguments))
        return PERF_OUTPUT

    instruments.producer_perf_test(run_tool, "t", SETTING, rate, acks)
    instruments.ceiling(run_tool, "t", SETTING, acks, 1_000_000)
    (name, paced), (_, unthrottled) = calls
    assert name == "producer-perf-test"
    options = dict(zip(paced[::2], paced[1::2], strict=False))
    assert (options["--throughput"], options["--record-size"]) == (f"{rate:g}", "100")
    assert {f"acks={acks}", "linger.ms=5"} <= set(paced)
    assert 0 < int(paced[paced.index("--warmup-records") + 1]) < int(options["--num-records"])
    assert unthrottled[unthrottled.index("--num-records") + 1] == "10000"
    assert unthrottled[unthrottled.index("--throughput") + 1] == "-1"


def test_end_to_end_latency_is_read_from_the_output() -> None:
    output = "Avg latency: 31.2310 ms\n\nPercentiles: 50th = 29, 99th = 61, 99.9th = 77\n"
    latency = instruments.end_to_end(lambda _name, _arguments: output, "b:1", "t", SETTING, "all")
    assert (latency.p50_ms, latency.p99_ms, latency.mb_per_s) == (29, 61, None)
    with pytest.raises(RackgateError):
        instruments.end_to_end(lambda _name, _arguments: "Error", "b:1", "t", SETTING, "all")


def test_a_transaction_does_not_apply_to_acks_1() -> None:
    measurement = instruments.measure(
        "transaction", lambda _name, _arguments: "", "b:1", "t", SETTING, rate_per_s=1, acks="1", client={}
    )
    assert measurement is None


@pytest.mark.parametrize("name", ["question", "full", "tail", "existing"])
def test_librdkafka_accepts_the_properties_of_transactions(name: str) -> None:
    client = scenarios.load(name).client
    properties = instruments.transactional_properties("127.0.0.1:1", "t", SETTING, client)
    assert isinstance(Producer(properties), Producer)
    # it would reject a shorter transaction
    with pytest.raises(KafkaException):
        Producer({**properties, "transaction.timeout.ms": 1000})


def rows(ratio: float, *, base: float) -> list[dict[str, object]]:
    """Return the rows of a round in which the overlay has ``ratio`` times the throughput of stock."""
    return [
        {"arm": arm.label, "partitions": partitions, "ceiling": {"mb_per_s": base if arm.stock else base * ratio}}
        | ({"latency": {"mean_ms": 10.0}} if partitions == 1 else {})
        for arm in overlay_cost.ARMS
        for partitions in overlay_cost.PARTITIONS
    ]


def test_each_round_is_one_observation_of_the_ratio_to_stock() -> None:
    # Throughput differs tenfold between rounds; the ratios hardly differ.
    table = overlay_cost.summarise([rows(0.97, base=10), rows(1.0, base=100), rows(1.03, base=40)])
    by_key = {(row["arm"], row["partitions"], row["quantity"]): row for row in table}
    ratio = by_key["overlay, R=2", 8, "MB/s"]["ratio"]
    assert ratio["point"] == pytest.approx(math.exp((math.log(0.97) + math.log(1.03)) / 3))
    assert 0.9 < ratio["low"] < 0.97
    assert 1.03 < ratio["high"] < 1.1
    assert by_key["overlay, R=1", 1, "mean latency, ms"]["ratio"] == {"low": 1, "point": 1, "high": 1}
    assert by_key["stock", 8, "MB/s"]["ratio"] is None
    assert ("stock", 8, "mean latency, ms") not in by_key
    assert overlay_cost.summarise([rows(1.0, base=1)])[1]["ratio"] is None
