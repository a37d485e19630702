"""The lab for real, without Kafka in it: what it gives, and that nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyhooks.wait import wait_for

pytestmark = pytest.mark.lab
RACKGATE = Path(sys.executable).with_name("rackgate")


def lab(tmp_path: Path, *command: str) -> list[str]:
    return [str(RACKGATE), "lab", "run", "--bare", "--run-dir", str(tmp_path / "run"), "--", *command]


def traces() -> tuple[list[str], list[str], list[str]]:
    """What a lab could leave behind: processes of its programs, mounts, interfaces."""
    ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    words = ("pyhooks.cluster", "pyhooks/cluster", "vde_switch", "wirefilter")
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(line for line in ps if any(word in line for word in words)), sorted(mounts), sorted(links)


def test_a_command_sees_the_lab_and_its_status_is_the_lab_s(tmp_path: Path) -> None:
    before = traces()
    script = "ping -n -c 1 -W 2 10.77.1.10 && ping -n -c 1 -W 2 10.77.3.10 && echo $RACKGATE_BOOTSTRAP; exit 7"
    done = subprocess.run(lab(tmp_path, "sh", "-c", script), capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert done.stdout.count("1 received") == 2
    assert "10.77.1.10:9092,10.77.1.11:9092,10.77.2.10:9092,10.77.2.11:9092,10.77.3.10:9092" in done.stdout
    assert traces() == before


def test_a_missing_command_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = subprocess.run(lab(tmp_path, "/no/such/program"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "can't run '/no/such/program'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_behind(tmp_path: Path, number: signal.Signals) -> None:
    before = traces()
    ready = tmp_path / "ready"
    # a daemon of the command must go as well
    script = f"(sleep 3111 & ) ; touch {ready}; exec sleep 3111"
    running = subprocess.Popen(lab(tmp_path, "sh", "-c", script), start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_for(ready.exists, what="the lab's command to run", timeout_s=30)
        assert traces() != before
        if number is signal.SIGINT:
            # a terminal tells the whole group
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        assert running.wait(timeout=40) != 0
        wait_for(lambda: traces() == before, what="processes, mounts and interfaces as before", timeout_s=10)
    finally:
        running.kill()
        running.wait()
    sleepers = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 3111" not in sleepers


def test_a_rack_is_cut_off_and_joined_again(tmp_path: Path) -> None:
    program = """
from pyhooks.cluster.lab import Lab
lab = Lab.attach()
first, second, other = lab.node("broker-3"), lab.node("broker-4"), lab.node("broker-1")
def seen():
    return [lab.answers(first), lab.answers(first, other), lab.answers(other, first), lab.answers(second, first)]
print(seen())
lab.cut("b"); lab.cut("b")
print(seen())
lab.join("b"); lab.join("b")
print(seen())
print([(rtt.source, rtt.target, rtt.p50_ms) for rtt in lab.rtt_matrix(10) if rtt.target == "broker-3"])
print(sorted(set(lab.emulations.values())))
"""
    done = subprocess.run(lab(tmp_path, sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [str([True] * 4), str([False, False, False, True]), str([True] * 4)]
    rtts = [entry[2] for entry in eval(lines[3])]  # noqa: S307 - our own output
    # asked: 1 ms; without the delay it is below 0.2 ms, and a busy machine only adds
    assert len(rtts) == 2
    assert all(0.9 < rtt < 100 for rtt in rtts)
    assert lines[4] in ("['netem']", "['vde']")
