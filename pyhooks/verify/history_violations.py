"""Violations that can be planted in a recorded history: each contradicts what certain checkers claim.

A violation is a function from a history and a random generator to the changed events, or to None where the history has
nothing to which it applies. It changes all events that would differ in a run with this violation, and no others, as far
as the checkers in ``breaks`` are concerned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from pyhooks.checkers import rack_spread
from pyhooks.checkers.cluster_view import HEALED, HELD, ClusterView
from pyhooks.checkers.expected_gauges import COUNTS, Truth
from pyhooks.checkers.gauges import BEHIND_S, METER, QUICK_S
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import COMMITTED, UNCOMMITTED, Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import LAG_NS, NS, SETTLE_S
from pyhooks.checkers.transaction_recovery import BOUND_S
from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS, TOO_FEW, TOO_FEW_RACKS
from pyhooks.history.record_format import key_of, value_of
from pyhooks.verify.stored_logs import DISK, Log, LogName, StoredRecord, edit_logs, stored_logs

Plant = Callable[["StoredHistory", random.Random], "list[Event] | None"]
NOT_ENOUGH_RACKS = f"{ERRORS}.NotEnoughRacksException"
NOT_ENOUGH_REPLICAS = f"{ERRORS}.NotEnoughReplicasException"
RACK_COUNTS = tuple(name for name in COUNTS.values() if "Rack" in name)
SETTLE_NS = round(SETTLE_S * NS)
# How far a change of the ISR is moved: longer than a change may take to take effect, so that attempts contradict it.
MOVED_NS = 15 * NS


@dataclass(frozen=True)
class Violation:
    """A violation, by name."""

    name: str
    about: str  # what it changes, for output
    # checkers whose claim it contradicts: where they judge the history, none of them may return true
    breaks: frozenset[str]
    plant: Plant
    anomaly: str = ""  # Jepsen's name of the anomaly, if it has one


class StoredHistory:
    """A recorded history, with what violations need of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = tuple(events)
        self.records = Records(self.events)
        self.cluster = ClusterView.of(self.events)
        self.logs = stored_logs(self.events)

    @cached_property
    def attempts(self) -> dict[tuple[str, str], Attempt]:
        """Attempts by topic and key."""
        return {(attempt.topic, attempt.key): attempt for attempt in self.records.attempts}

    @cached_property
    def finals(self) -> dict[PartitionName, Log]:
        """The final read_uncommitted read of each partition that was read completely."""
        found: dict[PartitionName, Log] = {}
        for topic in sorted({attempt.topic for attempt in self.records.attempts}):
            reads, gaps = self.records.final(topic, UNCOMMITTED)
            for read in () if gaps else reads.values():
                found[read.partition] = self.logs[LogName(read.name, read.partition, UNCOMMITTED)]
        return found

    @cached_property
    def acked(self) -> list[Attempt]:
        """Records acknowledged by all in-sync replicas that the final read has once, at the acknowledged offset."""
        return [
            attempt
            for attempt in self.records.attempts
            if attempt.outcome == "ok"
            and self.records.acks_all(attempt)
            and (partition := attempt.partition_name) in self.finals
            and attempt.offset is not None
            and (record := self.finals[partition].get(attempt.offset)) is not None
            and record.key == attempt.key
            and self.count[partition, attempt.key] == 1
        ]

    @cached_property
    def count(self) -> dict[tuple[PartitionName, str | None], int]:
        """How often the final read has a key."""
        found: dict[tuple[PartitionName, str | None], int] = {}
        for partition, log in self.finals.items():
            for record in log.values():
                found[partition, record.key] = found.get((partition, record.key), 0) + 1
        return found

    @cached_property
    def windows(self) -> dict[PartitionName, list[SettledWindow]]:
        """Settled intervals of each partition."""
        return {partition: list(windows(partition, self.cluster, SETTLE_NS)) for partition in self.cluster.observations}

    def judged(self, attempt: Attempt, *, enough: bool) -> bool:
        """Return whether the checker ``progress`` judges an attempt in an interval with a (in)sufficient ISR."""
        partition = attempt.partition_name
        return partition is not None and any(
            window.enough is enough and window.judges(attempt) and not window.ahead.excuse(attempt)
            for window in self.windows.get(partition, ())
        )

    def first_only(self, attempt: Attempt) -> bool:
        """Return whether the attempt's client sends each record once."""
        run = self.records.runs.get((attempt.run or "", attempt.topic))
        return run is not None and run.first_only

    def wiped(self) -> bool:
        """Return whether a fault destroyed disks."""
        return any(fault.op.startswith("wipe") for fault in self.cluster.faults)

    def edit(self, where: Callable[[Event], bool], *, outcome: Any = ..., **data: Any) -> list[Event]:
        """Return the events with other data in the matching ones; a field set to None is removed."""
        return [changed(event, outcome=outcome, **data) if where(event) else event for event in self.events]


