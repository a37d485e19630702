"""Did each client ride an outage out by its own retries, and did it know the name of all that it was told?

Who drives clients through an outage notes an event of process ``test`` and op ``ride`` with ``data`` ``{clients}``:
those that are to ride it out, as events of ``intend`` call them. Their runs that retry, which are those of idempotent
producers, are judged by what became of their records; all of their runs by the names of the errors that they got.
Beside that ``intend``, ``produce`` and ``end`` events, looks, settings and faults are read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Fault, Look, Settings
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import NOT_REPORTED

OP = "ride"
# A client takes a code that it does not know for one of these; librdkafka calls it ERR_ and the number, with a question
# mark behind it (rd_kafka_err2name).
UNKNOWN_NAMES = frozenset({"UNKNOWN", "org.apache.kafka.common.errors.UnknownServerException"})
_OF_JAVA = re.compile(r"org\.apache\.kafka\.[\w.$]+")
_OF_LIBRDKAFKA = re.compile(r"_?[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def known(error: str) -> bool:
    """Whether a client could tell what it was told: the name is one of Kafka's, and not that of an unknown error."""
    return error not in UNKNOWN_NAMES and bool(_OF_JAVA.fullmatch(error) or _OF_LIBRDKAFKA.fullmatch(error))


@dataclass(frozen=True)
class _Seen:
    """What is known of the cluster beside the records."""

    looks: Mapping[Place, Sequence[Look]]
    settings: Settings
    faults: Sequence[Fault]

    def waited(self, attempt: Attempt) -> bool:
        """Whether its partition was seen unable to acknowledge, in a fault, while the record was under way."""
        if attempt.partition is None:
            return False
        for look in self.looks.get((attempt.topic, attempt.partition), ()):
            # the state is of some moment before the answer: all of it must lie within
            if not attempt.sent_ns <= look.since_ns <= look.at_ns <= attempt.done_ns:
                continue
            possible = self.settings.possible(attempt.topic, look.since_ns, look.at_ns)
            faulty = any(one.inject_ns <= look.since_ns and look.at_ns <= (one.heal_ns or 0) for one in self.faults)
            if faulty and possible and not any(one.met_by(look) for one in possible):
                return True
        return False


def check_rides(events: Sequence[Event]) -> Verdict:
    """Each client that was to ride it out had all its records acknowledged, some of which had to wait for the heal.

    Wrong are: a record of a run that retries that was not acknowledged, and, of any run of these clients, an error
    whose name is that of an unknown error, or none of Kafka's. Unknown: a client without a run that retries; such a
    run of which no record waited, so that it did not meet the outage; one that did not end in good order, or did not
    report on a record; a fault that was not healed, and no fault.

    Args:
        events: a whole history.
    """
    records = Records(events)
    faults = cluster_view.faults(events)
    seen = _Seen(cluster_view.looks(events), Settings(events), faults)
    asked = [event for event in events if (event.process, event.op) == ("test", OP)]
    clients = sorted({str(name) for event in asked for name in event.data["clients"]})
    missing = [] if clients else ["nothing tells which clients were to ride an outage out"]
    if not faults:
        missing.append("no fault in the history")
    missing += [f"{one.op} {one.rack or one.broker}: not healed" for one in faults if one.healed_ns is None]
    runs: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for event in events:
        if event.op == "intend" and event.data.get("client") in clients:
            runs[str(event.data["client"])][str(event.data["run"])] = bool(event.data["idempotent"])
    own: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        own[attempt.run or ""].append(attempt)
    ended = {name for (name, _), run in records.runs.items() if run.ended is not None}
    wrong: list[str] = []
    notes: list[str] = []
    for client in clients:
        riding = sorted(name for name, retries in runs[client].items() if retries)
        if not riding:
            missing.append(f"{client}: no run that retries")
        for name in riding:
            missing += [] if name in ended else [f"{client}: run {name} did not end in good order"]
            _ridden(client, name, own[name], seen, wrong=wrong, missing=missing, notes=notes)
        told = Counter(
            attempt.exception
            for name in runs[client]
            for attempt in own[name]
            if attempt.exception is not None and attempt.exception != NOT_REPORTED.error
        )
        wrong += [f"{client}: {count} records got {name}" for name, count in sorted(told.items()) if not known(name)]
        notes += [f"{client}: {count} records got {name}" for name, count in sorted(told.items()) if known(name)]
    return Verdict.of("rides", wrong=wrong, missing=missing, notes=notes)


def _ridden(
    client: str,
    run: str,
    attempts: Sequence[Attempt],
    seen: _Seen,
    *,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    """What became of the records of a run that retries."""
    unreported = sum(attempt.exception == NOT_REPORTED.error for attempt in attempts)
    if unreported:
        missing.append(f"{client}: run {run} did not report on {unreported} records")
    wrong += [
        f"{client}: record {attempt.key} was not acknowledged: {attempt.exception}"
        for attempt in attempts
        if attempt.outcome != "ok" and attempt.exception != NOT_REPORTED.error
    ]
    waiting = [attempt for attempt in attempts if attempt.outcome == "ok" and seen.waited(attempt)]
    if not waiting:
        missing.append(f"{client}: no record of run {run} met an ISR that was too small, and was acknowledged later")
        return
    longest_s = max(attempt.done_ns - attempt.sent_ns for attempt in waiting) / 1e9
    notes.append(f"{client}: {len(waiting)} records waited, up to {longest_s:.1f} s, and were acknowledged")
