"""A KRaft cluster with racks as a ducktape service: one Kafka process a node, stock or with the overlay."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ducktape.services.service import Service

from pyhooks.cluster import echo, kafka, network, topics
from pyhooks.cluster.lab import ACTIVE_CONTROLLER, BOOT_TIMEOUT_S, in_lab
from pyhooks.cluster.topology import Node, Topology
from pyhooks.errors import RackgateError
from pyhooks.wait import wait_for

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

HOME = "/mnt/kafka"
LOG = f"{HOME}/server.log"
DATA = f"{HOME}/data"


class RackKafka(Service):
    """Starts the controllers and brokers of a topology on the nodes of the cluster.

    In a lab a node of the topology runs on the machine of the same name; on other hosts the nodes of the topology
    are dealt out in order, and their addresses are those of the hosts.

    Args:
        context: ducktape's test context.
        topology: what to start.
        classpath: of Kafka, as the nodes see it; overlay first, or stock alone.
    """

    logs = {"server_log": {"path": LOG, "collect_default": True}}  # noqa: RUF012 - ducktape reads a class attribute

    def __init__(self, context: Any, topology: Topology, classpath: str) -> None:
        super().__init__(context, num_nodes=len(topology.nodes))
        self.classpath = classpath
        self.cluster_id = kafka.new_id()
        self.directory_ids = {node.node_id: kafka.new_id() for node in topology.controllers}
        self._machines = self._deal(topology)
        self.topology = _moved(topology, {name: machine.account for name, machine in self._machines.items()})

    def _deal(self, topology: Topology) -> dict[str, Any]:
        by_name = {machine.account.hostname: machine for machine in self.nodes}
        names = [node.name for node in topology.nodes]
        if set(names) == set(by_name):
            return by_name
        return dict(zip(names, self.nodes, strict=True))

    def _machine(self, node: Node) -> Any:
        return self._machines[node.name]

    def _node(self, machine: Any) -> Node:
        return next(node for node in self.topology.nodes if self._machines[node.name] is machine)

    @cached_property
    def admin(self) -> AdminClient:
        """A client for metadata, made at first use."""
        return topics.admin(self.topology.bootstrap)

    # -- ducktape's life cycle --------------------------------------------------------------------------------------

    def start(self, **_: Any) -> None:
        """Formats and starts all nodes and waits until every broker is registered and unfenced."""
        for machine in self.nodes:
            self.clean_node(machine)
            self._write_files(machine)
        for node in self.topology.controllers:
            self._format_and_start(node)
        # why brokers come later: see pyhooks.cluster.inside
        wait_for(self._controller_is_active, what="an active controller", timeout_s=BOOT_TIMEOUT_S, interval_s=0.3)
        for node in self.topology.brokers:
            self._format_and_start(node)
        self.wait_unfenced(self.topology.brokers)

    def start_node(self, node: Any, **_: Any) -> None:
        """Starts the formatted disk of a machine."""
        self.start_kafka(self._node(node))

    def stop_node(self, node: Any, **_: Any) -> None:
        """Ends Kafka at once: a test has read all it wants by then."""
        self.kill_kafka(self._node(node))

    def clean_node(self, node: Any, **_: Any) -> None:
        """Removes data and logs."""
        node.account.ssh(f"rm -rf {HOME} && mkdir -p {HOME}")

    # -- what faults and tests need; see pyhooks.cluster.running -----------------------------------------------------

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """The brokers of a rack, or all."""
        if rack is None:
            return self.topology.brokers
        return tuple(node for node in self.topology.site(rack).nodes if node.is_broker)

    def members(self, site: str) -> tuple[Node, ...]:
        """All nodes of a site, controllers included."""
        return self.topology.site(site).nodes

    def kafka_pid(self, node: Node) -> int | None:
        """PID of the node's Kafka process, or None if it does not run."""
        command = f"test -s {HOME}/pid && test -d /proc/$(cat {HOME}/pid) && cat {HOME}/pid || true"
        text = self._machine(node).account.ssh_output(command).decode().strip()
        return int(text) if text else None

    def kill_kafka(self, node: Node) -> None:
        """Ends the node's Kafka process at once and waits until it is gone; does nothing if it does not run."""
        pid = self.kafka_pid(node)
        if pid is None:
            return
        self._machine(node).account.signal(pid, signal.SIGKILL, allow_fail=True)
        wait_for(lambda: self.kafka_pid(node) is None, what=f"{node.name} to end", timeout_s=20)

    def start_kafka(self, node: Node) -> None:
        """Starts Kafka on ``node`` and does not wait until it serves; does nothing if it runs."""
        if self.kafka_pid(node) is None:
            self._launch(node, "true")

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Waits until all of ``nodes`` are registered and unfenced.

        Raises:
            RackgateError: not in time, or a process ended.
        """
        wanted = {node.node_id for node in nodes}

        def ready() -> bool:
            for node in nodes:
                if self.kafka_pid(node) is None:
                    raise RackgateError(f"{node.name} ended while starting, see its server.log")
            return wanted <= topics.unfenced(self.admin)

        wait_for(ready, what=f"brokers {sorted(wanted)} registered and unfenced", timeout_s=timeout_s, interval_s=0.3)

    def answers(self, target: Node, source: Node | None = None) -> bool:
        """Whether ``target`` answers one of three echo requests from ``source`` (None: from the test's driver)."""
        if source is None:
            return echo.answers(target.ip, None)
        status: int = self._machine(source).account.ssh(f"ping -n -c 3 -i 0.2 -W 1 {target.ip}", allow_fail=True)
        return status == 0

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Cuts a rack off from other sites: all, or ``peers``.

        Raises:
            RackgateError: only the routers of a lab can do that so far.
        """
        self._need_lab("cut a rack off")
        network.cut(self.topology, site, peers)

    def join(self, site: str) -> None:
        """Takes a cut away."""
        self._need_lab("join a rack")
        network.join(site)

    def wait_log(self, topic: str, brokers: Sequence[int], timeout_s: float = 30.0) -> None:
        """Waits until every broker of ``brokers`` has a log of partition 0 of ``topic``.

        A leader that the metadata names may not have made its log yet.
        """
        nodes = [node for node in self.topology.brokers if node.node_id in brokers]

        def there() -> bool:
            check = f"ls {DATA}/{topic}-0/*.log"
            return all(self._machine(node).account.ssh(check, allow_fail=True) == 0 for node in nodes)

        wait_for(there, what=f"logs of {topic} on brokers {sorted(brokers)}", timeout_s=timeout_s, interval_s=0.3)

    def log_bytes(self, node: Node, topic: str) -> int:
        """Size of the log of partition 0 of ``topic`` on the node's disk, all segments, in bytes."""
        sizes = self._machine(node).account.ssh_output(f"stat -c %s {DATA}/{topic}-0/*.log").decode().split()
        return sum(map(int, sizes))

    def _need_lab(self, what: str) -> None:
        if not in_lab():
            raise RackgateError(f"{what}: needs the routers of a lab; on other hosts use the kill fault")

    # -- files and processes ----------------------------------------------------------------------------------------

    def _write_files(self, machine: Any) -> None:
        node = self._node(machine)
        quorum = [controller.quorum_address for controller in self.topology.controllers]
        properties = kafka.server_properties(
            node, quorum=quorum, data=DATA, brokers=len(self.topology.brokers), extra=self.topology.properties_of(node)
        )
        machine.account.create_file(f"{HOME}/server.properties", kafka.render(properties))
        machine.account.copy_to(str(kafka.LOG4J), f"{HOME}/log4j2.properties")

    def _format_and_start(self, node: Node) -> None:
        arguments = kafka.format_arguments(
            node,
            properties=f"{HOME}/server.properties",
            cluster_id=self.cluster_id,
            directory_ids=self.directory_ids,
            controllers=self.topology.controllers,
        )
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        command += [f"-Dlog4j2.configurationFile={HOME}/log4j2.properties", "-cp", self.classpath]
        self._launch(node, shlex.join([*command, "kafka.tools.StorageTool", *arguments]))

    def _launch(self, node: Node, before: str) -> None:
        heap_mb = self.topology.heap_mb_of(node)
        command = kafka.java_command(
            classpath=self.classpath,
            heap_mb=heap_mb,
            properties=f"{HOME}/server.properties",
            log4j=f"{HOME}/log4j2.properties",
        )
        script = f"echo $$ > {HOME}/pid && {before} && exec {shlex.join(command)}"
        self._machine(node).account.ssh(f"setsid sh -c {shlex.quote(script)} >> {LOG} 2>&1 < /dev/null &")
        wait_for(lambda: self.kafka_pid(node) is not None, what=f"a process on {node.name}", timeout_s=20)

    def _controller_is_active(self) -> bool:
        return any(
            self._machine(node).account.ssh(f"grep -q {shlex.quote(ACTIVE_CONTROLLER)} {LOG}", allow_fail=True) == 0
            for node in self.topology.controllers
        )


def _moved(topology: Topology, accounts: dict[str, Any]) -> Topology:
    """The topology with the addresses of the machines that its nodes were dealt to."""
    sites = tuple(
        replace(
            site,
            nodes=tuple(replace(node, ip=str(accounts[node.name].externally_routable_ip)) for node in site.nodes),
        )
        for site in topology.sites
    )
    return replace(topology, sites=sites)
