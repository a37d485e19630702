"""Check that every offset has the same record in all reads, and that records are in the order of sending.

Reads ``produce``, ``intend`` and all ``read`` events, of both isolations and of several passes. If the disks were read
(``pyhooks.lab.disks``), it also reads their logs, observations and faults.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.duplicate_writes import WHY, DuplicateWrites
from pyhooks.checkers.promise import disks_of
from pyhooks.checkers.record_view import UNCOMMITTED, PartitionName, Read, Records
from pyhooks.checkers.settling_times import LAG_NS
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import parts_of


def check_offsets(events: Sequence[Event]) -> Verdict:
    """Check for one record at each offset, and for the order of an idempotent producer's records.

    Wrong:

    * two records acknowledged at one offset;
    * one record acknowledged or recorded twice;
    * an acknowledged offset that has another record or none;
    * two reads that differ at an offset, or an offset that one complete read skips, and another one of the same
      isolation does not;
    * a record of an idempotent or transactional producer that is behind a later one in the log;
    * logs that differ at an offset that both have, of brokers in sync at the last observation, after the last fault.
      This applies up to the end of the final read: later records may be uncommitted.

    Unknown:

    * no acknowledged offset;
    * no complete final read of a topic that has one;
    * a record behind a later one that an idempotent client may have written twice by itself
      (``pyhooks.checkers.duplicate_writes``).

    Records acknowledged with acks=1 are excluded: another leader may truncate them and assign their offsets again, see
    ``pyhooks.checkers.visibility``.
    """
    records = Records(events)
    duplicates = DuplicateWrites(events, records)
    findings = Findings(missing=records.unrecorded())
    acked: defaultdict[PartitionName, dict[int, str]] = defaultdict(dict)
    acked_ns: dict[str, int] = {}
    recorded: set[tuple[str, str]] = set()
    for attempt in records.attempts:
        if (attempt.topic, attempt.key) in recorded:
            findings.wrong.append(f"{attempt.topic}: record {attempt.key} has two outcomes")
        recorded.add((attempt.topic, attempt.key))
        partition, offset = attempt.partition_name, attempt.offset
        if attempt.outcome != "ok" or offset is None or offset < 0 or partition is None:
            continue
        if not records.acks_all(attempt):
            continue
        acked_ns[attempt.key] = attempt.done_ns
        if (other := acked[partition].setdefault(offset, attempt.key)) != attempt.key:
            findings.wrong.append(f"{partition}: offset {offset} was acknowledged for {other} and for {attempt.key}")
    if not acked:
        findings.missing.append("no acknowledged offset in the history")
    for topic in sorted({partition.topic for partition in acked}):
        reads, gaps = records.final(topic, UNCOMMITTED)
        findings.missing += gaps
        for read in reads.values():
            keys = acked[read.partition]
            in_time = {offset for offset, key in keys.items() if acked_ns[key] <= read.begun_ns}
            if later := len(keys) - len(in_time):
                findings.missing.append(
                    f"{read.partition}: {later} records were acknowledged after the final read began"
                )
            findings.wrong += _contradicted_acks(read, keys, in_time)
    for read in records.reads:
        if read.isolation == UNCOMMITTED:
            _check_order(read, records, duplicates, findings)
    findings.wrong += _differing_reads(records.reads)
    findings.wrong += _differing_logs(events, records)
    return findings.verdict("offsets")


def _contradicted_acks(read: Read, acked: Mapping[int, str], in_time: Collection[int]) -> Iterator[str]:
    """Describe acknowledged offsets that have another record in a read, or none."""
    for offset, key in sorted(acked.items()):
        reason = f"{read.partition}: offset {offset} was acknowledged for {key} and holds"
        if offset in read.keys:
            if read.keys[offset] != key:
                yield f"{reason} {read.keys[offset]}"
        elif offset in in_time and offset >= read.low and not read.gaps:
            yield f"{reason} nothing"


def _check_order(read: Read, records: Records, duplicates: DuplicateWrites, findings: Findings) -> None:
    """Check that the records of each idempotent producer are in the order of sending."""
    highest: dict[str, int] = {}
    count: Counter[str | None] | None = None
    topic = read.partition.topic
    for offset, key in sorted(read.keys.items()):
        parts = parts_of(key) if key else None
        if key is None or parts is None or not (run := records.runs.get((parts[0], topic))) or not run.idempotent:
            continue
        name, seq = parts[0], parts[3]
        if seq < highest.get(name, -1):
            reason = (
                f"{read.partition}: record {seq} of run {name} is at offset {offset}, behind record {highest[name]}"
            )
            count = count or Counter(read.keys.values())
            if count[key] > 1 and duplicates.possible(topic, key):
                findings.missing.append(f"{reason}, written twice {WHY}")
            else:
                findings.wrong.append(reason)
        highest[name] = max(seq, highest.get(name, -1))


def _differing_reads(reads: Sequence[Read]) -> Iterator[str]:
    """Describe offsets at which two reads of a partition have different records."""
    known: defaultdict[PartitionName, dict[int, str | None]] = defaultdict(dict)
    for read in reads:
        keys = known[read.partition]
        for offset, key in read.keys.items():
            if keys.setdefault(offset, key) != key:
                yield f"{read.partition}: offset {offset} was read as {keys[offset]} and as {key}"
    complete: defaultdict[tuple[PartitionName, str], list[Read]] = defaultdict(list)
    for read in reads:
        if not read.gaps:
            complete[read.partition, read.isolation].append(read)
    for (partition, isolation), passes in complete.items():
        for earlier, later in pairwise(passes):
            covered = range(max(earlier.low, later.low), min(earlier.end, later.end))
            if skipped := sorted(offset for offset in earlier.keys.keys() ^ later.keys.keys() if offset in covered):
                key = earlier.keys.get(skipped[0], later.keys.get(skipped[0]))
                yield (
                    f"{partition}: {len(skipped)} offsets were read in one {isolation} read and skipped in another, the"
                    f" first is {skipped[0]} with {key}"
                )


def _differing_logs(events: Sequence[Event], records: Records) -> Iterator[str]:
    """Describe where logs of a partition differ between brokers that were all in sync after the last fault."""
    disks = disks_of(events)
    if disks is None:
        return
    faults = cluster_view.faults(events)
    over_ns = max((math.inf if fault.healed_ns is None else fault.healed_ns for fault in faults), default=-math.inf)
    for partition, observed in sorted(cluster_view.observations(events).items()):
        last = observed[-1]
        if last.since_ns <= over_ns + LAG_NS:
            continue
        reads, _ = records.final(partition.topic, UNCOMMITTED)
        read = reads.get(partition.number)
        until = math.inf if read is None or read.gaps else read.end
        logs = [
            (broker, disks.logs[broker, partition])
            for broker in last.isr
            if broker in disks.complete and (broker, partition) in disks.logs
        ]
        complete = [(broker, log) for broker, log in logs if not log.gaps]
        for (broker, log), (other, other_log) in combinations(complete, 2):
            shared = range(max(log.low, other_log.low), int(min(log.end, other_log.end, until)))
            differ = [offset for offset in shared if log.keys.get(offset) != other_log.keys.get(offset)]
            if differ:
                yield (
                    f"{partition}: brokers {broker} and {other} were in sync and differ at {len(differ)} offsets, at"
                    f" {differ[0]} they have {log.keys.get(differ[0])} and {other_log.keys.get(differ[0])}"
                )
