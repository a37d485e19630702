"""Check that waiting records of an idle topic are shown as soon as fewer racks are required, without another write.

A test lowers ``min.insync.racks`` of a topic with acks=1 records waiting for racks, and writes nothing to it from then
on. Before, it records this (``IdleDetails``). Also reads ``intend`` and ``produce`` events, settings and the rounds of
``pyhooks.workload.visibility_reader``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.checkers.visibility import ROUNDS_S, ReaderRound, reader_rounds
from pyhooks.history.event_log import Event
from pyhooks.history.events import IdleDetails

# Counted from the moment at which every broker reports the new value; the proposal promises one second.
BOUND_S = 1.0


def check_idle(events: Sequence[Event]) -> Verdict:
    """Check that waiting records are below the high watermark ``BOUND_S`` after all brokers report the lower value.

    Wrong: a leader that was queried later than that, and returned a high watermark at or below the last of these
    records, which could not be read either. The measurement adds up to the time between two rounds of a reader, since a
    later query shows a later moment.

    Unknown:

    * no change that settled;
    * no record that a reader found hidden after its acknowledgement and before the change;
    * another record that was sent to the topic before that one was shown;
    * no response to a reader within ``ROUNDS_S`` after the bound.
    """
    records, settings, rounds = Records(events), RequirementTimeline(events), reader_rounds(events)
    findings = Findings()
    idle_topics = [(event.mono_ns, idle.topic) for event, idle in IdleDetails.each(events)]
    if not idle_topics:
        findings.missing.append("no topic was left idle")
    for idle_ns, topic in idle_topics:
        change = next((request for request in settings.requests(topic) if request.begun.at_ns > idle_ns), None)
        if change is None or change.ended is None or change.ended.step != "settled":
            findings.missing.append(f"{topic}: no change of its settings has settled after it was left idle")
            continue
        begun_ns, settled_ns = change.begun.at_ns, change.ended.at_ns
        until_ns = settled_ns + round((BOUND_S + ROUNDS_S) * NS)
        attempts = [attempt for attempt in records.attempts if attempt.topic == topic]
        leader_only = [attempt for attempt in attempts if not records.acks_all(attempt)]
        waiting = _waiting(leader_only, rounds, idle_ns, begun_ns)
        if not waiting:
            findings.missing.append(f"{topic}: no record is known to have waited when it was left idle")
        for partition, top in sorted(waiting.items()):
            later = [round_ for round_ in rounds[partition] if round_.at_ns > begun_ns]
            shown = next((round_ for round_ in later if round_.readable > top), None)
            over_ns = until_ns if shown is None else shown.at_ns
            # A round has the offset read before its query, and the leader's high watermark after it.
            late = [
                round_ for round_ in later if round_.asked_ns >= settled_ns + BOUND_S * NS and round_.high is not None
            ]
            if any(attempt.done_ns > idle_ns and attempt.sent_ns < over_ns for attempt in attempts):
                findings.missing.append(
                    f"{partition}: another record was sent to it before the waiting ones were shown"
                )
            elif late and late[0].readable <= top:
                late_s = (late[0].asked_ns - settled_ns) / NS
                findings.wrong.append(
                    f"{partition}: record {top} not shown {late_s:.1f} s after all brokers reported the lower value"
                )
            elif shown is None or shown.at_ns > until_ns:
                findings.missing.append(f"{partition}: no reader learned in time whether record {top} is shown")
            else:
                findings.notes.append(
                    f"{partition}: records up to {top} shown {(shown.at_ns - begun_ns) / NS:.1f} s after the"
                    " change was begun"
                )
    return findings.verdict("idle")


def _waiting(
    attempts: Sequence[Attempt],
    rounds: Mapping[PartitionName, Sequence[ReaderRound]],
    idle_ns: int,
    begun_ns: int,
) -> dict[PartitionName, int]:
    """Return for each partition the last offset acknowledged with acks=1, if a reader found it hidden."""
    waiting: dict[PartitionName, int] = {}
    for attempt in attempts:
        partition, offset = attempt.partition_name, attempt.offset
        if attempt.outcome != "ok" or offset is None or partition is None or attempt.done_ns > idle_ns:
            continue
        readable = [
            round_.readable
            for round_ in rounds.get(partition, ())
            if round_.asked_ns > attempt.done_ns and round_.at_ns < begun_ns and round_.high is not None
        ]
        if readable and max(readable) <= offset:
            waiting[partition] = max(offset, waiting.get(partition, -1))
    return waiting
