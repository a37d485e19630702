"""Violations of records: their place in the log, content, outcome and transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyhooks.checkers import rack_spread
from pyhooks.checkers.record_view import COMMITTED, UNCOMMITTED, Attempt, PartitionName
from pyhooks.checkers.settling_times import LAG_NS
from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW, TOO_FEW_RACKS
from pyhooks.history.record_format import key_of, value_of
from pyhooks.verify.stored_history import (
    NOT_ENOUGH_RACKS,
    NOT_ENOUGH_REPLICAS,
    SETTLE_NS,
    NotApplicableError,
    StoredHistory,
    changed,
    client_names,
    draw,
    is_result,
    violation,
)
from pyhooks.verify.stored_logs import DISK, Log, LogName, StoredRecord, edit_logs

# -- lost, doubled and foreign records ---------------------------------------------------------------------------------


def _without(history: StoredHistory, victim: Attempt, where: Callable[[LogName], bool]) -> list[Event]:
    """Return the history without a record in the matching logs."""

    def edit(name: LogName, log: Log) -> Log:
        if name.partition != victim.partition_name or not where(name):
            return log
        return {offset: record for offset, record in log.items() if record.key != victim.key}

    return edit_logs(history.events, edit)


@violation("delivery offsets promise", anomaly="lost-write")
def drop_record(history: StoredHistory, choice: random.Random) -> list[Event]:
    """An acknowledged record is in no read and on no disk."""
    victim = draw(choice, history.acked)
    return _without(history, victim, lambda _: True)


@violation("promise")
def confine_record(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is on the disks of one rack, two are required."""
    if history.wiped():
        raise NotApplicableError
    racks = {part.broker: event.rack for event, part in ev.DiskChunkDetails.each(history.events)}
    candidates = []
    for attempt in history.acked:
        placed = {
            racks[name.broker]
            for name, log in history.logs.items()
            if name.broker in racks
            and name.partition == attempt.partition_name
            and attempt.offset in log
            and log[attempt.offset].key == attempt.key
        }
        required = history.cluster.settings.possible(attempt.topic, attempt.sent_ns - SETTLE_NS, attempt.done_ns)
        if len(placed) > 1 and required and all(one.racks > 1 for one in required):
            candidates.append((attempt, sorted(map(str, placed))))
    victim, placed_racks = draw(choice, candidates)
    kept = choice.choice(placed_racks)
    return _without(history, victim, lambda name: name.broker is not None and racks.get(name.broker) != kept)


