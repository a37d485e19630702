"""Kinds of faults of a rack or a broker: killed, partitioned, paused, slowed, wiped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.faults.injection import Fault, Question, Target, Way, site_of
from pyhooks.faults.slow_links import Slow
from pyhooks.lab.running_cluster import TRIES, RunningCluster, reachable, serves
from pyhooks.lab.topology import Node, Quality

INSIDE = "inside the rack: "
STANDS = " stands"


def _at_once(work: Callable[[Node], Any], nodes: Sequence[Node]) -> dict[str, Any]:
    """Call a function for many nodes concurrently; return the results by node name."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip([node.name for node in nodes], pool.map(work, nodes), strict=True))


@dataclass(frozen=True)
class _OfProcesses:
    """Base of the process faults: clients probe them, and they leave the network unchanged."""

    cluster: RunningCluster
    target: Target

    def expects(self, probe: str, *, during: bool) -> bool:  # noqa: ARG002 - the same for every probe
        """Expect all probes to succeed without the fault and to fail under it."""
        return not during

    def ways(self) -> tuple[Way, ...]:
        """Return the paths from the clients to each node."""
        return tuple((None, node) for node in self.target.nodes)

    def told(self) -> Mapping[str, Any]:
        """Return no additional data."""
        return {}

    def spoils(self, other: Fault) -> bool:  # noqa: ARG002 - the network is as it was
        """Return False."""
        return False

    def prepare(self) -> Mapping[str, Any]:
        """Return nothing: the heal needs no facts."""
        return {}

    def _alive(self) -> dict[str, Question]:
        """Return probes for whether each node has a process and accepts a client's connection."""
        questions: dict[str, Question] = {}
        for node in self.target.nodes:
            questions[f"process of {node.name}"] = partial(self._has_process, node)
            questions[f"connect {node.name}"] = partial(reachable, node)
        return questions

    def _has_process(self, node: Node) -> bool:
        return self.cluster.process_state(node) != "down"


