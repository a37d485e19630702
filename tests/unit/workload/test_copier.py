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

SIZE = 6


class Cluster:
    """One partition to read, and what the group has committed of it; some steps fail once."""

    def __init__(self, *fails: str) -> None:
        self.fails = list(fails)
        self.committed_to = -1001
        self.at = 0
        self.pending: int | None = None
        self.steps: list[str] = []
        self.copying: CopyRun | None = None

    def step(self, name: str, *, lost: bool = False) -> None:
        self.steps.append(name)
        if name in self.fails:
            self.fails.remove(name)
            raise TransactionError("_TIMED_OUT" if lost else "_STATE", "so")


class Client(ConfluentProducer):
    """In place of librdkafka's producer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.reports: list[SendResult] = []

    def learn(self, topics: Sequence[str]) -> str:  # noqa: ARG002 - there are no leaders
        return ""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        now = time.monotonic_ns()
        self.reports += [SendResult(one.token, now, now, Acked(0, one.token)) for one in records]

    def take(self, timeout_s: float) -> list[SendResult]:
        time.sleep(min(timeout_s, 0.01))
        taken, self.reports = self.reports, []
        return taken

    def init_transactions(self) -> None:
        self.cluster.step("init")

    def begin(self) -> None:
        self.cluster.step("begin")

    def send_offsets(self, offsets: Sequence[Any], group: Any) -> None:
        assert group == "metadata"
        self.cluster.step("offsets")
        (one,) = offsets
        self.cluster.pending = one.offset

    def commit(self) -> None:
        self.cluster.step("commit", lost=True)
        assert self.cluster.pending is not None
        self.cluster.committed_to = self.cluster.pending

    def abort(self) -> None:
        self.cluster.step("abort")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def release(self) -> None:
        pass


class Consumer:
    """Gives two records at a time; at the end of the partition the copier is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def subscribe(self, topics: list[str]) -> None:
        assert topics == ["s"]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("s", 0)]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002 - ours
        if "committed" in self.cluster.fails:
            self.cluster.fails.remove("committed")
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        return [TopicPartition("s", 0, self.cluster.committed_to)]

    def seek(self, place: TopicPartition) -> None:
        self.cluster.steps.append(f"seek {place.offset}")
        self.cluster.at = place.offset

    def consumer_group_metadata(self) -> str:
        return "metadata"

    def consume(self, most: int, timeout: float) -> Iterator[Any]:  # noqa: ARG002 - librdkafka's
        first = self.cluster.at
        self.cluster.at = min(first + 2, SIZE)
        if first == SIZE:
            assert self.cluster.copying is not None
            self.cluster.copying.stop.set()
        for offset in range(first, self.cluster.at):
            yield SimpleNamespace(error=lambda: None, partition=lambda: 0, offset=lambda at=offset: at)


def copied(monkeypatch: pytest.MonkeyPatch, path: Path, *fails: str) -> tuple[Cluster, list[Event]]:
    cluster = Cluster(*fails)

    def made(_settings: ProducerSettings) -> Client:
        return Client(cluster)

    monkeypatch.setattr(copier, "ConfluentProducer", made)
    plan = ProducerPlan(
        "b:1", ("d",), 1000, seconds=60, mode="transactional", client="confluent", name="copier", run="c"
    )
    history = History(path / "h.jsonl")
    cluster.copying = CopyRun(plan, history, {"d": 1}, "s", Consumer(cluster), "g")
    cluster.copying.run()
    cluster.copying.note_committed()
    return cluster, list(history.events())


def taken(events: Sequence[Event]) -> list[tuple[list[int], str | None]]:
    """Records and result of each transaction."""
    ends = {one.data["txn"]: one.outcome for one in events if one.op == "txn"}
    return [(one.data["taken"]["s-0"], ends[one.data["txn"]]) for one in events if one.op == "copy"]


def test_all_records_are_copied_with_the_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = copied(monkeypatch, tmp_path)
    assert taken(events) == [([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    assert cluster.steps == ["init", *["begin", "offsets", "commit"] * 3]
    assert [one.data["seq"] for one in events if one.op == "produce"] == [*range(6)]
    (end,) = [one for one in events if one.op == "copied"]
    assert (end.outcome, end.data["committed"]) == ("ok", {"s-0": 6})


def test_refused_offsets_abort_the_transaction_and_are_retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = copied(monkeypatch, tmp_path, "offsets")
    assert taken(events) == [([0, 2], "fail"), ([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    assert cluster.steps[:5] == ["init", "begin", "offsets", "abort", "seek 0"]


def test_an_uncertain_commit_is_settled_by_the_group_s_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = copied(monkeypatch, tmp_path, "commit", "committed")
    assert taken(events) == [([0, 2], "unknown"), ([0, 2], "ok"), ([2, 4], "ok"), ([4, 6], "ok")]
    # another client ends what the first one left open; only then the group knows
    assert cluster.steps[:6] == ["init", "begin", "offsets", "commit", "init", "seek 0"]


def test_a_transaction_that_cannot_begin_is_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, events = copied(monkeypatch, tmp_path, "begin")
    assert [one for one, _ in taken(events)] == [[0, 2], [2, 4], [4, 6]]
    assert cluster.steps[:4] == ["init", "begin", "init", "seek 0"]
    assert len({one.data["key"] for one in events if one.op == "produce"}) == 6


def test_without_the_coordinator_the_result_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, events = copied(monkeypatch, tmp_path, "committed")
    (end,) = [one for one in events if one.op == "copied"]
    assert end.outcome == "unknown"
    assert end.data["error"]
