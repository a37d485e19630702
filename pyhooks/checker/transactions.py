"""Are transactions all or nothing for who reads what is committed?

Reads ``produce`` events with ``txn``, ``txn``, ``end`` and ``killed`` events, and the read_committed ``read`` of every
partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyhooks.checker.records import COMMITTED, Attempt, Records
from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event, Outcome


def check_transactions(events: Sequence[Event]) -> Verdict:
    """Every record of a committed transaction is read, none of an aborted one, and of an uncertain one all or none.

    Unknown without a transaction, without a complete read_committed read of all partitions that transactions wrote to,
    if records of a transaction are not accounted for, or if nothing tells how a transaction of a producer that ended
    did.
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
    unread: list[str] = []
    for topic in sorted({attempt.topic for attempts in members.values() for attempt in attempts}):
        reads, gaps = records.final(topic, COMMITTED)
        unread += gaps
        visible |= {key for read in reads.values() for key in read.keys.values()}
    killed = {name for (name, _), run in records.runs.items() if run.killed}
    wrong: list[str] = []
    for run, txn in sorted(members.keys() | records.transactions.keys()):
        told = records.transactions.get((run, txn))
        attempts = members.get((run, txn), [])
        if told is None and run not in killed:
            missing.append(f"nothing tells how transaction {txn} of run {run} ended")
        if told is not None and len(attempts) != told.records and run not in killed:
            missing.append(f"transaction {txn} of run {run}: {told.records} records, {len(attempts)} of them noted")
        outcome: Outcome = told.outcome if told else "unknown"
        if problem := _problem(outcome, {attempt.key: attempt for attempt in attempts}, visible):
            # Without a whole read, what is absent may only not have been read.
            target = missing if unread and "not read" in problem else wrong
            target.append(f"transaction {txn} of run {run}, {problem}")
    return Verdict.of("transactions", wrong=wrong, missing=missing + unread)


def _problem(outcome: Outcome, attempts: Mapping[str, Attempt], visible: set[str | None]) -> str:
    """What is wrong with a transaction, in words, or nothing."""
    seen = sorted(attempts.keys() & visible)
    if outcome == "fail":
        return f"aborted: {seen[0]} was read" if seen else ""
    # Of an uncertain one, only what was acknowledged must be there if anything is.
    owed = {key for key, attempt in attempts.items() if outcome == "ok" or attempt.outcome == "ok"}
    absent = sorted(owed - visible)
    if outcome == "ok":
        return f"committed: {absent[0]} was not read" if absent else ""
    return f"uncertain: {seen[0]} was read and {absent[0]} was not read" if seen and absent else ""
