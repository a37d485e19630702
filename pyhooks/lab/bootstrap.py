"""Makes a lab out of nothing: nodes, network, and Kafka on it; run by the lab's first process."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from pyhooks.core import paths, process, toml_config
from pyhooks.lab import kafka_process, network, node, topology
from pyhooks.lab.lab import Lab
from pyhooks.lab.link_emulation import VdeWire
from pyhooks.lab.topology import Topology

HOSTS = Path("/etc/hosts")


def _own_world() -> None:
    """A private /run, so that namespaces' names, sockets and disks vanish with the lab."""
    # a tmpfs is writable for all unless told otherwise, and programs in a lab may be other users'
    for words in (
        ["mount", "-t", "tmpfs", "-o", "mode=0755", "rackgate", "/run"],
        ["ip", "link", "set", "lo", "up"],
    ):
        process.run(words, what="lab")
    for folder in (Path("/run") / "netns", paths.LAB_HOME):
        folder.mkdir(mode=0o755)


def _names(wanted: Topology) -> None:
    """Names of all nodes, and of this machine, without a name server: there is none in a lab.

    Java asks for its host's name when it starts logging, and waited 5 s for an answer that could not come.
    """
    known = HOSTS.read_text(encoding="utf-8") if HOSTS.exists() else ""
    lines = [f"{node.ip} {node.name}" for node in wanted.nodes]
    lines.append(f"{wanted.client_site.client_ip} {socket.gethostname()}")
    ours = paths.LAB_HOME / "hosts"
    ours.write_text(known.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
    process.run(["mount", "--bind", str(ours), str(HOSTS)], what="lab: names of nodes")


def make(
    name: str, source: Path, run_dir: Path, *, classpath: str, agent: str, archive: str
) -> tuple[Lab, list[subprocess.Popen[bytes]]]:
    """Makes nodes and network of the topology in ``source``; Kafka is not started.

    Returns:
        The lab and the processes that hold its nodes, for the caller to keep.

    Raises:
        RackgateError: the kernel refused something, or a program is missing.
    """
    wanted = topology.load(source)
    _own_world()
    # before the nodes, which take over the mounts that they find
    _names(wanted)
    holders: list[subprocess.Popen[bytes]] = []
    pids: dict[str, int] = {}
    disks: dict[str, str] = {}
    for item in wanted.nodes:
        disk = paths.LAB_HOME / item.name
        machine, holder = node.create(item.name, disk)
        holders.append(holder)
        pids[item.name], disks[item.name] = machine.pid, str(disk)
    lab = Lab(
        name=name,
        topology=wanted,
        source=toml_config.read(source, "it says which nodes and links the lab has"),
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
    return lab, holders


def start(lab: Lab) -> None:
    """Formats all disks, starts all Kafka processes and waits until every broker is registered and unfenced.

    Raises:
        RackgateError: a process ended or took too long.
    """
    lab.format(lab.nodes)
    for item in lab.topology.controllers:
        lab.start_kafka(item)
    # Brokers only now: in 4.3.1 a broker that copies the first leader's log before it is committed, and has to truncate
    # it when another leader follows, forgets the voters for good (KRaftControlRecordStateMachine.truncateNewEntries
    # leaves nextOffset where it was) and never registers.
    lab.wait_quorum()
    for item in lab.topology.brokers:
        lab.start_kafka(item)
    lab.wait_unfenced(lab.topology.brokers)


def broken(holders: list[subprocess.Popen[bytes]], ended: frozenset[int]) -> str:
    """What of the lab itself has ended, in a few words, or empty if all of it is there.

    Args:
        holders: the processes that hold the nodes.
        ended: process ids whose end somebody else has collected.
    """
    for holder in holders:
        if holder.pid in ended or holder.poll() is not None:
            return "the process that holds a node ended"
    for file in network.WIRES.glob("*.pid"):
        wire = VdeWire(file.with_suffix(".mgmt"))
        # a wire that is being stopped loses its file first
        if not wire.alive and file.exists():
            return f"the process of wire {wire.name} ended"
    return ""
