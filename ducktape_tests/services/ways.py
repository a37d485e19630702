"""What parts racks from each other: the routers of a lab, or a packet filter on each host of a cluster file.

Nothing of ducktape is imported here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from pyhooks.cluster import network, slowness
from pyhooks.cluster.lab import Lab, in_lab
from pyhooks.cluster.running import Ways
from pyhooks.cluster.topology import Link, Node, Quality, Topology
from pyhooks.errors import RackgateError

# Each a table of its own, since a broker may be cut off in a rack that is, too.
RACK_TABLE, BROKER_TABLE = "rackgate_rack", "rackgate_broker"
# By itself a cut ends then, so that a host is reached again if nobody is left who would take it away.
LASTS_S = 1800
# before whatever else filters packets on a host
PRIORITY = -200


class LabWays:
    """Those of the lab that this process runs in, whose nodes the cluster runs on.

    Attributes:
        topology: of the cluster.
        slows: whether links can be made slow.
    """

    slows = True

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drops everything between ``site`` and others (all, or ``peers``); cutting twice is the same as once."""
        self._lab("cut a rack off")
        network.cut(self.topology, site, peers)

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""
        self._lab("join a rack")
        network.join(site)

    def unplug(self, node: Node) -> None:
        """Drops everything between a node and all others; doing so twice is the same as once."""
        self._lab("cut a broker off")
        network.unplug(node)

    def plug(self, node: Node) -> None:
        """Takes ``unplug`` back."""
        self._lab("join a broker")
        network.plug(node)

    def slow(self, site: str, added: Quality) -> None:
        """Adds delay, jitter and loss to all links of a site."""
        self._lab("slow a rack")
        slowness.slow(self.topology, site, added)

    def restore_links(self, site: str) -> None:
        """Takes ``slow`` back, and leaves what other slow sites add."""
        self._lab("restore the links of a rack")
        slowness.restore(self.topology, site)

    def quality(self, link: Link, without: str) -> Quality:
        """What a link does now, but for the slowness of the site ``without``."""
        self._lab("tell what a link does")
        return slowness.quality(link, without=without)

    def slow_node(self, node: Node, added: Quality) -> None:
        """Puts delay, jitter and loss between a node and all others."""
        network.slow_port(node, self._lab("slow a broker").machine(node), added)

    def restore_node(self, node: Node) -> None:
        """Takes ``slow_node`` back."""
        network.free_port(node, self._lab("restore a broker").machine(node))

    def _lab(self, what: str) -> Lab:
        """The lab.

        Raises:
            RackgateError: there is none, or it is laid out in another way than the cluster.
        """
        if not in_lab():
            raise RackgateError(f"{what}: needs the routers of a lab, and this runs in none")
        lab = Lab.attach()
        if (lab.topology.sites, lab.topology.links) != (self.topology.sites, self.topology.links):
            raise RackgateError(
                f"{what}: the lab is made from {lab.topology.name} and the cluster from {self.topology.name}: make the"
                " lab from the same topology"
            )
        return lab


