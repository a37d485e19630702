"""Detection of CPU contention while JMH forks run, with a *yardstick*: a fixed calibration workload.

A core of a shared machine can be slower for seconds or minutes. Compared forks alternate on one core after each
iteration, so such a period affects all of them alike. Two effects remain: the JVMs may be less warmed up when measured,
and memory beyond the core's own cache may be so slow that it hides other differences. So a rule, which uses only
measurements of the yardstick and none of the forks, decides which forks count:

- Forks that are compared form one *heat*. The yardstick is measured on their core before and after it.
- A heat counts if both measurements are at most 50 % slower (by default) than the fastest one of the whole run.
- Other heats are repeated on the next core, up to three tries in all. A try whose first measurement is too slow runs no
  forks, except the last one, which is kept and reported as disturbed. Before a try begins, a slow yardstick is measured
  again a few times, some seconds apart.

A later, faster measurement lowers the limit, so it can disqualify heats but never qualify one. After each round, all
heats are judged again, and each disqualified heat gets one more try; the report uses the fastest measurement of all.
All tries are stored with their measurements, so a resumed run applies the same rule and limit.
"""

from __future__ import annotations

import hashlib
import os
import platform
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyhooks.verify.jmh_statistics import Fork

_HASHED = bytes(range(256)) * 256
_HASHINGS = 3_000
# 8 MB: more than a core's own cache, and about the memory that the scan over 10,000 partitions reads.
_TABLE = 2**20
_LOOKUPS = 2**17
_WALKS = 250
_SEED = 1290


@dataclass(frozen=True)
class YardstickTime:
    """One measurement of the yardstick.

    The rule uses wall-clock time, though forks are measured by CPU time: a fork warms up for a fixed wall-clock time,
    in which it does less work on a contended core.

    Attributes:
        hash_s: time to hash a small block repeatedly, in seconds: the speed of the core itself.
        memory_s: time to follow random references through a table, in seconds: the speed of memory beyond its cache.
        cpu_s: CPU time of both, in seconds; much less than their wall-clock time if the core was contended.
    """

    hash_s: float
    memory_s: float
    cpu_s: float

    @property
    def total_s(self) -> float:
        """Wall-clock time of both parts in seconds, the input of the rule."""
        return self.hash_s + self.memory_s


