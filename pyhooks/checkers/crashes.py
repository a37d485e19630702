"""Check that no node ended by itself, or logged a fault of Kafka's own.

Reads the events of ``pyhooks.history.process_events``. A crashed node comes back with the next heal, and a fault that a
handler only logs stops nothing: neither is visible in the records alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import (
    ExcuseDetails,
    LoggedFaultsDetails,
    NodeDetails,
    NodeEndDetails,
    NodeStartDetails,
    NodeStateDetails,
    NodeStateFailureDetails,
    UnreadLogDetails,
)
from pyhooks.history.process_events import EXCUSES


class _ProcessLife:
    """State of a node's process so far.

    Attributes:
        runs: whether it should run: it was started, and the test has not ended it since.
        queried: whether its state was ever queried.
        excused: whether it may end by itself.
        reasons: all reasons for which it was excused.
    """

    def __init__(self) -> None:
        self.runs = self.queried = self.excused = False
        self.reasons: set[str] = set()

    def fell(self) -> bool:
        """Return whether it is wrong that the process does not run now; True only once per failure."""
        wrong = self.runs and not self.excused
        self.runs = False
        return wrong


def check_crashes(events: Iterable[Event]) -> Verdict:
    """Check that only the test ended processes of nodes, and that no log has a fatal error or a fault of Kafka's own.

    Wrong: a node that does not run when it is queried, ended or started again, though it was started and not ended
    since; a line of its log that is fatal or comes from one of Kafka's fault handlers. Other errors are not judged.
    What a test excuses, with a reason of ``EXCUSES``, is a note.

    Unknown if a node was never queried, if a query failed, or if the log of a node was not read after its last query.

    Args:
        events: a whole history.
    """
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    lives: defaultdict[int, _ProcessLife] = defaultdict(_ProcessLife)
    read = 0
    unread: set[int] = set()
    for event, of_node in NodeDetails.each(events):
        node = of_node.node
        life = lives[node]
        if NodeStartDetails.of(event):
            if life.fell():
                wrong.append(f"node {node} had ended by itself before it was started again")
            life.runs, life.excused = True, False
        elif end := NodeEndDetails.of(event):
            if not end.ran and life.fell():
                wrong.append(f"node {node} had ended by itself before it was to be ended ({event.op})")
            life.runs = False
        elif excuse := ExcuseDetails.of(event):
            life.excused = True
            life.reasons.add(excuse.reason)
            notes.append(f"node {node} is excused: {excuse.reason}")
        elif state := NodeStateDetails.of(event):
            life.queried = True
            unread.add(node)
            if state.state == "down" and life.fell():
                wrong.append(f"node {node} has ended by itself")
        elif failure := NodeStateFailureDetails.of(event):
            life.queried = True
            unread.add(node)
            missing.append(f"the state of node {node} can't be queried: {failure.error}")
        elif logged := LoggedFaultsDetails.of(event):
            unread.discard(node)
            read += 1
            wrong += [f"node {node} logged: {line}" for line in logged.found if not _excused(line, life)]
        elif unread_log := UnreadLogDetails.of(event):
            unread.discard(node)
            read += 1
            missing.append(f"the log of node {node} can't be read: {unread_log.error}")
    if not lives:
        missing.append("no node's state was queried")
    missing += [f"the state of node {node} was never queried" for node, one in sorted(lives.items()) if not one.queried]
    missing += [f"the log of node {node} was not read" for node in sorted(unread)]
    notes.append(f"{len(lives)} nodes, {read} logs")
    return Verdict.of("crashes", wrong=wrong, missing=missing, notes=notes)


def _excused(line: str, life: _ProcessLife) -> bool:
    return any(EXCUSES[reason].search(line) for reason in life.reasons if reason in EXCUSES)
