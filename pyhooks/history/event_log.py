"""Event history of one run: an append-only file of JSON lines, read by checkers and reports."""

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
# Start of every line written here; see Event.
OPENING = '{"mono_ns":'
# Replaces the last line's newline if the rest of a write did not fit on the disk.
MARK = "{"
# Characters kept of a torn line; enough to identify its writer: process, op, and a producer's run.
TORN_TEXT = 240


@dataclass(frozen=True)
class Event:
    """One line of a history.

    Attributes:
        mono_ns: CLOCK_MONOTONIC in nanoseconds; all processes of a machine share this clock, so events are comparable.
        wall_ms: milliseconds since the epoch.
        process: name of the writer, such as ``probe`` or ``fault``.
        op: operation, such as ``produce``, ``kill-rack`` or ``probe-link``.
        outcome: ``ok`` and ``fail`` are certain; ``unknown`` may be either; ``info`` marks a step without a result.
        rack: affected rack, if any.
        data: details as plain JSON.
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
        """Return an event with the current time."""
        return Event(time.monotonic_ns(), time.time_ns() // 1_000_000, process, op, outcome, rack, data)

    def line(self) -> str:
        """Return the event as one line of JSON, newline included."""
        return json.dumps(self.__dict__, separators=(",", ":"), sort_keys=False) + "\n"

    @staticmethod
    def parse(line: str) -> Event:
        """Parse an event from a line of JSON.

        Raises:
            ValueError: not an event, or an unknown outcome.
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
    """Append-only event file that several processes of one machine can write concurrently."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, event: Event) -> Event:
        """Append one event in a single write, so that lines of different processes never interleave."""
        self.extend((event,))
        return event

    def extend(self, events: Iterable[Event]) -> None:
        """Append events in a single write of whole lines; a later kill of the process loses none of them.

        A kill during the write can leave a partial last line. The next writer terminates it with a newline,
        so that its own first line stays intact; ``events`` reports the partial line as ``torn``. If a full
        disk accepts only whole lines, the last one is marked, so that ``events`` reports the missing rest.

        Raises:
            RackgateError: the write was incomplete; the message names the file and the reason.
        """
        text = "".join(map(Event.line, events)).encode()
        if not text:
            return
        with writing(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                # If another process is still writing, this adds an empty line, which readers skip.
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    text = b"\n" + text
                written = 0
                try:
                    while written < len(text):
                        # after a short write, the next call raises the reason
                        written += os.write(descriptor, text[written:])
                finally:
                    if written < len(text):
                        self._mark(os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)

    def _mark(self, size: int) -> None:
        """Replace the newline at the end of the file by ``MARK``, which needs no extra disk space."""
        if not size:
            return
        # O_APPEND would redirect the write to the end of the file
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            if os.pread(descriptor, 1, size - 1) == b"\n":
                os.pwrite(descriptor, MARK.encode(), size - 1)
        finally:
            os.close(descriptor)

    def note(self, process: str, op: str, outcome: Outcome, *, rack: str | None = None, **data: Any) -> Event:
        """Append an event with the current time."""
        return self.append(Event.now(process, op, outcome, rack=rack, **data))

    def events(self) -> Iterator[Event]:
        """Yield all events in the order in which they were written; none if the file does not exist.

        A line that a killed writer or a full disk left incomplete yields an event of op ``torn`` with outcome
        ``unknown``. Its content is lost, and checkers must not return valid because of missing events.

        Raises:
            RackgateError: the file cannot be read, or a line is not an event; the message names file and line.
        """
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if line != b"\n":
                        yield from self._parsed(number, line)
                    if not line.endswith(b"\n"):
                        # The writer may still be writing. Stop here, or its second half would be read as a line.
                        return
        except FileNotFoundError:
            return
        except OSError as error:
            raise RackgateError(f"{self.path}: can't be read: {error.strerror}") from error

    def _parsed(self, number: int, line: bytes) -> Iterator[Event]:
        """Yield the event of a line, a ``torn`` event, or both if the line is marked."""
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
                        # the lost lines may be of any process, so the kill of this line's writer does not explain them
                        text = MARK
                yield Event(0, 0, "history", "torn", "unknown", None, {"line": number, "text": text[:TORN_TEXT]})
        except ValueError as error:
            raise RackgateError(f"{self.path}:{number}: {error}") from error
