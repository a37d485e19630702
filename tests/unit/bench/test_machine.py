"""Description of the machine, and samples of CPU time and memory of the benchmark's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import machine
from bench.machine import UsageSample
from pyhooks.core import paths, resource_usage
from pyhooks.core.wait import wait_for


def test_processes_are_classified_by_their_own_command_line(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    properties = tmp_path / "mnt" / "server.properties"
    arguments = ["/usr/bin/java", "-Xmx1g", "kafka.Kafka", "/mnt/server.properties"]
    properties.write_text("process.roles=broker\n", encoding="utf-8")
    assert machine.process_kind(arguments, tmp_path) == "brokers"
    properties.write_text("process.roles=controller\n", encoding="utf-8")
    assert machine.process_kind(arguments, tmp_path) == "controllers"
    assert machine.process_kind(["sh", "-c", "exec", *arguments], tmp_path) is None
    assert machine.process_kind([sys.executable, "-m", "bench.run.lab_run", "--scenario", "question"]) == "driver"
    assert machine.process_kind(["/cache/link_emulator", "/run/socket"]) == "link emulation"
    assert machine.process_kind([sys.executable, "-m", "other", "--", "-m", "bench.run.lab_run"]) is None


def sample(at_s: float, processes: int, cpu_s: float, rss_mb: float = 10.0) -> UsageSample:
    return UsageSample(round(at_s * 1e9), "brokers", processes, cpu_s, rss_mb)


def test_usage_ignores_intervals_in_which_processes_started_or_ended() -> None:
    rows = machine.usage(
        [sample(0, 5, 10.0), sample(1, 5, 10.5), sample(2, 3, 4.0, 99.0), sample(3, 3, 4.5), sample(4, 5, 4.6)]
    )
    assert rows == [{"kind": "brokers", "processes": 5, "cpus": pytest.approx(0.5), "rss_mb_max": 99.0}]


def test_one_sample_gives_no_usage() -> None:
    assert machine.usage([sample(0, 5, 1.0)]) == []


def test_this_process_is_found_in_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (Path("/proc") / str(os.getpid()) / "cmdline").read_bytes().decode().split("\0")[:-1]
    monkeypatch.setattr(machine, "process_kind", lambda arguments, root=None: "driver" if arguments == own else None)  # noqa: ARG005
    by_kind = {sample.kind: (sample.cpu_s or 0, sample.rss_mb or 0) for sample in machine.sample_usage()}
    cpu_s, rss_mb = by_kind["driver"]
    assert rss_mb > 5
    assert cpu_s > 0
    assert by_kind["machine"][0] > cpu_s


def fake_proc(folder: Path, commands: dict[int, str]) -> Path:
    """Create a /proc with these processes and the machine's totals."""
    (folder / "stat").write_text("cpu  10 0 10 100 0 0 0 0 0 0\n", encoding="ascii")
    for pid, command in commands.items():
        entry = folder / str(pid)
        entry.mkdir()
        (entry / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (entry / "stat").write_text(f"{pid} (x) S " + "1 " * 30, encoding="ascii")
        (entry / "statm").write_text("100 100 0 0 0 0 0\n", encoding="ascii")
    return folder


DRIVER = f"{sys.executable} -m bench.run.lab_run"
KAFKA = "java kafka.Kafka /server.properties"


@pytest.mark.parametrize("hidden", ["cmdline", "stat", "statm", "server.properties"])
def test_a_process_that_cannot_be_read_is_unknown_and_the_others_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    proc = fake_proc(tmp_path, {1: KAFKA, 2: DRIVER})
    (proc / "1" / "root").mkdir()
    (proc / "1" / "root" / "server.properties").write_text("process.roles=broker\n", encoding="utf-8")
    readable = {sample.kind: sample.processes for sample in machine.sample_usage(proc)}
    assert readable == {"brokers": 1, "driver": 1, "machine": 0}
    original_open = Path.open

    def deny_open(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == hidden and self.is_relative_to(proc / "1"):
            raise PermissionError(1, "Operation not permitted", str(self))
        return original_open(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", deny_open)
    samples = machine.sample_usage(proc)
    assert {sample.kind: sample.processes for sample in samples} == {"driver": 1, "machine": 0, "unknown": 1}
    (unknown,) = [sample for sample in samples if sample.kind == "unknown"]
    assert (unknown.cpu_s, unknown.rss_mb) == (None, None)
    rows = machine.usage([*samples, *(replace(sample, at_ns=sample.at_ns + 10**9) for sample in samples)])
    (row,) = [row for row in rows if row["kind"] == "unknown"]
    assert row == {"kind": "unknown", "processes": 1, "cpus": None, "rss_mb_max": None}
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_configuration_file_does_not_stop_the_sampler(tmp_path: Path, content: bytes | None) -> None:
    proc = fake_proc(tmp_path, {1: KAFKA})
    properties = proc / "1" / "root" / "server.properties"
    properties.parent.mkdir()
    if content is None:
        properties.mkdir()
    else:
        properties.write_bytes(content)
    assert {sample.kind: sample.processes for sample in machine.sample_usage(proc)} == {"machine": 0, "unknown": 1}


SAMPLER_PROGRAM = """
import json, sys
from bench.machine import UsageSampler
from pyhooks.core import resource_usage
from pyhooks.core.wait import wait_for
with UsageSampler().running() as sampler:
    wait_for(lambda: len({sample.at_ns for sample in sampler.samples}) > 1, goal="two samples", timeout_s=20)
resource_usage.tree()
print(json.dumps([[sample.kind, sample.processes] for sample in sampler.samples]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /proc that hides processes")
def test_the_sampler_continues_where_proc_hides_other_users_processes() -> None:
    """Run the sampler as root without capabilities, next to a process of another user."""
    inner = (
        "mount -t proc -o hidepid=1 proc /proc && (setpriv --reuid=65534 --clear-groups sleep 60 & )"
        ' && exec setpriv --regid=65533 --clear-groups --inh-caps=-all --bounding-set=-all "$0" -c "$1"'
    )
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        inner,
        sys.executable,
        SAMPLER_PROGRAM,
    ]
    env = os.environ | {"PYTHONPATH": str(paths.REPO)}
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    if "mount:" in process.stderr:
        pytest.skip(process.stderr)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    samples = json.loads(process.stdout)
    assert [kind for kind, _ in samples].count("machine") >= 2
    assert ["unknown", 1] in samples


def test_the_description_has_kernel_cpus_and_memory() -> None:
    description = machine.describe_machine()
    assert description["kernel"] == os.uname().release
    assert description["cpus"] >= 1
    assert description["memory_gib"] > 0.1


def test_the_process_tree_includes_children_and_its_time_grows() -> None:
    memory_gib, cpu_s = resource_usage.tree()
    assert 0.005 < memory_gib < 20
    child = subprocess.Popen([sys.executable, "-c", "held = bytearray(200 << 20); input()"], stdin=subprocess.PIPE)
    try:
        wait_for(lambda: resource_usage.tree()[0] > memory_gib + 0.15 or None, goal="the child's memory", timeout_s=60)
    finally:
        child.kill()
        child.communicate()
    assert resource_usage.tree()[1] >= cpu_s - 0.1
