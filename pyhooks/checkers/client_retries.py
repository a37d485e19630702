"""Check that clients ride out an outage by their own retries, and know all errors that they get.

A test that drives clients through an outage records those that should ride it out (``RideDetails``). Their runs that
retry (those of idempotent producers) are judged by the outcomes of their records. All of their runs are judged by the
names of the errors that they got. Also reads ``intend``, ``produce`` and ``end`` events, observations, settings and
faults.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import IntendDetails, RideDetails
from pyhooks.history.outcomes import NOT_REPORTED

# Names that clients give to an error code that they do not know. librdkafka calls it ERR_, the number and a question
# mark (rd_kafka_err2name).
UNKNOWN_NAMES = frozenset({"UNKNOWN", "org.apache.kafka.common.errors.UnknownServerException"})
_OF_JAVA = re.compile(r"org\.apache\.kafka\.[\w.$]+")
_OF_LIBRDKAFKA = re.compile(r"_?[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def known(error: str) -> bool:
    """Return whether a client could identify an error: its name is Kafka's, and not that of an unknown error."""
    return error not in UNKNOWN_NAMES and bool(_OF_JAVA.fullmatch(error) or _OF_LIBRDKAFKA.fullmatch(error))


@dataclass(frozen=True)
class _Seen:
    """State of the cluster, besides the records."""

    observations: Mapping[Place, Sequence[RecordedPartition]]
    settings: RequirementTimeline
    faults: Sequence[RecordedFault]

    def waited(self, attempt: Attempt) -> bool:
        """Return whether its partition was seen unable to acknowledge, in a fault, while the record was in flight."""
        if attempt.partition is None:
            return False
        for observation in self.observations.get((attempt.topic, attempt.partition), ()):
            # The state is from some moment before the response, so the whole observation must be within the attempt.
            if not attempt.sent_ns <= observation.since_ns <= observation.at_ns <= attempt.done_ns:
                continue
            possible = self.settings.possible(attempt.topic, observation.since_ns, observation.at_ns)
            faulty = any(
                one.inject_ns <= observation.since_ns and observation.at_ns <= (one.heal_ns or 0) for one in self.faults
            )
            if faulty and possible and not any(one.met_by(observation) for one in possible):
                return True
        return False


def check_rides(events: Sequence[Event]) -> Verdict:
    """Check that clients that were to ride out an outage had all records acknowledged, some after waiting for a heal.

    Wrong: a record of a run that retries that was not acknowledged; an error of any run of these clients whose name is
    that of an unknown error, or none of Kafka's. Unknown: a client without a run that retries; such a run without a
    record that waited, since it did not meet the outage; a run that did not end cleanly, or did not report on a record;
    a fault that was not healed; no fault.

    Args:
        events: a whole history.
    """
    records = Records(events)
    faults = cluster_view.faults(events)
    seen = _Seen(cluster_view.observations(events), RequirementTimeline(events), faults)
    clients = sorted({name for _, ride in RideDetails.each(events) for name in ride.clients})
    missing = [] if clients else ["nothing tells which clients were to ride an outage out"]
    if not faults:
        missing.append("no fault in the history")
    missing += [f"{one.op} {one.rack or one.broker}: not healed" for one in faults if one.healed_ns is None]
    runs: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for _, intend in IntendDetails.each(events):
        if intend.client in clients:
            runs[str(intend.client)][str(intend.run)] = intend.idempotent
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
    """Judge the records of a run that retries."""
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
