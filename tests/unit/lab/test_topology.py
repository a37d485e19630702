"""Topologies: TOML files, errors in them, link emulation and Kafka properties."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.lab import echo, kafka_process, link_emulation, topology
from pyhooks.lab.topology import Quality

VALID = """
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


def test_a_valid_file_is_loaded(tmp_path: Path) -> None:
    parsed = load(tmp_path, VALID)
    assert [node.name for node in parsed.nodes] == ["broker-1", "broker-2", "broker-3", "controller-101"]
    assert [site.name for site in parsed.racks] == ["a", "b"]
    assert {node.node_id: node.site for node in parsed.brokers}[3] == "b"
    assert parsed.client_site.name == "b"
    assert len(parsed.links) == 1
    assert parsed.links[0].rtt_ms == 2
    assert len({node.ip for node in parsed.nodes}) == len(parsed.nodes)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("brokers = [3]", 'brokers = ["3"]'), "brokers"),
        (("brokers = [3]", "brokers = [2]"), "node ids must differ"),
        (("client = true", "client = 1"), "client: must be a valid boolean"),
        (("client = true", ""), "exactly one site"),
        (("controllers = [101]", ""), "at least one broker and one controller"),
        (('name = "b"', 'name = "a"'), "names must differ"),
        (('name = "b"', 'name = "Rack B"'), "lower-case letters and digits"),
        (("rtt_ms = 2", "rtt_ms = -1"), "links.rtt_ms: must be greater than or equal to 0, is -1"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[jvm]\noptions = "-ea"'), "jvm.options: must be"),
        (("rtt_ms = 2", "rtt_ms = 2\n[jvm]\nheap_mb = 1"), "jvm.heap_mb: unknown key; known keys: options"),
        (("rtt_ms = 2", "rtt = 2"), "links.rtt: unknown key; known keys: rtt_ms, jitter_ms, loss_percent, rate_mbit"),
        (
            ("rtt_ms = 2", 'rtt_ms = 2\n[[link]]\nbetween = ["a", "x"]'),
            "link 1: between: value 2 must be one of a, b, is ",
        ),
        (("rtt_ms = 2", 'rtt_ms = 2\n[[link]]\nbetween = ["a"]'), "link 1: between: must be two of a, b, is a"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[[link]]\nbetween = ["a", "b", "a"]'), "link 1: between: contains a duplicate"),
        (("rtt_ms = 2", "rtt_ms = 2\njitter_ms = 3"), "at most rtt_ms, which is 2, is 3"),
        (("rtt_ms = 2", "rtt_ms = 2\nloss_percent = 95"), "loss_percent: must be less than or equal to 90"),
        (("rtt_ms = 2", "rate_mbit = -1"), "rate_mbit: must be greater than or equal to 0, is -1"),
        (("brokers = [3]", "combined = [1]"), "node ids must differ"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"log.dirs" = "/x"'), "properties.log.dirs: a lab sets this"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a" = [1]'), "a text, a number, true or false"),
        (("rtt_ms = 2", "rtt_ms = 2\n[brokers]\nheap_mb = 64"), "heap_mb: must be greater than or equal to 128"),
        (
            ("client = true", "client = true\nracks = 1"),
            "site b: racks: unknown key; known keys: name, brokers",
        ),
        (("[links]", "[link_s]"), "link_s: unknown key; known keys: name, site, links"),
        (("brokers = [3]", f"brokers = {list(range(300))}"), "site b: brokers: must be 60 nodes in a site at"),
        (("[links]", "".join(f'[[site]]\nname = "s{n}"\n' for n in range(11)) + "[links]"), "must be 12 sites at most"),
        (("[[site]]", "[site"), "t.toml"),
        (('name = "two"', 'name = " two"'), "name: must be printable, without white space at its ends, is ' two'"),
        (('name = "two"', r'name = "t\nwo"'), r"name: must be printable, without white space at its ends, is 't\nwo'"),
        (('name = "two"', r'name = "\u001b[31m"'), r"is '\x1b[31m'"),
        (('name = "b"', 'name = ""'), "name: must not be empty, is ''"),
        (('name = "b"', 'name = "b "'), "lower-case letters and digits, found 'b '"),
        (('name = "b"', r'name = "\u001b[31m"'), r"lower-case letters and digits, found '\x1b[31m'"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a " = 1'), "brokers.properties.a : a key has letters"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"" = 1'), "brokers.properties.: a key has letters"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a=b" = 1'), "brokers.properties.a=b: a key has letters"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"\\u001bc" = 1'), r"properties.\x1bc: a key has letters"),
        (
            ("rtt_ms = 2", 'rtt_ms = 2\n[controllers.properties]\n"a" = "1\\nb=2"'),
            r"properties.a: must be printable ASCII, not empty, without white space at its ends, is '1\nb=2'",
        ),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a" = ""'), "properties.a: must be printable ASCII"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a" = "1 "'), "properties.a: must be printable ASCII"),
        (("rtt_ms = 2", 'rtt_ms = 2\n[brokers.properties]\n"a" = "\u00e9"'), "properties.a: must be printable ASCII"),
    ],
)
def test_an_invalid_file_is_an_error_with_file_key_and_allowed_values(
    tmp_path: Path, change: tuple[str, str], error: str
) -> None:
    with pytest.raises(RackgateError) as caught:
        load(tmp_path, VALID.replace(*change))
    assert error in str(caught.value)
    assert "t.toml" in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.exit_status == 2


