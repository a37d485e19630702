"""Leftovers of this test run's labs: processes marked by an environment variable, mounts, network interfaces."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from pyhooks.core.process import stat_fields

# Inherited by every process started from here on. This process is not marked: its /proc environ is fixed at its start.
NAME, VALUE = "RACKGATE_TEST", uuid.uuid4().hex
MARK = f"{NAME}={VALUE}"
os.environ[NAME] = VALUE


def marked() -> dict[int, str]:
    """Return the arguments of this test run's processes, by PID."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(arguments).decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # has ended, or belongs to another user
            continue
    return found


def processor_s() -> tuple[float, float]:
    """Return CPU time since boot, in seconds: of the machine, and of this test run's processes.

    Of the latter only those count that still run, and their children that have ended.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal; steal counts as used, since other guests slow us too
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    used = sum(map(int, fields)) - int(fields[3]) - int(fields[4])
    own = 0
    for pid in (os.getpid(), *marked()):
        if stat := stat_fields(Path(f"/proc/{pid}")):
            # utime, stime, cutime, cstime: fields 14 to 17 of /proc/PID/stat
            own += sum(map(int, stat[11:15]))
    return used / ticks, own / ticks


def traces() -> tuple[list[str], list[str], list[str]]:
    """Return everything that a lab could leave behind: processes, mounts, network interfaces."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(marked().values()), sorted(mounts), sorted(links)
