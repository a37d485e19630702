"""Networks of racks: a bridge and a router per site, and a link between each pair of routers.

Sites are routed, not bridged together: each pair of sites has its own link, so a delay or a partition applies to one
pair and there are no loops. ``pyhooks.lab.link_emulation`` adds the delay of a link. A partition drops packets
silently, like a dead switch: connections hang instead of being refused.

Several sites may be slowed at a time, and they share links. What each adds is kept on the lab's own file system,
because each command that slows or heals is a separate process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import ClassVar

from pyhooks.core import paths, process
from pyhooks.core.files import evaluating, read_object, write_json
from pyhooks.core.locks import hold_lock
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.lab import link_emulation, link_emulator
from pyhooks.lab.link_emulation import Emulation
from pyhooks.lab.link_emulator import LinkState
from pyhooks.lab.topology import Link, Node, Quality, Site, Topology

CUT_PRIORITY = "10"
# quality that each slowed site adds to its links
SLOW_SITES = paths.LAB_HOME / "slow.json"
# A lossy link also loses ARP requests. After Linux's three, one a second, a router gives up and drops the packets that
# wait for the address, beyond the link's loss. The interval is in ms.
NEIGHBOUR_PROBES = "retrans 100 mcast_probes 100 ucast_probes 100"
# namespace of the link emulator, with the inner ends of the links
EMULATOR_NETNS = "links"
# kernel's default for the packets of a segment
MANY_PACKETS = 65_535
# kernel's numbers of bridge port states
_DISABLED, _FORWARDING = "0", "3"


def device(peer: str) -> str:
    """Return the name of the interface of a site's router that leads to ``peer``."""
    return f"to-{peer}"


def netns(site: str) -> str:
    """Return the name of the network namespace that is the router of ``site``."""
    return f"site-{site}"


def _ip(*arguments: str, ns: str | None = None, stdin: str | None = None) -> str:
    prefix = ["ip", "-n", ns] if ns else ["ip"]
    return process.run([*prefix, *arguments], task=f"network {ns or 'of the lab'}", stdin=stdin, timeout_s=20)


def _batch(lines: Sequence[str], ns: str | None = None) -> None:
    _ip("-batch", "-", ns=ns, stdin="\n".join(lines) + "\n")


def port(node: Node) -> str:
    """Return the name of the bridge port of a node."""
    return f"n{node.node_id}"


def create_emulator_namespace() -> None:
    """Create the namespace in which the link emulator runs.

    Raises:
        RackgateError: the kernel does not allow it.
    """
    _ip("netns", "add", EMULATOR_NETNS)
    # IPv6 would send packets of its own over the links
    ns = ["ip", "netns", "exec", EMULATOR_NETNS]
    process.run(
        [*ns, "sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"], task="network of the link emulator"
    )


def link_name(link: Link) -> str:
    """Return the name of a link in manifests and errors."""
    return f"{link.left}-{link.right}"


def build(topology: Topology, machine_pids: dict[str, int]) -> dict[str, Emulation]:
    """Create routers, bridges, links, routes and node addresses; return the kind of link emulation by link name.

    Raises:
        RackgateError: a program is missing or the kernel does not allow an operation.
    """
    for site in topology.sites:
        _router(site)
        for node in site.nodes:
            _attach(site, node.ip, machine_pids[node.name], port(node))
        if site.client:
            _attach(site, site.client_ip, None, "client")
    return {link_name(link): _link(topology, link) for link in topology.links}


def _router(site: Site) -> None:
    ns = netns(site.name)
    _ip("netns", "add", ns)
    _batch(
        [
            "link set lo up",
            "link add name rack type bridge",
            f"addr add {site.gateway}/24 dev rack",
            "link set rack up",
        ],
        ns,
    )
    process.run(["ip", "netns", "exec", ns, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], task=f"router {site.name}")


