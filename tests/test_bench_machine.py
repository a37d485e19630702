from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import machine
from bench.machine import Sample
from pyhooks import usage
from pyhooks.wait import wait_for


def test_processes_are_told_apart_by_their_own_words_and_not_by_those_of_what_they_start(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    properties = tmp_path / "mnt" / "server.properties"
    words = ["/usr/bin/java", "-Xmx1g", "kafka.Kafka", "/mnt/server.properties"]
    properties.write_text("process.roles=broker\n", encoding="utf-8")
    assert machine.kind_of(words, tmp_path) == "brokers"
    properties.write_text("process.roles=controller\n", encoding="utf-8")
    assert machine.kind_of(words, tmp_path) == "controllers"
    assert machine.kind_of(["sh", "-c", "exec", *words], tmp_path) is None
    assert machine.kind_of([sys.executable, "-m", "bench.run", "--scenario", "quick"]) == "driver"
    assert machine.kind_of(["/usr/bin/wirefilter", "-d", "0.5"]) == "link emulation"
    assert machine.kind_of([sys.executable, "-m", "other", "--", "-m", "bench.run"]) is None


def sample(at_s: float, processes: int, cpu_s: float, rss_mb: float = 10.0) -> Sample:
    return Sample(round(at_s * 1e9), "brokers", processes, cpu_s, rss_mb)


def test_usage_is_the_mean_over_steps_in_which_no_process_came_or_went() -> None:
    rows = machine.usage(
        [sample(0, 5, 10.0), sample(1, 5, 10.5), sample(2, 3, 4.0, 99.0), sample(3, 3, 4.5), sample(4, 5, 4.6)]
    )
    assert rows == [{"kind": "brokers", "processes": 5, "cpus": pytest.approx(0.5), "rss_mb_max": 99.0}]


def test_one_look_is_no_usage() -> None:
    assert machine.usage([sample(0, 5, 1.0)]) == []


def test_this_process_is_seen_in_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (Path("/proc") / str(os.getpid()) / "cmdline").read_bytes().decode().split("\0")[:-1]
    monkeypatch.setattr(machine, "kind_of", lambda words, root=None: "driver" if words == own else None)  # noqa: ARG005
    seen = {one.kind: one for one in machine.look()}
    assert seen["driver"].rss_mb > 5
    assert seen["driver"].cpu_s > 0
    assert seen["machine"].cpu_s > seen["driver"].cpu_s


def test_the_machine_describes_itself() -> None:
    found = machine.describe()
    assert found["kernel"] == os.uname().release
    assert found["cpus"] >= 1
    assert found["memory_gib"] > 0.1


def test_the_tree_is_this_process_and_what_it_began_and_grows_with_work() -> None:
    memory_gib, cpu_s = usage.tree()
    assert 0.005 < memory_gib < 20
    child = subprocess.Popen([sys.executable, "-c", "held = bytearray(200 << 20); input()"], stdin=subprocess.PIPE)
    try:
        wait_for(lambda: usage.tree()[0] > memory_gib + 0.15 or None, what="the child's memory", timeout_s=60)
    finally:
        child.kill()
        child.communicate()
    assert usage.tree()[1] >= cpu_s - 0.1
