"""Arrival times of records in the events of a consumer that follows topics. The consumer is a fake."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.history.event_log import History
from pyhooks.workload import arrivals
from pyhooks.workload.arrivals import note_arrivals

STEP_NS = 10_000_000


@dataclass
class FakeConsumer:
    """Fake consumer with its own clock: returns a record or an error every 10 ms, and ends the run after the last."""

    scripted_keys: list[str | None] = field(default_factory=lambda: ["k-0", "k-1", None, "k-2"])
    now_ns: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def poll(self, _timeout_s: float) -> Any:
        self.now_ns += STEP_NS
        if not self.scripted_keys:
            self.ended.set()
            return None
        key = self.scripted_keys.pop(0)
        error = None if key else "a broker is unavailable"
        return SimpleNamespace(error=lambda: error, topic=lambda: "t", key=lambda: (key or "").encode())

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None})})

    def assign(self, partitions: list[Any]) -> None:
        assert [(each.topic, each.partition) for each in partitions] == [("t", 0)]

    def close(self) -> None:
        self.scripted_keys = []


def test_each_record_has_its_arrival_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    consumer = FakeConsumer()
    monkeypatch.setattr(arrivals, "Consumer", lambda _config: consumer)
    monkeypatch.setattr("time.monotonic_ns", lambda: consumer.now_ns)
    history = History(tmp_path / "history.jsonl")
    note_arrivals("no-consumer:9092", ["t"], history, consumer.ended)
    (event,) = [event for event in history.events() if event.op == "fetched"]
    assert event.data["keys"] == ["k-0", "k-1", "k-2"]
    # each record has its own arrival time, although they are written in one event
    assert [event.mono_ns - ago_ms * 1e6 for ago_ms in event.data["ago_ms"]] == [STEP_NS, 2 * STEP_NS, 4 * STEP_NS]