@dataclass(frozen=True)
class Kill(_OfProcesses):
    """SIGKILL to every Kafka process of the target; healed by a restart on the same disks."""

    kind: str = "kill"

    def probes(self) -> dict[str, Question]:
        """Return the probes of ``_alive``."""
        return self._alive()

    def inject(self) -> None:
        """Kill all processes at once."""
        _at_once(self.cluster.kill_kafka, self.target.nodes)

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Start the processes that do not run."""
        for node in self.target.nodes:
            self.cluster.start_kafka(node)


@dataclass(frozen=True)
class Cut:
    """Network partition: silent loss of every packet between the target and others; its processes keep running.

    Attributes:
        cluster: the cluster.
        target: a rack, whose nodes still reach each other, or a broker.
        peers: sites from which a rack is partitioned; empty for all.
    """

    cluster: RunningCluster
    target: Target
    peers: tuple[str, ...] = ()
    kind: str = "cut"

    def __post_init__(self) -> None:
        """Reject a partition that is impossible or can't be proved.

        Raises:
            RackgateError: a broker with peers, a peer that is not another site or is empty, or no other site.
        """
        if self.peers and self.target.kind == "broker":
            raise RackgateError(f"{self.target}: a broker can be cut off from all others only")
        others = [site.name for site in self.cluster.topology.sites if site.name != self.target.site]
        if wrong := [peer for peer in self.peers if peer not in others]:
            raise RackgateError(
                f"{self.target}: can't be cut off from {wrong[0]!r}; there are {', '.join(others) or 'no other sites'}"
            )
        for peer in self.peers:
            if not self.cluster.topology.site(peer).nodes and self.cluster.topology.client_site.name != peer:
                raise RackgateError(
                    f"{self.target}: nobody is in {peer!r} who could tell whether it is cut off from there"
                )
        if not others and self.target.kind == "rack":
            raise RackgateError(f"{self.target}: there is no other site from which it could be cut off")

    def probes(self) -> dict[str, Question]:
        """Return echo probes: from the clients, to and from each other site, and between the target's own nodes.

        One node of a site stands for all of them, unless sites are not partitioned as a whole.
        """
        return {name: partial(self.cluster.answers, way[1], way[0]) for name, way in self._asked()}

    def _asked(self) -> Iterator[tuple[str, Way]]:
        topology, members, alone = self.cluster.topology, self.target.nodes, self.target.kind == "broker"
        # For a broker, also the other nodes of its rack: a partition of the rack would not separate them from it.
        mates = [node for node in topology.site(self.target.site).nodes if alone and node not in members]
        count = 1 if self.cluster.ways.by_site else None
        far = [node for site in topology.sites for node in site.nodes[:count] if site.name != self.target.site]
        for node in members:
            if topology.client_site.name != self.target.site or alone:
                yield f"{self._way(topology.client_site.name)}clients to {node.name}", (None, node)
            for outsider in mates + far:
                way = self._way(outsider.site)
                yield f"{way}{outsider.name} to {node.name}", (outsider, node)
                yield f"{way}{node.name} to {outsider.name}", (node, outsider)
        for left, right in pairwise(members):
            yield f"{INSIDE}{left.name} to {right.name}", (left, right)

    def _way(self, site: str) -> str:
        return "" if not self.peers or site in self.peers else "not cut: "

    def expects(self, probe: str, *, during: bool) -> bool:
        """Expect replies without the fault; under it, only inside the rack and between sites not partitioned."""
        return not during or probe.startswith((INSIDE, "not cut: "))

    def ways(self) -> tuple[Way, ...]:
        """Return the paths of the probes."""
        return tuple(way for _, way in self._asked())

    def told(self) -> Mapping[str, Any]:
        """Return the peers and whether both sides have only brokers, no controllers or clients; empty without peers."""
        if not self.peers:
            return {}
        ends = (self.target.site, *self.peers)
        nodes = [node for name in ends for node in self.cluster.topology.site(name).nodes]
        alone = self.cluster.topology.client_site.name not in ends and not any(node.is_controller for node in nodes)
        return {"peers": self.peers, "brokers_alone": alone}

    def spoils(self, other: Fault) -> bool:
        """Return whether the partition cuts a path of the other fault's probes."""
        return any(self._cuts(way) for way in other.ways())

    def _cuts(self, way: Way) -> bool:
        if self.target.kind == "broker":
            return (way[0] in self.target.nodes) is not (way[1] in self.target.nodes)
        ends = {site_of(self.cluster, way[0]), way[1].site}
        others = ends - {self.target.site}
        return len(ends) == 2 and len(others) == 1 and (not self.peers or others <= set(self.peers))

    def prepare(self) -> Mapping[str, Any]:
        """Return nothing: the heal needs no facts."""
        return {}

    def inject(self) -> None:
        """Partition the target."""
        if self.target.kind == "rack":
            self.cluster.ways.cut(self.target.name, self.peers)
        else:
            self.cluster.ways.unplug(self.target.nodes[0])

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Heal the partition."""
        if self.target.kind == "rack":
            self.cluster.ways.join(self.target.name)
        else:
            self.cluster.ways.plug(self.target.nodes[0])


@dataclass(frozen=True)
class Pause(_OfProcesses):
    """SIGSTOP to every Kafka process of the target: connections stay open, without responses."""

    kind: str = "pause"

    def probes(self) -> dict[str, Question]:
        """Return probes for whether each process is stopped, and whether it responds to a client."""
        questions: dict[str, Question] = {}
        for node in self.target.nodes:
            questions[f"{node.name}{STANDS}"] = partial(self._stands, node)
            questions[f"{node.name} answers"] = partial(self._answers, node)
        return questions

    def expects(self, probe: str, *, during: bool) -> bool:
        """Expect a stopped process under the fault (a process that ended is not), and responses without it."""
        return during is probe.endswith(STANDS)

    def _stands(self, node: Node) -> bool:
        return self.cluster.process_state(node) == "paused"

    def _answers(self, node: Node) -> bool:
        for _ in range(TRIES):
            if serves(node, tries=1):
                return True
            # a stopped process never responds, so do not try again
            if self._stands(node):
                return False
        return False

    def inject(self) -> None:
        """Pause all processes at once."""
        _at_once(self.cluster.pause_kafka, self.target.nodes)

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Resume all processes."""
        for node in self.target.nodes:
            self.cluster.resume_kafka(node)


