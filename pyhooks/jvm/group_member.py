"""Consumer group member on Kafka's Java consumer, with rebalance callbacks and asynchronous commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jpype

from pyhooks.jvm.client import Client, InProcess, java_duration, java_errors
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.java_exception import JavaError

BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
CLASSIC, COOPERATIVE, CONSUMER = "classic", "cooperative", "consumer"
_ASSIGNORS = "org.apache.kafka.clients.consumer"
# Kafka's group protocols; the classic one with eager and with cooperative rebalancing.
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
PartitionCallback = Callable[[frozenset[TopicPartition]], None]


@dataclass(frozen=True)
class RebalanceCallbacks:
    """Callbacks of a member for newly assigned partitions, those it must give up, and those it has already lost."""

    assigned: PartitionCallback
    revoked: PartitionCallback
    lost: PartitionCallback


@dataclass(frozen=True)
class MemberPoll:
    """Records of one partition that a poll returned: their number, the first offset, and the offset after the last."""

    count: int
    first: int
    next: int


def group_settings(bootstrap: str, group: str) -> dict[str, str]:
    """Return the settings that members of all kinds of groups need."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.deserializer": BYTES,
        "value.deserializer": BYTES,
    }


class GroupMember(Client):
    """org.apache.kafka.clients.consumer.KafkaConsumer for a single thread; callbacks run during its polls.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        group: group id.
        protocol: one of ``PROTOCOLS``.
        config: further properties.
        close_timeout_s: bound for leaving the group, in seconds.

    Raises:
        JavaError: the configuration is rejected.
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
        settings = {
            **group_settings(bootstrap, group),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **PROTOCOLS[protocol],
            **(config or {}),
        }
        java = InProcess().make("org.apache.kafka.clients.consumer.KafkaConsumer", settings)
        super().__init__(java, close_timeout_s)

    def subscribe(self, topics: Sequence[str], callbacks: RebalanceCallbacks) -> None:
        """Subscribe to topics; the member joins the group during the next polls.

        Raises:
            JavaError: rejected.
        """
        with java_errors():
            self._java.subscribe(jpype.java.util.ArrayList(list(topics)), _listener_class()(callbacks))

    def poll(self, timeout_s: float) -> dict[TopicPartition, MemberPoll]:
        """Return the next records, summarized by partition.

        Raises:
            JavaError: for example a failed authorization.
        """
        polls: dict[TopicPartition, MemberPoll] = {}
        with java_errors():
            records = self._java.poll(java_duration(timeout_s))
            for where in records.partitions():
                own = records.records(where)
                count = int(own.size())
                polls[partition_of(where)] = MemberPoll(
                    count, int(own.get(0).offset()), int(own.get(count - 1).offset()) + 1
                )
        return polls

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[JavaError | None], None]) -> None:
        """Commit offsets asynchronously; a later poll or the close calls ``done`` with None or the error.

        Raises:
            JavaError: rejected at once.
        """
        with java_errors():
            partition = jpype.JClass("org.apache.kafka.common.TopicPartition")
            metadata = jpype.JClass("org.apache.kafka.clients.consumer.OffsetAndMetadata")
            java_offsets = {partition(place.topic, place.number): metadata(at) for place, at in offsets.items()}
            self._java.commitAsync(java_offsets, _callback_class()(done))


def partition_of(where: Any) -> TopicPartition:
    """Return the partition of a Java TopicPartition, or of a record."""
    return TopicPartition(str(where.topic()), int(where.partition()))


def _partitions(partitions: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(partition_of(where) for where in partitions)


@lru_cache(maxsize=1)
def _listener_class() -> Any:
    """Return the listener class, created at first use because its interface is in the JVM."""

    class Listener:
        """org.apache.kafka.clients.consumer.ConsumerRebalanceListener that forwards to the callbacks."""

        def __init__(self, callbacks: RebalanceCallbacks) -> None:
            self._callbacks = callbacks

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsAssigned(self, partitions: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll."""
            self._callbacks.assigned(_partitions(partitions))

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsRevoked(self, partitions: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll or a close."""
            self._callbacks.revoked(_partitions(partitions))

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onPartitionsLost(self, partitions: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll or a close."""
            self._callbacks.lost(_partitions(partitions))

    return jpype.JImplements("org.apache.kafka.clients.consumer.ConsumerRebalanceListener")(Listener)


@lru_cache(maxsize=1)
def _callback_class() -> Any:
    """Return the callback class, created at first use because its interface is in the JVM."""

    class Callback:
        """org.apache.kafka.clients.consumer.OffsetCommitCallback that forwards to ``done``."""

        def __init__(self, done: Callable[[JavaError | None], None]) -> None:
            self._done = done

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def onComplete(self, _offsets: Any, error: Any) -> None:  # noqa: N802 - Java's name
            """Called within a poll or a close."""
            self._done(None if error is None else JavaError.of(error))

    return jpype.JImplements("org.apache.kafka.clients.consumer.OffsetCommitCallback")(Callback)
