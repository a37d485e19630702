"""View of the nodes' log lines in a history (``pyhooks.history.log_events``)."""

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
    """One log entry of a node.

    Attributes:
        at_ns: monotonic.
        node: node id.
        level: log4j level.
        logger: name of the logger.
        text: first line of the message.
        traced: classes of the exceptions whose stack traces follow the message.
    """

    at_ns: int
    node: int
    level: str
    logger: str
    text: str
    traced: tuple[str, ...]

    @property
    def place(self) -> Place | None:
        """Partition that logged the entry, or None."""
        found = _OF_PARTITION.match(self.text)
        return (found[1], int(found[2])) if found else None


def logged(events: Iterable[Event]) -> list[Line]:
    """Return the entries of all nodes in order of time; entries of one node with equal times keep their order."""
    found = [
        Line(event.mono_ns + int(ms) * 1_000_000, int(event.data["node"]), level, logger, text, tuple(traced))
        for event in events
        if (event.process, event.op) == (log_events.PROCESS, log_events.OP)
        for ms, level, logger, text, traced in event.data["entries"]
    ]
    return sorted(found, key=lambda one: one.at_ns)
