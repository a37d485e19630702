"""Whether a way is slower, varies more or loses more than before: questions that one measurement answers.

A busy machine only adds to round trips and to how they vary: what looks slow is looked at again, and the least counts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from threading import Lock

from pyhooks.core.errors import RackgateError
from pyhooks.lab.echo import Rtt
from pyhooks.lab.topology import Quality

# A slowed path is believed from this share of the asked round trip on; the paths are faster than that without it.
BELIEVED = 0.8
PINGS = 5
SIGMAS = 3.9
# Quartiles of what varies evenly in one direction are as far apart as the jitter; of a sum of two directions, each with
# half of it, 2 - sqrt(2) = 0.58 of that. A way keeps the order of its packets: one that comes before the last one has
# arrived waits for it. So the more packets there are, whoever sends them, the less they vary and the later they come,
# up to the whole jitter. How far apart the quartiles are and 0.58 of how late the median comes add up to what they
# would be apart if no two packets met: within a tenth, by simulation of up to 3,000 packets/s and jitters of 4 to 80
# milliseconds. By 90 echoes the sum is measured with a deviation of 13 % or less: 0.45 of it are 4 deviations less.
QUARTILES = 0.58
SPREAD, JITTER_PINGS = 0.45 * QUARTILES, 90
LOOKS = 3
# What is asked has to stand out from what the link does already. Medians of 60 echoes are off by half of the jitter at
# most (3.9 deviations), and by all of it if there is much traffic. With six times the jitter the limit is
# 0.26 * 7 = 1.8 times the jitter that was there, which itself adds up to 0.7 at most.
RTT_ABOVE_JITTER, JITTER_ABOVE_JITTER = 2.5, 6.0
MOST_ECHOES = 10_000


def echo_loss(percent: float) -> float:
    """Share of echoes lost over a way that loses in each direction."""
    return 1 - (1 - percent / 100) ** 2


def enough(before: float, under: float) -> int:
    """Echoes that tell two shares of loss apart, with an error of one in ten thousand."""
    spread = sqrt(before * (1 - before)) + sqrt(under * (1 - under))
    return ceil((SIGMAS * spread / (under - before)) ** 2)


def between(before: float, under: float) -> float:
    """The share that is as far from one as from the other, each measured by how much it varies."""
    left, right = sqrt(before * (1 - before)), sqrt(under * (1 - under))
    return (before * right + under * left) / (left + right)


def _echoes(base: Quality, added: Quality) -> int:
    """How many are sent in the first look: enough answers for a median, whatever is lost."""
    lost_before, lost = echo_loss(base.loss_percent), echo_loss(base.plus(added).loss_percent)
    count = JITTER_PINGS if added.jitter_ms or base.jitter_ms else PINGS
    if added.loss_percent:
        count = max(count, enough(lost_before, lost))
    return ceil(count / (1 - lost))


def _least(base: Quality, added: Quality) -> tuple[float, float]:
    """The least round trip and jitter that stand out from the jitter that is there, in milliseconds."""
    jitter_ms = JITTER_ABOVE_JITTER * base.jitter_ms if added.jitter_ms else 0.0
    return added.jitter_ms + RTT_ABOVE_JITTER * base.jitter_ms, jitter_ms


def stands_out(base: Quality, added: Quality) -> bool:
    """Whether delay and jitter can be told from the jitter that is there."""
    rtt_ms, jitter_ms = _least(base, added)
    return added.rtt_ms >= rtt_ms and added.jitter_ms >= jitter_ms


def check(what: str, way: str, base: Quality, added: Quality) -> None:
    """Refuses what could not be told from what a way does already.

    Args:
        what: is slowed, for the error.
        way: between whom, for the error.
        base: what the way does without the fault.
        added: what the fault adds.

    Raises:
        RackgateError: says what could be told.
    """
    already = f"{what}: the way from {way} varies by jitter_ms = {base.jitter_ms:g} already"
    rtt_ms, jitter_ms = _least(base, added)
    if added.rtt_ms < rtt_ms:
        raise RackgateError(f"{already}, so nobody could tell: ask for a round trip of {rtt_ms:g} ms or more")
    if added.jitter_ms < jitter_ms:
        raise RackgateError(f"{already}, so nobody could tell: ask for a jitter of {jitter_ms:g} ms or more, or for 0")
    if (count := _echoes(base, added)) > MOST_ECHOES:
        raise RackgateError(
            f"{what}: the way from {way} loses {base.loss_percent:g} % already, and it would take {count} echoes to"
            f" prove {added.loss_percent:g} % more; ask for a greater loss, or for 0"
        )


class _Looks:
    """Measurements that several questions share; made once, by whoever comes first."""

    def __init__(
        self, measure: Callable[[int], Rtt], count: int, slow_ms: float, full_ms: float, spread_ms: float
    ) -> None:
        self._measure, self._count, self._lock = measure, count, Lock()
        self._slow_ms, self._full_ms, self._spread_ms = slow_ms, full_ms, spread_ms
        self._found: list[Rtt] = []

    def _made(self) -> list[Rtt]:
        with self._lock:
            if not self._found:
                self._found.append(self._measure(self._count))
                again = min(self._count, ceil(JITTER_PINGS * self._found[0].sent / max(1, self._found[0].received)))
                while len(self._found) < LOOKS and (
                    self._p50_ms() >= self._slow_ms or self._least_spread_ms() >= self._spread_ms
                ):
                    self._found.append(self._measure(again))
            return self._found

    def _p50_ms(self) -> float:
        return min(one.p50_ms for one in self._found)

    def _least_spread_ms(self) -> float:
        return min(one.spread_ms + QUARTILES * max(0.0, one.p50_ms - self._full_ms) for one in self._found)

    def slow(self) -> bool:
        """Whether the way is slow in every look."""
        self._made()
        return self._p50_ms() >= self._slow_ms

    def varies(self) -> bool:
        """Whether it varies in every look."""
        self._made()
        return self._least_spread_ms() >= self._spread_ms

    def lost(self) -> float:
        """What the first look, which is long enough, has lost."""
        return self._made()[0].lost


def questions(way: str, base: Quality, added: Quality, measure: Callable[[int], Rtt]) -> dict[str, Callable[[], bool]]:
    """Is a way as slow as asked, does it vary, and does it lose?

    Args:
        way: its name.
        base: what it does without the fault.
        added: what the fault adds.
        measure: sends so many echo requests over it.
    """
    slow_ms = base.rtt_ms + BELIEVED * (added.rtt_ms - added.jitter_ms)
    spread_ms = SPREAD * (base.jitter_ms + added.jitter_ms)
    full_ms = base.rtt_ms + added.rtt_ms
    looks = _Looks(measure, _echoes(base, added), slow_ms, full_ms, spread_ms if added.jitter_ms else float("inf"))
    found: dict[str, Callable[[], bool]] = {f"{way} takes {slow_ms:g} ms": looks.slow}
    if added.jitter_ms:
        found[f"{way} varies by {spread_ms:.2g} ms"] = looks.varies
    if added.loss_percent:
        share = between(echo_loss(base.loss_percent), echo_loss(base.plus(added).loss_percent))
        found[f"{way} loses more than {100 * share:.2g} %"] = lambda: looks.lost() > share
    return found
