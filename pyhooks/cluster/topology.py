"""What a cluster looks like: sites, brokers, controllers and the links between sites, read from a TOML file.

A *site* with brokers is a rack: its name becomes ``broker.rack``. Controllers may stand in a rack or in a site of
their own, so that the quorum can outlive the rack under fault. Exactly one site holds the clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from pyhooks import toml
from pyhooks.errors import RackgateError

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


class _Table:
    """A TOML table that names file and key when something in it is wrong."""

    def __init__(self, source: str, key: str, raw: Any) -> None:
        if not isinstance(raw, dict):
            raise RackgateError(f"{source}: {key}: expected a table, found {raw!r}")
        self.source, self.key, self.raw = source, key, dict(raw)

    def fail(self, key: str, text: str) -> RackgateError:
        where = f"{self.key}.{key}" if self.key else key
        return RackgateError(f"{self.source}: {where}: {text}")

    def take(self, key: str, kind: type | tuple[type, ...], default: Any, allowed: str) -> Any:
        value = self.raw.pop(key, default)
        # bool is an int in Python, but "heap_mb = true" is a mistake
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(key, f"expected {allowed}, found {value!r}")
        return value

    def done(self, allowed: str) -> None:
        if self.raw:
            raise self.fail(sorted(self.raw)[0], f"unknown key; allowed here: {allowed}")


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
    return parse(toml.read(path, "it describes a topology"), source=str(path))


def parse(raw: Mapping[str, Any], *, source: str) -> Topology:
    """The topology that a parsed TOML document describes; ``source`` names it in errors.

    Raises:
        RackgateError: as for ``load``.
    """
    top = _Table(source, "", dict(raw))
    name = top.take("name", str, None, "a name")
    site_tables = top.take("site", list, None, "one [[site]] or more")
    if not 1 <= len(site_tables) <= MAX_SITES:
        raise top.fail("site", f"expected 1 to {MAX_SITES} sites, found {len(site_tables)}")
    sites = tuple(_site(_Table(source, f"site[{index}]", table), index) for index, table in enumerate(site_tables, 1))
    _check_sites(top, sites)
    links = _links(top, sites)
    brokers = _Table(source, "brokers", top.take("brokers", dict, {}, "a table"))
    controllers = _Table(source, "controllers", top.take("controllers", dict, {}, "a table"))
    top.done("name, site, link, links, brokers, controllers")
    broker_heap_mb, broker_properties = _jvm(brokers, 384)
    controller_heap_mb, controller_properties = _jvm(controllers, 256)
    return Topology(
        name=name,
        sites=sites,
        links=links,
        broker_heap_mb=broker_heap_mb,
        controller_heap_mb=controller_heap_mb,
        broker_properties=broker_properties,
        controller_properties=controller_properties,
    )


def _site(table: _Table, index: int) -> Site:
    name = table.take("name", str, None, "a name")
    client = table.take("client", bool, False, "true or false")
    nodes: list[Node] = []
    roles: tuple[tuple[str, Role], ...] = (
        ("brokers", "broker"),
        ("combined", "combined"),
        ("controllers", "controller"),
    )
    for key, role in roles:
        for node_id in table.take(key, list, [], "a list of node ids"):
            if not isinstance(node_id, int) or isinstance(node_id, bool) or node_id < 0:
                raise table.fail(key, f"expected node ids of 0 or more, found {node_id!r}")
            ip = f"{SITE_NET}.{index}.{FIRST_NODE_HOST + len(nodes)}"
            nodes.append(Node(f"{role}-{node_id}", node_id, role, name, str(IPv4Address(ip))))
    if len(nodes) > MAX_NODES_PER_SITE:
        raise table.fail("brokers", f"at most {MAX_NODES_PER_SITE} nodes in a site, found {len(nodes)}")
    table.done("name, client, brokers, combined, controllers")
    return Site(name, index, tuple(nodes), client)


def _check_sites(top: _Table, sites: tuple[Site, ...]) -> None:
    names = [site.name for site in sites]
    for name in names:
        # Interface names have 15 characters, and a site's name is part of them.
        if not (name.isalnum() and name.isascii() and name.islower() and len(name) <= 8):
            raise top.fail("site.name", f"expected 1 to 8 lower-case letters and digits, found {name!r}")
    if len(set(names)) < len(names):
        raise top.fail("site.name", f"names must differ, found {', '.join(names)}")
    nodes = [node for site in sites for node in site.nodes]
    ids = [node.node_id for node in nodes]
    if len(set(ids)) < len(ids):
        raise top.fail("site", f"node ids must differ (brokers and controllers together), found {ids}")
    if not (any(node.is_broker for node in nodes) and any(node.is_controller for node in nodes)):
        raise top.fail("site", "at least one broker and one controller are needed (or one node with both roles)")
    if sum(site.client for site in sites) != 1:
        raise top.fail("site.client", "exactly one site has client = true")


def _links(top: _Table, sites: tuple[Site, ...]) -> tuple[Link, ...]:
    everywhere = _quality(_Table(top.source, "links", top.take("links", dict, {}, "a table")), Quality())
    names = [site.name for site in sites]
    qualities = {frozenset(pair): everywhere for pair in combinations(names, 2)}
    for index, raw in enumerate(top.take("link", list, [], "[[link]] tables"), 1):
        table = _Table(top.source, f"link[{index}]", raw)
        between = table.take("between", list, None, "two site names")
        pair = frozenset(map(str, between))
        if pair not in qualities:
            raise table.fail("between", f"expected two of {', '.join(names)}, found {between!r}")
        qualities[pair] = _quality(table, everywhere, "between, ")
    return tuple(
        Link(index, left, right, qualities[frozenset((left, right))])
        for index, (left, right) in enumerate(combinations(names, 2))
    )


def _quality(table: _Table, default: Quality, before: str = "") -> Quality:
    """Reads the keys of a link; what is left out is as in ``default``."""

    def number(key: str, unit: str, most: float) -> float:
        allowed = f"0 to {most:g} {unit}"
        value = float(table.take(key, (int, float), getattr(default, key), allowed))
        if not 0 <= value <= most:
            raise table.fail(key, f"expected {allowed}, found {value:g}")
        return value

    found = Quality(
        rtt_ms=number("rtt_ms", "milliseconds", MAX_RTT_MS),
        jitter_ms=number("jitter_ms", "milliseconds", MAX_RTT_MS),
        loss_percent=number("loss_percent", "percent", MAX_LOSS_PERCENT),
    )
    if found.jitter_ms > found.rtt_ms:
        raise table.fail(
            "jitter_ms", f"expected at most rtt_ms, which is {found.rtt_ms:g} milliseconds, found {found.jitter_ms:g}"
        )
    table.done(f"{before}rtt_ms, jitter_ms, loss_percent")
    return found


def _jvm(table: _Table, heap_mb: int) -> tuple[int, Mapping[str, str]]:
    heap = table.take("heap_mb", int, heap_mb, "MiB")
    if heap < 128:
        raise table.fail("heap_mb", f"Kafka needs 128 MiB or more, found {heap}")
    raw = table.take("properties", dict, {}, "a table of Kafka's properties")
    table.done("heap_mb, properties")
    for key, value in raw.items():
        if key in OWNED:
            raise table.fail(f"properties.{key}", "a lab sets this itself; it can't be given")
        if not isinstance(value, (str, int, float, bool)):
            raise table.fail(f"properties.{key}", f"expected a text, a number, true or false, found {value!r}")
    properties = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in raw.items()}
    return heap, properties
