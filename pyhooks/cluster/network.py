"""Racks as networks: a bridge and a router for each site, links between the routers, and a switch on each link.

Sites are routed, not bridged together: each pair of sites has a link of its own, so a delay or a cut belongs to
one pair and there are no loops. A link is a veth pair where no delay is asked for; with delay it is a veth pair
under netem where the kernel has netem, else a VDE wire (two ``vde_switch`` with a ``wirefilter`` between them).
A cut drops packets without a word, as a dead switch does: connections hang, they are not refused.
"""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pyhooks import process
from pyhooks.cluster.node import NamespaceMachine
from pyhooks.cluster.topology import Link, Site, Topology
from pyhooks.errors import RackgateError
from pyhooks.wait import wait_for

Emulation = Literal["veth", "netem", "vde"]
CUT_PRIORITY = "10"
# wirefilter counts whole milliseconds in each direction.
VDE_STEP_MS = 1.0
PING_INTERVAL_S = 0.02


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


@cache
def has_netem() -> bool:
    """Whether this kernel can delay packets by itself; asked once, on the loopback of a throw-away namespace."""
    done = subprocess.run(
        ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
        timeout=20,
    )
    return done.returncode == 0


def emulation(link: Link) -> Emulation:
    """How this machine makes the link.

    Raises:
        RackgateError: the asked delay cannot be given here.
    """
    if link.rtt_ms == 0:
        return "veth"
    if has_netem():
        return "netem"
    if link.rtt_ms % VDE_STEP_MS:
        raise RackgateError(
            f"link {link.left}-{link.right}: rtt_ms = {link.rtt_ms:g} can't be given here: this kernel has no netem,"
            f" and VDE's wire delays by whole milliseconds; ask for a multiple of {VDE_STEP_MS:g}, or for 0"
        )
    return "vde"


@dataclass(frozen=True)
class Wire:
    """A link as it was made; ``processes`` are the programs that carry it, to be kept until the lab ends."""

    link: Link
    emulation: Emulation
    processes: tuple[subprocess.Popen[bytes], ...]


def build(topology: Topology, machine_pids: dict[str, int], folder: Path) -> tuple[Wire, ...]:
    """Makes all routers, bridges, links and routes, and gives every node its address.

    Args:
        topology: what to make.
        machine_pids: node name to PID of its first process.
        folder: where VDE's sockets go; short, since a socket's path has at most 107 bytes.

    Raises:
        RackgateError: a program is missing or the kernel refused.
    """
    for site in topology.sites:
        _router(site)
        for node in site.nodes:
            _attach(site, node.ip, machine_pids[node.name], f"n{node.node_id}")
        if site.client:
            _attach(site, site.client_ip, None, "client")
    return tuple(_wire(topology, link, folder) for link in topology.links)


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


def _wire(topology: Topology, link: Link, folder: Path) -> Wire:
    how = emulation(link)
    processes: tuple[subprocess.Popen[bytes], ...] = ()
    left, right = device(link.right), device(link.left)
    if how == "vde":
        processes = _vde(link, folder)
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
            delay = f"qdisc add dev {dev} root netem delay {link.rtt_ms / 2:g}ms limit 100000"
            process.run(["tc", "-n", netns(site), *delay.split()], what=f"delay of {link.left}-{link.right}")
    return Wire(link, how, processes)


