"""Kinds of faults of a rack or a broker: killed, partitioned, paused, slowed, wiped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.faults.injection import BaseFault, Fault, FaultTarget, NetworkPath, Probe, site_of
from pyhooks.faults.slow_links import SlowFault
from pyhooks.lab import quorum_changes
from pyhooks.lab.cluster_control import TRIES, RunningCluster, reachable, responds
from pyhooks.lab.topology import Node, Quality

INSIDE = "inside the rack: "
STOPPED = " is stopped"


def _map_nodes(work: Callable[[Node], Any], nodes: Sequence[Node]) -> dict[str, Any]:
    """Call a function for many nodes concurrently; return the results by node name."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip([node.name for node in nodes], pool.map(work, nodes), strict=True))


@dataclass(frozen=True)
class _ProcessFault(BaseFault):
    """Base of the process faults: clients probe them, and they leave the network unchanged."""

    def expects(self, probe: str, *, during: bool) -> bool:  # noqa: ARG002 - the same for every probe
        """Expect all probes to succeed without the fault and to fail under it."""
        return not during

    def paths(self) -> tuple[NetworkPath, ...]:
        """Return the paths from the clients to each node."""
        return tuple((None, node) for node in self.target.nodes)

    def invalidates(self, other: Fault) -> bool:  # noqa: ARG002 - the network is as it was
        """Return False."""
        return False

    def _alive(self) -> dict[str, Probe]:
        """Return probes for whether each node has a process and accepts a client's connection."""
        probes: dict[str, Probe] = {}
        for node in self.target.nodes:
            probes[f"process of {node.name}"] = partial(self._has_process, node)
            probes[f"connect {node.name}"] = partial(reachable, node)
        return probes

    def _has_process(self, node: Node) -> bool:
        return self.cluster.process_state(node) != "down"


