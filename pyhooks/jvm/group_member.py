"""A member of a consumer group on Kafka's Java consumer that tells of what it is given, and commits without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jpype

from pyhooks.jvm.client import Client, java_errors, java_of
from pyhooks.jvm.consumer import Partition
from pyhooks.jvm.java_exception import JavaError

BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
CLASSIC, COOPERATIVE, CONSUMER = "classic", "cooperative", "consumer"
_ASSIGNORS = "org.apache.kafka.clients.consumer"
# Kafka's protocols of groups; of the first one both ways to hand partitions over.
PROTOCOLS: Mapping[str, Mapping[str, str]] = {
    CLASSIC: {
        "group.protocol": "classic",
        "partition.assignment.strategy": f"{_ASSIGNORS}.RoundRobinAssignor",
    },
    COOPERATIVE: {
        "group.protocol": "classic",
        "partition.assignment.strategy": f"{_ASSIGNORS}.CooperativeStickyAssignor",
    },
    CONSUMER: {"group.protocol": "consumer"},
}
Told = Callable[[frozenset[Partition]], None]


@dataclass(frozen=True)
class Heard:
    """What a member is to call when its group's coordinator gives it partitions or takes them.

    Attributes:
        assigned: it has these from now on, too.
        revoked: it has to give these up.
        lost: it has lost these already.
    """

    assigned: Told
    revoked: Told
    lost: Told


@dataclass(frozen=True)
class Polled:
    """What a poll gave of a partition.

    Attributes:
        count: how many records.
        first: the offset of the first one.
        next: the offset behind the last one.
    """

    count: int
    first: int
    next: int


class GroupMember(Client):
    """org.apache.kafka.clients.consumer.KafkaConsumer as one thread uses it; what it hears is told during its polls.

    Args:
        bootstrap: brokers.
        group: its name.
        protocol: one of ``PROTOCOLS``.
        config: further properties.
        close_timeout_s: bound for leaving the group.

    Raises:
        JavaError: the configuration is refused.
        RackgateError: no distribution, or no Java.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        protocol: str,
        config: Mapping[str, str] | None = None,
        *,
        close_timeout_s: float = 5.0,
    ) -> None:
        told = {
            "group.id": group,
            "key.deserializer": BYTES,
            "value.deserializer": BYTES,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **PROTOCOLS[protocol],
            **(config or {}),
        }
        name = "org.apache.kafka.clients.consumer.KafkaConsumer"
        super().__init__(java_of(name, lambda kind, made: kind(made), bootstrap, told), close_timeout_s)

    def __enter__(self) -> GroupMember:
        return self

    def subscribe(self, topics: Sequence[str], heard: Heard) -> None:
        """Joins the group during the next polls.

        Raises:
            JavaError: refused.
        """
        with java_errors():
            self._java.subscribe(jpype.java.util.ArrayList(list(topics)), _listener_class()(heard))

    def poll(self, timeout_s: float) -> dict[Partition, Polled]:
        """The next records, by partition.

        Raises:
            JavaError: such as an authorization that is refused.
        """
        found: dict[Partition, Polled] = {}
        with java_errors():
            records = self._java.poll(jpype.JClass("java.time.Duration").ofMillis(round(timeout_s * 1000)))
            for where in records.partitions():
                own = records.records(where)
                count = int(own.size())
                found[_partition(where)] = Polled(count, int(own.get(0).offset()), int(own.get(count - 1).offset()) + 1)
        return found

    def commit(self, offsets: Mapping[Partition, int], done: Callable[[JavaError | None], None]) -> None:
        """Commits offsets without waiting; a later poll calls ``done``, with what it failed with if it did.

        Raises:
            JavaError: refused at once.
        """
        with java_errors():
            told = jpype.java.util.HashMap()
            for place, offset in offsets.items():
                where = jpype.JClass("org.apache.kafka.common.TopicPartition")(place.topic, place.number)
                told.put(where, jpype.JClass("org.apache.kafka.clients.consumer.OffsetAndMetadata")(offset))
            self._java.commitAsync(told, _callback_class()(done))

    def close(self) -> None:
        """Leaves the group and closes the consumer, within its bound.

        Raises:
            JavaError: it could not be closed in order.
        """
        with java_errors():
            super().close()


def _partition(where: Any) -> Partition:
    return Partition(str(where.topic()), int(where.partition()))


def _partitions(told: Iterable[Any]) -> frozenset[Partition]:
    return frozenset(_partition(where) for where in told)


@lru_cache(maxsize=1)
def _listener_class() -> Any:
    """Made at first use, since its interface is in the JVM."""

    class Listener:
        """org.apache.kafka.clients.consumer.ConsumerRebalanceListener, which calls what it was given."""

        def __init__(self, heard: Heard) -> None:
            self._heard = heard

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsAssigned(self, told: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll."""
            self._heard.assigned(_partitions(told))

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsRevoked(self, told: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll, or a close."""
            self._heard.revoked(_partitions(told))

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsLost(self, told: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll, or a close."""
            self._heard.lost(_partitions(told))

    return jpype.JImplements("org.apache.kafka.clients.consumer.ConsumerRebalanceListener")(Listener)


@lru_cache(maxsize=1)
def _callback_class() -> Any:
    """Made at first use, since its interface is in the JVM."""

    class Callback:
        """org.apache.kafka.clients.consumer.OffsetCommitCallback, which calls what it was given."""

        def __init__(self, done: Callable[[JavaError | None], None]) -> None:
            self._done = done

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onComplete(self, _offsets: Any, error: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll, or a close."""
            self._done(None if error is None else JavaError.of(error))

    return jpype.JImplements("org.apache.kafka.clients.consumer.OffsetCommitCallback")(Callback)
