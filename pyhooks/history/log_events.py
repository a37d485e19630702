"""What the Kafka processes of a cluster wrote to their logs, as events of a history.

Events of process ``server-log``: op ``logs``, ``data`` ``{nodes}``, the ids of the nodes whose logs there must be; op
``lines``, one for all that a node wrote within a second, ``data`` ``{node, entries}`` with ``[ms, level, logger, text,
traced]`` each: milliseconds since the event's moment, the first line of the message, cut, and the classes of the
exceptions whose stack traces are below it; and op ``log-end``, ``data`` ``{node, entries, error_ns}``, how many there
are, and by how much all of their moments may be wrong. It is ``unknown``, with ``error``, if the log can't be read.
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
# of a message; what tells lines apart stands at the beginning
LONGEST = 320
# as pyhooks/lab/log4j2.properties has it: [time] LEVEL message (logger)
_BEGIN = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)$")
_LOGGER = re.compile(r"^(.*) \(([\w.$]+)\)$")
_THROWN = re.compile(r"^(?:Caused by: |\s*Suppressed: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?::|$)")
_FRAME = re.compile(r"^\s+at [\w.$/<>]+\(")


@dataclass(frozen=True)
class Entry:
    """What was logged at once.

    Attributes:
        at_ms: when, milliseconds since the epoch, by the host's clock.
        level: of log4j.
        logger: its name; empty if the entry was cut short.
        text: the first line of the message.
        traced: classes of the exceptions whose stack traces are below it, outermost first.
    """

    at_ms: int
    level: str
    logger: str
    text: str
    traced: tuple[str, ...] = ()


def parse(lines: Iterable[str], zone: str) -> Iterator[Entry]:
    """The entries of a log; what stands before the first one is not of log4j.

    Args:
        lines: of the log, in order.
        zone: the host's, as ``date +%z`` tells it.

    Raises:
        RackgateError: the zone, or a time, can't be read.
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
    # a message of several lines ends with its logger, and what it says of exceptions stands below that
    texts, logger, thrown = [found[4], *lines[1:]], "", []
    for number, text in enumerate(texts):
        if last := _LOGGER.match(text):
            texts[number], logger = last[1], last[2]
            thrown = texts[number + 1 :]
            break
    traced = tuple(one[1] for one in map(_THROWN.match, thrown) if one) if any(map(_FRAME.match, thrown)) else ()
    yield Entry(round(at.timestamp()) * 1000 + int(found[2]), found[3], logger, texts[0][:LONGEST], traced)


def note(entries: Iterable[Entry], history: History, *, node: int, ahead_ns: int, error_ns: int) -> None:
    """Writes a log into a history.

    Args:
        entries: in order.
        history: where the events go.
        node: whose log it is.
        ahead_ns: how much the node's wall clock is ahead of our monotonic clock.
        error_ns: by how much that may be wrong.
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
    """Writes into a history that the log of a node can't be read."""
    history.note(PROCESS, END, "unknown", node=node, error=why)
