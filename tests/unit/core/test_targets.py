"""Performance targets, and detection of CPU use by other processes during a measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.cli import bench_app
from bench.load import pacer_accuracy
from pyhooks.core import resource_usage, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.targets import Target
from pyhooks.core.wait import wait_for

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("value", "others", "outcome", "status"),
    [
        (0.9, 0.0, "met", 0),
        (1.0, 0.9, "met", 0),  # met despite other processes
        (1.1, 0.01, "missed", 1),
        (1.1, 0.5, "unknown", 2),
        (None, 0.0, "unknown", 2),
    ],
)
def test_a_target_is_missed_only_if_other_processes_are_idle(
    value: float | None, others: float, outcome: str, status: int
) -> None:
    target = Target("lateness", 1.0, "ms", value, others)
    assert target.outcome == target.as_json()["outcome"] == outcome
    assert targets.status([target]) == status
    assert target.text.startswith(outcome.upper())
    assert ("others had 0.50 CPUs" in target.text) is (others == 0.5)


@pytest.mark.parametrize(
    ("value", "others", "unjudged", "outcome"),
    [
        (2.0, 0.9, "", "met"),
        (1.5, 0.0, "", "met"),
        (1.4, 0.0, "", "missed"),
        (1.4, 0.3, "", "unknown"),
        # A value that cannot be judged is not met either.
        (2.0, 0.0, "there is one core", "unknown"),
    ],
)
def test_a_target_can_be_a_minimum(value: float, others: float, unjudged: str, outcome: str) -> None:
    target = Target("speed-up", 1.5, "times", value, others, at_least=True, unjudged=unjudged)
    assert target.outcome == outcome
    assert "at least 1.5 times" in target.text
    assert target.text.endswith("; there is one core") is bool(unjudged)


def test_a_missed_target_outweighs_an_unknown_one() -> None:
    met, unknown, missed = Target("a", 1, "s", 1, 0), Target("b", 1, "s", None, 0), Target("c", 1, "s", 2, 0)
    assert targets.status([met, unknown, missed]) == 1
    assert targets.status([met, unknown]) == 2
    assert targets.status([]) == 0


@pytest.mark.parametrize(
    ("minutes", "duration_s", "uninterrupted", "text"),
    [
        (6, 306.0, True, "target of 6 minutes: met, it took 5.1"),
        (6, 360.0, True, "target of 6 minutes: met, it took 6.0"),
        (6, 361.0, True, "target of 6 minutes: missed, it took 6.0"),
        (6, 306.0, False, "target of 6 minutes: unknown, since the run was interrupted and went on"),
        (None, 306.0, True, None),
    ],
)
def test_a_run_can_have_a_target_duration(
    minutes: float | None, duration_s: float, uninterrupted: bool, text: str | None
) -> None:
    target = targets.of_run(minutes, duration_s, uninterrupted=uninterrupted)
    assert (target and targets.of_run_text(target)) == text


def write_stat(folder: Path, *ticks: int) -> None:
    (folder / "stat").write_text("cpu " + " ".join(map(str, ticks)) + "\ncpu0 0 0 0 0 0 0 0 0\n", encoding="ascii")


def test_busy_time_excludes_idle_and_iowait(tmp_path: Path) -> None:
    write_stat(tmp_path, 100, 10, 50, 9000, 800, 1, 2, 300, 0, 0)
    assert resource_usage.busy_s(None, tmp_path) == pytest.approx(
        (100 + 10 + 50 + 1 + 2 + 300) / resource_usage.TICKS_PER_S
    )
    assert resource_usage.busy_s([0], tmp_path) == 0


def test_cpu_time_of_ended_children_is_included() -> None:
    before = resource_usage.tree()[1]
    program = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert resource_usage.tree()[1] - before >= 0.35


def test_cpu_time_of_other_processes_is_detected() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        # The child would count as this project's own; with own_s only this process does.
        with resource_usage.others(own_s=time.process_time) as others:
            before = resource_usage.busy_s()
            wait_for(lambda: resource_usage.busy_s() - before > 0.5 or None, goal="0.5 s of CPU time", timeout_s=60)
    finally:
        child.kill()
        child.wait()
    assert others.cpus * others.seconds > 0.3


def test_the_pacer_is_measured_with_a_real_client_on_one_core() -> None:
    core = pacer_accuracy.idlest_core()
    before = os.sched_getaffinity(0)
    measured = pacer_accuracy.measure(core, rate_per_s=500, seconds=1.0)
    assert os.sched_getaffinity(0) == before
    assert measured["records"] == 500
    assert 0 <= measured["late_ms"]["p50"] <= measured["late_ms"]["p99"] <= measured["late_ms"]["max"]
    # Lower on a busy machine, never higher: the last record is due one interval before the end.
    assert 0 < measured["held_per_s"] <= 500 * 500 / 499 + 1e-6
    with pytest.raises(RackgateError, match="--core 4096: this process may use"):
        pacer_accuracy.measure(4096, rate_per_s=500, seconds=1.0)


@pytest.mark.parametrize(
    ("p50", "held_per_s", "others", "status"),
    [
        (0.4, 20_000.0, 0.9, 0),
        (1.4, 20_000.0, 0.0, 1),
        (1.4, 20_000.0, 0.3, 2),
        (0.4, 19_901.0, 0.0, 0),
        (0.4, 19_899.0, 0.0, 1),
        (0.4, 19_899.0, 0.3, 2),
    ],
)
def test_bench_pacer_exits_with_the_status_of_its_targets(
    monkeypatch: pytest.MonkeyPatch, p50: float, held_per_s: float, others: float, status: int
) -> None:
    measured: dict[str, Any] = {
        "late_ms": {"p50": p50, "p99": 9.0, "max": 20.0},
        "rate_per_s": 20_000.0,
        "held_per_s": held_per_s,
        "own_cpus": 0.4,
        "others_cpus": others,
    }
    monkeypatch.setattr(pacer_accuracy, "measure", lambda *_, **__: measured)
    invocation = RUNNER.invoke(bench_app, ["pacer", "--core", "0"])
    assert invocation.exit_code == status
    assert f"0.40 by it, {others:.2f} by others" in invocation.output
    output = json.loads(RUNNER.invoke(bench_app, ["pacer", "--core", "0", "--json"]).stdout)
    assert [target["value"] for target in output["targets"]] == [p50, held_per_s]
    assert f": {held_per_s:,.0f} records/s" in invocation.output
    help_text = RUNNER.invoke(bench_app, ["pacer", "--help"]).output
    assert "rackgate bench pacer --core 1" in " ".join(help_text.split())
