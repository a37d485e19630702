"""Kafka's Java producer and admin client inside this process, typed and bounded in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import jpype

from pyhooks.build.distribution import Distribution
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.machine import ensure_started

UNKNOWN_TOPIC = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
STRINGS = {
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
}


@dataclass(frozen=True)
class Acknowledged:
    """Where an acknowledged record is.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset, or -1 with acks=0.
    """

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class PartitionState:
    """A partition as the cluster's metadata tells it.

    Attributes:
        leader: broker id, or -1.
        replicas: broker ids in the order of the assignment.
        isr: broker ids, sorted.
        elr: ids of the eligible leader replicas, sorted; none if the cluster does not tell.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finalized:
    """The level of a feature as a broker knows it.

    Attributes:
        level: the finalized level, 0 if there is none.
        epoch: the metadata offset up to which the broker that answered has read.
    """

    level: int
    epoch: int


Done = Callable[[Acknowledged | JavaError], None]


class _Client(AbstractContextManager[Any]):
    """A Java client that is closed at the end of its ``with`` block, within a bound."""

    def __init__(self, java: Any, close_timeout_s: float) -> None:
        self._java = java
        self._close_timeout_s = close_timeout_s

    def close(self) -> None:
        """Closes the client; what is not done within the bound is given up."""
        duration = jpype.JClass("java.time.Duration")
        self._java.close(duration.ofMillis(round(self._close_timeout_s * 1000)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@lru_cache(maxsize=1)
def _classpath() -> str:
    """Found once: a build that ends while we run must not look like another class path."""
    return Distribution.load().classpath()


def _java_of(name: str, make: Callable[[Any, Any], Any], bootstrap: str, config: Mapping[str, str]) -> Any:
    ensure_started(_classpath())
    properties = jpype.JClass("java.util.Properties")()
    for key, value in {"bootstrap.servers": bootstrap, **config}.items():
        properties.setProperty(key, value)
    try:
        return make(jpype.JClass(name), properties)
    except jpype.JException as error:
        raise JavaError.of(error) from error


class Producer(_Client):
    """org.apache.kafka.clients.producer.KafkaProducer of the built distribution, for texts.

    Args:
        bootstrap: brokers.
        config: the producer's configuration beside bootstrap.servers and the serializers.
        close_timeout_s: how long records may still be on their way at the end; the others fail.

    Raises:
        JavaError: the configuration is refused.
        RackgateError: no distribution, or no Java.
    """

    def __init__(self, bootstrap: str, config: Mapping[str, str], *, close_timeout_s: float = 10.0) -> None:
        name = "org.apache.kafka.clients.producer.KafkaProducer"
        super().__init__(_java_of(name, lambda kind, p: kind(p), bootstrap, {**STRINGS, **config}), close_timeout_s)
        self._record = jpype.JClass("org.apache.kafka.clients.producer.ProducerRecord")
        self._errors: list[Exception] = []

    def __enter__(self) -> Producer:
        return self

    def send(self, topic: str, key: str, value: str, done: Done) -> None:
        """Sends a record; ``done`` hears of its end exactly once, unless this raises.

        It waits for at most ``max.block.ms`` if the topic's leader is not known yet.

        Args:
            topic: where to.
            key: of the record.
            value: of the record.
            done: called in a thread of the producer, so it must be quick; what it raises is raised by close().

        Raises:
            JavaError: the record was not taken, and ``done`` will not be called.
        """

        def completed(metadata: Any, failure: Any) -> None:
            try:
                if failure is None:
                    done(Acknowledged(str(metadata.topic()), int(metadata.partition()), int(metadata.offset())))
                else:
                    done(JavaError.of(failure))
            except Exception as error:  # noqa: BLE001 - Java would only log it; close() raises it
                self._errors.append(error)

        callback = jpype.JProxy("org.apache.kafka.clients.producer.Callback", dict={"onCompletion": completed})
        try:
            self._java.send(self._record(topic, key, value), callback)
        except jpype.JException as error:
            raise JavaError.of(error) from error

    def close(self) -> None:
        """Closes the producer; afterwards ``done`` was called for every record.

        Raises:
            Exception: the first that a ``done`` raised.
        """
        super().close()
        if self._errors:
            raise self._errors[0]


class Admin(_Client):
    """org.apache.kafka.clients.admin.Admin of the built distribution.

    Args:
        bootstrap: brokers.
        timeout_s: bound for each request.

    Raises:
        RackgateError: no distribution, or no Java.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 15.0) -> None:
        config = {"default.api.timeout.ms": str(round(timeout_s * 1000)), "request.timeout.ms": "5000"}
        name = "org.apache.kafka.clients.admin.Admin"
        super().__init__(_java_of(name, lambda kind, p: kind.create(p), bootstrap, config), close_timeout_s=2.0)
        self._timeout_s = timeout_s

    def __enter__(self) -> Admin:
        return self

    def create_topic(self, topic: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        """Creates a topic with replicas placed by hand.

        Args:
            topic: its name.
            assignment: for each partition the broker ids; the first is the preferred leader.
            config: topic configuration.

        Raises:
            JavaError: refused, or not answered in time.
        """
        placed = jpype.java.util.HashMap()
        for number, brokers in enumerate(assignment):
            placed.put(jpype.JInt(number), jpype.java.util.ArrayList([jpype.JInt(broker) for broker in brokers]))
        new = jpype.JClass("org.apache.kafka.clients.admin.NewTopic")(topic, placed).configs(_java_map(config))
        self._get(self._java.createTopics(jpype.java.util.List.of(new)).all())

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        """Leader, replicas and ISR of a partition.

        Raises:
            JavaError: no such topic, or not answered in time.
        """
        answer = self._get(self._java.describeTopics(jpype.java.util.List.of(topic)).allTopicNames())
        info = answer.get(topic).partitions().get(partition)
        leader = info.leader()
        return PartitionState(
            leader=-1 if leader is None else int(leader.id()),
            replicas=tuple(int(node.id()) for node in info.replicas()),
            isr=_ids(info.isr()),
            elr=_ids(info.elr()),
        )

    def in_sync(self, topic: str, replicas: Sequence[int], partition: int = 0) -> bool:
        """Whether exactly these replicas are in sync, as the broker that is asked knows.

        It is no if that broker does not know the topic: it can be behind the controller that has just created it. It is
        no, too, if that broker does not answer in time: another one may be asked the next time.

        Raises:
            JavaError: any other error.
        """
        try:
            return self.partition(topic, partition).isr == tuple(sorted(replicas))
        except JavaError as error:
            if error.java_class in {UNKNOWN_TOPIC, TIMEOUT}:
                return False
            raise

    def finalized(self, feature: str) -> Finalized:
        """The finalized level of a feature.

        Raises:
            JavaError: not answered in time.
        """
        told = self._get(self._java.describeFeatures().featureMetadata())
        levels = told.finalizedFeatures().get(feature)
        return Finalized(
            level=0 if levels is None else int(levels.maxVersionLevel()),
            epoch=int(told.finalizedFeaturesEpoch().get()),
        )

    def set_topic_config(self, topic: str, name: str, value: str) -> None:
        """Sets one configuration of a topic and leaves the others.

        Raises:
            JavaError: refused, or not answered in time.
        """
        package = "org.apache.kafka.clients.admin"
        resource_class = jpype.JClass("org.apache.kafka.common.config.ConfigResource")
        resource = resource_class(resource_class.Type.TOPIC, topic)
        operation_class = jpype.JClass(f"{package}.AlterConfigOp")
        entry = jpype.JClass(f"{package}.ConfigEntry")(name, value)
        operation = operation_class(entry, operation_class.OpType.SET)
        change = jpype.java.util.Map.of(resource, jpype.java.util.List.of(operation))
        self._get(self._java.incrementalAlterConfigs(change).all())

    def log_bytes(self, topic: str, broker: int, partition: int = 0) -> int:
        """The size of a replica's log on its disk; it grows with every record that enters, acknowledged or not.

        Raises:
            JavaError: the broker did not answer in time.
            LookupError: it has no such replica.
        """
        wanted = jpype.JClass("org.apache.kafka.common.TopicPartition")(topic, partition)
        answer = self._get(self._java.describeLogDirs(jpype.java.util.List.of(jpype.JInt(broker))).allDescriptions())
        for directory in answer.get(jpype.JInt(broker)).values():
            replica = directory.replicaInfos().get(wanted)
            if replica is not None:
                return int(replica.size())
        raise LookupError(f"broker {broker} has no replica of {topic}-{partition}")

    def _get(self, future: Any) -> Any:
        try:
            return future.get(round(self._timeout_s * 1000) + 1000, jpype.java.util.concurrent.TimeUnit.MILLISECONDS)
        except jpype.JException as error:
            raise JavaError.of(error) from error


def _ids(nodes: Any) -> tuple[int, ...]:
    return tuple(sorted(int(node.id()) for node in nodes or ()))


def _java_map(values: Mapping[str, str]) -> Any:
    made = jpype.java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made
