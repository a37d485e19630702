"""A running lab as the programs in it see it: its nodes, its Kafka processes, its measured links."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyhooks.cluster import kafka, network, topics
from pyhooks.cluster.format import format_disks
from pyhooks.cluster.network import Rtt
from pyhooks.cluster.node import NODE_DISK, NamespaceMachine
from pyhooks.cluster.topology import Node, Topology, parse
from pyhooks.errors import RackgateError
from pyhooks.wait import wait_for

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LAB_VARIABLE = "RACKGATE_LAB"
BOOTSTRAP_VARIABLE = "RACKGATE_BOOTSTRAP"
RUN_DIR_VARIABLE = "RACKGATE_RUN_DIR"
BOOT_TIMEOUT_S = 120.0
ACTIVE_CONTROLLER = "Becoming the active controller"
# What is started here outlives the call that started it; the objects are kept so that nothing warns of them.
_KEPT: list[subprocess.Popen[bytes]] = []


def in_lab() -> bool:
    """Whether this process runs in a lab."""
    return bool(os.environ.get(LAB_VARIABLE))


@dataclass(frozen=True)
class Lab:
    """A lab from inside.

    Attributes:
        topology: what it was made from.
        source: the topology as parsed TOML, for manifests.
        pids: node name to PID of the node's first process.
        disks: node name to the folder that the node sees as /mnt.
        run_dir: folder of the run: logs, history, results; it outlives the lab.
        classpath: of the Kafka that runs in it.
        cluster_id: Kafka's.
        directory_ids: controller id to directory id.
        emulations: "left-right" to how the link is made.
    """

    topology: Topology
    source: dict[str, Any]
    pids: dict[str, int]
    disks: dict[str, str]
    run_dir: Path
    classpath: str
    cluster_id: str
    directory_ids: dict[str, str]
    emulations: dict[str, str]

    @staticmethod
    def attach() -> Lab:
        """The lab in which this process runs.

        Raises:
            RackgateError: not inside a lab.
        """
        path = os.environ.get(LAB_VARIABLE)
        if not path:
            raise RackgateError(
                f"not inside a lab ({LAB_VARIABLE} is not set): start this with 'rackgate lab run --topology … --'"
            )
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        raw["run_dir"] = Path(raw["run_dir"])
        return Lab(topology=parse(raw["source"], source=path), **raw)

    def save(self, path: Path) -> None:
        """Writes what ``attach`` reads."""
        raw = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "topology"}
        path.write_text(json.dumps(raw | {"run_dir": str(self.run_dir)}, indent=1), encoding="utf-8")

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return self.topology.bootstrap

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return self.topology.nodes

    @property
    def history_path(self) -> Path:
        """The one history of the run."""
        return self.run_dir / "history.jsonl"

    def node(self, name: str) -> Node:
        """The node called ``name``.

        Raises:
            RackgateError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise RackgateError(f"lab {self.topology.name}: no node {name!r}")

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """The brokers of a rack, or all."""
        if rack is None:
            return self.topology.brokers
        return tuple(node for node in self.topology.site(rack).nodes if node.role == "broker")

    def machine(self, node: Node) -> NamespaceMachine:
        """What runs commands on ``node``."""
        return NamespaceMachine(node.name, self.pids[node.name])

    @cached_property
    def admin(self) -> AdminClient:
        """A client for metadata, made at first use."""
        return topics.admin(self.bootstrap)

    # -- Kafka processes ------------------------------------------------------------------------------------------

    def configure(self, node: Node) -> Path:
        """Writes the configuration of ``node`` for its storage to be formatted; returns the file as the lab sees it."""
        disk = Path(self.disks[node.name])
        topology = self.topology
        extra = topology.broker_properties if node.role == "broker" else topology.controller_properties
        quorum = [controller.address for controller in topology.controllers]
        for name, data in (("server.properties", NODE_DISK / "data"), ("format.properties", disk / "data")):
            text = kafka.render(kafka.server_properties(node, quorum=quorum, data=data, extra=extra))
            (disk / name).write_text(text, encoding="utf-8")
        return disk / "format.properties"

    def format(self, nodes: Sequence[Node]) -> None:
        """Formats the disks of ``nodes``.

        Raises:
            RackgateError: the storage tool refused.
        """
        directory_ids = {int(key): value for key, value in self.directory_ids.items()}
        calls = [
            kafka.format_arguments(
                node,
                properties=self.configure(node),
                cluster_id=self.cluster_id,
                directory_ids=directory_ids,
                controllers=self.topology.controllers,
            )
            for node in nodes
        ]
        format_disks(self.classpath, calls)

    def log(self, node: Node) -> Path:
        """The log of the node's Kafka process."""
        return self.run_dir / "logs" / f"{node.name}.log"

    def start_kafka(self, node: Node) -> None:
        """Starts Kafka on ``node`` and does not wait until it serves; does nothing if it runs.

        The process id is kept on the node's disk, as the node sees it.

        Raises:
            RackgateError: not even a process came to be.
        """
        if self.kafka_pid(node) is not None:
            return
        topology = self.topology
        heap_mb = topology.broker_heap_mb if node.role == "broker" else topology.controller_heap_mb
        command = kafka.java_command(
            classpath=self.classpath, heap_mb=heap_mb, properties=NODE_DISK / "server.properties"
        )
        self.log(node).parent.mkdir(parents=True, exist_ok=True)
        # the shell writes its PID and becomes Java
        words = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(NODE_DISK / "kafka.pid"), *command]
        pid_file = Path(self.disks[node.name]) / "kafka.pid"
        pid_file.unlink(missing_ok=True)
        started = self.machine(node).popen(words, log=self.log(node))
        _KEPT.append(started)
        wait_for(
            lambda: self.kafka_pid(node) is not None or started.poll() is not None,
            what=f"a process on {node.name}",
            timeout_s=20,
            interval_s=0.01,
        )

    def kafka_pid(self, node: Node) -> int | None:
        """PID of the node's Kafka process inside the node, or None if it does not run."""
        path = Path(self.disks[node.name]) / "kafka.pid"
        if not path.exists() or not (text := path.read_text(encoding="ascii").strip()):
            return None
        # A killed JVM is a zombie while its last threads still hold its sockets: it is gone when the entry is gone.
        return int(text) if Path(f"/proc/{self.pids[node.name]}/root/proc/{text}").exists() else None

    def kill_kafka(self, node: Node) -> None:
        """Ends the node's Kafka process at once (SIGKILL) and waits until it is gone; does nothing if it does not run.

        Raises:
            RackgateError: it would not go.
        """
        pid = self.kafka_pid(node)
        if pid is None:
            return
        self.machine(node).run(["kill", "-KILL", str(pid)])
        wait_for(lambda: self.kafka_pid(node) is None, what=f"{node.name} to end", timeout_s=20, interval_s=0.02)

    # -- seen from outside ----------------------------------------------------------------------------------------

    def unfenced(self) -> frozenset[int]:
        """Ids of the brokers that the cluster's metadata lists, i.e. registered and not fenced."""
        return topics.unfenced(self.admin)

    def cut(self, site: str) -> None:
        """Drops everything between ``site`` and all others, both ways; cutting twice is the same as once."""
        network.cut(self.topology, site)

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""
        network.join(site)

    def wait_quorum(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Waits until a controller is active, by the controllers' logs (there is no broker to ask yet).

        Raises:
            RackgateError: none is in time, or a process ended; the message names it and its log.
        """

        def active() -> bool:
            self._all_run(self.topology.controllers)
            return any(ACTIVE_CONTROLLER in self.read_log(node) for node in self.topology.controllers)

        wait_for(active, what="an active controller", timeout_s=timeout_s, interval_s=0.1)

    def _all_run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if self.kafka_pid(node) is None:
                tail = "\n".join(self.read_log(node).splitlines()[-15:])
                raise RackgateError(f"{node.name} ended while starting, see {self.log(node)}", detail=tail)

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Waits until all of ``nodes`` are registered and unfenced.

        Raises:
            RackgateError: they are not in time, or a process ended; the message names it and its log.
        """
        wanted = {node.node_id for node in nodes}

        def ready() -> bool:
            self._all_run(nodes)
            return wanted <= self.unfenced()

        wait_for(
            ready,
            what=f"brokers {sorted(wanted)} registered and unfenced",
            timeout_s=timeout_s,
            interval_s=0.2,
        )

    def read_log(self, node: Node) -> str:
        """All that the node's Kafka processes have logged so far."""
        path = self.log(node)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def machine_or_client(self, node: Node | None) -> NamespaceMachine | None:
        """The machine of ``node``; None stands for the clients' own place."""
        return self.machine(node) if node is not None else None

    def answers(self, target: Node, source: Node | None = None) -> bool:
        """Whether ``target`` answers at least one of three echo requests from ``source`` (or the clients)."""
        return network.answers(target.ip, self.machine_or_client(source))

    def rtt_matrix(self, count: int = 50) -> tuple[Rtt, ...]:
        """Measured round-trip times: clients to each site, and each site to each other, all at the same time.

        Args:
            count: echo requests for each pair.

        Raises:
            RackgateError: a site does not answer.
        """
        firsts = [site.nodes[0] for site in self.topology.sites if site.nodes]
        pairs: list[tuple[Node | None, Node]] = [(None, node) for node in firsts]
        pairs += [(left, right) for index, left in enumerate(firsts) for right in firsts[index + 1 :]]

        def measure(pair: tuple[Node | None, Node]) -> Rtt:
            source, target = pair
            name = source.name if source else "clients"
            return network.ping(name, target.name, target.ip, self.machine_or_client(source), count)

        with ThreadPoolExecutor(len(pairs)) as pool:
            return tuple(pool.map(measure, pairs))
