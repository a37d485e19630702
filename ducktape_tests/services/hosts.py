"""Kafka on hosts that run shell commands; implements ``pyhooks.lab.cluster_control`` for faults and tests.

This module does not import ducktape. It uses ``ssh``, ``ssh_output``, ``signal`` and ``copy_from`` of ducktape's
accounts.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ducktape_tests.services import host_folder
from ducktape_tests.services.clock import compare_clocks
from ducktape_tests.services.host_folder import HostFolder
from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history import log_events, process_events
from pyhooks.history.event_log import History
from pyhooks.history.events import (
    LoggingNodesDetails,
    NodeEndDetails,
    NodeStartDetails,
    NodeStateDetails,
    NodeStateFailureDetails,
)
from pyhooks.kafka import quorum_state, tools, topics
from pyhooks.kafka.quorum_state import Quorum
from pyhooks.lab import echo, kafka_process, metadata_records, quorum_changes
from pyhooks.lab.cluster_control import NetworkControl, ProcessState, RunningCluster, process_state_of
from pyhooks.lab.disks import DATA, BrokerDisk
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.kafka_process import METRICS_SOCKET
from pyhooks.lab.lab import BOOT_TIMEOUT_S
from pyhooks.lab.topology import Node, Topology

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# copy of a node's disk on the host, before it is sent to the test driver
PACKED = "disk.tar"
TOOL_TIMEOUT_S = 60.0
# Concurrent commands on a host over its single connection: sshd rejects more than 10 (MaxSessions).
SESSIONS = 8


def run_command(account: Any, name: str, command: str, timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Run a shell command on a host to its end and return its standard output.

    Raises:
        RackgateError: its exit status is not 0; the detail has its output.
    """
    report = f"( {command} ) 2>$e; s=$?; [ $s -eq 0 ] || tail -c 4000 $e; rm -f $e; printf '\\n%d' $s"
    script = f"e=$(mktemp) && {{ {report}; }}"
    output = account.ssh_output(script, combine_stderr=False, timeout_sec=timeout_s)
    text, _, status = output.decode(errors="replace").rpartition("\n")
    if status == "0":
        return str(text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if status == str(host_folder.REJECTED):
        raise RackgateError(f"{name}: {first}")
    end = f"{name}: {command.split()[0]} ended with status {status}"
    raise RackgateError(f"{end}: {first}" if first else end, detail=text)


class Hosts:
    """Base class of clusters whose nodes are hosts; methods raise ``RackgateError`` if a host or Kafka fails.

    Attributes:
        archives: class data archives by class path, used by the hosts that have them; see
            ``pyhooks.lab.class_data_sharing``.
        java: JVM options of Kafka's processes. By default only the first compiler is enabled: within the minutes of a
            test the second one costs more CPU time than it saves.
        accounts: ducktape's accounts by node name.
        folder: folder on each host for all of Kafka's files.
        agent: jar of the metrics agent (``pyhooks.lab.mbeans``) on the hosts, or empty for none.
        stop_timeout_s: time limit of a controlled shutdown: a broker hands over leaderships and flushes its logs.
        process_history: records starts and ends of Kafka (``pyhooks.history.process_events``), or None.
        directories: names of a broker's log directories below ``home``; the first one has the cluster's metadata, too.
    """

    topology: Topology
    classpath: str
    archives: Mapping[str, str] = MappingProxyType({})
    java: Sequence[str] = ("-XX:TieredStopAtLevel=1",)
    accounts: Mapping[str, Any]
    network: NetworkControl
    cluster_id: str
    directory_ids: Mapping[int, str]
    folder: HostFolder = HostFolder()
    agent: str = ""
    stop_timeout_s: float = 90.0
    process_history: History | None = None
    directories: Sequence[str] = (DATA,)

    @property
    def home(self) -> str:
        """Path of the folder for Kafka's files on the host; like all paths of this class, unquoted."""
        return self.folder.path

    @property
    def metrics_socket(self) -> str:
        """Path of the socket on which a node's metrics agent listens."""
        return f"{self.home}/{METRICS_SOCKET}"

    @property
    def log(self) -> str:
        """Path of the server log of a node's Kafka process."""
        return f"{self.home}/server.log"

    @property
    def data(self) -> str:
        """Path of the folder that contains a node's disk."""
        return f"{self.home}/{DATA}"

    def log_directories(self, node: Node) -> list[str]:
        """Return the paths of a node's log directories; a controller has one."""
        return [f"{self.home}/{name}" for name in self._directory_names(node)]

    def _directory_names(self, node: Node) -> Sequence[str]:
        return self.directories if node.is_broker else (DATA,)

    @cached_property
    def admin(self) -> AdminClient:
        """Admin client, created at first use."""
        return topics.admin(self.topology.bootstrap)

    def forget_admin(self) -> None:
        """Discard the admin client, so that the next use creates one for a new cluster."""
        self.__dict__.pop("admin", None)

    def run_on(self, node: Node, command: str, timeout_s: float = TOOL_TIMEOUT_S) -> str:
        """Run a shell command on a host to its end and return its standard output.

        Raises:
            RackgateError: its exit status is not 0 (the detail has its output), or the host can't be reached.
        """
        with self._connection(node):
            return run_command(self.accounts[node.name], node.name, command, timeout_s)

    def run_in_folder(self, node: Node, script: str, *arguments: str) -> str:
        """Run a shell script in the host's folder and return its output; see ``HostFolder.command``.

        Raises:
            RackgateError: the folder is not the project's, the script failed, or the host can't be reached.
        """
        command = self.folder.command(script, *arguments)
        with self._connection(node):
            return run_command(self.accounts[node.name], f"{node.name} ({node.ip})", command)

    @cached_property
    def _slots(self) -> dict[str, BoundedSemaphore]:
        """Free slots for concurrent commands, by node name."""
        return {}

    @contextmanager
    def _connection(self, node: Node) -> Iterator[None]:
        """Wait for a free slot, and raise SSH errors as ``RackgateError``.

        So a proof that needs the failed command becomes unknown.
        """
        with self._slots.setdefault(node.name, BoundedSemaphore(SESSIONS)):
            try:
                yield
            except RackgateError:
                raise
            except Exception as error:  # errors of paramiko and ducktape have no common class
                raise RackgateError(
                    f"{node.name}: no connection to its host: {type(error).__name__}: {error}"
                ) from error

    def _status(self, node: Node, command: str) -> int:
        with self._connection(node):
            status: int = self.accounts[node.name].ssh(command, allow_fail=True)
        return status

    def _test(self, node: Node, condition: str) -> bool:
        status = self._status(node, f"test {condition}")
        # Any other status is an error of the shell or of the connection to the host.
        if status not in (0, 1):
            raise RackgateError(f"{node.name}: 'test {condition}' ended with status {status}")
        return status == 0

    # -- Kafka processes --------------------------------------------------------------------------------------------

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """Return the brokers of a rack, or all brokers."""
        if rack is None:
            return self.topology.brokers
        return tuple(node for node in self.topology.site(rack).nodes if node.is_broker)

    def broker(self, node_id: int) -> Node:
        """Return the broker with an id."""
        return next(node for node in self.topology.brokers if node.node_id == node_id)

    def kafka_pid(self, node: Node) -> int | None:
        """Return the PID of the node's Kafka process, or None if it does not run."""
        pid = self.run_on(node, f"cat {shlex.quote(self.home)}/{host_folder.PID} 2> /dev/null || true").strip()
        # A process that has ended stays in /proc until its parent reaps it, as in a container without init.
        return int(pid) if pid and process_state_of(self._stat(node, int(pid))) != "down" else None

    def process_state(self, node: Node) -> ProcessState:
        """Return the state of the node's Kafka process, from its entry in /proc."""
        pid = self.kafka_pid(node)
        return "down" if pid is None else process_state_of(self._stat(node, pid))

    def _stat(self, node: Node, pid: int) -> list[str]:
        return process.parse_stat(self.run_on(node, f"cat /proc/{pid}/stat 2> /dev/null || true"))

    def _signal(self, node: Node, number: signal.Signals) -> bool:
        pid = self.kafka_pid(node)
        if pid is None:
            return False
        with self._connection(node):
            self.accounts[node.name].signal(pid, number, allow_fail=True)
        return True

    def _end(self, node: Node, number: signal.Signals, op: str) -> bool:
        """Record that Kafka is about to be ended, send the signal, and return whether there was a process."""
        ran = self.kafka_pid(node) is not None
        # Recorded first: after an interrupt in between, checkers must not take the end for a crash.
        if self.process_history is not None:
            self.process_history.add(NodeEndDetails(node=node.node_id, ran=ran), op=op)
        return ran and self._signal(node, number)

    def kill_kafka(self, node: Node) -> None:
        """Kill the node's Kafka process and wait until it has ended; do nothing if it does not run."""
        if self._end(node, signal.SIGKILL, "kill"):
            wait_for(lambda: self.kafka_pid(node) is None, goal=f"the end of {node.name}", timeout_s=20)

    def stop_kafka(self, node: Node) -> None:
        """Stop the node's Kafka process with SIGTERM and wait until it has ended; do nothing if it does not run."""
        if self._end(node, signal.SIGTERM, "stop"):
            goal = f"a clean shutdown of {node.name}"
            wait_for(lambda: self.kafka_pid(node) is None, goal=goal, timeout_s=self.stop_timeout_s)

    def pause_kafka(self, node: Node) -> None:
        """Pause the node's Kafka process with SIGSTOP and wait until it is paused."""
        if not self._signal(node, signal.SIGSTOP):
            raise RackgateError(f"{node.name}: Kafka does not run, so it can't be paused")
        wait_for(lambda: self.process_state(node) == "paused", goal=f"a paused Kafka on {node.name}", timeout_s=20)

    def resume_kafka(self, node: Node) -> None:
        """Resume a paused Kafka process; do nothing if it is not paused or does not run."""
        self._signal(node, signal.SIGCONT)

    def start_kafka(self, node: Node) -> None:
        """Start Kafka on ``node`` without waiting until it is ready; do nothing if it runs."""
        if self.kafka_pid(node) is None:
            self.launch(node)

    def launch(self, node: Node, before: str = "true") -> None:
        """Start Kafka on a host on which it does not run, after a shell command that has the same PID."""
        command = kafka_process.java_command(
            classpath=self.classpath,
            heap_mb=self.topology.heap_mb_of(node),
            properties=f"{self.home}/server.properties",
            options=self.java_options(node),
        )
        script = f"echo $$ > {shlex.quote(self.home)}/{host_folder.PID} && {before} && exec {shlex.join(command)}"
        self.run_on(node, f"setsid sh -c {shlex.quote(script)} >> {shlex.quote(self.log)} 2>&1 < /dev/null &")
        wait_for(lambda: self.kafka_pid(node) is not None, goal=f"a process on {node.name}", timeout_s=20)
        if self.process_history is not None:
            self.process_history.add(NodeStartDetails(node=node.node_id))

    def java_options(self, node: Node) -> list[str]:
        """Return JVM options for the Kafka process of a node, in addition to those of every Kafka process."""
        agent = [f"-javaagent:{self.agent}={self.metrics_socket}"] if self.agent else []
        return [*self.java, *self._class_data_sharing(node), *agent]

    def _class_data_sharing(self, node: Node) -> list[str]:
        """Return the JVM option for the class data archive of the class path, if the host has it."""
        archive = self.archives.get(self.classpath)
        return (
            [f"-XX:SharedArchiveFile={archive}"] if archive and self._test(node, f"-e {shlex.quote(archive)}") else []
        )

    def check_running(self, nodes: Sequence[Node]) -> None:
        """Check that Kafka runs on all nodes."""
        for node in nodes:
            if self.kafka_pid(node) is None:
                raise RackgateError(f"{node.name} ended while starting, see its server.log")

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until all ``nodes`` are registered and unfenced.

        Raises:
            RackgateError: not in time, or a process ended.
        """
        wanted = {node.node_id for node in nodes}

        def ready() -> bool:
            self.check_running(nodes)
            return wanted <= topics.unfenced(self.admin)

        wait_for(ready, goal=f"brokers {sorted(wanted)} registered and unfenced", timeout_s=timeout_s, interval_s=0.3)

    # -- disks and the quorum ---------------------------------------------------------------------------------------

    def format_command(self, node: Node, *, joins: bool = False) -> str:
        """Return the shell command that formats the disk of a node."""
        arguments = kafka_process.format_arguments(
            node,
            properties=f"{self.home}/server.properties",
            cluster_id=self.cluster_id,
            directory_ids=self.directory_ids,
            controllers=self.topology.controllers,
            joins=joins,
        )
        command = ["java", *self._class_data_sharing(node), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        command += [f"-Dlog4j2.configurationFile={kafka_process.LOG4J}", "-cp", self.classpath]
        return shlex.join([*command, "kafka.tools.StorageTool", *arguments])

    def format(self, nodes: Sequence[Node], *, joins: bool = False) -> None:
        """Format the disks of ``nodes`` for a new cluster or, with ``joins``, for the existing one."""
        if not nodes:
            return
        # In parallel, because each run of the storage tool takes seconds to start.
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: self.run_on(node, self.format_command(node, joins=joins)), nodes))

    def formatted(self, node: Node) -> bool:
        """Return whether the disk of a node is formatted."""
        return self._test(node, f"-e {shlex.quote(self.data)}/meta.properties")

    def directory_id(self, node: Node) -> str:
        """Return the directory id of the node's disk, which Kafka generates when the disk is formatted."""
        if not self.formatted(node):
            raise RackgateError(f"{node.name}: the disk is not formatted")
        return self.run_on(node, f"sed -n s/^directory.id=//p {shlex.quote(self.data)}/meta.properties").strip()

    def wipe(self, node: Node) -> str:
        """Delete the disk of a node whose Kafka does not run, all log directories, and return its directory id."""
        if self.kafka_pid(node) is not None:
            raise RackgateError(f"{node.name}: Kafka runs, so the disk can't be deleted")
        identity = self.directory_id(node)
        # Renamed first, so that a directory exists completely or not at all.
        for name in self._directory_names(node):
            script = 'rm -rf -- "$2"; mv -- "$1" "$2"; rm -rf -- "$2"'
            self.run_in_folder(node, script, name, quorum_changes.DELETED_NAME)
        return identity

    def copy_disk(self, node: Node, into: Path) -> BrokerDisk:
        """Copy the logs of a broker, without indexes, into a local folder; a missing disk gives an empty copy."""
        stopped = self.kafka_pid(node) is None
        disk = BrokerDisk(node.node_id, node.site, into / DATA, stopped)
        if not self._test(node, f"-d {shlex.quote(self.data)}"):
            return disk
        without = " ".join(f"--exclude='*.{kind}'" for kind in ("index", "timeindex", "txnindex"))
        # A partition is in one of a broker's directories, so that one folder can hold the contents of all.
        contents = " ".join(f"-C {shlex.quote(path)} ." for path in self.log_directories(node))
        self.run_in_folder(node, f"tar {without} -cf {PACKED} {contents}")
        disk.data.mkdir(parents=True)
        local = into / "disk.tar"
        with self._connection(node):
            self.accounts[node.name].copy_from(f"{self.home}/{PACKED}", str(local))
        self.run_in_folder(node, f"rm {PACKED}")
        # Not tarfile: in early releases of Python 3.11 (Debian 12) it can't prevent extraction to paths elsewhere.
        process.run(
            ["tar", "-C", str(disk.data), "-xf", str(local)],
            task=f"unpack the disk of {node.name}",
            timeout_s=TOOL_TIMEOUT_S,
        )
        local.unlink()
        return disk

    def metadata_log(self, node: Node, history: History) -> None:
        """Write the metadata log of a controller whose Kafka does not run into a history."""
        segments = self.run_on(node, f"ls {shlex.quote(self.data)}/{metadata_records.TOPIC}/*.log").splitlines()
        command = tools.command(self.classpath, "dump-log", metadata_records.dump_arguments(segments), "")
        records = metadata_records.parse_dump(self.run_on(node, shlex.join(command)))
        ahead_ns, error_ns = self._wall_clock(node)
        metadata_records.write_events(records, history, controller=node.node_id, ahead_ns=ahead_ns, error_ns=error_ns)

    def server_logs(self, nodes: Sequence[Node], history: History) -> None:
        """Write the server logs of nodes into a history, or that a log can't be read."""
        history.add(LoggingNodesDetails(nodes=tuple(node.node_id for node in nodes)))
        for node in nodes:
            try:
                zone = self.run_on(node, "date +%z").strip()
                entries = list(log_events.parse(self.run_on(node, f"cat {shlex.quote(self.log)}").splitlines(), zone))
                ahead_ns, error_ns = self._wall_clock(node)
            except RackgateError as error:
                log_events.note_unread(history, node.node_id, str(error))
            else:
                log_events.note(entries, history, node=node.node_id, ahead_ns=ahead_ns, error_ns=error_ns)

    def note_states(self, nodes: Sequence[Node], history: History) -> None:
        """Record the state of each node's Kafka process, or that its host can't be reached."""
        for node in nodes:
            try:
                state = self.process_state(node)
            except RackgateError as error:
                history.add(NodeStateFailureDetails(node=node.node_id, error=str(error)), "unknown")
            else:
                history.add(NodeStateDetails(node=node.node_id, state=state), "ok")

    def note_faults(self, nodes: Sequence[Node], history: History) -> None:
        """Record the faults in the log of each node's Kafka, or that the log can't be read."""
        for node in nodes:
            try:
                output = self.run_on(node, process_events.fault_query(self.log))
            except RackgateError as error:
                process_events.note_unread(history, node.node_id, str(error))
            else:
                process_events.note_logged(history, node.node_id, output)

    def _wall_clock(self, node: Node) -> tuple[int, int]:
        """Return how far a host's wall clock is ahead of the local monotonic clock, and the maximum error, in ns."""
        # Offset of the local wall clock, which the host may share.
        wall_ns = time.time_ns() - time.monotonic_ns()
        clock = compare_clocks(lambda: int(self.run_on(node, "date +%s%N")) - wall_ns)
        return clock.ahead_ns + wall_ns, clock.error_ns

    def clear_disk(self, node: Node) -> None:
        """Delete the remains of a disk that is not formatted."""
        self.run_in_folder(node, 'rm -rf -- "$@"', *self._directory_names(node), quorum_changes.DELETED_NAME)

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        """Return the metadata quorum, as reported by the first of ``brokers`` that responds."""
        return quorum_state.query(quorum_changes.addresses(brokers))

    def change_quorum(self, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        """Change the quorum with Kafka's tool on the host of one of ``brokers``, and return the tool's output."""
        return self._quorum_tool(None, arguments, brokers)

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        """Make a controller that follows the quorum a voter, with its current directory."""
        # The controller's own configuration names its directory.
        self._quorum_tool(node, ["--command-config", f"{self.home}/server.properties", "add-controller"], brokers)

    def _quorum_tool(self, node: Node | None, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        command = tools.command(self.classpath, quorum_changes.TOOL, arguments, quorum_changes.addresses(brokers))
        return self.run_on(node or brokers[0], shlex.join(command))

    # -- the network ------------------------------------------------------------------------------------------------

    def replies(self, target: Node, source: Node | None = None) -> bool:
        """Return whether ``target`` responds to echo requests from ``source`` (None: from the test driver).

        Raises:
            RackgateError: ping itself failed, so the result is unknown.
        """
        if source is None:
            return echo.replies(target.ip, None)
        status = self._status(source, shlex.join(echo.ping_command(target.ip)))
        # 1: no response; any other status is an error of ping itself.
        if status not in (0, 1):
            raise RackgateError(f"{source.name}: ping {target.ip} ended with status {status}")
        return status == 0

    def rtt(
        self,
        target: Node,
        source: Node | None = None,
        count: int = echo.PING_COUNT,
        *,
        burst: bool = False,
    ) -> RoundTripTimes:
        """Measure the round-trip time to ``target`` from ``source`` (None: from the test driver).

        Raises:
            RackgateError: no response.
        """
        if source is None:
            return echo.measure("clients", target.name, target.ip, None, count, burst=burst)
        # Without a response, ping exits with 1 and reports it in the text that is parsed here.
        command = shlex.join(echo.ping_command(target.ip, count, echo.MEASUREMENT_WAIT_S, burst=burst))
        text = self.run_on(source, f"{command} || test $? -eq 1", 120)
        return echo.parse_ping(source.name, target.name, count, text)


if TYPE_CHECKING:

    def _check_protocol(hosts: Hosts) -> RunningCluster:
        # Checked for this class and not for the service, whose untyped base class would satisfy any protocol.
        return hosts
