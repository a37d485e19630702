"""CPU, memory and open files from /proc: this process with its descendants, and all other processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pyhooks.core.process import descendants
from pyhooks.core.repeated_calls import calling_every

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.2


def tree() -> tuple[float, float]:
    """Return resident memory in GiB and CPU seconds so far, of this process and all its descendants.

    Shared pages count for each process. The CPU time of an ended process counts once its parent has waited for it.
    """
    usages = _own_usages().values()
    return sum(usage.memory_bytes for usage in usages) / 2**30, sum(usage.own_s + usage.ended_s for usage in usages)


def open_files() -> int:
    """Return the number of open file descriptors of this process and all its descendants."""
    count = 0
    for process in [psutil.Process(), *descendants(os.getpid())]:
        # as in _own_usages
        with suppress(psutil.Error):
            count += process.num_fds()
    return count


@dataclass(frozen=True)
class _Usage:
    """Usage of a process: memory, its own CPU time, and that of the ended children that it waited for."""

    memory_bytes: int
    own_s: float
    ended_s: float


def _own_usages() -> dict[psutil.Process, _Usage]:
    """Return the usage of this process and of its descendants."""
    usages = {}
    for process in [psutil.Process(), *descendants(os.getpid())]:
        # errors: it has ended meanwhile, or hidepid hides it, which affects only processes of other users
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            usages[process] = _Usage(
                process.memory_info().rss, times.user + times.system, times.children_user + times.children_system
            )
    return usages


def busy_s(cores: Collection[int] | None = None, proc: Path = PROC) -> float:
    """Return the busy CPU seconds of these cores (None: all) since the machine's start, with time stolen by its host.

    psutil does not name the cores in its list, in which those that are offline are missing.
    """
    lines = [line.split() for line in (proc / "stat").read_text(encoding="ascii").splitlines()]
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks_by_core = [[int(field) for field in fields[1:9]] for fields in lines if fields[0] in names]
    return sum(sum(ticks) - ticks[3] - ticks[4] for ticks in ticks_by_core) / TICKS_PER_S


@contextmanager
def others(cores: Collection[int] | None = None, own_s: Callable[[], float] | None = None) -> Iterator[Others]:
    """Measure the CPU usage of other processes within the block; the yielded object has the result after the block.

    Args:
        cores: core numbers, or None for all.
        own_s: returns our own CPU seconds on these cores; by default those of this process and its descendants.
    """
    usage_of_others = Others()
    with _own() if own_s is None else nullcontext(own_s) as own:
        begun, busy, used = time.monotonic(), busy_s(cores), own()
        try:
            yield usage_of_others
        finally:
            usage_of_others.seconds = time.monotonic() - begun
            usage_of_others.own_s = own() - used
            # ticks are coarse, so the difference can be slightly negative
            usage_of_others.cpus = (
                max(0.0, busy_s(cores) - busy - usage_of_others.own_s) / usage_of_others.seconds
                if usage_of_others.seconds
                else 0.0
            )


@contextmanager
def _own() -> Iterator[Callable[[], float]]:
    """Measure the CPU seconds, from now on, of this process and its descendants, even of those not waited for.

    The daemon of Spark's Python workers ends without waiting for them. Their usage, which is nearly all, would be
    attributed to other processes. So a thread samples all descendants every ``SAMPLE_S``, and the last sample of each
    process counts. A process that was never sampled counts through a parent that waited for it.
    """
    last: dict[psutil.Process, float] = {}
    lock = threading.Lock()

    def sample() -> tuple[float, float]:
        with lock:
            now = _own_usages()
            last.update({process: usage.own_s for process, usage in now.items()})
            return sum(usage.own_s + usage.ended_s for usage in now.values()), sum(last.values())

    begun = sample()

    def seconds() -> float:
        # both are lower bounds: each misses usage that the other includes
        return max(now - before for now, before in zip(sample(), begun, strict=True))

    with calling_every(SAMPLE_S, sample, "usage"):
        yield seconds


class Others:
    """Result of ``others``: mean CPUs that other processes used, our own CPU seconds, and the duration."""

    cpus: float = 0.0
    own_s: float = 0.0
    seconds: float = 0.0
