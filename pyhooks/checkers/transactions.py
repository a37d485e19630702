"""Check that transactions are all or nothing for read_committed consumers.

Reads ``produce`` events with ``txn``, ``txn``, ``end`` and ``killed`` events, and the read_committed ``read`` of every
partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from pyhooks.checkers.record_view import COMMITTED, UNCOMMITTED, Attempt, Place, Records
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event, Outcome


def check_transactions(events: Sequence[Event]) -> Verdict:
    """Check that all records of a committed transaction are read, none of an aborted one, all or none if uncertain.

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
    missing = records.unnoted()
    members: defaultdict[tuple[str, int], list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.txn is not None and attempt.run is not None:
            members[attempt.run, attempt.txn].append(attempt)
    if not members and not records.transactions:
        missing.append("no transaction in the history")
    visible: set[str | None] = set()
    ends: dict[Place, int] = {}
    lows: dict[Place, int] = {}
    begun_ns: dict[Place, int] = {}
    unread: list[str] = []
    for topic in sorted({attempt.topic for attempts in members.values() for attempt in attempts}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        whole, _ = records.final(topic, UNCOMMITTED)
        for number, read in reads.items():
            lows[topic, number], begun_ns[topic, number] = read.low, read.begun_ns
            # If the whole log was read as committed, no open transaction holds anything back.
            if number not in whole or whole[number].end > read.end:
                ends[topic, number] = read.end
        visible |= {key for read in reads.values() for key in read.keys.values()}
    killed = {name for (name, _), run in records.runs.items() if run.killed}
    behind = _behind(records, ends)
    wrong: list[str] = []
    for run, txn in sorted(members.keys() | records.transactions.keys()):
        told = records.transactions.get((run, txn))
        attempts = members.get((run, txn), [])
        if told is None and run not in killed:
            missing.append(f"nothing tells how transaction {txn} of run {run} ended")
        if told is not None and len(attempts) != told.records and run not in killed:
            missing.append(f"transaction {txn} of run {run}: {told.records} records, {len(attempts)} of them noted")
        outcome: Outcome = told.outcome if told else "unknown"
        late = {
            one.key
            for one in attempts
            if (place := (one.topic, one.partition or 0)) in behind
            and (one.offset is None or one.offset >= ends[place])
        }
        expired = {one.key for one in attempts if one.outcome != "fail" and _below(one, lows)} - visible
        if expired and outcome != "fail":
            what = f"{len(expired)} records may be below the log's first offset, the first is {min(map(str, expired))}"
            missing.append(f"transaction {txn} of run {run}: {what}")
        if told is not None and outcome != "fail":
            places = {(one.topic, one.partition or 0) for one in attempts}
            if any(begun_ns.get(place, told.ended_ns) < told.ended_ns for place in places):
                missing.append(f"transaction {txn} of run {run} ended after the final read began")
                late |= {one.key for one in attempts}
        if problem := _problem(outcome, {attempt.key: attempt for attempt in attempts}, visible, late | expired):
            # Without a complete read, an absent record may only not have been read.
            target = missing if unread and "not read" in problem else wrong
            target.append(f"transaction {txn} of run {run}, {problem}")
    missing += [
        f"{topic}-{number}: what is committed was read up to offset {ends[topic, number]}, and {key} was acknowledged"
        f" at offset {offset}: an open transaction may hold back the rest"
        for (topic, number), (key, offset) in sorted(behind.items())
    ]
    return Verdict.of("transactions", wrong=wrong, missing=missing + unread)


def _below(attempt: Attempt, lows: Mapping[Place, int]) -> bool:
    """Return whether retention may have removed a record."""
    low = lows.get((attempt.topic, attempt.partition or 0), 0)
    return (0 if attempt.offset is None else attempt.offset) < low


def _behind(records: Records, ends: Mapping[Place, int]) -> dict[Place, tuple[str, int]]:
    """Return partitions whose last stable offset was not above all acknowledged records, each with such a record."""
    found: dict[Place, tuple[str, int]] = {}
    for one in records.attempts:
        if one.partition is None or one.offset is None or one.txn is None:
            continue
        place = (one.topic, one.partition)
        if one.offset >= ends.get(place, one.offset + 1):
            found.setdefault(place, (one.key, one.offset))
    return found


def _problem(outcome: Outcome, attempts: Mapping[str, Attempt], visible: set[str | None], late: Collection[str]) -> str:
    """Describe the problem with a transaction, if any; absent records in ``late`` may still appear."""
    seen = sorted(attempts.keys() & visible)
    if outcome == "fail":
        return f"aborted: {seen[0]} was read" if seen else ""
    # A record that never left the client is in no transaction. If anything of an uncertain transaction is visible, only
    # its acknowledged records must be.
    sent = {key: attempt for key, attempt in attempts.items() if attempt.outcome != "fail" and key not in late}
    owed = {key for key, attempt in sent.items() if outcome == "ok" or attempt.outcome == "ok"}
    absent = sorted(owed - visible)
    if outcome == "ok":
        return f"committed: {absent[0]} was not read" if absent else ""
    return f"uncertain: {seen[0]} was read and {absent[0]} was not read" if seen and absent else ""
