"""Resource usage of the project's processes is separated from others', even for children that are not waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pyhooks.core import resource_usage
from pyhooks.core.process import DIES_WITH_PARENT

WORK_S = 1.0
# /proc and wait count CPU time in clock ticks
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# in seconds of its own CPU time
WORKS = f"""
import time
while time.process_time() < {WORK_S}:
    pass
"""
# Starts a busy child and is killed before it has waited for it, as the daemon of Spark's Python workers is.
ENDS_FIRST = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''{WORKS}
print("done", flush=True)
time.sleep(60)'''], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("again", [False, True])
def test_unawaited_children_are_own_use(again: bool) -> None:
    if again:
        # earlier usage must not hide current usage
        subprocess.run([sys.executable, "-c", WORKS.replace(str(WORK_S), "2.5")], check=True)
    began_s = time.process_time()
    with resource_usage.others() as found:
        command = [*DIES_WITH_PARENT, sys.executable, "-c", ENDS_FIRST]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            worker = int(running.stdout.readline())
            # at least one sample
            time.sleep(3 * resource_usage.SAMPLE_S)
            running.kill()
        os.kill(worker, signal.SIGKILL)
    # this process takes samples, the more the longer it waits
    assert WORK_S - 2 * TICK_S <= found.own_s < WORK_S + 1.5 + time.process_time() - began_s


def test_awaited_children_are_own_use_even_if_never_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_usage, "SAMPLE_S", 60.0)
    began_s = time.process_time()
    with resource_usage.others() as found:
        subprocess.run([sys.executable, "-c", WORKS], check=True)
    assert WORK_S - 2 * TICK_S <= found.own_s < WORK_S + 1.5 + time.process_time() - began_s
