"""What the benchmark runs against: a lab, in which racks can be taken away."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyhooks.history import History

if TYPE_CHECKING:
    from pyhooks.cluster.lab import Lab

PINGS = 50


class Target(Protocol):
    """A cluster under test."""

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""

    @property
    def run_dir(self) -> Path:
        """Folder for what the run writes."""

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """The jars of Spark's Kafka source."""

    def survivors(self, rack: str) -> str:
        """Addresses of the brokers outside of ``rack``."""

    def round_trips(self) -> list[dict[str, Any]]:
        """Measured round-trip times between places, in milliseconds."""

    def outage(self, rack: str, history: History) -> AbstractContextManager[object]:
        """Takes ``rack`` away for the length of the block, with proof."""

    def manifest(self) -> Mapping[str, Any]:
        """What it is: artifacts, patches, topology, kind of links."""


@dataclass(frozen=True)
class LabTarget:
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
        """From the distribution."""
        from pyhooks.build.distribution import Distribution

        return Distribution.load().spark_jars

    def survivors(self, rack: str) -> str:
        """Addresses of the brokers outside of ``rack``."""
        return ",".join(node.address for node in self.lab.brokers() if node.site != rack)

    def round_trips(self) -> list[dict[str, Any]]:
        """By ICMP echo, clients to sites and sites to sites."""
        return [asdict(rtt) for rtt in self.lab.rtt_matrix(PINGS)]

    def outage(self, rack: str, history: History) -> AbstractContextManager[object]:
        """Kills every broker of the rack."""
        from pyhooks.fault import registry
        from pyhooks.fault.injection import Target as Taken

        return registry.applied(self.lab, "kill", Taken.rack(self.lab, rack), history)

    def manifest(self) -> Mapping[str, Any]:
        """The distribution's manifest and the lab's links."""
        from pyhooks.build.distribution import Distribution

        return {
            "distribution": dict(Distribution.load().manifest),
            "topology": self.lab.source,
            "links": dict(self.lab.emulations),
        }


def attach() -> Target:
    """The lab in which this process runs.

    Raises:
        RackgateError: not inside a lab.
    """
    from pyhooks.cluster.lab import Lab

    return LabTarget(Lab.attach())
