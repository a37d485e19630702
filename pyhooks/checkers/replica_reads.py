"""Check that no replica, leader or follower, shows consumers records beyond the leader's high watermark.

Reads the rounds of ``pyhooks.workload.replica_reader`` and ``pyhooks.workload.visibility_reader``, ``intend`` and
``produce`` events, observations, settings and faults (see ``pyhooks.checkers.cluster_view``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.checkers.visibility import ROUNDS_S, ReaderRound, reader_rounds
from pyhooks.history.event_log import Event
from pyhooks.history.events import ReplicaReadDetails


@dataclass(frozen=True)
class ReplicaRound:
    """What a replica had shown by the end of a round."""

    at_ns: int  # end of the round, monotonic
    asked_ns: int  # its beginning
    next: int  # offset after the last record that the replica has shown


Replica = tuple[PartitionName, int]


def replica_rounds(events: Sequence[Event]) -> dict[Replica, list[ReplicaRound]]:
    """Return the rounds in which each replica responded, by partition and broker, in order of time."""
    rounds_by_replica: defaultdict[Replica, list[ReplicaRound]] = defaultdict(list)
    for event, read in ReplicaReadDetails.each(events):
        for name, offset in read.next.items():
            rounds_by_replica[PartitionName.parse(name), read.broker].append(
                ReplicaRound(event.mono_ns, read.asked_ns, offset)
            )
    return {replica: sorted(rounds, key=lambda round_: round_.at_ns) for replica, rounds in rounds_by_replica.items()}


def check_replica_reads(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that replicas show consumers what is committed, and nothing else.

    Wrong:

    * an offset shown by a replica that is above the high watermark that the leader returned afterwards;
    * a record acknowledged with acks=1 in a settled interval with an insufficient ISR, and shown by any replica in it.

    Unknown:

    * no replica that was judged in an interval with an insufficient ISR;
    * a replica in the ISR that did not respond after such a record, though ``ROUNDS_S`` were left of the interval;
    * a replica judged there that showed no record in any interval with a sufficient ISR: its silence proves nothing;
    * a replica's round after which no leader returned its high watermark.
    """
    records, cluster = Records(events), ClusterView.of(events)
    rounds, leaders = replica_rounds(events), reader_rounds(events)
    findings = Findings()
    for replica, own in sorted(rounds.items()):
        _check_high_watermark(replica, own, leaders.get(replica[0], ()), findings)
    acked: defaultdict[PartitionName, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if (partition := attempt.partition_name) is not None and attempt.outcome == "ok" and attempt.offset is not None:
            acked[partition].append(attempt)
    hidden: set[Replica] = set()
    shown: set[Replica] = set()
    for partition, attempts in sorted(acked.items()):
        for window in windows(partition, cluster, round(settle_s * NS)):
            # With acks=all an acknowledgement is proof that the record is committed, which other checkers judge.
            judged = [attempt for attempt in attempts if window.enough or not records.acks_all(attempt)]
            _check_window(partition, window, judged, rounds, (hidden, shown), findings)
    findings.missing += [
        f"{partition}: broker {broker} showed no record while enough were in sync"
        for partition, broker in sorted(hidden - shown)
    ]
    if not hidden:
        findings.missing.append("no replica was read while too few were in sync")
    findings.notes.append(f"{len(hidden)} replicas hid records while too few were in sync, {len(shown)} showed others")
    return findings.verdict("replicas")


def _check_high_watermark(
    replica: Replica, rounds: Sequence[ReplicaRound], leader: Sequence[ReaderRound], findings: Findings
) -> None:
    """Check that a replica showed nothing beyond what the leader later reported as committed."""
    partition, broker = replica
    answers = sorted((round_.asked_ns, round_.high) for round_ in leader if round_.high is not None)
    late = 0
    for own in rounds:
        index = bisect_left(answers, own.at_ns, key=lambda answer: answer[0])
        if index == len(answers):
            late += 1
        elif own.next > answers[index][1]:
            findings.wrong.append(
                f"{partition}: broker {broker} showed records up to offset {own.next}, and its leader's high watermark"
                f" was {answers[index][1]} afterwards"
            )
    # The readers end one after the other.
    if late and late == len(rounds):
        findings.missing.append(f"{partition}: no high watermark was returned after broker {broker} was read")


def _check_window(
    partition: PartitionName,
    window: SettledWindow,
    acked: Sequence[Attempt],
    rounds: Mapping[Replica, Sequence[ReplicaRound]],
    judged: tuple[set[Replica], set[Replica]],
    findings: Findings,
) -> None:
    """Check what each member of the ISR shows of the records acknowledged in a window; note it in ``judged``."""
    hidden, shown = judged
    # Until then no leader can have known the state observed next.
    to_ns = min(window.to_ns, window.ahead.from_ns)
    inside = [attempt for attempt in acked if attempt.sent_ns >= window.from_ns and attempt.done_ns <= to_ns]
    if not inside:
        return
    first = min(inside, key=lambda attempt: attempt.done_ns)
    lowest = min(attempt.offset for attempt in inside if attempt.offset is not None)
    for broker in window.observation.isr:
        replica = partition, broker
        own = [
            round_ for round_ in rounds.get(replica, ()) if round_.asked_ns >= first.done_ns and round_.at_ns <= to_ns
        ]
        showed = any(round_.next > lowest for round_ in own)
        if window.enough and showed:
            shown.add(replica)
        elif window.enough:
            continue
        elif showed:
            findings.wrong.append(
                f"{partition}: {window.isr_text}, too few, and broker {broker} showed records with acks=1 from offset"
                f" {lowest} on"
            )
        elif own:
            hidden.add(replica)
        elif to_ns - first.done_ns >= ROUNDS_S * NS:
            findings.missing.append(f"{partition}: {window.isr_text}, too few, and broker {broker} was not read")
