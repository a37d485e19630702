"""Following a history while it grows, and small parts of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.watch import history_tail as record_module
from pyhooks.watch.cli import watched_cluster
from pyhooks.watch.history_tail import HistoryTail
from pyhooks.watch.observation import ANY_PARTITION, ProduceCounts
from untyped_events import note


def test_counts_and_faults_of_a_growing_history(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    followed = HistoryTail(history.path)
    followed.step()
    assert (followed.produced, followed.faults, followed.problem) == ({}, (), "")
    note(history, "probe", "produce", "ok", topic="t", key="k", partition=0, offset=5)
    note(history, "probe", "produce", "fail", topic="t", key="k", partition=None, exception="x.NotEnoughRacksException")
    note(history, "probe", "produce", "unknown", topic="t", key="k", partition=None)
    note(history, "metrics", "metric", "ok", values={"x": 1}, topic="t", key="k")
    note(history, "fault", "cut-rack", "ok", rack="b", step="before", probes={})
    begun = note(history, "fault", "cut-rack", None, rack="b", step="inject")
    note(history, "fault", "cut-rack", "ok", rack="b", step="proved", probes={"a": False})
    note(history, "fault", "pause-broker", None, rack="a", step="inject", broker=2)
    followed.step()
    assert followed.produced == {("t", 0): ProduceCounts(1, 0, 0), ("t", ANY_PARTITION): ProduceCounts(0, 1, 1)}
    cut, pause = followed.faults
    assert (cut.op, cut.rack, cut.target, cut.step, cut.proved) == ("cut-rack", "b", "", "proved", True)
    assert cut.injected_ns == begun.mono_ns
    assert (pause.op, pause.target, pause.step, pause.proved) == ("pause-broker", "2", "inject", None)
    note(history, "fault", "cut-rack", "unknown", rack="b", step="held", probes={"a": True})
    followed.step()
    assert followed.faults[0].proved is False


def test_an_incomplete_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    line = Event(1, 1, "p", "produce", "ok", None, {"topic": "t", "key": "k"}).line()
    path.write_text(line[:50], encoding="utf-8")
    followed = HistoryTail(path)
    followed.step()
    assert followed.produced == {}
    path.write_text(line + 'rubbish about "op":"produce"\n' + line, encoding="utf-8")
    followed.step()
    assert followed.produced == {("t", ANY_PARTITION): ProduceCounts(2)}
    assert "1 lines can't be read" in followed.problem


def test_a_long_history_is_read_in_bounded_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "STEP_BYTES", 1000)
    history = History(tmp_path / "h.jsonl")
    for _ in range(50):
        note(history, "probe", "produce", "ok", topic="t", key="k", partition=0)
    followed = HistoryTail(history.path)
    steps = 0
    while not steps or followed.behind_bytes:
        followed.step()
        steps += 1
    assert steps > 5
    assert followed.produced == {("t", 0): ProduceCounts(50)}


def test_a_history_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="can't be read"):
        HistoryTail(tmp_path).step()


def test_without_a_lab_a_cluster_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    with pytest.raises(RackgateError, match="not inside a lab"):
        watched_cluster(None, None)
    target = watched_cluster("h:1", None)
    assert (target.bootstrap, target.sources, target.history) == ("h:1", (), None)
