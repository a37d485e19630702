"""Check that clients ride out an outage by their own retries, and know all errors that they get.

A test that drives clients through an outage records those that should ride it out (``RideDetails``). Their runs that
retry (those of idempotent producers) are judged by the outcomes of their records. All of their runs are judged by the
names of the errors that they got. Also reads ``intend``, ``produce`` and ``end`` events, observations, settings and
faults.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.record_view import Attempt, Records
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import IntendDetails, RideDetails
from pyhooks.history.outcomes import NOT_REPORTED

# Names that clients give to an error code that they do not know. librdkafka calls it ERR_, the number and a question
# mark (rd_kafka_err2name).
UNKNOWN_NAMES = frozenset({"UNKNOWN", "org.apache.kafka.common.errors.UnknownServerException"})
_OF_JAVA = re.compile(r"org\.apache\.kafka\.[\w.$]+")
_OF_LIBRDKAFKA = re.compile(r"_?[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def is_known(error: str) -> bool:
    """Return whether a client could identify an error: its name is Kafka's, and not that of an unknown error."""
    return error not in UNKNOWN_NAMES and bool(_OF_JAVA.fullmatch(error) or _OF_LIBRDKAFKA.fullmatch(error))


def check_client_retries(events: Sequence[Event]) -> Verdict:
    """Check that clients that were to ride out an outage had all records acknowledged, some after waiting for a heal.

    Wrong: a record of a run that retries that was not acknowledged; an error of any run of these clients whose name is
    that of an unknown error, or none of Kafka's. Unknown: a client without a run that retries; such a run without a
    record that waited, since it did not meet the outage; a run that did not end cleanly, or did not report on a record;
    a fault that was not healed; no fault.
    """
    records, cluster = Records(events), ClusterView.of(events)
    clients = sorted({name for _, ride in RideDetails.each(events) for name in ride.clients})
    findings = Findings()
    if not clients:
        findings.missing.append("no event names the clients that were to ride out an outage")
    if not cluster.faults:
        findings.missing.append("no fault in the history")
    findings.missing += [f"{fault.name}: not healed" for fault in cluster.faults if fault.healed_ns is None]
    runs: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for _, intend in IntendDetails.each(events):
        if intend.client in clients:
            runs[str(intend.client)][str(intend.run)] = intend.idempotent
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        attempts[attempt.run or ""].append(attempt)
    ended = {name for (name, _), run in records.runs.items() if run.ended is not None}
    for client in clients:
        retrying = sorted(name for name, retries in runs[client].items() if retries)
        if not retrying:
            findings.missing.append(f"{client}: no run that retries")
        for name in retrying:
            if name not in ended:
                findings.missing.append(f"{client}: run {name} did not end cleanly")
            _check_run(client, name, attempts[name], cluster, findings)
        errors = Counter(
            attempt.exception
            for name in runs[client]
            for attempt in attempts[name]
            if attempt.exception is not None and attempt.exception != NOT_REPORTED.error
        )
        for error, count in sorted(errors.items()):
            (findings.notes if is_known(error) else findings.wrong).append(f"{client}: {count} records got {error}")
    return findings.verdict("rides")


def _check_run(client: str, run: str, attempts: Sequence[Attempt], cluster: ClusterView, findings: Findings) -> None:
    """Check the records of a run that retries."""
    unreported = sum(attempt.exception == NOT_REPORTED.error for attempt in attempts)
    if unreported:
        findings.missing.append(f"{client}: run {run} did not report on {unreported} records")
    findings.wrong += [
        f"{client}: record {attempt.key} was not acknowledged: {attempt.exception}"
        for attempt in attempts
        if attempt.outcome != "ok" and attempt.exception != NOT_REPORTED.error
    ]
    waited_ns = [
        attempt.done_ns - attempt.sent_ns
        for attempt in attempts
        if attempt.outcome == "ok" and _met_insufficient_isr(attempt, cluster)
    ]
    if waited_ns:
        longest_s = max(waited_ns) / NS
        findings.notes.append(
            f"{client}: {len(waited_ns)} records waited, up to {longest_s:.1f} s, and were acknowledged"
        )
    else:
        findings.missing.append(
            f"{client}: no record of run {run} met an ISR that was too small, and was acknowledged later"
        )


def _met_insufficient_isr(attempt: Attempt, cluster: ClusterView) -> bool:
    """Return whether a record's partition was observed unable to acknowledge, in a fault, while it was in flight."""
    if (partition := attempt.partition_name) is None:
        return False
    for observation in cluster.of_partition(partition):
        from_ns, to_ns = observation.since_ns, observation.at_ns
        # The state is from some moment before the response, so the whole observation must be within the attempt.
        if attempt.sent_ns <= from_ns <= to_ns <= attempt.done_ns:
            required = cluster.settings.possible(attempt.topic, from_ns, to_ns)
            faulty = any(fault.inject_ns <= from_ns and to_ns <= (fault.heal_ns or 0) for fault in cluster.faults)
            if faulty and required and not any(requirement.met_by(observation) for requirement in required):
                return True
    return False
