"""Open-loop pacing: the intended send time of each record is fixed in advance, regardless of delays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

NS = 1_000_000_000
# Longest single sleep; longer waits are split.
SLEEP_S = 0.5


def due_ns(index: int, rate_per_s: float) -> int:
    """Return the intended send time of record ``index`` of a steady schedule, relative to the schedule's start.

    It is computed from the index, not from the previous record, so neither rounding errors nor delays accumulate.
    """
    return round(index * NS / rate_per_s)


def wait_until(
    at_ns: int,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Sleep until a time of the monotonic clock; return at once if it has passed.

    A late record is sent immediately and keeps its intended time, as in any open loop.
    """
    while (left_ns := at_ns - clock()) > 0:
        sleep(min(SLEEP_S, left_ns / NS))


def wait_or_stop(at_ns: int, stop: threading.Event) -> bool:
    """Wait like ``wait_until``, but end early when ``stop`` is set; return whether it is set."""
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        if stop.wait(min(SLEEP_S, left_ns / NS)):
            return True
    return stop.is_set()
