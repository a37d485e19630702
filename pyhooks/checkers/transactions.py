"""Check that transactions are all or nothing for read_committed consumers.

Reads ``produce`` events with ``txn``, ``txn``, ``end`` and ``killed`` events, and all read_committed ``read`` events;
the last pass over every partition must be complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from pyhooks.checkers.record_view import COMMITTED, UNCOMMITTED, Attempt, PartitionName, Read, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event, Outcome


def check_transactions(events: Sequence[Event]) -> Verdict:
    """Check that all records of a committed transaction are read, none of an aborted one, all or none if uncertain.

    The last read_committed pass counts. But no read_committed read at all may have a record of an aborted transaction,
    nor a record of a transaction of which another record was sent only after the read had ended.

    Unknown:

    * no transaction;
    * no complete read_committed read of all partitions that transactions wrote to;
    * records of a transaction that are not accounted for;
    * a transaction without a recorded end, unless its producer was killed;
    * a read that ends at or before an acknowledged record, since the last stable offset then lags behind;
    * an acknowledged record below the log's first offset, which retention may have removed;
    * a transaction that ended after the read began.
    """
    records = Records(events)
    findings = Findings(missing=records.unrecorded())
    members: defaultdict[tuple[str, int], list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.txn is not None and attempt.run is not None:
            members[attempt.run, attempt.txn].append(attempt)
    if not members and not records.transactions:
        findings.missing.append("no transaction in the history")
    visible: set[str | None] = set()
    last_reads: dict[PartitionName, Read] = {}
    # Ends of reads that an open transaction may have held back.
    ends: dict[PartitionName, int] = {}
    unread: list[str] = []
    for topic in sorted({attempt.topic for attempts in members.values() for attempt in attempts}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        uncommitted, _ = records.final(topic, UNCOMMITTED)
        for number, read in reads.items():
            last_reads[read.partition] = read
            # If the whole log was read as committed, no open transaction holds anything back.
            if number not in uncommitted or uncommitted[number].end > read.end:
                ends[read.partition] = read.end
            visible.update(read.keys.values())
    committed_reads = [read for read in records.reads if read.isolation == COMMITTED]
    ever_visible = visible.union(*(read.keys.values() for read in committed_reads))
    findings.wrong += _read_before_commit(members, committed_reads)
    killed = {name for (name, _), run in records.runs.items() if run.killed}
    behind = _behind(records, ends)
    for run, txn in sorted(members.keys() | records.transactions.keys()):
        name, end = f"transaction {txn} of run {run}", records.transactions.get((run, txn))
        attempts = members.get((run, txn), [])
        if end is None and run not in killed:
            findings.missing.append(f"the end of {name} is not recorded")
        if end is not None and len(attempts) != end.records and run not in killed:
            findings.missing.append(f"{name}: {end.records} records, {len(attempts)} of them recorded")
        outcome: Outcome = end.outcome if end else "unknown"
        partitions = {attempt.key: PartitionName(attempt.topic, attempt.partition or 0) for attempt in attempts}
        late = {
            attempt.key
            for attempt in attempts
            if (partition := partitions[attempt.key]) in behind
            and (attempt.offset is None or attempt.offset >= ends[partition])
        }
        # Retention may have removed them.
        expired = {
            attempt.key
            for attempt in attempts
            if attempt.outcome != "fail"
            and (read_last := last_reads.get(partitions[attempt.key]))
            and (attempt.offset or 0) < read_last.low
        } - visible
        if expired and outcome != "fail":
            findings.missing.append(
                f"{name}: {len(expired)} records may be below the log's first offset, the first is {min(expired)}"
            )
        if end is not None and outcome != "fail":
            reads_of = [last_reads[partition] for partition in set(partitions.values()) if partition in last_reads]
            if any(read.begun_ns < end.ended_ns for read in reads_of):
                findings.missing.append(f"{name} ended after the final read began")
                late |= partitions.keys()
        seen = ever_visible if outcome == "fail" else visible
        if problem := _problem(outcome, {attempt.key: attempt for attempt in attempts}, seen, late | expired):
            # Without a complete read, an absent record may only not have been read.
            findings.add(f"{name}, {problem}", certain=not (unread and "not read" in problem))
    findings.missing += [
        f"{partition}: committed records were read up to offset {ends[partition]}, and {key} was acknowledged at offset"
        f" {offset}: an open transaction may hold back the rest"
        for partition, (key, offset) in sorted(behind.items())
    ]
    findings.missing += unread
    return findings.verdict("transactions")


def _read_before_commit(
    members: Mapping[tuple[str, int], Sequence[Attempt]], committed_reads: Sequence[Read]
) -> Iterator[str]:
    """Describe records that a read_committed read has from transactions that sent records after it had ended."""
    for (run, txn), attempts in sorted(members.items()):
        last = max(attempts, key=lambda attempt: attempt.sent_ns)
        keys = {attempt.key for attempt in attempts}
        for read in committed_reads:
            if read.ended_ns <= last.sent_ns and (early := sorted(keys.intersection(map(str, read.keys.values())))):
                yield (
                    f"transaction {txn} of run {run}: {early[0]} was read as committed before {last.key} of the same"
                    " transaction was sent"
                )


def _behind(records: Records, ends: Mapping[PartitionName, int]) -> dict[PartitionName, tuple[str, int]]:
    """Return partitions whose last stable offset was not above all acknowledged records, each with such a record."""
    behind: dict[PartitionName, tuple[str, int]] = {}
    for attempt in records.attempts:
        partition, offset = attempt.partition_name, attempt.offset
        if partition is None or offset is None or attempt.txn is None:
            continue
        if offset >= ends.get(partition, offset + 1):
            behind.setdefault(partition, (attempt.key, offset))
    return behind


def _problem(outcome: Outcome, attempts: Mapping[str, Attempt], visible: set[str | None], late: Collection[str]) -> str:
    """Describe the problem with a transaction, if any; absent records in ``late`` may still appear."""
    read = sorted(attempts.keys() & visible)
    if outcome == "fail":
        return f"aborted: {read[0]} was read" if read else ""
    # A record that never left the client is in no transaction. If anything of an uncertain transaction is visible, only
    # its acknowledged records must be.
    sent = {key: attempt for key, attempt in attempts.items() if attempt.outcome != "fail" and key not in late}
    required = {key for key, attempt in sent.items() if outcome == "ok" or attempt.outcome == "ok"}
    absent = sorted(required - visible)
    if outcome == "ok":
        return f"committed: {absent[0]} was not read" if absent else ""
    return f"uncertain: {read[0]} was read and {absent[0]} was not read" if read and absent else ""
