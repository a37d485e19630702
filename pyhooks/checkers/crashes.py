"""Check that no node ended by itself, or logged a fault of Kafka's own.

Reads the events of ``pyhooks.history.process_events``. A crashed node comes back with the next heal, and a fault that a
handler only logs stops nothing: neither is visible in the records alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyhooks.checkers.verdict import Verdict
from pyhooks.history import process_events
from pyhooks.history.event_log import Event


class _Life:
    """State of a node's process so far.

    Attributes:
        runs: whether it should run: it was started, and the test has not ended it since.
        looked: whether its state was ever queried.
        excused: whether it may end by itself.
        reasons: all reasons for which it was excused.
    """

    def __init__(self) -> None:
        self.runs = self.looked = self.excused = False
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
    What a test excuses, with a reason of ``process_events.EXCUSES``, is a note.

    Unknown if a node was never queried, if a query failed, or if the log of a node was not read after its last query.

    Args:
        events: a whole history.
    """
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    lives: defaultdict[int, _Life] = defaultdict(_Life)
    read = 0
    unread: set[int] = set()
    for event in events:
        if event.process != process_events.PROCESS:
            continue
        node = int(event.data["node"])
        life = lives[node]
        if event.op == process_events.START:
            if life.fell():
                wrong.append(f"node {node} had ended by itself before it was started again")
            life.runs, life.excused = True, False
        elif event.op in (process_events.KILL, process_events.STOP):
            if not event.data["ran"] and life.fell():
                wrong.append(f"node {node} had ended by itself before it was to be ended ({event.op})")
            life.runs = False
        elif event.op == process_events.EXCUSED:
            life.excused = True
            life.reasons.add(str(event.data["reason"]))
            notes.append(f"node {node} is excused: {event.data['reason']}")
        elif event.op == process_events.STATE:
            life.looked = True
            unread.add(node)
            if event.outcome != "ok":
                missing.append(f"node {node} can't be asked whether it runs: {event.data.get('error')}")
            elif event.data["state"] == "down" and life.fell():
                wrong.append(f"node {node} has ended by itself")
        elif event.op == process_events.LOGGED:
            unread.discard(node)
            read += 1
            if event.outcome != "ok":
                missing.append(f"the log of node {node} can't be read: {event.data.get('error')}")
                continue
            wrong += [f"node {node} logged: {line}" for line in event.data["found"] if not _excused(line, life)]
    if not lives:
        missing.append("nobody has looked whether any node runs")
    missing += [f"nobody has looked whether node {node} runs" for node, one in sorted(lives.items()) if not one.looked]
    missing += [f"the log of node {node} was not read" for node in sorted(unread)]
    notes.append(f"{len(lives)} nodes, {read} logs")
    return Verdict.of("crashes", wrong=wrong, missing=missing, notes=notes)


def _excused(line: str, life: _Life) -> bool:
    return any(
        process_events.EXCUSES[reason].search(line) for reason in life.reasons if reason in process_events.EXCUSES
    )
