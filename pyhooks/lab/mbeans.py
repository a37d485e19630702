"""MBeans of Kafka processes: the beans to read, and the sources that read them.

In a lab each Kafka process has an agent (``rackgate.hooks.MetricsAgent``) that serves metrics on a Unix domain socket
on the node's disk, so that the metrics of a partitioned rack stay readable. Kafka documents the beans under
"Monitoring"; the patch series adds those about racks.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.lab.kafka_process import METRICS_SOCKET

if TYPE_CHECKING:
    from pyhooks.lab.lab import Lab

RESPONSE_BYTES_MAX = 48 * 1024 * 1024

PARTITION_GAUGES = (
    "UnderMinRackIsr",
    "AtMinRackIsr",
    "IsrRackCount",
    "UnderMinIsr",
    "AtMinIsr",
    "InSyncReplicasCount",
)
BROKER_GAUGES = (
    "UnderMinRackIsrPartitionCount",
    "AtMinRackIsrPartitionCount",
    "UnderObservedMinRackIsrPartitionCount",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
    "UnderReplicatedPartitions",
    "LeaderCount",
    "PartitionCount",
)
# Registered brokers without a rack while some min.insync.racks is above 1.
BROKERS_WITHOUT_RACK = "BrokersWithoutRackCount"
# Partitions whose target replicas (after any reassignment) span too few racks.
PARTITIONS_IN_TOO_FEW_RACKS = "PartitionsInTooFewRacksCount"
# Reassignments that wait for in-sync replicas in more racks.
REASSIGNMENTS_AWAITING_RACKS = "ReassignmentsAwaitingRacksCount"
CONTROLLER_GAUGES = (
    "ActiveControllerCount",
    "OfflinePartitionsCount",
    "FencedBrokerCount",
    "ActiveBrokerCount",
    BROKERS_WITHOUT_RACK,
    PARTITIONS_IN_TOO_FEW_RACKS,
    REASSIGNMENTS_AWAITING_RACKS,
)
# 1 on a broker whose properties set min.insync.racks higher than the cluster-wide value in the metadata.
PROPERTY_ABOVE_CLUSTER_VALUE = "MinInSyncRacksExceedsMetadata"
# Rejected appends because of missing racks, per topic and in total.
REJECTIONS = "RackCheckFailuresPerSec"
# Appends with acks=all that min.insync.racks.observe would have rejected.
OBSERVED_REJECTIONS = "ObservedRackCheckFailuresPerSec"
# (object name pattern, attributes)
BEANS: tuple[tuple[str, str], ...] = (
    *((f"kafka.cluster:type=Partition,name={name},*", "Value") for name in PARTITION_GAUGES),
    ("kafka.log:type=Log,name=LogEndOffset,*", "Value"),
    *((f"kafka.server:type=ReplicaManager,name={name}", "Value") for name in BROKER_GAUGES),
    ("kafka.server:type=ReplicaManager,name=RackCheckFailureRate", "Count,OneMinuteRate"),
    ("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", "Count"),
    ("kafka.server:type=ReplicaManager,name=IsrExpandsPerSec", "Count"),
    *((f"kafka.controller:type=KafkaController,name={name}", "Value") for name in CONTROLLER_GAUGES),
    (f"kafka.server:type=KafkaServer,name={PROPERTY_ABOVE_CLUSTER_VALUE}", "Value"),
    (f"kafka.server:type=BrokerTopicMetrics,name={REJECTIONS},*", "Count"),
    (f"kafka.server:type=BrokerTopicMetrics,name={OBSERVED_REJECTIONS},*", "Count"),
    ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,*", "Count"),
    ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,*", "Count"),
    ("kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec,*", "Count"),
    ("kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,*", "Count"),
    ("kafka.server:type=KafkaServer,name=BrokerState", "Value"),
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r"}


@dataclass(frozen=True)
class MetricsReading:
    """Metrics of one JVM, read once."""

    rows: tuple[tuple[str, str, str], ...]  # object name, attribute, value as text
    errors: tuple[str, ...] = ()  # values that could not be read, with the reasons
    size: int = 0


class MetricsSource(Protocol):
    """Source of the metrics of one Kafka process."""

    @property
    def broker(self) -> int:
        """Node id."""

    @property
    def name(self) -> str:
        """Node name."""

    @property
    def rack(self) -> str | None:
        """Site of the node."""

    def read(self, timeout_s: float) -> MetricsReading:
        """Read all of ``BEANS``.

        Raises:
            RackgateError: no complete response in time.
        """


@dataclass(frozen=True)
class SocketSource:
    """JVM that runs ``MetricsAgent``."""

    broker: int
    name: str
    rack: str | None
    path: Path

    def read(self, timeout_s: float) -> MetricsReading:
        """See ``MetricsSource.read``."""
        return self.query(BEANS, timeout_s)

    def query(self, beans: Iterable[tuple[str, str]], timeout_s: float) -> MetricsReading:
        """Read the given beans.

        Args:
            beans: object name or pattern, and attributes separated by commas (``*``: all).
            timeout_s: timeout in seconds.

        Raises:
            RackgateError: no complete response in time; the message gives the cause.
        """
        request = "\t".join(_escape(field) for pair in beans for field in pair) + "\n"
        deadline = time.monotonic() + timeout_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(self.path))
                connection.sendall(request.encode())
                text = b"".join(_until(connection, deadline))
        except TimeoutError as error:
            raise RackgateError(f"{self.name}: no metrics within {timeout_s:g} s: it is paused or busy") from error
        except FileNotFoundError as error:
            raise RackgateError(
                f"{self.name}: no metrics: {self.path} is missing: started without the agent, or still starting"
            ) from error
        except (ConnectionResetError, BrokenPipeError) as error:
            raise RackgateError(
                f"{self.name}: no metrics: it closed the connection: too many requests, or it is ending"
            ) from error
        except OSError as error:
            raise RackgateError(f"{self.name}: no metrics: {self.path}: {error.strerror or error}") from error
        return parse_metrics(text, self.name)


def lab_sources(lab: Lab) -> tuple[SocketSource, ...]:
    """Return the sources of all Kafka processes of a lab, including controllers."""
    sockets = {node: Path(lab.disks[node.name]) / METRICS_SOCKET for node in lab.nodes}
    return tuple(SocketSource(node.node_id, node.name, node.site, path) for node, path in sockets.items())


def _until(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    size = 0
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(1 << 18)
        if not part:
            return
        size += len(part)
        if size > RESPONSE_BYTES_MAX:
            raise OSError(f"the response exceeds {RESPONSE_BYTES_MAX} bytes")
        yield part


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), text) if "\\" in text else text


def parse_metrics(response: bytes, name: str) -> MetricsReading:
    """Parse a response of the agent, whose Java class comment describes the lines.

    Raises:
        RackgateError: the response is truncated, unreadable or has only errors.
    """
    rows: list[tuple[str, str, str]] = []
    errors: list[str] = []
    end: list[str] = []
    for line in response.decode(errors="replace").split("\n"):
        fields = [_unescape(field) for field in line.split("\t")]
        if fields[0] == "=" and len(fields) == 4:
            rows.append((fields[1], fields[2], fields[3]))
        elif fields[0] == "!" and len(fields) == 3:
            errors.append(f"{fields[1]}: {fields[2]}" if fields[1] else fields[2])
        elif fields[0] == "." and len(fields) == 3:
            end = fields
        elif line:
            raise RackgateError(f"{name}: no metrics: can't read the line {line[:80]!r}")
    if end != [".", str(len(rows)), str(len(errors))]:
        raise RackgateError(f"{name}: no metrics: the response ends early, after {len(response)} bytes")
    if errors and not rows:
        raise RackgateError(f"{name}: no metrics: {errors[0]}")
    return MetricsReading(tuple(rows), tuple(errors), len(response))