@dataclass(frozen=True)
class KillFault(_ProcessFault):
    """SIGKILL to every Kafka process of the target; healed by a restart on the same disks."""

    kind: str = "kill"

    def probes(self) -> dict[str, Probe]:
        """Return the probes of ``_alive``."""
        return self._alive()

    def inject(self) -> None:
        """Kill all processes at once."""
        _map_nodes(self.cluster.kill_kafka, self.target.nodes)

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Start the processes that do not run."""
        for node in self.target.nodes:
            self.cluster.start_kafka(node)


@dataclass(frozen=True)
class PartitionFault(BaseFault):
    """Network partition: silent loss of every packet between the target and others; its processes keep running."""

    peers: tuple[str, ...] = ()  # sites from which a rack is partitioned; empty for all
    kind: str = "cut"

    def __post_init__(self) -> None:
        """Reject a partition that is impossible or can't be proved.

        Raises:
            RackgateError: a broker with peers, a peer that is not another site or is empty, or no other site.
        """
        if self.peers and self.target.kind == "broker":
            raise RackgateError(f"{self.target}: a broker can only be cut off from all other nodes")
        others = [site.name for site in self.cluster.topology.sites if site.name != self.target.site]
        if wrong := [peer for peer in self.peers if peer not in others]:
            raise RackgateError(
                f"{self.target}: can't be cut off from {wrong[0]!r}; there are {', '.join(others) or 'no other sites'}"
            )
        for peer in self.peers:
            if not self.cluster.topology.site(peer).nodes and self.cluster.topology.client_site.name != peer:
                raise RackgateError(f"{self.target}: site {peer!r} has no node or client, so the cut can't be proved")
        if not others and self.target.kind == "rack":
            raise RackgateError(f"{self.target}: there is no other site to cut it off from")

    def probes(self) -> dict[str, Probe]:
        """Return echo probes: from the clients, to and from each other site, and between the target's own nodes.

        One node of a site stands for all of them, unless sites are not partitioned as a whole.
        """
        return {name: partial(self.cluster.replies, path[1], path[0]) for name, path in self._probe_paths()}

    def _probe_paths(self) -> Iterator[tuple[str, NetworkPath]]:
        topology, members, alone = self.cluster.topology, self.target.nodes, self.target.kind == "broker"
        # For a broker, also the other nodes of its rack: a partition of the rack would not separate them from it.
        rack_mates = [node for node in topology.site(self.target.site).nodes if alone and node not in members]
        count = 1 if self.cluster.network.by_site else None
        far = [node for site in topology.sites for node in site.nodes[:count] if site.name != self.target.site]
        for node in members:
            if topology.client_site.name != self.target.site or alone:
                yield f"{self._label(topology.client_site.name)}clients to {node.name}", (None, node)
            for outsider in rack_mates + far:
                prefix = self._label(outsider.site)
                yield f"{prefix}{outsider.name} to {node.name}", (outsider, node)
                yield f"{prefix}{node.name} to {outsider.name}", (node, outsider)
        for left, right in pairwise(members):
            yield f"{INSIDE}{left.name} to {right.name}", (left, right)

    def _label(self, site: str) -> str:
        return "" if not self.peers or site in self.peers else "not cut: "

    def expects(self, probe: str, *, during: bool) -> bool:
        """Expect replies without the fault; under it, only inside the rack and between sites not partitioned."""
        return not during or probe.startswith((INSIDE, "not cut: "))

    def paths(self) -> tuple[NetworkPath, ...]:
        """Return the paths of the probes."""
        return tuple(path for _, path in self._probe_paths())

    def event_data(self) -> Mapping[str, Any]:
        """Return the peers and whether both sides have only brokers, no controllers or clients; empty without peers."""
        if not self.peers:
            return {}
        ends = (self.target.site, *self.peers)
        nodes = [node for name in ends for node in self.cluster.topology.site(name).nodes]
        alone = self.cluster.topology.client_site.name not in ends and not any(node.is_controller for node in nodes)
        return {"peers": self.peers, "brokers_alone": alone}

    def invalidates(self, other: Fault) -> bool:
        """Return whether the partition cuts a path of the other fault's probes."""
        return any(self._cuts(path) for path in other.paths())

    def _cuts(self, path: NetworkPath) -> bool:
        if self.target.kind == "broker":
            return (path[0] in self.target.nodes) is not (path[1] in self.target.nodes)
        ends = {site_of(self.cluster, path[0]), path[1].site}
        others = ends - {self.target.site}
        return len(ends) == 2 and len(others) == 1 and (not self.peers or others <= set(self.peers))

    def inject(self) -> None:
        """Partition the target."""
        if self.target.kind == "rack":
            self.cluster.network.cut(self.target.name, self.peers)
        else:
            self.cluster.network.unplug(self.target.nodes[0])

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Heal the partition."""
        if self.target.kind == "rack":
            self.cluster.network.join(self.target.name)
        else:
            self.cluster.network.plug(self.target.nodes[0])


@dataclass(frozen=True)
class PauseFault(_ProcessFault):
    """SIGSTOP to every Kafka process of the target: connections stay open, without responses."""

    kind: str = "pause"

    def probes(self) -> dict[str, Probe]:
        """Return probes for whether each process is stopped, and whether it responds to a client."""
        probes: dict[str, Probe] = {}
        for node in self.target.nodes:
            probes[f"{node.name}{STOPPED}"] = partial(self._is_stopped, node)
            probes[f"{node.name} responds"] = partial(self._responds, node)
        return probes

    def expects(self, probe: str, *, during: bool) -> bool:
        """Expect a stopped process under the fault (a process that ended is not), and responses without it."""
        return during is probe.endswith(STOPPED)

    def _is_stopped(self, node: Node) -> bool:
        return self.cluster.process_state(node) == "paused"

    def _responds(self, node: Node) -> bool:
        for _ in range(TRIES):
            if responds(node, tries=1):
                return True
            # a stopped process never responds, so do not try again
            if self._is_stopped(node):
                return False
        return False

    def inject(self) -> None:
        """Pause all processes at once."""
        _map_nodes(self.cluster.pause_kafka, self.target.nodes)

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Resume all processes."""
        for node in self.target.nodes:
            self.cluster.resume_kafka(node)