# Arbitrary names and properties, as a person could write them.

UNUSUAL = st.text(st.characters(codec="utf-8") | st.sampled_from(" \n\r\t\x00\x1b=:#!\\\u2028\u00a0"), max_size=10)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)
SCALARS = UNUSUAL | PRINTABLE | st.integers() | st.booleans() | st.floats()


def topology_dict(**more: Any) -> dict[str, Any]:
    return tomllib.loads(VALID) | more


def parse_error(document: dict[str, Any]) -> str | None:
    """Return the error of parsing a topology, or None if it is valid."""
    try:
        topology.parse(document, source="t.toml")
    except RackgateError as caught:
        message, status = str(caught), caught.exit_status
    else:
        return None
    assert status == 2
    assert message.startswith("t.toml: ")
    assert message.isprintable()
    return message


@given(UNUSUAL | PRINTABLE)
@example("two ")
@example("a\nb")
@example("")
def test_a_topology_name_is_printable_without_outer_white_space(name: str) -> None:
    error = parse_error(topology_dict(name=name))
    assert (error is None) == (name != "" and name.isprintable() and name == name.strip())
    assert error is None or error.startswith("t.toml: name: ")


@given(UNUSUAL | st.from_regex(r"[a-z0-9]{1,10}", fullmatch=True))
@example("b\n")
@example("\u0662")
def test_a_rack_name_consists_of_lowercase_letters_and_digits(name: str) -> None:
    sites = tomllib.loads(VALID)["site"]
    error = parse_error(topology_dict(site=[sites[0], sites[1] | {"name": name}]))
    valid = re.fullmatch(r"(?=.*[a-z])[a-z0-9]{1,8}", name) is not None and not name.endswith("\n") and name != "a"
    assert (error is None) == valid
    assert error is None or "name" in error


def java_properties(text: str) -> dict[str, str]:
    """Parse properties as Java does, provided that the only escape sequence is a doubled backslash."""
    properties = {}
    for line in text.split("\n")[:-1]:
        key, _, value = line.partition("=")
        assert key.strip() == key
        assert value.lstrip() == value
        assert not re.sub(r"\\\\", "", value).count("\\"), "another escape sequence or a continued line"
        properties[key] = value.replace("\\\\", "\\")
    return properties


@given(st.dictionaries(UNUSUAL | st.from_regex(r"[a-z.]{1,9}", fullmatch=True), SCALARS, max_size=3))
@example({"a ": "1"})
@example({"a": "1\nlog.dirs=/"})
@example({"a": "1\\", "b": "2"})
@example({"a": r"\u0041\n"})
def test_properties_reach_kafka_unchanged_or_are_rejected(properties: dict[str, Any]) -> None:
    error = parse_error(topology_dict(brokers={"properties": properties}))
    if error is not None:
        assert "brokers.properties." in error
        return
    given = topology.parse(topology_dict(brokers={"properties": properties}), source="t.toml").broker_properties
    assert {key: str(value).lower() if value in (True, False) and isinstance(value, bool) else str(value)
            for key, value in properties.items()} == given  # fmt: skip
    assert java_properties(kafka_process.render(given)) == given


def test_all_shipped_topologies_load() -> None:
    shipped = sorted(topology.SHIPPED.glob("*.toml"))
    assert shipped
    for path in shipped:
        assert topology.load(path).name == path.stem


def test_no_controller_of_the_outage_topology_is_in_a_rack() -> None:
    parsed = topology.load(topology.find("az3-outside"))
    assert [len(rack.nodes) for rack in parsed.racks] == [2, 2, 1]
    assert {node.site for node in parsed.controllers}.isdisjoint({rack.name for rack in parsed.racks})


