"""Cluster under test: a lab with fault injection, or an existing cluster, with the same methods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.plan.cluster_states import SLOW_RTT_MS, StateBrokers
from bench.run.client_security import ClientSecurity
from pyhooks.core.errors import RackgateError
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from pyhooks.kafka import tools
from pyhooks.lab.lab import Lab
from pyhooks.patchset.distribution import Distribution

if TYPE_CHECKING:
    from bench.load.executors import LoadHost
    from pyhooks.placement.cluster_query import ClusterObservation

TOPOLOGY = "existing cluster"
PINGS = 50
# Time limit of one of Kafka's performance tools in seconds.
TOOL_S = 180.0


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


@dataclass
class ClusterTarget:
    """Existing cluster as the cluster under test, in place of a lab."""

    bootstrap: str  # broker addresses
    security: ClientSecurity  # security settings of its clients
    observed: ClusterObservation  # description of the cluster
    hosts: list[LoadHost] = field(default_factory=list)  # the executors, once they have been surveyed

    @property
    def racks(self) -> dict[int, str]:
        """Broker id to rack."""
        return {broker.broker_id: broker.rack for broker in self.observed.cluster.brokers.values()}

    @property
    def addresses(self) -> dict[int, str]:
        """Broker id to address, of the brokers that are not fenced."""
        brokers = self.observed.cluster.brokers.values()
        return {broker.broker_id: broker.address for broker in brokers if not broker.fenced}

    @contextmanager
    def state(self, reached: StateBrokers, history: History) -> Iterator[None]:  # noqa: ARG002 - as a lab's
        """Leave the cluster in its state; raise an error if the state requires a fault."""
        self.without((*reached.dead, *reached.slow))
        yield

    def contradiction(self, reached: StateBrokers) -> str:  # noqa: ARG002 - as a lab's
        """Return an empty text: without faults only the topics can contradict a state."""
        return ""

    def without(self, brokers: Collection[int]) -> str:
        """Return the addresses of all brokers; raise an error if some are to be left out."""
        if brokers:
            raise RackgateError(
                f"brokers {', '.join(map(str, brokers))}: no faults are injected into an existing cluster"
            )
        return self.bootstrap

    def round_trips(self) -> list[dict[str, Any]]:
        """Measure TCP handshakes from this host; those from executors are measured by their survey."""
        from bench.load import executors

        rows = []
        for broker, address in self.addresses.items():
            try:
                durations_ms = executors.handshakes(address)
            except OSError:
                continue  # only connections from executors matter, and these work
            rows.append(executors.round_trip_row("driver", broker, durations_ms))
        return rows

    def run_tool(self, name: str, arguments: list[str]) -> str:  # noqa: ARG002 - the interface of a lab
        """Raise an error: only a lab has the tools of its Kafka.

        Raises:
            RackgateError: always.
        """
        raise RackgateError(f"kafka-{name}: runs only in a lab")

    def manifest(self) -> Mapping[str, Any]:
        """Return the description of the cluster and of the executors."""
        responses = self.observed.enforcement.responses
        levels = dict(next(iter(responses.values())).levels) if responses else {}
        return {
            "distribution": {"kafka_version": f"with metadata.version {levels.get('metadata.version', 'unknown')}"},
            "topology": TOPOLOGY,
            "links": {},
            "cluster": {"id": self.observed.cluster.cluster_id, "bootstrap": self.bootstrap, "features": levels},
            "executors": [host.as_json() for host in self.hosts],
        }


ClusterUnderTest = LabUnderTest | ClusterTarget


def current_lab() -> LabUnderTest:
    """Return the lab in which this process runs; it is an error if there is none."""
    return LabUnderTest(Lab.attach())
