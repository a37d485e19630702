"""What a slow fault adds is told from what the way does already, on busy machines, too; else it is refused."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyhooks.cluster import echo
from pyhooks.cluster.echo import Rtt
from pyhooks.cluster.topology import Node, Quality, find, load
from pyhooks.errors import RackgateError
from pyhooks.fault import measuring
from pyhooks.fault.injection import Target, site_of
from pyhooks.fault.slow import Slow


class Path:
    """A way whose echoes are drawn; ``noise_ms`` is what a busy machine adds in each look, one after the other."""

    def __init__(self, quality: Quality, seed: str, noise_ms: tuple[float, ...] = ()) -> None:
        self.quality, self.noise_ms = quality, list(noise_ms)
        self.random = random.Random(seed)  # noqa: S311 - not for secrets
        self.sent: list[int] = []

    def measure(self, count: int, apart_ms: float) -> Rtt:
        self.sent.append(count)
        noise_ms = self.noise_ms.pop(0) if self.noise_ms else 0.1
        apart_ms = max(apart_ms, 1000 * (echo.INTERVAL_S if count <= echo.MANY else echo.FAST_S))
        half_ms = self.quality.jitter_ms / 2
        # when the packet before it left either direction
        left_ms, times = [-1e9, -1e9], []
        for number in range(count):
            at_ms = number * apart_ms
            for direction in range(2):
                own_ms = self.quality.rtt_ms / 2 + self.random.uniform(-half_ms, half_ms)
                at_ms = left_ms[direction] = max(left_ms[direction], at_ms + own_ms)
            if self.random.random() > measuring.echo_loss(self.quality.loss_percent):
                # half of the echoes meet somebody else
                more_ms = self.random.choice((0, self.random.uniform(0, noise_ms)))
                times.append(at_ms - number * apart_ms + more_ms)
        first, middle, third = statistics.quantiles(times, n=4)
        return Rtt("a", "b", count, len(times), middle, max(times), max(times), third - first)


CASES = [
    (Quality(2), Quality(40)),
    (Quality(2), Quality(20, 8, 5)),
    (Quality(2), Quality(60, 30, 5)),
    (Quality(2), Quality(200, 80)),
    (Quality(20, 10), Quality(25)),
    (Quality(20, 4), Quality(100, 24)),
    (Quality(20, 4, 10), Quality(100, 24, 10)),
]


@pytest.mark.parametrize(("base", "added"), CASES)
def test_what_is_added_is_told_and_what_was_there_is_not(base: Quality, added: Quality) -> None:
    measuring.check("rack b", "x to y", base, added)
    for seed in range(20):
        before, under = Path(base, f"{seed}"), Path(base.plus(added), f"{seed}")
        assert not any(ask() for ask in measuring.questions("w", base, added, before.measure).values())
        assert all(ask() for ask in measuring.questions("w", base, added, under.measure).values())
        # a way that does not look slow is not looked at again, but for how it varies if the first look was for a loss
        assert (len(before.sent), len(under.sent)) == (1 + (before.sent[0] > echo.MANY), measuring.LOOKS)


def test_a_busy_machine_does_not_look_like_a_fault() -> None:
    base, added = Quality(2), Quality(20, 8)
    way = Path(base, "s", (60.0, 60.0))
    found = {name: ask() for name, ask in measuring.questions("w", base, added, way.measure).items()}
    assert found == {"w takes 11.6 ms": False, "w varies by 2.1 ms": False}
    assert len(way.sent) == 3


@pytest.mark.parametrize(
    ("base", "added", "says"),
    [
        (Quality(20, 10), Quality(24), r"jitter_ms = 10 already, so nobody .* round trip of 25 ms or more"),
        (Quality(20, 4), Quality(100, 23), r"jitter_ms = 4 already, so nobody .* jitter of 24 ms or more, or for 0"),
        (Quality(20, 0, 50), Quality(20, 0, 1), r"loses 50 % already, and it would take \d{5,} echoes"),
    ],
)
def test_what_nobody_could_tell_is_refused(base: Quality, added: Quality, says: str) -> None:
    with pytest.raises(RackgateError, match=f"^rack b: the way from x to y .*{says}"):
        measuring.check("rack b", "x to y", base, added)


class Wires:
    """A cluster that counts how many measure over the wires into a rack at a time."""

    def __init__(self) -> None:
        self.topology = load(find("az3-outside"))
        self.ways = SimpleNamespace(quality=lambda _link, _without: Quality(2))
        self._lock, self._now, self.most = Lock(), Counter[str](), Counter[str]()

    def rtt(self, target: Node, source: Node | None, count: int, apart_ms: float) -> Rtt:
        del apart_ms
        wire = site_of(cast(Any, self), source)
        with self._lock:
            self._now[wire] += 1
            self.most[wire] = max(self.most[wire], self._now[wire])
        # long enough for whoever does not wait
        time.sleep(0.02)
        with self._lock:
            self._now[wire] -= 1
        return Rtt(wire, target.name, count, count, 62.0, 90.0, 90.0, 17.0)


@pytest.mark.parametrize(("jitter_ms", "alone"), [(30.0, True), (0.0, False)])
def test_echoes_of_several_ways_over_a_wire_that_varies_do_not_meet(jitter_ms: float, alone: bool) -> None:
    wires = Wires()
    asked = Slow(cast(Any, wires), Target("rack", "b", "b", wires.topology.site("b").nodes), Quality(60, jitter_ms))
    probes = asked.probes().values()
    with ThreadPoolExecutor(len(probes)) as pool:
        assert all(pool.map(lambda ask: ask(), probes))
    assert set(wires.most) == {"a", "c", "outside"}
    assert (set(wires.most.values()) == {1}) is alone
