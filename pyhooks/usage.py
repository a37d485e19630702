"""What processes use of a machine, from /proc: this one with all that it began, and everything else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def tree(proc: Path = PROC) -> tuple[float, float]:
    """Of this process and all that it began, directly or not: resident memory in GiB, and CPU seconds so far.

    Pages that processes share are counted for each of them. The CPU time of those that have ended counts once their
    parent has waited for them.
    """
    parents: dict[int, int] = {}
    used: dict[int, tuple[int, int]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            pages = int((folder / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        parents[int(folder.name)] = int(fields[1])
        # user and system time of its own, and of its children that it has waited for
        used[int(folder.name)] = pages, sum(int(ticks) for ticks in fields[11:15])
    ours, more = {os.getpid()}, True
    while more:
        below = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours, more = ours | below, bool(below)
    found = [used[pid] for pid in ours if pid in used]
    return sum(one[0] for one in found) * PAGE_BYTES / 2**30, sum(one[1] for one in found) / TICKS_PER_S


def busy_s(cores: Collection[int] | None = None, proc: Path = PROC) -> float:
    """CPU seconds since the start of the machine in which cores were in use, time stolen by its host included.

    Args:
        cores: their numbers, or None for all.
        proc: where to look.
    """
    lines = [line.split() for line in (proc / "stat").read_text(encoding="ascii").splitlines()]
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    # user, nice, system, idle, iowait, irq, softirq, steal
    found = [[int(word) for word in words[1:9]] for words in lines if words[0] in names]
    return sum(sum(ticks) - ticks[3] - ticks[4] for ticks in found) / TICKS_PER_S


@contextmanager
def others(cores: Collection[int] | None = None, own_s: Callable[[], float] | None = None) -> Iterator[Others]:
    """Measures what others use while the block runs; the figures are there after it.

    Args:
        cores: of which, or None for all.
        own_s: our own CPU seconds on them, by default those of ``tree``.
    """
    own = own_s or (lambda: tree()[1])
    begun, busy, used = time.monotonic(), busy_s(cores), own()
    found = Others()
    try:
        yield found
    finally:
        found.seconds = time.monotonic() - begun
        found.own_s = own() - used
        # ticks are coarse, so a little below zero is zero
        found.cpus = max(0.0, busy_s(cores) - busy - found.own_s) / found.seconds if found.seconds else 0.0


class Others:
    """What ``others`` has found.

    Attributes:
        cpus: mean number of CPUs that others had in use.
        own_s: CPU seconds of our own.
        seconds: length of the measurement.
    """

    cpus: float = 0.0
    own_s: float = 0.0
    seconds: float = 0.0