class HostWays:
    """Those between hosts: nftables on a host drop what comes from elsewhere or goes there, but for ssh.

    Attributes:
        topology: of the cluster, with the addresses of the hosts.
        run: runs a shell command on the host of a node, and raises a ``RackgateError`` if it fails.
        ssh_ports: where the host of a node listens for ssh, by the node's name.
        words: what comes before a command that only root may run, by the node's name.
        slows: whether links can be made slow.
    """

    slows = False

    def __init__(
        self,
        topology: Topology,
        run: Callable[[Node, str], str],
        ssh_ports: Mapping[str, int],
        words: Mapping[str, str],
    ) -> None:
        self.topology = topology
        self.run = run
        self.ssh_ports = ssh_ports
        self.words = words

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drops everything between ``site`` and others (all, or ``peers``); cutting twice is the same as once.

        With the site of the clients go all hosts that are no nodes.
        """
        own = self.topology.site(site)
        parted = {peer.name for peer in self.topology.sites if peer.name != site and (not peers or peer.name in peers)}
        far = [node.ip for name in parted for node in self.topology.site(name).nodes]
        near = [node.ip for node in self.topology.nodes if node.site not in parted]
        for node in own.nodes:
            if self.topology.client_site.name in parted:
                self._filter(node, RACK_TABLE, but_for=near)
            else:
                self._filter(node, RACK_TABLE, these=far)

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing."""
        for node in self.topology.site(site).nodes:
            self._take_away(node, RACK_TABLE)

    def unplug(self, node: Node) -> None:
        """Drops everything between a node and all others; doing so twice is the same as once."""
        self._filter(node, BROKER_TABLE, but_for=[node.ip])

    def plug(self, node: Node) -> None:
        """Takes ``unplug`` back."""
        self._take_away(node, BROKER_TABLE)

    def forget(self, node: Node) -> None:
        """Takes away what a run that was killed has left on a host that knows of nftables."""
        for table in (RACK_TABLE, BROKER_TABLE):
            self.run(node, f"! command -v nft > /dev/null || {self._nft(node, _gone(table))}")

    def slow(self, site: str, added: Quality) -> None:  # noqa: ARG002 - as of a lab
        """Only in a lab."""
        self._only_in_a_lab("slow a rack")

    def restore_links(self, site: str) -> None:  # noqa: ARG002
        """Only in a lab."""
        self._only_in_a_lab("restore the links of a rack")

    def quality(self, link: Link, without: str) -> Quality:  # noqa: ARG002
        """Only in a lab."""
        self._only_in_a_lab("tell what a link does")

    def slow_node(self, node: Node, added: Quality) -> None:  # noqa: ARG002
        """Only in a lab."""
        self._only_in_a_lab("slow a broker")

    def restore_node(self, node: Node) -> None:  # noqa: ARG002
        """Only in a lab."""
        self._only_in_a_lab("restore a broker")

    def _only_in_a_lab(self, what: str) -> NoReturn:
        raise RackgateError(f"{what}: needs the wires of a lab; on other hosts there are kill, pause, cut and wipe")

    def _filter(
        self, node: Node, table: str, *, but_for: Collection[str] | None = None, these: Collection[str] = ()
    ) -> None:
        rules = _gone(table) + dropping(table, ssh_port=self.ssh_ports[node.name], but_for=but_for, these=these)
        self._change(node, rules)

    def _take_away(self, node: Node, table: str) -> None:
        self._change(node, _gone(table))

    def _change(self, node: Node, rules: str) -> None:
        try:
            self.run(node, self._nft(node, rules))
        except RackgateError as error:
            raise RackgateError(
                f"{error}; a cut on hosts needs nftables there, and root", detail=error.detail
            ) from error

    def _nft(self, node: Node, rules: str) -> str:
        return f"{self.words[node.name]}nft -f - <<'RULES'\n{rules}RULES\n"


def _gone(table: str) -> str:
    # what is not there can't be deleted
    return f"table ip {table} {{}}\ndelete table ip {table}\n"


def dropping(table: str, *, ssh_port: int, but_for: Collection[str] | None = None, these: Collection[str] = ()) -> str:
    """Rules of nftables that drop what a host exchanges with others, but for ssh, for ``LASTS_S`` at most.

    Args:
        table: its name.
        ssh_port: where the host listens for ssh.
        but_for: addresses with which it goes on; all others are cut off.
        these: addresses that are cut off, if ``but_for`` is None.

    Raises:
        RackgateError: an address is not one of IPv4.
    """
    named = sorted(these if but_for is None else but_for)
    for address in named:
        _checked(address)
    addresses = f"{{ {', '.join(named)} }}"
    chains = []
    for hook, other, own_port in (("input", "saddr", "dport"), ("output", "daddr", "sport")):
        verdicts = (
            [f"ip {other} {addresses} accept", "ip version @cut drop"]
            if but_for is not None
            else [f"ip {other} {addresses} ip version @cut drop"]
        )
        chains += [
            f"chain {hook} {{",
            f"type filter hook {hook} priority {PRIORITY};",
            f"{'iif' if hook == 'input' else 'oif'} lo accept",
            f"tcp {own_port} {ssh_port} accept",
            *verdicts,
            "}",
        ]
    # The filter drops what is of the version of IP in this set, and the kernel takes that out by itself.
    held = f"set cut {{ typeof ip version; flags timeout; elements = {{ 4 timeout {LASTS_S}s }}; }}"
    return "\n".join([f"table ip {table} {{", held, *chains, "}", ""])


def _checked(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError as error:
        raise RackgateError(f"{address}: hosts that are to be cut off need addresses of IPv4") from error


def _all_that_faults_need(lab: LabWays, hosts: HostWays) -> tuple[Ways, Ways]:
    return lab, hosts
