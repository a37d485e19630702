"""Added delay is distinguished from the link's own delay, also on busy machines, or refused."""

from __future__ import annotations

import random
import statistics

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.faults import delay_measurement
from pyhooks.lab import echo
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.topology import Quality


class Path:
    """A way whose echoes are drawn, among so many other packets a second.

    ``noise_ms`` is what a busy machine adds in each look, one after the other.
    """

    def __init__(
        self, quality: Quality, seed: str, noise_ms: tuple[float, ...] = (), packets_per_s: float = 0.0
    ) -> None:
        self.quality, self.noise_ms, self.packets_per_s = quality, list(noise_ms), packets_per_s
        self.random = random.Random(seed)  # noqa: S311 - not for secrets
        self.sent: list[int] = []

    def measure(self, count: int) -> RoundTripTimes:
        self.sent.append(count)
        noise_ms = self.noise_ms.pop(0) if self.noise_ms else 0.1
        apart_ms = 1000 * (echo.INTERVAL_S if count <= echo.SLOW_COUNT_MAX else echo.SHORT_INTERVAL_S)
        half_ms = self.quality.jitter_ms / 2
        echoes = [(number * apart_ms, True) for number in range(count)]
        others = int(count * apart_ms * self.packets_per_s / 1000)
        # when the packet before it left either direction
        left_ms, times = [-1e9, -1e9], []
        for began_ms, ours in sorted(
            echoes + [(number * 1000 / self.packets_per_s, False) for number in range(others)]
        ):
            at_ms = began_ms
            for direction in range(2):
                own_ms = self.quality.rtt_ms / 2 + self.random.uniform(-half_ms, half_ms)
                at_ms = left_ms[direction] = max(left_ms[direction], at_ms + own_ms)
            if ours and self.random.random() > delay_measurement.echo_loss(self.quality.loss_percent):
                # half of the echoes are delayed by other traffic
                more_ms = self.random.choice((0, self.random.uniform(0, noise_ms)))
                times.append(at_ms - began_ms + more_ms)
        first, middle, third = statistics.quantiles(times, n=4)
        return RoundTripTimes("a", "b", count, len(times), middle, max(times), max(times), third - first)


CASES = [
    (Quality(2), Quality(40)),
    (Quality(2), Quality(20, 8, 5)),
    (Quality(2), Quality(60, 30, 5)),
    (Quality(2), Quality(200, 80)),
    (Quality(20, 10), Quality(25)),
    (Quality(20, 4), Quality(100, 24)),
    (Quality(20, 4, 10), Quality(100, 24, 10)),
]


@pytest.mark.parametrize("packets_per_s", [0.0, 400.0, 3000.0])
@pytest.mark.parametrize(("base", "added"), CASES)
def test_added_delay_is_detected_and_existing_delay_is_not(base: Quality, added: Quality, packets_per_s: float) -> None:
    delay_measurement.check_distinguishable("rack b", "x to y", base, added)
    for seed in range(20):
        before, under = (Path(way, f"{seed}", (), packets_per_s) for way in (base, base.plus(added)))
        assert not any(ask() for ask in delay_measurement.path_probes("w", base, added, before.measure).values())
        assert all(ask() for ask in delay_measurement.path_probes("w", base, added, under.measure).values())
        # a way that does not look slow is not looked at again
        assert (len(before.sent), len(under.sent)) == (1, delay_measurement.MEASUREMENTS_MAX)


def test_a_busy_machine_is_not_mistaken_for_a_fault() -> None:
    base, added = Quality(2), Quality(20, 8)
    way = Path(base, "s", (60.0, 60.0))
    found = {name: ask() for name, ask in delay_measurement.path_probes("w", base, added, way.measure).items()}
    assert found == {"w takes 11.6 ms": False, "w varies by 2.1 ms": False}
    assert len(way.sent) == 3


@pytest.mark.parametrize(
    ("base", "added", "error"),
    [
        (Quality(20, 10), Quality(24), r"jitter_ms = 10 already: .* round trip of 25 ms or more"),
        (Quality(20, 4), Quality(100, 23), r"jitter_ms = 4 already: .* jitter of 24 ms or more, or 0"),
        (Quality(20, 0, 50), Quality(20, 0, 1), r"loses 50 % already, and it would take \d{5,} echoes"),
    ],
)
def test_an_undetectable_delay_is_refused(base: Quality, added: Quality, error: str) -> None:
    with pytest.raises(RackgateError, match=f"^rack b: the path from x to y .*{error}"):
        delay_measurement.check_distinguishable("rack b", "x to y", base, added)