@dataclass(frozen=True)
class WipeFault(_ProcessFault):
    """Destruction of the target: its processes are killed and its disks deleted; after the heal it returns empty."""

    # whether to delete the disks of controllers, too; the heal removes these voters from the quorum and adds them
    # again. Otherwise the controllers of a rack are killed but keep their disks.
    controllers: bool = False
    kind: str = "wipe"

    def __post_init__(self) -> None:
        """Reject a fault that could not be healed.

        Raises:
            RackgateError: a combined node without ``controllers``, or no majority of voters or no broker would remain.
        """
        voters = self.cluster.topology.controllers
        if both := [node.name for node in self.target.nodes if node.role == "combined" and not self.controllers]:
            raise RackgateError(f"{self.target}: {both[0]} has records and metadata on one disk: use --controllers")
        if not self._lost_voters:
            return
        if 2 * (len(voters) - len(self._lost_voters)) <= len(voters):
            raise RackgateError(
                f"{self.target}: it has {len(self._lost_voters)} of {len(voters)} controllers; without a majority"
                " of voters the lost ones can't be replaced"
            )
        if not self._other_brokers:
            raise RackgateError(
                f"{self.target}: it has all brokers; without another broker the lost voters can't be replaced"
            )

    @property
    def _wiped_nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.target.nodes if node.is_broker or self.controllers)

    @property
    def _lost_voters(self) -> tuple[Node, ...]:
        """Voters whose disks are deleted."""
        return tuple(node for node in self._wiped_nodes if node.is_controller)

    @property
    def _other_brokers(self) -> tuple[Node, ...]:
        """Brokers outside the target, through which the quorum is queried and changed."""
        return tuple(node for node in self.cluster.topology.brokers if node not in self.target.nodes)

    def probes(self) -> dict[str, Probe]:
        """Return probes for live nodes, formatted disks, and lost controllers that vote with their current disks."""
        probes = self._alive()
        probes |= {f"disk of {node.name}": partial(self.cluster.formatted, node) for node in self._wiped_nodes}
        return probes | {f"voter {node.name} with its disk": partial(self._votes, node) for node in self._lost_voters}

    def _votes(self, node: Node) -> bool:
        if not self.cluster.formatted(node):
            return False
        directory = quorum_changes.voters(self.cluster, self._other_brokers).get(node.node_id)
        return directory == self.cluster.directory_id(node)

    def prepare(self) -> Mapping[str, Any]:
        """Return the ids of the directories that will be deleted.

        Raises:
            RackgateError: a disk is not formatted, or too few other voters are alive to heal it.
        """
        if self._lost_voters:
            current = quorum_changes.voters(self.cluster, self._other_brokers)
            rest = [node for node in self.cluster.topology.controllers if node not in self._lost_voters]
            # a partitioned or paused voter can't vote either
            responses = _map_nodes(responds, [node for node in rest if node.node_id in current])
            alive = [name for name, response in responses.items() if response]
            if 2 * len(alive) <= len(current):
                raise RackgateError(
                    f"{self.target}: of {len(current)} voters only {', '.join(alive) or 'none'} would remain; without a"
                    " majority the lost ones can't be replaced: heal other faults first"
                )
        return {"directories": _map_nodes(self.cluster.directory_id, self._wiped_nodes)}

    def inject(self) -> None:
        """Kill all processes at once, then delete the disks."""
        _map_nodes(self.cluster.kill_kafka, self.target.nodes)
        _map_nodes(self.cluster.wipe, self._wiped_nodes)

    def heal(self, facts: Mapping[str, Any]) -> None:
        """Format the disks and start Kafka; every directory then has a new id.

        Raises:
            RackgateError: a disk that was unformatted has its previous id.
        """
        empty = [node for node in self._wiped_nodes if not self.cluster.formatted(node)]
        for node in self.target.nodes:
            if node not in self._wiped_nodes:
                self.cluster.start_kafka(node)
        quorum_changes.replace_disks(self.cluster, self._wiped_nodes)
        lost = dict(facts.get("directories", {}))
        for node in empty:
            if self.cluster.directory_id(node) == lost.get(node.name):
                raise RackgateError(f"{node.name}: its disk still has its previous id, so it was not deleted")


def create_fault(cluster: RunningCluster, kind: str, target: FaultTarget, settings: Mapping[str, Any]) -> Fault:
    """Create a fault from its description.

    Args:
        cluster: the cluster.
        kind: as in ``rackgate rack KIND``.
        target: rack or broker.
        settings: ``peers`` of cut; ``rtt_ms``, ``jitter_ms``, ``loss_percent`` and ``rate_mbit`` of slow;
            ``controllers`` of wipe.

    Raises:
        RackgateError: the fault is impossible for this target.
        ValueError: no such kind.
    """
    if kind != "slow" and target.kind == "broker" and len(target.nodes) > 1:
        raise RackgateError(f"{target}: only slow takes several brokers; inject {kind} for one after the other")
    if kind == "kill":
        return KillFault(cluster, target)
    if kind == "cut":
        return PartitionFault(cluster, target, tuple(settings.get("peers", ())))
    if kind == "pause":
        return PauseFault(cluster, target)
    if kind == "slow":
        return SlowFault(cluster, target, Quality(**settings))
    if kind == "wipe":
        return WipeFault(cluster, target, bool(settings.get("controllers", False)))
    raise ValueError(f"no kind of fault: {kind}")
