"""What becomes of the Kafka processes of a cluster, as events of a history.

Events of process ``node``, each with ``data.node``, the node's id:

- ops ``start``, ``kill`` and ``stop``: a test, or a fault, did that; of the last two ``data.ran`` tells whether there
  was a process at all;
- op ``state``: what was found when somebody looked, ``data.state`` as in ``pyhooks.lab.running_cluster``; ``unknown``,
  with ``error``, if the node can't be asked;
- op ``faults-logged``: its log was read, ``data`` ``{entries, found}``, how many entries it has, and its lines that
  tell of a fault of Kafka's own; ``unknown``, with ``error``, if it can't be read;
- op ``excused``: ``data.reason``, a key of ``EXCUSES``: from now on until it is started again the node may end by
  itself, and its log may have the lines that belong to that reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History

PROCESS = "node"
START, KILL, STOP, STATE, LOGGED, EXCUSED = "start", "kill", "stop", "state", "faults-logged", "excused"
# How an entry begins, as pyhooks/lab/log4j2.properties has it. These are extended regular expressions of grep, too.
ENTRY = r"^\[[0-9: ,-]{23}\] [A-Z]+ "
# What Kafka's fault handlers say (org.apache.kafka.server.fault), what it calls fatal, and what a JVM says that dies.
FAULT = (
    r"^\[[0-9: ,-]{23}\] (FATAL |[A-Z]+ Encountered .* fault)|^# A fatal error has been detected by the Java Runtime"
)
MOST_LINES, LONGEST = 50, 400

# What may be excused, by the reason that a test gives: the lines that come with it.
NOT_LET_IN = "rolling_test: a stock broker at level 1 is not let in, and gives up after a while"
EXCUSES: Mapping[str, re.Pattern[str]] = {
    NOT_LET_IN: re.compile(
        r"\] FATAL .*(?:Fatal error during broker startup|Exiting Kafka due to fatal exception during startup)"
    ),
}


def question(log: str) -> str:
    """The shell command that tells how many entries a log has, and then its lines that tell of a fault."""
    file = shlex.quote(log)
    # 1: no such line; anything else is that it can't be read
    entries = f"grep -acE {shlex.quote(ENTRY)} {file} || test $? -eq 1"
    faults = f"grep -am {MOST_LINES} -E {shlex.quote(FAULT)} {file} || test $? -eq 1"
    return f"{{ {entries}; }} && {{ {faults}; }}"


def note_logged(history: History, node: int, answer: str) -> None:
    """Writes the answer to ``question`` into a history.

    Args:
        history: where.
        node: whose log it is.
        answer: as it came.
    """
    count, *lines = answer.splitlines() or [""]
    if not count.isdigit() or not int(count):
        note_unread(history, node, "there is no line of Kafka in it")
        return
    found = [line[:LONGEST] for line in lines if line]
    history.note(PROCESS, LOGGED, "ok", node=node, entries=int(count), found=found)


def note_unread(history: History, node: int, why: str) -> None:
    """Writes into a history that the log of a node can't be read."""
    history.note(PROCESS, LOGGED, "unknown", node=node, error=why)


def excuse(history: History, nodes: Sequence[int], reason: str) -> None:
    """Writes into a history that nodes may end by themselves, until they are started again.

    Raises:
        RackgateError: the reason is not in ``EXCUSES``.
    """
    if reason not in EXCUSES:
        raise RackgateError(f"nothing can be excused because of {reason!r}")
    for node in nodes:
        history.note(PROCESS, EXCUSED, "info", node=node, reason=reason)
