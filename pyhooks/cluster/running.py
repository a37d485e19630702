"""What a fault and a test need of a running cluster, be it a lab or the hosts of a ducktape cluster file."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from pyhooks.cluster.topology import Node, Topology


class RunningCluster(Protocol):
    """A cluster whose Kafka processes can be killed and started and whose racks can be cut off."""

    @property
    def topology(self) -> Topology:
        """What it consists of."""

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """The brokers of a rack, or all."""

    def kill_kafka(self, node: Node) -> None:
        """Ends the node's Kafka process at once and waits until it is gone; does nothing if it does not run."""

    def start_kafka(self, node: Node) -> None:
        """Starts Kafka on ``node`` and does not wait until it serves; does nothing if it runs."""

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = ...) -> None:
        """Waits until all of ``nodes`` are registered and unfenced."""

    def answers(self, target: Node, source: Node | None = None) -> bool:
        """Whether ``target`` answers echo requests from ``source`` (None: from the clients)."""

    def cut(self, site: str) -> None:
        """Drops everything between ``site`` and all others; cutting twice is the same as once."""

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""


def reachable(node: Node, timeout_s: float = 1.0) -> bool:
    """Whether a client in this process's network can connect to the node's Kafka port right now."""
    try:
        with socket.create_connection((node.ip, node.port), timeout=timeout_s):
            return True
    except OSError:
        return False
