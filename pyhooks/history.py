"""The record of one run: append-only JSON lines that checkers and reports read and nothing ever rewrites."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["info", "ok", "fail", "unknown"]
OUTCOMES: frozenset[str] = frozenset({"info", "ok", "fail", "unknown"})


@dataclass(frozen=True)
class Event:
    """One line of a history.

    Attributes:
        mono_ns: CLOCK_MONOTONIC in nanoseconds; one clock for all processes of a machine, so events compare.
        wall_ms: milliseconds since the epoch.
        process: who wrote it, such as ``probe`` or ``fault``.
        op: what it is about, such as ``produce``, ``kill-rack`` or ``probe-link``.
        outcome: ``ok`` and ``fail`` are certain; ``unknown`` is neither; ``info`` tells of a step, not a result.
        rack: the rack concerned, if any.
        data: the details, plain JSON.
    """

    mono_ns: int
    wall_ms: int
    process: str
    op: str
    outcome: Outcome
    rack: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def now(process: str, op: str, outcome: Outcome, *, rack: str | None = None, **data: Any) -> Event:
        """An event that happens at this moment."""
        return Event(time.monotonic_ns(), time.time_ns() // 1_000_000, process, op, outcome, rack, data)

    def line(self) -> str:
        """The event as one line of JSON, newline included."""
        return json.dumps(self.__dict__, separators=(",", ":"), sort_keys=False) + "\n"

    @staticmethod
    def parse(line: str) -> Event:
        """The event that ``line`` holds.

        Raises:
            ValueError: not an event, or an outcome outside the closed list.
        """
        raw = json.loads(line)
        try:
            event = Event(**raw)
        except TypeError as error:
            raise ValueError(f"not an event: {error}") from error
        if event.outcome not in OUTCOMES:
            raise ValueError(f"outcome {event.outcome!r}: one of {sorted(OUTCOMES)}")
        return event


class History:
    """An append-only file of events that several processes of one machine may write at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, event: Event) -> Event:
        """Adds one event in a single write, so that lines of different processes never mix."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, event.line().encode())
        finally:
            os.close(descriptor)
        return event

    def note(self, process: str, op: str, outcome: Outcome, *, rack: str | None = None, **data: Any) -> Event:
        """Appends an event that happens now."""
        return self.append(Event.now(process, op, outcome, rack=rack, **data))

    def events(self) -> Iterator[Event]:
        """All events in the order in which they were written; an absent file holds none.

        Raises:
            ValueError: a line is not an event; the message names file and line.
        """
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Event.parse(line)
                except ValueError as error:
                    raise ValueError(f"{self.path}:{number}: {error}") from error
