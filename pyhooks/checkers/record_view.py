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
from itertools import chain, repeat
from typing import NamedTuple

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
# Java producer's message for the records of an expired batch (Sender.failExpiredBatches).
_EXPIRED = re.compile(r"\b(\d+) ms has passed since batch creation")
# Run id in a truncated line.
_RUN = re.compile(r'"run":"([^"]*)"')


class PartitionName(NamedTuple):
    """Topic and number of a partition; as a string ``topic-number``."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @staticmethod
    def parse(name: str) -> PartitionName:
        """Parse ``topic-number``."""
        topic, _, number = name.rpartition("-")
        return PartitionName(topic, int(number))


@dataclass(frozen=True)
class Attempt:
    """One record that a producer sent; fields not described are those of ``ProduceDetails``."""

    run: str | None
    topic: str
    partition: int | None
    seq: int | None
    key: str
    outcome: Outcome
    offset: int | None
    sent_ns: int  # monotonic time of the send; equal to ``done_ns`` if the producer did not record it
    done_ns: int  # monotonic time of the outcome
    exception: str | None
    # creation time of the batch that expired with the record, if earlier than ``sent_ns``; else ``sent_ns``. A batch
    # that can't be sent keeps accepting records, and these have only the rest of its time.
    batch_ns: int
    txn: int | None
    value: object
    mode: str | None = None
    latency_ms: float | None = None
    message: str | None = None

    @property
    def partition_name(self) -> PartitionName | None:
        """Target partition, or None if unknown."""
        return None if self.partition is None else PartitionName(self.topic, self.partition)


@dataclass
class RecordedRun:
    """One producer run on one topic: intended and completed sends; other fields are those of ``IntendDetails``."""

    first_only: bool = True
    idempotent: bool = False
    client: str | None = None
    acks: str = "all"
    record_bytes: int | None = None
    # partition to the exclusive upper bound of the numbers that may have been sent
    intended: dict[int, int] = field(default_factory=dict)
    # partition to the exclusive upper bound of the numbers that were all sent and recorded; None if the run did not end
    ended: dict[int, int] | None = None
    killed: bool = False  # whether the history records a deliberate kill of the run
    begun_ns: int | None = None  # monotonic time of its first event for the topic; None if there is none
    ended_ns: int | None = None  # monotonic time of its end; None if it did not end


@dataclass(frozen=True)
class Transaction:
    """A transaction that has ended, see ``TransactionDetails``; ``ended_ns`` is the monotonic time of that event."""

    run: str
    txn: int
    outcome: Outcome
    records: int
    ended_ns: int


@dataclass
class Read:
    """Contents of one partition, from a consumer or a broker's disk."""

    name: str
    partition: PartitionName
    partitions: int  # number of partitions of the topic
    isolation: str  # ``read_uncommitted``, ``read_committed``, or ``disk`` for a broker's disk
    low: int = 0  # first offset
    end: int = 0  # offset at which the log ended
    begun_ns: int = 0  # monotonic time at which the read began; if not recorded, the time of its first chunk
    ended_ns: int = 0  # monotonic time of its last chunk
    gaps: list[str] = field(default_factory=list)  # descriptions of missing parts
    keys: dict[int, str | None] = field(default_factory=dict)  # offset to key
    values: dict[int, object] = field(default_factory=dict)  # offset to value, where recorded
    # offset to size of the value in bytes, where recorded
    sizes: dict[int, int] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)  # offsets whose value differs from the value written


