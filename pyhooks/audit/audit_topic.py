"""Audit topic of a cluster: one partition with a replica in every rack, which one rack can acknowledge (M=1, R=1).

It requires no more, since it must take records in an outage, when that is all there is. A record that is acknowledged
while racks are unavailable is lost if the remaining racks are destroyed, as are the records that R was lowered for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

from pyhooks.audit.audit_record import AuditRecord, format_record
from pyhooks.audit.journal import DEFAULT_TOPIC, ReadRecords, parse_records
from pyhooks.core.errors import RackgateError
from pyhooks.jvm.admin import UNKNOWN_TOPIC, Admin, ClusterNode
from pyhooks.jvm.consumer import Consumer, TopicPartition
from pyhooks.jvm.java_exception import ERRORS, JavaError
from pyhooks.jvm.producer import Producer
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS

TIMEOUT_S = 15.0
_TOPIC_EXISTS = f"{ERRORS}.TopicExistsException"
_POLL_S = 0.3
CONFIG = {
    MIN_INSYNC_REPLICAS: "1",
    MIN_INSYNC_RACKS: "1",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}


def placement(nodes: Sequence[ClusterNode]) -> list[int]:
    """Return the brokers of the topic: one of each rack, unfenced ones first; without any rack up to three brokers."""
    ordered = sorted(nodes, key=lambda node: (node.fenced, node.broker_id))
    by_rack: dict[str, int] = {}
    for node in ordered:
        if node.rack:
            by_rack.setdefault(node.rack, node.broker_id)
    return list(by_rack.values()) or [node.broker_id for node in ordered[:3]]


@dataclass
class AuditTopic:
    """Audit topic of a cluster."""

    bootstrap: str  # ``host:port,…``
    config: Mapping[str, str]  # further properties of Kafka's clients
    name: str = DEFAULT_TOPIC  # the topic is created when the first record is written
    timeout_s: float = TIMEOUT_S  # timeout of each operation in seconds
    _created: bool = field(default=False, init=False)
    _found: bool = field(default=False, init=False)

    def read(self) -> ReadRecords:
        """Return the records; none if there is no such topic.

        Raises:
            RackgateError: the topic can't be read, for example because it has no leader.
        """
        try:
            return self._read() if self._find() else ReadRecords()
        except JavaError as error:
            raise RackgateError(f"topic {self.name}: {_reason(error)}") from error

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append records with acks=all; the topic is created if there is none.

        Raises:
            RackgateError: a record was not acknowledged in time; it may have been appended.
        """
        if not records:
            return
        try:
            if not self._find():
                self._create()
            self._append(records)
        except JavaError as error:
            raise RackgateError(f"topic {self.name}: {_reason(error)}") from error

    def _find(self) -> bool:
        """Return whether the topic exists, once it has a leader; a topic that was found before is not looked for again.

        Raises:
            JavaError: no response in time.
            RackgateError: it has no leader.
        """
        if self._found:
            return True
        deadline = time.monotonic() + self.timeout_s
        with Admin.responsive(self.bootstrap, timeout_s=self.timeout_s, config=self.config) as admin:
            while True:
                try:
                    leader: int | None = admin.partition(self.name).leader
                except JavaError as error:
                    if error.java_class != UNKNOWN_TOPIC:
                        raise
                    leader = None
                # a broker may not know yet what this process has created
                if leader is None and not self._created:
                    return False
                if leader is not None and leader >= 0:
                    self._found = True
                    return True
                if time.monotonic() > deadline:
                    raise RackgateError(f"topic {self.name}: it has no leader")
                time.sleep(_POLL_S)

    def _create(self) -> None:
        with Admin.responsive(self.bootstrap, timeout_s=self.timeout_s, config=self.config) as admin:
            _, nodes = admin.cluster()
            try:
                admin.create_topic(self.name, [placement(nodes)], CONFIG)
            except JavaError as error:
                # another operator was first, or the request was sent twice
                if error.java_class != _TOPIC_EXISTS:
                    raise
        self._created = True
        self._find()

    def _append(self, records: Sequence[AuditRecord]) -> None:
        timeout_ms = round(self.timeout_s * 1000)
        settings = {
            **self.config,
            "acks": "all",
            "linger.ms": "0",
            "request.timeout.ms": str(timeout_ms // 3),
            "delivery.timeout.ms": str(timeout_ms),
            "max.block.ms": str(timeout_ms),
        }
        with Producer(self.bootstrap, settings, close_timeout_s=1.0) as producer:
            values = [format_record(record) for record in records]
            keys = ["/".join(record.terms.key).encode() for record in records]
            future = producer.send_batch(self.name, values, keys=keys, partitions=0)
            try:
                sent = future.result(timeout=2 * self.timeout_s)
            except FutureTimeoutError as error:
                raise RackgateError(f"topic {self.name}: no acknowledgement in time") from error
        for index in range(len(values)):
            result = sent.result(index)
            if isinstance(result, JavaError):
                raise result

    def _read(self) -> ReadRecords:
        partition = TopicPartition(self.name, 0)
        deadline = time.monotonic() + self.timeout_s
        lines: list[bytes] = []
        with Consumer(self.bootstrap, self.config, timeout_s=self.timeout_s, close_timeout_s=1.0) as consumer:
            end = consumer.ends([partition])[partition]
            consumer.assign({partition: consumer.beginnings([partition])[partition]})
            while consumer.positions()[partition] < end:
                if time.monotonic() > deadline:
                    raise RackgateError(f"topic {self.name}: not read to its end within {self.timeout_s:.0f} s")
                polled = consumer.poll(_POLL_S)
                lines += [polled.values[index] or b"" for index in range(len(polled))]
        return parse_records(lines)


def _reason(error: JavaError) -> str:
    name = error.java_class.rsplit(".", 1)[-1].removesuffix("Exception")
    return f"{name}: {error.text}" if error.text else name