def _vde(link: Link, folder: Path) -> tuple[subprocess.Popen[bytes], ...]:
    folder.mkdir(parents=True, exist_ok=True)
    ends: list[Path] = []
    started: list[subprocess.Popen[bytes]] = []

    def start(words: Sequence[str]) -> None:
        started.append(
            subprocess.Popen(
                [*process.DIES_WITH_PARENT, *words],
                # vde_switch is a terminal program that ends when its input does
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    for site in (link.left, link.right):
        end = folder / f"{link.index}.{site}"
        dev = device(link.peer(site))
        start(["ip", "netns", "exec", netns(site), "vde_switch", "-s", str(end), "-t", dev])
        ends.append(end)
    for end in ends:
        wait_for((end / "ctl").exists, what=f"VDE switch {end.name}", timeout_s=10, interval_s=0.02)
    # Whole milliseconds: the odd one goes to one direction, the sum is what was asked.
    total_ms = round(link.rtt_ms)
    delays = [f"LR{total_ms - total_ms // 2}", f"RL{total_ms // 2}"]
    words = [word for delay in delays if not delay.endswith("L0") for word in ("-d", delay)]
    start(["wirefilter", "-v", f"{ends[0]}:{ends[1]}", *words])
    return tuple(started)


def _cut_rules(topology: Topology, site: str) -> list[str]:
    rules = []
    for link in topology.links_of(site):
        peer = topology.site(link.peer(site))
        # in: whatever comes over the link; out: whatever is routed to the peer, its link end included
        rules.append(f"iif {device(peer.name)}")
        rules.append(f"to {peer.subnet}")
    return rules


def cut(topology: Topology, site: str) -> None:
    """Drops everything between ``site`` and all others, both ways; cutting twice is the same as once."""
    join(site)
    _batch(
        [f"rule add {rule} priority {CUT_PRIORITY} blackhole" for rule in _cut_rules(topology, site)],
        netns(site),
    )


def join(site: str) -> None:
    """Takes a cut away; joining what is not cut does nothing."""
    listed = _ip("rule", "list", "priority", CUT_PRIORITY, ns=netns(site))
    _batch([f"rule del priority {CUT_PRIORITY}"] * len(listed.splitlines()) or ["rule list"], netns(site))


def is_cut(site: str) -> bool:
    """Whether a cut is in force at the router of ``site``."""
    return bool(_ip("rule", "list", "priority", CUT_PRIORITY, ns=netns(site)).strip())


@dataclass(frozen=True)
class Rtt:
    """Round-trip times between two places in milliseconds, by ICMP echo.

    Attributes:
        source: where the echo requests start.
        target: who answers.
        sent: requests sent.
        received: answers.
        p50_ms: median.
        p99_ms: 99th percentile, nearest rank.
        max_ms: largest.
    """

    source: str
    target: str
    sent: int
    received: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def parse_ping(source: str, target: str, sent: int, text: str) -> Rtt:
    """Reads the output of ``ping``.

    Raises:
        RackgateError: no answer in it.
    """
    times = sorted(float(found) for found in re.findall(r"time=([0-9.]+) ms", text))
    if not times:
        raise RackgateError(f"no echo from {target} to {source}: is the link cut?")
    p99 = times[min(len(times) - 1, -(-99 * len(times) // 100) - 1)]
    return Rtt(source, target, sent, len(times), statistics.median(times), p99, times[-1])


def _echo(ip: str, count: int, machine: NamespaceMachine | None) -> str:
    words = ["ping", "-n", "-c", str(count), "-i", str(PING_INTERVAL_S), "-W", "1", ip]
    done = subprocess.run(
        machine.enter(words) if machine else words, capture_output=True, text=True, check=False, timeout=120
    )
    # 1: no answer; anything else is ping's own trouble
    if done.returncode not in (0, 1):
        raise RackgateError(f"ping {ip}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def answers(ip: str, machine: NamespaceMachine | None) -> bool:
    """Whether ``ip`` answers one of three echo requests from ``machine`` (None: from where we are) within a second.

    Raises:
        RackgateError: ping itself failed, so nothing is known.
    """
    return "bytes from" in _echo(ip, 3, machine)


def ping(source: str, target: str, ip: str, machine: NamespaceMachine | None, count: int) -> Rtt:
    """Measures the round-trip time to ``ip``, which is called ``target``.

    Raises:
        RackgateError: no answer.
    """
    return parse_ping(source, target, count, _echo(ip, count, machine))
