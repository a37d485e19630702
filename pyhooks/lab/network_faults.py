"""What parts racks and nodes from each other, and puts them far away: in a lab its routers, bridges and wires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pyhooks.core.namespace_machine import NamespaceMachine
from pyhooks.lab import link_quality, network
from pyhooks.lab.topology import Link, Node, Quality, Topology


class Ways(Protocol):
    """Whatever lies between the nodes of a cluster; what is done twice is as if it were done once."""

    @property
    def slows(self) -> bool:
        """Whether it can be made slow."""

    @property
    def by_site(self) -> bool:
        """Whether a site is cut off as a whole, so that one of its nodes tells of all; else each has its own rules."""

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drops everything between ``site`` and others (all, or ``peers``), both ways."""

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""

    def unplug(self, node: Node) -> None:
        """Drops everything between a node and all others."""

    def plug(self, node: Node) -> None:
        """Takes ``unplug`` back."""

    def slow(self, site: str, added: Quality) -> None:
        """Adds delay, jitter and loss to all links of a site."""

    def restore_links(self, site: str) -> None:
        """Takes ``slow`` back, and leaves what other slow sites add."""

    def quality(self, link: Link, without: str) -> Quality:
        """What a link does now, but for the slowness of the site ``without``."""

    def slow_node(self, node: Node, added: Quality) -> None:
        """Puts delay, jitter and loss between a node and all others."""

    def restore_node(self, node: Node) -> None:
        """Takes ``slow_node`` back."""


class LabWays:
    """Those of a lab, from inside; see ``Ways``.

    Attributes:
        topology: of the lab.
        machine: what runs commands on a node.
        slows: whether links can be made slow; each call says so if this machine can't do what is asked.
        by_site: a site is cut off at its router.
    """

    slows = True
    by_site = True

    def __init__(self, topology: Topology, machine: Callable[[Node], NamespaceMachine]) -> None:
        self.topology = topology
        self.machine = machine

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drops everything between ``site`` and others (all, or ``peers``), both ways."""
        network.cut(self.topology, site, peers)

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""
        network.join(site)

    def unplug(self, node: Node) -> None:
        """Drops everything between a node and all others."""
        network.unplug(node)

    def plug(self, node: Node) -> None:
        """Takes ``unplug`` back."""
        network.plug(node)

    def slow(self, site: str, added: Quality) -> None:
        """Adds delay, jitter and loss to all links of a site.

        Raises:
            RackgateError: this machine cannot do it to these links.
        """
        link_quality.slow(self.topology, site, added)

    def restore_links(self, site: str) -> None:
        """Takes ``slow`` back, and leaves what other slow sites add."""
        link_quality.restore(self.topology, site)

    def quality(self, link: Link, without: str) -> Quality:
        """What a link does now, but for the slowness of the site ``without``."""
        return link_quality.quality(link, without=without)

    def slow_node(self, node: Node, added: Quality) -> None:
        """Puts delay, jitter and loss between a node and all others.

        Raises:
            RackgateError: this machine cannot give what is asked.
        """
        network.slow_port(node, self.machine(node), added)

    def restore_node(self, node: Node) -> None:
        """Takes ``slow_node`` back."""
        network.free_port(node, self.machine(node))


if TYPE_CHECKING:

    def _all_that_faults_need(ways: LabWays) -> Ways:
        return ways
