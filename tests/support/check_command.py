"""Run ``rackgate check`` and measure its CPU time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from command_server import command_server
from pyhooks.core import paths
from pyhooks.jvm.admin import Admin

RACKGATE = Path(sys.executable).with_name("rackgate")


def check(bootstrap: str, *more: str) -> subprocess.CompletedProcess[str]:
    return rackgate("check", "--bootstrap", bootstrap, *more)


def check_in_new_process(bootstrap: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run ``rackgate check`` where the start of Python and Java belongs to what is tested."""
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    command = [str(RACKGATE), "check", "--bootstrap", bootstrap, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def rackgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_server().run(*arguments, timeout_s=120)


def unfenced(admin: Admin, number: int) -> bool:
    return sum(not node.fenced for node in admin.cluster()[1]) == number


CPU_S, MEMORY_MB = 10.0, 500
# In a separate process: the peak memory of a forked child starts at its parent's, and pytest's is large.
MEASURE = """
import json, resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)
"""


def measured_check(bootstrap: str, out: Path, *more: str) -> tuple[int, float, float]:
    """Run ``rackgate check``; return its exit status, CPU time in seconds and peak memory in MB."""
    command = [sys.executable, "-m", "pyhooks.cli", "check", "--bootstrap", bootstrap, *more]
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    with out.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], stdout=stream, stderr=subprocess.PIPE, env=env, check=True
        )
    status, cpu_s, memory_mb = json.loads(done.stderr.splitlines()[-1])
    return status, cpu_s, memory_mb
