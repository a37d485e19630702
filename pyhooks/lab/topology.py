"""Cluster topology: sites, brokers, controllers and the links between sites, read from a TOML file.

A *site* with brokers is a rack: its name becomes ``broker.rack``. Controllers are in a rack or in a site of their own,
so that the quorum can survive the failure of a rack. Exactly one site has the clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table

SHIPPED = Path(__file__).parent / "topologies"
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
# These addresses exist only in the namespaces of a lab; packets to them never leave it.
SITE_NET = "10.77"
LINK_NET = "10.78"
FIRST_NODE_HOST = 10
CLIENT_HOST = 2
MAX_SITES = 12
MAX_NODES_PER_SITE = 60
MAX_RTT_MS = 10_000.0
# Properties that tie a process to its node and lab; a topology file can't set them.
OWNED = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "broker.rack",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "controller.listener.names",
        "listener.security.protocol.map",
        "listeners",
        "advertised.listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)
MAX_LOSS_PERCENT = 90.0
MAX_RATE_MBIT = 100_000.0
# Keys and values are lines of a Java properties file, where other characters end a key, continue a line or are trimmed.
PROPERTY_KEY = re.compile(r"[A-Za-z0-9._-]+")
PROPERTY_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")

Role = Literal["broker", "controller", "combined"]


@dataclass(frozen=True)
class Node:
    """Machine of the cluster, with one Kafka process."""

    name: str  # ``broker-1``, ``controller-101`` or ``combined-1``
    node_id: int
    role: Role
    site: str
    ip: str

    @property
    def is_broker(self) -> bool:
        """Whether it stores records and serves clients."""
        return self.role != "controller"

    @property
    def is_controller(self) -> bool:
        """Whether it votes in the metadata quorum."""
        return self.role != "broker"

    @property
    def port(self) -> int:
        """Client port of a broker; quorum port of a controller-only node."""
        return CLIENT_PORT if self.is_broker else CONTROLLER_PORT

    @property
    def address(self) -> str:
        """``ip:port``."""
        return f"{self.ip}:{self.port}"

    @property
    def quorum_address(self) -> str:
        """``ip:port`` of a controller for other nodes."""
        return f"{self.ip}:{CONTROLLER_PORT}"


@dataclass(frozen=True)
class Site:
    """Failure domain: a rack, or a site for controllers and clients only."""

    name: str
    index: int  # position in the file from 1; part of its addresses
    nodes: tuple[Node, ...]
    client: bool

    @property
    def subnet(self) -> str:
        """Subnet with all addresses of the site."""
        return f"{SITE_NET}.{self.index}.0/24"

    @property
    def gateway(self) -> str:
        """Address of the site's router."""
        return f"{SITE_NET}.{self.index}.1"

    @property
    def client_ip(self) -> str:
        """Address of the clients, if they are at this site."""
        return f"{SITE_NET}.{self.index}.{CLIENT_HOST}"

    @property
    def is_rack(self) -> bool:
        """Whether it has brokers."""
        return any(node.is_broker for node in self.nodes)


@dataclass(frozen=True)
class Quality:
    """Latency, packet loss and rate limit of a link."""

    rtt_ms: float = 0.0  # added round-trip time in milliseconds, half in each direction
    jitter_ms: float = 0.0  # maximum deviation of the round-trip time, up or down; packets stay in order
    loss_percent: float = 0.0  # percentage of packets lost, per direction
    rate_mbit: float = 0.0  # megabits per second that each direction carries at most; 0 for no limit

    @property
    def plain(self) -> bool:
        """Whether it adds no delay and no loss, and has no limit."""
        return self == Quality()

    def plus(self, added: Quality) -> Quality:
        """Return the quality of both in series."""
        kept = (1 - self.loss_percent / 100) * (1 - added.loss_percent / 100)
        return Quality(
            self.rtt_ms + added.rtt_ms,
            self.jitter_ms + added.jitter_ms,
            round(100 * (1 - kept), 6),
            min((rate for rate in (self.rate_mbit, added.rate_mbit) if rate), default=0.0),
        )


