"""View of the records in a history: sends, outcomes and reads.

Producers of tests may omit ``run``: then their intended records are unknown, and only recorded events count.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.events import (
    ArmDetails,
    ChunkDetails,
    EndDetails,
    FaultDetails,
    IntendDetails,
    KilledDetails,
    ProduceDetails,
    ReadChunkDetails,
    ReadDetails,
    TornDetails,
    TransactionDetails,
)

UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
Place = tuple[str, int]
# Java producer's message for the records of an expired batch (4.3.1, Sender.failExpiredBatches).
_RAN_OUT = re.compile(r"\b(\d+) ms has passed since batch creation")
# Run id in a truncated line.
_RUN = re.compile(r'"run":"([^"]*)"')


@dataclass(frozen=True)
class Attempt:
    """One record that a producer sent.

    Attributes:
        run: id of the producer run, or None.
        topic: target topic.
        partition: target partition, or None if the producer left it open and did not learn it.
        seq: number of the record within run and partition, or None.
        key: unique key.
        outcome: ok, fail or unknown.
        offset: acknowledged offset, or None.
        sent_ns: monotonic time of the send; equal to ``done_ns`` if the producer did not record it.
        done_ns: monotonic time of the outcome.
        exception: exception that the producer got instead of an acknowledgement, or None.
        batch_ns: creation time of the batch that expired with the record, if earlier than ``sent_ns``; else
            ``sent_ns``. A batch that can't be sent keeps accepting records, and these have only the rest of its time.
        txn: number of its transaction within the run, or None.
        value: its value, if recorded.
        mode: mode of the producer's plan, if recorded.
        latency_ms: milliseconds from the send to the outcome, if recorded.
        message: message of the exception, if recorded.
    """

    run: str | None
    topic: str
    partition: int | None
    seq: int | None
    key: str
    outcome: Outcome
    offset: int | None
    sent_ns: int
    done_ns: int
    exception: str | None
    batch_ns: int
    txn: int | None
    value: object
    mode: str | None = None
    latency_ms: float | None = None
    message: str | None = None


@dataclass
class RecordedRun:
    """One producer run on one topic: intended and completed sends.

    Attributes:
        first_only: the client sends each record once, so rejections are definite and nothing is written twice.
        idempotent: the client must not write duplicates and must keep the order.
        client: patched, confluent or a release, or None if not recorded.
        acks: ``all`` if an acknowledgement means that all in-sync replicas have the record, ``1`` if only the leader
            has.
        record_bytes: size to which values are padded, or None if not recorded.
        intended: partition to the exclusive upper bound of the numbers that may have been sent.
        ended: partition to the exclusive upper bound of the numbers that were all sent and recorded; None if the run
            did not end.
        killed: whether the history records a deliberate kill of the run.
        begun_ns: monotonic time of its first event for the topic; None if there is none.
        ended_ns: monotonic time of its end; None if it did not end.
    """

    first_only: bool = True
    idempotent: bool = False
    client: str | None = None
    acks: str = "all"
    record_bytes: int | None = None
    intended: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] | None = None
    killed: bool = False
    begun_ns: int | None = None
    ended_ns: int | None = None


@dataclass(frozen=True)
class Transaction:
    """A transaction that has ended, as recorded by its producer.

    Attributes:
        run: id of the producer run.
        txn: its number within the run.
        outcome: ok if committed, fail if definitely aborted.
        records: number of records sent in it.
        ended_ns: monotonic time at which its end was recorded.
    """

    run: str
    txn: int
    outcome: Outcome
    records: int
    ended_ns: int


@dataclass
class Read:
    """Contents of one partition, from a consumer or a broker's disk.

    Attributes:
        name: name of the read.
        topic: topic of the partition.
        partition: number of the partition.
        partitions: number of partitions of the topic.
        isolation: ``read_uncommitted``, ``read_committed``, or ``disk`` for a broker's disk.
        low: first offset.
        end: offset at which the log ended.
        begun_ns: monotonic time at which the read began; if not recorded, the time of its first chunk.
        gaps: descriptions of missing parts.
        keys: offset to key.
        values: offset to value, where recorded.
        sizes: offset to size of the value in bytes, where recorded.
        damaged: offsets whose value differs from the value written.
    """

    name: str
    topic: str
    partition: int
    partitions: int
    isolation: str
    low: int = 0
    end: int = 0
    begun_ns: int = 0
    gaps: list[str] = field(default_factory=list)
    keys: dict[int, str | None] = field(default_factory=dict)
    values: dict[int, object] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)


def offsets_of(runs: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the offsets that ``[first, count]`` pairs stand for."""
    for first, count in runs:
        yield from range(first, first + count)


