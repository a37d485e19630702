"""Metrics that the Prometheus JMX exporter publishes for Kafka, and its configuration.

Names follow the exporter's usual form for Kafka: domain, type and name of the MBean in lower case, joined by
underscores; a meter becomes a counter that ends with ``_total``.

The number of series must not grow with the number of partitions, so the MBeans of single partitions
(``kafka.cluster:type=Partition``) are not queried: 10,000 partitions have 30,000 of them on their leaders. The gauges
of brokers and controllers are their sums. The two meters of rejections by topic are exported, because Kafka creates
them with the first rejection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pyhooks.lab.mbeans import (
    BROKER_GAUGES,
    CONTROLLER_GAUGES,
    OBSERVED_REJECTIONS,
    PROPERTY_ABOVE_CLUSTER_VALUE,
    REJECTIONS,
)

# Offline partitions that only a replica with an unclean shutdown can lead.
AWAITING_LAST_KNOWN_ELR = "PartitionsAwaitingLastKnownElrCount"
_METER = re.compile(r"(Rate|PerSec)$")


@dataclass(frozen=True)
class ExportedMetric:
    """Metric of a broker or controller.

    Attributes:
        bean: object name without ``topic``.
        by_topic: whether it is the MBean of each topic, with the label ``topic``, instead of the one of the node.
        kind: a counter is the ``Count`` of a meter, a gauge is a ``Value``.
        help: description shown by Prometheus.
    """

    bean: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    by_topic: bool = False

    @property
    def name(self) -> str:
        """Name in Prometheus."""
        domain, _, properties = self.bean.partition(":")
        values = [part.partition("=")[2] for part in properties.split(",")]
        if self.kind == "counter":
            values[-1] = _METER.sub("", values[-1]) + ("_by_topic_total" if self.by_topic else "_total")
        return "_".join([domain.replace(".", "_"), *values]).lower()

    @property
    def object_names(self) -> str:
        """Pattern of the object names to query."""
        return f"{self.bean},*" if self.by_topic else self.bean

    @property
    def rule(self) -> dict[str, Any]:
        """Rule of the exporter."""
        domain, _, properties = self.bean.partition(":")
        topic = ", topic=(.+)" if self.by_topic else ""
        attribute = "Count" if self.kind == "counter" else "Value"
        keys = ", ".join(properties.split(","))
        rule: dict[str, Any] = {
            "pattern": f"^{re.escape(domain)}<{keys}{topic}><>{attribute}",
            "name": self.name,
            "type": self.kind.upper(),
            "help": self.help,
            "cache": True,
        }
        return rule | ({"labels": {"topic": "$1"}} if self.by_topic else {})


_BROKER_HELP = {
    "UnderMinRackIsrPartitionCount": "Partitions led here whose ISR spans fewer racks than min.insync.racks",
    "AtMinRackIsrPartitionCount": "Partitions led here whose ISR spans exactly min.insync.racks racks",
    "UnderObservedMinRackIsrPartitionCount": (
        "Partitions led here whose ISR spans fewer racks than min.insync.racks.observe"
    ),
    "UnderMinIsrPartitionCount": "Partitions led here whose ISR has fewer replicas than min.insync.replicas",
    "AtMinIsrPartitionCount": "Partitions led here whose ISR has exactly min.insync.replicas replicas",
    "UnderReplicatedPartitions": "Partitions led here with replicas that are not in sync",
    "LeaderCount": "Partitions led here",
    "PartitionCount": "Replicas of partitions here",
}
_CONTROLLER_HELP = {
    "ActiveControllerCount": "1 on the active controller",
    "OfflinePartitionsCount": "Partitions without a leader",
    "FencedBrokerCount": "Registered brokers that are fenced",
    "ActiveBrokerCount": "Registered brokers that are not fenced",
    "BrokersWithoutRackCount": "Registered brokers without broker.rack while min.insync.racks is above 1 somewhere",
    "PartitionsInTooFewRacksCount": "Partitions whose replicas are in fewer racks than min.insync.racks",
    "ReassignmentsAwaitingRacksCount": "Reassignments that wait for in-sync replicas in more racks",
}
_TOPIC_METERS = "kafka.server:type=BrokerTopicMetrics,name="
METRICS: tuple[ExportedMetric, ...] = (
    *(ExportedMetric(f"kafka.server:type=ReplicaManager,name={name}", _BROKER_HELP[name]) for name in BROKER_GAUGES),
    ExportedMetric(
        "kafka.server:type=ReplicaManager,name=RackCheckFailureRate",
        "Appends rejected because of missing racks, for each partition of a request",
        "counter",
    ),
    ExportedMetric(
        "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", "Shrinks of ISRs by leaders here", "counter"
    ),
    ExportedMetric(
        "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec", "Expansions of ISRs by leaders here", "counter"
    ),
    ExportedMetric(
        f"kafka.server:type=KafkaServer,name={PROPERTY_ABOVE_CLUSTER_VALUE}",
        "1 if the properties have a higher min.insync.racks than the cluster, which is ignored",
    ),
    ExportedMetric("kafka.server:type=KafkaServer,name=BrokerState", "State of the broker; 3 is running"),
    *(
        ExportedMetric(f"kafka.controller:type=KafkaController,name={name}", _CONTROLLER_HELP[name])
        for name in CONTROLLER_GAUGES
    ),
    ExportedMetric(
        f"kafka.controller:type=KafkaController,name={AWAITING_LAST_KNOWN_ELR}",
        "Offline partitions that only a replica with an unclean shutdown can lead",
    ),
    ExportedMetric(
        f"{_TOPIC_METERS}{REJECTIONS}", "Appends rejected because of missing racks, by topic", "counter", by_topic=True
    ),
    ExportedMetric(
        f"{_TOPIC_METERS}{OBSERVED_REJECTIONS}", "Appends that min.insync.racks.observe would have rejected", "counter"
    ),
    ExportedMetric(
        f"{_TOPIC_METERS}{OBSERVED_REJECTIONS}",
        "Appends that min.insync.racks.observe would have rejected, by topic",
        "counter",
        by_topic=True,
    ),
    ExportedMetric(f"{_TOPIC_METERS}MessagesInPerSec", "Records received from producers", "counter"),
    ExportedMetric(f"{_TOPIC_METERS}BytesInPerSec", "Bytes received from producers", "counter"),
    ExportedMetric(f"{_TOPIC_METERS}FailedProduceRequestsPerSec", "Failed appends of produce requests", "counter"),
)


def exporter_configuration() -> dict[str, Any]:
    """Return the configuration of the JMX exporter's agent, for brokers and controllers alike."""
    return {
        "lowercaseOutputName": False,
        "includeObjectNames": list(dict.fromkeys(metric.object_names for metric in METRICS)),
        "rules": [metric.rule for metric in METRICS],
    }
