"""Probes for added delay, jitter, loss and rate limit of a path, all based on echo measurements.

A busy machine only adds to round-trip times, their variation and lost packets. So a path that appears slow or lossy is
measured again, and the lowest values count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from statistics import median
from threading import Lock

from pyhooks.core.errors import RackgateError
from pyhooks.lab.echo import BURST_BYTES, RoundTripTimes
from pyhooks.lab.topology import Quality

# A path counts as slowed from this share of the added round-trip time on; without the fault paths are faster.
DELAY_SHARE = 0.8
PINGS = 5
SIGMAS = 3.9
# Delays that vary uniformly in one direction have an interquartile range (IQR) equal to the jitter. With half of it in
# each direction, the IQR of the sum is 2 - sqrt(2) = 0.58 of that. A path keeps its packets in order: one that would
# overtake the previous packet waits for it. So the more packets there are, from any sender, the less they vary and the
# later they arrive, up to the whole jitter. The IQR plus 0.58 of the lateness of the median is the IQR without such
# waiting: within a tenth, by simulation of up to 3,000 packets/s and jitters of 4 to 80 milliseconds. Measured with 90
# echoes, this sum has a standard deviation of at most 13 %, so 0.45 of it is 4 deviations lower.
IQR_SHARE = 0.58
JITTER_SHARE, JITTER_PINGS = 0.45 * IQR_SHARE, 90
MEASUREMENTS_MAX = 3
# The added quality must stand out from that of the link. Medians of 60 echoes are off by at most half of the jitter
# (3.9 standard deviations), and by all of it under heavy traffic. With six times the jitter added, the threshold is
# 0.26 * 7 = 1.8 times the existing jitter, which by itself yields at most 0.7 times.
RTT_ABOVE_JITTER, JITTER_ABOVE_JITTER = 2.5, 6.0
ECHOES_MAX = 10_000
# A rate is proved by bursts of large echoes, one at a time, which queue for BURST_MS at this rate. Their median must
# exceed the round-trip time of a single echo, which is at least that of the links, by half of the expected wait. A busy
# machine delays bursts, and sends some too slowly to queue, so the median of BURSTS counts. The emulator holds 256
# frames that it has not read.
BURST_MS, BURST_MIN, BURST_MAX = 24.0, 8, 200
RATE_SHARE, RATE_ADDED_MIN_MS = 0.5, 6.0
SINGLES, BURSTS = 2, 5
_ONE_BURST = Lock()
# with the headers of ICMP, IP and Ethernet
_BURST_BITS = 8 * (BURST_BYTES + 42)


def echo_loss(percent: float) -> float:
    """Return the share of echoes lost on a path with this loss percentage in each direction."""
    return 1 - (1 - percent / 100) ** 2


def echoes_needed(before: float, under: float) -> int:
    """Return the number of echoes that distinguish two loss shares with an error probability of 1 in 10,000."""
    spread = sqrt(before * (1 - before)) + sqrt(under * (1 - under))
    return ceil((SIGMAS * spread / (under - before)) ** 2)


def loss_threshold(before: float, under: float) -> float:
    """Return the threshold that is equally many standard deviations from both loss shares."""
    left, right = sqrt(before * (1 - before)), sqrt(under * (1 - under))
    return (before * right + under * left) / (left + right)


def _echoes(base: Quality, added: Quality) -> int:
    """Return the number of echoes in the first measurement: enough replies for a median despite the loss."""
    lost_before, loss_share = echo_loss(base.loss_percent), echo_loss(base.plus(added).loss_percent)
    count = JITTER_PINGS if added.jitter_ms or base.jitter_ms else PINGS
    if added.loss_percent:
        count = max(count, echoes_needed(lost_before, loss_share))
    return ceil(count / (1 - loss_share))


def _least_added(base: Quality, added: Quality) -> tuple[float, float]:
    """Return the least added round-trip time and jitter that stand out from existing jitter, in milliseconds."""
    jitter_ms = JITTER_ABOVE_JITTER * base.jitter_ms if added.jitter_ms else 0.0
    return added.jitter_ms + RTT_ABOVE_JITTER * base.jitter_ms, jitter_ms


def is_distinguishable(base: Quality, added: Quality) -> bool:
    """Return whether added delay and jitter are distinguishable from the existing jitter."""
    rtt_ms, jitter_ms = _least_added(base, added)
    return added.rtt_ms >= rtt_ms and added.jitter_ms >= jitter_ms


def check_distinguishable(target: str, path: str, base: Quality, added: Quality) -> None:
    """Reject an added quality that would not be distinguishable from the current one.

    Raises:
        RackgateError: not distinguishable; the message has the least value that is.
    """
    already = f"{target}: the path from {path} varies by jitter_ms = {base.jitter_ms:g} already"
    rtt_ms, jitter_ms = _least_added(base, added)
    if added.rtt_ms < rtt_ms:
        raise RackgateError(f"{already}: use a round trip of {rtt_ms:g} ms or more to be distinguishable")
    if added.jitter_ms < jitter_ms:
        raise RackgateError(f"{already}: use a jitter of {jitter_ms:g} ms or more, or 0, to be distinguishable")
    if added.rate_mbit and (base.jitter_ms or base.loss_percent):
        raise RackgateError(f"{target}: the path from {path} varies or loses packets already, so no rate can be proved")
    if added.rate_mbit and _added_wait_ms(base, added) < RATE_ADDED_MIN_MS:
        raise RackgateError(
            f"{target}: the path from {path} carries at most {base.rate_mbit:g} Mbit/s already: use a lower rate"
        )
    if (count := _echoes(base, added)) > ECHOES_MAX:
        raise RackgateError(
            f"{target}: the path from {path} loses {base.loss_percent:g} % already, and it would take {count} echoes to"
            f" prove {added.loss_percent:g} % more; use a greater loss, or 0"
        )


def _burst(rate_mbit: float) -> int:
    """Return the number of echoes in the burst that proves a rate."""
    return max(BURST_MIN, min(BURST_MAX, round(rate_mbit * 1e3 * BURST_MS / _BURST_BITS)))


def _median_wait_ms(count: int, rate_mbit: float) -> float:
    """Return the time in milliseconds that the median echo of a burst waits at a rate; 0 for no limit."""
    return count / 2 * _BURST_BITS / (rate_mbit * 1e3) if rate_mbit else 0.0


def _added_wait_ms(base: Quality, added: Quality) -> float:
    count = _burst(added.rate_mbit)
    return _median_wait_ms(count, added.rate_mbit) - _median_wait_ms(count, base.rate_mbit)


class _SharedMeasurements:
    """Measurements shared by several probes, taken once by the first probe that runs."""

    def __init__(
        self, measure: Callable[[int], RoundTripTimes], count: int, slow_ms: float, full_ms: float, spread_ms: float
    ) -> None:
        self._measure, self._count, self._lock = measure, count, Lock()
        self._slow_ms, self._full_ms, self._spread_ms = slow_ms, full_ms, spread_ms
        self._found: list[RoundTripTimes] = []

    def _measurements(self) -> list[RoundTripTimes]:
        with self._lock:
            if not self._found:
                self._found.append(self._measure(self._count))
                again = min(self._count, ceil(JITTER_PINGS * self._found[0].sent / max(1, self._found[0].received)))
                while len(self._found) < MEASUREMENTS_MAX and (
                    self._median_ms() >= self._slow_ms or self._iqr_ms() >= self._spread_ms
                ):
                    self._found.append(self._measure(again))
            return self._found

    def _median_ms(self) -> float:
        return min(measurement.p50_ms for measurement in self._found)

    def _iqr_ms(self) -> float:
        return min(
            measurement.iqr_ms + IQR_SHARE * max(0.0, measurement.p50_ms - self._full_ms) for measurement in self._found
        )

    def slow(self) -> bool:
        """Return whether the path is slow in every measurement."""
        self._measurements()
        return self._median_ms() >= self._slow_ms

    def varies(self) -> bool:
        """Return whether the delay varies in every measurement."""
        self._measurements()
        return self._iqr_ms() >= self._spread_ms

    def loses_more_than(self, share: float) -> bool:
        """Return whether the path loses a greater share in every measurement that has enough echoes for it."""
        if self._measurements()[0].loss_share <= share:
            return False
        return all(self._measure(self._count).loss_share > share for _ in range(MEASUREMENTS_MAX - 1))


def path_probes(
    path: str, base: Quality, added: Quality, measure: Callable[[int], RoundTripTimes]
) -> dict[str, Callable[[], bool]]:
    """Return probes for the delay, jitter and loss of a path."""
    slow_ms = base.rtt_ms + DELAY_SHARE * (added.rtt_ms - added.jitter_ms)
    iqr_ms = JITTER_SHARE * (base.jitter_ms + added.jitter_ms)
    full_ms = base.rtt_ms + added.rtt_ms
    measurements = _SharedMeasurements(
        measure, _echoes(base, added), slow_ms, full_ms, iqr_ms if added.jitter_ms else float("inf")
    )
    conditions: dict[str, Callable[[], bool]] = {f"{path} takes {slow_ms:g} ms": measurements.slow}
    if added.jitter_ms:
        conditions[f"{path} varies by {iqr_ms:.2g} ms"] = measurements.varies
    if added.loss_percent:
        share = loss_threshold(echo_loss(base.loss_percent), echo_loss(base.plus(added).loss_percent))
        conditions[f"{path} loses more than {100 * share:.2g} %"] = lambda: measurements.loses_more_than(share)
    return conditions


def rate_probe(
    path: str, base: Quality, added: Quality, measure: Callable[..., RoundTripTimes]
) -> dict[str, Callable[[], bool]]:
    """Return the probe for the rate limit of a path; empty without one.

    ``measure`` measures a number of echoes, single or with ``burst=True``.
    """
    if not added.rate_mbit:
        return {}
    count = _burst(added.rate_mbit)
    least_ms = _median_wait_ms(count, added.rate_mbit) - (1 - RATE_SHARE) * _added_wait_ms(base, added)

    def is_limited() -> bool:
        single_ms = max(base.rtt_ms + added.rtt_ms, min(measure(PINGS).min_ms for _ in range(SINGLES)))
        with _ONE_BURST:
            burst_ms = median(measure(count, burst=True).p50_ms for _ in range(BURSTS))
        return burst_ms - single_ms >= least_ms

    return {f"{path} carries at most {added.rate_mbit:g} Mbit/s": is_limited}
