"""Measurement of added delay: it is distinguished from the link's own delay, or rejected as undetectable."""

from __future__ import annotations

import random
import statistics

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.faults import delay_measurement
from pyhooks.lab import echo
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.topology import Quality


class FakePath:
    """Fake network path with random round trips.

    Args:
        quality: delay, jitter and loss of the path.
        seed: random seed.
        noise_ms: delay that a busy machine adds in each measurement, in order.
        packets_per_s: rate of other packets on the path.
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
        interval_ms = 1000 * (echo.INTERVAL_S if count <= echo.SLOW_COUNT_MAX else echo.SHORT_INTERVAL_S)
        half_ms = self.quality.jitter_ms / 2
        echoes = [(number * interval_ms, True) for number in range(count)]
        other_packets = int(count * interval_ms * self.packets_per_s / 1000)
        # departure of the previous packet in each direction
        departed_ms, times = [-1e9, -1e9], []
        for sent_ms, is_echo in sorted(
            echoes + [(number * 1000 / self.packets_per_s, False) for number in range(other_packets)]
        ):
            now_ms = sent_ms
            for direction in range(2):
                own_ms = self.quality.rtt_ms / 2 + self.random.uniform(-half_ms, half_ms)
                now_ms = departed_ms[direction] = max(departed_ms[direction], now_ms + own_ms)
            if is_echo and self.random.random() > delay_measurement.echo_loss(self.quality.loss_percent):
                # half of the echoes are delayed by other traffic
                noise = self.random.choice((0, self.random.uniform(0, noise_ms)))
                times.append(now_ms - sent_ms + noise)
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
        without, delayed = (FakePath(quality, f"{seed}", (), packets_per_s) for quality in (base, base.plus(added)))
        assert not any(probe() for probe in delay_measurement.path_probes("w", base, added, without.measure).values())
        assert all(probe() for probe in delay_measurement.path_probes("w", base, added, delayed.measure).values())
        # a path without delay is measured only once
        again = delay_measurement.MEASUREMENTS_MAX - 1
        assert (len(without.sent), len(delayed.sent)) == (1, 1 + again + (again if added.loss_percent else 0))


@pytest.mark.parametrize(("lost", "loses"), [((1, 0), False), ((20, 20, 0), False), ((20, 20, 20), True)])
def test_a_path_loses_packets_if_it_does_so_in_every_measurement(lost: tuple[int, ...], loses: bool) -> None:
    losses = iter(lost)

    def measure(count: int) -> RoundTripTimes:
        return RoundTripTimes("a", "b", count, count - next(losses), 1.0, 1.0, 1.0)

    (_, probe) = delay_measurement.path_probes("w", Quality(1), Quality(40, loss_percent=5), measure).values()
    assert probe() is loses


def test_noise_of_a_busy_machine_is_not_taken_for_a_delay() -> None:
    base, added = Quality(2), Quality(20, 8)
    path = FakePath(base, "s", (60.0, 60.0))
    found = {name: probe() for name, probe in delay_measurement.path_probes("w", base, added, path.measure).items()}
    assert found == {"w takes 11.6 ms": False, "w varies by 2.1 ms": False}
    assert len(path.sent) == 3


@pytest.mark.parametrize(
    ("single_ms", "bursts_ms", "limited"),
    [
        ((2, 2), (2, 2, 2, 2, 2), False),
        # without the delay of the fault, on a busy machine
        ((2, 12), (20, 20, 20, 20, 20), False),
        ((41, 41), (41, 60, 60, 41, 41), False),
        ((41, 41), (52, 52, 52, 52, 52), True),
        ((41, 61), (52, 42, 70, 42, 52), True),
        ((41, 41), (52, 42, 52, 42, 42), False),
        # a delay that is longer than that of the links
        ((50, 50), (52, 52, 52, 52, 52), False),
    ],
)
def test_a_path_is_limited_if_bursts_of_echoes_wait_on_it(
    single_ms: tuple[float, ...], bursts_ms: tuple[float, ...], limited: bool
) -> None:
    singles, bursts = iter(single_ms), iter(bursts_ms)

    def measure(count: int, *, burst: bool = False) -> RoundTripTimes:
        time_ms = next(bursts if burst else singles)
        return RoundTripTimes("a", "b", count, count, time_ms, time_ms, time_ms, min_ms=time_ms)

    (probe,) = delay_measurement.rate_probe("w", Quality(1), Quality(40, rate_mbit=100), measure).values()
    assert probe() is limited


@pytest.mark.parametrize(
    ("base", "added", "error"),
    [
        (Quality(20, 10), Quality(24), r"jitter_ms = 10 already: .* round trip of 25 ms or more"),
        (Quality(20, 4), Quality(100, 23), r"jitter_ms = 4 already: .* jitter of 24 ms or more, or 0"),
        (Quality(20, 0, 50), Quality(20, 0, 1), r"loses 50 % already, and it would take \d{5,} echoes"),
        (Quality(20, 4), Quality(100, rate_mbit=20), "varies or loses packets already, so no rate can be proved"),
        (Quality(rate_mbit=20), Quality(100, rate_mbit=20), "carries at most 20 Mbit/s already: use a lower rate"),
    ],
)
def test_an_undetectable_delay_is_rejected(base: Quality, added: Quality, error: str) -> None:
    with pytest.raises(RackgateError, match=f"^rack b: the path from x to y .*{error}"):
        delay_measurement.check_distinguishable("rack b", "x to y", base, added)
