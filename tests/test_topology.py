from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.cluster import network, topology
from pyhooks.errors import RackgateError

GOOD = """
name = "two"
[[site]]
name = "a"
brokers = [1, 2]
[[site]]
name = "b"
brokers = [3]
controllers = [101]
client = true
[links]
rtt_ms = 2
"""


def load(tmp_path: Path, text: str) -> topology.Topology:
    path = tmp_path / "t.toml"
    path.write_text(text, encoding="utf-8")
    return topology.load(path)


def test_good_file(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert [node.name for node in found.nodes] == ["broker-1", "broker-2", "broker-3", "controller-101"]
    assert [site.name for site in found.racks] == ["a", "b"]
    assert found.rack_of(3) == "b"
    assert found.client_site.name == "b"
    assert len(found.links) == 1
    assert found.links[0].rtt_ms == 2
    assert len({node.ip for node in found.nodes}) == len(found.nodes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("brokers = [3]", 'brokers = ["3"]'), "brokers"),
        (("brokers = [3]", "brokers = [2]"), "node ids must differ"),
        (("client = true", "client = 1"), "true or false"),
        (("client = true", ""), "exactly one site"),
        (("controllers = [101]", ""), "at least one broker and one controller"),
        (('name = "b"', 'name = "a"'), "names must differ"),
        (('name = "b"', 'name = "Rack B"'), "lower-case letters and digits"),
        (("rtt_ms = 2", "rtt_ms = -1"), "0 or more milliseconds"),
        (("rtt_ms = 2", "rtt = 2"), "unknown key; allowed here: rtt_ms"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[[link]]\nbetween = ["a", "x"]\nrtt_ms = 1'), "expected two of a, b"),
        (("rtt_ms = 2", "rtt_ms = 2\n[brokers]\nheap_mb = 64"), "128 MiB or more"),
        (("[[site]]", "[site"), "t.toml"),
    ],
)
def test_wrong_file_names_file_key_and_what_is_allowed(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(RackgateError) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert says in str(caught.value)
    assert "t.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shipped_topologies_load() -> None:
    shipped = sorted(topology.SHIPPED.glob("*.toml"))
    assert shipped
    for path in shipped:
        assert topology.load(path).name == path.stem


def test_the_outage_topology_keeps_its_quorum() -> None:
    found = topology.load(topology.find("az3-outside"))
    assert [len(rack.nodes) for rack in found.racks] == [2, 2, 1]
    assert {node.site for node in found.controllers}.isdisjoint({rack.name for rack in found.racks})


def test_unknown_name_lists_shipped() -> None:
    with pytest.raises(RackgateError, match="az3-outside"):
        topology.find("nowhere")


def test_delay_that_cannot_be_given_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "has_netem", lambda: False)
    link = topology.Link(0, "a", "b", 0.5)
    with pytest.raises(RackgateError, match="whole milliseconds"):
        network.emulation(link)
    assert network.emulation(topology.Link(0, "a", "b", 3.0)) == "vde"
    assert network.emulation(topology.Link(0, "a", "b", 0.0)) == "veth"
    monkeypatch.setattr(network, "has_netem", lambda: True)
    assert network.emulation(link) == "netem"


def test_ping_output_is_read() -> None:
    text = "\n".join(f"64 bytes from 10.77.1.10: icmp_seq={i} ttl=62 time={t} ms" for i, t in enumerate((3, 1, 2)))
    found = network.parse_ping("clients", "broker-1", 4, text)
    assert (found.received, found.p50_ms, found.p99_ms, found.max_ms) == (3, 2.0, 3.0, 3.0)
    with pytest.raises(RackgateError, match="no echo"):
        network.parse_ping("clients", "broker-1", 4, "4 packets transmitted, 0 received")