def offsets_of(runs: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the offsets that ``[first, count]`` pairs stand for."""
    for first, count in runs:
        yield from range(first, first + count)


def fill_read(read: Read, chunks: Sequence[tuple[Event, ChunkDetails]]) -> None:
    """Fill a read from its chunks; ranges of offsets without a chunk are gaps."""
    next_offset: int | None = None
    for event, chunk in sorted(chunks, key=lambda pair: pair[1].begin):
        if next_offset is None:
            read.low, read.end, next_offset = chunk.low, chunk.end, chunk.low
        if chunk.begin != next_offset:
            read.gaps.append(f"no chunk of offsets {next_offset} to {chunk.begin - 1}")
        next_offset = chunk.next
        offsets = list(offsets_of(chunk.runs))
        if len(offsets) != len(chunk.keys):
            read.gaps.append(f"the chunk at offset {chunk.begin} is incomplete")
        sizes = chain.from_iterable(repeat(size, count) for size, count in chunk.sizes or ())
        read.keys |= dict(zip(offsets, chunk.keys, strict=False))
        read.values |= dict(zip(offsets, chunk.values or (), strict=False))
        read.sizes |= dict(zip(offsets, sizes, strict=False))
        read.damaged += chunk.damaged or ()
        if event.outcome != "ok":
            read.gaps.append(f"{chunk.why or 'not to its end'}: offset {next_offset} of {read.end}")
    if next_offset is not None and next_offset != read.end and not read.gaps:
        read.gaps.append(f"no chunk of offsets {next_offset} to {read.end - 1}")


def clients_of(events: Iterable[Event]) -> dict[str, str]:
    """Return the kind of client of each producer run, where recorded."""
    return {
        intend.run: intend.client
        for _, intend in IntendDetails.each(events)
        if intend.run is not None and intend.client is not None
    }


class Records:
    """Records of a whole history."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.attempts = tuple(attempt_of(event, produced) for event, produced in ProduceDetails.each(events))
        self.torn = [torn.text or "" for _, torn in TornDetails.each(events)]
        self.transactions = {
            (txn.run, txn.txn): Transaction(txn.run, txn.txn, event.outcome or "unknown", txn.records, event.mono_ns)
            for event, txn in TransactionDetails.each(events)
        }

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], RecordedRun]:
        """Producer runs by run id and topic."""
        runs: defaultdict[tuple[str, str], RecordedRun] = defaultdict(RecordedRun)
        killed = {kill.run for _, kill in KilledDetails.each(self._events)}
        for event in self._events:
            step = IntendDetails.of(event) or EndDetails.of(event)
            if step is None or step.run is None:
                continue
            run = runs[step.run, step.topic]
            run.begun_ns = event.mono_ns if run.begun_ns is None else run.begun_ns
            if isinstance(step, IntendDetails):
                run.intended |= {number: max(value, run.intended.get(number, 0)) for number, value in step.to.items()}
                run.record_bytes, run.client, run.acks = step.record_bytes, step.client, step.acks
                run.first_only, run.idempotent = step.first_only, step.idempotent
            else:
                run.ended, run.ended_ns = dict(step.to), event.mono_ns
        for attempt in self.attempts:
            if attempt.run is not None:
                runs.setdefault((attempt.run, attempt.topic), RecordedRun())
        for (name, _), run in runs.items():
            run.killed = name in killed
        return dict(runs)

    def run_times(self, topic: str) -> Sequence[tuple[float, float]]:
        """Return the start and end of each producer run on a topic, in nanoseconds; a killed run has no end.

        If no run is recorded, one is assumed to have run all the time.
        """
        times = [
            (run.begun_ns, math.inf if run.ended_ns is None else run.ended_ns)
            for (_, run_topic), run in self.runs.items()
            if run_topic == topic and run.begun_ns is not None
        ]
        return times or ((-math.inf, math.inf),)

    def acks_all(self, attempt: Attempt) -> bool:
        """Return whether an acknowledgement means that all in-sync replicas have the record (acks=all)."""
        run = self.runs.get((attempt.run, attempt.topic)) if attempt.run is not None else None
        return run is None or run.acks == "all"

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """All reads, in the order of their first events."""
        reads: dict[tuple[str, PartitionName, str], Read] = {}
        chunks: defaultdict[tuple[str, PartitionName, str], list[tuple[Event, ChunkDetails]]] = defaultdict(list)
        for event, part in ReadDetails.each(self._events):
            key = (part.read_id, PartitionName(part.topic, part.partition), part.isolation)
            begun_ns = event.mono_ns if part.begun_ns is None else part.begun_ns
            read = reads.setdefault(key, Read(*key[:2], part.partitions, part.isolation, begun_ns=begun_ns))
            read.begun_ns = min(read.begun_ns, begun_ns)
            read.ended_ns = max(read.ended_ns, event.mono_ns)
            if chunk := ReadChunkDetails.of(event):
                chunks[key].append((event, chunk))
            else:
                read.gaps.append(part.error or "nothing was read")
        for key, read in reads.items():
            fill_read(read, chunks[key])
        return tuple(reads.values())

    def final(self, topic: str, isolation: str) -> tuple[dict[int, Read], list[str]]:
        """Return the last pass over the partitions of a topic, and descriptions of its gaps.

        Only one pass counts, since records found by an earlier pass may have been lost since. The pass must have begun
        after the last fault of its cluster and after the end of all producers: an earlier pass does not show their
        effects.
        """
        reads = [read for read in self.reads if (read.partition.topic, read.isolation) == (topic, isolation)]
        if not reads:
            return {}, [f"{topic}: no final read ({isolation})"]
        name = max(reads, key=lambda read: read.begun_ns).name
        last = {read.partition.number: read for read in reads if read.name == name}
        count = max(read.partitions for read in last.values())
        missing = [f"{topic}-{number}: no final read ({isolation})" for number in range(count) if number not in last]
        missing += [f"{read.partition}: final read: {gap}" for read in last.values() for gap in read.gaps]
        begun_ns = min(read.begun_ns for read in last.values())
        missing += [
            f"{topic}: the final read ({isolation}) began before {step}" for step in self._steps_after(topic, begun_ns)
        ]
        return last, missing

    def _steps_after(self, topic: str, moment_ns: int) -> list[str]:
        """Describe the last fault step and the ends of producers that followed a moment, for one topic."""
        later = [event for event in self._events if event.mono_ns > moment_ns]
        # Faults of the next cluster do not affect this one.
        switch_ns = min((event.mono_ns for event, _ in ArmDetails.each(later)), default=math.inf)
        steps = [(event, fault) for event, fault in FaultDetails.each(later) if event.mono_ns < switch_ns]
        steps_after = [f"{event.op} {event.rack}: {fault.step!r}" for event, fault in steps[-1:]]
        runs = {name for name, run_topic in self.runs if run_topic == topic}
        for event in later:
            end = KilledDetails.of(event) or EndDetails.of(event)
            if end is not None and end.run in runs and (isinstance(end, KilledDetails) or end.topic == topic):
                steps_after.append(f"the end of run {end.run}")
        return list(dict.fromkeys(steps_after))

    def _unexplained_torn_lines(self) -> int:
        """Return the number of truncated lines that no killed run explains.

        A kill truncates at most one line, the last of its producer. A line that is too short to identify its writer, or
        that belongs to a run that was not killed, remains unexplained.
        """
        killed = {name for (name, _), run in self.runs.items() if run.killed}
        processes: dict[str, str] = {}
        for event in self._events:
            step = IntendDetails.of(event) or ProduceDetails.of(event) or EndDetails.of(event)
            if step is not None and step.run in killed:
                processes[str(step.run)] = event.process
        left = sorted(processes)
        unexplained = 0
        for text in self.torn:
            run = _RUN.search(text)
            torn = [name for name in left if (name == run[1] if run else f'"process":"{processes[name]}"' in text)]
            if torn:
                left.remove(torn[0])
            else:
                unexplained += 1
        return unexplained

    def unrecorded(self) -> list[str]:
        """Describe results that producers should have recorded but did not."""
        recorded: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
        for attempt in self.attempts:
            if attempt.run is not None and attempt.partition is not None and attempt.seq is not None:
                recorded[attempt.run, attempt.topic, attempt.partition].add(attempt.seq)
        missing = []
        for (name, topic), run in sorted(self.runs.items()):
            if run.killed:
                continue
            if run.ended is None:
                missing.append(f"{topic}: run {name} did not end, and no deliberate kill is recorded")
                continue
            for partition, to in sorted(run.ended.items()):
                if absent := sorted(set(range(to)) - recorded[name, topic, partition]):
                    missing.append(
                        f"{topic}-{partition}: {len(absent)} records of run {name} have no recorded result,"
                        f" the first is {absent[0]}"
                    )
        if count := self._unexplained_torn_lines():
            missing.append(f"{count} lines of the history are incomplete, and no kill explains them")
        return missing


def attempt_of(event: Event, produced: ProduceDetails) -> Attempt:
    """Return the attempt that a ``produce`` event describes."""
    sent_ns = event.mono_ns if produced.sent_ns is None else produced.sent_ns
    expired = _EXPIRED.search(produced.message or "")
    return Attempt(
        run=produced.run,
        topic=produced.topic,
        partition=produced.partition,
        seq=produced.seq,
        key=produced.key,
        outcome=event.outcome or "unknown",
        offset=produced.offset,
        sent_ns=sent_ns,
        done_ns=event.mono_ns,
        exception=produced.exception,
        batch_ns=min(sent_ns, event.mono_ns - int(expired[1]) * 1_000_000) if expired else sent_ns,
        txn=produced.txn,
        value=produced.value,
        mode=produced.mode,
        latency_ms=produced.latency_ms,
        message=produced.message,
    )
