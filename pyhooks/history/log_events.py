"""Server logs of a cluster's Kafka processes as history events.

Events of process ``server-log``:

- op ``logs``: ``data`` ``{nodes}``, the ids of the nodes whose logs are expected;
- op ``lines``, one event for all entries of a node within a second: ``data`` ``{node, entries}``. Each
  entry is ``[ms, level, logger, text, traced]``: milliseconds since the event's time, log level, logger,
  first line of the message (truncated), and the classes of the exceptions in the stack traces below it;
- op ``log-end``: ``data`` ``{node, entries, error_ns}``, the number of entries and the possible error of
  all their times. It is ``unknown``, with ``error``, if the log cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History

PROCESS = "server-log"
OP, EXPECTED, END = "lines", "logs", "log-end"
# Maximum length of a message. Its beginning is enough to distinguish entries.
LONGEST = 320
# pattern of pyhooks/lab/log4j2.properties: [time] LEVEL message (logger)
_BEGIN = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)$")
_LOGGER = re.compile(r"^(.*) \(([\w.$]+)\)$")
_THROWN = re.compile(r"^(?:Caused by: |\s*Suppressed: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?::|$)")
_FRAME = re.compile(r"^\s+at [\w.$/<>]+\(")


@dataclass(frozen=True)
class Entry:
    """One log entry.

    Attributes:
        at_ms: time in milliseconds since the epoch, by the host's clock.
        level: log4j level.
        logger: logger name; empty if the entry is incomplete.
        text: first line of the message.
        traced: classes of the exceptions in the stack traces below the message, outermost first.
    """

    at_ms: int
    level: str
    logger: str
    text: str
    traced: tuple[str, ...] = ()


def parse(lines: Iterable[str], zone: str) -> Iterator[Entry]:
    """Yield the entries of a log; lines before the first entry are not log4j's and are skipped.

    Args:
        lines: lines of the log, in order.
        zone: the host's time zone, as printed by ``date +%z``.

    Raises:
        RackgateError: the zone or a timestamp cannot be parsed.
    """
    own: list[str] = []
    for line in lines:
        if _BEGIN.match(line):
            yield from _entry(own, zone)
            own = [line]
        elif own:
            own.append(line)
    yield from _entry(own, zone)


def _entry(lines: list[str], zone: str) -> Iterator[Entry]:
    if not lines:
        return
    found = _BEGIN.match(lines[0])
    assert found is not None  # noqa: S101 - only such lines begin one
    try:
        at = datetime.strptime(f"{found[1]} {zone}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError as error:
        raise RackgateError(f"can't read the time of a line of a log: {lines[0][:60]!r} in zone {zone!r}") from error
    # The logger name ends a multi-line message; the stack traces follow it.
    texts, logger, thrown = [found[4], *lines[1:]], "", []
    for number, text in enumerate(texts):
        if last := _LOGGER.match(text):
            texts[number], logger = last[1], last[2]
            thrown = texts[number + 1 :]
            break
    traced = tuple(one[1] for one in map(_THROWN.match, thrown) if one) if any(map(_FRAME.match, thrown)) else ()
    yield Entry(round(at.timestamp()) * 1000 + int(found[2]), found[3], logger, texts[0][:LONGEST], traced)


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
    for _, group in groupby(entries, key=lambda one: one.at_ms // 1000):
        same = list(group)
        begin_ms = min(one.at_ms for one in same)
        told = [[one.at_ms - begin_ms, one.level, one.logger, one.text, list(one.traced)] for one in same]
        moment_ns = begin_ms * 1_000_000 - ahead_ns
        events.append(Event(moment_ns, begin_ms, PROCESS, OP, "info", None, {"node": node, "entries": told}))
        count, last_ms = count + len(same), max(last_ms, same[-1].at_ms)
    if not count:
        unread(history, node, "there is no line of Kafka in it")
        return
    end = {"node": node, "entries": count, "error_ns": error_ns}
    history.extend([*events, Event(last_ms * 1_000_000 - ahead_ns, last_ms, PROCESS, END, "ok", None, end)])


def unread(history: History, node: int, why: str) -> None:
    """Note in a history that the log of a node cannot be read."""
    history.note(PROCESS, END, "unknown", node=node, error=why)