def _repeated(pairs: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the values that ``[value, count]`` pairs stand for."""
    for value, count in pairs:
        yield from repeat(value, count)


def fill(read: Read, chunks: Sequence[tuple[Event, ChunkDetails]]) -> None:
    """Fill a read from its chunks; ranges of offsets without a chunk are gaps."""
    at: int | None = None
    for event, chunk in sorted(chunks, key=lambda pair: pair[1].begin):
        if at is None:
            read.low, read.end, at = chunk.low, chunk.end, chunk.low
        if chunk.begin != at:
            read.gaps.append(f"nothing tells of offsets {at} to {chunk.begin - 1}")
        at = chunk.next
        offsets = list(offsets_of(chunk.runs))
        if len(offsets) != len(chunk.keys):
            read.gaps.append(f"the chunk at offset {chunk.begin} is not whole")
        read.keys |= dict(zip(offsets, chunk.keys, strict=False))
        read.values |= dict(zip(offsets, chunk.values or (), strict=False))
        read.sizes |= dict(zip(offsets, _repeated(chunk.sizes or ()), strict=False))
        read.damaged += chunk.damaged or ()
        if event.outcome != "ok":
            read.gaps.append(f"{chunk.why or 'not to its end'}: offset {at} of {read.end}")
    if at is not None and at != read.end and not read.gaps:
        read.gaps.append(f"nothing tells of offsets {at} to {read.end - 1}")


def clients_of(events: Iterable[Event]) -> dict[str, str]:
    """Return the kind of client of each producer run, where recorded."""
    return {
        intend.run: intend.client
        for _, intend in IntendDetails.each(events)
        if intend.run is not None and intend.client is not None
    }


class Records:
    """Records of a history.

    Args:
        events: a whole history.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.attempts = tuple(attempt_of(event, produced) for event, produced in ProduceDetails.each(events))
        self.torn = [torn.text or "" for _, torn in TornDetails.each(events)]
        self.transactions = {
            (one.run, one.txn): Transaction(one.run, one.txn, event.outcome, one.records, event.mono_ns)
            for event, one in TransactionDetails.each(events)
        }

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], RecordedRun]:
        """Producer runs by run id and topic."""
        found: defaultdict[tuple[str, str], RecordedRun] = defaultdict(RecordedRun)
        killed = {one.run for _, one in KilledDetails.each(self._events)}
        for event in self._events:
            step = IntendDetails.of(event) or EndDetails.of(event)
            if step is None or step.run is None:
                continue
            run = found[step.run, step.topic]
            run.begun_ns = event.mono_ns if run.begun_ns is None else run.begun_ns
            if isinstance(step, IntendDetails):
                run.intended |= {number: max(value, run.intended.get(number, 0)) for number, value in step.to.items()}
                run.record_bytes, run.client, run.acks = step.record_bytes, step.client, step.acks
                run.first_only, run.idempotent = step.first_only, step.idempotent
            else:
                run.ended, run.ended_ns = dict(step.to), event.mono_ns
        for attempt in self.attempts:
            if attempt.run is not None:
                found[attempt.run, attempt.topic].killed = attempt.run in killed
        for (name, _), run in found.items():
            run.killed = name in killed
        return dict(found)

    def ran(self, topic: str) -> Sequence[tuple[float, float]]:
        """Return the start and end of each producer run on a topic, in nanoseconds; a killed run has no end.

        If no run is recorded, one is assumed to have run all the time.
        """
        found = [
            (run.begun_ns, math.inf if run.ended_ns is None else run.ended_ns)
            for (_, own), run in self.runs.items()
            if own == topic and run.begun_ns is not None
        ]
        return found or ((-math.inf, math.inf),)

    def shared(self, attempt: Attempt) -> bool:
        """Return whether an acknowledgement means that all in-sync replicas have the record (acks=all)."""
        run = self.runs.get((attempt.run, attempt.topic)) if attempt.run is not None else None
        return run is None or run.acks == "all"

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """All reads, in the order of their first events."""
        found_parts: dict[tuple[str, str, int, str], list[tuple[Event, ReadDetails]]] = {}
        for event, part in ReadDetails.each(self._events):
            name = (part.read_id, part.topic, part.partition, part.isolation)
            found_parts.setdefault(name, []).append((event, part))
        found = []
        for (read_id, topic, partition, isolation), parts in found_parts.items():
            read = Read(read_id, topic, partition, parts[0][1].partitions, isolation)
            read.begun_ns = min(event.mono_ns if chunk.begun_ns is None else chunk.begun_ns for event, chunk in parts)
            with_records = [(event, chunk) for event, _ in parts if (chunk := ReadChunkDetails.of(event))]
            read.gaps += [
                part.error or "nothing was read" for event, part in parts if not ReadChunkDetails.describes(event)
            ]
            fill(read, with_records)
            found.append(read)
        return tuple(found)

    def final(self, topic: str, isolation: str) -> tuple[dict[int, Read], list[str]]:
        """Return the last pass over the partitions of a topic, and descriptions of what it lacks.

        Only one pass counts, since records found by an earlier pass may have been lost since. The pass must have begun
        after the last fault of its cluster and after the end of all producers: an earlier pass does not show their
        effects.
        """
        own = [read for read in self.reads if (read.topic, read.isolation) == (topic, isolation)]
        if not own:
            return {}, [f"{topic}: no final read ({isolation})"]
        name = max(own, key=lambda read: read.begun_ns).name
        last = {read.partition: read for read in own if read.name == name}
        count = max(read.partitions for read in last.values())
        missing = [f"{topic}-{number}: no final read ({isolation})" for number in range(count) if number not in last]
        missing += [f"{topic}-{read.partition}: final read: {gap}" for read in last.values() for gap in read.gaps]
        begun_ns = min(read.begun_ns for read in last.values())
        missing += [
            f"{topic}: the final read ({isolation}) began before {what}" for what in self._after(topic, begun_ns)
        ]
        return last, missing

    def _after(self, topic: str, moment_ns: int) -> list[str]:
        """Describe the last fault step and the ends of producers that followed a moment, for one topic."""
        later = [event for event in self._events if event.mono_ns > moment_ns]
        # Faults of the next cluster do not affect this one.
        switch_ns = min((event.mono_ns for event, _ in ArmDetails.each(later)), default=math.inf)
        steps = [(event, fault) for event, fault in FaultDetails.each(later) if event.mono_ns < switch_ns]
        found = [f"{event.op} {event.rack}: {fault.step!r}" for event, fault in steps[-1:]]
        runs = {name for name, own in self.runs if own == topic}
        for event in later:
            over = KilledDetails.of(event) or EndDetails.of(event)
            if over is not None and over.run in runs and (isinstance(over, KilledDetails) or over.topic == topic):
                found.append(f"run {over.run} was over")
        return list(dict.fromkeys(found))

    def _torn_by_nobody(self) -> int:
        """Return the number of truncated lines that no killed run explains.

        A kill truncates at most one line, the last of its producer. A line that is too short to identify its writer, or
        that belongs to a run that was not killed, remains unexplained.
        """
        killed = {name for (name, _), run in self.runs.items() if run.killed}
        processes: dict[str, str] = {}
        for event in self._events:
            own = IntendDetails.of(event) or ProduceDetails.of(event) or EndDetails.of(event)
            if own is not None and own.run in killed:
                processes[str(own.run)] = event.process
        left = sorted(processes)
        lost = 0
        for text in self.torn:
            run = _RUN.search(text)
            cut = [name for name in left if (name == run[1] if run else f'"process":"{processes[name]}"' in text)]
            if cut:
                left.remove(cut[0])
            else:
                lost += 1
        return lost

    def unnoted(self) -> list[str]:
        """Describe what producers should have recorded but did not."""
        noted: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
        for attempt in self.attempts:
            if attempt.run is not None and attempt.partition is not None and attempt.seq is not None:
                noted[attempt.run, attempt.topic, attempt.partition].add(attempt.seq)
        missing = []
        for (name, topic), run in sorted(self.runs.items()):
            if run.killed:
                continue
            if run.ended is None:
                missing.append(f"{topic}: run {name} did not end, and nothing tells that it was killed on purpose")
                continue
            for partition, to in sorted(run.ended.items()):
                if absent := sorted(set(range(to)) - noted[name, topic, partition]):
                    missing.append(
                        f"{topic}-{partition}: nothing tells what became of {len(absent)} records of run {name},"
                        f" the first is {absent[0]}"
                    )
        if lost := self._torn_by_nobody():
            missing.append(f"{lost} lines of the history are cut short, and no kill tells why")
        return missing


def attempt_of(event: Event, produced: ProduceDetails) -> Attempt:
    """Return the attempt that a ``produce`` event describes."""
    sent_ns = event.mono_ns if produced.sent_ns is None else produced.sent_ns
    ran_out = _RAN_OUT.search(produced.message or "")
    return Attempt(
        run=produced.run,
        topic=produced.topic,
        partition=produced.partition,
        seq=produced.seq,
        key=produced.key,
        outcome=event.outcome,
        offset=produced.offset,
        sent_ns=sent_ns,
        done_ns=event.mono_ns,
        exception=produced.exception,
        batch_ns=min(sent_ns, event.mono_ns - int(ran_out[1]) * 1_000_000) if ran_out else sent_ns,
        txn=produced.txn,
        value=produced.value,
        mode=produced.mode,
        latency_ms=produced.latency_ms,
        message=produced.message,
    )
