"""Report of ``rackgate check`` on in-memory clusters: findings about enforcement, table and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.placement.check_cli import check_command, make_report
from pyhooks.placement.check_report import CheckReport, json_parts, print_report
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.enforcement import BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)

ON = {RACKS_FEATURE: 1, ELR_FEATURE: 1}
RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


def requirements(replicas: int, racks: int | None, source: str = "default") -> IsrRequirements:
    return IsrRequirements(ConfigValue(replicas, source), None if racks is None else ConfigValue(racks, source))


PATCHED = BrokerResponse(produce=14, supported_level=1, levels=ON, epoch=7, default=requirements(1, 1))
STOCK = BrokerResponse(produce=13, supported_level=0, levels={ELR_FEATURE: 1}, epoch=7, default=requirements(1, None))
OFF = BrokerResponse(produce=14, supported_level=1, levels={ELR_FEATURE: 1}, epoch=7, default=requirements(1, 1))


def with_default(base: BrokerResponse, default: IsrRequirements | None) -> BrokerResponse:
    return BrokerResponse(base.produce, base.supported_level, base.levels, base.epoch, default)


def observation(
    responses: Mapping[int, BrokerResponse],
    topics: tuple[CheckedTopic, ...] = (),
    *,
    racks: Mapping[int, str] = RACKS,
    unresponsive: Mapping[int, str] | None = None,
    fenced: tuple[int, ...] = (),
) -> ClusterObservation:
    enforcement = Enforcement(responses, unresponsive or {})
    brokers = {number: Broker(number, rack, number in fenced, f"h{number}:9092") for number, rack in racks.items()}
    return ClusterObservation(ClusterSnapshot("id", brokers, topics, enforcement.enforced, (1, 3, 5)), enforcement)


def topic(
    name: str,
    topic_requirements: IsrRequirements | None,
    *placements: tuple[int, ...],
    reports: Mapping[int, IsrRequirements] | None = None,
) -> CheckedTopic:
    partitions = tuple(ReportedPartition(name, number, r[0], r, r) for number, r in enumerate(placements))
    return CheckedTopic(name, name.startswith("__"), partitions, topic_requirements, reports or {})


def report(cluster: ClusterObservation, *, strict: bool = False) -> CheckReport:
    return make_report(cluster, cluster.cluster.topics, strict=strict)


def codes(cluster: ClusterObservation) -> set[tuple[str, str]]:
    """Return severities and codes of the findings, without those about the placement on racks."""
    return {(f.severity, f.code) for f in report(cluster).findings if f.code not in ("one-rack", "rack-loss-stops")}


SATISFIED = topic("t", requirements(2, 2, "topic"), (1, 3, 5))
WITHOUT_RACKS = topic("t", requirements(2, None), (1, 3, 5))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (observation(dict.fromkeys(RACKS, PATCHED), (SATISFIED,)), set()),
        (observation(dict.fromkeys(RACKS, STOCK), (WITHOUT_RACKS,)), set()),
        (observation({**dict.fromkeys(RACKS, OFF), 2: STOCK}, (WITHOUT_RACKS,)), {("notice", "mixed-brokers")}),
        (
            observation({**dict.fromkeys(RACKS, OFF), 3: STOCK}, (SATISFIED,)),
            {("error", "mixed-brokers"), ("error", "would-not-enforce"), ("error", "not-enforced")},
        ),
        (observation(dict.fromkeys(RACKS, OFF), (SATISFIED,)), {("error", "not-enforced")}),
        (
            observation({**dict.fromkeys(RACKS, PATCHED), 4: OFF}, (SATISFIED,)),
            {("error", "levels-differ"), ("error", "not-enforced")},
        ),
        (
            observation(dict.fromkeys((1, 2, 3, 4), PATCHED), (SATISFIED,), unresponsive={5: "no connection"}),
            {("unknown", "broker-silent")},
        ),
        (
            observation(dict.fromkeys((1, 2, 3, 4), PATCHED), (SATISFIED,), unresponsive={5: "fenced"}, fenced=(5,)),
            {("unknown", "broker-fenced")},
        ),
        (
            observation(dict.fromkeys((1, 2, 3, 4), STOCK), (WITHOUT_RACKS,), unresponsive={5: "fenced"}, fenced=(5,)),
            {("notice", "broker-fenced")},
        ),
        (
            observation({**dict.fromkeys(RACKS, PATCHED), 2: with_default(PATCHED, requirements(2, 1))}, (SATISFIED,)),
            {("error", "defaults-differ")},
        ),
        (
            observation(
                {**dict.fromkeys(RACKS, PATCHED), 2: with_default(PATCHED, requirements(1, 2, "cluster"))}, (SATISFIED,)
            ),
            {("error", "defaults-differ")},
        ),
        (
            observation({**dict.fromkeys(RACKS, PATCHED), 2: replace(PATCHED, property_racks=2)}, (SATISFIED,)),
            {("error", "property-above-cluster-value")},
        ),
        (observation(dict.fromkeys(RACKS, replace(PATCHED, property_racks=1)), (SATISFIED,)), set()),
        (
            observation(
                dict.fromkeys(RACKS, replace(PATCHED, default=requirements(1, 2, "cluster"), property_racks=2)),
                (SATISFIED,),
            ),
            set(),
        ),
        # the metadata may have a value at level 0 too
        (
            observation(dict.fromkeys(RACKS, replace(OFF, default=requirements(1, 1, "cluster"), property_racks=2))),
            {("error", "property-above-cluster-value")},
        ),
        (
            observation(dict.fromkeys(RACKS, replace(OFF, default=requirements(1, 2, "file"), property_racks=2))),
            {("error", "not-enforced")},
        ),
        (observation(dict.fromkeys(RACKS, with_default(PATCHED, requirements(1, 2, "cluster"))), (SATISFIED,)), set()),
        (
            observation(
                {**dict.fromkeys(RACKS, PATCHED), 1: BrokerResponse(13, 1, ON, 7, requirements(1, 1))}, (SATISFIED,)
            ),
            {("error", "overlay-not-whole")},
        ),
        # a later Kafka release may support Produce 14 for another reason
        (
            observation(
                {**dict.fromkeys(RACKS, PATCHED), 1: BrokerResponse(14, 0, ON, 7, requirements(1, None))}, (SATISFIED,)
            ),
            {("error", "overlay-not-whole")},
        ),
        (
            observation(
                dict.fromkeys(RACKS, PATCHED),
                (
                    topic(
                        "t",
                        requirements(2, 2, "topic"),
                        (1, 3, 5),
                        reports={1: requirements(2, 1, "topic"), 3: requirements(2, 2, "topic")},
                    ),
                ),
            ),
            {("error", "topics-differ")},
        ),
        (
            observation(
                {
                    **dict.fromkeys(RACKS, PATCHED),
                    1: BrokerResponse(14, 1, ON, 7, None, rejected={"": "not authorized"}),
                },
                (SATISFIED,),
            ),
            {("unknown", "settings-rejected")},
        ),
        (
            observation(
                {**dict.fromkeys(RACKS, BrokerResponse(14, 1, {RACKS_FEATURE: 1}, 7, requirements(1, 1)))}, (SATISFIED,)
            ),
            {("error", "elr-off")},
        ),
    ],
)
def test_findings_about_enforcement(cluster: ClusterObservation, expected: set[tuple[str, str]]) -> None:
    assert codes(cluster) == expected, report(cluster).findings
    assert report(cluster).at_risk == any(severity != "notice" for severity, _ in expected)


def test_brokers_with_the_same_property_share_a_finding() -> None:
    responses = {broker: replace(PATCHED, property_racks=3 if broker == 4 else 2) for broker in RACKS}
    found = [
        finding for finding in report(observation(responses)).findings if finding.code == "property-above-cluster-value"
    ]
    assert [finding.means.split(" is ")[0] for finding in found] == [
        "min.insync.racks=2 in the properties of brokers 1, 2, 3, 5",
        "min.insync.racks=3 in the properties of broker 4",
    ]
    assert all("the cluster's value is 1" in finding.means for finding in found)


def test_an_observed_number_of_racks_is_shown_without_a_finding() -> None:
    observed = replace(requirements(2, 1, "topic"), observed=ConfigValue(2, "topic"))
    without, with_observed = (
        report(observation(dict.fromkeys(RACKS, PATCHED), (topic("t", n, (1, 3, 5)),)))
        for n in (requirements(2, 1, "topic"), observed)
    )
    assert with_observed.findings == without.findings
    assert "observes 2" in " ".join(printed(with_observed).split())
    assert "observes" not in printed(without)
    topics = [json.loads("".join(json_parts(each)))["topics"][0] for each in (without, with_observed)]
    assert [topic["min_insync_racks_observe"] for topic in topics] == [None, {"value": 2, "source": "topic"}]


def test_findings_about_unselected_topics_are_omitted() -> None:
    cluster = observation(
        {**dict.fromkeys(RACKS, OFF), 3: STOCK}, (SATISFIED, topic("u", requirements(1, 2, "topic"), (3, 1)))
    )
    selected = make_report(cluster, [SATISFIED], strict=False)
    assert {finding.topic for finding in selected.findings} == {"", "t"}


def printed(checked: CheckReport, *, strict: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    print_report(console, checked, strict=strict)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def mixed() -> ClusterObservation:
    """Return a cluster with satisfied, violated and unknown requirements, and an unresponsive broker."""
    placements = [((b % 4) + 1, ((b + 1) % 4) + 1, 5) for b in range(24)]
    topics = (
        topic("__consumer_offsets", requirements(1, 1), *placements),
        topic("audit", requirements(2, 2, "topic"), (1, 2), (3, 1)),
        topic("orders", requirements(2, 2, "topic"), (1, 3, 5), (3, 5, 1)),
        topic("payments.settled.by-region.and-[currency]", requirements(2, 1), (1, 2, 3), (3, 4, 5), (1, 3, 5)),
        topic("wide", requirements(3, 3, "cluster"), (1, 3)),
        topic("unreported", None, (1, 3)),
        CheckedTopic(
            "shrunk",
            False,
            (
                ReportedPartition("shrunk", 0, 1, (1, 2, 3), (1, 2)),
                ReportedPartition("shrunk", 1, -1, (3, 4, 1), (), elr=(3,)),
            ),
            requirements(2, 1),
        ),
    )
    responses = {1: PATCHED, 2: PATCHED, 3: PATCHED, 4: with_default(PATCHED, requirements(2, 1, "broker"))}
    return observation(responses, topics, unresponsive={5: "h5:9092: no response within 15 s"})


def test_the_table_fits_100_columns() -> None:
    text = printed(report(mixed()))
    assert max(map(len, text.splitlines())) <= 100
    line = " ".join(text.split())
    assert "rack a alone" in line
    assert (
        "audit, partition 0: never accepts a write with acks=all: replicas in rack a, min.insync.racks requires 2"
        in line
    )
    assert "[currency]" in line.replace(" ", ""), "names are not interpreted as markup"
    assert "broker 5 " in line
    assert "h5:9092: no response within 15 s" in line
    assert "at risk" in line
    assert "not shown: consequences of the settings" in line
    assert "min.insync.replicas=3 is above the number of replicas" not in line
    assert "min.insync.replicas=3 is above the number of replicas" in " ".join(
        printed(report(mixed()), strict=True).split()
    )


def test_a_cluster_without_findings_is_one_line() -> None:
    checked = report(observation(dict.fromkeys(RACKS, PATCHED), (SATISFIED,)))
    assert not checked.at_risk
    text = printed(checked)
    assert "findings" not in text
    assert "1 topic, 1 partition: nothing at risk" in text


def test_a_cluster_without_topics_has_no_table() -> None:
    text = printed(report(observation(dict.fromkeys(RACKS, PATCHED))))
    assert "one rack" not in text
    assert "0 topics, 0 partitions: nothing at risk" in text


def test_only_the_worst_of_many_topics_are_listed() -> None:
    topics = tuple(topic(f"t{n:03}", requirements(2, 2, "topic"), (1, 3, 5)) for n in range(100))
    violated = topic("zz", requirements(2, 2, "topic"), (1, 2))
    text = printed(report(observation(dict.fromkeys(RACKS, PATCHED), (*topics, violated))))
    assert "and 61 more topics" in text
    assert "zz" in text


def test_brokers_that_differ_are_listed_first() -> None:
    racks = {number: "abc"[number % 3] for number in range(100)}
    text = printed(report(observation({**dict.fromkeys(racks, PATCHED), 77: STOCK}, racks=racks)))
    assert "and 60 more brokers" in text
    assert "77  c" in text.replace("│", "")


def test_invalid_options_are_errors() -> None:
    with pytest.raises(RackgateError, match="--bootstrap host:port"):
        check_command()
    with pytest.raises(RackgateError, match=r"^--plan "):
        check_command(bootstrap="localhost:9092", plan=True, json_=True)


def test_the_json_has_all_documented_keys() -> None:
    output = json.loads("".join(json_parts(report(mixed()))))
    assert set(output) == {"cluster", "at_risk", "brokers", "topics", "findings"}
    assert output["cluster"] == {
        "id": "id",
        "racks": {"a": [1, 2], "b": [3, 4], "c": [5]},
        "brokers_without_rack": [],
        "enforced": True,
    }
    from pyhooks.placement import check_report

    described = check_report.__doc__ or ""
    for part in (output["cluster"], output["brokers"][0], output["topics"][0], output["findings"][0]):
        assert [key for key in part if key not in described] == []
    by_name = {topic["name"]: topic for topic in output["topics"]}
    assert "writable" not in by_name["unreported"]["partitions"][0]
    partition = by_name["shrunk"]["partitions"][0]
    assert [key for key in partition if key not in described] == []
    assert partition["stopped_by"] == {"brokers": [1, 2], "racks": ["a"]}
    assert partition["lone_now"] is True
    assert by_name["__consumer_offsets"]["internal"] is True
    assert by_name["wide"]["partitions"][0]["needs"] == {"replicas": 2, "racks": 2}
    unresponsive = output["brokers"][4]
    assert (unresponsive["answered"], unresponsive["because"]) == (False, "h5:9092: no response within 15 s")


def test_fewer_racks_than_expected_are_a_risk() -> None:
    lowered = topic("lowered", requirements(2, 1, "topic"), (1, 3, 5))
    cluster = observation(dict.fromkeys(RACKS, PATCHED), (lowered,))
    assert not report(cluster).at_risk
    selected = make_report(cluster, [lowered], strict=False, expect_racks=2)
    assert selected.at_risk
    assert [(f.topic, f.code) for f in selected.findings if f.severity == "risk"] == [
        ("lowered", "racks-below-expected")
    ]
