"""Open-loop pacing: when each record is meant to be sent is fixed before the first one is, come what may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

NS = 1_000_000_000
# A long wait is slept in pieces.
SLEEP_S = 0.5


def due_ns(index: int, rate_per_s: float) -> int:
    """When record ``index`` of a steady schedule is meant to be sent, from the schedule's start.

    Computed from the index, not from the record before: no rounding adds up, no delay carries over.
    """
    return round(index * NS / rate_per_s)


def wait_until(
    at_ns: int,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Sleeps until a moment of the monotonic clock; returns at once if it is over.

    A record that is late is sent at once and keeps its intended time: that is what makes the loop open.
    """
    while (left_ns := at_ns - clock()) > 0:
        sleep(min(SLEEP_S, left_ns / NS))


def wait_or_stop(at_ns: int, stop: threading.Event) -> bool:
    """Like ``wait_until``, but ends early when ``stop`` is set; returns whether it is."""
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        if stop.wait(min(SLEEP_S, left_ns / NS)):
            return True
    return stop.is_set()
