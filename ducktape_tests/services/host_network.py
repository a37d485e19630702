"""Network faults between racks: by the routers of a lab, or by a packet filter on each host of a cluster file.

This module does not import ducktape.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyhooks.core.errors import RackgateError
from pyhooks.lab.cluster_control import NetworkControl
from pyhooks.lab.lab import Lab
from pyhooks.lab.network import LabNetwork
from pyhooks.lab.topology import Node, Topology

# Separate tables, because a broker may be cut off while its rack is cut off, too.
RACK_TABLE, BROKER_TABLE = "rackgate_rack", "rackgate_broker"
# A cut expires after this time, so that a host becomes reachable again if no process is left to heal it.
EXPIRY_S = 1800
# before filters of the default priority, which may accept packets
PRIORITY = -200
# The host itself determines the port of its SSH connection, and whether it needs sudo.
SCRIPT = """\
PATH=$PATH:/usr/sbin:/sbin; port=${{SSH_CONNECTION##* }}; root=; [ "$(id -u)" = 0 ] || root="sudo -n"
{unless}
[ -n "$port" ] || {{ echo "not reached by SSH"; exit 2; }}
$root nft -f - << RULES
{rules}RULES
"""


def of_lab(topology: Topology) -> LabNetwork:
    """Return the network faults of the lab that this process and the cluster run in.

    Raises:
        RackgateError: there is no lab, or its layout differs from that of the cluster.
    """
    lab = Lab.attach()
    if (lab.topology.sites, lab.topology.links) != (topology.sites, topology.links):
        raise RackgateError(
            f"topology of the lab: {lab.topology.name}, of the cluster: {topology.name}; both must be the same"
        )
    return lab.network


def _unsupported(operation: str) -> Callable[..., NoReturn]:
    """Return a method that raises a ``RackgateError``, because only a lab supports this."""

    def reject(*_: object, **__: object) -> NoReturn:
        raise RackgateError(f"{operation}: needs a lab; hosts support kill, pause, cut and wipe")

    return reject


class HostNetwork:
    """Network faults between hosts: nftables rules on a host drop its IPv4 traffic with other hosts, except SSH.

    Attributes:
        by_site: False, because rules match addresses: a node that sends from another address would not be cut off.
    """

    slows = False
    by_site = False

    def __init__(self, topology: Topology, run: Callable[[Node, str], str]) -> None:
        self.topology = topology
        self.run = run

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drop all traffic between ``site`` and others (all, or ``peers``); idempotent.

        If the clients' site is one of the others, all hosts that are not nodes are cut off, too.

        Raises:
            RackgateError: the clients are in ``site``, so that unknown hosts would have to be cut off, too.
        """
        client_site = self.topology.client_site.name
        if site == client_site:
            raise RackgateError(f"cut {site}: contains the clients, whose hosts are unknown; use a lab")
        separated = {
            peer.name for peer in self.topology.sites if peer.name != site and (not peers or peer.name in peers)
        }
        if client_site in separated:
            near = [node.ip for node in self.topology.nodes if node.site not in separated]
            rules = dropping(RACK_TABLE, reachable=near)
        else:
            far = [node.ip for node in self.topology.nodes if node.site in separated]
            rules = dropping(RACK_TABLE, cut_off=far)
        for node in self.topology.site(site).nodes:
            self._change(node, rules)

    def join(self, site: str) -> None:
        """Remove the cut of a site; idempotent.

        Raises:
            RackgateError: at least one host is still cut off; all others are joined.
        """
        errors = []
        for node in self.topology.site(site).nodes:
            try:
                self._change(node, _removed(RACK_TABLE))
            except RackgateError as error:
                errors.append(error)
        if errors:
            raise RackgateError("; ".join(map(str, errors)), detail=errors[0].detail)

    def unplug(self, node: Node) -> None:
        """Drop all traffic between a node and all others; idempotent."""
        self._change(node, dropping(BROKER_TABLE, reachable=[node.ip]))

    def plug(self, node: Node) -> None:
        """Undo ``unplug``."""
        self._change(node, _removed(BROKER_TABLE))

    def forget(self, node: Node) -> None:
        """Remove the cuts that a killed run left on a host.

        Without permission to list the tables there are none, because creating them needs the same permission.
        """
        rules = "".join(map(_removed, (RACK_TABLE, BROKER_TABLE)))
        self._change(node, rules, unless="$root nft list tables 2> /dev/null | grep -q rackgate_ || exit 0")

    slow = _unsupported("slow a rack")
    restore_links = _unsupported("restore the links of a rack")
    quality = _unsupported("query a link")
    slow_node = _unsupported("slow a broker")
    restore_node = _unsupported("restore a broker")

    def _change(self, node: Node, rules: str, *, unless: str = "true") -> None:
        script = SCRIPT.format(unless=unless, rules=rules)
        try:
            self.run(node, script)
        except RackgateError as error:
            reason = (error.detail or str(error)).strip().splitlines()[0]
            raise RackgateError(
                f"{node.name}: can't change the packet filter, which needs nftables and root, or sudo without a"
                f" password: {reason}",
                detail=error.detail,
            ) from error


def _removed(table: str) -> str:
    # Declared first, because deleting a missing table fails.
    return f"table inet {table} {{}}\ndelete table inet {table}\n"


def dropping(table: str, *, reachable: Collection[str] | None = None, cut_off: Collection[str] = ()) -> str:
    """Return nftables rules that drop a host's traffic with others, except SSH, for at most ``EXPIRY_S``.

    The host's shell replaces ``$port`` with the port of its SSH server.

    Args:
        table: its name; its previous content is deleted.
        reachable: addresses that stay reachable; all others are cut off.
        cut_off: addresses that are cut off, if ``reachable`` is None.

    Raises:
        RackgateError: there is no address, or one is not an IPv4 address.
    """
    addresses = sorted(cut_off if reachable is None else reachable)
    if not addresses:
        raise RackgateError("no host to cut off")
    for address in addresses:
        _checked(address)
    address_set = f"{{ {', '.join(addresses)} }}"
    drop = "meta nfproto @cut drop"
    chains = []
    for hook, interface, other, own_port in (("input", "iif", "saddr", "dport"), ("output", "oif", "daddr", "sport")):
        chains += [
            f"chain {hook} {{",
            f"type filter hook {hook} priority {PRIORITY};",
            f"{interface} lo accept",
            f"tcp {own_port} $port accept",
            *(
                [f"ip {other} {address_set} {drop}"]
                if reachable is None
                else [f"ip {other} {address_set} accept", drop]
            ),
            "}",
        ]
    # The rules drop the protocols in this set, and the kernel removes the element after its timeout.
    protocols = f"set cut {{ type nf_proto; flags timeout; elements = {{ ipv4 timeout {EXPIRY_S}s }}; }}"
    return _removed(table) + "\n".join([f"table inet {table} {{", protocols, *chains, "}", ""])


def _checked(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError as error:
        raise RackgateError(f"{address}: cuts need IPv4 addresses") from error


if TYPE_CHECKING:

    def _check_protocol(network: HostNetwork) -> NetworkControl:
        return network
