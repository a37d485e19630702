"""The record of one run: append-only JSON lines that checkers and reports read and nothing ever rewrites."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import unique_keys, writing

Outcome = Literal["info", "ok", "fail", "unknown"]
OUTCOMES: frozenset[str] = frozenset({"info", "ok", "fail", "unknown"})
# How every line begins that we write; see Event.
OPENING = '{"mono_ns":'
# In place of the last line's end: what was to follow did not fit on the disk.
MARK = "{"
# Enough of a torn line to tell who wrote it: process, op, and a producer's run.
TORN_TEXT = 240


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
        try:
            raw = _DECODER.decode(line)
            event = Event(**raw)
        except RecursionError as error:
            raise ValueError("not an event: nested too deeply") from error
        except TypeError as error:
            raise ValueError(f"not an event: {error}") from error
        for name, types in _TYPES.items():
            if type(value := getattr(event, name)) not in types:
                raise ValueError(f"not an event: {name} is {value!r:.60}")
        if event.outcome not in OUTCOMES:
            raise ValueError(f"outcome {event.outcome!r}: one of {sorted(OUTCOMES)}")
        return event


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "mono_ns": (int,),
    "wall_ms": (int,),
    "process": (str,),
    "op": (str,),
    "outcome": (str,),
    "rack": (str, type(None)),
    "data": (dict,),
}


class History:
    """An append-only file of events that several processes of one machine may write at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, event: Event) -> Event:
        """Adds one event in a single write, so that lines of different processes never mix."""
        self.extend((event,))
        return event

    def extend(self, events: Iterable[Event]) -> None:
        """Adds events in a single write of whole lines; a process that is killed later has lost none of them.

        A kill within the write can leave a last line that is cut short. It must not spoil the next writer's first
        line, so whoever finds one ends it; ``events`` tells of it as what it is. Where a full disk takes whole lines
        only, the last line is marked, so that ``events`` reports that more was to be written.

        Raises:
            RackgateError: the disk took less than all of it; names the file and the reason.
        """
        text = "".join(map(Event.line, events)).encode()
        if not text:
            return
        with writing(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                # Another process may be in the middle of its write: then this makes an empty line, which is none.
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    text = b"\n" + text
                written = 0
                try:
                    while written < len(text):
                        # after a short write, this raises the reason
                        written += os.write(descriptor, text[written:])
                finally:
                    if written < len(text):
                        self._mark(os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)

    def _mark(self, size: int) -> None:
        """Replaces the line end at the end of the file by ``MARK``, which needs no space on the disk."""
        if not size:
            return
        # bytes written through a descriptor with O_APPEND would go to the end
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            if os.pread(descriptor, 1, size - 1) == b"\n":
                os.pwrite(descriptor, MARK.encode(), size - 1)
        finally:
            os.close(descriptor)

    def note(self, process: str, op: str, outcome: Outcome, *, rack: str | None = None, **data: Any) -> Event:
        """Appends an event that happens now."""
        return self.append(Event.now(process, op, outcome, rack=rack, **data))

    def events(self) -> Iterator[Event]:
        """All events in the order in which they were written; an absent file holds none.

        A line that a killed writer or a full disk left cut short is an event of op ``torn`` with outcome ``unknown``:
        what it told is lost, and checkers must not pass for want of it.

        Raises:
            RackgateError: the file can't be read, or a line is not an event; the message names file and line.
        """
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if line != b"\n":
                        yield from self._parsed(number, line)
                    if not line.endswith(b"\n"):
                        # its writer may be at work: read on, its other half would be taken for a line
                        return
        except FileNotFoundError:
            return
        except OSError as error:
            raise RackgateError(f"{self.path}: can't be read: {error.strerror}") from error

    def _parsed(self, number: int, line: bytes) -> Iterator[Event]:
        """The event of a line, the event that it was torn, or both if it is marked."""
        try:
            text = line.decode()
            try:
                yield Event.parse(text)
            except json.JSONDecodeError:
                text = text.rstrip("\n")
                if not text.startswith(OPENING) and not OPENING.startswith(text):
                    raise
                if text.endswith(f"}}{MARK}"):
                    with suppress(json.JSONDecodeError):
                        yield Event.parse(text.removesuffix(MARK))
                        # what was lost may be anybody's: no kill of the line's own writer explains it
                        text = MARK
                yield Event(0, 0, "history", "torn", "unknown", None, {"line": number, "text": text[:TORN_TEXT]})
        except ValueError as error:
            raise RackgateError(f"{self.path}:{number}: {error}") from error