def changed(event: Event, *, outcome: Any = ..., **data: Any) -> Event:
    """Return an event with other data, and perhaps another outcome; a field set to None is removed."""
    fields = {name: value for name, value in {**event.data, **data}.items() if value is not None}
    return replace(event, outcome=event.outcome if outcome is ... else outcome, data=fields)


def is_result(attempt: Attempt) -> Callable[[Event], bool]:
    """Return a predicate of the event that has an attempt's result."""
    return lambda event: (
        event.op == ev.PRODUCE and event.data["key"] == attempt.key and event.data["topic"] == attempt.topic
    )


def draw(choice: random.Random, candidates: Sequence[Any]) -> Any:
    """Return a random candidate, or None if there is none."""
    return choice.choice(candidates) if candidates else None


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


def rotate_record(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Move an acknowledged record behind all later ones, everywhere."""
    candidates = [
        attempt
        for attempt in history.acked
        if any(
            other.partition_name == attempt.partition_name and other.sent_ns > attempt.done_ns
            for other in history.acked[-1:] + _last_of(history, attempt)
        )
    ]
    # Without idempotence the order of a producer's records is not promised, so no other checker judges it.
    plain = [attempt for attempt in candidates if not _idempotent(history, attempt)]
    victim = draw(choice, plain or candidates)
    if victim is None:
        return None
    log = history.finals[victim.partition_name]
    keys = [log[offset].key for offset in sorted(log)]
    return rearranged(history, victim.partition_name, [*(key for key in keys if key != victim.key), victim.key])


def _last_of(history: StoredHistory, attempt: Attempt) -> list[Attempt]:
    """Return the acknowledged record of an attempt's partition that was sent last."""
    mine = [other for other in history.acked if other.partition_name == attempt.partition_name]
    return [max(mine, key=lambda other: other.sent_ns)]


def _idempotent(history: StoredHistory, attempt: Attempt) -> bool:
    run = history.records.runs.get((attempt.run or "", attempt.topic))
    return run is not None and run.idempotent


def rotate_transaction(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Move the records of a committed transaction behind those of one that was begun after its end."""
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
    found = draw(choice, pairs)
    if found is None:
        return None
    partition, attempts, last = found
    log = history.finals[partition]
    moved = [attempt.key for attempt in sorted(attempts, key=lambda attempt: attempt.offset or 0)]
    order = [key for offset in sorted(log) if (key := log[offset].key) not in moved]
    order[order.index(last.key) + 1 : order.index(last.key) + 1] = moved
    return rearranged(history, partition, order)


# -- lost, doubled and foreign records ---------------------------------------------------------------------------------


def _without(history: StoredHistory, victim: Attempt, where: Callable[[LogName], bool]) -> list[Event]:
    """Return the history without a record in the matching logs."""

    def edit(name: LogName, log: Log) -> Log:
        if name.partition != victim.partition_name or not where(name):
            return log
        return {offset: record for offset, record in log.items() if record.key != victim.key}

    return edit_logs(history.events, edit)


def drop_record(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Remove an acknowledged record from all reads and disks."""
    victim = draw(choice, history.acked)
    return None if victim is None else _without(history, victim, lambda _: True)


def confine_record(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Remove a record from all disks outside one rack, though two racks were required."""
    if history.wiped():
        return None
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
    found = draw(choice, candidates)
    if found is None:
        return None
    victim, placed_racks = found
    kept = choice.choice(placed_racks)
    return _without(history, victim, lambda name: name.broker is not None and racks.get(name.broker) != kept)


def lose_in_one_read(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Remove a record from an earlier one of two reads of one isolation."""
    passes: dict[tuple[PartitionName, str], list[str]] = {}
    for name in history.logs:
        if name.isolation != DISK:
            passes.setdefault((name.partition, name.isolation), []).append(name.read_id)
    several = [(*key, ids[0]) for key, ids in passes.items() if len(ids) > 1]
    found = draw(choice, several)
    if found is None:
        return None
    partition, isolation, read_id = found
    name = LogName(read_id, partition, isolation)
    keys = [attempt for attempt in history.acked if any(one.key == attempt.key for one in history.logs[name].values())]
    victim = draw(choice, keys)
    return None if victim is None else _without(history, victim, lambda other: other == name)


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


def duplicate_record(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Append a second copy of a record whose client must not write it twice."""
    candidates = []
    for attempt in history.acked:
        run = history.records.runs.get((attempt.run or "", attempt.topic))
        if run is not None and (run.first_only or (run.idempotent and run.client != ev.CONFLUENT)):
            candidates.append(attempt)
    victim = draw(choice, candidates)
    if victim is None or victim.partition_name is None:
        return None
    return _appended(history, victim.partition_name, history.finals[victim.partition_name][victim.offset or 0])


def add_unsent(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Append a record that its producer never announced."""
    victim = draw(choice, [attempt for attempt in history.acked if attempt.run is not None])
    if victim is None or victim.partition_name is None:
        return None
    key = key_of(victim.run, victim.topic, victim.partition, 10**6)
    like = history.finals[victim.partition_name][victim.offset]
    return _appended(history, victim.partition_name, replace(like, key=key))


def swap_in_reads(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Exchange two acknowledged records in all reads."""
    return _swapped(history, choice, lambda name: name.isolation != DISK)


def swap_on_disk(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Exchange two records on the disk of one broker that was in sync at the end."""
    over_ns = max((fault.healed_ns or 1 << 62 for fault in history.cluster.faults), default=0)
    brokers = []
    for partition, observed in history.cluster.observations.items():
        disks = [name for name in history.logs if name.partition == partition and name.broker in observed[-1].isr]
        if len(disks) > 1 and observed[-1].since_ns > over_ns + LAG_NS:
            brokers += disks
    disk = draw(choice, brokers)
    return None if disk is None else _swapped(history, choice, lambda name: name == disk, disk.partition)


def _swapped(
    history: StoredHistory,
    choice: random.Random,
    where: Callable[[LogName], bool],
    partition: PartitionName | None = None,
) -> list[Event] | None:
    by_partition: dict[PartitionName, list[Attempt]] = {}
    for attempt in history.acked:
        if attempt.partition_name is not None and partition in (None, attempt.partition_name):
            by_partition.setdefault(attempt.partition_name, []).append(attempt)
    several = [attempts for attempts in by_partition.values() if len(attempts) > 1]
    if not several:
        return None
    one, two = choice.sample(choice.choice(several), 2)

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


def damage_value(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Mark a record as read with another value than was written."""
    victim = draw(choice, history.acked)
    return None if victim is None else _altered(history, victim, damaged=True)


def shorten_value(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a record be read with a value that lacks its last byte."""
    candidates = [
        attempt
        for attempt in history.acked
        if attempt.partition_name is not None
        and (history.finals[attempt.partition_name][attempt.offset or 0].size or 0) > 0
        and (run := history.records.runs.get((attempt.run or "", attempt.topic))) is not None
        and run.record_bytes is not None
    ]
    victim = draw(choice, candidates)
    if victim is None:
        return None
    size = history.finals[victim.partition_name][victim.offset].size
    return _altered(history, victim, size=(size or 1) - 1)


# -- outcomes ----------------------------------------------------------------------------------------------------------


def share_offset(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Acknowledge a record at the offset of another one."""
    victim = draw(choice, history.acked)
    others = [
        other
        for other in history.acked
        if victim is not None and other.partition_name == victim.partition_name and other.key != victim.key
    ]
    other = draw(choice, others)
    return None if other is None else history.edit(is_result(victim), offset=other.offset)


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


def acknowledge_rejection(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Turn a rejection into an acknowledgement of a record that is in no log."""
    victim = draw(choice, _rejected(history))
    if victim is None:
        return None
    end = max(history.finals[victim.partition_name], default=-1) + 1
    return history.edit(is_result(victim), outcome="ok", offset=end, exception=None, message=None, retriable=None)


def acknowledge_against_gate(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Accept a rejected record after all, in all logs, while the ISR was observed to be insufficient."""
    return _accepted(history, draw(choice, [one for one in _rejected(history) if history.judged(one, enough=False)]))


def acknowledge_in_outage(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Accept a rejected record after all, in all logs, while a fault left too few racks to have it."""
    outages = rack_spread.outages(history.cluster.faults)
    judge = rack_spread.SpreadJudge(history.cluster, SETTLE_NS)
    candidates = []
    for attempt in _rejected(history):
        during = [outage for outage in outages if outage.has(attempt)]
        if during:
            problem, certain, _ = judge.problem(attempt, during)
            candidates += [attempt] if problem and certain else []
    return _accepted(history, draw(choice, candidates))


def _accepted(history: StoredHistory, victim: Attempt | None) -> list[Event] | None:
    """Return the history with a rejected record at the place in all logs where its leader would have appended it."""
    if victim is None or victim.partition_name is None:
        return None
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


def reject_acknowledged(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Turn an acknowledgement into a rejection due to too few racks, while the ISR was sufficient."""
    candidates = [one for one in history.acked if history.first_only(one) and history.judged(one, enough=True)]
    victim = draw(choice, candidates)
    if victim is None:
        return None
    return history.edit(is_result(victim), outcome="fail", offset=None, exception=NOT_ENOUGH_RACKS, retriable=True)


def reject_in_phase(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Reject an attempt of a phase in which all are to be acknowledged."""
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
    if victim is None:
        return None
    return history.edit(is_result(victim), outcome="fail", offset=None, exception=NOT_ENOUGH_RACKS, retriable=True)


def misname_cause(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Reject a record for missing replicas, though only racks were missing."""
    patched = {run for run, client in _clients(history).items() if client == ev.PATCHED}
    candidates = [
        attempt
        for attempt in _rejected(history)
        if attempt.exception in TOO_FEW_RACKS and attempt.run in patched and history.judged(attempt, enough=False)
    ]
    victim = draw(choice, candidates)
    return None if victim is None else history.edit(is_result(victim), exception=NOT_ENOUGH_REPLICAS)


def _clients(history: StoredHistory) -> dict[str, str | None]:
    return {intend.run: intend.client for _, intend in ev.IntendDetails.each(history.events) if intend.run is not None}


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


def read_aborted(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let the final read_committed read return a record of an aborted transaction."""
    victim = draw(choice, _transactional(history, "fail"))
    if victim is None or victim.partition_name is None:
        return None
    partition, offset = victim.partition_name, victim.offset
    record = history.finals[partition][offset]

    def edit(name: LogName, log: Log) -> Log:
        return {**log, offset: record} if (name.partition, name.isolation) == (partition, COMMITTED) else log

    return edit_logs(history.events, edit)


def read_in_part(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Hide one record of a committed transaction from read_committed reads."""
    victim = draw(choice, _transactional(history, "ok"))
    return None if victim is None else _without(history, victim, lambda name: name.isolation == COMMITTED)


def report_commit(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Report an aborted transaction with acknowledged records as committed."""
    victim = draw(choice, _transactional(history, "fail"))
    if victim is None:
        return None
    return history.edit(
        lambda event: event.op == "txn" and (event.data["run"], event.data["txn"]) == (victim.run, victim.txn),
        outcome="ok",
    )


# -- polls of consumers ------------------------------------------------------------------------------------------------


def _edit_one(history: StoredHistory, victim: Event | None, **data: Any) -> list[Event] | None:
    """Return the history with other data in one event; None without a victim."""
    return None if victim is None else history.edit(lambda event: event is victim, **data)


def read_ahead_of_commit(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a leader return a last stable offset below the position of a reader of committed records."""
    victim = draw(choice, [event for event, follow in ev.LeaderOffsetsDetails.each(history.events) if follow.position])
    return _edit_one(history, victim, stable=victim.data["position"] - 1 if victim else 0)


def read_ahead_of_watermark(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a leader return a high watermark below the offset that a reader has read up to."""
    found = [
        (event, partition, after)
        for event, visible in ev.VisibleDetails.each(history.events)
        for partition, after in visible.next.items()
        if after and visible.high.get(partition) is not None
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, after = victim
    return _edit_one(history, event, high={**event.data["high"], partition: after - 1})


def skip_in_polls(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a consumer receive one record less than it passed."""
    followed = [event for event, follow in ev.FollowDetails.each(history.events) if follow.records]
    if followed:
        victim = choice.choice(followed)
        return _edit_one(history, victim, records=victim.data["records"] - 1)
    arrived = [event for event, arrivals in ev.ArrivalsDetails.each(history.events) if len(arrivals.keys) > 2]
    if not arrived:
        return None
    victim = choice.choice(arrived)
    place = choice.randrange(1, len(victim.data["keys"]) - 1)
    fields = {name: [one for at, one in enumerate(victim.data[name]) if at != place] for name in ("keys", "ago_ms")}
    return _edit_one(history, victim, **fields)


def repeat_poll(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a group member receive the record before its position once more."""
    positions: dict[tuple[str, str, str], int] = {}
    found = []
    for event, member in ev.MemberDetails.each(history.events):
        if change := ev.AssignmentDetails.of(event):
            for key in [key for key in positions if key[:2] == (change.run, change.group)]:
                if key[2] not in change.now or key[2] in change.partitions:
                    del positions[key]
        elif fetch := ev.FetchDetails.of(event):
            for partition, after in fetch.next.items():
                key = (member.run, member.group, partition)
                if positions.get(key, 0) > 0 and partition in fetch.first:
                    found.append((event, partition, positions[key] - 1))
                positions[key] = after
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, first = victim
    return _edit_one(history, event, first={**event.data["first"], partition: first})


def go_back_in_polls(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a reader report a position below its previous one."""
    before: dict[tuple[str, str, int], int] = {}
    found: list[tuple[Event, dict[str, Any]]] = []
    for event, follow in ev.FollowDetails.each(history.events):
        name = (follow.run, follow.topic, follow.partition)
        if before.get(name, 0) > 0:
            found.append((event, {"position": before[name] - 1}))
        before[name] = follow.position
    rounds: dict[tuple[str, str], int] = {}
    for event, visible in ev.VisibleDetails.each(history.events):
        for partition, after in visible.next.items():
            if rounds.get((visible.run, partition), 0) > 0:
                position = rounds[visible.run, partition] - 1
                found.append((event, {"next": {**event.data["next"], partition: position}}))
            rounds[visible.run, partition] = after
    victim = draw(choice, found)
    return None if victim is None else _edit_one(history, victim[0], **victim[1])


def show_hidden(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a reader read a record with acks=1 while the ISR is insufficient."""
    found = []
    for attempt in history.records.attempts:
        partition = attempt.partition_name
        if attempt.outcome != "ok" or attempt.offset is None or history.records.acks_all(attempt) or partition is None:
            continue
        for window in history.windows.get(partition, ()):
            to_ns = min(window.to_ns, window.ahead.from_ns)
            if window.enough or not window.from_ns <= attempt.sent_ns <= attempt.done_ns <= to_ns:
                continue
            found += [
                (event, str(partition), attempt.offset + 1)
                for event, visible in ev.VisibleDetails.each(history.events)
                if attempt.done_ns <= visible.asked_ns and event.mono_ns <= to_ns and str(partition) in visible.next
            ]
        if len(found) > 1000:
            break
    victim = draw(choice, found)
    if victim is None:
        return None
    event, name, after = victim
    fields = {"next": {**event.data["next"], name: after}, "high": {**event.data["high"], name: after}}
    return _edit_one(history, event, **fields)


# -- groups and copiers ------------------------------------------------------------------------------------------------


def lose_commit(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a coordinator return less than a member had committed."""
    found = [
        (event, partition, offset)
        for event, committed in ev.CommittedOffsetsDetails.each(history.events)
        for partition, offset in committed.offsets.items()
        if offset > 0
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, offset = victim
    return _edit_one(history, event, offsets={**event.data["offsets"], partition: offset - 1})


def copy_twice(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a copier take a record that an earlier transaction took."""
    ends = history.records.transactions
    copies = [
        (event, copy)
        for event, copy in ev.CopyDetails.each(history.events)
        if (end := ends.get((copy.run, copy.txn))) is not None and end.outcome == "ok"
    ]
    found = [
        (event, partition, first, after)
        for event, copy in copies[1:]
        for partition, (first, after) in copy.taken.items()
        if first > 0
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, first, after = victim
    return _edit_one(history, event, taken={**event.data["taken"], partition: [first - 1, after]})


# -- cluster -----------------------------------------------------------------------------------------------------------


def move_isr_change(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Move a change of the ISR so that records were acknowledged with an insufficient one: earlier, or later."""
    found = []
    for partition, known in history.windows.items():
        for before, after in pairwise(known):
            if before.enough is after.enough:
                continue
            # The insufficient state is extended over acknowledgements of the sufficient one.
            if before.enough:
                from_ns, to_ns = after.observation.at_ns - MOVED_NS, after.observation.at_ns
            else:
                from_ns, to_ns = before.to_ns, after.observation.at_ns + MOVED_NS
            if any(
                attempt.partition_name == partition
                and from_ns + 2 * SETTLE_NS < attempt.sent_ns
                and attempt.done_ns < to_ns - 2 * SETTLE_NS
                for attempt in history.acked
                if history.judged(attempt, enough=True)
            ):
                state = (after if before.enough else before).observation
                found.append((partition, from_ns, to_ns, list(state.isr)))
    victim = draw(choice, found)
    if victim is None:
        return None
    partition, from_ns, to_ns, isr = victim
    return [
        _with_isr(event, str(partition), isr) if from_ns <= event.mono_ns <= to_ns else event
        for event in history.events
    ]


def stay_out_of_sync(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Keep a replica out of the ISR for all observations after the last heal."""
    heals = [fault.heal_ns for fault in history.cluster.faults if fault.heal_ns is not None]
    found = [
        (str(partition), broker)
        for partition, observed in history.cluster.observations.items()
        for broker in observed[-1].isr
        if heals and observed[-1].at_ns > max(heals) + 70 * NS and broker != observed[-1].leader
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    name, broker = victim
    return [
        _with_isr(event, name, [one for one in event.data["partitions"][name]["isr"] if one != broker])
        if event.mono_ns > max(heals) and ev.ObservationDetails.of(event) and name in event.data["partitions"]
        else event
        for event in history.events
    ]


def _with_isr(event: Event, partition: str, isr: Sequence[int]) -> Event:
    if ev.ObservationDetails.of(event) is None or partition not in event.data["partitions"]:
        return event
    state = {**event.data["partitions"][partition], "isr": list(isr)}
    return changed(event, partitions={**event.data["partitions"], partition: state})


def report_other_racks(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a broker report another R than was set."""
    requested = {
        settings.topic
        for _, settings in ev.SettingsDetails.each(history.events)
        if settings.step in ("made", "settled")
    }
    seen = [
        event
        for event, settings in ev.SettingsDetails.each(history.events)
        if settings.step == "seen" and settings.topic in requested
    ]
    # Long after any change, and under no fault: then a broker that has not yet learned of a value is no excuse.
    quiet = [
        event
        for event in seen
        if not any(
            fault.inject_ns <= event.mono_ns and (fault.healed_ns is None or event.mono_ns <= fault.healed_ns + 5 * NS)
            for fault in history.cluster.faults
        )
        and len(history.cluster.settings.possible(event.data["topic"], event.mono_ns - 5 * NS, event.mono_ns)) == 1
    ]
    victim = draw(choice, quiet[1:])
    return _edit_one(history, victim, **{"min.insync.racks": victim.data["min.insync.racks"] + 1} if victim else {})


def fail_fault_probe(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a probe contradict that a fault held, or was healed."""
    steps = [event for event, fault in ev.FaultDetails.each(history.events) if fault.step in (HELD, HEALED)]
    victim = draw(choice, steps)
    return None if victim is None else history.edit(lambda event: event is victim, outcome="fail")


def crash_node(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a node that the test did not end be down at the end."""
    states = [event for event, state in ev.NodeStateDetails.each(history.events) if state.state == "up"]
    victim = draw(choice, states)
    return _edit_one(history, victim, state="down")


def log_fault(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a node log a fatal error."""
    logs = [event for event, _ in ev.LoggedFaultsDetails.each(history.events)]
    victim = draw(choice, logs)
    return _edit_one(history, victim, found=["[2026-01-01 00:00:00,000] FATAL [broker] planted (kafka.Kafka$)"])


def log_twice(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a leader log twice that it begins to reject writes."""
    found = [
        (event, place)
        for event, lines in ev.LogLinesDetails.each(history.events)
        for place, entry in enumerate(lines.entries)
        if "Rejecting writes with acks=all" in entry[3]
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, place = victim
    entries = list(event.data["entries"])
    again = [entries[place][0] + 1, *entries[place][1:]]
    entries.insert(place + 1, again)
    ends = history.edit(lambda one: one is event, entries=entries)
    return [
        changed(one, entries=one.data["entries"] + 1)
        if one.op == "log-end" and one.data["node"] == event.data["node"] and "entries" in one.data
        else one
        for one in ends
    ]


# -- clients, features and metrics -------------------------------------------------------------------------------------


def show_cause_to_default(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a producer with default settings report a rejection instead of a timeout."""
    failed = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.defaults and event.outcome != "ok"
    ]
    return _edit_one(history, draw(choice, failed), exception=NOT_ENOUGH_REPLICAS)


def report_unknown_error(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a client report an error that it does not know."""
    clients = _clients(history)
    known = {details.client for _, details in ev.KnownErrorsDetails.each(history.events)}
    failed = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.exception is not None and clients.get(produced.run or "") in known
    ]
    return _edit_one(history, draw(choice, failed), exception="org.apache.kafka.common.errors.UnknownServerException")


def give_up_in_outage(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a client that was to ride out an outage give up a record."""
    riding = {name for _, ride in ev.RideDetails.each(history.events) for name in ride.clients}
    runs = {
        intend.run
        for _, intend in ev.IntendDetails.each(history.events)
        if intend.client in riding and intend.idempotent
    }
    acked = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.run in runs and event.outcome == "ok"
    ]
    victim = draw(choice, acked)
    if victim is None:
        return None
    timeout = f"{ERRORS}.TimeoutException"
    return history.edit(lambda event: event is victim, outcome="unknown", offset=None, exception=timeout)


def change_level(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a request for a feature level have another result."""
    victim = draw(choice, [event for event, _ in ev.LevelDetails.each(history.events)])
    if victim is None:
        return None
    data = victim.data
    return _edit_one(history, victim, after=data["before"] if data["after"] == data["to"] else data["to"])


def change_version(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a client use another version of a request with patched brokers."""
    reports = [
        event for event, one in ev.VersionsDetails.each(history.events) if not one.baseline and len(one.versions)
    ]
    victim = draw(choice, reports)
    if victim is None:
        return None
    request = choice.choice(sorted(victim.data["versions"]))
    return _edit_one(history, victim, versions={**victim.data["versions"], request: "99"})


def miss_warning(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a controller log nothing of partitions in too few racks."""
    warned = [event for event, warnings in ev.WarningsDetails.each(history.events) if any(warnings.counts.values())]
    if not warned:
        return None
    victim = warned[-1]
    controller = choice.choice(sorted(name for name, counts in victim.data["counts"].items() if counts))
    return _edit_one(history, victim, counts={**victim.data["counts"], controller: []})


def change_gauge(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a broker report ten more partitions in too few racks than there are."""
    truth = Truth(history.events)
    found = [
        (event, name)
        for event, metrics in ev.MetricsDetails.each(history.events)
        # polls that the checker judges
        if metrics.took_ms < QUICK_S * 1000
        and truth.from_ns is not None
        and truth.from_ns + BEHIND_S * NS <= event.mono_ns <= truth.to_ns - NS
        for name, value in metrics.values.items()
        if name in RACK_COUNTS and value is not None
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, name = victim
    return _edit_one(history, event, values={**event.data["values"], name: event.data["values"][name] + 10})


def count_rejections(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a broker count more rejections than its clients received."""
    metered = [
        event for event, metrics in ev.MetricsDetails.each(history.events) if metrics.values.get(METER) is not None
    ]
    brokers = sorted({event.data["broker"] for event in metered})
    if not brokers:
        return None
    last = [event for event in metered if event.data["broker"] == choice.choice(brokers)][-1]
    return _edit_one(history, last, values={**last.data["values"], METER: last.data["values"][METER] + 10**6})


def slow_commits(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let the commits of a group take a second longer because more racks are required."""
    pairs = [pair for _, alike in ev.AlikeDetails.each(history.events) for pair in alike.pairs]
    pair = draw(choice, pairs)
    if pair is None:
        return None
    return [
        changed(event, begun_ns=commit.begun_ns - NS)
        if (commit := ev.CommitDetails.of(event)) is not None and commit.group == pair[0]
        else event
        for event in history.events
    ]


def keep_hidden(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Hide the waiting records of an idle topic although R was lowered."""
    found = []
    for event, idle in ev.IdleDetails.each(history.events):
        rounds = [one for one, _ in ev.VisibleDetails.each(history.events)]
        names = sorted({name for one in rounds for name in one.data["next"] if name.rpartition("-")[0] == idle.topic})
        before = [one for one in rounds if one.mono_ns <= event.mono_ns and one.data["high"].keys() >= set(names)]
        if names and before:
            found.append((event.mono_ns, names, before[-1].data))
    victim = draw(choice, found)
    if victim is None:
        return None
    since_ns, names, frozen = victim
    return [
        changed(
            event,
            **{
                field: {
                    name: frozen[field][name] if name in names else value for name, value in event.data[field].items()
                }
                for field in ("next", "high")
            },
        )
        if event.mono_ns > since_ns and ev.VisibleDetails.describes(event)
        else event
        for event in history.events
    ]


def stick_reader(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Keep a reader of committed records at its position of the last heal."""
    heal_ns = max((fault.heal_ns or 0 for fault in history.cluster.faults), default=0)
    followed = list(ev.FollowDetails.each(history.events))
    last_ns = max((event.mono_ns for event, _ in followed), default=0)
    names = sorted({(follow.run, follow.topic, follow.partition) for _, follow in followed})
    if not heal_ns or not names or last_ns <= heal_ns + (BOUND_S + 5) * NS:
        return None
    name = choice.choice(names)
    mine = {id(event): follow for event, follow in followed if (follow.run, follow.topic, follow.partition) == name}
    position = max(
        (one.position for event, one in followed if id(event) in mine and event.mono_ns <= heal_ns), default=0
    )
    return [
        changed(event, position=min(position, mine[id(event)].position)) if id(event) in mine else event
        for event in history.events
    ]


VIOLATIONS: tuple[Violation, ...] = tuple(
    Violation(name, about, frozenset(breaks.split()), plant, anomaly)
    for name, about, breaks, plant, anomaly in (
        ("drop-record", "an acknowledged record is in no read and on no disk", "delivery offsets promise", drop_record,
         "lost-write"),
        ("confine-record", "a record is on the disks of one rack, two are required", "promise", confine_record, ""),
        ("lose-in-one-read", "a record is missing in an earlier read", "offsets", lose_in_one_read, "poll-skip"),
        ("duplicate-record", "a record is in the log twice", "delivery", duplicate_record, "duplicate"),
        ("add-unsent", "the log has a record that was never sent", "delivery", add_unsent, ""),
        ("swap-in-reads", "two records have exchanged offsets in all reads", "offsets", swap_in_reads,
         "inconsistent-offsets"),
        ("swap-on-disk", "two records have exchanged offsets on one disk", "offsets", swap_on_disk,
         "inconsistent-offsets"),
        ("damage-value", "a record is read with another value", "delivery", damage_value, ""),
        ("shorten-value", "a record is read with a shorter value", "delivery", shorten_value, ""),
        ("rotate-record", "a record is behind all later ones: in acknowledgements, reads and disks", "realtime_order",
         rotate_record, "nonmonotonic-send, G0-realtime"),
        ("rotate-transaction", "a transaction is behind one begun after its end, likewise", "realtime_order",
         rotate_transaction, "G0-realtime"),
        ("share-offset", "two records are acknowledged at one offset", "offsets", share_offset, "inconsistent-offsets"),
        ("acknowledge-rejection", "a rejection becomes an acknowledgement, of a record in no log",
         "delivery offsets promise", acknowledge_rejection, "lost-write"),
        ("acknowledge-against-gate", "a rejected record is accepted in all logs, with an insufficient ISR", "progress",
         acknowledge_against_gate, ""),
        ("acknowledge-in-outage", "a rejected record is accepted in all logs, in a fault that leaves too few racks",
         "spread", acknowledge_in_outage, ""),
        ("reject-acknowledged", "an acknowledgement becomes a rejection, with a sufficient ISR", "delivery progress",
         reject_acknowledged, "G1a"),
        ("reject-in-phase", "an attempt of a phase of acknowledgements is rejected", "delivery phases",
         reject_in_phase, "G1a"),
        ("misname-cause", "a rejection for racks is reported as one for replicas", "refusals", misname_cause, ""),
        ("read-aborted", "a committed read has a record of an aborted transaction", "transactions", read_aborted,
         "G1a"),
        ("read-in-part", "a committed read lacks a record of a committed transaction", "transactions", read_in_part,
         "lost-write"),
        ("report-commit", "an aborted transaction is reported as committed", "transactions", report_commit,
         "lost-write"),
        ("read-ahead-of-commit", "a committed read is beyond the last stable offset", "polls", read_ahead_of_commit,
         "precommitted-read"),
        ("read-ahead-of-watermark", "a reader is beyond the high watermark", "polls", read_ahead_of_watermark,
         "precommitted-read"),
        ("skip-in-polls", "a consumer skips a record", "polls", skip_in_polls, "poll-skip"),
        ("repeat-poll", "a group member receives a record twice", "polls", repeat_poll, "nonmonotonic-poll"),
        ("go-back-in-polls", "a reader's position goes back", "polls", go_back_in_polls, "nonmonotonic-poll"),
        ("show-hidden", "a record with acks=1 is readable with an insufficient ISR", "visibility", show_hidden, ""),
        ("lose-commit", "a coordinator has a lower offset than was committed", "groups", lose_commit, ""),
        ("copy-twice", "a copier takes a record twice", "copied", copy_twice,
         "int-nonmonotonic-poll"),
        ("move-isr-change", "an ISR shrinks earlier or grows later than acknowledgements allow", "progress",
         move_isr_change, ""),
        ("stay-out-of-sync", "a replica never returns to the ISR", "recovery", stay_out_of_sync, ""),
        ("report-other-racks", "a broker reports another R than was set", "progress promise", report_other_racks, ""),
        ("fail-fault-probe", "a probe contradicts that a fault held or was healed", "faults", fail_fault_probe, ""),
        ("crash-node", "a node is down that nobody ended", "crashes", crash_node, ""),
        ("log-fault", "a node logs a fatal error", "crashes", log_fault, ""),
        ("log-twice", "a leader logs the beginning of a shortage twice", "flood", log_twice, ""),
        ("show-cause-to-default", "a default producer reports the cause of a rejection", "defaults",
         show_cause_to_default, ""),
        ("report-unknown-error", "a client reports an error that it does not know", "known", report_unknown_error, ""),
        ("give-up-in-outage", "a client that retries gives up a record", "rides", give_up_in_outage, ""),
        ("change-level", "a request for a feature level has another result", "levels", change_level, ""),
        ("change-version", "a client uses another version of a request", "versions", change_version, ""),
        ("miss-warning", "a controller does not log partitions in too few racks", "warned", miss_warning, ""),
        ("change-gauge", "a broker reports a wrong number of partitions", "metrics", change_gauge, ""),
        ("count-rejections", "a meter counts more rejections than clients received", "meter", count_rejections, ""),
        ("slow-commits", "a group's commits take longer because more racks are required", "alike", slow_commits, ""),
        ("keep-hidden", "waiting records of an idle topic stay hidden after R was lowered", "idle", keep_hidden, ""),
        ("stick-reader", "a reader of committed records stays where it was at the heal", "unstuck", stick_reader, ""),
    )
)  # fmt: skip
