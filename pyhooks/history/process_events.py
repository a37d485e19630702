"""Faults logged by Kafka processes, and excuses for them, as history events (subclasses of ``NodeDetails``)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import ExcuseDetails, LoggedFaultsDetails, UnreadLogDetails

# Start of a log entry in pyhooks/lab/log4j2.properties. The patterns are also extended regular expressions for grep.
ENTRY = r"^\[[0-9: ,-]{23}\] [A-Z]+ "
# Messages of Kafka's fault handlers (org.apache.kafka.server.fault), FATAL entries, and the message of a crashing JVM.
FAULT = (
    r"^\[[0-9: ,-]{23}\] (FATAL |[A-Z]+ Encountered .* fault)|^# A fatal error has been detected by the Java Runtime"
)
MAX_LINES, LONGEST = 50, 400

# Expected fault lines, by the reason that a test states.
NOT_LET_IN = "rolling_test: a stock broker at level 1 is not let in, and gives up after a while"
EXCUSES: Mapping[str, re.Pattern[str]] = {
    NOT_LET_IN: re.compile(
        r"\] FATAL .*(?:Fatal error during broker startup|Exiting Kafka due to fatal exception during startup)"
    ),
}


def fault_query(log: str) -> str:
    """Return the shell command that prints the number of entries in a log, then its lines that report a fault."""
    file = shlex.quote(log)
    # grep's status 1 means no match; higher ones mean that the file cannot be read
    entries = f"grep -acE {shlex.quote(ENTRY)} {file} || test $? -eq 1"
    faults = f"grep -am {MAX_LINES} -E {shlex.quote(FAULT)} {file} || test $? -eq 1"
    return f"{{ {entries}; }} && {{ {faults}; }}"


def note_logged(history: History, node: int, output: str) -> None:
    """Write the output of the ``fault_query`` command to a history."""
    count, *lines = output.splitlines() or [""]
    if not count.isdigit() or not int(count):
        note_unread(history, node, "it has no log entry")
        return
    faults = tuple(line[:LONGEST] for line in lines if line)
    history.add(LoggedFaultsDetails(node=node, entries=int(count), found=faults), "ok")


def note_unread(history: History, node: int, reason: str) -> None:
    """Record in a history that the log of a node cannot be read."""
    history.add(UnreadLogDetails(node=node, error=reason), "unknown")


def excuse(history: History, nodes: Sequence[int], reason: str) -> None:
    """Record in a history that nodes may exit by themselves until their next start.

    Raises:
        RackgateError: the reason is not in ``EXCUSES``.
    """
    if reason not in EXCUSES:
        raise RackgateError(f"nothing can be excused because of {reason!r}")
    for node in nodes:
        history.add(ExcuseDetails(node=node, reason=reason))
