"""Was the core there while forks ran? A yardstick of fixed work before and after tells.

On a machine that others share, a core is slower for seconds or minutes. Forks that are held against each other take
turns on one core, an iteration each, so such a spell falls on all of them alike. What it can do all the same is to
leave so little of the core that the JVMs have done less when they are measured, and to make memory behind the core's
own cache so slow that nothing else shows. Which forks count is decided by a rule that is stated before anything is
measured:

- Forks that are held against each other make one *heat*. The yardstick is measured on their core before it and after.
- A heat counts if both measures are within a share of the fastest measure of the whole run, half by default.
- One that does not count is made again on the next core, three tries in all. A try ends before it begins if the first
  measure is too slow. The last try is run and kept whatever the yardstick says; if it is out it is told as disturbed.
- Before a try begins, a slow yardstick is measured a few times more, some seconds apart.

Only measures of the yardstick enter: nothing here looks at what a fork measured, so nothing is selected by its outcome.

The fastest measure may come late. A faster one can throw out heats that counted until then, and never lets one in,
since the limit only gets stricter. So no heat is settled before the end: after each round all of them are judged anew
by the fastest measure there is by then, those that fall out get one more try, and after the last round tries go on
until every heat is within the share or has had its tries. What is told is judged by the fastest measure of all. The
measures are kept with the forks, tries that did not count included, so a run that is resumed judges by the same rule
and the same fastest measure.
"""

from __future__ import annotations

import hashlib
import os
import platform
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyhooks.verify.jmh_statistics import Fork

_HASHED = bytes(range(256)) * 256
_HASHINGS = 3_000
# 8 MB: more than a core's own cache, about what the scan over 10,000 partitions goes through.
_TABLE = 2**20
_LOOKUPS = 2**17
_WALKS = 250
_SEED = 1290


@dataclass(frozen=True)
class Pace:
    """One measure of the yardstick.

    The clock on the wall is what is judged, though forks are measured by CPU time: a fork warms up for so many seconds
    on the wall, in which it does less on a core that others use too.

    Attributes:
        hash_s: for hashing a small block over and over, in seconds: the core's own speed.
        memory_s: for following references at random through a table, in seconds: what is behind its own cache.
        cpu_s: CPU time of both, in seconds; much less than they took if the core was not ours alone.
    """

    hash_s: float
    memory_s: float
    cpu_s: float

    @property
    def total_s(self) -> float:
        """Both parts on the wall; what is judged."""
        return self.hash_s + self.memory_s