def test_an_unknown_name_is_an_error_that_lists_the_topologies() -> None:
    with pytest.raises(RackgateError, match="az3-outside"):
        topology.find("nowhere")


def test_links_are_emulated_by_netem_if_the_kernel_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for netem, method in ((True, "netem"), (False, "emulator")):
        monkeypatch.setattr(link_emulation, "has_netem", lambda _, netem=netem: netem)
        assert link_emulation.emulation("link a-b", Quality()) == "veth"
        for quality in (Quality(0.2), Quality(loss_percent=0.5), Quality(rate_mbit=100), Quality(3, 1.5)):
            assert link_emulation.emulation("link a-b", quality) == method
        for excessive in (Quality(jitter_ms=1), Quality(rtt_ms=4, jitter_ms=5)):
            with pytest.raises(RackgateError, match=r"link a-b: jitter_ms = .*rtt_ms"):
                link_emulation.emulation("link a-b", excessive)


def test_netem_arguments_apply_to_one_direction() -> None:
    assert link_emulation.netem_arguments(Quality(5, 3, 0.5))[2:] == ["delay", "2.5ms", "1.5ms", "loss", "0.5%"]
    assert link_emulation.netem_arguments(Quality(20, 0, 0, 120))[2:] == ["delay", "10ms", "rate", "120mbit"]
    # Packets of 15 MB/s during 10 ms of delay and 100 ms of queueing.
    assert link_emulation.netem_arguments(Quality(20, 0, 0, 120))[:2] == ["limit", str(10 + 1100)]


def test_qualities_of_links_in_series_add_up() -> None:
    assert Quality(1, 1, 50).plus(Quality(2, 0, 50)) == Quality(3, 1, 75)
    assert Quality(1, 1, 50).plus(Quality()) == Quality(1, 1, 50)
    assert Quality(1, 0, 0, 100).plus(Quality(2)) == Quality(3, 0, 0, 100)
    assert Quality(1, 0, 0, 100).plus(Quality(2, 0, 0, 10)) == Quality(3, 0, 0, 10)


def test_ping_output_is_parsed() -> None:
    text = "\n".join(f"64 bytes from 10.77.1.10: icmp_seq={i} ttl=62 time={t} ms" for i, t in enumerate((3, 1, 2)))
    parsed = echo.parse_ping("clients", "broker-1", 4, text)
    assert (parsed.received, parsed.p50_ms, parsed.p99_ms, parsed.max_ms) == (3, 2.0, 3.0, 3.0)
    with pytest.raises(RackgateError, match="no echo"):
        echo.parse_ping("clients", "broker-1", 4, "4 packets transmitted, 0 received")


def test_a_combined_node_is_broker_and_controller(tmp_path: Path) -> None:
    parsed = load(tmp_path, VALID.replace("controllers = [101]", "combined = [4]"))
    (node,) = parsed.controllers
    assert node in parsed.brokers
    assert (node.name, node.address.split(":")[1], node.quorum_address.split(":")[1]) == ("combined-4", "9092", "9093")
    properties = kafka_process.server_properties(node, quorum=[node.quorum_address], data="/d", brokers=1, extra={})
    assert properties["process.roles"] == "broker,controller"
    assert properties["listeners"] == f"PLAINTEXT://{node.address},CONTROLLER://{node.quorum_address}"
    assert properties["broker.rack"] == "b"
    assert properties["offsets.topic.replication.factor"] == "1"


def test_a_link_inherits_missing_values(tmp_path: Path) -> None:
    text = VALID.replace("rtt_ms = 2", 'rtt_ms = 2\nloss_percent = 1\n[[link]]\nbetween = ["b", "a"]\nrtt_ms = 4')
    (link,) = load(tmp_path, text).links
    assert link.quality == Quality(4, 0, 1)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("-XX:+UseSerialGC  -XX:TieredStopAtLevel=1", ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")),
        ("", kafka_process.PERFORMANCE_OPTIONS),
        (None, kafka_process.PERFORMANCE_OPTIONS),
    ],
)
def test_the_variable_of_start_scripts_replaces_the_performance_options(
    value: str | None, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(kafka_process.PERFORMANCE_VARIABLE)
    else:
        monkeypatch.setenv(kafka_process.PERFORMANCE_VARIABLE, value)
    command = kafka_process.java_command(
        classpath="libs", heap_mb=64, properties="p", performance=kafka_process.performance_options()
    )
    assert command[1 : command.index("-cp")] == [
        *("-Xmx64m", "-Xms64m", *options, "-XX:-UsePerfData", f"-Dlog4j2.configurationFile={kafka_process.LOG4J}")
    ]