def _attach(site: Site, ip: str, pid: int | None, port: str) -> None:
    """Connect a node (or, without a PID, the lab's own namespace) to the bridge of its site."""
    ns = netns(site.name)
    target = f"netns {pid}" if pid is not None else "netns 1"
    _batch([f"link add {port} type veth peer name eth0 {target}", f"link set {port} master rack up"], ns)
    inside = [f"addr add {ip}/24 dev eth0", "link set eth0 up", f"route add default via {site.gateway}"]
    if not link_emulation.has_netem():
        # larger segments would be divided into packets at an emulated link
        inside.append(f"link set eth0 gso_max_size {link_emulator.SEGMENT_BYTES}")
    if pid is None:
        _batch(inside)
    else:
        process.run(
            ["nsenter", f"--target={pid}", "--net", "ip", "-batch", "-"],
            task=f"address {ip}",
            stdin="\n".join(inside) + "\n",
        )


def emulated_links(topology: Topology) -> dict[str, LinkState]:
    """Return the state of all links and node ports that the link emulator delays now, by name.

    Raises:
        RackgateError: the emulator does not respond.
    """
    if not link_emulator.SOCKET.exists():
        return {}
    names = [*map(link_name, topology.links), *map(port, topology.nodes)]
    return {name: state for name in names if (state := link_emulator.read(name)) is not None}


def _link(topology: Topology, link: Link) -> Emulation:
    how = link_emulation.emulation(f"link {link_name(link)}", link.quality)
    _connect(topology, link, link.quality, how)
    return how


def _connect(topology: Topology, link: Link, quality: Quality, how: Emulation) -> None:
    """Create the interfaces of a link, with addresses and routes, and the emulation of its quality."""
    (ns, left), (peer_ns, right) = _ends(link)
    if how == "emulator":
        _create_emulated(_inner(link), _ends(link))
    else:
        _batch([f"link add {left} type veth peer name {right} netns {peer_ns}"], ns)
    for site in (link.left, link.right):
        peer = topology.site(link.peer(site))
        dev = device(peer.name)
        _batch(
            [
                f"addr add {link.ip(site)}/24 dev {dev}",
                f"link set {dev} up",
                f"ntable change name arp_cache dev {dev} {NEIGHBOUR_PROBES}",
                f"route add {peer.subnet} via {link.ip(peer.name)} dev {dev}",
            ],
            netns(site),
        )
        if how == "netem":
            _netem(_in_router(site), dev, quality)
    if how == "emulator":
        # last: the emulator knows complete links only
        link_emulator.add(link_name(link), *_inner(link))
        _configure(link_name(link), _ends(link), quality)


def _disconnect(link: Link) -> None:
    """Delete the interfaces of a link that the emulator does not know; they may be incomplete or absent."""
    for ns, dev in _ends(link):
        _delete([dev], ns)
    _delete(_inner(link), EMULATOR_NETNS)


def _is_plain(topology: Topology, link: Link) -> bool:
    """Return whether a link that the emulator does not know is a complete pair of interfaces."""
    # the route that _connect adds last
    last = _ip("route", "show", topology.site(link.left).subnet, ns=netns(link.right))
    return bool(last) and not _existing(EMULATOR_NETNS).intersection(_inner(link))


def _existing(ns: str) -> set[str]:
    """Return the names of the interfaces of a namespace."""
    return {line.split()[0].partition("@")[0] for line in _ip("-br", "link", "show", ns=ns).splitlines()}


def _delete(devices: Sequence[str], ns: str) -> None:
    """Delete interfaces, except those that do not exist."""
    existing = _existing(ns)
    _batch([f"link del {dev}" for dev in devices if dev in existing], ns)


def _inner(link: Link) -> tuple[str, str]:
    """Return the names of the interfaces of an emulated link in the emulator's namespace."""
    return f"link{link.index}-left", f"link{link.index}-right"


def _create_emulated(inner: tuple[str, str], ends: Sequence[tuple[str, str]]) -> None:
    """Create the interfaces of an emulated link.

    Args:
        inner: names of the interfaces in the emulator's namespace, of the left and the right end.
        ends: namespaces and names of the left and the right interface outside.
    """
    for (ns, dev), peer in zip(ends, inner, strict=True):
        _batch([f"link add {dev} type veth peer name {peer} netns {EMULATOR_NETNS}"], ns)
        _batch([f"link set {peer} up"], EMULATOR_NETNS)


