"""Events with arbitrary details, for tests of the history file and of damaged or unusual events."""

from __future__ import annotations

import time
from typing import Any

from pyhooks.history.event_log import Event, History, Outcome


def event_now(process: str, op: str, outcome: Outcome | None, *, rack: str | None = None, **data: Any) -> Event:
    """Return an event with the current time."""
    return Event(time.monotonic_ns(), time.time_ns() // 1_000_000, process, op, outcome, rack, data)


def note(
    history: History, process: str, op: str, outcome: Outcome | None, *, rack: str | None = None, **data: Any
) -> Event:
    """Append an event with the current time."""
    return history.append(event_now(process, op, outcome, rack=rack, **data))
