"""Cluster of the outage procedure: observations and changes of R with Kafka's Java clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jpype

from pyhooks.jvm.admin import Admin, OffsetAndEpoch
from pyhooks.jvm.change_error import change_error
from pyhooks.jvm.java_exception import JavaError
from pyhooks.kafka.gate import MIN_INSYNC_RACKS
from pyhooks.outage.lowering_cost import RecordCounts
from pyhooks.placement import cluster_query
from pyhooks.placement.topic_observation import ObservedTopic, observe_topic

_OFFSETS_S = 5.0
_EPOCH_VERSION = 4  # of OffsetForLeaderEpoch, only for the JSON of a request and its response


@dataclass(frozen=True)
class OutageCluster:
    """Cluster of an operator."""

    bootstrap: str  # ``host:port,…``
    config: Mapping[str, str]  # further properties of Kafka's clients
    timeout_s: float  # timeout of each query or change, in seconds
    report_step: Callable[[str], None]  # called with a description of each step

    def cluster_id(self) -> str:
        """Return Kafka's cluster id.

        Raises:
            RackgateError: the cluster can't be queried.
        """
        self.report_step("connecting")
        return cluster_query.query_cluster_id(self.bootstrap, self.config, timeout_s=self.timeout_s)

    def observe(self, topics: Collection[str]) -> Mapping[str, ObservedTopic]:
        """See ``steps.TopicConfigs.observe``."""
        observation = cluster_query.query_cluster(
            self.bootstrap, self.config, timeout_s=self.timeout_s, report_step=self.report_step, only=topics
        )
        return {topic.name: observe_topic(topic, observation) for topic in observation.cluster.topics}

    def set_racks(self, topic: str, value: int | None) -> None:
        """See ``steps.TopicConfigs.set_racks``."""
        action = f"remove {MIN_INSYNC_RACKS}" if value is None else f"set {MIN_INSYNC_RACKS}={value}"
        self.report_step(f"topic {topic}: {action}")
        try:
            with Admin.responsive(self.bootstrap, timeout_s=self.timeout_s, config=self.config) as admin:
                admin.set_topic_config(topic, MIN_INSYNC_RACKS, None if value is None else str(value))
        except JavaError as error:
            raise change_error(action, error) from error

    def count_records(self, topics: Collection[ObservedTopic]) -> dict[tuple[str, int], RecordCounts]:
        """Count the records of partitions; those that a leader does not report are unknown."""
        leaders = {
            (one.topic, one.number): one.leader for topic in topics for one in topic.partitions if one.leader >= 0
        }
        self.report_step("counting records")
        try:
            with Admin.responsive(self.bootstrap, timeout_s=_OFFSETS_S, config=self.config) as admin:
                admin.deadline = time.monotonic() + 2 * _OFFSETS_S
                addresses = {node.broker_id: (node.host, node.port) for node in admin.cluster()[1]}
                starts = admin.offsets(leaders.keys(), latest=False)
                watermarks = admin.offsets(leaders.keys(), latest=True)
        except JavaError:
            return {}
        epochs: dict[int, dict[tuple[str, int], int]] = {}
        for partition, watermark in watermarks.items():
            if isinstance(watermark, OffsetAndEpoch) and watermark.epoch >= 0 and leaders[partition] in addresses:
                epochs.setdefault(leaders[partition], {})[partition] = watermark.epoch
        ends: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + 2 * _OFFSETS_S
        for leader, partitions in epochs.items():
            # each leader that is silent takes this time; in an outage there can be many
            if time.monotonic() < deadline:
                ends |= self._log_ends(leader, addresses[leader], partitions)
        counts = {}
        for partition, watermark in watermarks.items():
            start, end = starts[partition], ends.get(partition)
            if isinstance(watermark, OffsetAndEpoch):
                acknowledged = watermark.offset - start.offset if isinstance(start, OffsetAndEpoch) else None
                counts[partition] = RecordCounts(acknowledged, None if end is None else max(0, end - watermark.offset))
        return counts

    def _log_ends(
        self, broker: int, address: tuple[str, int], epochs: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Return log end offsets, which clients see as the end of the leader's epoch; none if the leader fails."""
        try:
            return _query_log_ends(broker, address, epochs, self.config)
        except jpype.JException:
            return {}


def _query_log_ends(
    broker: int, address: tuple[str, int], epochs: Mapping[tuple[str, int], int], config: Mapping[str, str]
) -> dict[tuple[str, int], int]:
    clients = jpype.JPackage("org").apache.kafka.clients
    timeout_ms = round(_OFFSETS_S * 1000)
    with cluster_query.network_client(broker, address, config, timeout_ms) as client:
        if not clients.NetworkClientUtils.awaitReady(client.java, client.node, client.clock, timeout_ms):
            return {}
        request = client.java.newClientRequest(
            client.node.idString(), _epochs_request(epochs), client.clock.milliseconds(), True
        )
        response = clients.NetworkClientUtils.sendAndReceive(client.java, request, client.clock)
    converter = jpype.JClass("org.apache.kafka.common.message.OffsetForLeaderEpochResponseDataJsonConverter")
    data = json.loads(str(converter.write(response.responseBody().data(), jpype.JShort(_EPOCH_VERSION)).toString()))
    return {
        (topic["topic"], partition["partition"]): int(partition["endOffset"])
        for topic in data["topics"]
        for partition in topic["partitions"]
        if not partition["errorCode"] and partition["endOffset"] >= 0
    }


def _epochs_request(epochs: Mapping[tuple[str, int], int]) -> Any:
    by_topic: dict[str, list[dict[str, int]]] = {}
    for (topic, number), epoch in epochs.items():
        by_topic.setdefault(topic, []).append({"partition": number, "currentLeaderEpoch": -1, "leaderEpoch": epoch})
    request = {
        "replicaId": -1,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic.items()],
    }
    mapper = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")()
    converter = jpype.JClass("org.apache.kafka.common.message.OffsetForLeaderEpochRequestDataJsonConverter")
    data = converter.read(mapper.readTree(json.dumps(request)), jpype.JShort(_EPOCH_VERSION))
    builder = jpype.JClass("org.apache.kafka.common.requests.OffsetsForLeaderEpochRequest$Builder")
    return builder.forConsumer(data.topics())
