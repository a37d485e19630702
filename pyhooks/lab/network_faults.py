"""Network faults: partitions and added latency between racks and nodes, in a lab by routers, bridges and links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.lab import link_quality, network
from pyhooks.lab.topology import Link, Node, Quality, Topology


class NetworkControl(Protocol):
    """Network between the nodes of a cluster. All operations are idempotent."""

    @property
    def slows(self) -> bool:
        """Whether links can be slowed."""

    @property
    def by_site(self) -> bool:
        """Whether a site is partitioned as a whole, so one node proves it for all; else each node has its own rules."""

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drop all packets between ``site`` and other sites (all, or ``peers``), in both directions."""

    def join(self, site: str) -> None:
        """Heal a partition of ``site``; do nothing if there is none."""

    def unplug(self, node: Node) -> None:
        """Drop all packets between a node and all others."""

    def plug(self, node: Node) -> None:
        """Undo ``unplug``."""

    def slow(self, site: str, added: Quality) -> None:
        """Add delay, jitter and loss to all links of a site."""

    def restore_links(self, site: str) -> None:
        """Undo ``slow``; keep what other slowed sites add."""

    def quality(self, link: Link, without: str) -> Quality:
        """Return the current quality of a link, without what slowing the site ``without`` adds."""

    def slow_node(self, node: Node, added: Quality) -> None:
        """Add delay, jitter and loss between a node and all others."""

    def restore_node(self, node: Node) -> None:
        """Undo ``slow_node``."""


class LabNetwork:
    """Network of a lab, from inside; see ``NetworkControl``.

    Attributes:
        slows: whether links can be slowed; a call raises an error if this machine can't emulate the quality.
        by_site: True, because a site is partitioned at its router.
    """

    slows = True
    by_site = True

    def __init__(self, topology: Topology, machine: Callable[[Node], NamespaceMachine]) -> None:
        self.topology = topology
        self.machine = machine

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drop all packets between ``site`` and other sites (all, or ``peers``), in both directions."""
        network.cut(self.topology, site, peers)

    def join(self, site: str) -> None:
        """Heal a partition of ``site``; do nothing if there is none."""
        network.join(site)

    def unplug(self, node: Node) -> None:
        """Drop all packets between a node and all others."""
        network.unplug(node)

    def plug(self, node: Node) -> None:
        """Undo ``unplug``."""
        network.plug(node)

    def slow(self, site: str, added: Quality) -> None:
        """Add delay, jitter and loss to all links of a site.

        Raises:
            RackgateError: this machine can't emulate the quality on these links.
        """
        link_quality.slow(self.topology, site, added)

    def restore_links(self, site: str) -> None:
        """Undo ``slow``; keep what other slowed sites add."""
        link_quality.restore(self.topology, site)

    def quality(self, link: Link, without: str) -> Quality:
        """Return the current quality of a link, without what slowing the site ``without`` adds."""
        return link_quality.quality(link, without=without)

    def slow_node(self, node: Node, added: Quality) -> None:
        """Add delay, jitter and loss between a node and all others.

        Raises:
            RackgateError: this machine can't emulate the quality.
        """
        network.slow_port(node, self.machine(node), added)

    def restore_node(self, node: Node) -> None:
        """Undo ``slow_node``."""
        network.restore_port(node, self.machine(node))


if TYPE_CHECKING:

    def _check_protocol(network_: LabNetwork) -> NetworkControl:
        return network_
