"""Leftovers of this test run's labs: processes with an inherited mark, mounts, interfaces."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from pyhooks.core.process import stat_fields

# In the environment of everything that is started from here on; that of this process was fixed when it started.
NAME, VALUE = "RACKGATE_TEST", uuid.uuid4().hex
MARK = f"{NAME}={VALUE}"
os.environ[NAME] = VALUE


def marked() -> dict[int, str]:
    """Processes of this test run by id, with their arguments."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(arguments).decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # ended meanwhile, or another user's
            continue
    return found


def processor_s() -> tuple[float, float]:
    """Processor time since the machine started in seconds: all that was used, and of that by this run's processes.

    Of the latter only those count that still run, and their children that have ended.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal: a neighbour's machine takes from us, too
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    used = sum(map(int, fields)) - int(fields[3]) - int(fields[4])
    own = 0
    for pid in (os.getpid(), *marked()):
        if stat := stat_fields(Path(f"/proc/{pid}")):
            # utime, stime, cutime, cstime: the 14th to the 17th of all
            own += sum(map(int, stat[11:15]))
    return used / ticks, own / ticks


def traces() -> tuple[list[str], list[str], list[str]]:
    """Possible leftovers of a lab: processes, mounts, interfaces."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(marked().values()), sorted(mounts), sorted(links)
