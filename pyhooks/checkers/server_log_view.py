"""What the nodes of a cluster logged, as a history has it (``pyhooks.history.log_events``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyhooks.checkers.record_view import Place
from pyhooks.history import log_events
from pyhooks.history.event_log import Event

_OF_PARTITION = re.compile(r"^\[Partition (\S+)-(\d+) broker=\d+\] ")


@dataclass(frozen=True)
class Line:
    """What a node logged at once.

    Attributes:
        at_ns: monotonic.
        node: its id.
        level: of log4j.
        logger: its name.
        text: the first line of the message.
        traced: classes of the exceptions whose stack traces are below it.
    """

    at_ns: int
    node: int
    level: str
    logger: str
    text: str
    traced: tuple[str, ...]

    @property
    def place(self) -> Place | None:
        """The partition that says it, if one does."""
        found = _OF_PARTITION.match(self.text)
        return (found[1], int(found[2])) if found else None


def logged(events: Iterable[Event]) -> list[Line]:
    """All lines of all nodes, in the order of time; those of a node in the order in which it wrote them."""
    found = [
        Line(event.mono_ns + int(ms) * 1_000_000, int(event.data["node"]), level, logger, text, tuple(traced))
        for event in events
        if (event.process, event.op) == (log_events.PROCESS, log_events.OP)
        for ms, level, logger, text, traced in event.data["entries"]
    ]
    return sorted(found, key=lambda one: one.at_ns)
