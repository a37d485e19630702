"""Check that each record of a topic is copied exactly once, with its group's offsets in the same transactions.

Reads the events of ``pyhooks.workload.copier``, ``txn`` events, faults, and the last read_committed ``read`` of both
topics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from pyhooks.checkers import cluster_view
from pyhooks.checkers.record_view import COMMITTED, PartitionName, Records
from pyhooks.checkers.recovery import last_heal
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.transaction_recovery import BOUND_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import CopiedDetails, CopyDetails, CopyEndDetails


def check_copied(events: Sequence[Event]) -> Verdict:
    """Check that the readable copy has each record of the source once, up to the group's offset, in order.

    Wrong:

    * a record that was copied twice, or left out;
    * a transaction with more or fewer records than it took;
    * offsets of the group that do not match the last readable transaction, so that one was committed without the other;
    * no transaction committed within the bound after a heal, though one was tried.

    Unknown without a copy; unless one was committed before a fault and one began after the last heal; if a read of
    either topic is incomplete, or the coordinator did not return the group's offsets.
    """
    records, findings = Records(events), Findings()
    copies = list(CopyDetails.each(events))
    if not copies:
        findings.missing.append("nothing was copied")
    unread: list[str] = []
    readable = _readable_counts(records, {copy.run for _, copy in copies}, unread)
    source: dict[PartitionName, set[int]] = {}
    for topic in sorted({PartitionName.parse(name).topic for _, copy in copies for name in copy.taken}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        source |= {read.partition: set(read.keys) for read in reads.values()}
    findings.missing += unread
    # Without complete reads, an absent record may only not have been read.
    absent = findings.missing if unread else findings.wrong
    next_offsets: defaultdict[PartitionName, int] = defaultdict(int)
    for _, copy in copies:
        if (copy.run, copy.txn) not in readable:
            continue
        name = f"transaction {copy.txn} of run {copy.run}"
        expected = 0
        for partition_name, (first, after) in copy.taken.items():
            partition = PartitionName.parse(partition_name)
            offsets, next_offset = source.get(partition, set()), next_offsets[partition]
            expected += sum(first <= offset < after for offset in offsets)
            if first < next_offset:
                findings.wrong.append(f"{name}: offset {first} of {partition} was copied before, up to {next_offset}")
            elif left := sorted(offset for offset in offsets if next_offset <= offset < first):
                absent.append(
                    f"{name}: {len(left)} records of {partition} were left out, the first at offset {left[0]}"
                )
            next_offsets[partition] = max(next_offset, after)
        count = readable[copy.run, copy.txn]
        if expected != count:
            absent.append(f"{name}: {count} records can be read, and it took {expected}")
    _check_offsets(events, next_offsets, absent, findings)
    _check_resumption(events, records, copies, findings)
    if copies:
        total = sum(readable.values())
        findings.notes.append(f"{total} records in {len(readable)} of {len(copies)} transactions")
    return findings.verdict("copied")


def _readable_counts(records: Records, runs: Collection[str], unread: list[str]) -> Counter[tuple[str, int]]:
    """Return the number of readable records of each transaction."""
    attempts = [attempt for attempt in records.attempts if attempt.run in runs]
    transactions = {attempt.key: (str(attempt.run), attempt.txn) for attempt in attempts if attempt.txn is not None}
    counts: Counter[tuple[str, int]] = Counter()
    for topic in sorted({attempt.topic for attempt in attempts}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        counts.update(transactions[key] for read in reads.values() for key in read.keys.values() if key in transactions)
    return counts


def _check_offsets(
    events: Sequence[Event], next_offsets: Mapping[PartitionName, int], absent: list[str], findings: Findings
) -> None:
    """Check that the group's committed offsets are those after the last readable transaction."""
    ends = list(CopyEndDetails.each(events))
    if not ends:
        findings.missing.append("the committed offsets of the group are not recorded")
    for event, end in ends:
        copied = CopiedDetails.of(event)
        if copied is None:
            findings.missing.append(f"group {end.group}: its offsets are unknown: {end.error}")
            continue
        for name, offset in sorted(copied.committed.items()):
            expected = next_offsets.get(PartitionName.parse(name), 0)
            if max(offset, 0) != expected:
                absent.append(
                    f"group {end.group}: has committed offset {offset} of {name}, and the readable copy ends at"
                    f" {expected}"
                )


def _check_resumption(
    events: Sequence[Event], records: Records, copies: Sequence[tuple[Event, CopyDetails]], findings: Findings
) -> None:
    """Check that copying continues after the last heal."""
    faults = cluster_view.faults(events)
    heals = [heal_ns for fault in faults if fault.heal_ns is not None and (heal_ns := last_heal(fault.heal_ns, faults))]
    if not heals:
        findings.missing.append("no outage that was healed")
        return
    heal_ns, begin_ns = max(heals), min(fault.inject_ns for fault in faults)
    committed = [
        (event.mono_ns, end.ended_ns)
        for event, copy in copies
        if (end := records.transactions.get((copy.run, copy.txn))) is not None and end.outcome == "ok"
    ]
    if not any(ended_ns < begin_ns for _, ended_ns in committed):
        findings.missing.append("no transaction was committed before the outage")
    later = [ended_ns for copied_ns, ended_ns in committed if copied_ns > heal_ns]
    bound_ns = heal_ns + round(BOUND_S * NS)
    if later and min(later) <= bound_ns:
        return
    tried_ns = max((event.mono_ns for event in events if event.op in ("copy", "copied", "txn")), default=0)
    reason = f"no transaction that was begun after the heal was committed within {BOUND_S:g} s"
    findings.add(reason, certain=bool(later) or tried_ns > bound_ns)
