"""CPU and memory usage from /proc: this process with its descendants, and all other processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 0.2


def tree(proc: Path = PROC) -> tuple[float, float]:
    """Return resident memory in GiB and CPU seconds so far, of this process and all its descendants.

    Shared pages count for each process. The CPU time of an ended process counts once its parent has waited for it.
    """
    found = _ours(proc).values()
    return sum(one.pages for one in found) * PAGE_BYTES / 2**30, sum(one.own + one.ended for one in found) / TICKS_PER_S


@dataclass(frozen=True)
class _Used:
    """Usage of a process: pages of memory, its own CPU ticks, and those of the ended children that it waited for."""

    pages: int
    own: int
    ended: int


def _ours(proc: Path) -> dict[tuple[int, int], _Used]:
    """Return the usage of this process and its descendants, by PID and start time."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[int, _Used]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            pages = int((folder / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or hidepid hides it, which affects only processes of other users
        parents[int(folder.name)] = int(fields[1])
        # user and system time
        ticks = [int(one) for one in fields[11:15]]
        used[int(folder.name)] = int(fields[19]), _Used(pages, sum(ticks[:2]), sum(ticks[2:]))
    ours, more = {os.getpid()}, True
    while more:
        below = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours, more = ours | below, bool(below)
    return {(pid, used[pid][0]): used[pid][1] for pid in ours if pid in used}


def busy_s(cores: Collection[int] | None = None, proc: Path = PROC) -> float:
    """Return the busy CPU seconds of cores since the machine's start, including time stolen by its host.

    Args:
        cores: core numbers, or None for all.
        proc: the proc file system.
    """
    lines = [line.split() for line in (proc / "stat").read_text(encoding="ascii").splitlines()]
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    # user, nice, system, idle, iowait, irq, softirq, steal
    found = [[int(word) for word in words[1:9]] for words in lines if words[0] in names]
    return sum(sum(ticks) - ticks[3] - ticks[4] for ticks in found) / TICKS_PER_S


@contextmanager
def others(cores: Collection[int] | None = None, own_s: Callable[[], float] | None = None) -> Iterator[Others]:
    """Measure the CPU usage of other processes within the block; the yielded object has the result after the block.

    Args:
        cores: core numbers, or None for all.
        own_s: returns our own CPU seconds on these cores; by default those of this process and its descendants.
    """
    found = Others()
    with _own() if own_s is None else nullcontext(own_s) as own:
        begun, busy, used = time.monotonic(), busy_s(cores), own()
        try:
            yield found
        finally:
            found.seconds = time.monotonic() - begun
            found.own_s = own() - used
            # ticks are coarse, so the difference can be slightly negative
            found.cpus = max(0.0, busy_s(cores) - busy - found.own_s) / found.seconds if found.seconds else 0.0


@contextmanager
def _own() -> Iterator[Callable[[], float]]:
    """Measure the CPU seconds, from now on, of this process and its descendants, even of those not waited for.

    The daemon of Spark's Python workers ends without waiting for them. Their usage, which is nearly all, would be
    attributed to other processes. So a thread samples all descendants every ``LOOK_S``, and the last sample of each
    process counts. A process that was never sampled counts through a parent that waited for it.
    """
    last: dict[tuple[int, int], int] = {}
    lock, over = threading.Lock(), threading.Event()

    def ticks() -> tuple[int, int]:
        with lock:
            now = _ours(PROC)
            last.update({who: one.own for who, one in now.items()})
            return sum(one.own + one.ended for one in now.values()), sum(last.values())

    begun = ticks()

    def seconds() -> float:
        # both are lower bounds: each misses usage that the other includes
        return max(now - before for now, before in zip(ticks(), begun, strict=True)) / TICKS_PER_S

    def loop() -> None:
        while not over.wait(LOOK_S):
            ticks()

    thread = threading.Thread(target=loop, name="usage", daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


class Others:
    """Result of ``others``.

    Attributes:
        cpus: mean number of CPUs that other processes used.
        own_s: our own CPU seconds.
        seconds: length of the measurement.
    """

    cpus: float = 0.0
    own_s: float = 0.0
    seconds: float = 0.0
