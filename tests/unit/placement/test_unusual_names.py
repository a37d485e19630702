"""``rackgate check`` with unusual names and values: all are reported and safe to print on a terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from pyhooks.core import exit_status, paths, terminal
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.placement import check_cli
from pyhooks.placement.check_cli import make_report
from pyhooks.placement.check_report import json_parts, print_report
from pyhooks.placement.cluster_query import ClusterObservation, ReportedSettings
from pyhooks.placement.enforcement import BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)
from pyhooks.placement.reassignment_plan import plan_reassignment

UNUSUAL = [
    "[red]",
    "[/x]",
    "[bold]a[/bold]",
    ":warning:",
    "{names}",
    "{brokers}",
    "a\\",
    "\\[b]",
    "a\nb",
    "\x1b[2J",
    "‮x",
    "",
    " ",
]
NAMES = st.one_of(st.sampled_from(UNUSUAL), st.text(max_size=12), st.text(min_size=200, max_size=400))
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(2**31), 2**31 - 1))
ON = {RACKS_FEATURE: 1, ELR_FEATURE: 1}


def printed(report: Any, *, strict: bool) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, force_terminal=False)
    print_report(console, report, strict=strict)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def unprintable(text: str) -> list[str]:
    return [c for c in text if not c.isprintable() and c != "\n"]


@st.composite
def observations(draw: st.DrawFn) -> ClusterObservation:
    """Draw a cluster in which all names and values that brokers report may be unusual."""
    numbers = range(1, draw(st.integers(1, 5)) + 1)
    brokers = {n: Broker(n, draw(NAMES), draw(st.booleans()), draw(NAMES)) for n in numbers}
    ids = st.integers(-1, 6)
    setting = st.builds(ConfigValue, NUMBERS, NAMES)
    needs = st.builds(IsrRequirements, setting, st.none() | setting)
    topics = []
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        members = st.lists(ids, max_size=4, unique=True).map(tuple)
        partitions = tuple(
            ReportedPartition(name, number, draw(ids), *(draw(members) for _ in range(5)))
            for number in range(draw(st.integers(0, 3)))
        )
        by_broker = draw(st.dictionaries(st.sampled_from(numbers), needs, max_size=3))
        unanswered = draw(st.just("") | NAMES)
        topics.append(
            CheckedTopic(name, draw(st.booleans()), partitions, draw(st.none() | needs), by_broker, unanswered)
        )
    responses = {}
    for number in draw(st.sets(st.sampled_from(numbers))):
        responses[number] = BrokerResponse(
            produce=draw(NUMBERS),
            supported_level=draw(NUMBERS),
            levels=draw(st.just(ON) | st.dictionaries(NAMES, NUMBERS, max_size=2)),
            epoch=draw(NUMBERS),
            default=draw(st.none() | needs),
            rejected=draw(st.dictionaries(NAMES, NAMES, max_size=2)),
            invalid=draw(st.dictionaries(NAMES, st.dictionaries(NAMES, st.none() | NAMES, max_size=2), max_size=2)),
        )
    unresponsive = {number: draw(NAMES) for number in numbers if number not in responses}
    enforcement = Enforcement(responses, unresponsive)
    voters = draw(st.none() | st.lists(ids, max_size=3).map(tuple))
    unanswered_queries = draw(st.dictionaries(st.sampled_from(["quorum", "reassignments"]), NAMES))
    cluster = ClusterSnapshot(draw(NAMES), brokers, tuple(topics), enforcement.enforced, voters, unanswered_queries)
    return ClusterObservation(cluster, enforcement)


@given(observations(), st.booleans())
def test_the_report_is_complete_and_safe_to_print(observed: ClusterObservation, strict: bool) -> None:
    report = make_report(observed, observed.cluster.topics, strict=strict, expect_racks=2)
    assert not unprintable(printed(report, strict=strict))
    text = "".join(json_parts(report))
    assert text.isascii()
    output = json.loads(text)
    assert [topic["name"] for topic in output["topics"]] == [topic.name for topic in observed.cluster.topics]
    assert {broker["id"]: broker["rack"] or "" for broker in output["brokers"]} == {
        broker.broker_id: broker.rack for broker in observed.cluster.brokers.values()
    }
    assert {broker["id"]: broker["address"] for broker in output["brokers"]} == {
        broker.broker_id: broker.address for broker in observed.cluster.brokers.values()
    }
    assert [finding["means"] for finding in output["findings"]] == [finding.means for finding in report.findings]
    unresponsive = {broker["id"] for broker in output["brokers"] if not broker["answered"]}
    assert unresponsive == set(observed.enforcement.unresponsive)
    assert report.at_risk or not unresponsive or all(observed.cluster.brokers[broker].fenced for broker in unresponsive)


@given(observations())
def test_a_plan_is_computed_and_its_json_has_the_names(observed: ClusterObservation) -> None:
    plan = plan_reassignment(observed.cluster)
    moved = {partition["topic"] for partition in json.loads(plan.to_json())["partitions"]}
    assert moved == {move.partition.topic for move in plan.moves}
    unknown = {topic.topic for topic in plan.unknown}
    assert unknown == {topic.name for topic in observed.cluster.topics if topic.requirements is None}
    assert not (unknown and plan.complete)
    if "reassignments" in observed.cluster.unanswered:
        assert not plan.moves


RACKS = {1: "[red]", 2: "[/x]", 3: "\x1b[31m‮b\n", 4: ":warning: {brokers}"}


def strict_report(replicas: tuple[int, ...], isr: tuple[int, ...], *, racks: Mapping[int, str] = RACKS) -> Any:
    requirements = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(3, "topic"))
    brokers = {number: Broker(number, rack, False, f"h{number}:1") for number, rack in racks.items()}
    topic = CheckedTopic("t", False, (ReportedPartition("t", 0, isr[0], replicas, isr),), requirements)
    enforcement = Enforcement({number: BrokerResponse(14, 1, ON, 7, requirements) for number in racks}, {})
    observed = ClusterObservation(
        ClusterSnapshot("id", brokers, (topic,), enforcement.enforced, (1, 2, 3)), enforcement
    )
    return make_report(observed, observed.cluster.topics, strict=True)


def test_each_rack_is_shown_by_its_name() -> None:
    joined = "".join(printed(strict_report((1, 2, 4), (1, 2)), strict=True).split())
    for name in ("[red]", "[/x]", r"\x1b[31m\u202eb\n", ":warning:{brokers}"):
        assert name in joined
    (finding,) = [finding for finding in strict_report((1, 2, 4), (4,)).findings if finding.code == "too-few-racks"]
    assert "in rack :warning: {brokers}, min" in finding.means, "braces in a name are not a placeholder"


def test_a_long_name_is_shortened_in_the_table() -> None:
    report = strict_report((1, 2, 3), (1, 2, 3), racks={1: "a" * 30_000, 2: "b", 3: "c"})
    assert len(printed(report, strict=True).splitlines()) < 100
    assert "a" * 30_000 in "".join(json_parts(report))


def test_racks_that_differ_in_case_or_spaces_are_a_notice() -> None:
    (found,) = [
        finding
        for finding in strict_report((1, 2, 3), (1, 2, 3), racks={1: "az1", 2: "AZ 1", 3: "az2"}).findings
        if finding.code == "similar-racks"
    ]
    assert (found.severity, "'AZ 1', 'az1'" in found.means, "az2" in found.means) == ("notice", True, False)
    assert "similar-racks" not in {finding.code for finding in strict_report((1, 2, 3), (1, 2, 3)).findings}


# -- settings reported by a broker ------------------------------------------------------------------------------------


def config(key: str, value: Any, source: Any = 1) -> dict[str, Any]:
    return {"name": key, "value": value, "configSource": source}


def settings_of(*configs: Mapping[str, Any], name: str = "t") -> ReportedSettings:
    settings = ReportedSettings()
    settings.read([{"resourceType": 2, "resourceName": name, "errorCode": 0, "configs": list(configs)}], {name})
    settings.complete({name})
    return settings


@pytest.mark.parametrize("value", ["abc", "-3", "0", "", " 2", "2 ", "+2", "1_0", "2.0", "٣", "2147483648", "9" * 5000])
@pytest.mark.parametrize("key", [MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS])
def test_an_invalid_value_is_reported_and_unknown(key: str, value: str) -> None:
    values = {MIN_INSYNC_REPLICAS: "2", MIN_INSYNC_RACKS: "2"} | {key: value}
    settings = settings_of(*(config(*item) for item in values.items()))
    assert (settings.topics, settings.invalid) == ({}, {"t": {key: value}})
    requirements = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(2, "topic"))
    valid = BrokerResponse(
        14, 1, ON, 7, IsrRequirements(ConfigValue(1, "default"), ConfigValue(1, "default")), topics={"t": requirements}
    )
    invalid = BrokerResponse(14, 1, ON, 7, valid.default, invalid=settings.invalid)
    topic = CheckedTopic("t", False, (ReportedPartition("t", 0, 1, (1, 2), (1, 2)),), requirements, {1: requirements})
    brokers = {number: Broker(number, "ab"[number % 2]) for number in (1, 2)}
    enforcement = Enforcement({1: valid, 2: invalid}, {})
    observed = ClusterObservation(ClusterSnapshot("id", brokers, (topic,), enforcement.enforced, ()), enforcement)
    report = make_report(observed, [topic], strict=False)
    (found,) = [finding for finding in report.findings if finding.code == "value-invalid"]
    assert (found.severity, found.topic) == ("unknown", "t")
    assert found.means.startswith(f"broker 2: {key}={value[:40]!r} ")
    assert report.at_risk
    assert report.topics[0].forecasts, "the other broker's response is used"


def test_a_missing_value_for_replicas_is_invalid() -> None:
    assert settings_of(config(MIN_INSYNC_REPLICAS, None), config(MIN_INSYNC_RACKS, "1")).invalid == {
        "t": {MIN_INSYNC_REPLICAS: None}
    }


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("2147483647", 2**31 - 1)])
def test_a_number_is_accepted(value: str, number: int) -> None:
    settings = settings_of(config(MIN_INSYNC_REPLICAS, value), config(MIN_INSYNC_RACKS, value, 5))
    assert settings.topics == {"t": IsrRequirements(ConfigValue(number, "topic"), ConfigValue(number, "default"))}
    assert not settings.invalid


def test_a_broker_without_the_config_for_racks_is_valid() -> None:
    expected = {"t": IsrRequirements(ConfigValue(2, "topic"), None)}
    assert settings_of(config(MIN_INSYNC_REPLICAS, "2")).topics == expected
    assert settings_of(config(MIN_INSYNC_REPLICAS, "2"), config(MIN_INSYNC_RACKS, None)).topics == expected


def test_an_incomplete_response_is_rejected() -> None:
    settings = ReportedSettings()
    settings.read([{"resourceType": 2, "resourceName": "other", "errorCode": 0, "configs": []}], {"t"})
    settings.complete({"t"})
    assert set(settings.rejected) == {"t", ""}
    assert not settings.topics


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CONFIGS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from([MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS, "x"]),
            "value": JSON,
            "configSource": JSON,
        },
    ),
    max_size=3,
)
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "resourceType": st.sampled_from([2, 4]),
        "resourceName": st.sampled_from(["t", "u", "", "3"]),
        "errorCode": st.integers(-1, 90),
        "errorMessage": st.none() | NAMES,
        "configs": st.none() | CONFIGS,
    },
)


@given(st.lists(RESULTS, max_size=5))
@example([{"resourceType": 2, "resourceName": "t", "errorCode": 0, "configs": [config(MIN_INSYNC_REPLICAS, True)]}])
def test_each_topic_is_known_or_reported_as_unknown(results: list[dict[str, Any]]) -> None:
    settings = ReportedSettings()
    settings.read(results, {"t", "u"})
    settings.complete({"t", "u"})
    assert settings.topics.keys() | settings.rejected.keys() | settings.invalid.keys() >= {"t", "u"}
    assert settings.topics.keys() <= {"t", "u"}
    assert settings.default is not None or "" in settings.rejected or "" in settings.invalid
    for requirements in (*settings.topics.values(), *([settings.default] if settings.default else ())):
        for setting in (requirements.replicas, requirements.racks):
            assert setting is None or 1 <= setting.value < 2**31


# -- the terminal -----------------------------------------------------------------------------------------------------


@given(st.text())
def test_control_characters_have_no_effect_on_a_terminal(text: str) -> None:
    plain = terminal.plain(text)
    assert not unprintable(plain.plain.replace("\n", "\x00"))
    console = Console(file=io.StringIO(), width=10_000, highlight=False)
    console.print(plain, Text("."))
    assert isinstance(console.file, io.StringIO)
    if len(text) <= terminal.LENGTH_MAX:
        assert console.file.getvalue() == f"{plain.plain} .\n"
        if text.isprintable():
            assert plain.plain == text


def test_a_long_text_is_cut_in_the_middle() -> None:
    cut = terminal.visible("a" * 60 + "b" * 60, length_max=10)
    assert cut == "aaaaa…bbbb"
    assert terminal.visible("abc", length_max=3) == "abc"


@given(st.text(max_size=50))
def test_an_error_is_one_safe_line(text: str) -> None:
    stream, before = io.StringIO(), sys.stderr
    sys.stderr = stream
    try:
        status = exit_status.report_error(RackgateError(f"x{text}", detail=f"first line\n{text}"), Console(file=stream))
    finally:
        sys.stderr = before
    assert status == 2
    assert not unprintable(stream.getvalue())
    assert stream.getvalue().startswith("error: x")


@pytest.mark.parametrize("pattern", ["a[b]", "a[b*", "?[b]", "*[b]"])
def test_brackets_in_a_pattern_are_literal(pattern: str) -> None:
    topics = [CheckedTopic(name, False, (), None) for name in ("a[b]", "ab", "a.b", "a_b")]
    assert [topic.name for topic in check_cli.select_topics(topics, [pattern])] == ["a[b]"]
    assert [topic.name for topic in check_cli.select_topics(topics, ["a.b", "a_b"])] == ["a.b", "a_b"], (
        ". and _ are different characters"
    )
    with pytest.raises(RackgateError, match="no such topic"):
        check_cli.select_topics(topics, ["a[.]b"])


def test_a_closed_pipe_ends_the_command_without_an_error() -> None:
    code = (
        "import sys; from pyhooks.core.terminal import reader_may_leave\n"
        "with reader_may_leave():\n"
        "    sys.stdout.writelines('x' * 1000 + '\\n' for _ in range(10_000))\n"
        "sys.exit(7)"
    )
    read_end, write_end = os.pipe()
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, env=env)
    os.close(write_end)
    os.read(read_end, 10)
    os.close(read_end)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (7, b"")
