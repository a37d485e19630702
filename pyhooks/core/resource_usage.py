"""What processes use of a machine, from /proc: this one with all that it began, and everything else."""

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
    """Of this process and all that it began, directly or not: resident memory in GiB, and CPU seconds so far.

    Pages that processes share are counted for each of them. The CPU time of those that have ended counts once their
    parent has waited for them.
    """
    found = _ours(proc).values()
    return sum(one.pages for one in found) * PAGE_BYTES / 2**30, sum(one.own + one.ended for one in found) / TICKS_PER_S


@dataclass(frozen=True)
class _Used:
    """What a process has used: pages of memory, and ticks of its own and of its children that it has waited for."""

    pages: int
    own: int
    ended: int


def _ours(proc: Path) -> dict[tuple[int, int], _Used]:
    """This process and all below it, by id and time of start."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[int, _Used]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            pages = int((folder / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked, or /proc hides it (hidepid), which it does with other users' alone
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
        own_s: our own CPU seconds on them, by default those of this process and all that it began.
    """
    found = Others()
    with _own() if own_s is None else nullcontext(own_s) as own:
        begun, busy, used = time.monotonic(), busy_s(cores), own()
        try:
            yield found
        finally:
            found.seconds = time.monotonic() - begun
            found.own_s = own() - used
            # ticks are coarse, so a little below zero is zero
            found.cpus = max(0.0, busy_s(cores) - busy - found.own_s) / found.seconds if found.seconds else 0.0


@contextmanager
def _own() -> Iterator[Callable[[], float]]:
    """CPU seconds, from now on, of this process and all that it began; those count, too, whose parent does not wait.

    The daemon of Spark's Python workers ends without: what they used, which is nearly all, would seem to be others'. So
    all are looked at again and again, and what each had used when it was seen last counts. Who was never seen counts by
    a parent that waited for it.
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
        # each is too low by what only the other has
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
    """What ``others`` has found.

    Attributes:
        cpus: mean number of CPUs that others had in use.
        own_s: CPU seconds of our own.
        seconds: length of the measurement.
    """

    cpus: float = 0.0
    own_s: float = 0.0
    seconds: float = 0.0
