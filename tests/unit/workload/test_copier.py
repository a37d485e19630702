"""Copier: records and the group's offsets in one transaction, and the retry after a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pyhooks.history.event_log import Event, History
from pyhooks.history.outcomes import Acked
from pyhooks.workload import copier
from pyhooks.workload.copier import CopyRun
from pyhooks.workload.producer_clients import (
    ConfluentProducer,
    ProducerRecord,
    ProducerSettings,
    SendResult,
    TransactionError,
)
from pyhooks.workload.producer_plan import ProducerPlan

END_OFFSET = 6


class FakeCluster:
    """Fake cluster: one source partition and the group's committed offset. The steps in ``failing`` fail once."""

    def __init__(self, *failing: str) -> None:
        self.failing = list(failing)
        self.committed_offset = -1001
        self.position = 0
        self.pending: int | None = None
        self.steps: list[str] = []
        self.copier_run: CopyRun | None = None

    def step(self, name: str, *, timeout: bool = False) -> None:
        self.steps.append(name)
        if name in self.failing:
            self.failing.remove(name)
            raise TransactionError("_TIMED_OUT" if timeout else "_STATE", "text")


class FakeProducer(ConfluentProducer):
    """Fake ``ConfluentProducer``: it acknowledges every record at once."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.reports: list[SendResult] = []

    def fetch_metadata(self, topics: Sequence[str]) -> str:  # noqa: ARG002 - the fake needs no metadata
        return ""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        now = time.monotonic_ns()
        self.reports += [SendResult(record.token, now, now, Acked(0, record.token)) for record in records]

    def take(self, timeout_s: float) -> list[SendResult]:
        time.sleep(min(timeout_s, 0.01))
        reports, self.reports = self.reports, []
        return reports

    def init_transactions(self) -> None:
        self.cluster.step("init")

    def begin(self) -> None:
        self.cluster.step("begin")

    def send_offsets(self, offsets: Sequence[Any], group: Any) -> None:
        assert group == "metadata"
        self.cluster.step("offsets")
        (partition,) = offsets
        self.cluster.pending = partition.offset

    def commit(self) -> None:
        self.cluster.step("commit", timeout=True)
        assert self.cluster.pending is not None
        self.cluster.committed_offset = self.cluster.pending

    def abort(self) -> None:
        self.cluster.step("abort")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def release(self) -> None:
        pass


class FakeConsumer:
    """Fake consumer: returns two records per call and stops the copier at the end of the partition."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def subscribe(self, topics: list[str]) -> None:
        assert topics == ["s"]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("s", 0)]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002 - as in the real class
        if "committed" in self.cluster.failing:
            self.cluster.failing.remove("committed")
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        return [TopicPartition("s", 0, self.cluster.committed_offset)]

    def seek(self, place: TopicPartition) -> None:
        self.cluster.steps.append(f"seek {place.offset}")
        self.cluster.position = place.offset

    def consumer_group_metadata(self) -> str:
        return "metadata"

    def consume(self, max_records: int, timeout: float) -> Iterator[Any]:  # noqa: ARG002 - as in the real class
        first = self.cluster.position
        self.cluster.position = min(first + 2, END_OFFSET)
        if first == END_OFFSET:
            assert self.cluster.copier_run is not None
            self.cluster.copier_run.stop.set()
        for offset in range(first, self.cluster.position):
            yield SimpleNamespace(error=lambda: None, partition=lambda: 0, offset=lambda at=offset: at)


def run_copier(monkeypatch: pytest.MonkeyPatch, path: Path, *failing: str) -> tuple[FakeCluster, list[Event]]:
    cluster = FakeCluster(*failing)

    def create_client(_settings: ProducerSettings) -> FakeProducer:
        return FakeProducer(cluster)

    monkeypatch.setattr(copier, "ConfluentProducer", create_client)
    plan = ProducerPlan(
        "b:1", ("d",), 1000, seconds=60, mode="transactional", client="confluent", name="copier", run="c"
    )
    history = History(path / "h.jsonl")
    cluster.copier_run = CopyRun(plan, history, {"d": 1}, "s", FakeConsumer(cluster), "g")
    cluster.copier_run.run()
    cluster.copier_run.note_committed()
    return cluster, list(history.events())


def transactions(events: Sequence[Event]) -> list[tuple[list[int], str | None]]:
    """Return the source offsets (first, next) and the outcome of each transaction."""
    outcomes = {event.data["txn"]: event.outcome for event in events if event.op == "txn"}
    return [(event.data["taken"]["s-0"], outcomes[event.data["txn"]]) for event in events if event.op == "copy"]


def test_all_records_are_copied_with_the_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = run_copier(monkeypatch, tmp_path)
    assert transactions(events) == [([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    assert cluster.steps == ["init", *["begin", "offsets", "commit"] * 3]
    assert [event.data["seq"] for event in events if event.op == "produce"] == [*range(6)]
    (end,) = [event for event in events if event.op == "copied"]
    assert (end.outcome, end.data["committed"]) == ("ok", {"s-0": 6})


def test_rejected_offsets_abort_the_transaction_and_are_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster, events = run_copier(monkeypatch, tmp_path, "offsets")
    assert transactions(events) == [([0, 2], "fail"), ([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    assert cluster.steps[:5] == ["init", "begin", "offsets", "abort", "seek 0"]


def test_after_a_commit_timeout_the_group_offsets_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = run_copier(monkeypatch, tmp_path, "commit", "committed")
    assert transactions(events) == [([0, 2], "unknown"), ([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    # the new client's init ends the open transaction, so the committed offsets are final afterwards
    assert cluster.steps[:6] == ["init", "begin", "offsets", "commit", "init", "seek 0"]


def test_a_transaction_that_cannot_begin_is_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = run_copier(monkeypatch, tmp_path, "begin")
    assert [offsets for offsets, _ in transactions(events)] == [[0, 2], [2, 4], [4, 6]]
    assert cluster.steps[:4] == ["init", "begin", "init", "seek 0"]
    assert len({event.data["key"] for event in events if event.op == "produce"}) == 6


def test_without_the_coordinator_the_result_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, events = run_copier(monkeypatch, tmp_path, "committed")
    (end,) = [event for event in events if event.op == "copied"]
    assert end.outcome == "unknown"
    assert end.data["error"]
