"""Running lab, as seen by the programs in it: nodes, Kafka processes and measured links."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyhooks.core import paths, private_files, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, parse_json, write_json
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.core.wait import wait_for
from pyhooks.kafka import quorum_state, tools, topics
from pyhooks.kafka.quorum_state import Quorum
from pyhooks.lab import echo, kafka_process, network, quorum_changes
from pyhooks.lab.cluster_control import ProcessState, process_state_of
from pyhooks.lab.disk_format import format_disks
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.kafka_process import NODE_DISK
from pyhooks.lab.network import LabNetwork
from pyhooks.lab.topology import Node, Topology, parse

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DESCRIPTION = paths.LAB_HOME / "lab.json"
LAB_VARIABLE = "RACKGATE_LAB"
BOOTSTRAP_VARIABLE = "RACKGATE_BOOTSTRAP"
RUN_DIR_VARIABLE = "RACKGATE_RUN_DIR"
BOOT_TIMEOUT_S = 120.0
ACTIVE_CONTROLLER = "Becoming the active controller"


def in_lab() -> bool:
    """Return whether this process runs in a lab."""
    return bool(os.environ.get(LAB_VARIABLE))


@dataclass(frozen=True)
class Lab:
    """Lab as seen from inside."""

    name: str
    topology: Topology
    source: dict[str, Any]  # the topology as parsed TOML, for manifests
    pids: dict[str, int]  # node name to PID of the node's init process
    disks: dict[str, str]  # node name to the folder that the node sees as /mnt
    run_dir: Path
    classpath: str  # class path of the lab's Kafka; empty in a bare lab
    agent: str  # jar of the agent that serves each node's metrics, or empty
    archive: str  # class data sharing archive of Kafka's classes, or empty
    cluster_id: str
    directory_ids: dict[str, str]
    emulations: dict[str, str]  # link name ("left-right") to the kind of its link emulation

    @staticmethod
    def attach() -> Lab:
        """Return the lab in which this process runs.

        Raises:
            RackgateError: not inside a lab, or its description is missing, damaged or might belong to another user.
        """
        path = os.environ.get(LAB_VARIABLE)
        if not path:
            raise RackgateError(
                f"not inside a lab ({LAB_VARIABLE} is not set): start this with 'rackgate lab run --topology … --', or"
                " with 'rackgate lab exec --' in a lab that runs"
            )
        file, advice = Path(path), f"unset {LAB_VARIABLE}, which only a lab sets"
        try:
            # programs in a lab may run as other users; its files belong to root
            text = private_files.read_file(file, advice, root_may_own=True)
        except FileNotFoundError as error:
            raise RackgateError(f"{file}: there is no such file; {advice}") from error
        with evaluating(file, f"the description of a lab of this version; {advice}"):
            raw = parse_json(text)
            raw["run_dir"] = Path(raw["run_dir"])
            return Lab(topology=parse(raw["source"], source=path), **raw)

    def save(self) -> None:
        """Write the description that ``attach`` reads."""
        raw = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "topology"}
        write_json(DESCRIPTION, raw | {"run_dir": str(self.run_dir)})

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for programs in the lab."""
        return {
            LAB_VARIABLE: str(DESCRIPTION),
            BOOTSTRAP_VARIABLE: self.bootstrap,
            RUN_DIR_VARIABLE: str(self.run_dir),
        }

    @property
    def bare(self) -> bool:
        """Whether the lab has nodes and network only, without Kafka."""
        return not self.classpath

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses of all brokers."""
        return self.topology.bootstrap

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return self.topology.nodes

    @property
    def history_path(self) -> Path:
        """History file of the run."""
        return self.run_dir / "history.jsonl"

    def node(self, name: str) -> Node:
        """Return the node called ``name``.

        Raises:
            RackgateError: no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise RackgateError(f"lab {self.name}: no node {name!r}; it has {known}")

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """Return the brokers of a rack, or all brokers."""
        if rack is None:
            return self.topology.brokers
        return tuple(node for node in self.topology.site(rack).nodes if node.is_broker)

    def machine(self, node: Node) -> NamespaceMachine:
        """Return the machine that runs commands on ``node``."""
        return NamespaceMachine(node.name, self.pids[node.name])

    @property
    def network(self) -> LabNetwork:
        """Network between the nodes, for fault injection."""
        return LabNetwork(self.topology, self.machine)

    @cached_property
    def admin(self) -> AdminClient:
        """Admin client for metadata, created on first use."""
        return topics.admin(self.bootstrap)

    # -- Kafka processes ------------------------------------------------------------------------------------------

    def configure(self, node: Node) -> Path:
        """Write the server and storage-format configuration of ``node``; return the path of the latter in the lab."""
        disk, topology = Path(self.disks[node.name]), self.topology
        quorum = [controller.quorum_address for controller in topology.controllers]
        for name, data in (("server.properties", NODE_DISK / "data"), ("format.properties", disk / "data")):
            text = kafka_process.render(
                kafka_process.server_properties(
                    node, quorum=quorum, data=data, brokers=len(topology.brokers), extra=topology.properties_of(node)
                )
            )
            (disk / name).write_text(text, encoding="utf-8")
        return disk / "format.properties"

    def format(self, nodes: Sequence[Node], *, joins: bool = False) -> None:
        """Format the disks of ``nodes`` for a new cluster or, with ``joins``, for the existing one.

        Raises:
            RackgateError: the storage tool failed.
        """
        directory_ids = {int(key): value for key, value in self.directory_ids.items()}
        calls = [
            kafka_process.format_arguments(
                node,
                properties=self.configure(node),
                cluster_id=self.cluster_id,
                directory_ids=directory_ids,
                controllers=self.topology.controllers,
                joins=joins,
            )
            for node in nodes
        ]
        format_disks(self.classpath, calls)

    def log(self, node: Node) -> Path:
        """Return the path of the node's Kafka log."""
        return self.run_dir / "logs" / f"{node.name}.log"

    def start_kafka(self, node: Node) -> None:
        """Start Kafka on ``node`` without waiting until it serves; do nothing if it runs.

        The process id, as seen inside the node, is stored on the node's disk.

        Raises:
            RackgateError: no process could be started.
        """
        if self.kafka_pid(node) is not None:
            return
        command = kafka_process.java_command(
            classpath=self.classpath,
            heap_mb=self.topology.heap_mb_of(node),
            properties=NODE_DISK / "server.properties",
            options=self._java_options(node),
            performance=kafka_process.performance_options(),
        )
        self.log(node).parent.mkdir(parents=True, exist_ok=True)
        # The shell exits at once, so that the node's init process adopts Java. A parent outside the node would stop
        # together with a paused Java, not continue with it, and so never reap it after a kill.
        script = 'pid="$0"; setsid "$@" & echo $! > "$pid"'
        pid_file = Path(self.disks[node.name]) / "kafka.pid"
        pid_file.unlink(missing_ok=True)
        started = self.machine(node).popen(
            ["sh", "-c", script, str(NODE_DISK / "kafka.pid"), *command], log=self.log(node)
        )
        if started.wait(timeout=20):
            raise RackgateError(f"{node.name}: no process could be started in it, see {self.log(node)}")

    def _java_options(self, node: Node) -> list[str]:
        options = [*self.topology.java_options]
        if self.archive:
            options.append(f"-XX:SharedArchiveFile={self.archive}")
        if self.agent:
            # a socket on the node's disk, because metrics must not depend on the network under fault
            options.append(f"-javaagent:{self.agent}={NODE_DISK / kafka_process.METRICS_SOCKET}")
        # C2 speeds up long-running code, which a controller's is not. All nodes wait for the controllers to start, and
        # C2's compilation would slow that down.
        return options + (["-XX:TieredStopAtLevel=1"] if node.role == "controller" else [])

    def kafka_pid(self, node: Node) -> int | None:
        """Return the PID of the node's Kafka process inside the node, or None if it does not run."""
        path = Path(self.disks[node.name]) / "kafka.pid"
        if not path.exists() or not (text := path.read_text(encoding="ascii").strip()):
            return None
        return int(text) if process_state_of(self._stat(node, text)) != "down" else None

    def _stat(self, node: Node, pid: str) -> list[str]:
        return process.stat_fields(Path(f"/proc/{self.pids[node.name]}/root/proc/{pid}"))

    def process_state(self, node: Node) -> ProcessState:
        """Return the state of the node's Kafka process according to /proc."""
        pid = self.kafka_pid(node)
        if pid is None:
            return "down"
        return process_state_of(self._stat(node, str(pid)))

    def signal_kafka(self, node: Node, number: signal.Signals) -> bool:
        """Send a signal to the node's Kafka process; return whether there is one."""
        pid = self.kafka_pid(node)
        if pid is None:
            return False
        self.machine(node).run(["kill", f"-{number.name.removeprefix('SIG')}", str(pid)])
        return True

    def kill_kafka(self, node: Node) -> None:
        """Kill the node's Kafka process (SIGKILL) and wait until it has ended; do nothing if it does not run.

        Raises:
            RackgateError: it did not end in time.
        """
        if self.signal_kafka(node, signal.SIGKILL):
            wait_for(lambda: self.kafka_pid(node) is None, goal=f"{node.name} to end", timeout_s=20, interval_s=0.02)

    def pause_kafka(self, node: Node) -> None:
        """Pause the node's Kafka process (SIGSTOP) and wait until it has stopped; it keeps its connections.

        Raises:
            RackgateError: it does not run, or did not stop in time.
        """
        if not self.signal_kafka(node, signal.SIGSTOP):
            raise RackgateError(f"{node.name}: its Kafka process does not run, so it can't be paused")
        wait_for(
            lambda: self.process_state(node) == "paused", goal=f"{node.name} to stop", timeout_s=20, interval_s=0.02
        )

    def resume_kafka(self, node: Node) -> None:
        """Resume a paused Kafka process; do nothing if it is not paused or does not run."""
        self.signal_kafka(node, signal.SIGCONT)

    def wipe(self, node: Node) -> str:
        """Delete the disk of a node whose Kafka does not run; return the directory id that the disk had.

        Raises:
            RackgateError: Kafka runs, or the disk was not formatted.
        """
        if self.kafka_pid(node) is not None:
            raise RackgateError(f"{node.name}: its Kafka process runs, so its disk can't be deleted")
        identity = self.directory_id(node)
        quorum_changes.delete_disk(self.data(node))
        return identity

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        """Return the metadata quorum as reported by the first of ``brokers`` that responds.

        Raises:
            RackgateError: no broker responds, or the quorum has no leader.
        """
        return quorum_state.query(quorum_changes.addresses(brokers))

    def change_quorum(self, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        """Run Kafka's metadata-quorum tool through some of ``brokers`` and return its output.

        Raises:
            RackgateError: the tool failed, or ``brokers`` is empty.
        """
        return tools.run(self.classpath, quorum_changes.TOOL, arguments, quorum_changes.addresses(brokers))

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        """Make a controller that is an observer a voter, with its current directory.

        Raises:
            RackgateError: the quorum rejects the change.
        """
        config = Path(self.disks[node.name]) / "format.properties"
        self.change_quorum(["--command-config", str(config), "add-controller"], brokers)

    def clear_disk(self, node: Node) -> None:
        """Delete the remains of an unformatted disk."""
        quorum_changes.clear_disk(self.data(node))

    def formatted(self, node: Node) -> bool:
        """Return whether the disk of a node is formatted."""
        return (self.data(node) / "meta.properties").exists()

    def data(self, node: Node) -> Path:
        """Return the node's log directory, as seen from the lab."""
        return Path(self.disks[node.name]) / "data"

    def directory_id(self, node: Node) -> str:
        """Return the node's directory id, which Kafka draws anew whenever the disk is formatted.

        Raises:
            RackgateError: the disk is not formatted.
        """
        if not self.formatted(node):
            raise RackgateError(f"{node.name}: its disk is not formatted")
        lines = (self.data(node) / "meta.properties").read_text(encoding="utf-8").splitlines()
        return next(line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id="))

    # -- cluster state and links ----------------------------------------------------------------------------------

    def unfenced(self) -> frozenset[int]:
        """Return the ids of the registered and unfenced brokers; see ``topics.unfenced``."""
        return topics.unfenced(self.admin)

    def rtt(
        self,
        target: Node,
        source: Node | None = None,
        count: int = echo.PING_COUNT,
        *,
        burst: bool = False,
    ) -> RoundTripTimes:
        """Measure the round-trip time to ``target`` from ``source`` (None: from the clients).

        Raises:
            RackgateError: no echo reply.
        """
        name = source.name if source else "clients"
        machine = self.machine(source) if source else None
        return echo.measure(name, target.name, target.ip, machine, count, burst=burst)

    def wait_quorum(self) -> None:
        """Wait until a controller is active, according to the controllers' logs: no broker can be queried yet.

        Raises:
            RackgateError: no controller is active in time, or a process ended; the message names it and its log.
        """

        def active() -> bool:
            self.check_running(self.topology.controllers)
            return any(ACTIVE_CONTROLLER in self.read_log(node) for node in self.topology.controllers)

        wait_for(active, goal="an active controller", timeout_s=BOOT_TIMEOUT_S)

    def check_running(self, nodes: Sequence[Node]) -> None:
        """Check that Kafka runs on all of ``nodes``.

        Raises:
            RackgateError: a process does not run; the detail is the end of its log.
        """
        for node in nodes:
            if self.kafka_pid(node) is None:
                tail = "\n".join(self.read_log(node).splitlines()[-15:])
                raise RackgateError(f"{node.name} ended while starting, see {self.log(node)}", detail=tail)

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until all of ``nodes`` are registered and unfenced; return at once in a bare lab.

        Raises:
            RackgateError: not reached in time, or a process ended; the message names it and its log.
        """
        if self.bare:
            return
        wanted = {node.node_id for node in nodes}

        def ready() -> bool:
            self.check_running(nodes)
            return wanted <= self.unfenced()

        goal = f"brokers {sorted(wanted)} registered and unfenced"
        wait_for(ready, goal=goal, timeout_s=timeout_s, interval_s=0.2)

    def read_log(self, node: Node) -> str:
        """Return the log of all Kafka processes that the node has had so far."""
        path = self.log(node)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def replies(self, target: Node, source: Node | None = None) -> bool:
        """Return whether ``target`` answers at least one echo request from ``source`` (None: from the clients)."""
        return echo.replies(target.ip, self.machine(source) if source else None)

    def link_states(self) -> dict[str, Any]:
        """Return settings and counters of the emulated links by name, as plain JSON; empty without emulated links.

        Raises:
            RackgateError: the emulator does not respond.
        """
        return {name: asdict(state) for name, state in network.emulated_links(self.topology).items()}

    def rtt_matrix(self, count: int = 50) -> tuple[RoundTripTimes, ...]:
        """Measure round-trip times from the clients to each site and between all sites, concurrently.

        Raises:
            RackgateError: a site does not answer.
        """
        firsts = [site.nodes[0] for site in self.topology.sites if site.nodes]
        pairs: list[tuple[Node | None, Node]] = [(None, node) for node in firsts]
        pairs += [(left, right) for index, left in enumerate(firsts) for right in firsts[index + 1 :]]

        with ThreadPoolExecutor(len(pairs)) as pool:
            return tuple(pool.map(lambda pair: self.rtt(pair[1], pair[0], count), pairs))
