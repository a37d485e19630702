"""Arrival times of records, reported by a consumer that follows topics; the broker is a list here."""

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
class Broker:
    """A consumer that gets a record every 10 ms, by a clock of its own, an error among them, and is then stopped."""

    left: list[str | None] = field(default_factory=lambda: ["k-0", "k-1", None, "k-2"])
    now_ns: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def poll(self, _timeout_s: float) -> Any:
        self.now_ns += STEP_NS
        if not self.left:
            self.ended.set()
            return None
        key = self.left.pop(0)
        error = None if key else "a broker is away"
        return SimpleNamespace(error=lambda: error, topic=lambda: "t", key=lambda: (key or "").encode())

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None})})

    def assign(self, places: list[Any]) -> None:
        assert [(one.topic, one.partition) for one in places] == [("t", 0)]

    def close(self) -> None:
        self.left = []


def test_each_record_has_its_arrival_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broker = Broker()
    monkeypatch.setattr(arrivals, "Consumer", lambda _config: broker)
    monkeypatch.setattr("time.monotonic_ns", lambda: broker.now_ns)
    history = History(tmp_path / "history.jsonl")
    note_arrivals("nobody:9092", ["t"], history, broker.ended)
    (event,) = [one for one in history.events() if one.op == "fetched"]
    assert event.data["keys"] == ["k-0", "k-1", "k-2"]
    # not all at once, as one call for many would have had it
    assert [event.mono_ns - ago_ms * 1e6 for ago_ms in event.data["ago_ms"]] == [STEP_NS, 2 * STEP_NS, 4 * STEP_NS]