class Yardstick:
    """Fixed workload of about 300 ms: about half hashing, half memory access."""

    def __init__(self) -> None:
        drawn = np.random.default_rng(_SEED)
        self._table = drawn.permutation(_TABLE)
        self._start = drawn.integers(0, _TABLE, size=_LOOKUPS)
        self._work(1, 1)

    def measure(self) -> YardstickTime:
        """Run the workload once, after a short warm-up that loads its data into the caches."""
        self._work(_HASHINGS // 50, 2)
        return self._work(_HASHINGS, _WALKS)

    def _work(self, hashings: int, walks: int) -> YardstickTime:
        began, cpu = time.perf_counter(), time.thread_time()
        digest = hashlib.sha256()
        for _ in range(hashings):
            digest.update(_HASHED)
        digest.digest()
        hashed = time.perf_counter()
        current, following = self._start.copy(), np.empty_like(self._start)
        for _ in range(walks):
            # With mode "clip", NumPy writes to ``following`` directly, without a buffer; no index is out of range.
            np.take(self._table, current, out=following, mode="clip")
            current, following = following, current
        return YardstickTime(hashed - began, time.perf_counter() - hashed, time.thread_time() - cpu)


def identity() -> str:
    """Return what must be equal for two measurements to be comparable: workload, Python, libraries and CPU model."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    work = (_HASHINGS, _TABLE, _LOOKUPS, _WALKS)
    return f"wall {work} {platform.python_version()} {np.__version__} {ssl.OPENSSL_VERSION} {platform.machine()} {cpu}"


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin this thread, and the processes and threads it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class ContentionRule:
    """Rule that decides whether a heat counts.

    Attributes:
        within: how much slower than the fastest a measurement may be, as a fraction.
        tries: maximum number of tries of a heat; the last try is always kept.
        measurements: maximum number of yardstick measurements before a try, repeated while the yardstick is slow.
    """

    within: float = 0.5
    tries: int = 3
    measurements: int = 4
    pause_s: float = 3.0


@dataclass(frozen=True)
class Heat:
    """One try of a heat.

    Attributes:
        cells: names of the benchmarks to run, in order; with ``round_``, they identify the heat.
        waited: yardstick measurements before the try that were too slow.
        paces: the measurement before the forks, and the one after them if they ran.
        forks: the results, one for each cell; empty if the forks did not run.
    """

    round_: int
    cells: tuple[str, ...]
    core: int
    waited: tuple[YardstickTime, ...]
    paces: tuple[YardstickTime, ...]
    forks: tuple[Fork, ...]

    @property
    def name(self) -> tuple[int, tuple[str, ...]]:
        """Identity of the heat, the same for all its tries."""
        return self.round_, self.cells

    @property
    def complete(self) -> bool:
        """Whether all forks ran."""
        return len(self.forks) == len(self.cells)

    @property
    def slowest_s(self) -> float:
        """The slower of the measurements before and after its forks, in seconds."""
        return max(pace.total_s for pace in self.paces)


class Heats:
    """All tries of a run, judged by the rule."""

    def __init__(self, rule: ContentionRule, tries: Sequence[Heat] = ()) -> None:
        self.rule = rule
        self.tries = list(tries)

    @property
    def measures(self) -> list[YardstickTime]:
        """All measurements of the yardstick."""
        return [pace for heat in self.tries for pace in (*heat.waited, *heat.paces)]

    def limit_s(self, also: Sequence[YardstickTime] = ()) -> float:
        """Return the upper limit of a measurement in seconds, given all measurements so far and ``also``."""
        return min(pace.total_s for pace in (*self.measures, *also)) * (1 + self.rule.within)

    def kept(self) -> list[Heat]:
        """Return the last complete try of each heat."""
        return list({heat.name: heat for heat in self.tries if heat.complete}.values())

    def disturbed(self) -> list[Heat]:
        """Return those of ``kept`` that exceed the limit."""
        kept = self.kept()
        limit_s = self.limit_s() if kept else 0.0
        return [heat for heat in kept if heat.slowest_s > limit_s]

    def tries_of(self, name: tuple[int, tuple[str, ...]]) -> int:
        """Return the number of tries of a heat so far."""
        return sum(heat.name == name for heat in self.tries)

    def to_make_again(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the heats that do not count and have tries left, in the order of their first tries."""
        names = dict.fromkeys(heat.name for heat in self.tries)
        settled = {heat.name for heat in self.kept()} - {heat.name for heat in self.disturbed()}
        return [name for name in names if name not in settled and self.tries_of(name) < self.rule.tries]

    def summary(self) -> dict[str, Any]:
        """Return the rule and its results as plain JSON."""
        kept, disturbed, totals = self.kept(), self.disturbed(), np.asarray([pace.total_s for pace in self.measures])
        result: dict[str, Any] = {
            "within_percent": round(self.rule.within * 100, 3),
            "tries": self.rule.tries,
            "heats": len(kept),
            "forks_kept": sum(len(heat.forks) for heat in kept),
            "forks_made_again": sum(len(heat.forks) for heat in self.tries) - sum(len(heat.forks) for heat in kept),
            "forks_disturbed": sum(len(heat.forks) for heat in disturbed),
            "heats_disturbed": len(disturbed),
            "heats_to_make_again": len(self.to_make_again()),
            "measures": len(totals),
        }
        if not len(totals):
            return result
        slower = np.percentile(totals / totals.min() - 1, [50, 90, 100]) * 100
        return {
            **result,
            "fastest_ms": round(float(totals.min()) * 1000, 1),
            "slower_by_percent": {
                name: round(float(value), 1) for name, value in zip(("median", "p90", "most"), slower, strict=True)
            },
        }


class HeatRunner:
    """Runner of heats, which applies the rule.

    Args:
        heats: collects the tries.
        measure: measures the yardstick.
        forks: runs a fork of each cell, given their names and the number of the round.
        keep: called with each try at its end.
        cores: the cores to use in turn; by default all available ones.
        pin: pins this thread, and the processes and threads it starts, to a core.
        sleep: sleeps for a number of seconds.
    """

    def __init__(
        self,
        heats: Heats,
        *,
        measure: Callable[[], YardstickTime],
        forks: Callable[[Sequence[str], int], Sequence[Fork]],
        keep: Callable[[Heat], None],
        cores: Sequence[int] = (),
        pin: Callable[[int], AbstractContextManager[None]] = on_core,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._heats = heats
        self._measure = measure
        self._forks = forks
        self._keep = keep
        self._cores = tuple(cores) or tuple(sorted(os.sched_getaffinity(0)))
        self._pin = pin
        self._sleep = sleep

    def run(self, round_: int, cells: Sequence[str]) -> None:
        """Run one try of a heat."""
        tries_of = self._heats.tries_of((round_, tuple(cells)))
        core = self._cores[(round_ + tries_of) % len(self._cores)]
        with self._pin(core):
            heat = self._try(round_, tuple(cells), core, last=tries_of + 1 >= self._heats.rule.tries)
        self._heats.tries.append(heat)
        self._keep(heat)

    def _try(self, round_: int, cells: tuple[str, ...], core: int, *, last: bool) -> Heat:
        rule, waited = self._heats.rule, list[YardstickTime]()
        paces, forks = [self._measure()], list[Fork]()
        while len(waited) + 1 < rule.measurements and self._is_slow(paces, waited):
            waited += paces
            self._sleep(rule.pause_s)
            paces = [self._measure()]
        if last or not self._is_slow(paces, waited):
            forks += self._forks(cells, round_)
            paces.append(self._measure())
        return Heat(round_, cells, core, tuple(waited), tuple(paces), tuple(forks))

    def _is_slow(self, paces: Sequence[YardstickTime], waited: Sequence[YardstickTime]) -> bool:
        return max(pace.total_s for pace in paces) > self._heats.limit_s((*paces, *waited))

    def repeat(self, cells: frozenset[str]) -> None:
        """Run one more try of each heat in ``open``."""
        for name in self.open(cells):
            self.run(*name)

    def open(self, cells: frozenset[str]) -> list[tuple[int, tuple[str, ...]]]:
        """Return the heats that must be repeated and have no cells other than these."""
        return [name for name in self._heats.to_make_again() if cells.issuperset(name[1])]
