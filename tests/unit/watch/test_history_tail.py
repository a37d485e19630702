"""Tail of a growing history, and the choice of the watched cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.watch import history_tail
from pyhooks.watch.cli import watched_cluster
from pyhooks.watch.history_tail import HistoryTail
from pyhooks.watch.observation import ANY_PARTITION, ProduceCounts
from untyped_events import note


def test_produce_counts_and_faults_are_updated(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    tail = HistoryTail(history.path)
    tail.step()
    assert (tail.produced, tail.faults, tail.problem) == ({}, (), "")
    note(history, "probe", "produce", "ok", topic="t", key="k", partition=0, offset=5)
    note(history, "probe", "produce", "fail", topic="t", key="k", partition=None, exception="x.NotEnoughRacksException")
    note(history, "probe", "produce", "unknown", topic="t", key="k", partition=None)
    note(history, "metrics", "metric", "ok", values={"x": 1}, topic="t", key="k")
    note(history, "fault", "cut-rack", "ok", rack="b", step="before", probes={})
    injected = note(history, "fault", "cut-rack", None, rack="b", step="inject")
    note(history, "fault", "cut-rack", "ok", rack="b", step="proved", probes={"a": False})
    note(history, "fault", "pause-broker", None, rack="a", step="inject", broker=2)
    tail.step()
    assert tail.produced == {("t", 0): ProduceCounts(1, 0, 0), ("t", ANY_PARTITION): ProduceCounts(0, 1, 1)}
    cut, pause = tail.faults
    assert (cut.op, cut.rack, cut.target, cut.step, cut.proved) == ("cut-rack", "b", "", "proved", True)
    assert cut.injected_ns == injected.mono_ns
    assert (pause.op, pause.target, pause.step, pause.proved) == ("pause-broker", "2", "inject", None)
    note(history, "fault", "cut-rack", "unknown", rack="b", step="held", probes={"a": True})
    tail.step()
    assert tail.faults[0].proved is False


def test_an_incomplete_line_is_read_after_it_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    line = Event(1, 1, "p", "produce", "ok", None, {"topic": "t", "key": "k"}).line()
    path.write_text(line[:50], encoding="utf-8")
    tail = HistoryTail(path)
    tail.step()
    assert tail.produced == {}
    path.write_text(line + 'malformed line with "op":"produce"\n' + line, encoding="utf-8")
    tail.step()
    assert tail.produced == {("t", ANY_PARTITION): ProduceCounts(2)}
    assert "1 lines can't be read" in tail.problem


def test_a_long_history_is_read_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_tail, "STEP_BYTES", 1000)
    history = History(tmp_path / "h.jsonl")
    for _ in range(50):
        note(history, "probe", "produce", "ok", topic="t", key="k", partition=0)
    tail = HistoryTail(history.path)
    steps = 0
    while not steps or tail.behind_bytes:
        tail.step()
        steps += 1
    assert steps > 5
    assert tail.produced == {("t", 0): ProduceCounts(50)}


def test_a_history_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="can't be read"):
        HistoryTail(tmp_path).step()


def test_outside_a_lab_a_bootstrap_address_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    with pytest.raises(RackgateError, match="not inside a lab"):
        watched_cluster(None, None)
    target = watched_cluster("h:1", None)
    assert (target.bootstrap, target.sources, target.history) == ("h:1", (), None)
