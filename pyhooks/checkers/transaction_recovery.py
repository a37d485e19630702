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
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.record_view import Place
from pyhooks.checkers.recovery import last_heal
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import FollowDetails, LeaderOffsetsDetails, TransactionDetails

# The coordinator aborts a dead producer's transaction after transaction.timeout.ms (60 s for our producers), in the
# next of its rounds of 10 s. The rest is for brokers to start and catch up.
BOUND_S = 90.0


@dataclass(frozen=True)
class ReaderProgress:
    """Progress of a reader at one moment.

    Attributes:
        at_ns: when the reader recorded it, monotonic.
        asked_ns: when the reader queried the leader.
        position: offset up to which it had read.
        stable: last stable offset, or None if the leader did not respond.
        end: high watermark, or None if the leader did not respond.
    """

    at_ns: int
    asked_ns: int
    position: int
    stable: int | None
    end: int | None


def followed(events: Sequence[Event]) -> dict[tuple[str, Place], list[ReaderProgress]]:
    """Return the progress of readers by run and partition, in order of time."""
    found: defaultdict[tuple[str, Place], list[ReaderProgress]] = defaultdict(list)
    for event, one in FollowDetails.each(events):
        leader = LeaderOffsetsDetails.of(event)
        stable, end = (leader.stable, leader.end) if leader else (None, None)
        step = ReaderProgress(event.mono_ns, one.asked_ns, one.position, stable, end)
        found[one.run, (one.topic, one.partition)].append(step)
    return {name: sorted(steps, key=lambda one: one.at_ns) for name, steps in found.items()}


def held_up_s(steps: Sequence[ReaderProgress], from_ns: int, to_ns: int) -> float:
    """Return the longest time that a reader stalled though more was below the high watermark, in seconds."""
    longest, since_ns = 0, None
    for one, two in pairwise(step for step in steps if from_ns <= step.at_ns <= to_ns):
        if two.position == one.position and one.end is not None and one.end > one.position:
            since_ns = one.at_ns if since_ns is None else since_ns
            longest = max(longest, two.at_ns - since_ns)
        else:
            since_ns = None
    return longest / NS


def check_unstuck(events: Sequence[Event], *, bound_s: float = BOUND_S) -> Verdict:
    """Check after each heal that readers of committed records reach the end, and producers commit transactions.

    The end of a partition at a heal is the first high watermark that its leader returned for a query after the start of
    the heal. A reader that had not reached it at the end of the bound is stuck, which is wrong. So is a producer that
    ended transactions before the heal, still ended some after the bound, and by then had committed none that it had
    begun after the heal. For overlapping faults, the last heal counts.

    Unknown without a heal, a reader or a transaction, or if no leader returned the end. Also unknown if the end of the
    history or the next fault cuts the bound short. The time that readers were held up from each fault until its heal is
    a note.

    Args:
        events: a whole history.
        bound_s: time granted from the start of a heal, in seconds.
    """
    faults = cluster_view.faults(events)
    readers = followed(events)
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    if not any(fault.heal_ns is not None for fault in faults):
        missing.append("no heal in the history")
    if not readers:
        missing.append("nobody followed what is committed")
    transactions: defaultdict[str, list[tuple[Event, TransactionDetails]]] = defaultdict(list)
    for event, transaction in TransactionDetails.each(events):
        transactions[transaction.run].append((event, transaction))
    if not transactions:
        missing.append("no transaction in the history")
    judged: set[int] = set()
    for fault in faults:
        name = f"{fault.op} {fault.rack if fault.broker is None else f'broker {fault.broker}'}"
        heal_ns = None if fault.heal_ns is None else last_heal(fault.heal_ns, faults)
        if heal_ns is None:
            missing.append(f"{name}: never healed")
            continue
        notes += _held_up(name, fault, readers)
        if heal_ns in judged:
            continue  # reported with the other fault
        judged.add(heal_ns)
        next_ns = min((other.inject_ns for other in faults if other.inject_ns > heal_ns), default=None)
        for (run, place), steps in sorted(readers.items()):
            after = [one for one in steps if one.at_ns > heal_ns and (next_ns is None or one.at_ns < next_ns)]
            what = f"{name}: {run} on {place[0]}-{place[1]}"
            _reader(what, heal_ns, after, round(bound_s * NS), wrong, missing, notes)
        for run, ended in sorted(transactions.items()):
            if any(event.mono_ns < heal_ns for event, _ in ended):
                own = [(event, one) for event, one in ended if next_ns is None or event.mono_ns < next_ns]
                _producer(f"{name}: {run}", heal_ns, own, round(bound_s * NS), wrong, missing, notes)
    return Verdict.of("unstuck", wrong=wrong, missing=missing, notes=notes)


def _held_up(name: str, fault: RecordedFault, readers: dict[tuple[str, Place], list[ReaderProgress]]) -> list[str]:
    """Describe how long readers stalled under a fault."""
    until_ns = fault.heal_ns or fault.inject_ns
    return [
        f"{name}: {run} on {place[0]}-{place[1]} was held up for {held_s:.1f} s"
        for (run, place), steps in sorted(readers.items())
        if (held_s := held_up_s(steps, fault.inject_ns, until_ns)) >= 1
    ]


def _reader(
    what: str,
    heal_ns: int,
    after: Sequence[ReaderProgress],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    """Judge one reader of one partition by its progress after a heal."""
    end = next((one.end for one in after if one.end is not None and one.asked_ns > heal_ns), None)
    if end is None:
        missing.append(f"{what}: its leader did not tell the log's end after the heal")
        return
    before = [one.at_ns for one in after if one.position < end]
    there_ns = next((one.at_ns for one in after if one.position >= end), None)
    last_s = (max(before) - heal_ns) / NS if before else 0.0
    if there_ns is not None and there_ns - heal_ns <= bound_ns:
        notes.append(f"{what} reached {end}, the end at the heal, after {(there_ns - heal_ns) / NS:.1f} s")
    elif before and max(before) - heal_ns > bound_ns:
        at = next(one.position for one in reversed(after) if one.position < end)
        wrong.append(f"{what}: {last_s:.1f} s after the heal at offset {at}, the end was {end} then")
    else:
        missing.append(f"{what}: not seen at {end}, the end at the heal, and nobody looked later than {last_s:.1f} s")


def _producer(
    what: str,
    heal_ns: int,
    ended: Sequence[tuple[Event, TransactionDetails]],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    """Judge one producer by the transactions that it ended, until the next fault."""
    committed = [event.mono_ns for event, one in ended if event.outcome == "ok" and one.begun_ns > heal_ns]
    if committed and min(committed) - heal_ns <= bound_ns:
        notes.append(f"{what} committed a transaction of after the heal after {(min(committed) - heal_ns) / NS:.1f} s")
        return
    others = [event.mono_ns for event, _ in ended if event.mono_ns > heal_ns and event.mono_ns not in committed]
    over = [at_ns for at_ns in [*others, *committed] if at_ns - heal_ns > bound_ns]
    if over:
        wrong.append(f"{what}: no transaction of after the heal was committed within {bound_ns / NS:g} s")
    else:
        told_s = (max(others) - heal_ns) / NS if others else 0.0
        missing.append(
            f"{what}: no transaction of after the heal was committed, and it tells nothing after {told_s:.1f} s"
        )
