"""Order of forks and their parsed results, with scripted JVMs."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import jmh_plan, jmh_runner
from pyhooks.verify.jmh_plan import QUICK, JmhCell
from pyhooks.verify.jmh_runner import JmhRunner, Turns

CELLS = tuple(JmhCell(side, "Some.benchmark", (("racks", "1"),)) for side in ("stock", "overlay", "control"))
ITERATIONS = 5


def jmh_entry(score: float, fastest_ns: list[float], bytes_: list[float]) -> dict[str, Any]:
    """Return JMH's result of a fork; ``fastest_ns`` is 0 for an iteration without a complete slice."""
    return {
        "primaryMetric": {"score": score},
        "secondaryMetrics": {
            "fastestSliceNs": {"rawData": [fastest_ns]},
            # the median slice of each iteration takes twice as long as its fastest
            "medianSliceNs": {"rawData": [[ns * 2 for ns in fastest_ns]]},
            "gc.alloc.rate.norm": {"rawData": [bytes_]},
        },
    }


class FakeJvms:
    """Fake ``process.run`` and ``end_processes_in``.

    ``run`` uses the pipes like ``Turn.java`` and records the order of turns. ``end`` ends the JVMs that have started.
    """

    def __init__(self, fails_at: tuple[str, int] = ("", 0)) -> None:
        self.turns: list[str] = []
        self.running = self.started = 0
        self.fails_at = fails_at
        self.ended_in: set[Path] = set()
        self.alive: set[int] = set()

    def end(self, folder: Path) -> int:
        self.ended_in.add(folder)
        ended = len(self.alive)
        self.alive.clear()
        return ended

    def run(self, command: Sequence[str], *, cwd: Path, log: Path, task: str, timeout_s: float) -> str:
        options = dict(part.split("=", 1) for part in command[command.index("-jvmArgs") + 1].split() if "=" in part)
        side = task.split()[1]
        assert timeout_s > 0
        log.write_text(side)
        # The JVM whose turn is first starts last: the others must wait for it.
        time.sleep(0.2 if options["-Drackgate.turn.own"].endswith("-0") else 0)
        own, following = (os.open(options[f"-Drackgate.turn.{name}"], os.O_RDWR) for name in ("own", "next"))

        assert cwd == log.parent
        self.alive.add(own)
        self.started += 1
        self.running += 1

        def await_turn() -> None:
            while not select.select([own], [], [], 0.01)[0]:
                if own not in self.alive:
                    raise RackgateError(f"{task} was ended")
            assert os.read(own, 1) == b"\x01"

        try:
            await_turn()
            for iteration in range(ITERATIONS):
                os.write(following, b"\x01")
                await_turn()
                self.turns.append(side)
                if (side, iteration) == self.fails_at:
                    raise RackgateError(f"{task} failed by itself")
            os.write(following, b"\x01")
        finally:
            self.running -= 1
            os.close(own)
            os.close(following)
        position = float(options["-Drackgate.turn.own"].rpartition("-")[2])
        ns = 60.0 + position
        result = jmh_entry(ns, [ns * CELLS[0].slice_calls] * 4, [24.0] * 4)
        Path(command[command.index("-rff") + 1]).write_text(json.dumps([result]))
        return ""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JmhRunner:
    monkeypatch.setattr(Distribution, "classpath", lambda _self, overlay: f"overlay={overlay}")
    return JmhRunner(tmp_path, (), Distribution(tmp_path), tmp_path, tmp_path, tmp_path)


