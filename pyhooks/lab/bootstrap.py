"""Creation of a lab by its init process: nodes, network and Kafka processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from pyhooks.core import paths, process, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.lab import kafka_process, link_emulation, link_emulator, namespace_holder, network, topology
from pyhooks.lab.kafka_process import NODE_DISK
from pyhooks.lab.lab import Lab
from pyhooks.lab.topology import Topology

HOSTS = Path("/etc/hosts")


def _mount_private_run() -> None:
    """Mount a private /run, so that namespace names, sockets and disks vanish with the lab."""
    # A tmpfs is world-writable by default, and programs in a lab may run as other users.
    for command in (
        ["mount", "-t", "tmpfs", "-o", "mode=0755", "rackgate", "/run"],
        ["ip", "link", "set", "lo", "up"],
    ):
        process.run(command, task="lab")
    for folder in (Path("/run") / "netns", paths.LAB_HOME):
        folder.mkdir(mode=0o755)


def _write_hosts(wanted: Topology) -> None:
    """Add the names of all nodes and of this machine to /etc/hosts: a lab has no name server.

    Java looks up its host name when it initializes logging; without an entry this took 5 s.
    """
    known = HOSTS.read_text(encoding="utf-8") if HOSTS.exists() else ""
    lines = [f"{node.ip} {node.name}" for node in wanted.nodes]
    lines.append(f"{wanted.client_site.client_ip} {socket.gethostname()}")
    hosts = paths.LAB_HOME / "hosts"
    hosts.write_text(known.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
    process.run(["mount", "--bind", str(hosts), str(HOSTS)], task="lab: names of nodes")


def create_machine(name: str, disk: Path) -> tuple[NamespaceMachine, subprocess.Popen[bytes]]:
    """Create a machine with ``disk`` as its /mnt; it lasts until its init process or the caller ends.

    Its namespaces are children of the caller's (the lab's). ``disk`` is created if needed.

    Returns:
        The machine, and the process that holds its namespaces, which the caller must keep.

    Raises:
        RackgateError: the kernel refused to create the namespaces.
    """
    disk.mkdir(parents=True, exist_ok=True)
    command = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, "-I", "-S", namespace_holder.__file__]
    starter = process.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    if starter.stdout is None or starter.stderr is None:
        raise AssertionError("both are pipes")
    if starter.stdout.readline() != b"ready\n":
        raise RackgateError(f"{name}: no namespaces: {starter.stderr.read().decode().strip()}")
    starter.stdout.close()
    machine = NamespaceMachine(name, process.children(starter.pid)[0])
    machine.run(["hostname", name])
    machine.run(["mount", "--bind", str(disk), str(NODE_DISK)])
    machine.run(["ip", "link", "set", "lo", "up"])
    return machine, starter


def create_lab(
    name: str, source: Path, run_dir: Path, *, classpath: str, agent: str, archive: str
) -> tuple[Lab, dict[str, subprocess.Popen[bytes]]]:
    """Create the nodes and the network of the topology in ``source``; Kafka is not started.

    Returns:
        The lab, and the processes that it depends on, by description, which the caller must keep: those that hold its
        nodes' namespaces, and the link emulator.

    Raises:
        RackgateError: the kernel does not allow an operation, or a program is missing.
    """
    wanted = topology.load(source)
    _mount_private_run()
    # before the nodes are created, because they inherit the mounts
    _write_hosts(wanted)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    pids: dict[str, int] = {}
    disks: dict[str, str] = {}
    for item in wanted.nodes:
        disk = paths.LAB_HOME / item.name
        machine, holder = create_machine(item.name, disk)
        processes[f"process that holds {item.name}"] = holder
        pids[item.name], disks[item.name] = machine.pid, str(disk)
    if not link_emulation.has_netem():
        network.create_emulator_namespace()
        processes["link emulator"] = link_emulator.start(network.EMULATOR_NETNS, run_dir / "link_emulator.log")
    lab = Lab(
        name=name,
        topology=wanted,
        source=toml_config.read(source, "it defines the nodes and links of the lab"),
        pids=pids,
        disks=disks,
        run_dir=run_dir,
        classpath=classpath,
        agent=agent,
        archive=archive,
        cluster_id=kafka_process.new_id(),
        directory_ids={str(item.node_id): kafka_process.new_id() for item in wanted.controllers},
        emulations=dict(network.build(wanted, pids)),
    )
    lab.save()
    return lab, processes


def start_cluster(lab: Lab) -> None:
    """Format all disks, start all Kafka processes and wait until every broker is registered and unfenced.

    Raises:
        RackgateError: a process ended or took too long.
    """
    lab.format(lab.nodes)
    for item in lab.topology.controllers:
        lab.start_kafka(item)
    # Start brokers only after a controller is active. Until then a broker may copy the first leader's log before it is
    # committed and truncate it when another leader takes over. It then forgets the voters for good and never registers,
    # because KRaftControlRecordStateMachine.truncateNewEntries does not reset nextOffset.
    lab.wait_quorum()
    for item in lab.topology.brokers:
        lab.start_kafka(item)
    lab.wait_unfenced(lab.topology.brokers)


def find_damage(processes: dict[str, subprocess.Popen[bytes]], ended: frozenset[int]) -> str:
    """Return a short description of the part of the lab that has ended; empty if the lab is intact."""
    for what, child in processes.items():
        if child.pid in ended or child.poll() is not None:
            return f"the {what} ended"
    return ""
