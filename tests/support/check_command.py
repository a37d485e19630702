"""Runs of ``rackgate check`` with their CPU time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyhooks.core import paths
from pyhooks.jvm.admin import Admin

RACKGATE = Path(sys.executable).with_name("rackgate")


def check(bootstrap: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(RACKGATE), "check", "--bootstrap", bootstrap, *more]
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def unfenced(admin: Admin, number: int) -> bool:
    return sum(not node.fenced for node in admin.cluster()[1]) == number


CPU_S, MEMORY_MB = 10.0, 500
# In a process of its own, since the memory of a child counts from its parent's at the time of its start.
MEASURE = """
import json, resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)
"""


def measured_check(bootstrap: str, out: Path, *more: str) -> tuple[int, float, float]:
    """Exit status, seconds of CPU time and greatest memory in MB of ``rackgate check``."""
    command = [sys.executable, "-m", "pyhooks.cli", "check", "--bootstrap", bootstrap, *more]
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    with out.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], stdout=stream, stderr=subprocess.PIPE, env=env, check=True
        )
    status, cpu_s, memory_mb = json.loads(done.stderr.splitlines()[-1])
    return status, cpu_s, memory_mb
