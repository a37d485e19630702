"""How a Kafka process of a cluster is configured, formatted and started; pure of where it runs."""

from __future__ import annotations

import base64
import secrets
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

# What differs from Kafka's defaults, and why; timeouts that decide about the ISR are left as they are.
_COMMON = {
    # two cores carry the whole cluster
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
}
_CONTROLLER = {
    # a machine busy with eight JVMs can pause one for longer than the default of 2 s
    "controller.quorum.fetch.timeout.ms": "6000",
}
_BROKER = {
    # How long a broker that hears nothing from the quorum may sleep, and nothing else: once it is over, the raft thread
    # of 4.3.1 polls without a pause (KafkaRaftClient.maybeSendFetchToBestNode waits for what is left of it), and a rack
    # that was cut off takes a core a broker from all others of the machine.
    "controller.quorum.fetch.timeout.ms": "600000",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "min.insync.replicas": "1",
}


def new_id() -> str:
    """A random id in Kafka's form (URL-safe base64 of 16 bytes), for a cluster or a directory."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        # Kafka's own tools would take a leading dash for an option
        if not text.startswith("-"):
            return text


def server_properties(
    node: Node, *, quorum: Sequence[str], data: Path | str, brokers: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of one Kafka process; ``extra`` wins.

    Args:
        node: whose.
        quorum: addresses (``host:port``) of the controllers.
        data: folder of its log.
        brokers: how many there are: internal topics have at most three replicas.
        extra: further properties, from the topology.
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
    # of a combined node the controller's hold
    if node.is_controller:
        properties |= _CONTROLLER
    return properties | dict(extra)


def render(properties: Mapping[str, str]) -> str:
    """Properties as the text of a file, for keys and values without control characters."""
    # a backslash begins an escape, at the end of a line it takes the next line to the value
    return "".join("{}={}\n".format(key, value.replace("\\", "\\\\")) for key, value in properties.items())


def java_command(
    *, classpath: str, heap_mb: int, properties: Path | str, log4j: Path | str = LOG4J, options: Sequence[str] = ()
) -> list[str]:
    """The words that start Kafka with a configuration file.

    Args:
        classpath: overlay first, or stock alone.
        heap_mb: maximal heap in MiB.
        properties: the configuration.
        log4j: the logging configuration.
        options: further ones of Java.
    """
    return [
        "java",
        *options,
        f"-Xmx{heap_mb}m",
        f"-Xms{heap_mb}m",
        # as Kafka's own start scripts
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
        # nodes share /tmp
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
    """Arguments of Kafka's storage tool that formats the disk of ``node``.

    Args:
        node: whose.
        properties: its configuration.
        cluster_id: the cluster's id.
        directory_ids: directory id of each controller, by node id.
        controllers: the first voters.
        joins: the node comes to a quorum that exists; as a controller it is no voter until it is made one.
    """
    words = ["format", "--config", str(properties), "--cluster-id", cluster_id]
    if node.is_controller and joins:
        words.append("--no-initial-controllers")
    elif node.is_controller:
        voters = ",".join(f"{c.node_id}@{c.quorum_address}:{directory_ids[c.node_id]}" for c in controllers)
        words += ["--initial-controllers", voters]
    return words
