"""What labs of this test run have left: its own processes, known by a mark that they inherit, mounts, interfaces."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

# In the environment of everything that is started from here on; that of this process was fixed when it started.
NAME, VALUE = "RACKGATE_TEST", uuid.uuid4().hex
MARK = f"{NAME}={VALUE}"
os.environ[NAME] = VALUE


def marked() -> dict[int, str]:
    """Processes that were started by this test run, by id, with their words; neighbours' are not among them."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # ended meanwhile, or somebody else's
            continue
    return found


def traces() -> tuple[list[str], list[str], list[str]]:
    """What a lab could leave behind: processes, mounts, interfaces."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(marked().values()), sorted(mounts), sorted(links)
