"""The clock of another host: what it tells of moments, by the clock of this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event

# fields of events that are moments of the monotonic clock, in nanoseconds
MOMENTS = ("intended_ns", "sent_ns", "begun_ns", "asked_ns")
QUESTIONS = 5
# A fifth of what checkers grant to a look, see pyhooks.checkers.settling_times.LAG_S.
ERROR_MS = 200.0


@dataclass(frozen=True)
class Clock:
    """A monotonic clock, which begins anywhere.

    Attributes:
        ahead_ns: by how much it is ahead of ours.
        error_ns: by how much that may be wrong.
    """

    ahead_ns: int
    error_ns: int

    def here(self, event: Event) -> Event:
        """An event that was noted by it, by our clock."""
        if not self.ahead_ns:
            return event
        moments = {name: int(event.data[name]) - self.ahead_ns for name in MOMENTS if event.data.get(name) is not None}
        return replace(event, mono_ns=event.mono_ns - self.ahead_ns, data={**event.data, **moments})


def compare(ask: Callable[[], int]) -> Clock:
    """Compares a clock with ours; the quickest answer counts.

    Args:
        ask: returns its time in nanoseconds.

    Raises:
        RackgateError: no answer came quickly enough.
    """
    best: Clock | None = None
    for _ in range(QUESTIONS):
        before_ns = time.monotonic_ns()
        there_ns = ask()
        after_ns = time.monotonic_ns()
        # A host that shares our kernel has our clock; then the difference is none, as far as that can be told.
        ahead_ns = 0 if before_ns <= there_ns <= after_ns else there_ns - (before_ns + after_ns) // 2
        found = Clock(ahead_ns, 0 if ahead_ns == 0 else (after_ns - before_ns) // 2)
        best = found if best is None or found.error_ns < best.error_ns else best
    assert best is not None
    if best.error_ns > ERROR_MS * 1_000_000:
        raise RackgateError(
            f"compare clocks: an answer takes {2 * best.error_ns / 1e6:.0f} ms, so moments may be wrong by half of it;"
            f" {ERROR_MS:g} ms are the most"
        )
    return best