@dataclass(frozen=True)
class Wipe(_OfProcesses):
    """Destruction of the target: its processes are killed and its disks deleted; healed, it comes back empty.

    Attributes:
        cluster: the cluster.
        target: a rack or a broker.
        controllers: whether to delete the disks of controllers, too; the heal removes these voters from the quorum and
            adds them again. Otherwise the controllers of a rack are killed but keep their disks.
    """

    controllers: bool = False
    kind: str = "wipe"

    def __post_init__(self) -> None:
        """Reject a fault that could not be healed.

        Raises:
            RackgateError: a combined node without ``controllers``, or no majority of voters or no broker would remain.
        """
        voters = self.cluster.topology.controllers
        if both := [node.name for node in self.target.nodes if node.role == "combined" and not self.controllers]:
            raise RackgateError(
                f"{self.target}: {both[0]} keeps records and metadata on one disk: ask for --controllers too"
            )
        if not self._lost:
            return
        if 2 * (len(voters) - len(self._lost)) <= len(voters):
            raise RackgateError(
                f"{self.target}: {len(self._lost)} of {len(voters)} controllers are in it; without a majority nobody"
                " could take the lost voters out of the quorum, and nothing would come back"
            )
        if not self._others:
            raise RackgateError(
                f"{self.target}: all brokers are in it; without one nobody could be asked to take the lost voters out"
                " of the quorum, and nothing would come back"
            )

    @property
    def _wiped(self) -> tuple[Node, ...]:
        return tuple(node for node in self.target.nodes if node.is_broker or self.controllers)

    @property
    def _lost(self) -> tuple[Node, ...]:
        """Voters whose disks are deleted."""
        return tuple(node for node in self._wiped if node.is_controller)

    @property
    def _others(self) -> tuple[Node, ...]:
        """Brokers outside the target, through which the quorum is queried and changed."""
        return tuple(node for node in self.cluster.topology.brokers if node not in self.target.nodes)

    def probes(self) -> dict[str, Question]:
        """Return probes for live nodes, formatted disks, and lost controllers that vote with their current disks."""
        questions = self._alive()
        questions |= {f"disk of {node.name}": partial(self.cluster.formatted, node) for node in self._wiped}
        return questions | {f"voter {node.name} with its disk": partial(self._votes, node) for node in self._lost}

    def _votes(self, node: Node) -> bool:
        if not self.cluster.formatted(node):
            return False
        return self.cluster.voters(self._others).get(node.node_id) == self.cluster.directory_id(node)

    def prepare(self) -> Mapping[str, Any]:
        """Return the ids of the directories that will be deleted.

        Raises:
            RackgateError: a disk is not formatted, or too few other voters are alive to heal it.
        """
        if self._lost:
            current = self.cluster.voters(self._others)
            rest = [node for node in self.cluster.topology.controllers if node not in self._lost]
            # a partitioned or paused voter can't vote either
            asked = _at_once(serves, [node for node in rest if node.node_id in current])
            alive = [name for name, answers in asked.items() if answers]
            if 2 * len(alive) <= len(current):
                raise RackgateError(
                    f"{self.target}: of {len(current)} voters only {', '.join(alive) or 'none'} would be left alive;"
                    " without a majority nobody could take the lost ones out of the quorum, and nothing would come"
                    " back: heal the others first"
                )
        return {"directories": _at_once(self.cluster.directory_id, self._wiped)}

    def inject(self) -> None:
        """Kill all processes at once, then delete the disks."""
        _at_once(self.cluster.kill_kafka, self.target.nodes)
        _at_once(self.cluster.wipe, self._wiped)

    def heal(self, facts: Mapping[str, Any]) -> None:
        """Format the disks and start Kafka; every directory then has a new id.

        Raises:
            RackgateError: a disk that was unformatted has its previous id.
        """
        empty = [node for node in self._wiped if not self.cluster.formatted(node)]
        for node in self.target.nodes:
            if node not in self._wiped:
                self.cluster.start_kafka(node)
        self.cluster.replace_disks(self._wiped)
        lost = dict(facts.get("directories", {}))
        for node in empty:
            if self.cluster.directory_id(node) == lost.get(node.name):
                raise RackgateError(f"{node.name}: its disk has the id that it had, so it was not deleted")


def build(cluster: RunningCluster, kind: str, target: Target, settings: Mapping[str, Any]) -> Fault:
    """Create a fault from its description.

    Args:
        cluster: the cluster.
        kind: as in ``rackgate rack KIND``.
        target: rack or broker.
        settings: ``peers`` of cut, ``rtt_ms``, ``jitter_ms`` and ``loss_percent`` of slow, ``controllers`` of wipe.

    Raises:
        RackgateError: the fault is impossible for this target.
        ValueError: no such kind.
    """
    if kind == "kill":
        return Kill(cluster, target)
    if kind == "cut":
        return Cut(cluster, target, tuple(settings.get("peers", ())))
    if kind == "pause":
        return Pause(cluster, target)
    if kind == "slow":
        return Slow(cluster, target, Quality(**settings))
    if kind == "wipe":
        return Wipe(cluster, target, bool(settings.get("controllers", False)))
    raise ValueError(f"no kind of fault: {kind}")