def _configure(name: str, ends: Sequence[tuple[str, str]], quality: Quality) -> None:
    """Change the quality of an emulated link, whose outer ends are given as namespace and name."""
    # Where packets are lost or wait one by one, a segment of many must not pass as one frame.
    single = bool(quality.loss_percent or quality.rate_mbit)
    if single:
        _limit_segments(ends, 1)
    link_emulator.configure(name, quality)
    if not single:
        # last: the emulator has room for large frames only now
        _limit_segments(ends, MANY_PACKETS)


def _limit_segments(ends: Sequence[tuple[str, str]], packets: int) -> None:
    for ns, dev in ends:
        _batch([f"link set {dev} gso_max_size {link_emulator.SEGMENT_BYTES} gso_max_segs {packets}"], ns)


def _netem(enter: Sequence[str], dev: str, quality: Quality) -> None:
    """Make an interface delay and lose outgoing packets; ``enter`` is the command prefix for its namespace."""
    steps = [
        ["root", "handle", "1:", "netem", *link_emulation.netem_arguments(quality)],
        # netem's own queue reorders packets under jitter
        ["parent", "1:1", "handle", "10:", "pfifo", "limit", str(link_emulation.QUEUE_PACKETS)],
    ]
    for step in steps:
        process.run([*enter, "tc", "qdisc", "replace", "dev", dev, *step], task=f"delay of {dev}")


