"""Racks as networks: a bridge and a router for each site, links between the routers, and a switch on each link.

Sites are routed, not bridged together: each pair of sites has a link of its own, so a delay or a cut belongs to
one pair and there are no loops. How a link gets its delay: ``pyhooks.lab.link_emulation``.
A cut drops packets without a word, as a dead switch does: connections hang, they are not refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyhooks.core import paths, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespace_machine import NamespaceMachine
from pyhooks.lab import link_emulation
from pyhooks.lab.link_emulation import Emulation, VdeWire
from pyhooks.lab.topology import Link, Node, Quality, Site, Topology

CUT_PRIORITY = "10"
WIRES = paths.LAB_HOME / "wires"
# states of a port of a bridge, as the kernel numbers them
_DISABLED, _FORWARDING = "0", "3"


def device(peer: str) -> str:
    """Name of the interface of a site's router that leads to ``peer``."""
    return f"to-{peer}"


def netns(site: str) -> str:
    """Name of the network namespace that is the router of ``site``."""
    return f"site-{site}"


def _ip(*words: str, ns: str | None = None, stdin: str | None = None) -> str:
    prefix = ["ip", "-n", ns] if ns else ["ip"]
    return process.run([*prefix, *words], what=f"network {ns or 'of the lab'}", stdin=stdin, timeout_s=20)


def _batch(lines: Sequence[str], ns: str | None = None) -> None:
    _ip("-batch", "-", ns=ns, stdin="\n".join(lines) + "\n")


def port(node: Node) -> str:
    """Name of the bridge's port to which a node is plugged in."""
    return f"n{node.node_id}"


def link_name(link: Link) -> str:
    """What a link is called in manifests and errors."""
    return f"{link.left}-{link.right}"


