"""Event history of one run: an append-only file of JSON lines, read by checkers and reports."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from pydantic import Field, TypeAdapter, ValidationError

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import unique_keys, writing

Outcome = Literal["ok", "fail", "unknown"]
OUTCOMES: frozenset[str] = frozenset({"ok", "fail", "unknown"})
# Events that are no attempts used to have an outcome of their own, and polls and missing metadata other names.
CONVERTED = (
    """sed -i 's/"outcome":"info"/"outcome":null/;s/"took_ms"/"latency_ms"/;s/"op":"learn"/"op":"no-metadata"/'"""
)
CONVERSION = f"; convert a history of an earlier version with: {CONVERTED} FILE"
EARLIER_KEYS = frozenset({"took_ms"})
# Start of every line written here; see Event.
OPENING = '{"mono_ns":'
# Replaces the last line's newline if the rest of a write did not fit on the disk.
MARK = "{"
# Characters kept of a torn line; enough to identify its writer: process, op, and a producer's run.
TORN_TEXT = 240
# Keys of details with times of the monotonic clock that programs on other hosts write.
TIMES = ("intended_ns", "sent_ns", "begun_ns", "asked_ns")


@dataclass(frozen=True)
class Event:
    """One line of a history."""

    # CLOCK_MONOTONIC in nanoseconds; all processes of a machine share this clock, so events are comparable
    mono_ns: int
    wall_ms: int  # milliseconds since the epoch
    process: str  # name of the writer, such as ``probe`` or ``fault``
    op: str  # operation, such as ``produce``, ``kill-rack`` or ``probe-link``
    # result of an attempt: ``ok`` and ``fail`` are certain, ``unknown`` may be either; None if the event is none
    outcome: Outcome | None
    rack: str | None = None  # affected rack, if any
    # details as plain JSON; read them through a subclass of ``Details``
    data: Mapping[str, Any] = field(default_factory=dict)
    # number of its line in the history, or 0
    line_number: int = field(default=0, init=False, repr=False, compare=False)
    _details: Details | None = field(default=None, init=False, repr=False, compare=False)

    def shifted(self, by_ns: int) -> Event:
        """Return the event with its monotonic times, also those in its details, later by ``by_ns``."""
        times = {name: int(self.data[name]) + by_ns for name in TIMES if self.data.get(name) is not None}
        return replace(self, mono_ns=self.mono_ns + by_ns, data={**self.data, **times})

    def line(self) -> str:
        """Return the event as one line of JSON, newline included."""
        return json.dumps({name: getattr(self, name) for name in _TYPES}, separators=(",", ":")) + "\n"

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
        if event.outcome is not None and event.outcome not in OUTCOMES:
            advice = CONVERSION if raw["outcome"] == "info" else ""
            raise ValueError(f"outcome {event.outcome!r}: one of {sorted(OUTCOMES)}, or null{advice}")
        return event


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "mono_ns": (int,),
    "wall_ms": (int,),
    "process": (str,),
    "op": (str,),
    "outcome": (str, type(None)),
    "rack": (str, type(None)),
    "data": (dict,),
}


T = TypeVar("T")
# Field that is left out of the stored event if it is None.
Omittable = Annotated[T | None, Field(exclude_if=lambda value: value is None)]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Details:
    """Base class of the typed details of events; each subclass becomes a frozen dataclass for one kind of event.

    The fields are the keys of ``Event.data``, or have them as aliases. A subclass states its kind as class arguments:
    ``op``, one operation or several, and where needed ``process`` and ``outcomes``.
    """

    ops: ClassVar[tuple[str, ...]] = ()
    process: ClassVar[str] = ""
    outcomes: ClassVar[frozenset[Outcome]] = frozenset()
    _adapter: ClassVar[TypeAdapter[Any]]

    def __init_subclass__(
        cls, *, op: str | tuple[str, ...] = (), process: str = "", outcomes: Iterable[Outcome] = ()
    ) -> None:
        # What is not given is inherited.
        if op:
            cls.ops = (op,) if isinstance(op, str) else op
        if process:
            cls.process = process
        if outcomes:
            cls.outcomes = frozenset(outcomes)
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def describes(cls, event: Event) -> bool:
        """Return whether an event is of this kind."""
        return (
            (not cls.ops or event.op in cls.ops)
            and (not cls.process or event.process == cls.process)
            and (not cls.outcomes or event.outcome in cls.outcomes)
        )

    @classmethod
    def of(cls, event: Event) -> Self | None:
        """Return the details of an event, or None if the event is of another kind.

        Raises:
            ValueError: a required field is missing, or a field has the wrong type.
        """
        if not cls.describes(event):
            return None
        details = event._details
        if not isinstance(details, cls):
            try:
                details = cls._codec().validate_python(event.data)
            except ValidationError as error:
                first = error.errors()[0]
                where = f"line {event.line_number}: " if event.line_number else ""
                place = ".".join(map(str, first["loc"]))
                advice = CONVERSION if EARLIER_KEYS & event.data.keys() else ""
                raise ValueError(f"{where}{event.op} event: {place}: {first['msg']}{advice}") from error
            object.__setattr__(event, "_details", details)
        return details

    @classmethod
    def _codec(cls) -> TypeAdapter[Self]:
        if "_adapter" not in cls.__dict__:
            cls._adapter = TypeAdapter(cls)
        return cls._adapter

    @classmethod
    def each(cls, events: Iterable[Event]) -> Iterator[tuple[Event, Self]]:
        """Yield the events of this kind with their details."""
        for event in events:
            if (details := cls.of(event)) is not None:
                yield event, details

    def event(
        self, outcome: Outcome | None = None, *, process: str = "", op: str = "", rack: str | None = None
    ) -> Event:
        """Return an event with these details and the current time.

        Args:
            outcome: outcome of the attempt that the event ends, or None.
            process: writer; by default that of the kind.
            op: operation; by default the only one of the kind.
            rack: affected rack, if any.
        """
        return self.event_at(
            time.monotonic_ns(), time.time_ns() // 1_000_000, outcome, process=process, op=op, rack=rack
        )

    def event_at(
        self,
        mono_ns: int,
        wall_ms: int,
        outcome: Outcome | None = None,
        *,
        process: str = "",
        op: str = "",
        rack: str | None = None,
    ) -> Event:
        """Return an event with these details and the given times; see ``event``."""
        data = self._codec().dump_python(self, mode="json", by_alias=True)
        return Event(mono_ns, wall_ms, process or self.process, op or self.ops[0], outcome, rack, data)


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

    def add(
        self,
        details: Details,
        outcome: Outcome | None = None,
        *,
        process: str = "",
        op: str = "",
        rack: str | None = None,
    ) -> Event:
        """Append an event with typed details and the current time; see ``Details.event``."""
        return self.append(details.event(outcome, process=process, op=op, rack=rack))

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
                        for event in self._parsed(number, line):
                            object.__setattr__(event, "line_number", number)
                            yield event
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
