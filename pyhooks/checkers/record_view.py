"""View of the records in a history: sends, outcomes and reads.

The events are those of ``pyhooks.workload.producer`` and ``pyhooks.workload.final_reader``. Producers of tests may omit
``run``: then their intended records are unknown, and only recorded events count. A deliberate kill of a producer is
recorded as an event of op ``killed`` with ``data`` ``{run}``; records that this run did not log are then no evidence. A
switch to another cluster, which has other topics, is recorded as an event of process ``test`` and op ``arm``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

from pyhooks.history.event_log import Event, Outcome

UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
# Op of the event that marks the switch to another cluster.
ARM = "arm"
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


@dataclass
class Run:
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
        yield from range(int(first), int(first) + int(count))


def _repeated(pairs: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the values that ``[value, count]`` pairs stand for."""
    for value, count in pairs:
        yield from repeat(int(value), int(count))


def fill(read: Read, chunks: Sequence[Event]) -> None:
    """Fill a read from its chunks; ranges of offsets without a chunk, and errors, are gaps."""
    at: int | None = None
    for event in sorted(chunks, key=lambda event: int(event.data.get("begin", -1))):
        data = event.data
        if "begin" not in data:
            read.gaps.append(str(data.get("error", "nothing was read")))
            continue
        if at is None:
            read.low, read.end, at = int(data["low"]), int(data["end"]), int(data["low"])
        if int(data["begin"]) != at:
            read.gaps.append(f"nothing tells of offsets {at} to {int(data['begin']) - 1}")
        at = int(data["next"])
        offsets = list(offsets_of(data["runs"]))
        if len(offsets) != len(data["keys"]):
            read.gaps.append(f"the chunk at offset {data['begin']} is not whole")
        read.keys |= dict(zip(offsets, data["keys"], strict=False))
        read.values |= dict(zip(offsets, data.get("values", ()), strict=False))
        read.sizes |= dict(zip(offsets, _repeated(data.get("sizes", ())), strict=False))
        read.damaged += list(data.get("damaged", ()))
        if event.outcome != "ok":
            read.gaps.append(f"{data.get('why', 'not to its end')}: offset {at} of {read.end}")
    if at is not None and at != read.end and not read.gaps:
        read.gaps.append(f"nothing tells of offsets {at} to {read.end - 1}")


class Records:
    """Records of a history.

    Args:
        events: a whole history.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.attempts = tuple(_attempt(event) for event in events if event.op == "produce")
        self.torn = [str(event.data.get("text", "")) for event in events if event.op == "torn"]
        self.transactions = {
            (str(event.data["run"]), int(event.data["txn"])): Transaction(
                str(event.data["run"]),
                int(event.data["txn"]),
                event.outcome,
                int(event.data["records"]),
                event.mono_ns,
            )
            for event in events
            if event.op == "txn"
        }

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], Run]:
        """Producer runs by run id and topic."""
        found: defaultdict[tuple[str, str], Run] = defaultdict(Run)
        killed = {str(event.data["run"]) for event in self._events if event.op == "killed" and "run" in event.data}
        for event in self._events:
            if event.op not in ("intend", "end") or "run" not in event.data:
                continue
            run = found[str(event.data["run"]), str(event.data["topic"])]
            to = {int(number): int(value) for number, value in event.data["to"].items()}
            run.begun_ns = event.mono_ns if run.begun_ns is None else run.begun_ns
            if event.op == "intend":
                run.intended |= {number: max(value, run.intended.get(number, 0)) for number, value in to.items()}
                run.record_bytes = _opt(int, event.data.get("record_bytes"))
                run.client = _opt(str, event.data.get("client"))
                run.acks = str(event.data.get("acks", "all"))
                run.first_only, run.idempotent = bool(event.data["first_only"]), bool(event.data["idempotent"])
            else:
                run.ended, run.ended_ns = to, event.mono_ns
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
        chunks: dict[tuple[str, str, int, str], list[Event]] = {}
        for event in self._events:
            if event.op == "read":
                data = event.data
                part = (str(data["pass"]), str(data["topic"]), int(data["partition"]), str(data["isolation"]))
                chunks.setdefault(part, []).append(event)
        found = []
        for (name, topic, partition, isolation), parts in chunks.items():
            read = Read(name, topic, partition, int(parts[0].data["partitions"]), isolation)
            read.begun_ns = min(int(event.data.get("begun_ns", event.mono_ns)) for event in parts)
            fill(read, parts)
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
        gone_ns = min((one.mono_ns for one in later if (one.process, one.op) == ("test", ARM)), default=math.inf)
        steps = [event for event in later if event.process == "fault" and event.mono_ns < gone_ns]
        found = [f"{event.op} {event.rack}: {event.data.get('step')!r}" for event in steps[-1:]]
        runs = {name for name, own in self.runs if own == topic}
        for event in later:
            over = event.op == "killed" or (event.op == "end" and event.data.get("topic") == topic)
            if over and event.data.get("run") in runs:
                found.append(f"run {event.data['run']} was over")
        return list(dict.fromkeys(found))

    def _torn_by_nobody(self) -> int:
        """Return the number of truncated lines that no killed run explains.

        A kill truncates at most one line, the last of its producer. A line that is too short to identify its writer, or
        that belongs to a run that was not killed, remains unexplained.
        """
        killed = {name for (name, _), run in self.runs.items() if run.killed}
        processes = {
            str(event.data["run"]): event.process
            for event in self._events
            if event.op in ("intend", "produce", "end") and event.data.get("run") in killed
        }
        left = sorted(processes)
        lost = 0
        for text in self.torn:
            run = _RUN.search(text)
            own = [name for name in left if (name == run[1] if run else f'"process":"{processes[name]}"' in text)]
            if own:
                left.remove(own[0])
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


def _attempt(event: Event) -> Attempt:
    data: Mapping[str, Any] = event.data
    sent_ns = int(data.get("sent_ns", event.mono_ns))
    ran_out = _RAN_OUT.search(str(data.get("message") or ""))
    return Attempt(
        run=_opt(str, data.get("run")),
        topic=str(data["topic"]),
        partition=_opt(int, data.get("partition")),
        seq=_opt(int, data.get("seq")),
        key=str(data["key"]),
        outcome=event.outcome,
        offset=_opt(int, data.get("offset")),
        sent_ns=sent_ns,
        done_ns=event.mono_ns,
        exception=_opt(str, data.get("exception")),
        batch_ns=min(sent_ns, event.mono_ns - int(ran_out[1]) * 1_000_000) if ran_out else sent_ns,
        txn=_opt(int, data.get("txn")),
        value=data.get("value"),
    )


def _opt(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)
