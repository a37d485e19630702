"""Fake faults whose probes return scripted results, and fake clusters for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyhooks.faults import injection
from pyhooks.faults.injection import FaultTarget, NetworkPath, Probe
from pyhooks.history.event_log import History
from pyhooks.lab import topology
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.topology import Link, Node, Quality


class UnchangedLinks:
    """Links without faults."""

    by_site = True

    def quality(self, link: Link, without: str) -> Quality:
        assert without in ("", link.left, link.right)
        return link.quality


class InMemoryCluster:
    """Fake cluster: a topology in memory instead of a lab."""

    topology = topology.load(topology.find("az3-outside"))
    network = UnchangedLinks()

    def formatted(self, node: Node) -> bool:
        raise AssertionError(node)

    def replies(self, target: Node, source: Node | None = None) -> bool:
        raise AssertionError(target, source)

    def rtt(self, target: Node, source: Node | None = None, count: int = 20, *, burst: bool = False) -> RoundTripTimes:
        raise AssertionError(target, source, count, burst)

    def wait_unfenced(self, nodes: object, timeout_s: float = 0) -> None:
        assert nodes
        assert timeout_s > 0


CLUSTER: Any = InMemoryCluster()
RACK_B = FaultTarget.rack(CLUSTER, "b")


@dataclass
class ScriptedFault:
    """Fake fault with one probe, which returns ``replies`` in order and then repeats the last one."""

    replies: list[bool]
    cluster: Any = CLUSTER
    kind: str = "kill"
    target: FaultTarget = RACK_B
    injected: int = 0
    healed: list[Mapping[str, Any]] = field(default_factory=list)

    def probes(self) -> dict[str, Probe]:
        return {"connect": lambda: self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]}

    def expects(self, probe: str, *, during: bool) -> bool:
        assert probe == "connect"
        return not during

    def paths(self) -> tuple[NetworkPath, ...]:
        return ()

    def event_data(self) -> Mapping[str, Any]:
        return {}

    def invalidates(self, other: object) -> bool:
        return other is self

    def prepare(self) -> Mapping[str, Any]:
        return {"disk": "d"}

    def inject(self) -> None:
        self.injected += 1

    def heal(self, facts: Mapping[str, Any]) -> None:
        self.healed.append(facts)


def apply_fault(fault: ScriptedFault, history: History) -> None:
    with injection.inject_all(fault, history):
        pass


AZ3: Any = InMemoryCluster()
AZ3.topology = topology.load(topology.find("az3"))
