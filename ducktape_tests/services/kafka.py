"""KRaft cluster with racks as a ducktape service: one Kafka process per node, stock or with the overlay."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ducktape.services.service import Service

from ducktape_tests.cluster import LabAccount
from ducktape_tests.services.clients import ClientHost
from ducktape_tests.services.host_folder import DELETE, HostFolder, host_root
from ducktape_tests.services.host_network import HostNetwork, of_lab
from ducktape_tests.services.hosts import Hosts
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import reassignments, tools
from pyhooks.kafka.bulk_topics import BulkTopic
from pyhooks.lab import kafka_process
from pyhooks.lab.cluster_control import NetworkControl
from pyhooks.lab.disks import DATA
from pyhooks.lab.kafka_process import NODE_DISK
from pyhooks.lab.lab import ACTIVE_CONTROLLER, BOOT_TIMEOUT_S
from pyhooks.lab.topology import Node, Topology
from pyhooks.patchset.distribution import Distribution


class RackKafka(Hosts, Service):
    """ducktape service that runs the controllers and brokers of a topology on the nodes of the cluster.

    In a lab, each node of the topology runs on the machine of the same name. On other hosts, the nodes are assigned to
    the machines in order and take their addresses.
    """

    def __init__(self, context: Any, topology: Topology, classpath: str, directories: Sequence[str] = (DATA,)) -> None:
        super().__init__(context, num_nodes=len(topology.nodes))
        self.classpath = classpath
        self.directories = directories
        kafka = Distribution.load()
        self.archives = {
            kafka.classpath(overlay=overlay): str(kafka.classes(overlay=overlay)) for overlay in (True, False)
        }
        self.cluster_id = kafka_process.new_id()
        self.directory_ids = {node.node_id: kafka_process.new_id() for node in topology.controllers}
        self._machines = self._assign(topology)
        self.accounts = {name: machine.account for name, machine in self._machines.items()}
        self.topology = _addressed(topology, self.accounts)
        in_lab = all(isinstance(account, LabAccount) for account in self.accounts.values())
        self.folder = HostFolder(str(NODE_DISK.resolve()) if in_lab else host_root(context.globals))
        self._claimed: set[str] = set()
        self.network: NetworkControl = of_lab(self.topology) if in_lab else HostNetwork(self.topology, self.run_on)
        # ducktape collects these files after the test.
        self.logs = {"server_log": {"path": self.log, "collect_default": True}}

    def _assign(self, topology: Topology) -> dict[str, Any]:
        by_name = {machine.account.hostname: machine for machine in self.nodes}
        names = [node.name for node in topology.nodes]
        if set(names) == set(by_name):
            return by_name
        return dict(zip(names, self.nodes, strict=True))

    def _node(self, machine: Any) -> Node:
        return next(node for node in self.topology.nodes if self._machines[node.name] is machine)

    # -- ducktape's life cycle --------------------------------------------------------------------------------------

    def start(self, **_: Any) -> None:
        """Format and start all nodes, and wait until every broker is registered and unfenced."""
        for machine in self.nodes:
            self.clean_node(machine)
            self.run_in_folder(self._node(machine), ":")
            self._claimed.add(self._node(machine).name)
            self.configure(self._node(machine))
        for node in self.topology.controllers:
            self.launch(node, self.format_command(node))
        # Brokers start after the controllers; pyhooks.lab.init_process explains why.
        wait_for(self._controller_is_active, goal="an active controller", timeout_s=BOOT_TIMEOUT_S, interval_s=0.3)
        for node in self.topology.brokers:
            # a combined node runs already
            if not node.is_controller:
                self.launch(node, self.format_command(node))
        self.wait_unfenced(self.topology.brokers)

    def start_node(self, node: Any, **_: Any) -> None:
        """Start Kafka on a machine whose disk is formatted."""
        self.start_kafka(self._node(node))

    def stop_node(self, node: Any, **_: Any) -> None:
        """Kill Kafka: the test has read everything it needs by now."""
        # In a folder of another project, the PID file may contain the PID of an unrelated program.
        if self._node(node).name in self._claimed:
            self.kill_kafka(self._node(node))

    def clean_node(self, node: Any, **_: Any) -> None:
        """End processes that a killed run left on a host, delete the folder, and remove the host's network cuts."""
        self.run_in_folder(self._node(node), DELETE)
        if isinstance(self.network, HostNetwork):
            self.network.forget(self._node(node))

    # -- queries and actions for tests -------------------------------------------------------------------------------

    def wait_log(self, topic: str, brokers: Sequence[int], timeout_s: float = 30.0) -> None:
        """Wait until every broker of ``brokers`` has a log of partition 0 of ``topic``.

        The metadata may name a leader that has not created its log yet.
        """
        nodes = [node for node in self.topology.brokers if node.node_id in brokers]

        def exist() -> bool:
            return all(
                self.accounts[node.name].ssh(f"{self._log_query(node, topic)} | grep -q .", allow_fail=True) == 0
                for node in nodes
            )

        wait_for(exist, goal=f"logs of {topic} on brokers {sorted(brokers)}", timeout_s=timeout_s, interval_s=0.3)

    def wait_logs(self, bulk: Sequence[BulkTopic], timeout_s: float) -> None:
        """Wait until each replica of all partitions has a log.

        A leader without a log rejects the first record of an idempotent producer. It may then accept the second one,
        because it has no state for that producer, and reject the first one forever (OutOfOrderSequenceException).
        """
        wanted: defaultdict[int, set[str]] = defaultdict(set)
        for topic in bulk:
            for number, placement in enumerate(topic.placements):
                for broker in placement:
                    wanted[broker].add(f"{topic.name}-{number}")

        def exist() -> bool:
            return all(
                wanted[node.node_id] <= set(self.run_on(node, shlex.join(["ls", *self.log_directories(node)])).split())
                for node in self.topology.brokers
            )

        count = sum(map(len, wanted.values()))
        wait_for(exist, goal=f"the logs of {count} replicas", timeout_s=timeout_s, interval_s=0.5)

    def reassign(self, moves: Mapping[str, Sequence[int]]) -> None:
        """Start to move partition 0 of topics with Kafka's tool; ``moves`` has the new brokers, which must be live.

        Raises:
            RackgateError: the tool failed.
        """
        running = [node for node in self.brokers() if self.kafka_pid(node) is not None]
        file = f"{self.home}/moves.json"
        self.accounts[running[0].name].create_file(file, reassignments.document(moves))
        arguments = ("--execute", "--reassignment-json-file", file)
        bootstrap = ",".join(node.address for node in running)
        command = tools.command(self.classpath, reassignments.TOOL, arguments, bootstrap)
        # The tool writes error messages to both outputs.
        self.run_on(running[0], f"{shlex.join(command)} 2>&1")

    def log_bytes(self, node: Node, topic: str) -> int:
        """Return the size of the log of partition 0 of ``topic`` on the node's disk, all segments, in bytes."""
        command = f"stat -c %s $({self._log_query(node, topic)})"
        return sum(map(int, self.accounts[node.name].ssh_output(command).decode().split()))

    def directory_of(self, node: Node, topic: str) -> str:
        """Return the path of the log directory that has partition 0 of ``topic``.

        Raises:
            RackgateError: none has it.
        """
        # ls fails if any directory has none.
        segments = self.run_on(node, f"{self._log_query(node, topic)} || true").splitlines()
        if not segments:
            raise RackgateError(f"{node.name}: no log of {topic}")
        return segments[0].rpartition(f"/{topic}-0/")[0]

    def _log_query(self, node: Node, topic: str) -> str:
        """Return the shell command that lists the segments of partition 0 of a topic."""
        patterns = " ".join(f"{shlex.quote(path)}/{topic}-0/*.log" for path in self.log_directories(node))
        return f"ls {patterns} 2> /dev/null"

    # -- files and processes ----------------------------------------------------------------------------------------

    def client_host(self, node: Node) -> ClientHost:
        """Return the host of a node for programs of ``pyhooks.workload``, in the folder of its Kafka."""
        return ClientHost(self.accounts[node.name], self.home)

    def configure(self, node: Node, overrides: Mapping[str, str] | None = None) -> None:
        """Write the properties of a node for its next start; ``overrides`` take precedence over the topology's."""
        quorum = [controller.quorum_address for controller in self.topology.controllers]
        properties = kafka_process.server_properties(
            node,
            quorum=quorum,
            data=",".join(self.log_directories(node)),
            brokers=len(self.topology.brokers),
            extra={**self.topology.properties_of(node), **(overrides or {})},
        )
        self.accounts[node.name].create_file(f"{self.home}/server.properties", kafka_process.render(properties))

    def _controller_is_active(self) -> bool:
        return any(
            self.accounts[node.name].ssh(shlex.join(["grep", "-q", ACTIVE_CONTROLLER, self.log]), allow_fail=True) == 0
            for node in self.topology.controllers
        )


def _addressed(topology: Topology, accounts: dict[str, Any]) -> Topology:
    """Return the topology with the addresses of the machines assigned to its nodes."""
    sites = tuple(
        replace(
            site,
            nodes=tuple(replace(node, ip=str(accounts[node.name].externally_routable_ip)) for node in site.nodes),
        )
        for site in topology.sites
    )
    return replace(topology, sites=sites)