def build(topology: Topology, machine_pids: dict[str, int]) -> dict[str, Emulation]:
    """Makes all routers, bridges, links and routes, and gives every node its address.

    Args:
        topology: what to make.
        machine_pids: node name to PID of its first process.

    Returns:
        How each link is made, by its name.

    Raises:
        RackgateError: a program is missing or the kernel refused.
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
    process.run(["ip", "netns", "exec", ns, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], what=f"router {site.name}")


def _attach(site: Site, ip: str, pid: int | None, port: str) -> None:
    """Plugs a node (or, without a PID, the lab's own namespace) into the bridge of its site."""
    ns = netns(site.name)
    target = f"netns {pid}" if pid is not None else "netns 1"
    _batch([f"link add {port} type veth peer name eth0 {target}", f"link set {port} master rack up"], ns)
    inside = [
        f"addr add {ip}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {site.gateway}",
    ]
    if pid is None:
        _batch(inside)
    else:
        process.run(
            ["nsenter", f"--target={pid}", "--net", "ip", "-batch", "-"],
            what=f"address {ip}",
            stdin="\n".join(inside) + "\n",
        )


def _link(topology: Topology, link: Link) -> Emulation:
    how = link_emulation.emulation(f"link {link_name(link)}", link.quality)
    left, right = device(link.right), device(link.left)
    if how == "vde":
        made = link_emulation.start(netns(link.left), (left, right), WIRES, link_name(link))
        made.set(link.quality)
        _batch([f"link set {right} netns {netns(link.right)}"], netns(link.left))
    else:
        _batch([f"link add {left} type veth peer name {right} netns {netns(link.right)}"], netns(link.left))
    for site in (link.left, link.right):
        peer = topology.site(link.peer(site))
        dev = device(peer.name)
        _batch(
            [
                f"addr add {link.ip(site)}/24 dev {dev}",
                f"link set {dev} up",
                f"route add {peer.subnet} via {link.ip(peer.name)} dev {dev}",
            ],
            netns(site),
        )
        if how == "netem":
            _netem(_in_router(site), dev, link.quality)
    return how


def _netem(enter: Sequence[str], dev: str, quality: Quality) -> None:
    """Lets an interface delay and lose what it sends; ``enter`` are the words that run a program where it is."""
    steps = [
        ["root", "handle", "1:", "netem", *link_emulation.netem_words(quality)],
        # netem's own queue lets packets overtake each other under jitter
        ["parent", "1:1", "handle", "10:", "pfifo", "limit", str(link_emulation.QUEUE_PACKETS)],
    ]
    for step in steps:
        process.run([*enter, "tc", "qdisc", "replace", "dev", dev, *step], what=f"delay of {dev}")


def _in_router(site: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", netns(site))


def _wire_of(link: Link) -> VdeWire:
    return VdeWire(WIRES / f"{link_name(link)}.mgmt")


def check_shape(link: Link, quality: Quality) -> None:
    """Whether ``shape`` could do it.

    Raises:
        RackgateError: this machine cannot do it to this link.
    """
    how = link_emulation.emulation(f"link {link_name(link)}", quality)
    if how == "vde" and not _wire_of(link).alive:
        raise RackgateError(
            f"link {link_name(link)}: it was made without any delay, and this kernel has no netem, so none can be"
            f" added; give it rtt_ms = {link_emulation.VDE_LEAST_MS:g} or more in the topology"
        )


def shape(link: Link, quality: Quality) -> None:
    """Changes what a link does to its packets; connections over it live on.

    Raises:
        RackgateError: this machine cannot do it to this link.
    """
    check_shape(link, quality)
    running = _wire_of(link)
    if running.alive:
        running.set(quality)
    elif link_emulation.has_netem():
        for site in (link.left, link.right):
            _netem(_in_router(site), device(link.peer(site)), quality)


def slow_port(node: Node, machine: NamespaceMachine, quality: Quality) -> None:
    """Puts delay, jitter and loss between a node and the rest of its rack, and so of the cluster.

    Raises:
        RackgateError: this machine cannot give what is asked.
    """
    ns, name = netns(node.site), port(node)
    how = link_emulation.emulation(node.name, quality)
    if how == "netem":
        _netem(_in_router(node.site), name, quality)
        _netem(machine.enter([]), "eth0", quality)
    elif how == "vde":
        near, far = f"{name}-in", f"{name}-out"
        made = link_emulation.start(ns, (near, far), WIRES, name)
        made.set(quality)
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


def free_port(node: Node, machine: NamespaceMachine) -> None:
    """Takes away what ``slow_port`` did, or has begun; doing so twice is the same as once."""
    ns, name = netns(node.site), port(node)
    _ip("link", "set", name, "master", "rack", ns=ns)
    if f"{name}-br" in _ip("-br", "link", "show", "type", "bridge", ns=ns):
        _ip("link", "del", f"{name}-br", ns=ns)
    VdeWire(WIRES / f"{name}.mgmt").stop()
    for enter, dev in ((_in_router(node.site), name), (machine.enter([]), "eth0")):
        if "netem" in process.run([*enter, "tc", "qdisc", "show", "dev", dev], what=f"delay of {node.name}"):
            process.run([*enter, "tc", "qdisc", "del", "dev", dev, "root"], what=f"delay of {node.name}")


def _cut_rules(topology: Topology, site: str, peers: Collection[str]) -> list[str]:
    rules = []
    for link in topology.links_of(site):
        peer = topology.site(link.peer(site))
        if peers and peer.name not in peers:
            continue
        # in: whatever comes over the link; out: whatever is routed to the peer, its link end included
        rules.append(f"iif {device(peer.name)}")
        rules.append(f"to {peer.subnet}")
    return rules


def cut(topology: Topology, site: str, peers: Collection[str] = ()) -> None:
    """Drops everything between ``site`` and other sites, both ways; cutting twice is the same as once.

    Args:
        topology: of the lab.
        site: which is cut off.
        peers: from which sites; none stands for all.
    """
    join(site)
    _batch(
        [f"rule add {rule} priority {CUT_PRIORITY} blackhole" for rule in _cut_rules(topology, site, peers)],
        netns(site),
    )


def join(site: str) -> None:
    """Takes a cut away; joining what is not cut does nothing."""
    listed = _ip("rule", "list", "priority", CUT_PRIORITY, ns=netns(site))
    _batch([f"rule del priority {CUT_PRIORITY}"] * len(listed.splitlines()) or ["rule list"], netns(site))


def unplug(node: Node) -> None:
    """Drops everything between a node and all others, its own rack included; doing so twice is the same as once."""
    _port_state(node, _DISABLED)


def plug(node: Node) -> None:
    """Takes ``unplug`` back."""
    _port_state(node, _FORWARDING)


def _port_state(node: Node, state: str) -> None:
    # not "ip link", whose bridge_slave takes a state and does nothing
    words = ["bridge", "-n", netns(node.site), "link", "set", "dev", port(node), "state", state]
    process.run(words, what=f"port of {node.name}", timeout_s=20)
