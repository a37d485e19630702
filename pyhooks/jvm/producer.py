"""Kafka's Java producer inside this process, typed and bounded in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jpype

from pyhooks.jvm.client import Client, java_of
from pyhooks.jvm.failure import JavaError

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


Done = Callable[[Acknowledged | JavaError], None]


class Producer(Client):
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
        super().__init__(java_of(name, lambda kind, p: kind(p), bootstrap, {**STRINGS, **config}), close_timeout_s)
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
