"""Table, sentences and JSON of the check, and the enforcement by brokers, on generated clusters."""

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


def answer(base: BrokerResponse, default: IsrRequirements | None) -> BrokerResponse:
    return BrokerResponse(base.produce, base.supported_level, base.levels, base.epoch, default)


def seen(
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
    need_of_topic: IsrRequirements | None,
    *placements: tuple[int, ...],
    reports: Mapping[int, IsrRequirements] | None = None,
) -> CheckedTopic:
    partitions = tuple(ReportedPartition(name, number, r[0], r, r) for number, r in enumerate(placements))
    return CheckedTopic(name, name.startswith("__"), partitions, need_of_topic, reports or {})


def report(cluster: ClusterObservation, *, strict: bool = False) -> CheckReport:
    return make_report(cluster, cluster.cluster.topics, strict=strict)


def codes(cluster: ClusterObservation) -> set[tuple[str, str]]:
    """Findings about the cluster, without those about its racks."""
    return {(f.severity, f.code) for f in report(cluster).findings if f.code not in ("one-rack", "rack-loss-stops")}


FINE = topic("t", requirements(2, 2, "topic"), (1, 3, 5))
BARE = topic("t", requirements(2, None), (1, 3, 5))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (seen(dict.fromkeys(RACKS, PATCHED), (FINE,)), set()),
        (seen(dict.fromkeys(RACKS, STOCK), (BARE,)), set()),
        (seen({**dict.fromkeys(RACKS, OFF), 2: STOCK}, (BARE,)), {("notice", "mixed-brokers")}),
        (
            seen({**dict.fromkeys(RACKS, OFF), 3: STOCK}, (FINE,)),
            {("error", "mixed-brokers"), ("error", "would-not-enforce"), ("error", "not-enforced")},
        ),
        (seen(dict.fromkeys(RACKS, OFF), (FINE,)), {("error", "not-enforced")}),
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 4: OFF}, (FINE,)),
            {("error", "levels-differ"), ("error", "not-enforced")},
        ),
        (
            seen(dict.fromkeys((1, 2, 3, 4), PATCHED), (FINE,), unresponsive={5: "no connection"}),
            {("unknown", "broker-silent")},
        ),
        (
            seen(dict.fromkeys((1, 2, 3, 4), PATCHED), (FINE,), unresponsive={5: "fenced"}, fenced=(5,)),
            {("unknown", "broker-fenced")},
        ),
        (
            seen(dict.fromkeys((1, 2, 3, 4), STOCK), (BARE,), unresponsive={5: "fenced"}, fenced=(5,)),
            {("notice", "broker-fenced")},
        ),
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 2: answer(PATCHED, requirements(2, 1))}, (FINE,)),
            {("error", "defaults-differ")},
        ),
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 2: answer(PATCHED, requirements(1, 2, "cluster"))}, (FINE,)),
            {("error", "defaults-differ")},
        ),
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 2: replace(PATCHED, property_racks=2)}, (FINE,)),
            {("error", "property-above-cluster-value")},
        ),
        (seen(dict.fromkeys(RACKS, replace(PATCHED, property_racks=1)), (FINE,)), set()),
        (
            seen(
                dict.fromkeys(RACKS, replace(PATCHED, default=requirements(1, 2, "cluster"), property_racks=2)), (FINE,)
            ),
            set(),
        ),
        # at level 0 the metadata may have a value, too
        (
            seen(dict.fromkeys(RACKS, replace(OFF, default=requirements(1, 1, "cluster"), property_racks=2))),
            {("error", "property-above-cluster-value")},
        ),
        (
            seen(dict.fromkeys(RACKS, replace(OFF, default=requirements(1, 2, "file"), property_racks=2))),
            {("error", "not-enforced")},
        ),
        (seen(dict.fromkeys(RACKS, answer(PATCHED, requirements(1, 2, "cluster"))), (FINE,)), set()),
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 1: BrokerResponse(13, 1, ON, 7, requirements(1, 1))}, (FINE,)),
            {("error", "overlay-not-whole")},
        ),
        # a later Kafka may take Produce 14 for a reason of its own
        (
            seen({**dict.fromkeys(RACKS, PATCHED), 1: BrokerResponse(14, 0, ON, 7, requirements(1, None))}, (FINE,)),
            {("error", "overlay-not-whole")},
        ),
        (
            seen(
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
            seen(
                {
                    **dict.fromkeys(RACKS, PATCHED),
                    1: BrokerResponse(14, 1, ON, 7, None, refused={"": "not authorized"}),
                },
                (FINE,),
            ),
            {("unknown", "settings-refused")},
        ),
        (
            seen({**dict.fromkeys(RACKS, BrokerResponse(14, 1, {RACKS_FEATURE: 1}, 7, requirements(1, 1)))}, (FINE,)),
            {("error", "elr-off")},
        ),
    ],
)
def test_findings_about_enforcement(cluster: ClusterObservation, expected: set[tuple[str, str]]) -> None:
    assert codes(cluster) == expected, report(cluster).findings
    assert report(cluster).at_risk == any(severity != "notice" for severity, _ in expected)


def test_brokers_with_the_same_property_share_a_finding() -> None:
    responses = {broker: replace(PATCHED, property_racks=3 if broker == 4 else 2) for broker in RACKS}
    found = [one for one in report(seen(responses)).findings if one.code == "property-above-cluster-value"]
    assert [one.means.split(" is ")[0] for one in found] == [
        "min.insync.racks=2 in the properties of brokers 1, 2, 3, 5",
        "min.insync.racks=3 in the properties of broker 4",
    ]
    assert all("the cluster's value is 1" in one.means for one in found)


