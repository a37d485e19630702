"""What a cluster looks like: sites, brokers, controllers and the links between sites, read from a TOML file.

A *site* with brokers is a rack: its name becomes ``broker.rack``. Controllers may stand in a rack or in a site of
their own, so that the quorum can outlive the rack under fault. Exactly one site holds the clients.
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
# Addresses exist only inside the namespaces of a lab; the first two octets never leave it.
SITE_NET = "10.77"
LINK_NET = "10.78"
FIRST_NODE_HOST = 10
CLIENT_HOST = 2
MAX_SITES = 12
MAX_NODES_PER_SITE = 60
MAX_RTT_MS = 10_000.0
# what makes a process that node of that lab
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
# They become lines of Java's properties, where other characters end a key, continue a line or are trimmed.
PROPERTY_KEY = re.compile(r"[A-Za-z0-9._-]+")
PROPERTY_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")

Role = Literal["broker", "controller", "combined"]


@dataclass(frozen=True)
class Node:
    """One machine of the cluster, with one Kafka process.

    Attributes:
        name: ``broker-1``, ``controller-101`` or ``combined-1``.
        node_id: Kafka's ``node.id``.
        role: broker, controller, or both in one process (combined).
        site: name of the site in which it stands.
        ip: its address inside the lab.
    """

    name: str
    node_id: int
    role: Role
    site: str
    ip: str

    @property
    def is_broker(self) -> bool:
        """Whether it keeps records and serves clients."""
        return self.role != "controller"

    @property
    def is_controller(self) -> bool:
        """Whether it votes in the metadata quorum."""
        return self.role != "broker"

    @property
    def port(self) -> int:
        """The port on which it serves: clients, or the quorum if it is nothing but a controller."""
        return CLIENT_PORT if self.is_broker else CONTROLLER_PORT

    @property
    def address(self) -> str:
        """``ip:port``."""
        return f"{self.ip}:{self.port}"

    @property
    def quorum_address(self) -> str:
        """``ip:port`` of a controller, for other nodes."""
        return f"{self.ip}:{CONTROLLER_PORT}"


@dataclass(frozen=True)
class Site:
    """A place that can fail as a whole: a rack, or a place for controllers and clients.

    Attributes:
        name: as in the file.
        index: position in the file from 1; part of its addresses.
        nodes: brokers and controllers in it.
        client: whether the clients are here.
    """

    name: str
    index: int
    nodes: tuple[Node, ...]
    client: bool

    @property
    def subnet(self) -> str:
        """All addresses of the site."""
        return f"{SITE_NET}.{self.index}.0/24"

    @property
    def gateway(self) -> str:
        """Address of the site's router."""
        return f"{SITE_NET}.{self.index}.1"

    @property
    def client_ip(self) -> str:
        """Address of the clients, if they are here."""
        return f"{SITE_NET}.{self.index}.{CLIENT_HOST}"

    @property
    def is_rack(self) -> bool:
        """Whether it has brokers."""
        return any(node.is_broker for node in self.nodes)