@dataclass(frozen=True)
class Link:
    """Link between two sites."""

    index: int
    left: str
    right: str
    quality: Quality

    @property
    def rtt_ms(self) -> float:
        """Added round-trip time in milliseconds."""
        return self.quality.rtt_ms

    def ip(self, site: str) -> str:
        """Address of the link's end in ``site``."""
        return f"{LINK_NET}.{self.index}.{1 if site == self.left else 2}"

    def peer(self, site: str) -> str:
        """Return the name of the site at the other end."""
        return self.right if site == self.left else self.left


@dataclass(frozen=True)
class Topology:
    """Topology of a cluster."""

    name: str
    sites: tuple[Site, ...]
    links: tuple[Link, ...]
    broker_heap_mb: int = 384
    controller_heap_mb: int = 256
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    controller_properties: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()  # options of all nodes' JVMs, in addition to those of a lab

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, ordered by site."""
        return tuple(node for site in self.sites for node in site.nodes)

    @property
    def brokers(self) -> tuple[Node, ...]:
        """All brokers."""
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[Node, ...]:
        """All controllers."""
        return tuple(node for node in self.nodes if node.is_controller)

    def properties_of(self, node: Node) -> Mapping[str, str]:
        """Return the additional configuration of a node; broker properties take precedence on a combined node."""
        properties = dict(self.controller_properties if node.is_controller else {})
        return properties | dict(self.broker_properties if node.is_broker else {})

    def heap_mb_of(self, node: Node) -> int:
        """Return the Java heap of a node in MiB."""
        return self.broker_heap_mb if node.is_broker else self.controller_heap_mb

    @property
    def racks(self) -> tuple[Site, ...]:
        """Sites with brokers."""
        return tuple(site for site in self.sites if site.is_rack)

    @property
    def client_site(self) -> Site:
        """Site of the clients."""
        return next(site for site in self.sites if site.client)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, in the form of ``bootstrap.servers``."""
        return ",".join(node.address for node in self.brokers)

    def site(self, name: str) -> Site:
        """Return the site called ``name``.

        Raises:
            RackgateError: no such site.
        """
        for site in self.sites:
            if site.name == name:
                return site
        raise RackgateError(f"topology {self.name}: no site {name!r}; it has {_names(self.sites)}")

    def links_of(self, site: str) -> tuple[Link, ...]:
        """Return the links that end in ``site``."""
        return tuple(link for link in self.links if site in (link.left, link.right))


def _names(sites: tuple[Site, ...]) -> str:
    return ", ".join(site.name for site in sites)


