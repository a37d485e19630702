"""View of the nodes' log lines in a history."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyhooks.checkers.record_view import PartitionName
from pyhooks.history.event_log import Event
from pyhooks.history.events import LogLinesDetails

_OF_PARTITION = re.compile(r"^\[Partition (\S+)-(\d+) broker=\d+\] ")


@dataclass(frozen=True)
class LogLine:
    """One log entry of a node."""

    at_ns: int  # monotonic
    node: int
    level: str
    logger: str
    text: str  # first line of the message
    traced: tuple[str, ...]  # classes of the exceptions whose stack traces follow the message

    @property
    def partition(self) -> PartitionName | None:
        """Partition that logged the entry, or None."""
        match = _OF_PARTITION.match(self.text)
        return PartitionName(match[1], int(match[2])) if match else None


def log_lines(events: Iterable[Event]) -> list[LogLine]:
    """Return the entries of all nodes in order of time; entries of one node with equal times keep their order."""
    entries = [
        LogLine(event.mono_ns + after_ms * 1_000_000, lines.node, level, logger, text, traced)
        for event, lines in LogLinesDetails.each(events)
        for after_ms, level, logger, text, traced in lines.entries
    ]
    return sorted(entries, key=lambda line: line.at_ns)
