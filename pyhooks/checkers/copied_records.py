"""Check that each record of a topic is copied exactly once, with its group's offsets in the same transactions.

Reads the events of ``pyhooks.workload.copier``, ``txn`` events, faults, and the last read_committed ``read`` of both
topics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import COMMITTED, Place, Records, Transaction
from pyhooks.checkers.recovery import last_heal
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.transaction_recovery import BOUND_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import CopiedDetails, CopyDetails, CopyEndDetails


@dataclass(frozen=True)
class Copy:
    """A transaction of a copier.

    Attributes:
        run: run id of the copier.
        txn: its number.
        at_ns: when the copier recorded what it copies, monotonic.
        taken: source partition, first offset and next offset of each range.
        group: group whose offsets it commits.
    """

    run: str
    txn: int
    at_ns: int
    taken: tuple[tuple[Place, int, int], ...]
    group: str


def copies(events: Sequence[Event]) -> list[Copy]:
    """Return all transactions that copiers recorded, in order of time."""
    return [
        Copy(
            one.run,
            one.txn,
            event.mono_ns,
            tuple((_place(name), first, after) for name, (first, after) in one.taken.items()),
            one.group,
        )
        for event, one in CopyDetails.each(events)
    ]


def check_copied(events: Sequence[Event], *, bound_s: float = BOUND_S) -> Verdict:
    """Check that the readable copy has each record of the source once, up to the group's offset, in order.

    Wrong:

    * a record that was copied twice, or left out;
    * a transaction with more or fewer records than it took;
    * offsets of the group that do not match the last readable transaction, so that one was committed without the other;
    * no transaction committed within the bound after a heal, though one was tried.

    Unknown without a copy; unless one was committed before a fault and one began after the last heal; if a read of
    either topic is incomplete, or the coordinator did not return the group's offsets.

    Args:
        events: a whole history.
        bound_s: seconds from the start of a heal to the end of a transaction that was begun after it.
    """
    records = Records(events)
    wrong: list[str] = []
    missing: list[str] = []
    found = copies(events)
    if not found:
        missing.append("nothing was copied")
    unread: list[str] = []
    shown = _shown(records, found, unread)
    source: dict[Place, set[int]] = {}
    for topic in sorted({place[0] for one in found for place, _, _ in one.taken}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        source |= {(topic, number): set(read.keys) for number, read in reads.items()}
    missing += unread
    # Without complete reads, an absent record may only not have been read.
    absent = missing if unread else wrong
    after: defaultdict[Place, int] = defaultdict(int)
    for one in (own for own in found if (own.run, own.txn) in shown):
        name = f"transaction {one.txn} of run {one.run}"
        expected = 0
        for place, first, behind in one.taken:
            held = source.get(place, set())
            where = f"{place[0]}-{place[1]}"
            expected += sum(first <= offset < behind for offset in held)
            if first < after[place]:
                wrong.append(f"{name}: offset {first} of {where} was copied before, up to {after[place]}")
            elif left := sorted(offset for offset in held if after[place] <= offset < first):
                absent.append(f"{name}: {len(left)} records of {where} were left out, the first at offset {left[0]}")
            after[place] = max(after[place], behind)
        if expected != shown[one.run, one.txn]:
            absent.append(f"{name}: {shown[one.run, one.txn]} records can be read, and it took {expected}")
    _offsets(events, after, absent, missing)
    _resumed(events, records, found, round(bound_s * NS), wrong, missing)
    notes = [f"{sum(shown.values())} records in {len(shown)} of {len(found)} transactions"] if found else []
    return Verdict.of("copied", wrong=wrong, missing=missing, notes=notes)


def _shown(records: Records, found: Sequence[Copy], unread: list[str]) -> Counter[tuple[str, int]]:
    """Return the number of readable records of each transaction."""
    runs = {one.run for one in found}
    of = {one.key: (one.run, one.txn) for one in records.attempts if one.run in runs and one.txn is not None}
    shown: Counter[tuple[str, int]] = Counter()
    for topic in sorted({one.topic for one in records.attempts if one.run in runs}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        for read in reads.values():
            for key in read.keys.values():
                if key in of:
                    run, txn = of[key]
                    shown[str(run), txn] += 1
    return shown


def _offsets(events: Sequence[Event], after: dict[Place, int], wrong: list[str], missing: list[str]) -> None:
    ends = list(CopyEndDetails.each(events))
    if not ends:
        missing.append("nothing tells what the group has committed")
    for event, end in ends:
        copied = CopiedDetails.of(event)
        if copied is None:
            missing.append(f"group {end.group}: its offsets are not known: {end.error}")
            continue
        for name, offset in sorted(copied.committed.items()):
            behind = after.get(_place(name), 0)
            if max(offset, 0) != behind:
                said = f"has committed offset {offset} of {name}, and what can be read stands for all up to {behind}"
                wrong.append(f"group {end.group}: {said}")


def _resumed(
    events: Sequence[Event],
    records: Records,
    found: Sequence[Copy],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge whether copying continues after the last heal."""
    faults = cluster_view.faults(events)
    heals = [heal_ns for one in faults if one.heal_ns is not None and (heal_ns := last_heal(one.heal_ns, faults))]
    ended = {(one.run, one.txn): records.transactions.get((one.run, one.txn)) for one in found}
    good: list[tuple[Copy, Transaction]] = [
        (one, end) for one in found if (end := ended[one.run, one.txn]) is not None and end.outcome == "ok"
    ]
    if not heals:
        missing.append("no outage that was healed")
        return
    if not any(end.ended_ns < min(one.inject_ns for one in faults) for _, end in good):
        missing.append("no transaction was committed before the outage")
    heal_ns = max(heals)
    later = [end.ended_ns - heal_ns for one, end in good if one.at_ns > heal_ns]
    tried_ns = max((event.mono_ns for event in events if event.op in ("copy", "copied", "txn")), default=0)
    if later and min(later) <= bound_ns:
        return
    late = f"no transaction that was begun after the heal was committed within {bound_ns / NS:g} s"
    (wrong if later or tried_ns > heal_ns + bound_ns else missing).append(late)


def _place(name: str) -> Place:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
