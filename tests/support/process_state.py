"""States of processes, by ``/proc``."""

from __future__ import annotations

from pathlib import Path

from pyhooks.core.process import stat_fields


def is_running(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] != "Z"
