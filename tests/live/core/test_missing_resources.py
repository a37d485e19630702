"""Too little memory, no namespaces, a second run in the same folder, and a clock change."""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import progress
from bench.load import clock_offsets
from bench.plan import scenarios
from bench.run import run_store
from ducktape_tests import cli as system
from pyhooks import cli
from pyhooks.core import paths, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import hold_lock
from pyhooks.evidence import runs
from pyhooks.evidence.runs import FinishedCommand
from pyhooks.lab import memory, topology
from pyhooks.patchset.distribution import Distribution
from written_claims import read as read_claims

AZ3 = topology.load(topology.find("az3-outside"))
# nodes, and the rings of the links between each two of 4 sites
NEEDED_MB = 5 * (384 + 64) + 3 * (256 + 64) + 8 * len(AZ3.links)
COMMANDS = {
    "lab up": ("lab", "up", "--topology", "az3-outside"),
    "lab run": ("lab", "run", "--topology", "az3-outside", "--", "true"),
    "bench run": ("bench", "run"),
    "bench outages": ("bench", "outages", "--plan", "quick"),
    "system run": ("system", "run", "smoke"),
}


def ended(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Run a command; return its exit status and its lines on standard error."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return int(caught.value.code or 0), capfd.readouterr().err.splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fake a machine with much memory: ``/proc`` and control groups are files, and nothing is built or started."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "groups" / "a" / "b").mkdir(parents=True)
    has(tmp_path, 100_000)
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(system, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(Distribution, "load", lambda *_: None)
    monkeypatch.setenv("RACKGATE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def has(machine: Path, available_mb: int) -> None:
    text = f"MemTotal: 200000000 kB\nMemAvailable: {available_mb * 1024} kB\n"
    (machine / "proc" / "meminfo").write_text(text, encoding="utf-8")


def group(folder: Path, limit: str, used_mb: int = 0, cached_mb: int = 0) -> None:
    (folder / "memory.max").write_text(f"{limit}\n", encoding="utf-8")
    (folder / "memory.current").write_text(f"{used_mb * 2**20}\n", encoding="utf-8")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached_mb * 2**20}\n", encoding="utf-8")


def test_a_lab_needs_the_heaps_of_its_nodes_and_overhead() -> None:
    assert memory.lab_memory_mb(AZ3) == NEEDED_MB
    larger = dataclasses.replace(AZ3, broker_heap_mb=1024)
    assert memory.lab_memory_mb(larger) == NEEDED_MB + 5 * 640
    assert memory.concurrent_labs_memory_mb([AZ3, larger, AZ3], 2) == 2 * NEEDED_MB + 5 * 640
    assert memory.concurrent_labs_memory_mb([], 2) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_too_little_memory_is_stated_before_anything_is_started(
    machine: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    has(machine, 2000)
    status, stderr = ended(capfd, *COMMANDS[command])
    assert status == 2
    (line,) = stderr
    assert "MiB of memory" in line
    assert "2000 MiB" in line
    assert str(machine / "proc" / "meminfo") in line
    assert not (machine / "state").exists() or not list((machine / "state").glob("*.json"))


@pytest.mark.parametrize(("short_mb", "rejected"), [(0, False), (1, True)])
def test_a_lab_is_rejected_where_the_machine_has_less_than_it_needs(
    machine: Path, short_mb: int, rejected: bool
) -> None:
    has(machine, NEEDED_MB - short_mb)
    if rejected:
        with pytest.raises(RackgateError, match=f"{NEEDED_MB} MiB.*{NEEDED_MB - 1} MiB"):
            memory.require_memory(memory.lab_memory_mb(AZ3), "a lab", "take a smaller one")
    else:
        memory.require_memory(memory.lab_memory_mb(AZ3), "a lab", "take a smaller one")


def test_the_limits_of_all_control_groups_apply(machine: Path) -> None:
    (machine / "proc" / "self" / "cgroup").write_text("0::/a/b\n", encoding="utf-8")
    groups = machine / "groups"
    group(groups / "a" / "b", "max", 7)
    group(groups / "a", str(3000 * 2**20), 1200, 200)
    assert dict(memory.available_memory()) == {
        f"the machine ({machine}/proc/meminfo)": 100_000,
        f"the control group ({groups}/a/memory.max)": 2000,
    }
    with pytest.raises(RackgateError, match=r"a/memory\.max\) leaves 2000 MiB"):
        memory.require_memory(2001, "a lab", "take a smaller one")
    memory.require_memory(2000, "a lab", "take a smaller one")


def test_control_groups_version_1_count_too(machine: Path) -> None:
    text = "3:cpuset:/\n2:cpu,memory:/a\n0::/\n"
    (machine / "proc" / "self" / "cgroup").write_text(text, encoding="utf-8")
    folder = machine / "groups" / "memory" / "a"
    folder.mkdir(parents=True)
    for name, value in (("limit", 500), ("usage", 600)):
        (folder / f"memory.{name}_in_bytes").write_text(f"{value * 2**20}\n", encoding="utf-8")
    (folder / "memory.stat").write_text("total_inactive_file 0\n", encoding="utf-8")
    assert list(memory.available_memory())[1:] == [(f"the control group ({folder}/memory.limit_in_bytes)", 0)]


@pytest.mark.parametrize("text", ["", "MemAvailable: much\n", "MemTotal: 5 kB\n"])
def test_unreported_limits_reject_nothing(machine: Path, text: str) -> None:
    (machine / "proc" / "meminfo").write_text(text, encoding="utf-8")
    memory.require_memory(10**9, "a lab", "take a smaller one")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_machine_without_namespaces_is_a_one_line_error(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    stub = machine / "bin" / "unshare"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'unshare: unshare failed: No space left on device' >&2\nexit 1\n")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    status, stderr = ended(capfd, *COMMANDS[command])
    assert status == 2
    (line,) = stderr
    assert "namespaces are not available on this machine (unshare: unshare failed" in line


def test_a_second_evidence_run_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "OUT", tmp_path)
    with hold_lock(tmp_path / ".lock", taken="it runs"):
        status, (line,) = ended(capfd, "evidence", "--judge")
        assert (status, "another `rackgate evidence` runs in this checkout" in line) == (2, True)
        # a run that only lists writes nothing, so it is allowed
        assert ended(capfd, "evidence", "--list", "parent-class")[0] in (0, 1)


def begun(folder: Path) -> run_store.RunStore:
    plan, started = scenarios.load("question"), datetime.now(UTC)
    return run_store.begin_run(folder, plan, started=started, build="b", given={}, fresh=False)[0]


@pytest.mark.parametrize("step_s", [-1e6, 1e6])
def test_a_clock_change_does_not_affect_the_duration_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    one = begun(tmp_path)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step_s)
    assert one.duration_s is not None
    assert 0 <= one.duration_s < 60


@pytest.mark.parametrize(("step_s", "known"), [(-1e6, False), (1e6, True)])
def test_after_a_reboot_a_clock_set_back_gives_no_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, known: bool
) -> None:
    one = begun(tmp_path)
    monkeypatch.setattr(clock_offsets, "boot_id", lambda: "another")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step_s)
    assert one.duration_s == (pytest.approx(step_s, abs=60) if known else None)