def test_an_observed_number_of_racks_is_shown_and_changes_nothing() -> None:
    observed = replace(requirements(2, 1, "topic"), observed=ConfigValue(2, "topic"))
    plain, both = (
        report(seen(dict.fromkeys(RACKS, PATCHED), (topic("t", n, (1, 3, 5)),)))
        for n in (requirements(2, 1, "topic"), observed)
    )
    assert both.findings == plain.findings
    assert "observes 2" in " ".join(printed(both).split())
    assert "observes" not in printed(plain)
    topics = [json.loads("".join(json_parts(one)))["topics"][0] for one in (plain, both)]
    assert [one["min_insync_racks_observe"] for one in topics] == [None, {"value": 2, "source": "topic"}]


def test_a_finding_about_another_topic_is_left_out() -> None:
    cluster = seen({**dict.fromkeys(RACKS, OFF), 3: STOCK}, (FINE, topic("u", requirements(1, 2, "topic"), (3, 1))))
    made = make_report(cluster, [FINE], strict=False)
    assert {finding.topic for finding in made.findings} == {"", "t"}


def printed(made: CheckReport, *, strict: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    print_report(console, made, strict=strict)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def mixed() -> ClusterObservation:
    many = [((b % 4) + 1, ((b + 1) % 4) + 1, 5) for b in range(24)]
    topics = (
        topic("__consumer_offsets", requirements(1, 1), *many),
        topic("audit", requirements(2, 2, "topic"), (1, 2), (3, 1)),
        topic("orders", requirements(2, 2, "topic"), (1, 3, 5), (3, 5, 1)),
        topic("payments.settled.by-region.and-[currency]", requirements(2, 1), (1, 2, 3), (3, 4, 5), (1, 3, 5)),
        topic("wide", requirements(3, 3, "cluster"), (1, 3)),
        topic("untold", None, (1, 3)),
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
    responses = {1: PATCHED, 2: PATCHED, 3: PATCHED, 4: answer(PATCHED, requirements(2, 1, "broker"))}
    return seen(responses, topics, unresponsive={5: "h5:9092: no response within 15 s"})


def test_the_table_fits_100_columns() -> None:
    text = printed(report(mixed()))
    assert max(map(len, text.splitlines())) <= 100
    line = " ".join(text.split())
    assert "rack a alone" in line
    assert (
        "audit, partition 0: never accepts a write with acks=all: replicas in rack a, min.insync.racks requires 2"
        in line
    )
    assert "[currency]" in line.replace(" ", ""), "names are no markup"
    assert "broker 5 " in line
    assert "h5:9092: no response within 15 s" in line
    assert "at risk" in line
    assert "not shown: consequences of the settings" in line
    assert "min.insync.replicas=3 is above the number of replicas" not in line
    assert "min.insync.replicas=3 is above the number of replicas" in " ".join(
        printed(report(mixed()), strict=True).split()
    )


def test_a_cluster_without_findings_is_one_line() -> None:
    made = report(seen(dict.fromkeys(RACKS, PATCHED), (FINE,)))
    assert not made.at_risk
    text = printed(made)
    assert "findings" not in text
    assert "1 topic, 1 partition: nothing at risk" in text


def test_a_cluster_without_topics_has_no_table() -> None:
    text = printed(report(seen(dict.fromkeys(RACKS, PATCHED))))
    assert "one rack" not in text
    assert "0 topics, 0 partitions: nothing at risk" in text


def test_many_topics_are_cut_short_worst_first() -> None:
    topics = tuple(topic(f"t{n:03}", requirements(2, 2, "topic"), (1, 3, 5)) for n in range(100))
    bad = topic("zz", requirements(2, 2, "topic"), (1, 2))
    text = printed(report(seen(dict.fromkeys(RACKS, PATCHED), (*topics, bad))))
    assert "and 61 more topics" in text
    assert "zz" in text


def test_of_many_brokers_different_ones_come_first() -> None:
    racks = {number: "abc"[number % 3] for number in range(100)}
    text = printed(report(seen({**dict.fromkeys(racks, PATCHED), 77: STOCK}, racks=racks)))
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
    by_name = {one["name"]: one for one in output["topics"]}
    assert "writable" not in by_name["untold"]["partitions"][0]
    partition = by_name["shrunk"]["partitions"][0]
    assert [key for key in partition if key not in described] == []
    assert partition["stopped_by"] == {"brokers": [1, 2], "racks": ["a"]}
    assert partition["lone_now"] is True
    assert by_name["__consumer_offsets"]["internal"] is True
    assert by_name["wide"]["partitions"][0]["needs"] == {"replicas": 2, "racks": 2}
    silent = output["brokers"][4]
    assert (silent["answered"], silent["because"]) == (False, "h5:9092: no response within 15 s")


def test_fewer_racks_than_expected_are_a_risk() -> None:
    lowered = topic("lowered", requirements(2, 1, "topic"), (1, 3, 5))
    cluster = seen(dict.fromkeys(RACKS, PATCHED), (lowered,))
    assert not report(cluster).at_risk
    made = make_report(cluster, [lowered], strict=False, expect_racks=2)
    assert made.at_risk
    assert [(f.topic, f.code) for f in made.findings if f.severity == "risk"] == [("lowered", "racks-below-expected")]
