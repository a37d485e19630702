"""Conversion of timestamps from the monotonic clock of another host to the local one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.events import ClockDetails

READINGS = 5
# A fifth of the lag that checkers allow for an observation (LAG_S in pyhooks.checkers.settling_times).
ERROR_MS = 200.0


@dataclass(frozen=True)
class HostClock:
    """Monotonic clock of a host, relative to the local one.

    Attributes:
        ahead_ns: how far it is ahead of the local clock.
        error_ns: maximum error of ``ahead_ns``.
    """

    ahead_ns: int
    error_ns: int

    def to_local(self, event: Event) -> Event:
        """Return an event with its timestamps converted from this clock to the local one."""
        return event.shifted(-self.ahead_ns) if self.ahead_ns else event

    def error_until_ns(self, later: HostClock) -> int:
        """Return the maximum error of times converted with this comparison until a later one of the same clock."""
        return max(self.error_ns, abs(later.ahead_ns - self.ahead_ns) + later.error_ns)


def compare_clocks(read: Callable[[], int], limit_ms: float = ERROR_MS) -> HostClock:
    """Compare a clock, read in nanoseconds, with the local one; of several readings the most precise one counts.

    Args:
        read: reads the clock.
        limit_ms: maximum error.

    Raises:
        RackgateError: no reading was fast enough.
    """
    best: HostClock | None = None
    for _ in range(READINGS):
        before_ns = time.monotonic_ns()
        remote_ns = read()
        after_ns = time.monotonic_ns()
        # A host with the local kernel has the local clock: its reading lies between the two local ones.
        ahead_ns = 0 if before_ns <= remote_ns <= after_ns else remote_ns - (before_ns + after_ns) // 2
        measured = HostClock(ahead_ns, 0 if ahead_ns == 0 else (after_ns - before_ns) // 2)
        best = measured if best is None or measured.error_ns < best.error_ns else best
    assert best is not None
    if best.error_ns > limit_ms * 1_000_000:
        raise RackgateError(
            f"clocks can't be compared: a reading takes {2 * best.error_ns / 1e6:.0f} ms, half of it may be the error;"
            f" the limit is {limit_ms:g} ms"
        )
    return best


def clock_details(
    clock: HostClock, compare: Callable[[], HostClock], host: str, run_ids: Iterable[str]
) -> list[ClockDetails]:
    """Return details of a host's clock for each run, with the maximum error of its times until now; none if local.

    Args:
        clock: comparison by which the times were converted.
        compare: compares the clock again, to include its drift.
        host: name of the host.
        run_ids: runs on the host.

    Raises:
        RackgateError: no reading was fast enough.
    """
    if not clock.ahead_ns:
        return []
    error_ns = clock.error_until_ns(compare())
    return [ClockDetails(run=run, host=host, error_ns=error_ns) for run in run_ids]