@dataclass(frozen=True)
class Quality:
    """What a link does to the packets on it.

    Attributes:
        rtt_ms: added round-trip time in milliseconds, one half in each direction.
        jitter_ms: the round-trip time varies by at most this much, up and down; packets keep their order.
        loss_percent: share of packets lost, in each direction.
    """

    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether it does nothing."""
        return self == Quality()

    def plus(self, added: Quality) -> Quality:
        """Both one after the other."""
        kept = (1 - self.loss_percent / 100) * (1 - added.loss_percent / 100)
        return Quality(self.rtt_ms + added.rtt_ms, self.jitter_ms + added.jitter_ms, round(100 * (1 - kept), 6))


@dataclass(frozen=True)
class Link:
    """The way between two sites.

    Attributes:
        index: position from 0; part of its addresses.
        left: name of the first site.
        right: name of the second site.
        quality: what the link adds to each packet.
    """

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
        """The site at the other end."""
        return self.right if site == self.left else self.left


@dataclass(frozen=True)
class Topology:
    """A whole cluster.

    Attributes:
        name: for people.
        sites: in the order of the file.
        links: one for each pair of sites.
        broker_heap_mb: Java heap of a broker in MiB.
        controller_heap_mb: Java heap of a controller in MiB.
        broker_properties: further lines for every broker's configuration.
        controller_properties: further lines for every controller's configuration.
    """

    name: str
    sites: tuple[Site, ...]
    links: tuple[Link, ...]
    broker_heap_mb: int = 384
    controller_heap_mb: int = 256
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    controller_properties: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, site by site."""
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
        """Further lines for the configuration of a node; of one with both roles the brokers' win."""
        ours = self.broker_properties if node.is_broker else {}
        return {**(self.controller_properties if node.is_controller else {}), **ours}

    def heap_mb_of(self, node: Node) -> int:
        """Java heap of a node in MiB."""
        return self.broker_heap_mb if node.is_broker else self.controller_heap_mb

    @property
    def racks(self) -> tuple[Site, ...]:
        """The sites with brokers."""
        return tuple(site for site in self.sites if site.is_rack)

    @property
    def client_site(self) -> Site:
        """The site of the clients."""
        return next(site for site in self.sites if site.client)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, as ``bootstrap.servers``."""
        return ",".join(node.address for node in self.brokers)

    def site(self, name: str) -> Site:
        """The site called ``name``.

        Raises:
            RackgateError: there is none.
        """
        for site in self.sites:
            if site.name == name:
                return site
        raise RackgateError(f"topology {self.name}: no site {name!r}; it has {_names(self.sites)}")

    def rack_of(self, broker_id: int) -> str:
        """The rack of a broker.

        Raises:
            RackgateError: there is no such broker.
        """
        for node in self.brokers:
            if node.node_id == broker_id:
                return node.site
        raise RackgateError(f"topology {self.name}: no broker {broker_id}")

    def links_of(self, site: str) -> tuple[Link, ...]:
        """The links that end in ``site``."""
        return tuple(link for link in self.links if site in (link.left, link.right))


def _names(sites: tuple[Site, ...]) -> str:
    return ", ".join(site.name for site in sites)


def find(name_or_path: str) -> Path:
    """The file of a topology: a path, or the name of a shipped one such as ``az3-outside``.

    Raises:
        RackgateError: neither exists; the message lists the shipped ones.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = SHIPPED / f"{name_or_path}.toml"
    if shipped.is_file():
        return shipped
    known = ", ".join(sorted(found.stem for found in SHIPPED.glob("*.toml")))
    raise RackgateError(f"no topology file {name_or_path!r}, and no shipped one of that name; shipped: {known}")


def load(path: Path) -> Topology:
    """Reads a topology file.

    Raises:
        RackgateError: not TOML, a wrong key or value; the message names file, key and what is allowed.
    """
    return parse(toml_config.read(path, "it describes a topology"), source=str(path))


def parse(raw: Mapping[str, Any], *, source: str) -> Topology:
    """The topology that a parsed TOML document describes; ``source`` names it in errors.

    Raises:
        RackgateError: as for ``load``.
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
        # Interface names have 15 characters, and a site's name is part of them.
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
    everywhere = _quality(top.table("links", {}), Quality())
    qualities = {frozenset(pair): everywhere for pair in combinations(names, 2)}
    for table in top.tables("link", ()):
        between = table.words("between", names)
        if len(between) != 2:
            raise table.wrong("between", f"must be two of {', '.join(names)}, is {', '.join(between)}")
        qualities[frozenset(between)] = _quality(table, everywhere)
    return tuple(
        Link(index, left, right, qualities[frozenset((left, right))])
        for index, (left, right) in enumerate(combinations(names, 2))
    )


def _quality(table: Table, default: Quality) -> Quality:
    """Reads the keys of a link; what is left out is as in ``default``."""
    found = Quality(
        rtt_ms=table.number("rtt_ms", 0, MAX_RTT_MS, default.rtt_ms),
        jitter_ms=table.number("jitter_ms", 0, MAX_RTT_MS, default.jitter_ms),
        loss_percent=table.number("loss_percent", 0, MAX_LOSS_PERCENT, default.loss_percent),
    )
    if found.jitter_ms > found.rtt_ms:
        raise table.wrong("jitter_ms", f"must be at most rtt_ms, which is {found.rtt_ms:g}, is {found.jitter_ms:g}")
    return found


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
    # Kafka needs 128 MiB or more
    return table.whole("heap_mb", 128, default=heap_mb), properties
