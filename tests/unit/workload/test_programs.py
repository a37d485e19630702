"""Code shared by workload programs: error reporting, and the events of arrived records."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.workload import arrivals, program


def fail(error: Exception) -> None:
    raise error


def test_expected_errors_are_printed_and_exit_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run_reporting_errors(lambda: None) == 0
    assert program.run_reporting_errors(lambda: fail(RackgateError("no broker responds"))) == 2
    assert capsys.readouterr().err == "error: no broker responds\n"
    assert program.run_reporting_errors(lambda: fail(KeyError("x")), KeyError) == 2
    with pytest.raises(KeyError):
        program.run_reporting_errors(lambda: fail(KeyError("x")))


class FakeConsumer:
    """Fake consumer: returns a record of topic ``t``, an error, nothing, and a second record; then sets ``ended``."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended
        self.closed = False
        self.assigned: list[tuple[str, int]] = []
        self.scripted: list[tuple[bytes, str | None] | None] = [
            (b"k1", None),
            (b"", "broker down"),
            None,
            (b"k2", None),
        ]

    def list_topics(self, timeout: float) -> Any:
        assert timeout == arrivals.REQUEST_S
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None, 1: None})})

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(partition.topic, partition.partition) for partition in partitions]

    def poll(self, timeout: float) -> Any:
        assert timeout == arrivals.POLL_S
        found = self.scripted.pop(0)
        if not self.scripted:
            self.ended.set()
        if found is None:
            return None
        key, error = found
        return SimpleNamespace(error=lambda: error, topic=lambda: "t", key=lambda: key)

    def close(self) -> None:
        self.closed = True


def test_arrived_records_are_listed_by_key_without_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, path = threading.Event(), tmp_path / "h"
    consumer = FakeConsumer(ended)
    monkeypatch.setattr(arrivals, "Consumer", lambda _: consumer)
    arrivals.note_arrivals("x:1", ["t"], History(path), ended)
    assert consumer.assigned == [("t", 0), ("t", 1)]
    assert consumer.closed
    (event,) = History(path).events()
    assert (event.process, event.op, event.data["topic"]) == ("follower", "fetched", "t")
    assert event.data["keys"] == ["k1", "k2"]
    assert all(0 <= ago_ms < 5000 for ago_ms in event.data["ago_ms"])


def test_a_missing_topic_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(arrivals, "Consumer", lambda _: FakeConsumer(ended))
    with pytest.raises(RackgateError, match="the cluster has no u"):
        arrivals.note_arrivals("x:1", ["t", "u"], History(tmp_path / "h"), ended)
