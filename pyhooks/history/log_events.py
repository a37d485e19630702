"""Parser of the server logs of Kafka processes, and writer of their history events (``LogLinesDetails``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import LogEndDetails, LogLinesDetails

# Maximum length of a message. Its beginning is enough to distinguish entries.
LONGEST = 320
# pattern of pyhooks/lab/log4j2.properties: [time] LEVEL message (logger)
_BEGIN = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)$")
_LOGGER = re.compile(r"^(.*) \(([\w.$]+)\)$")
_THROWN = re.compile(r"^(?:Caused by: |\s*Suppressed: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?::|$)")
_FRAME = re.compile(r"^\s+at [\w.$/<>]+\(")


@dataclass(frozen=True)
class Entry:
    """One log entry."""

    at_ms: int  # time in milliseconds since the epoch, by the host's clock
    level: str
    logger: str  # logger name; empty if the entry is incomplete
    text: str  # first line of the message
    # classes of the exceptions in the stack traces below the message, outermost first
    traced: tuple[str, ...] = ()


def parse(lines: Iterable[str], zone: str) -> Iterator[Entry]:
    """Yield the entries of a log; lines before the first entry are not log4j's and are skipped.

    Args:
        lines: lines of the log, in order.
        zone: the host's time zone, as printed by ``date +%z``.

    Raises:
        RackgateError: the zone or a timestamp cannot be parsed.
    """
    current: list[str] = []
    for line in lines:
        if _BEGIN.match(line):
            yield from _entry(current, zone)
            current = [line]
        elif current:
            current.append(line)
    yield from _entry(current, zone)


def _entry(lines: list[str], zone: str) -> Iterator[Entry]:
    if not lines:
        return
    match = _BEGIN.match(lines[0])
    assert match is not None  # noqa: S101 - only such lines begin one
    try:
        at = datetime.strptime(f"{match[1]} {zone}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError as error:
        raise RackgateError(f"can't read the time of a line of a log: {lines[0][:60]!r} in zone {zone!r}") from error
    # The logger name ends a multi-line message; the stack traces follow it.
    texts, logger, thrown = [match[4], *lines[1:]], "", []
    for number, text in enumerate(texts):
        if last := _LOGGER.match(text):
            texts[number], logger = last[1], last[2]
            thrown = texts[number + 1 :]
            break
    exceptions = tuple(name[1] for name in map(_THROWN.match, thrown) if name)
    traced = exceptions if any(map(_FRAME.match, thrown)) else ()
    yield Entry(round(at.timestamp()) * 1000 + int(match[2]), match[3], logger, texts[0][:LONGEST], traced)


def note(entries: Iterable[Entry], history: History, *, node: int, ahead_ns: int, error_ns: int) -> None:
    """Write the entries of a log to a history.

    Args:
        entries: entries in order.
        history: history to append to.
        node: id of the node that wrote the log.
        ahead_ns: nanoseconds by which the node's wall clock is ahead of this host's monotonic clock.
        error_ns: possible error of ``ahead_ns``.
    """
    events: list[Event] = []
    count = last_ms = 0
    for _, group in groupby(entries, key=lambda entry: entry.at_ms // 1000):
        second = list(group)
        begin_ms = min(entry.at_ms for entry in second)
        rows = tuple((one.at_ms - begin_ms, one.level, one.logger, one.text, one.traced) for one in second)
        lines = LogLinesDetails(node=node, entries=rows)
        events.append(lines.event_at(begin_ms * 1_000_000 - ahead_ns, begin_ms))
        count, last_ms = count + len(second), max(last_ms, second[-1].at_ms)
    if not count:
        note_unread(history, node, "it has no log entry")
        return
    end = LogEndDetails(node=node, entries=count, error_ns=error_ns)
    history.extend([*events, end.event_at(last_ms * 1_000_000 - ahead_ns, last_ms, "ok")])


def note_unread(history: History, node: int, reason: str) -> None:
    """Record in a history that the log of a node cannot be read."""
    history.add(LogEndDetails(node=node, error=reason), "unknown")