class Yardstick:
    """Fixed work, some 300 ms of it, about half of it hashing and half of it in memory."""

    def __init__(self) -> None:
        drawn = np.random.default_rng(_SEED)
        self._table = drawn.permutation(_TABLE)
        self._start = drawn.integers(0, _TABLE, size=_LOOKUPS)
        self._work(1, 1)

    def measure(self) -> Pace:
        """Does the work once, after a short lead that brings its data back into the caches."""
        self._work(_HASHINGS // 50, 2)
        return self._work(_HASHINGS, _WALKS)

    def _work(self, hashings: int, walks: int) -> Pace:
        began, cpu = time.perf_counter(), time.thread_time()
        digest = hashlib.sha256()
        for _ in range(hashings):
            digest.update(_HASHED)
        digest.digest()
        hashed = time.perf_counter()
        here, there = self._start.copy(), np.empty_like(self._start)
        for _ in range(walks):
            # "clip" writes into ``there`` itself; no index is out of range
            np.take(self._table, here, out=there, mode="clip")
            here, there = there, here
        return Pace(hashed - began, time.perf_counter() - hashed, time.thread_time() - cpu)


def identity() -> str:
    """What must be the same for two measures to be comparable: the work, what does it, and the kind of machine."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    work = (_HASHINGS, _TABLE, _LOOKUPS, _WALKS)
    return f"wall {work} {platform.python_version()} {np.__version__} {ssl.OPENSSL_VERSION} {platform.machine()} {cpu}"


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keeps this thread, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Rule:
    """When a heat counts.

    Attributes:
        within: how much slower than the fastest a measure may be, as a share.
        tries: how often a heat is tried at most; the last try is kept in any case.
        looks: how often the yardstick is measured before a try begins, as long as it is slow.
        pause_s: time between these, in seconds.
    """

    within: float = 0.5
    tries: int = 3
    looks: int = 4
    pause_s: float = 3.0


@dataclass(frozen=True)
class Heat:
    """One try of a heat.

    Attributes:
        round_: number of the round that it belongs to.
        cells: what is to run, in order; with ``round_`` the name of the heat.
        core: on which it ran.
        waited: measures before it began that were too slow.
        paces: the measure before, and the one after if it ran.
        forks: what ran, one a cell; none if the try ended before it began.
    """

    round_: int
    cells: tuple[str, ...]
    core: int
    waited: tuple[Pace, ...]
    paces: tuple[Pace, ...]
    forks: tuple[Fork, ...]

    @property
    def name(self) -> tuple[int, tuple[str, ...]]:
        """The same for all tries."""
        return self.round_, self.cells

    @property
    def whole(self) -> bool:
        """Whether all of it ran."""
        return len(self.forks) == len(self.cells)

    @property
    def slowest_s(self) -> float:
        """The slowest measure beside its forks."""
        return max(pace.total_s for pace in self.paces)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Heat:
        """Back from what ``dataclasses.asdict`` and JSON made of it."""
        return Heat(
            plain["round_"],
            tuple(plain["cells"]),
            plain["core"],
            tuple(Pace(**pace) for pace in plain["waited"]),
            tuple(Pace(**pace) for pace in plain["paces"]),
            tuple(Fork.of(fork) for fork in plain["forks"]),
        )


class Heats:
    """All tries of a run, and what the rule says of them.

    Args:
        rule: the rule.
        tries: what earlier runs left.
    """

    def __init__(self, rule: Rule, tries: Sequence[Heat] = ()) -> None:
        self.rule = rule
        self.tries = list(tries)

    @property
    def measures(self) -> list[Pace]:
        """All measures of the yardstick."""
        return [pace for one in self.tries for pace in (*one.waited, *one.paces)]

    def limit_s(self, also: Sequence[Pace] = ()) -> float:
        """The slowest that a measure may be: by all measures there are, and ``also``."""
        return min(pace.total_s for pace in (*self.measures, *also)) * (1 + self.rule.within)

    def kept(self) -> list[Heat]:
        """The last whole try of each heat."""
        return list({one.name: one for one in self.tries if one.whole}.values())

    def disturbed(self) -> list[Heat]:
        """Those of ``kept`` that are out by the fastest measure there is."""
        kept = self.kept()
        limit_s = self.limit_s() if kept else 0.0
        return [one for one in kept if one.slowest_s > limit_s]

    def tried(self, name: tuple[int, tuple[str, ...]]) -> int:
        """How many tries a heat has had."""
        return sum(one.name == name for one in self.tries)

    def to_make_again(self) -> list[tuple[int, tuple[str, ...]]]:
        """The heats that do not count and have tries left, in the order of their first tries."""
        names = dict.fromkeys(one.name for one in self.tries)
        settled = {one.name for one in self.kept()} - {one.name for one in self.disturbed()}
        return [name for name in names if name not in settled and self.tried(name) < self.rule.tries]

    def told(self) -> dict[str, Any]:
        """The rule and what came of it, as plain JSON; forks are those of one benchmark on one side."""
        kept, disturbed, totals = self.kept(), self.disturbed(), np.asarray([pace.total_s for pace in self.measures])
        result: dict[str, Any] = {
            "within_percent": round(self.rule.within * 100, 3),
            "tries": self.rule.tries,
            "heats": len(kept),
            "forks_kept": sum(len(one.forks) for one in kept),
            "forks_made_again": sum(len(one.forks) for one in self.tries) - sum(len(one.forks) for one in kept),
            "forks_disturbed": sum(len(one.forks) for one in disturbed),
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
                word: round(float(value), 1) for word, value in zip(("median", "p90", "most"), slower, strict=True)
            },
        }


class Pacer:
    """Runs heats by the rule.

    Args:
        heats: takes each try.
        measure: measures the yardstick.
        forks: runs a fork of each cell; gets their names and the number of the round.
        keep: is given each try as soon as it has ended.
        cores: that may be used, in turn.
        pin: keeps this thread, and what it starts, on a core.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        heats: Heats,
        *,
        measure: Callable[[], Pace],
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
        """Makes one try of a heat."""
        tried = self._heats.tried((round_, tuple(cells)))
        core = self._cores[(round_ + tried) % len(self._cores)]
        with self._pin(core):
            heat = self._try(round_, tuple(cells), core, last=tried + 1 >= self._heats.rule.tries)
        self._heats.tries.append(heat)
        self._keep(heat)

    def _try(self, round_: int, cells: tuple[str, ...], core: int, *, last: bool) -> Heat:
        rule, waited = self._heats.rule, list[Pace]()
        paces, forks = [self._measure()], list[Fork]()
        while len(waited) + 1 < rule.looks and self._slow(paces, waited):
            waited += paces
            self._sleep(rule.pause_s)
            paces = [self._measure()]
        if last or not self._slow(paces, waited):
            forks += self._forks(cells, round_)
            paces.append(self._measure())
        return Heat(round_, cells, core, tuple(waited), tuple(paces), tuple(forks))

    def _slow(self, paces: Sequence[Pace], waited: Sequence[Pace]) -> bool:
        return max(pace.total_s for pace in paces) > self._heats.limit_s((*paces, *waited))

    def again(self, cells: frozenset[str]) -> None:
        """Makes one more try of each heat that has to be made again and has no other cells than these."""
        for name in self.open(cells):
            self.run(*name)

    def open(self, cells: frozenset[str]) -> list[tuple[int, tuple[str, ...]]]:
        """The heats that have to be made again and have no other cells than these."""
        return [name for name in self._heats.to_make_again() if cells.issuperset(name[1])]