def test_iterations_of_the_jvms_alternate(bench: JmhRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = FakeJvms()
    monkeypatch.setattr(jmh_runner, "run", jvms.run)
    forks = bench.heat(CELLS, 3, QUICK)
    assert jvms.turns == ["stock", "overlay", "control"] * ITERATIONS
    assert [(fork.cell, fork.round_, fork.cpu_ns) for fork in forks] == [
        (cell.name, 3, 60.0 + place) for place, cell in enumerate(CELLS)
    ]


@pytest.mark.parametrize("iteration", [0, 3])
def test_a_failed_fork_ends_the_others_and_is_reported(
    bench: JmhRunner, monkeypatch: pytest.MonkeyPatch, iteration: int
) -> None:
    jvms = FakeJvms(fails_at=("overlay", iteration))
    monkeypatch.setattr(jmh_runner, "run", jvms.run)
    monkeypatch.setattr(process, "end_processes_in", jvms.end)
    with pytest.raises(RackgateError, match=r"overlay Some.benchmark racks=1 .*failed.log"):
        bench.heat(CELLS, 1, QUICK)
    assert jvms.turns == ["stock", "overlay", "control"] * iteration + ["stock", "overlay"]
    assert (bench.out / "failed.log").read_text() == "overlay"


def test_an_interrupt_ends_all_jvms(bench: JmhRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = FakeJvms()
    monkeypatch.setattr(jmh_runner, "run", jvms.run)
    monkeypatch.setattr(process, "end_processes_in", jvms.end)

    def interrupted(_: object) -> None:
        # The first JVM starts last: it is not running yet when the others are ended.
        wait_for(lambda: jvms.running >= len(CELLS) - 1, goal="the start of two JVMs", timeout_s=10, interval_s=0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(jmh_runner, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.heat(CELLS, 1, QUICK)
    assert jvms.running == 0
    assert jvms.started == len(CELLS)
    assert jvms.ended_in == {bench.work}


def test_folders_of_killed_runs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jmh_runner, "_SHM", tmp_path)
    stale, in_use = tmp_path / "rackgate-jmh-left", tmp_path / "rackgate-jmh-other"
    stale.mkdir()
    in_use.mkdir()
    (tmp_path / "rackgate-jmh-file").touch()
    descriptor = os.open(in_use, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with jmh_runner.folders(Workspace(tmp_path / "build")) as (work, scratch):
        assert scratch.parent == tmp_path
        assert not stale.exists()
        assert in_use.exists()
        with jmh_runner.folders(Workspace(tmp_path / "build")) as (_, second):
            assert second != scratch
            assert scratch.exists(), "a concurrent run deleted the folder of this run"
    os.close(descriptor)
    assert [path for path in (work, scratch, second) if path.exists()] == []


def test_sigterm_deletes_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jmh_runner, "_SHM", tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def folders_left() -> list[Path]:
        return [*tmp_path.glob("rackgate-jmh-*"), *tmp_path.glob("build/tests/*")]

    def receive_sigterm() -> None:
        with jmh_runner.folders(Workspace(tmp_path / "build")):
            assert len(folders_left()) == 2
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        receive_sigterm()
    assert ended.value.code == 143
    assert folders_left() == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_pipes_of_an_earlier_heat_are_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        with Turns(tmp_path, 2) as turns:
            own = turns.options(0).split()[0].partition("=")[2]
            assert turns.options(1).endswith(f"-Drackgate.turn.next={own}")
            descriptor = os.open(own, os.O_RDWR | os.O_NONBLOCK)
            assert os.read(descriptor, 9) == b"\x01"
            os.close(descriptor)


def write_result(tmp_path: Path, fastest_ns: list[float]) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps([jmh_entry(7.5, fastest_ns, [24.0, 24.0, 25.0, 24.0, 24.0])]))
    return path


SCAN = JmhCell(jmh_plan.STOCK, "MetricScanBenchmark.scan", (("racks", "1"),), operations=10, slice_calls=20)


def test_jmh_result_is_parsed(tmp_path: Path) -> None:
    fork = jmh_runner.read(write_result(tmp_path, [2000.0, 3000.0, 900000.0, 2400.0, 4000.0]), SCAN, 4)
    assert (fork.round_, fork.wall_ns, fork.bytes_) == (4, 7.5, 24.0)
    assert [fork.cpu_ns, fork.median_ns] == [10, 30]
    assert fork.iterations_ns == (10, 15, 4500, 12, 20)


def test_an_iteration_without_a_complete_slice_is_ignored(tmp_path: Path) -> None:
    fork = jmh_runner.read(write_result(tmp_path, [2000.0, 0.0, 3000.0, 2400.0, 4000.0]), SCAN, 4)
    assert fork.median_ns == 27
    assert fork.iterations_ns == (10, 15, 12, 20)


def test_a_fork_with_few_measured_iterations_is_an_error(tmp_path: Path) -> None:
    path = write_result(tmp_path, [2000.0, 0.0, 0.0, 2400.0, 4000.0])
    with pytest.raises(RackgateError, match=r"3 of 5 iterations .*20 calls"):
        jmh_runner.read(path, SCAN, 4)


@pytest.mark.parametrize("text", ["", "[]", "[{}]"])
def test_a_malformed_result_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(RackgateError, match="malformed"):
        jmh_runner.read(path, jmh_plan.plan()[0][0], 1)