def _in_router(site: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", netns(site))


def _ends(link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the interfaces of a link in the routers: namespace and name."""
    return (netns(link.left), device(link.right)), (netns(link.right), device(link.left))


def shape(topology: Topology, link: Link, quality: Quality) -> None:
    """Change the quality of a link, if this machine can emulate it; connections over it stay open.

    It repairs a link that an interrupted call has left incomplete.

    Raises:
        RackgateError: this machine can't emulate it.
    """
    how = link_emulation.emulation(f"link {link_name(link)}", quality)
    if link_emulation.has_netem():
        for site in (link.left, link.right):
            _netem(_in_router(site), device(link.peer(site)), quality)
    elif link_emulator.read(link_name(link)) is not None:
        _configure(link_name(link), _ends(link), quality)
    elif how == "emulator" or not _is_plain(topology, link):
        # a plain pair of interfaces, which stays emulated from now on, or what an interrupted call has left of it
        _disconnect(link)
        _connect(topology, link, quality, how)


def _slow_sites_lock() -> AbstractContextManager[None]:
    return hold_lock(SLOW_SITES.with_suffix(".lock"), taken="another command changes links", patience_s=math.inf)


def _read_slow_sites() -> dict[str, Quality]:
    if not SLOW_SITES.exists():
        return {}
    with evaluating(SLOW_SITES, "a list of slow sites"):
        return {site: Quality(**raw) for site, raw in read_object(SLOW_SITES, "it lists slow sites").items()}


def _write_slow_sites(slow: dict[str, Quality]) -> None:
    write_json(SLOW_SITES, {site: asdict(added) for site, added in slow.items()})


@dataclass(frozen=True)
class LabNetwork:
    """Network of a lab, from inside; see ``NetworkControl``."""

    topology: Topology
    machine: Callable[[Node], NamespaceMachine]
    slows: ClassVar[bool] = True  # a call raises an error if this machine can't emulate the quality
    by_site: ClassVar[bool] = True  # a site is partitioned at its router

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drop all packets between ``site`` and other sites (all, or ``peers``), in both directions; idempotent."""
        self.join(site)
        rules = []
        for link in self.topology.links_of(site):
            peer = self.topology.site(link.peer(site))
            if not peers or peer.name in peers:
                # inbound: all packets from the link; outbound: all packets routed to the peer's subnet
                rules += [f"iif {device(peer.name)}", f"to {peer.subnet}"]
        _batch([f"rule add {rule} priority {CUT_PRIORITY} blackhole" for rule in rules], netns(site))

    def join(self, site: str) -> None:
        """Heal a partition of ``site``; do nothing if there is none."""
        listed = _ip("rule", "list", "priority", CUT_PRIORITY, ns=netns(site))
        _batch([f"rule del priority {CUT_PRIORITY}"] * len(listed.splitlines()) or ["rule list"], netns(site))

    def unplug(self, node: Node) -> None:
        """Drop all packets between a node and all others, including its own rack; idempotent."""
        _port_state(node, _DISABLED)

    def plug(self, node: Node) -> None:
        """Undo ``unplug``."""
        _port_state(node, _FORWARDING)

    def slow(self, site: str, added: Quality) -> None:
        """Add delay, jitter and loss to all links of a site; replaces what was added for it before.

        Raises:
            RackgateError: this machine can't emulate the quality on these links.
        """
        with _slow_sites_lock():
            # written first, so that a heal can undo it even if this process is killed
            _write_slow_sites(_read_slow_sites() | {site: added})
            self._shape(site)

    def restore_links(self, site: str) -> None:
        """Undo ``slow``; keep what other slowed sites add. Idempotent."""
        with _slow_sites_lock():
            left = _read_slow_sites()
            left.pop(site, None)
            _write_slow_sites(left)
            self._shape(site)

    def _shape(self, site: str) -> None:
        for link in self.topology.links_of(site):
            shape(self.topology, link, self.quality(link))

    def quality(self, link: Link, without: str = "") -> Quality:
        """Return the quality of a link: that of the topology plus what slowed sites, except ``without``, add."""
        total = link.quality
        for site, added in _read_slow_sites().items():
            if site in (link.left, link.right) and site != without:
                total = total.plus(added)
        return total

    def slow_node(self, node: Node, added: Quality) -> None:
        """Add delay, jitter and loss between a node and the rest of its rack, and so of the cluster.

        Raises:
            RackgateError: this machine can't emulate the quality.
        """
        ns, name = netns(node.site), port(node)
        how = link_emulation.emulation(node.name, added)
        ends = [(ns, f"{name}-in"), (ns, f"{name}-out")]
        if how == "netem":
            _netem(_in_router(node.site), name, added)
            _netem(self.machine(node).enter([]), "eth0", added)
        elif how == "emulator" and link_emulator.read(name) is not None:
            _configure(name, ends, added)
        elif how == "emulator":
            inner = (f"{name}-left", f"{name}-right")
            _create_emulated(inner, ends)
            link_emulator.add(name, *inner)
            _configure(name, ends, added)
            near, far = (dev for _, dev in ends)
            _batch(
                [
                    f"link add name {name}-br type bridge",
                    f"link set {name}-br up",
                    f"link set {near} master rack up",
                    f"link set {far} master {name}-br up",
                    f"link set {name} master {name}-br",
                ],
                ns,
            )

    def restore_node(self, node: Node) -> None:
        """Undo ``slow_node``, even if it was interrupted; idempotent."""
        ns, name = netns(node.site), port(node)
        _ip("link", "set", name, "master", "rack", ns=ns)
        if not link_emulation.has_netem():
            link_emulator.remove(name)
        _delete([f"{name}-br", f"{name}-in", f"{name}-out"], ns)
        for enter, dev in ((_in_router(node.site), name), (self.machine(node).enter([]), "eth0")):
            if "netem" in process.run([*enter, "tc", "qdisc", "show", "dev", dev], task=f"delay of {node.name}"):
                process.run([*enter, "tc", "qdisc", "del", "dev", dev, "root"], task=f"delay of {node.name}")


def _port_state(node: Node, state: str) -> None:
    # not "ip link": its bridge_slave accepts a state but does not apply it
    command = ["bridge", "-n", netns(node.site), "link", "set", "dev", port(node), "state", state]
    process.run(command, task=f"port of {node.name}", timeout_s=20)
