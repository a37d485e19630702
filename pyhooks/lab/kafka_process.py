"""Configuration, storage formatting and start command of a Kafka process, independent of where it runs."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyhooks.lab.topology import Node, Role

# node's role -> Kafka's process.roles
ROLES: Mapping[Role, tuple[str, ...]] = {
    "broker": ("broker",),
    "controller": ("controller",),
    "combined": ("broker", "controller"),
}
LOG4J = Path(__file__).parent / "log4j2.properties"
# A node sees its disk as /mnt; in the lab the same folder is <lab>/<node>.
NODE_DISK = Path("/mnt")
# of the metrics agent, on the disk of the node
METRICS_SOCKET = "metrics.sock"

PERFORMANCE_VARIABLE = "KAFKA_JVM_PERFORMANCE_OPTS"
# as in Kafka's own start scripts
PERFORMANCE_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# Deviations from Kafka's defaults, with reasons. Timeouts that affect the ISR keep their defaults.
_COMMON = {
    # the whole cluster runs on two cores
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
}
_CONTROLLER = {
    # On a machine busy with eight JVMs, one can pause for longer than the default of 2 s.
    "controller.quorum.fetch.timeout.ms": "6000",
}
_BROKER = {
    # On a broker this only limits how long it sleeps without contact to the quorum. After that, the raft thread
    # polls in a busy loop (KafkaRaftClient.maybeSendFetchToBestNode waits for the remaining timeout), and each
    # broker of a partitioned rack would take a core from the other processes.
    "controller.quorum.fetch.timeout.ms": "600000",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "min.insync.replicas": "1",
}


def new_id() -> str:
    """Return a random cluster or directory id in Kafka's form (URL-safe base64 of 16 bytes)."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        # Kafka's tools would take a leading dash for an option
        if not text.startswith("-"):
            return text


def server_properties(
    node: Node, *, quorum: Sequence[str], data: Path | str, brokers: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the configuration of a Kafka process; ``extra`` takes precedence.

    Args:
        node: node of the process.
        quorum: addresses (``host:port``) of the controllers.
        data: log directory.
        brokers: number of brokers; limits the replication factor of internal topics, which is at most three.
        extra: additional properties, from the topology.
    """
    listeners = []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://{node.address}")
    if node.is_controller:
        listeners.append(f"CONTROLLER://{node.quorum_address}")
    properties = {
        "process.roles": ",".join(ROLES[node.role]),
        "node.id": str(node.node_id),
        "controller.quorum.bootstrap.servers": ",".join(quorum),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "log.dirs": str(data),
        **_COMMON,
    }
    if node.is_broker:
        replicas = str(min(3, brokers))
        properties |= {
            "broker.rack": node.site,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            **_BROKER,
        }
    # on a combined node the controller's settings take precedence
    if node.is_controller:
        properties |= _CONTROLLER
    return properties | dict(extra)


def render(properties: Mapping[str, str]) -> str:
    """Return the content of a properties file, for keys and values without control characters."""
    # A backslash starts an escape; at the end of a line it would continue the value on the next line.
    return "".join("{}={}\n".format(key, value.replace("\\", "\\\\")) for key, value in properties.items())


def performance_options() -> tuple[str, ...]:
    """Return the JVM options of ``KAFKA_JVM_PERFORMANCE_OPTS``, which Kafka's start scripts read, or their defaults."""
    return tuple(shlex.split(os.environ.get(PERFORMANCE_VARIABLE, ""))) or PERFORMANCE_OPTIONS


def java_command(
    *,
    classpath: str,
    heap_mb: int,
    properties: Path | str,
    log4j: Path | str = LOG4J,
    options: Sequence[str] = (),
    performance: Sequence[str] = PERFORMANCE_OPTIONS,
) -> list[str]:
    """Return the command line that starts Kafka with a configuration file."""
    return [
        "java",
        *options,
        f"-Xmx{heap_mb}m",
        f"-Xms{heap_mb}m",
        *performance,
        # all nodes share /tmp
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        classpath,
        "kafka.Kafka",
        str(properties),
    ]


def format_arguments(
    node: Node,
    *,
    properties: Path | str,
    cluster_id: str,
    directory_ids: Mapping[int, str],
    controllers: Sequence[Node],
    joins: bool = False,
) -> list[str]:
    """Return the arguments of Kafka's storage tool to format the disk of ``node``.

    With ``joins``, the node joins an existing quorum; a controller then starts as an observer.
    """
    arguments = ["format", "--config", str(properties), "--cluster-id", cluster_id]
    if node.is_controller and joins:
        arguments.append("--no-initial-controllers")
    elif node.is_controller:
        voters = ",".join(f"{c.node_id}@{c.quorum_address}:{directory_ids[c.node_id]}" for c in controllers)
        arguments += ["--initial-controllers", voters]
    return arguments