@violation("offsets", anomaly="poll-skip")
def lose_in_one_read(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is missing in an earlier read."""
    passes: dict[tuple[PartitionName, str], list[str]] = {}
    for name in history.logs:
        if name.isolation != DISK:
            passes.setdefault((name.partition, name.isolation), []).append(name.read_id)
    several = [(*key, ids[0]) for key, ids in passes.items() if len(ids) > 1]
    partition, isolation, read_id = draw(choice, several)
    name = LogName(read_id, partition, isolation)
    keys = [attempt for attempt in history.acked if any(one.key == attempt.key for one in history.logs[name].values())]
    victim = draw(choice, keys)
    return _without(history, victim, lambda other: other == name)


def _appended(history: StoredHistory, partition: PartitionName, record: StoredRecord) -> list[Event]:
    """Return the history with a record at the end of all final reads and disks of a partition."""
    final_ids = {
        read.name
        for isolation in (UNCOMMITTED, COMMITTED)
        for read in history.records.final(partition.topic, isolation)[0].values()
    }
    end = max(
        int(event.data["end"])
        for event, part in ev.ReadChunkDetails.each(history.events)
        if (part.topic, part.partition) == partition and part.isolation == UNCOMMITTED and part.read_id in final_ids
    )

    def edit(name: LogName, log: Log) -> Log:
        last = name.isolation == DISK or name.read_id in final_ids
        return {**log, end: record} if name.partition == partition and last else log

    return edit_logs(history.events, edit)


@violation("delivery", anomaly="duplicate")
def duplicate_record(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is in the log twice."""
    candidates = []
    for attempt in history.acked:
        run = history.records.runs.get((attempt.run or "", attempt.topic))
        if run is not None and (run.first_only or (run.idempotent and run.client != ev.CONFLUENT)):
            candidates.append(attempt)
    victim = draw(choice, candidates)
    return _appended(history, victim.partition_name, history.finals[victim.partition_name][victim.offset or 0])


@violation("delivery")
def add_unsent(history: StoredHistory, choice: random.Random) -> list[Event]:
    """The log has a record that was never sent."""
    victim = draw(choice, [attempt for attempt in history.acked if attempt.run is not None])
    key = key_of(victim.run, victim.topic, victim.partition, 10**6)
    like = history.finals[victim.partition_name][victim.offset]
    return _appended(history, victim.partition_name, replace(like, key=key))


@violation("offsets", anomaly="inconsistent-offsets")
def swap_in_reads(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Two records have exchanged offsets in all reads."""
    return _swapped(history, choice, lambda name: name.isolation != DISK)


@violation("offsets", anomaly="inconsistent-offsets")
def swap_on_disk(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Two records have exchanged offsets on one disk."""
    over_ns = max((fault.healed_ns or 1 << 62 for fault in history.cluster.faults), default=0)
    brokers = []
    for partition, observed in history.cluster.observations.items():
        disks = [name for name in history.logs if name.partition == partition and name.broker in observed[-1].isr]
        if len(disks) > 1 and observed[-1].since_ns > over_ns + LAG_NS:
            brokers += disks
    disk = draw(choice, brokers)
    return _swapped(history, choice, lambda name: name == disk, disk.partition)


def _swapped(
    history: StoredHistory,
    choice: random.Random,
    where: Callable[[LogName], bool],
    partition: PartitionName | None = None,
) -> list[Event]:
    by_partition: dict[PartitionName, list[Attempt]] = {}
    for attempt in history.acked:
        if attempt.partition_name is not None and partition in (None, attempt.partition_name):
            by_partition.setdefault(attempt.partition_name, []).append(attempt)
    one, two = choice.sample(draw(choice, [attempts for attempts in by_partition.values() if len(attempts) > 1]), 2)

    def edit(name: LogName, log: Log) -> Log:
        first, second = log.get(one.offset or 0), log.get(two.offset or 0)
        if name.partition != one.partition_name or not where(name) or first is None or second is None:
            return log
        return {**log, one.offset or 0: second, two.offset or 0: first}

    return edit_logs(history.events, edit)


def _altered(history: StoredHistory, victim: Attempt, **fields: Any) -> list[Event]:
    """Return the history with other fields of a record in all reads."""

    def edit(name: LogName, log: Log) -> Log:
        record = log.get(victim.offset or 0)
        if name.isolation == DISK or name.partition != victim.partition_name or record is None:
            return log
        return {**log, victim.offset or 0: replace(record, **fields)}

    return edit_logs(history.events, edit)


@violation("delivery")
def damage_value(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is read with another value."""
    victim = draw(choice, history.acked)
    return _altered(history, victim, damaged=True)


@violation("delivery")
def shorten_value(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is read with a shorter value."""
    candidates = [
        attempt
        for attempt in history.acked
        if attempt.partition_name is not None
        and (history.finals[attempt.partition_name][attempt.offset or 0].size or 0) > 0
        and (run := history.records.runs.get((attempt.run or "", attempt.topic))) is not None
        and run.record_bytes is not None
    ]
    victim = draw(choice, candidates)
    size = history.finals[victim.partition_name][victim.offset].size
    return _altered(history, victim, size=(size or 1) - 1)


# -- moves within the log ----------------------------------------------------------------------------------------------


def rearranged(history: StoredHistory, partition: PartitionName, order: Sequence[str | None]) -> list[Event]:
    """Return the history with the records of the final read in another order: in acknowledgements, reads and disks."""
    slots = sorted(history.finals[partition])
    offsets = dict(zip(order, slots, strict=True))

    def edit(name: LogName, log: Log) -> Log:
        if name.partition != partition:
            return log
        return {offsets.get(record.key, offset): record for offset, record in log.items()}

    return [_acked_at(event, partition, offsets) for event in edit_logs(history.events, edit)]


def _acked_at(event: Event, partition: PartitionName, offsets: Mapping[str | None, int]) -> Event:
    produced = ev.ProduceDetails.of(event)
    if produced is None or (produced.topic, produced.partition) != partition or produced.offset is None:
        return event
    offset = offsets.get(produced.key, produced.offset)
    return event if offset == produced.offset else changed(event, offset=offset)


@violation("realtime_order", anomaly="nonmonotonic-send, G0-realtime")
def rotate_record(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record is behind all later ones: in acknowledgements, reads and disks."""
    last_sent_ns: dict[PartitionName | None, int] = {}
    for attempt in history.acked:
        partition = attempt.partition_name
        last_sent_ns[partition] = max(attempt.sent_ns, last_sent_ns.get(partition, 0))
    candidates = [attempt for attempt in history.acked if attempt.done_ns < last_sent_ns[attempt.partition_name]]
    # Without idempotence the order of a producer's records is not promised, so no other checker judges it.
    plain = [attempt for attempt in candidates if not _idempotent(history, attempt)]
    victim = draw(choice, plain or candidates)
    log = history.finals[victim.partition_name]
    keys = [log[offset].key for offset in sorted(log)]
    return rearranged(history, victim.partition_name, [*(key for key in keys if key != victim.key), victim.key])


def _idempotent(history: StoredHistory, attempt: Attempt) -> bool:
    run = history.records.runs.get((attempt.run or "", attempt.topic))
    return run is not None and run.idempotent


@violation("realtime_order", anomaly="G0-realtime")
def rotate_transaction(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A transaction is behind one begun after its end, likewise."""
    members: dict[tuple[str, int, PartitionName], list[Attempt]] = {}
    for attempt in history.acked:
        if attempt.txn is not None and attempt.run is not None and attempt.partition_name is not None:
            members.setdefault((attempt.run, attempt.txn, attempt.partition_name), []).append(attempt)
    pairs = []
    for (run, txn, partition), attempts in members.items():
        end = history.records.transactions.get((run, txn))
        later = [
            other
            for (other_run, other_txn, place), others in members.items()
            if place == partition and (other_run, other_txn) != (run, txn) and end is not None and end.outcome == "ok"
            for other in others
            if other.sent_ns > end.ended_ns
        ]
        if later:
            pairs.append((partition, attempts, max(later, key=lambda other: other.offset or 0)))
    partition, attempts, last = draw(choice, pairs)
    log = history.finals[partition]
    moved = [attempt.key for attempt in sorted(attempts, key=lambda attempt: attempt.offset or 0)]
    order = [key for offset in sorted(log) if (key := log[offset].key) not in moved]
    order[order.index(last.key) + 1 : order.index(last.key) + 1] = moved
    return rearranged(history, partition, order)


# -- outcomes ----------------------------------------------------------------------------------------------------------


@violation("offsets", anomaly="inconsistent-offsets")
def share_offset(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Two records are acknowledged at one offset."""
    victim = draw(choice, history.acked)
    others = [
        other for other in history.acked if other.partition_name == victim.partition_name and other.key != victim.key
    ]
    other = draw(choice, others)
    return history.edit(is_result(victim), offset=other.offset)


def _rejected(history: StoredHistory) -> list[Attempt]:
    """Return the records definitely rejected due to too few replicas or racks, of partitions with a final read."""
    return [
        attempt
        for attempt in history.records.attempts
        if attempt.outcome == "fail"
        and attempt.exception in TOO_FEW
        and attempt.partition_name in history.finals
        and history.records.acks_all(attempt)
    ]


@violation("delivery offsets promise", anomaly="lost-write")
def acknowledge_rejection(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A rejection becomes an acknowledgement, of a record in no log."""
    victim = draw(choice, _rejected(history))
    end = max(history.finals[victim.partition_name], default=-1) + 1
    return history.edit(is_result(victim), outcome="ok", offset=end, exception=None, message=None, retriable=None)


@violation("progress")
def acknowledge_against_gate(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A rejected record is accepted in all logs, with an insufficient ISR."""
    return _accepted(history, draw(choice, [one for one in _rejected(history) if history.judged(one, enough=False)]))


@violation("spread")
def acknowledge_in_outage(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A rejected record is accepted in all logs, in a fault that leaves too few racks."""
    outages = rack_spread.outages(history.cluster.faults)
    judge = rack_spread.SpreadJudge(history.cluster, SETTLE_NS)
    candidates = []
    for attempt in _rejected(history):
        during = [outage for outage in outages if outage.has(attempt)]
        if during:
            problem, certain, _ = judge.problem(attempt, during)
            candidates += [attempt] if problem and certain else []
    return _accepted(history, draw(choice, candidates))


def _accepted(history: StoredHistory, victim: Attempt) -> list[Event]:
    """Return the history with a rejected record at the place in all logs where its leader would have appended it."""
    if victim.partition_name is None:
        raise NotApplicableError
    partition, log = victim.partition_name, history.finals[victim.partition_name]
    slots = sorted(log)
    before = [
        attempt.offset or 0
        for attempt in history.acked
        if attempt.partition_name == partition and attempt.done_ns <= victim.sent_ns
    ]
    place = slots.index(max(before)) + 1 if before else 0
    end = max((int(event.data["end"]) for event, part in ev.ReadChunkDetails.each(history.events)
               if (part.topic, part.partition) == partition), default=0)  # fmt: skip
    new_slots = [*slots, end]
    offsets = {log[slot].key: new_slots[at + (at >= place)] for at, slot in enumerate(slots)}
    own = new_slots[place]
    run = history.records.runs.get((victim.run or "", victim.topic))
    size = len(value_of(victim.key, run.record_bytes)) if run is not None and run.record_bytes is not None else None
    record = StoredRecord(victim.key, size)
    successor = log[slots[place]].key if place < len(slots) else None

    def edit(name: LogName, recorded: Log) -> Log:
        if name.partition != partition:
            return recorded
        moved = {offsets.get(one.key, offset): one for offset, one in recorded.items()}
        has_place = name.isolation == DISK or successor is None or any(one.key == successor for one in moved.values())
        return {**moved, own: record} if has_place else moved

    accepted = {"outcome": "ok", "offset": own, "exception": None, "message": None, "retriable": None}
    return [
        changed(event, **accepted) if is_result(victim)(event) else _acked_at(event, partition, offsets)
        for event in edit_logs(history.events, edit)
    ]


@violation("delivery progress", anomaly="G1a")
def reject_acknowledged(history: StoredHistory, choice: random.Random) -> list[Event]:
    """An acknowledgement becomes a rejection, with a sufficient ISR."""
    candidates = [one for one in history.acked if history.first_only(one) and history.judged(one, enough=True)]
    victim = draw(choice, candidates)
    return history.edit(is_result(victim), outcome="fail", offset=None, exception=NOT_ENOUGH_RACKS, retriable=True)


@violation("delivery phases", anomaly="G1a")
def reject_in_phase(history: StoredHistory, choice: random.Random) -> list[Event]:
    """An attempt of a phase of acknowledgements is rejected."""
    phases = [(event.mono_ns, phase) for event, phase in ev.PhaseDetails.each(history.events) if phase.expect == "ok"]
    spans = [
        (begin.topic, begin_ns, end_ns)
        for begin_ns, begin in phases
        for end_ns, end in phases
        if (begin.name, begin.topic, begin.edge, end.edge) == (end.name, end.topic, "begin", "end")
    ]
    candidates = [
        attempt
        for attempt in history.acked
        if history.first_only(attempt)
        and attempt.mode == "probe"
        and any(topic == attempt.topic and begin <= attempt.sent_ns <= end for topic, begin, end in spans)
    ]
    victim = draw(choice, candidates)
    return history.edit(is_result(victim), outcome="fail", offset=None, exception=NOT_ENOUGH_RACKS, retriable=True)


@violation("rejections")
def misname_cause(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A rejection for racks is reported as one for replicas."""
    patched = {run for run, client in client_names(history).items() if client == ev.PATCHED}
    candidates = [
        attempt
        for attempt in _rejected(history)
        if attempt.exception in TOO_FEW_RACKS and attempt.run in patched and history.judged(attempt, enough=False)
    ]
    victim = draw(choice, candidates)
    return history.edit(is_result(victim), exception=NOT_ENOUGH_REPLICAS)


# -- transactions ------------------------------------------------------------------------------------------------------


def _transactional(history: StoredHistory, outcome: str) -> list[Attempt]:
    """Return acknowledged records of transactions with an outcome."""
    return [
        attempt
        for attempt in history.acked
        if attempt.txn is not None
        and (end := history.records.transactions.get((attempt.run or "", attempt.txn))) is not None
        and end.outcome == outcome
    ]


@violation("transactions", anomaly="G1a")
def read_aborted(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A committed read has a record of an aborted transaction."""
    victim = draw(choice, _transactional(history, "fail"))
    partition, offset = victim.partition_name, victim.offset
    record = history.finals[partition][offset]

    def edit(name: LogName, log: Log) -> Log:
        return {**log, offset: record} if (name.partition, name.isolation) == (partition, COMMITTED) else log

    return edit_logs(history.events, edit)


@violation("transactions", anomaly="lost-write")
def read_in_part(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A committed read lacks a record of a committed transaction."""
    victim = draw(choice, _transactional(history, "ok"))
    return _without(history, victim, lambda name: name.isolation == COMMITTED)


@violation("transactions", anomaly="lost-write")
def report_commit(history: StoredHistory, choice: random.Random) -> list[Event]:
    """An aborted transaction is reported as committed."""
    victim = draw(choice, _transactional(history, "fail"))
    return history.edit(
        lambda event: event.op == "txn" and (event.data["run"], event.data["txn"]) == (victim.run, victim.txn),
        outcome="ok",
    )
