"""Final read: all records of every partition from the first offset to the end, as history events.

The events have ``ReadChunkDetails``, or ``ReadDetails`` if nothing of a partition could be read.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History, Outcome
from pyhooks.history.events import ReadChunkDetails, ReadDetails
from pyhooks.history.record_format import is_damaged, text_of
from pyhooks.workload import program

# Cost of a nearly empty partition: consume() waits this long for a full batch even at the end of the log, and an empty
# fetch is still pending when the next partition is assigned.
POLL_S = 0.05
FETCH_WAIT_MS = "50"
REQUEST_S = 20.0
CHUNK = 5000
PROCESS = "reader"
BATCH = 500
UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
ISOLATIONS = (UNCOMMITTED, COMMITTED)


@contextmanager
def open_consumer(bootstrap: str, isolation: str = UNCOMMITTED, **more: str) -> Iterator[Consumer]:
    """Create a consumer that commits nothing and reports the end of a log; it is closed after the block.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        isolation: isolation level.
        more: further settings of librdkafka, with ``_`` for ``.``; they take precedence.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rackgate-reader",
            "enable.auto.commit": False,
            # The last offset may be a transaction marker, which is not delivered: only this event reports the end.
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 2,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_S)
    except KafkaException as error:
        where = f"{topic}-{partition}"
        raise RackgateError(f"{where}: its leader does not return the log's end: {error.args[0].str()}") from error
    return int(low), int(high)