def test_an_unknown_duration_neither_meets_nor_misses_a_target() -> None:
    bar = targets.of_run(6.0, None)
    assert bar == {"minutes": 6.0, "duration_min": None, "met": None}
    assert "unknown" in targets.of_run_text(bar)
    assert progress.clock_text(None) == "an unknown time"


@pytest.mark.parametrize("step_s", [-1e6, 0.0, 1e6])
@pytest.mark.parametrize("writes", [True, False])
def test_a_file_of_an_earlier_run_is_recognised_whatever_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, writes: bool
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("a", encoding="utf-8")
    run = dataclasses.replace(read_claims(tmp_path).runs["sum"], reads="made.json", statuses=(0,))
    made = tmp_path / "made.json"
    made.write_text('{"n": 1}', encoding="utf-8")
    # the file's time is in the future
    os.utime(made, (time.time() + 3600, time.time() + 3600))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step_s)

    def execute(*_: Any) -> FinishedCommand:
        if writes:
            made.write_text('{"n": 2}', encoding="utf-8")
        return FinishedCommand(0, "")

    def execute_run() -> dict[str, Any]:
        claims = read_claims(tmp_path)
        return runs.execute_run(claims, run, folder=tmp_path, root=tmp_path, out=tmp_path, execute=execute)

    if writes:
        assert execute_run()["result"] == {"n": 2}
    else:
        with pytest.raises(RackgateError, match=r"did not write made\.json"):
            execute_run()


def test_no_duration_or_deadline_uses_the_wall_clock() -> None:
    """The wall clock is read only to be recorded, or to be compared after a reboot."""
    allowed = {
        "bench/run/run_store.py": "after a reboot, where no other clock is left",
        "ducktape_tests/cli.py": "a seed",
        "pyhooks/verify/reproducibility.py": "what a build sees as the date, which is set",
        "pyhooks/core/files.py": "the age of folders that killed processes left",
        "pyhooks/lab/lab_processes.py": "written down",
        "pyhooks/evidence/runs.py": "the date of an artifact",
        "pyhooks/watch/terminal_capture.py": "the date of a recording",
    }
    found = {
        str(path.relative_to(paths.REPO))
        for folder in ("bench", "ducktape_tests", "pyhooks")
        for path in (paths.REPO / folder).rglob("*.py")
        if "time.time()" in path.read_text(encoding="utf-8")
    }
    assert found <= set(allowed)
