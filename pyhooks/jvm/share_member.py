"""Member of a share group (KIP-932) on Kafka's Java client, with explicit acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jpype

from pyhooks.jvm.client import Client, InProcess, java_duration, java_errors
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.group_member import group_settings, partition_of
from pyhooks.jvm.java_exception import JavaError


@dataclass(frozen=True)
class DeliveredRecord:
    """A delivered record, which the group holds for this member until it is acknowledged or its lock expires.

    Attributes:
        count: how many times the broker has delivered it, this time included; 0 if not reported.
    """

    partition: TopicPartition
    offset: int
    count: int


class ShareMember(Client):
    """org.apache.kafka.clients.consumer.KafkaShareConsumer for a single thread.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        group: group id.
        config: further properties.
        close_timeout_s: bound for leaving the group, in seconds.

    Raises:
        JavaError: the configuration is rejected.
        RackgateError: no distribution, or no Java.
    """

    def __init__(
        self, bootstrap: str, group: str, config: Mapping[str, str] | None = None, *, close_timeout_s: float = 5.0
    ) -> None:
        settings = {
            **group_settings(bootstrap, group),
            "share.acknowledgement.mode": "explicit",
            **(config or {}),
        }
        java = InProcess().make("org.apache.kafka.clients.consumer.KafkaShareConsumer", settings)
        super().__init__(java, close_timeout_s)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics; the member joins the group during the next polls.

        Raises:
            JavaError: rejected.
        """
        with java_errors():
            self._java.subscribe(jpype.java.util.ArrayList(list(topics)))

    def poll(self, timeout_s: float) -> list[DeliveredRecord]:
        """Return the next records, and accept all of them; ``commit`` sends that to the brokers.

        Raises:
            JavaError: for example a failed authorization.
        """
        found: list[DeliveredRecord] = []
        with java_errors():
            for record in self._java.poll(java_duration(timeout_s)):
                count = record.deliveryCount()
                number = int(count.get()) if count.isPresent() else 0
                found.append(DeliveredRecord(partition_of(record), int(record.offset()), number))
                self._java.acknowledge(record)
        return found

    def commit(self, timeout_s: float) -> dict[TopicPartition, JavaError | None]:
        """Send the acknowledgements, wait for the results, and return the error of each partition, or None.

        Raises:
            JavaError: no result in time, for any partition.
        """
        with java_errors():
            errors = self._java.commitSync(java_duration(timeout_s)).items()
            return {
                partition_of(place): JavaError.of(error.get()) if error.isPresent() else None for place, error in errors
            }
