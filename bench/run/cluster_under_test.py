"""Cluster under test: its interface, and a lab as the implementation with fault injection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.plan.cluster_states import SLOW_RTT_MS, StateBrokers
from bench.run.client_security import ClientSecurity
from pyhooks.history.event_log import History

if TYPE_CHECKING:
    from pyhooks.lab.lab import Lab

PINGS = 50


class ClusterUnderTest(Protocol):
    """A cluster under test."""

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""

    @property
    def run_dir(self) -> Path:
        """Folder for what the run writes."""

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """Jars of Spark's Kafka source."""

    @property
    def security(self) -> ClientSecurity:
        """Security settings of its clients."""

    def survivors(self, rack: str) -> str:
        """Return the addresses of the brokers outside ``rack``."""

    def round_trips(self) -> list[dict[str, Any]]:
        """Measure round-trip times between places, in milliseconds."""

    def outage(self, rack: str, history: History) -> AbstractContextManager[object]:
        """Make ``rack`` unavailable while the block runs, with proof."""

    def state(self, reached: StateBrokers, history: History) -> AbstractContextManager[object]:
        """Kill brokers and slow brokers down while the block runs, with proof."""

    def contradiction(self, reached: StateBrokers) -> str:
        """Return what contradicts that ``state`` is in force at this moment; empty if nothing does."""

    def without(self, brokers: Sequence[int]) -> str:
        """Return the addresses of all brokers except these."""

    def manifest(self) -> Mapping[str, Any]:
        """Return its description: artifacts, patches, topology, kind of links."""


@dataclass(frozen=True)
class LabUnderTest:
    """A lab of namespaces on this machine."""

    lab: Lab

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return self.lab.bootstrap

    @property
    def run_dir(self) -> Path:
        """Folder of the lab's run."""
        return self.lab.run_dir

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """Jars of Spark's Kafka source, from the distribution."""
        from pyhooks.patchset.distribution import Distribution

        return Distribution.load().spark_jars

    @property
    def security(self) -> ClientSecurity:
        """Empty settings, because a lab is open to all clients inside it."""
        return ClientSecurity()

    def survivors(self, rack: str) -> str:
        """Return the addresses of the brokers outside ``rack``."""
        return ",".join(node.address for node in self.lab.brokers() if node.site != rack)

    def round_trips(self) -> list[dict[str, Any]]:
        """Measure ICMP echo, from clients to sites and between sites."""
        return [asdict(rtt) for rtt in self.lab.rtt_matrix(PINGS)]

    def outage(self, rack: str, history: History) -> AbstractContextManager[object]:
        """Kill every broker of the rack while the block runs."""
        from pyhooks.faults import registry
        from pyhooks.faults.injection import FaultTarget

        return registry.fault_applied(self.lab, "kill", FaultTarget.rack(self.lab, rack), history)

    @contextmanager
    def state(self, reached: StateBrokers, history: History) -> Iterator[None]:
        """Kill brokers and slow brokers down, one after the other; heal them in the opposite order."""
        from pyhooks.faults import registry
        from pyhooks.faults.injection import FaultTarget

        with ExitStack() as stack:
            for broker in reached.dead:
                target = FaultTarget.broker(self.lab, str(broker))
                stack.enter_context(registry.fault_applied(self.lab, "kill", target, history))
            for broker in reached.slow:
                target = FaultTarget.broker(self.lab, str(broker))
                stack.enter_context(registry.fault_applied(self.lab, "slow", target, history, rtt_ms=SLOW_RTT_MS))
            yield

    def contradiction(self, reached: StateBrokers) -> str:
        """Probe all faults again; return those that are not in force: dead brokers not dead, slow ones not slow."""
        from pyhooks.faults import registry

        found = registry.active_faults()
        if len(found) != len(reached.dead) + len(reached.slow):
            return f"{len(found)} faults are in force: {'; '.join(one.description for one in found) or 'none'}"
        contradictions = (one.injection(self.lab, History(self.lab.history_path)).contradiction() for one in found)
        return "; ".join(one for one in contradictions if one)

    def without(self, brokers: Sequence[int]) -> str:
        """Return the addresses of all brokers except these."""
        return ",".join(node.address for node in self.lab.brokers() if node.node_id not in brokers)

    def manifest(self) -> Mapping[str, Any]:
        """Return the distribution's manifest and the lab's links."""
        from pyhooks.patchset.distribution import Distribution

        return {
            "distribution": dict(Distribution.load().manifest),
            "topology": self.lab.source,
            "links": dict(self.lab.emulations),
        }


def current_lab() -> LabUnderTest:
    """Return the lab in which this process runs.

    Raises:
        RackgateError: this process is not inside a lab.
    """
    from pyhooks.lab.lab import Lab

    return LabUnderTest(Lab.attach())
