"""Check that every offset has the same record in all reads, and that records are in the order of sending.

Reads ``produce``, ``intend`` and all ``read`` events, of both isolations and of several passes. If the disks were read
(``pyhooks.lab.disks``), it also reads their logs, observations and faults.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from pyhooks.checkers import cluster_view
from pyhooks.checkers.duplicate_writes import WHY, Doubled
from pyhooks.checkers.promise import disks_of
from pyhooks.checkers.record_view import UNCOMMITTED, Place, Read, Records
from pyhooks.checkers.settling_times import LAG_NS
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import parts_of


def check_offsets(events: Sequence[Event]) -> Verdict:
    """Check for one record at each offset, and for the order of an idempotent producer's records.

    Wrong:

    * two records acknowledged at one offset;
    * one record acknowledged or recorded twice;
    * an acknowledged offset that has another record or none;
    * two reads that differ at an offset;
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
    doubled = Doubled(events, records)
    wrong: list[str] = []
    missing = records.unnoted()
    acked: defaultdict[Place, dict[int, str]] = defaultdict(dict)
    acked_ns: dict[str, int] = {}
    noted: set[tuple[str, str]] = set()
    for attempt in records.attempts:
        if (attempt.topic, attempt.key) in noted:
            wrong.append(f"{attempt.topic}: record {attempt.key} has two outcomes")
        noted.add((attempt.topic, attempt.key))
        if attempt.outcome != "ok" or attempt.offset is None or attempt.offset < 0 or attempt.partition is None:
            continue
        if not records.shared(attempt):
            continue
        acked_ns[attempt.key] = attempt.done_ns
        place = acked[attempt.topic, attempt.partition]
        if (other := place.setdefault(attempt.offset, attempt.key)) != attempt.key:
            where = f"{attempt.topic}-{attempt.partition}"
            wrong.append(f"{where}: offset {attempt.offset} was acknowledged for {other} and for {attempt.key}")
    if not acked:
        missing.append("no acknowledged offset in the history")
    for topic in sorted({topic for topic, _ in acked}):
        reads, gaps = records.final(topic, UNCOMMITTED)
        missing += gaps
        for number, read in reads.items():
            in_time = {at: key for at, key in acked[topic, number].items() if acked_ns[key] <= read.begun_ns}
            if later := len(acked[topic, number]) - len(in_time):
                missing.append(f"{topic}-{number}: {later} records were acknowledged after the final read began")
            wrong += _against_acks(read, acked[topic, number], in_time)
    for read in records.reads:
        if read.isolation == UNCOMMITTED:
            _order(read, records, doubled, wrong, missing)
    wrong += _disagreements(records.reads)
    wrong += _copies(events, records)
    return Verdict.of("offsets", wrong=wrong, missing=missing)


def _against_acks(read: Read, acked: dict[int, str], in_time: dict[int, str]) -> list[str]:
    wrong = []
    for offset, key in sorted(acked.items()):
        if offset in read.keys:
            if read.keys[offset] != key:
                wrong.append(
                    f"{read.topic}-{read.partition}: offset {offset} was acknowledged for {key} and holds"
                    f" {read.keys[offset]}"
                )
        elif offset in in_time and offset >= read.low and not read.gaps:
            wrong.append(f"{read.topic}-{read.partition}: offset {offset} was acknowledged for {key} and holds nothing")
    return wrong


def _order(read: Read, records: Records, doubled: Doubled, wrong: list[str], missing: list[str]) -> None:
    highest: dict[str, int] = {}
    count: Counter[str | None] | None = None
    for offset, key in sorted(read.keys.items()):
        parts = parts_of(key) if key else None
        if key is None or parts is None or not (run := records.runs.get((parts[0], read.topic))) or not run.idempotent:
            continue
        name, seq = parts[0], parts[3]
        if seq < highest.get(name, -1):
            place = f"{read.topic}-{read.partition}"
            said = f"{place}: record {seq} of run {name} is at offset {offset}, behind record {highest[name]}"
            count = count or Counter(read.keys.values())
            if count[key] > 1 and doubled.own(read.topic, key):
                missing.append(f"{said}, written twice {WHY}")
            else:
                wrong.append(said)
        highest[name] = max(seq, highest.get(name, -1))


def _disagreements(reads: Sequence[Read]) -> list[str]:
    wrong = []
    known: defaultdict[Place, dict[int, str | None]] = defaultdict(dict)
    for read in reads:
        place = known[read.topic, read.partition]
        for offset, key in read.keys.items():
            if place.setdefault(offset, key) != key:
                wrong.append(f"{read.topic}-{read.partition}: offset {offset} was read as {place[offset]} and as {key}")
    return wrong


def _copies(events: Sequence[Event], records: Records) -> Iterator[str]:
    """Describe where logs of a partition differ between brokers that were all in sync after the last fault."""
    disks = disks_of(events)
    if disks is None:
        return
    faults = cluster_view.faults(events)
    over_ns = max((math.inf if one.healed_ns is None else one.healed_ns for one in faults), default=-math.inf)
    for place, seen in sorted(cluster_view.observations(events).items()):
        last = seen[-1]
        if last.since_ns <= over_ns + LAG_NS:
            continue
        reads, _ = records.final(place[0], UNCOMMITTED)
        read = reads.get(place[1])
        until = math.inf if read is None or read.gaps else read.end
        own = {broker: disks.logs[broker, place] for broker in last.isr if (broker, place) in disks.logs}
        logs = [(broker, log) for broker, log in own.items() if broker in disks.whole and not log.gaps]
        for (one, first), (two, second) in combinations(logs, 2):
            shared = range(max(first.low, second.low), int(min(first.end, second.end, until)))
            differ = [at for at in shared if first.keys.get(at) != second.keys.get(at)]
            if differ:
                held = f"{first.keys.get(differ[0])} and {second.keys.get(differ[0])}"
                yield (
                    f"{place[0]}-{place[1]}: brokers {one} and {two} were in sync and differ at {len(differ)} offsets,"
                    f" at {differ[0]} they have {held}"
                )