def high_watermark(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the high watermark of a partition.

    Raises:
        RackgateError: the leader does not respond.
    """
    with open_consumer(bootstrap) as consumer:
        return _watermarks(consumer, topic, partition)[1]


@dataclass
class _Chunk:
    """Records in offset order."""

    begin: int
    next: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    values: list[str | None] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)

    def add(self, offset: int, key: bytes | None, value: bytes | None, *, keep_value: bool) -> None:
        if self.runs and offset == sum(self.runs[-1]):
            self.runs[-1] = self.runs[-1][0], self.runs[-1][1] + 1
        else:
            self.runs.append((offset, 1))
        size = len(value or b"")
        if self.sizes and self.sizes[-1][0] == size:
            self.sizes[-1] = size, self.sizes[-1][1] + 1
        else:
            self.sizes.append((size, 1))
        name = text_of(key)
        self.keys.append(name)
        if is_damaged(name, value):
            self.damaged.append(offset)
        if keep_value:
            self.values.append(text_of(value))
        self.next = offset + 1


class _PartitionReader:
    """Reader of one partition up to its current end."""

    def __init__(self, consumer: Consumer, topic: str, partition: int, *, values: bool) -> None:
        self.low, self.end = _watermarks(consumer, topic, partition)
        self._consumer, self._values = consumer, values
        self._where = TopicPartition(topic, partition, self.low)
        self.reached = self.low

    def chunks(self, deadline: float) -> Iterator[_Chunk]:
        """Yield all records in chunks, at least one; afterwards ``reached`` is the offset reached."""
        self._consumer.assign([self._where])
        chunk = _Chunk(self.low, self.low)
        while self.reached < self.end and time.monotonic() < deadline:
            for message in self._consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is None and message.offset() < self.end:
                    chunk.add(message.offset(), message.key(), message.value(), keep_value=self._values)
                    self.reached = chunk.next
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    # A record beyond the end, or the end itself: no further records before it belong to this read.
                    chunk.next = self.reached = max(self.reached, min(int(message.offset()), self.end))
            if len(chunk.keys) >= CHUNK:
                yield chunk
                chunk = _Chunk(chunk.next, chunk.next)
        yield chunk


def read_all(
    bootstrap: str,
    topics: Sequence[str],
    history: History,
    *,
    timeout_s: float = 60.0,
    values: bool = False,
    isolations: Sequence[str] = (UNCOMMITTED,),
    readers: int = 1,
) -> None:
    """Read every partition of topics to its end and write ``read`` events; see the module docstring.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        topics: topic names.
        history: history to append to.
        timeout_s: bound for each partition in seconds.
        values: also write all values.
        isolations: isolation levels, one pass for each.
        readers: number of consumers that share the topics; nearly empty partitions cost only waiting time.

    Raises:
        RackgateError: a topic does not exist, or a partition could not be read to its end in time; all
            other partitions were read.
    """
    shares = [topics[first::readers] for first in range(min(readers, len(topics)))]
    incomplete: list[str] = []
    for isolation in isolations:
        run = uuid.uuid4().hex[:8]

        def read(share: Sequence[str], isolation: str = isolation, run: str = run) -> list[str]:
            problems: list[str] = []
            with open_consumer(bootstrap, isolation, fetch_wait_max_ms=FETCH_WAIT_MS) as consumer:
                for topic in share:
                    count = partition_count(consumer, topic, "final read of")
                    for number in range(count):
                        about = ReadDetails(
                            read_id=run,
                            topic=topic,
                            partition=number,
                            partitions=count,
                            isolation=isolation,
                            begun_ns=time.monotonic_ns(),
                        )
                        problem = _read_partition(consumer, about, history, timeout_s, values=values)
                        problems += [f"{topic}-{number}: {problem}"] if problem else []
            return problems

        with ThreadPoolExecutor(max(1, len(shares))) as pool:
            incomplete += chain.from_iterable(pool.map(read, shares))
    if incomplete:
        raise RackgateError(f"final read: {'; '.join(incomplete)}")


def partition_count(consumer: Consumer, topic: str, purpose: str) -> int:
    """Return the number of partitions of a topic; ``purpose`` begins the error message.

    Raises:
        RackgateError: the topic does not exist, or no broker responds.
    """
    try:
        listed = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
    except KafkaException as error:
        raise RackgateError(f"{purpose} {topic}: no broker responds: {error.args[0].str()}") from error
    if listed.error is not None or not listed.partitions:
        raise RackgateError(f"{purpose} {topic}: {listed.error.str() if listed.error else 'it has no partitions'}")
    return len(listed.partitions)


def _read_partition(
    consumer: Consumer, about: ReadDetails, history: History, timeout_s: float, *, values: bool
) -> str | None:
    """Read one partition and write its events; return the error, or None."""
    try:
        partition = _PartitionReader(consumer, about.topic, about.partition, values=values)
    except RackgateError as error:
        history.add(replace(about, error=str(error)), "unknown", process=PROCESS)
        return str(error)

    def note(chunk: _Chunk, outcome: Outcome) -> None:
        details = ReadChunkDetails(
            **vars(about),
            low=partition.low,
            end=partition.end,
            begin=chunk.begin,
            next=chunk.next,
            runs=tuple(chunk.runs),
            keys=tuple(chunk.keys),
            sizes=tuple(chunk.sizes),
            damaged=tuple(chunk.damaged) or None,
            values=tuple(chunk.values) if values else None,
        )
        history.add(details, outcome, process=PROCESS)

    chunks = partition.chunks(time.monotonic() + timeout_s)
    last = next(chunks)
    # Whether a chunk is the last one is known only after the next step.
    for chunk in chunks:
        note(last, "ok")
        last = chunk
    note(last, "ok" if partition.reached >= partition.end else "unknown")
    if partition.reached < partition.end:
        return f"at offset {partition.reached} of {partition.end} after {timeout_s:.0f} s"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Read topics as a process."""
    parser = program.topics_parser(
        "final_reader", "Read every partition of topics from first to last offset and write the records found."
    )
    parser.add_argument("--isolation", choices=[*ISOLATIONS, "both"], default="both", help="default both")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="bound for each partition (default 60)")
    options = parser.parse_args(arguments)
    isolations = ISOLATIONS if options.isolation == "both" else (options.isolation,)
    topics = options.topics.split(",")
    return program.run_reporting_errors(
        lambda: read_all(
            options.bootstrap, topics, History(options.history), timeout_s=options.timeout_s, isolations=isolations
        )
    )


if __name__ == "__main__":
    sys.exit(main())
