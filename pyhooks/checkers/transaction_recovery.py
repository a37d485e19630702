"""Check that transactions and read_committed consumers make progress after a heal.

Reads faults, ``txn`` events (see ``pyhooks.workload.producer``) and ``follow`` events of readers of committed records
(see ``pyhooks.workload.committed_reader``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.recovery import Recovery, recoveries
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import FollowDetails, LeaderOffsetsDetails, TransactionDetails

# The coordinator aborts a dead producer's transaction after transaction.timeout.ms (60 s for our producers), in the
# next of its rounds of 10 s. The rest is for brokers to start and catch up.
BOUND_S = 90.0


@dataclass(frozen=True)
class ReaderProgress:
    """Progress of a reader at one moment."""

    at_ns: int  # when the reader recorded it, monotonic
    asked_ns: int  # when the reader queried the leader
    position: int  # offset up to which it had read
    stable: int | None  # last stable offset, or None if the leader did not respond
    end: int | None  # high watermark, or None if the leader did not respond


def reader_progress(events: Sequence[Event]) -> dict[tuple[str, PartitionName], list[ReaderProgress]]:
    """Return the progress of readers by run and partition, in order of time."""
    progress: defaultdict[tuple[str, PartitionName], list[ReaderProgress]] = defaultdict(list)
    for event, follow in FollowDetails.each(events):
        leader = LeaderOffsetsDetails.of(event)
        stable, end = (leader.stable, leader.end) if leader else (None, None)
        progress[follow.run, PartitionName(follow.topic, follow.partition)].append(
            ReaderProgress(event.mono_ns, follow.asked_ns, follow.position, stable, end)
        )
    return {name: sorted(steps, key=lambda step: step.at_ns) for name, steps in progress.items()}


def longest_stall_s(steps: Sequence[ReaderProgress], from_ns: int, to_ns: int) -> float:
    """Return the longest time that a reader stalled though more was below the high watermark, in seconds."""
    longest, since_ns = 0, None
    for before, step in pairwise(step for step in steps if from_ns <= step.at_ns <= to_ns):
        if step.position == before.position and before.end is not None and before.end > before.position:
            since_ns = before.at_ns if since_ns is None else since_ns
            longest = max(longest, step.at_ns - since_ns)
        else:
            since_ns = None
    return longest / NS


def check_transaction_recovery(events: Sequence[Event]) -> Verdict:
    """Check after each heal that readers of committed records reach the end, and producers commit transactions.

    The end of a partition at a heal is the first high watermark that its leader returned for a query after the start of
    the heal. A reader that had not reached it at the end of the bound is stuck, which is wrong. So is a producer that
    ended transactions before the heal, still ended some after the bound, and by then had committed none that it had
    begun after the heal. For overlapping faults, the last heal counts.

    Unknown without a heal, a reader or a transaction, or if no leader returned the end. Also unknown if the end of the
    history or the next fault cuts the bound short. The time that readers were held up from each fault until its heal is
    a note.
    """
    findings, faults, readers = Findings(), cluster_view.faults(events), reader_progress(events)
    if not readers:
        findings.missing.append("no reader of committed records")
    transactions: defaultdict[str, list[tuple[int, TransactionDetails, bool]]] = defaultdict(list)
    for event, transaction in TransactionDetails.each(events):
        transactions[transaction.run].append((event.mono_ns, transaction, event.outcome == "ok"))
    if not transactions:
        findings.missing.append("no transaction in the history")
    for fault in faults:
        for (run, partition), steps in sorted(readers.items()):
            held_s = longest_stall_s(steps, fault.inject_ns, fault.heal_ns or fault.inject_ns)
            if held_s >= 1:
                findings.notes.append(f"{fault.name}: {run} on {partition} was held up for {held_s:.1f} s")
    for recovery in recoveries(faults, findings):
        for (run, partition), steps in sorted(readers.items()):
            after = [step for step in steps if recovery.has(step.at_ns)]
            _check_reader(f"{recovery.name}: {run} on {partition}", recovery.heal_ns, after, findings)
        for run, ended in sorted(transactions.items()):
            if any(at_ns < recovery.heal_ns for at_ns, _, _ in ended):
                _check_producer(f"{recovery.name}: {run}", recovery, ended, findings)
    return findings.verdict("unstuck")


def _check_reader(name: str, heal_ns: int, after: Sequence[ReaderProgress], findings: Findings) -> None:
    """Check one reader of one partition by its progress after a heal."""
    end = next((step.end for step in after if step.end is not None and step.asked_ns > heal_ns), None)
    if end is None:
        findings.missing.append(f"{name}: its leader did not report the log's end after the heal")
        return
    short = [step for step in after if step.position < end]
    reached_ns = next((step.at_ns for step in after if step.position >= end), None)
    last_ns = max((step.at_ns for step in short), default=heal_ns)
    if reached_ns is not None and reached_ns - heal_ns <= BOUND_S * NS:
        findings.notes.append(f"{name} reached {end}, the end at the heal, after {(reached_ns - heal_ns) / NS:.1f} s")
    elif last_ns - heal_ns > BOUND_S * NS:
        findings.wrong.append(
            f"{name}: {(last_ns - heal_ns) / NS:.1f} s after the heal at offset {short[-1].position}, the end was {end}"
            " then"
        )
    else:
        findings.missing.append(
            f"{name}: not seen at {end}, the end at the heal, and not observed later than"
            f" {(last_ns - heal_ns) / NS:.1f} s"
        )


def _check_producer(
    name: str, recovery: Recovery, ended: Sequence[tuple[int, TransactionDetails, bool]], findings: Findings
) -> None:
    """Check one producer by the transactions that it ended after a heal, until the next fault."""
    later = [(at_ns, committed and txn.begun_ns > recovery.heal_ns) for at_ns, txn, committed in ended
             if recovery.has(at_ns)]  # fmt: skip
    committed_s = min(((at_ns - recovery.heal_ns) / NS for at_ns, committed in later if committed), default=None)
    last_s = max(((at_ns - recovery.heal_ns) / NS for at_ns, _ in later), default=0.0)
    if committed_s is not None and committed_s <= BOUND_S:
        findings.notes.append(f"{name} committed a transaction begun after the heal after {committed_s:.1f} s")
    elif last_s > BOUND_S:
        findings.wrong.append(f"{name}: no transaction begun after the heal was committed within {BOUND_S:g} s")
    else:
        findings.missing.append(
            f"{name}: no transaction begun after the heal was committed, and none ended after {last_s:.1f} s"
        )
