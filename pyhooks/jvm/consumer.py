"""Kafka's Java consumer, in this process or in a gateway's JVM; a poll is one call that returns columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.jvm.client import Client, Home, InProcess, java_errors
from pyhooks.jvm.packed_columns import Ints, Longs, Unpacker

REQUEST_S = 15.0


@dataclass(frozen=True, order=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, eq=False)
class Polled:
    """Records of one poll, grouped by partition and in offset order; the columns have one entry per record.

    Attributes:
        partition: index into ``partitions``.
        timestamp_ms: timestamp in milliseconds.
    """

    partitions: tuple[TopicPartition, ...]
    partition: Ints
    offset: Longs
    timestamp_ms: Longs
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.offset)


class Consumer(Client):
    """org.apache.kafka.clients.consumer.KafkaConsumer. Not thread-safe, except for ``wakeup``.

    By default it starts at the first offset and does not commit automatically. Subscribing and committing
    require ``group.id``; reading only committed transactions requires ``isolation.level=read_committed``.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        config: further configuration of the consumer; the deserializers are set.
        home: JVM in which to run; by default this process's, with the client of the built distribution.
        timeout_s: bound for each request to the brokers, in seconds; ``close_timeout_s`` for leaving the group.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """

    def __init__(
        self,
        bootstrap: str,
        config: Mapping[str, str] | None = None,
        *,
        home: Home | None = None,
        timeout_s: float = REQUEST_S,
        close_timeout_s: float = 5.0,
    ) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **(config or {}),
        }
        super().__init__(
            (home or InProcess()).make("rackgate.hooks.Receiver", settings, round(timeout_s * 1000)), close_timeout_s
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics as a group member; partitions are assigned during polls.

        Raises:
            JavaError: rejected, for example because ``group.id`` is missing.
        """
        with java_errors():
            self._java.subscribe("\n".join(topics))

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Assign partitions without a group.

        They are read from the committed offset, or from the position that ``auto.offset.reset`` selects; a mapping
        gives the start offset of each partition.

        Raises:
            JavaError: rejected.
        """
        with java_errors():
            self._java.assign(_lines(partitions))

    def poll(self, timeout_s: float) -> Polled:
        """Return the next records, at most ``max.poll.records``; none if none arrive in time.

        Raises:
            JavaError: for example WakeupException after ``wakeup``.
        """
        with java_errors():
            packed = self._java.poll(round(timeout_s * 1000))
        polled = Unpacker(memoryview(packed))
        size, _ = polled.number(), polled.number()
        partition, offset, timestamp_ms = polled.ints(size), polled.longs(size), polled.longs(size)
        key_lengths, value_lengths = polled.ints(size), polled.ints(size)
        keys, values = polled.strings(key_lengths), polled.strings(value_lengths)
        return Polled(tuple(_offsets(polled.rest())), partition, offset, timestamp_ms, keys, values)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the assigned partitions, each with the offset of the next record.

        Raises:
            JavaError: no response in time.
        """
        with java_errors():
            return _offsets(str(self._java.positions()))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are omitted.

        Raises:
            JavaError: no response in time.
        """
        with java_errors():
            return _offsets(str(self._java.committed(_lines(partitions))))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all positions, and wait for the result.

        Raises:
            JavaError: not committed, or no response in time.
        """
        with java_errors():
            self._java.commit(_lines(offsets or {}))

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets.

        Raises:
            JavaError: no response in time.
        """
        with java_errors():
            return _offsets(str(self._java.beginnings(_lines(partitions))))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets: the high watermark, or with read_committed the last stable offset.

        Raises:
            JavaError: no response in time.
        """
        with java_errors():
            return _offsets(str(self._java.ends(_lines(partitions))))

    def wakeup(self) -> None:
        """Make a poll in another thread, or the next poll, raise WakeupException."""
        with java_errors():
            self._java.wakeup()

    def close(self) -> None:
        """Leave the group and close the consumer, within its time bound. Idempotent.

        Raises:
            JavaError: it could not be closed cleanly.
        """
        with java_errors():
            self._java.close(round(self._close_timeout_s * 1000))


def _lines(partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> str:
    """Encode partitions for the Java helper, one per line: topic, partition and, if given, offset."""
    if isinstance(partitions, Mapping):
        return "\n".join(f"{key.topic} {key.number} {offset}" for key, offset in partitions.items())
    return "\n".join(f"{key.topic} {key.number}" for key in partitions)


def _offsets(lines: str) -> dict[TopicPartition, int]:
    """Parse lines of topic, partition and optional offset; -1 stands for no offset."""
    rows = [line.split(" ") for line in lines.splitlines()]
    return {TopicPartition(row[0], int(row[1])): int(row[2]) if len(row) > 2 else -1 for row in rows}
