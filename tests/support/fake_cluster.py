"""Fake brokers that speak Kafka's protocol and respond with a test's data.

Responses are written in the JSON of Kafka's message converters, so this process must be able to start a JVM.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jpype

from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.placement import cluster_query

LISTENING = "127.0.0.1"
# message name -> (highest supported version, API key)
APIS = {
    "Produce": (14, 0),
    "Metadata": (12, 3),
    "ApiVersions": (4, 18),
    "DescribeConfigs": (4, 32),
    "ListPartitionReassignments": (0, 46),
    "DescribeQuorum": (1, 55),
    "DescribeCluster": (2, 60),
    "DescribeTopicPartitions": (0, 75),
}
NAMES = {key: name for name, (_, key) in APIS.items()}
# first version of each API with a flexible response header (one that ends with tagged fields)
FLEXIBLE = {
    "Metadata": 9,
    "DescribeConfigs": 4,
    "ListPartitionReassignments": 0,
    "DescribeQuorum": 0,
    "DescribeCluster": 0,
    "DescribeTopicPartitions": 0,
}
LARGEST = 100 * 1024 * 1024
NULL_ID = "AAAAAAAAAAAAAAAAAAAAAA"
ON = {RACKS_FEATURE: 1, ELR_FEATURE: 1}
SILENT, CLOSE = b"silent", b"close"
# A test's own handler: takes API name and request; returns a response, its bytes, or None for the default response.
Odd = Callable[[str, Mapping[str, Any]], Mapping[str, Any] | bytes | None]


def encode(name: str, version: int, body: Mapping[str, Any]) -> bytes:
    """Serialize a response, without its header."""
    message = "org.apache.kafka.common"
    mapper = _java("com.fasterxml.jackson.databind.ObjectMapper")()
    data = _java(f"{message}.message.{name}ResponseDataJsonConverter").read(mapper.readTree(json.dumps(body)), version)
    buffer = _java(f"{message}.protocol.MessageUtil").toByteBufferAccessor(data, version).buffer()
    return bytes(buffer.array())[buffer.arrayOffset() + buffer.position() : buffer.arrayOffset() + buffer.limit()]


def decode(name: str, version: int, body: bytes) -> dict[str, Any]:
    """Parse a request, without its header."""
    message = "org.apache.kafka.common"
    accessor = _java(f"{message}.protocol.ByteBufferAccessor")(
        jpype.java.nio.ByteBuffer.wrap(jpype.JArray(jpype.JByte)(body))
    )
    data = _java(f"{message}.message.{name}RequestData")(accessor, version)
    found: dict[str, Any] = json.loads(
        str(_java(f"{message}.message.{name}RequestDataJsonConverter").write(data, version).toString())
    )
    return found


@cache
def _java(name: str) -> Any:
    cluster_query.disable_client_log()
    return jpype.JClass(name)


@dataclass
class FakeCluster:
    """Fake cluster whose brokers listen on loopback.

    Attributes:
        racks: rack by broker id; None for a broker without a rack.
        topics: replicas of each partition by topic; the first replica leads.
        settings: ``min.insync.replicas`` and ``min.insync.racks`` of a topic, as brokers report them.
        defaults: the same two values at broker level.
        odd: handlers for non-default responses, by broker id.
        offline: partitions without a leader.
        ports: port by broker id, while the cluster runs.
    """

    racks: Mapping[int, str | None]
    topics: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    settings: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    defaults: tuple[str | None, str | None] = ("1", "1")
    odd: Mapping[int, Odd] = field(default_factory=dict)
    offline: frozenset[tuple[str, int]] = frozenset()
    ports: dict[int, int] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(f"{LISTENING}:{port}" for port in self.ports.values())

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port by broker."""
        return {broker: (LISTENING, port) for broker, port in self.ports.items()}

    @contextmanager
    def running(self) -> Iterator[FakeCluster]:
        """Run the brokers during the block."""
        with ExitStack() as kept:
            listeners = {broker: kept.enter_context(socket.create_server((LISTENING, 0))) for broker in self.racks}
            self.ports.update({broker: one.getsockname()[1] for broker, one in listeners.items()})
            for broker, listener in listeners.items():
                # close() alone does not wake a thread blocked in accept()
                kept.callback(listener.shutdown, socket.SHUT_RDWR)
                threading.Thread(target=self._accept, args=(broker, listener, kept), daemon=True).start()
            yield self

    def _accept(self, broker: int, listener: socket.socket, kept: ExitStack) -> None:
        with suppress(OSError):
            while True:
                connection = kept.enter_context(listener.accept()[0])
                threading.Thread(target=self._serve, args=(broker, connection), daemon=True).start()

    def _serve(self, broker: int, connection: socket.socket) -> None:
        stream = connection.makefile("rwb")
        with suppress(OSError, ValueError):
            while len(size := stream.read(4)) == 4:
                if int.from_bytes(size) > LARGEST:
                    # as real brokers do when a client speaks TLS to a plaintext listener
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                request = stream.read(int.from_bytes(size))
                key, version, correlation, client = struct.unpack(">hhih", request[:10])
                if key not in NAMES:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                # every request header here ends with an empty set of tagged fields
                name, body = NAMES[key], request[11 + client :]
                response = self._answer(broker, name, version, body)
                if response == SILENT:
                    continue
                if response == CLOSE:
                    # close() would leave the connection open, as ``stream`` still refers to it
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                tags = b"\0" if version >= FLEXIBLE.get(name, 99) else b""
                payload = correlation.to_bytes(4) + tags + response
                stream.write(len(payload).to_bytes(4) + payload)
                stream.flush()

    def _answer(self, broker: int, name: str, version: int, body: bytes) -> bytes:
        request = decode(name, version, body)
        response = self.odd[broker](name, request) if broker in self.odd else None
        if response is None:
            response = getattr(self, f"_{name}")(broker, request)
        return response if isinstance(response, bytes) else encode(name, version, response)

    def _ApiVersions(self, _broker: int, _request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802 - Kafka's name
        return {
            "errorCode": 0,
            "throttleTimeMs": 0,
            "apiKeys": [{"apiKey": key, "minVersion": 0, "maxVersion": version} for version, key in APIS.values()],
            "supportedFeatures": [{"name": name, "minVersion": 0, "maxVersion": 1} for name in ON],
            "finalizedFeaturesEpoch": 7,
            "finalizedFeatures": [{"name": n, "maxVersionLevel": 1, "minVersionLevel": 1} for n in ON],
        }

    def _brokers(self, key: str) -> list[dict[str, Any]]:
        return [
            {key: broker, "host": LISTENING, "port": self.ports[broker], "rack": rack}
            for broker, rack in self.racks.items()
        ]

    def _DescribeCluster(self, _broker: int, _request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {
            "throttleTimeMs": 0,
            "errorCode": 0,
            "errorMessage": None,
            "endpointType": 1,
            "clusterId": "fake",
            "controllerId": min(self.racks),
            "brokers": [{**one, "isFenced": False} for one in self._brokers("brokerId")],
            "clusterAuthorizedOperations": -2147483648,
        }

    def _partitions(self, topic: str) -> list[dict[str, Any]]:
        return [
            {
                "errorCode": 0,
                "partitionIndex": number,
                "leaderId": -1 if (topic, number) in self.offline else brokers[0],
                "leaderEpoch": 0,
                "replicaNodes": list(brokers),
                "isrNodes": list(brokers),
                "offlineReplicas": [],
            }
            for number, brokers in enumerate(self.topics[topic])
        ]

    def _Metadata(self, _broker: int, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        wanted = self.topics if request["topics"] is None else [one["name"] for one in request["topics"]]
        return {
            "throttleTimeMs": 0,
            "brokers": self._brokers("nodeId"),
            "clusterId": "fake",
            "controllerId": min(self.racks),
            "topics": [
                {
                    "errorCode": 0,
                    "name": name,
                    "topicId": NULL_ID,
                    "isInternal": False,
                    # Kafka's client uses the response to a request for all topics only to list their names
                    "partitions": [] if request["topics"] is None else self._partitions(name),
                    "topicAuthorizedOperations": -2147483648,
                }
                for name in wanted
            ],
        }

    def _DescribeTopicPartitions(self, _broker: int, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        names = sorted(one["name"] for one in request["topics"])
        if request.get("cursor"):
            names = [name for name in names if name >= request["cursor"]["topicName"]]
        # Limit the partitions of a response as brokers do, except that topics are never split.
        chosen, partitions = [], 0
        while names and partitions < request["responsePartitionLimit"]:
            chosen.append(names.pop(0))
            partitions += len(self.topics[chosen[-1]])
        return {
            "throttleTimeMs": 0,
            "topics": [
                {
                    "errorCode": 0,
                    "name": name,
                    "topicId": NULL_ID,
                    "isInternal": False,
                    "partitions": [
                        {**one, "eligibleLeaderReplicas": [], "lastKnownElr": []} for one in self._partitions(name)
                    ],
                    "topicAuthorizedOperations": -2147483648,
                }
                for name in chosen
            ],
            "nextCursor": {"topicName": names[0], "partitionIndex": 0} if names else None,
        }

    def _DescribeConfigs(self, _broker: int, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        results = []
        for one in request["resources"]:
            topic = one["resourceType"] == 2
            values = self.settings.get(one["resourceName"], self.defaults) if topic else self.defaults
            own = topic and one["resourceName"] in self.settings
            configs = [
                {**BLANK, "name": key, "value": value, "configSource": 1 if own else 5}
                for key, value in zip(("min.insync.replicas", "min.insync.racks"), values, strict=True)
            ]
            results.append({**one, "errorCode": 0, "errorMessage": None, "configs": configs})
        for result in results:
            result.pop("configurationKeys")
        return {"throttleTimeMs": 0, "results": results}

    def _ListPartitionReassignments(self, _broker: int, _request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "topics": []}

    def _DescribeQuorum(self, _broker: int, _request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
        voters = [
            {"replicaId": one, "logEndOffset": 1, "lastFetchTimestamp": -1, "lastCaughtUpTimestamp": -1}
            for one in list(self.racks)[:3]
        ]
        partition = {
            "partitionIndex": 0,
            "errorCode": 0,
            "leaderId": voters[0]["replicaId"],
            "leaderEpoch": 1,
            "highWatermark": 1,
            "currentVoters": voters,
            "observers": [],
        }
        return {"errorCode": 0, "topics": [{"topicName": "__cluster_metadata", "partitions": [partition]}]}


BLANK = {
    "readOnly": False,
    "isSensitive": False,
    "synonyms": [],
    "configType": 3,
    "documentation": None,
}
