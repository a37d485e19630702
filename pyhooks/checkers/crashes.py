"""Check that no node ended by itself, or logged a fault of Kafka's own.

Reads the events of ``pyhooks.history.process_events``. A crashed node returns with the next heal, and a fault that a
handler only logs stops nothing: neither is visible in the records alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyhooks.checkers.verdict import Findings, Verdict
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


@dataclass
class _ProcessState:
    """State of a node's process so far."""

    runs: bool = False  # whether it should run: it was started, and the test has not ended it since
    queried: bool = False  # whether its state was ever queried
    unread: bool = False  # whether its log was not read since the last query
    excused: bool = False  # whether it may end by itself
    reasons: set[str] = field(default_factory=set)  # all reasons for which it was excused

    def crashed(self) -> bool:
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
    """
    findings = Findings()
    processes: defaultdict[int, _ProcessState] = defaultdict(_ProcessState)
    logs = 0
    for event, details in NodeDetails.each(events):
        name, process = f"node {details.node}", processes[details.node]
        if NodeStartDetails.of(event):
            if process.crashed():
                findings.wrong.append(f"{name} had ended by itself before it was started again")
            process.runs, process.excused = True, False
        elif end := NodeEndDetails.of(event):
            if not end.ran and process.crashed():
                findings.wrong.append(f"{name} exited on its own before it was stopped ({event.op})")
            process.runs = False
        elif excuse := ExcuseDetails.of(event):
            process.excused = True
            process.reasons.add(excuse.reason)
            findings.notes.append(f"{name} is excused: {excuse.reason}")
        elif state := NodeStateDetails.of(event):
            process.queried = process.unread = True
            if state.state == "down" and process.crashed():
                findings.wrong.append(f"{name} has ended by itself")
        elif failure := NodeStateFailureDetails.of(event):
            process.queried = process.unread = True
            findings.missing.append(f"the state of {name} can't be queried: {failure.error}")
        elif logged := LoggedFaultsDetails.of(event):
            process.unread = False
            logs += 1
            findings.wrong += [
                f"{name} logged: {line}" for line in logged.found if not _is_excused(line, process.reasons)
            ]
        elif unread_log := UnreadLogDetails.of(event):
            process.unread = False
            logs += 1
            findings.missing.append(f"the log of {name} can't be read: {unread_log.error}")
    if not processes:
        findings.missing.append("no node's state was queried")
    for node, process in sorted(processes.items()):
        if not process.queried:
            findings.missing.append(f"the state of node {node} was never queried")
        if process.unread:
            findings.missing.append(f"the log of node {node} was not read")
    findings.notes.append(f"{len(processes)} nodes, {logs} logs")
    return findings.verdict("crashes")


def _is_excused(line: str, reasons: Iterable[str]) -> bool:
    return any(EXCUSES[reason].search(line) for reason in reasons if reason in EXCUSES)
