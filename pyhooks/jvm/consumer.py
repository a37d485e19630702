"""Kafka's Java consumer, in this process or in a gateway's JVM; a poll is one call into Java and columns of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.jvm.client import Client, Home, InProcess, java_errors
from pyhooks.jvm.packed_columns import Ints, Longs, Unpacker

REQUEST_S = 15.0


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic.

    Attributes:
        topic: its topic.
        number: its number.
    """

    topic: str
    number: int


@dataclass(frozen=True, eq=False)
class Polled:
    """The records of one poll, partition by partition in the order of offsets; one entry a record.

    Attributes:
        partitions: the partitions that the records are of.
        partition: index into ``partitions``.
        offset: the offset.
        timestamp_ms: the timestamp.
        keys: the key, or None.
        values: the value, or None.
    """

    partitions: tuple[Partition, ...]
    partition: Ints
    offset: Longs
    timestamp_ms: Longs
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.offset)


class Consumer(Client):
    """org.apache.kafka.clients.consumer.KafkaConsumer. Only one thread at a time may use it; ``wakeup`` is for any.

    It starts at the first offset and commits nothing by itself, unless the configuration says otherwise. To subscribe
    or commit it needs ``group.id``, to read committed transactions alone ``isolation.level=read_committed``.

    Args:
        bootstrap: brokers.
        config: the consumer's configuration beside bootstrap.servers and the deserializers.
        home: the JVM that it lives in; by default this process's, with the client of the built distribution.
        timeout_s: bound for each question to the brokers.
        close_timeout_s: bound for leaving the group.

    Raises:
        JavaError: the configuration is refused.
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
        told = {
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **(config or {}),
        }
        super().__init__(
            (home or InProcess()).make("rackgate.hooks.Receiver", told, round(timeout_s * 1000)), close_timeout_s
        )

    def __enter__(self) -> Consumer:
        return self

    def subscribe(self, topics: Sequence[str]) -> None:
        """Joins the group for these topics; its coordinator gives partitions during polls.

        Raises:
            JavaError: refused, e.g. since there is no ``group.id``.
        """
        with java_errors():
            self._java.subscribe("\n".join(topics))

    def assign(self, partitions: Iterable[Partition] | Mapping[Partition, int]) -> None:
        """Takes partitions, without a group.

        Args:
            partitions: read from the committed offset, or from where ``auto.offset.reset`` says; in a mapping, from the
                offset that is given.

        Raises:
            JavaError: refused.
        """
        with java_errors():
            self._java.assign(_lines(partitions))

    def poll(self, timeout_s: float) -> Polled:
        """The next records, at most ``max.poll.records``; none if there are none in time.

        Raises:
            JavaError: such as errors.WakeupException after ``wakeup``.
        """
        with java_errors():
            packed = self._java.poll(round(timeout_s * 1000))
        polled = Unpacker(memoryview(packed))
        size, _ = polled.number(), polled.number()
        partition, offset, timestamp_ms = polled.ints(size), polled.longs(size), polled.longs(size)
        key_lengths, value_lengths = polled.ints(size), polled.ints(size)
        keys, values = polled.strings(key_lengths), polled.strings(value_lengths)
        return Polled(tuple(_offsets(polled.rest())), partition, offset, timestamp_ms, keys, values)

    def positions(self) -> dict[Partition, int]:
        """The partitions that it has now, each with the offset that comes next.

        Raises:
            JavaError: not answered in time.
        """
        with java_errors():
            return _offsets(str(self._java.positions()))

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's committed offsets; a partition without one is left out.

        Raises:
            JavaError: not answered in time.
        """
        with java_errors():
            return _offsets(str(self._java.committed(_lines(partitions))))

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commits these offsets, or all positions, and waits for it.

        Raises:
            JavaError: not committed, or not answered in time.
        """
        with java_errors():
            self._java.commit(_lines(offsets or {}))

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offsets.

        Raises:
            JavaError: not answered in time.
        """
        with java_errors():
            return _offsets(str(self._java.beginnings(_lines(partitions))))

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offsets up to which it may read: the high watermark, or with read_committed the last stable offset.

        Raises:
            JavaError: not answered in time.
        """
        with java_errors():
            return _offsets(str(self._java.ends(_lines(partitions))))

    def wakeup(self) -> None:
        """Lets a poll of another thread, or the next one, raise errors.WakeupException."""
        with java_errors():
            self._java.wakeup()

    def close(self) -> None:
        """Leaves the group and closes the consumer, within its bound. Twice is the same as once.

        Raises:
            JavaError: it could not be closed in order.
        """
        with java_errors():
            self._java.close(round(self._close_timeout_s * 1000))


def _lines(partitions: Iterable[Partition] | Mapping[Partition, int]) -> str:
    """As the Java side reads them: topic, partition and, if given, offset, one partition a line."""
    if isinstance(partitions, Mapping):
        return "\n".join(f"{key.topic} {key.number} {offset}" for key, offset in partitions.items())
    return "\n".join(f"{key.topic} {key.number}" for key in partitions)


def _offsets(lines: str) -> dict[Partition, int]:
    """Reads lines of topic, partition and, where there is one, offset; -1 stands for none."""
    words = [line.split(" ") for line in lines.splitlines()]
    return {Partition(line[0], int(line[1])): int(line[2]) if len(line) > 2 else -1 for line in words}