def find(name_or_path: str) -> Path:
    """Return the path of a topology file, given a path or the name of a shipped one such as ``az3-outside``.

    Raises:
        RackgateError: no such file; the message lists the shipped topologies.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = SHIPPED / f"{name_or_path}.toml"
    if shipped.is_file():
        return shipped
    known = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
    raise RackgateError(f"no topology file {name_or_path!r}, and no shipped one of that name; shipped: {known}")


def load(path: Path) -> Topology:
    """Read a topology file.

    Raises:
        RackgateError: invalid TOML, key or value; the message names file, key and allowed values.
    """
    return parse(toml_config.read(path, "it describes a topology"), source=str(path))


def parse(raw: Mapping[str, Any], *, source: str) -> Topology:
    """Return the topology of a parsed TOML document; ``source`` names the document in errors.

    Raises:
        RackgateError: as in ``load``.
    """
    top = Table(raw, source)
    name = top.text("name")
    if not name.isprintable() or name != name.strip():
        raise top.wrong("name", f"must be printable, without white space at its ends, is {name!r:.100}")
    tables = top.tables("site")
    if len(tables) > MAX_SITES:
        raise top.wrong("site", f"must be {MAX_SITES} sites at most, is {len(tables)}")
    sites = tuple(_site(table, index) for index, table in enumerate(tables, 1))
    links = _links(top, [site.name for site in sites])
    broker_heap_mb, broker_properties = _jvm(top.table("brokers", {}), 384)
    controller_heap_mb, controller_properties = _jvm(top.table("controllers", {}), 256)
    jvm = top.table("jvm", {})
    java_options = jvm.texts("options", ())
    top.done()
    _check_sites(top, sites)
    return Topology(
        name=name,
        sites=sites,
        links=links,
        broker_heap_mb=broker_heap_mb,
        controller_heap_mb=controller_heap_mb,
        broker_properties=broker_properties,
        controller_properties=controller_properties,
        java_options=java_options,
    )


def _site(table: Table, index: int) -> Site:
    name = table.text("name")
    roles: tuple[tuple[str, Role], ...] = (
        ("brokers", "broker"),
        ("combined", "combined"),
        ("controllers", "controller"),
    )
    ids = [(role, node_id) for key, role in roles for node_id in table.wholes(key, ())]
    if len(ids) > MAX_NODES_PER_SITE:
        raise table.wrong("brokers", f"must be {MAX_NODES_PER_SITE} nodes in a site at most, is {len(ids)}")
    nodes = tuple(
        Node(f"{role}-{node_id}", node_id, role, name, f"{SITE_NET}.{index}.{host}")
        for host, (role, node_id) in enumerate(ids, FIRST_NODE_HOST)
    )
    return Site(name, index, nodes, table.flag("client", False))


def _check_sites(top: Table, sites: tuple[Site, ...]) -> None:
    names = [site.name for site in sites]
    for name in names:
        # Interface names have at most 15 characters and contain a site's name.
        if not (name.isalnum() and name.isascii() and name.islower() and len(name) <= 8):
            raise top.wrong("site.name", f"expected 1 to 8 lower-case letters and digits, found {name!r}")
    if len(set(names)) < len(names):
        raise top.wrong("site.name", f"names must differ, found {', '.join(names)}")
    nodes = [node for site in sites for node in site.nodes]
    ids = [node.node_id for node in nodes]
    if len(set(ids)) < len(ids):
        raise top.wrong("site", f"node ids must differ (brokers and controllers together), found {ids}")
    if not (any(node.is_broker for node in nodes) and any(node.is_controller for node in nodes)):
        raise top.wrong("site", "at least one broker and one controller are needed (or one node with both roles)")
    if sum(site.client for site in sites) != 1:
        raise top.wrong("site.client", "exactly one site has client = true")


def _links(top: Table, names: Sequence[str]) -> tuple[Link, ...]:
    default = _quality(top.table("links", {}), Quality())
    qualities = {frozenset(pair): default for pair in combinations(names, 2)}
    for table in top.tables("link", ()):
        between = table.choices("between", names)
        if len(between) != 2:
            raise table.wrong("between", f"must be two of {', '.join(names)}, is {', '.join(between)}")
        qualities[frozenset(between)] = _quality(table, default)
    return tuple(
        Link(index, left, right, qualities[frozenset((left, right))])
        for index, (left, right) in enumerate(combinations(names, 2))
    )


def _quality(table: Table, default: Quality) -> Quality:
    """Read the keys of a link; missing ones are taken from ``default``."""
    quality = Quality(
        rtt_ms=table.number("rtt_ms", 0, MAX_RTT_MS, default.rtt_ms),
        jitter_ms=table.number("jitter_ms", 0, MAX_RTT_MS, default.jitter_ms),
        loss_percent=table.number("loss_percent", 0, MAX_LOSS_PERCENT, default.loss_percent),
        rate_mbit=table.number("rate_mbit", 0, MAX_RATE_MBIT, default.rate_mbit),
    )
    if quality.jitter_ms > quality.rtt_ms:
        raise table.wrong("jitter_ms", f"must be at most rtt_ms, which is {quality.rtt_ms:g}, is {quality.jitter_ms:g}")
    return quality


def _jvm(table: Table, heap_mb: int) -> tuple[int, Mapping[str, str]]:
    given = table.table("properties", {})
    properties: dict[str, str] = {}
    for key in given.left():
        if not PROPERTY_KEY.fullmatch(key):
            raise given.wrong(key, f"a key has letters, digits, dots, dashes and underscores, is {key!r:.100}")
        if key in OWNED:
            raise given.wrong(key, "a lab sets this itself; it can't be given")
        value = given.scalar(key)
        properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
        if not PROPERTY_VALUE.fullmatch(properties[key]):
            raise given.wrong(
                key, f"must be printable ASCII, not empty, without white space at its ends, is {value!r:.100}"
            )
    # Kafka needs at least 128 MiB.
    return table.whole("heap_mb", 128, default=heap_mb), properties
