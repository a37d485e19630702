"""Cluster under test: its interface, and a lab as the implementation with fault injection."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from bench.plan.cluster_states import SLOW_RTT_MS, StateBrokers
from bench.run.client_security import ClientSecurity
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from pyhooks.kafka import tools
from pyhooks.lab.lab import Lab
from pyhooks.patchset.distribution import Distribution

PINGS = 50
# Time limit of one of Kafka's performance tools in seconds.
TOOL_S = 180.0


class ClusterUnderTest(Protocol):
    """A cluster under test."""

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""

    @property
    def security(self) -> ClientSecurity:
        """Security settings of its clients."""

    def round_trips(self) -> list[dict[str, Any]]:
        """Measure round-trip times between places, in milliseconds."""

    def state(self, reached: StateBrokers, history: History) -> AbstractContextManager[object]:
        """Kill brokers and slow brokers down while the block runs, with proof."""

    def contradiction(self, reached: StateBrokers) -> str:
        """Return what contradicts that ``state`` is in force at this moment; empty if nothing does."""

    def without(self, brokers: Collection[int]) -> str:
        """Return the addresses of all brokers except these."""

    def run_tool(self, name: str, arguments: list[str]) -> str:
        """Run one of Kafka's command-line tools against all brokers and return its output."""

    def manifest(self) -> Mapping[str, Any]:
        """Return its description: artifacts, patches, topology, kind of links."""


@dataclass(frozen=True)
class LabUnderTest:
    """A lab of namespaces on this machine; it is open to all clients inside it."""

    lab: Lab
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return self.lab.bootstrap

    def round_trips(self) -> list[dict[str, Any]]:
        """Measure ICMP echo, from clients to sites and between sites."""
        return [asdict(rtt) for rtt in self.lab.rtt_matrix(PINGS)]

    @contextmanager
    def state(self, reached: StateBrokers, history: History) -> Iterator[None]:
        """Kill brokers one after the other, and slow brokers down; heal them in the opposite order."""
        with ExitStack() as stack:
            for broker in reached.dead:
                target = FaultTarget.broker(self.lab, str(broker))
                stack.enter_context(registry.fault_applied(self.lab, "kill", target, history))
            if reached.slow:
                target = FaultTarget.broker(self.lab, ",".join(map(str, reached.slow)))
                stack.enter_context(registry.fault_applied(self.lab, "slow", target, history, rtt_ms=SLOW_RTT_MS))
            yield

    def contradiction(self, reached: StateBrokers) -> str:
        """Probe all faults again; return those that are not in force: dead brokers not dead, slow ones not slow."""
        faults = registry.active_faults()
        if len(faults) != len(reached.dead) + bool(reached.slow):
            return f"{len(faults)} faults are in force: {'; '.join(fault.description for fault in faults) or 'none'}"
        history = History(self.lab.history_path)
        contradictions = (fault.injection(self.lab, history).contradiction() for fault in faults)
        return "; ".join(text for text in contradictions if text)

    def without(self, brokers: Collection[int]) -> str:
        """Return the addresses of all brokers except these."""
        return ",".join(node.address for node in self.lab.brokers() if node.node_id not in brokers)

    def run_tool(self, name: str, arguments: list[str]) -> str:
        """Run one of Kafka's command-line tools against all brokers and return its output.

        Raises:
            RackgateError: the tool failed.
        """
        return tools.run(self.lab.classpath, name, arguments, self.bootstrap, timeout_s=TOOL_S)

    def manifest(self) -> Mapping[str, Any]:
        """Return the distribution's manifest and the lab's links, with the frames that emulated ones lost so far."""
        return {
            "distribution": dict(Distribution.load().manifest),
            "topology": self.lab.source,
            "links": dict(self.lab.emulations),
            "link_states": self.lab.link_states(),
        }


def current_lab() -> LabUnderTest:
    """Return the lab in which this process runs; it is an error if there is none."""
    return LabUnderTest(Lab.attach())
