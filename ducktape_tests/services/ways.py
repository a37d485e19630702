"""What parts racks from each other: the routers of a lab, or a packet filter on each host of a cluster file.

Nothing of ducktape is imported here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyhooks.core.errors import RackgateError
from pyhooks.lab.lab import Lab
from pyhooks.lab.network_faults import LabWays, Ways
from pyhooks.lab.topology import Link, Node, Quality, Topology

# Each a table of its own, since a broker may be cut off in a rack that is, too.
RACK_TABLE, BROKER_TABLE = "rackgate_rack", "rackgate_broker"
# By itself a cut ends then, so that a host is reached again if nobody is left who would take it away.
LASTS_S = 1800
# before filters of the usual priority, which may accept
PRIORITY = -200
# The host knows best by which port it is reached, and what it takes to be root there.
SCRIPT = """\
PATH=$PATH:/usr/sbin:/sbin; port=${{SSH_CONNECTION##* }}; root=; [ "$(id -u)" = 0 ] || root="sudo -n"
{unless}
[ -n "$port" ] || {{ echo "not reached by ssh"; exit 2; }}
$root nft -f - << RULES
{rules}RULES
"""


def of_lab(topology: Topology) -> LabWays:
    """Those of the lab that this process runs in, whose nodes the cluster runs on.

    Args:
        topology: of the cluster.

    Raises:
        RackgateError: there is no lab, or it is laid out in another way than the cluster.
    """
    lab = Lab.attach()
    if (lab.topology.sites, lab.topology.links) != (topology.sites, topology.links):
        raise RackgateError(
            f"the lab is made from {lab.topology.name} and the cluster from {topology.name}: make the lab from the same"
            " topology"
        )
    return lab.ways


class HostWays:
    """Those between hosts: nftables on a host drop what comes from elsewhere or goes there by IPv4, but for ssh.

    Attributes:
        topology: of the cluster, with the addresses of the hosts.
        run: runs a shell command on the host of a node, by ssh, and raises a ``RackgateError`` if it fails.
        slows: whether links can be made slow.
        by_site: rules are by address, and one that sends from another address would not be cut off.
    """

    slows = False
    by_site = False

    def __init__(self, topology: Topology, run: Callable[[Node, str], str]) -> None:
        self.topology = topology
        self.run = run

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drops everything between ``site`` and others (all, or ``peers``); cutting twice is the same as once.

        With the site of the clients go all hosts that are no nodes.

        Raises:
            RackgateError: the clients are in ``site``, so that hosts that nobody knows would have to be cut off, too.
        """
        client_site = self.topology.client_site.name
        if site == client_site:
            raise RackgateError(f"cut {site}: the clients are in it, and which hosts these are is not known; use a lab")
        parted = {peer.name for peer in self.topology.sites if peer.name != site and (not peers or peer.name in peers)}
        if client_site in parted:
            near = [node.ip for node in self.topology.nodes if node.site not in parted]
            rules = dropping(RACK_TABLE, but_for=near)
        else:
            far = [node.ip for node in self.topology.nodes if node.site in parted]
            rules = dropping(RACK_TABLE, these=far)
        for node in self.topology.site(site).nodes:
            self._change(node, rules)

    def join(self, site: str) -> None:
        """Takes a cut away; joining what is not cut does nothing.

        Raises:
            RackgateError: some host is still cut off; the others are not.
        """
        wrong = []
        for node in self.topology.site(site).nodes:
            try:
                self._change(node, _gone(RACK_TABLE))
            except RackgateError as error:
                wrong.append(error)
        if wrong:
            raise RackgateError("; ".join(map(str, wrong)), detail=wrong[0].detail)

    def unplug(self, node: Node) -> None:
        """Drops everything between a node and all others; doing so twice is the same as once."""
        self._change(node, dropping(BROKER_TABLE, but_for=[node.ip]))

    def plug(self, node: Node) -> None:
        """Takes ``unplug`` back."""
        self._change(node, _gone(BROKER_TABLE))

    def forget(self, node: Node) -> None:
        """Takes away what a run that was killed has left on a host; who may not look there has left nothing."""
        rules = "".join(map(_gone, (RACK_TABLE, BROKER_TABLE)))
        self._change(node, rules, unless="$root nft list tables 2> /dev/null | grep -q rackgate_ || exit 0")

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

    def _change(self, node: Node, rules: str, *, unless: str = "true") -> None:
        script = SCRIPT.format(unless=unless, rules=rules)
        try:
            self.run(node, script)
        except RackgateError as error:
            why = (error.detail or str(error)).strip().splitlines()[0]
            raise RackgateError(
                f"{node.name}: can't be cut off or joined, which needs nftables there, and root or sudo without a"
                f" password: {why}",
                detail=error.detail,
            ) from error


def _gone(table: str) -> str:
    # what is not there can't be deleted
    return f"table inet {table} {{}}\ndelete table inet {table}\n"


def dropping(table: str, *, but_for: Collection[str] | None = None, these: Collection[str] = ()) -> str:
    """Rules of nftables that drop what a host exchanges with others, but for ssh, for ``LASTS_S`` at most.

    The host's shell puts the port at which it listens for ssh in place of ``$port``.

    Args:
        table: its name; what was in it goes.
        but_for: addresses with which the host goes on; all others are cut off.
        these: addresses that are cut off, if ``but_for`` is None.

    Raises:
        RackgateError: there is no address, or one that is not of IPv4.
    """
    named = sorted(these if but_for is None else but_for)
    if not named:
        raise RackgateError("nobody from whom a host could be cut off")
    for address in named:
        _checked(address)
    addresses = f"{{ {', '.join(named)} }}"
    drop = "meta nfproto @cut drop"
    chains = []
    for hook, interface, other, own_port in (("input", "iif", "saddr", "dport"), ("output", "oif", "daddr", "sport")):
        chains += [
            f"chain {hook} {{",
            f"type filter hook {hook} priority {PRIORITY};",
            f"{interface} lo accept",
            f"tcp {own_port} $port accept",
            *([f"ip {other} {addresses} {drop}"] if but_for is None else [f"ip {other} {addresses} accept", drop]),
            "}",
        ]
    # The filter drops what is of the protocol in this set, and the kernel takes that out by itself.
    held = f"set cut {{ type nf_proto; flags timeout; elements = {{ ipv4 timeout {LASTS_S}s }}; }}"
    return _gone(table) + "\n".join([f"table inet {table} {{", held, *chains, "}", ""])


def _checked(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError as error:
        raise RackgateError(f"{address}: hosts that are to be cut off need addresses of IPv4") from error


if TYPE_CHECKING:

    def _all_that_faults_need(ways: HostWays) -> Ways:
        return ways
