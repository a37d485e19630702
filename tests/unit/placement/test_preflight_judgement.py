"""Preflight on recorded clusters: each finding appears where it should and nowhere else; exit status and commands."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, METADATA_FEATURE, RACKS_FEATURE
from pyhooks.patchset import recipe
from pyhooks.placement import readiness_report
from pyhooks.placement.enforcement import LAG_OFFSETS, BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)
from pyhooks.placement.preflight_cli import parse_controller_racks
from pyhooks.placement.preflight_judgement import (
    JmxReport,
    PreflightFacts,
    PreflightGoal,
    next_commands,
    planned_cluster,
    preflight_findings,
    release_of,
)
from pyhooks.placement.readiness import CommandWriter, ReadinessFinding, readiness_status
from pyhooks.placement.reassignment_plan import plan_reassignment
from readiness_codes import source_codes

COMMANDS = CommandWriter("k1:9092", "ops.properties")
RACKS = {1: "a", 2: "b", 3: "c", 4: "d"}
BASE = recipe.load()
VOTERS = (101, 102, 103)
ON = {METADATA_FEATURE: BASE.metadata_version, ELR_FEATURE: 1, RACKS_FEATURE: 1}
OFF = {METADATA_FEATURE: BASE.metadata_version}
CLUSTER_M = ConfigValue(2, "cluster")
NODE = BrokerResponse(
    produce=14,
    supported_level=1,
    levels=ON,
    epoch=9,
    default=IsrRequirements(CLUSTER_M, ConfigValue(1, "cluster")),
    replicas_by_source={"cluster": 2, "default": 1},
    metadata_version=BASE.metadata_version,
)
CONTROLLER = replace(NODE, produce=0)
STOCK = replace(NODE, produce=13, supported_level=0, levels=OFF, default=IsrRequirements(CLUSTER_M, None))


def topic(
    name: str,
    *placements: tuple[int, ...],
    racks: int | None = 2,
    isr: tuple[int, ...] | None = None,
    replicas: ConfigValue = CLUSTER_M,
    **more: Any,
) -> CheckedTopic:
    """Return a topic whose first replicas lead, with all replicas in sync unless ``isr`` is given."""
    partitions = tuple(
        ReportedPartition(name, number, brokers[0], brokers, brokers if isr is None else isr, **more)
        for number, brokers in enumerate(placements)
    )
    requirements = IsrRequirements(replicas, None if racks is None else ConfigValue(racks, "topic"))
    return CheckedTopic(name, name.startswith("__"), partitions, requirements)


ORDERS = topic("orders", (1, 2, 3), (2, 3, 4))
OFFSETS = topic("__consumer_offsets", (1, 2, 3))


def facts(
    *topics: CheckedTopic,
    brokers: Mapping[int, BrokerResponse] | BrokerResponse = NODE,
    racks: Mapping[int, str] = RACKS,
    fenced: Sequence[int] = (),
    silent: Mapping[int, str] | None = None,
    voters: tuple[int, ...] | None = VOTERS,
    unanswered: Mapping[str, str] | None = None,
    **more: Any,
) -> PreflightFacts:
    """Return a cluster that is ready, with the given differences; ``more`` are fields of ``PreflightFacts``."""
    responses = dict.fromkeys(racks, brokers) if isinstance(brokers, BrokerResponse) else dict(brokers)
    away = {**dict.fromkeys(fenced, "fenced"), **(silent or {})}
    enforcement = Enforcement({node: one for node, one in responses.items() if node not in away}, away)
    members = {node: Broker(node, rack, node in fenced, f"k{node}:9092") for node, rack in racks.items()}
    cluster = ClusterSnapshot(
        "id", members, topics or (OFFSETS, ORDERS), enforcement.enforced, voters, dict(unanswered or {})
    )
    ready: dict[str, Any] = {
        "controllers": Enforcement(dict.fromkeys(VOTERS, CONTROLLER), {}),
        "controller_racks": {101: "a", 102: "b", 103: "c"},
        "jmx": dict.fromkeys(racks, JmxReport(BASE.version, {14: 7})),
    }
    return PreflightFacts(cluster, enforcement, **{**ready, **more})


def goal(recorded: PreflightFacts, *names: str, racks: int = 2) -> PreflightGoal:
    topics = tuple(one for one in recorded.cluster.topics if not names or one.name in names)
    return PreflightGoal(racks, topics, names)


def judged(recorded: PreflightFacts, *names: str, racks: int = 2) -> tuple[ReadinessFinding, ...]:
    return preflight_findings(recorded, goal(recorded, *names, racks=racks), COMMANDS)


def codes(recorded: PreflightFacts, *names: str, racks: int = 2) -> set[tuple[str, str]]:
    return {(one.severity, one.code) for one in judged(recorded, *names, racks=racks)}


def changed(base: BrokerResponse, node: int, **fields: Any) -> dict[int, BrokerResponse]:
    """Return the responses of all brokers, with one that differs."""
    return {**dict.fromkeys(RACKS, base), node: replace(base, **fields)}


def own_m(value: int, source: str) -> dict[str, Any]:
    """Return fields of a response with an M from this source and none of the cluster."""
    return {
        "default": IsrRequirements(ConfigValue(value, source), ConfigValue(1, "default")),
        "replicas_by_source": {source: value, "default": 1},
    }


def controllers(**fields: Any) -> Enforcement:
    return Enforcement(dict.fromkeys(VOTERS, replace(CONTROLLER, **fields)), {})


M_FILE = ConfigValue(2, "file")
LOST = facts(
    topic("orders", (1, 2, 3), replicas=M_FILE),
    topic("own", (1, 2, 3), replicas=ConfigValue(2, "topic")),
    brokers=replace(NODE, levels=OFF, **own_m(2, "file")),
    controllers=controllers(levels=OFF, **own_m(1, "default")),
)
SAME_M_IN_CONTROLLERS = replace(LOST, controllers=controllers(levels=OFF, **own_m(2, "file")))
NO_M = facts(
    topic("orders", (1, 2, 3), replicas=ConfigValue(1, "default")),
    brokers=replace(NODE, levels=OFF, **own_m(1, "default")),
    controllers=controllers(levels=OFF, **own_m(2, "file")),
)
M_IN_CLUSTER = facts(brokers=replace(NODE, levels=OFF), controllers=controllers(levels=OFF))
UNANSWERED = CheckedTopic("orders", False, (), None, unanswered="not authorized")

# (code, severity, cluster with the finding, similar cluster without it)
CASES: list[tuple[str, str, PreflightFacts, PreflightFacts]] = [
    ("broker-silent", "unknown", facts(silent={4: "no response within 30 s"}), facts()),
    ("broker-fenced", "unknown", facts(fenced=[4]), facts(silent={4: "no response"})),
    (
        "settings-rejected",
        "unknown",
        facts(brokers=changed(NODE, 1, rejected={"orders": "not authorized"})),
        facts(brokers=changed(NODE, 1, rejected={"other": "not authorized"})),
    ),
    (
        "settings-rejected",
        "unknown",
        facts(controllers=controllers(rejected={"": "not authorized"})),
        facts(),
    ),
    (
        "settings-rejected",
        "unknown",
        facts(controllers=controllers(invalid={"": {"min.insync.replicas": "two"}})),
        facts(),
    ),
    (
        "broker-behind",
        "unknown",
        facts(brokers=changed(NODE, 1, epoch=NODE.epoch + LAG_OFFSETS + 1)),
        facts(brokers=changed(NODE, 1, epoch=NODE.epoch + LAG_OFFSETS)),
    ),
    (
        "value-invalid",
        "unknown",
        facts(brokers=changed(NODE, 1, invalid={"": {"min.insync.replicas": "two"}})),
        facts(brokers=changed(NODE, 1, invalid={"other": {"min.insync.replicas": "two"}})),
    ),
    ("topic-unanswered", "unknown", facts(UNANSWERED), facts(ORDERS)),
    ("settings-unknown", "unknown", facts(replace(ORDERS, requirements=None)), facts(ORDERS)),
    (
        "reassignments-unanswered",
        "unknown",
        facts(unanswered={"reassignments": "no response"}),
        facts(unanswered={"quorum": "no response"}),
    ),
    ("overlay-incomplete", "obstacle", facts(brokers=changed(NODE, 2, produce=13)), facts(brokers=STOCK)),
    (
        "kafka-version",
        "obstacle",
        facts(brokers=replace(STOCK, metadata_version=21), jmx=None),
        facts(brokers=STOCK, jmx=None),
    ),
    ("kafka-version", "obstacle", facts(brokers=STOCK, jmx={1: JmxReport(f"{BASE.version}0")}), facts(brokers=STOCK)),
    ("overlay-missing", "obstacle", facts(brokers={**dict.fromkeys(RACKS, NODE), 3: STOCK}), facts()),
    ("controllers-not-asked", "notice", facts(controllers=None), facts(controllers=None, voters=(1, 2, 3))),
    ("controllers-not-asked", "notice", facts(controllers=None, voters=None), facts()),
    ("quorum-unanswered", "unknown", facts(voters=None, unanswered={"quorum": "no response"}), facts()),
    (
        "controller-silent",
        "unknown",
        facts(controllers=Enforcement(dict.fromkeys(VOTERS[:2], CONTROLLER), {103: "no connection"})),
        facts(),
    ),
    (
        "controller-silent",
        "unknown",
        facts(controllers=Enforcement(dict.fromkeys(VOTERS[:2], CONTROLLER), {})),
        facts(controllers=Enforcement(dict.fromkeys(VOTERS[:2], CONTROLLER), {}), voters=VOTERS[:2]),
    ),
    ("controller-overlay-missing", "obstacle", facts(controllers=controllers(supported_level=0)), facts()),
    ("levels-differ", "obstacle", facts(brokers=changed(NODE, 1, levels={**ON, RACKS_FEATURE: 0})), facts()),
    (
        "metadata-version-too-low",
        "obstacle",
        facts(brokers=replace(NODE, levels={METADATA_FEATURE: 21})),
        facts(brokers=replace(NODE, levels={METADATA_FEATURE: 23})),
    ),
    ("min-isr-lost", "obstacle", LOST, SAME_M_IN_CONTROLLERS),
    ("min-isr-lost", "obstacle", replace(SAME_M_IN_CONTROLLERS, controllers=None), M_IN_CLUSTER),
    (
        "min-isr-lost",
        "obstacle",
        facts(
            brokers={
                **dict.fromkeys(RACKS, replace(NODE, levels=OFF)),
                2: replace(NODE, **own_m(3, "broker"), levels=OFF),
            }
        ),
        facts(brokers=replace(NODE, levels=OFF)),
    ),
    ("min-isr-raised", "notice", NO_M, LOST),
    ("min-isr-becomes-cluster-value", "notice", SAME_M_IN_CONTROLLERS, M_IN_CLUSTER),
    (
        "min-isr-property-ignored",
        "notice",
        facts(brokers=changed(NODE, 1, replicas_by_source={"cluster": 2, "file": 3})),
        facts(brokers=changed(NODE, 1, replicas_by_source={"cluster": 2, "file": 2})),
    ),
    (
        "racks-only-in-properties",
        "obstacle",
        facts(brokers=changed(NODE, 1, property_racks=2)),
        facts(brokers=replace(NODE, property_racks=2, default=IsrRequirements(CLUSTER_M, ConfigValue(2, "cluster")))),
    ),
    (
        "racks-only-in-properties",
        "obstacle",
        facts(controllers=controllers(levels=OFF, property_racks=2, **own_m(2, "cluster"))),
        facts(controllers=controllers(property_racks=1)),
    ),
    ("brokers-without-rack", "obstacle", facts(racks={**RACKS, 5: " "}), facts(racks={**RACKS, 5: "e"})),
    ("similar-racks", "obstacle", facts(racks={**RACKS, 5: "A "}), facts(racks={**RACKS, 5: "a"})),
    (
        "fewer-racks-than-required",
        "obstacle",
        facts(topic("orders", (1, 2)), racks={1: "a", 2: "a"}),
        facts(topic("orders", (1, 2)), racks={1: "a", 2: "b"}),
    ),
    (
        "fewer-racks-than-required",
        "unknown",
        facts(topic("orders", (1, 2, 9)), racks={1: "a", 2: "a"}),
        facts(topic("orders", (1, 2, 9)), racks={1: "a", 2: "b"}),
    ),
    (
        "no-spare-rack",
        "notice",
        facts(topic("orders", (1, 2)), racks={1: "a", 2: "b"}),
        facts(topic("orders", (1, 2)), racks={1: "a", 2: "b", 3: "c"}),
    ),
    (
        "replicas-on-unknown-brokers",
        "unknown",
        facts(topic("orders", (1, 2, 9))),
        facts(topic("orders", (1, 2, 3))),
    ),
    (
        "placement-in-too-few-racks",
        "obstacle",
        facts(topic("orders", (1, 5), (1, 2)), racks={**RACKS, 5: "a"}),
        facts(topic("orders", (1, 5, 2)), racks={**RACKS, 5: "a"}),
    ),
    # the rack of an unknown broker may be the one that is missing
    (
        "placement-in-too-few-racks",
        "obstacle",
        facts(topic("orders", (1, 5)), racks={**RACKS, 5: "a"}),
        facts(topic("orders", (1, 5, 9)), racks={**RACKS, 5: "a"}),
    ),
    ("racks-capped", "notice", facts(topic("orders", (1,))), facts(topic("orders", (1, 2)))),
    (
        "partition-offline",
        "obstacle",
        facts(replace(ORDERS, partitions=(ReportedPartition("orders", 0, -1, (1, 2), (), elr=(2,)),))),
        facts(topic("orders", (1, 2), isr=(1,))),
    ),
    (
        "replicas-out-of-sync",
        "obstacle",
        facts(topic("orders", (1, 2, 3), isr=(1, 2))),
        facts(topic("orders", (1, 2, 3), isr=(1, 2), adding=(3,))),
    ),
    ("reassigning", "notice", facts(topic("orders", (1, 2, 3), adding=(3,))), facts(ORDERS)),
    (
        "internal-topic-too-few-replicas",
        "obstacle",
        facts(topic("__consumer_offsets", (1,)), ORDERS),
        facts(topic("__consumer_offsets", (1,)), topic("orders", (1,))),
    ),
    (
        "internal-topic-requires-fewer-racks",
        "notice",
        facts(topic("__transaction_state", (1, 2, 3), racks=1), ORDERS),
        facts(topic("__transaction_state", (1, 2, 3), racks=2), ORDERS),
    ),
    (
        "unclean-election",
        "obstacle",
        facts(brokers=replace(NODE, unclean={"orders": "topic"})),
        facts(brokers=replace(NODE, unclean={"other": "topic"})),
    ),
    ("unclean-election", "obstacle", facts(brokers=changed(NODE, 1, unclean={"": "file"})), facts()),
    ("unclean-election", "obstacle", facts(controllers=controllers(unclean={"": "file"})), facts()),
    (
        "controller-racks-unknown",
        "notice",
        facts(controller_racks={101: "a", 102: "b"}),
        facts(controller_racks={}, voters=(1, 2, 3)),
    ),
    (
        "quorum-loss",
        "obstacle",
        facts(controller_racks={101: "a", 102: "a", 103: "b"}),
        facts(controller_racks={101: "x", 102: "y", 103: "z"}),
    ),
    ("quorum-loss", "notice", facts(voters=(101,), controller_racks={101: "a"}), facts()),
    ("jmx-silent", "unknown", facts(jmx_unanswered={"k1:9999": "no response within 30 s"}), facts()),
    ("produce-versions-unknown", "notice", facts(jmx={1: JmxReport(BASE.version)}), facts()),
    (
        "old-producers",
        "notice",
        facts(jmx=dict.fromkeys(RACKS, JmxReport(BASE.version, {11: 3, 14: 2}))),
        facts(jmx=dict.fromkeys(RACKS, JmxReport(BASE.version, {11: 0, 14: 2}))),
    ),
]


def test_unknown_partitions_of_another_topic_count() -> None:
    recorded = facts(ORDERS, replace(UNANSWERED, name="other"))
    assert codes(recorded, "orders") == {("unknown", "topic-unanswered")}
    assert codes(facts(ORDERS, replace(ORDERS, name="other", requirements=None)), "orders") == set()


def test_a_cluster_without_obstacles_has_no_finding() -> None:
    assert judged(facts()) == ()
    assert judged(facts(), "orders") == ()


@pytest.mark.parametrize(
    ("code", "severity", "with_it", "without_it"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)]
)
def test_each_finding_appears_where_it_should(
    code: str, severity: str, with_it: PreflightFacts, without_it: PreflightFacts
) -> None:
    assert (severity, code) in codes(with_it), judged(with_it)
    assert code not in {one for _, one in codes(without_it)}, judged(without_it)
    for finding in judged(with_it):
        assert finding.subject, finding
        assert finding.text, finding
        assert finding.remedy, finding
        assert all(line.startswith(("# ", "kafka-", "rackgate ")) for line in finding.remedy.splitlines()), finding


def test_every_code_has_a_case() -> None:
    assert {code for code, *_ in CASES} == source_codes("preflight_judgement")


def test_status_of_obstacles_and_unknowns() -> None:
    assert readiness_status(judged(facts())) == 0
    assert readiness_status(judged(facts(controllers=None, controller_racks={}, jmx=None))) == 0, "notices do not count"
    assert readiness_status(judged(facts(silent={4: "no response"}))) == 2
    assert readiness_status(judged(facts(silent={4: "no response"}, racks={**RACKS, 5: ""}))) == 1
    severities = [one.severity for one in judged(facts(silent={4: "no response"}, racks={**RACKS, 5: ""}, jmx=None))]
    assert severities == ["obstacle", "unknown", "notice"]


def test_an_m_that_would_be_lost_is_reported_with_value_topics_and_remedy() -> None:
    (lost,) = [one for one in judged(LOST) if one.code == "min-isr-lost"]
    assert lost.text == (
        "min.insync.replicas=2 stands only in the properties of brokers: enabling eligible.leader.replicas.version"
        " makes it 1 (from the controllers' properties, 1 if they have none) for topics orders"
    )
    assert lost.remedy == (
        "kafka-configs.sh --bootstrap-server k1:9092 --command-config ops.properties --alter --entity-type brokers"
        " --entity-default --add-config min.insync.replicas=2"
    )
    not_asked = judged(replace(LOST, controllers=None))
    assert "not all were asked" in next(one.text for one in not_asked if one.code == "min-isr-lost")


def test_several_lost_values_share_the_highest_as_remedy() -> None:
    mixed = facts(
        topic("orders", (1, 2, 3), replicas=M_FILE),
        brokers={
            1: replace(NODE, levels=OFF, **own_m(2, "file")),
            **dict.fromkeys((2, 3, 4), replace(NODE, levels=OFF, **own_m(3, "file"))),
        },
        controllers=None,
    )
    remedies = [one.remedy for one in judged(mixed) if one.code == "min-isr-lost"]
    assert len(remedies) == 2
    assert all(remedy.endswith("min.insync.replicas=3") for remedy in remedies)


def test_the_commands_of_a_ready_cluster_enable_features_and_racks() -> None:
    new = replace(topic("new", (1, 2, 3)), requirements=IsrRequirements(CLUSTER_M, ConfigValue(1, "default")))
    recorded = facts(new, ORDERS, brokers=replace(NODE, levels=OFF), controllers=controllers(levels=OFF))
    again = "rackgate preflight"
    base = "--bootstrap-server k1:9092 --command-config ops.properties"
    upgrade = f"kafka-features.sh {base} upgrade --feature {ELR_FEATURE}=1 --feature {RACKS_FEATURE}=1"
    chosen = goal(recorded, "new", "orders")
    findings = preflight_findings(recorded, chosen, COMMANDS)
    assert next_commands(recorded, chosen, findings, COMMANDS, again) == (
        upgrade,
        f"kafka-configs.sh {base} --alter --topic new --add-config min.insync.racks=2",
        "rackgate check --bootstrap k1:9092 --command-config ops.properties --topic new --topic orders"
        " --expect-racks 2",
    )
    whole = goal(recorded, racks=3)
    findings = preflight_findings(recorded, whole, COMMANDS)
    assert next_commands(recorded, whole, findings, COMMANDS, again) == (
        upgrade,
        f"kafka-configs.sh {base} --alter --entity-type brokers --entity-default --add-config min.insync.racks=3",
        # it has a value of its own, so the default does not reach it
        f"kafka-configs.sh {base} --alter --topic orders --add-config min.insync.racks=3",
        "rackgate check --bootstrap k1:9092 --command-config ops.properties --expect-racks 3",
    )


def test_nothing_is_to_be_enabled_where_everything_is() -> None:
    recorded = facts()
    assert next_commands(recorded, goal(recorded, "orders"), (), CommandWriter(), "") == (
        "rackgate check --topic orders --expect-racks 2",
    )


def test_the_commands_of_another_cluster_are_the_remedies_and_the_preflight() -> None:
    recorded = facts(topic("orders", (1, 5)), topic("other", (1, 5)), racks={**RACKS, 5: "a"})
    chosen = goal(recorded)
    findings = preflight_findings(recorded, chosen, CommandWriter())
    assert next_commands(recorded, chosen, findings, CommandWriter(), "rackgate preflight --racks 2") == (
        "rackgate preflight --racks 2 --plan-to plan.json",
        "rackgate lab kafka reassign-partitions --reassignment-json-file plan.json --execute",
        "rackgate preflight --racks 2",
    )


def test_the_plan_is_for_the_racks_to_be_enabled() -> None:
    recorded = facts(topic("orders", (1, 5), racks=1), topic("other", (1, 5), racks=1), racks={**RACKS, 5: "a"})
    planned = planned_cluster(recorded, goal(recorded, "orders"))
    assert [move.partition.topic for move in plan_reassignment(planned).moves] == ["orders"]


def test_a_higher_value_is_never_lowered() -> None:
    recorded = facts(topic("orders", (1, 2, 3), racks=3))
    chosen = goal(recorded)
    assert chosen.racks_of(recorded.cluster.topics[0]) == 3
    assert not any("--topic" in one for one in next_commands(recorded, chosen, (), COMMANDS, ""))


def test_a_cluster_of_kafka_3_9_needs_no_overlay_to_be_judged() -> None:
    old = BrokerResponse(
        produce=11,
        supported_level=0,
        levels={METADATA_FEATURE: 21},
        epoch=1,
        default=IsrRequirements(ConfigValue(1, "default"), None),
        metadata_version=21,
    )
    recorded = facts(
        topic("orders", (1, 2, 3), racks=None), brokers=old, controllers=None, controller_racks={}, jmx=None
    )
    assert {code for severity, code in codes(recorded) if severity != "notice"} == {
        "kafka-version",
        "metadata-version-too-low",
        "min-isr-lost",
    }
    assert "run Kafka 3.9" in next(one.text for one in judged(recorded) if one.code == "kafka-version")


def stock_of(version: str) -> PreflightFacts:
    """Return a stock cluster of a version that has an overlay, below the metadata.version that ELR needs."""
    level = recipe.load(paths.patch_folder(version) / "kafka.toml").metadata_version
    brokers = replace(STOCK, metadata_version=level, levels={METADATA_FEATURE: 21})
    return facts(brokers=brokers, jmx=None, controllers=controllers(supported_level=0, metadata_version=level))


@pytest.mark.parametrize("version", paths.patched_versions())
def test_each_version_with_an_overlay_gets_it_without_an_upgrade(version: str) -> None:
    by_code = {one.code: one for one in judged(stock_of(version))}
    assert "kafka-version" not in by_code
    assert f"put the overlay for {version} first" in by_code["overlay-missing"].remedy
    assert f"run Kafka {version} with its overlay" in by_code["controller-overlay-missing"].remedy
    level = recipe.load(paths.patch_folder(version) / "kafka.toml").metadata_version
    assert f"{METADATA_FEATURE}={level}" in by_code["metadata-version-too-low"].remedy


def test_brokers_of_several_versions_get_the_overlay_of_their_own() -> None:
    versions = paths.patched_versions()
    nodes = dict(enumerate(versions, start=1))
    recorded = facts(
        brokers={**dict.fromkeys(RACKS, NODE), **dict.fromkeys(nodes, STOCK)},
        jmx={node: JmxReport(version) for node, version in nodes.items()},
    )
    findings = [one for one in judged(recorded) if one.code == "overlay-missing"]
    assert [one.subject for one in findings] == [f"broker {node}" for node in nodes]
    assert all(f"overlay for {version} first" in one.remedy for one, version in zip(findings, versions, strict=True))


def test_other_versions_are_given_all_that_have_an_overlay() -> None:
    (finding,) = (
        one
        for one in judged(facts(brokers=replace(STOCK, metadata_version=21), jmx=None))
        if one.code == "kafka-version"
    )
    assert all(version in finding.text for version in paths.patched_versions())
    assert f"upgrade to Kafka {paths.kafka_version()}" in finding.remedy


@pytest.mark.parametrize(
    ("level", "release"),
    [(21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (31, "4.4 or later"), (0, "before 3.8")],
)
def test_releases_by_metadata_version(level: int, release: str) -> None:
    assert release_of(level) == release


def test_racks_of_controllers_are_parsed() -> None:
    assert parse_controller_racks(["101=a", "102=b=c"]) == {101: "a", 102: "b=c"}
    for text in ("101", "a=b", "101=", "=a"):
        with pytest.raises(RackgateError, match="expected ID=RACK"):
            parse_controller_racks([text])


def test_the_json_has_all_documented_keys() -> None:
    recorded = facts(silent={4: "no response"}, controllers=None)
    chosen = goal(recorded, "orders")
    findings = preflight_findings(recorded, chosen, COMMANDS)
    report = json.loads(readiness_report.preflight_json(recorded, chosen, findings, ["rackgate check"]))
    described = readiness_report.__doc__ or ""
    for part in (report, report["nodes"][0], report["findings"][0]):
        assert [key for key in part if f"`{key}`" not in described and key not in described] == []
    assert (report["ready"], report["status"], report["racks"], report["topics"]) == (False, 2, 2, ["orders"])
    assert report["nodes"][0]["features"] == ON
    assert [(one["id"], one["responded"]) for one in report["nodes"]] == [
        *((broker, broker != 4) for broker in RACKS),
        *((voter, False) for voter in VOTERS),
    ]
    assert report["next"] == ["rackgate check"]


def test_the_tables_fit_and_commands_stay_on_one_line() -> None:
    recorded = facts(
        topic("orders", (1, 5)), racks={**RACKS, 5: "a"}, silent={4: "\x1b[31mno response"}, controllers=None
    )
    chosen = goal(recorded)
    findings = preflight_findings(recorded, chosen, COMMANDS)
    following = next_commands(recorded, chosen, findings, COMMANDS, "rackgate preflight")
    console = Console(file=io.StringIO(), width=100, highlight=False)
    readiness_report.print_preflight(console, recorded, chosen, findings, following)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    commands = [f"  {command}" for command in following]
    assert [line.rstrip() for line in lines[-len(commands) :]] == commands
    remedies = {f"  {line}" for finding in findings for line in finding.remedy.splitlines()} | set(commands)
    assert max(len(line) for line in lines if line.rstrip() not in remedies) <= 100
    text = " ".join(console.file.getvalue().split())
    assert "min.insync.racks=2 for 1 topic: not ready (1 obstacle, 1 unknown, 1 notice)" in text, text
    assert "\\x1b[31mno response" in text
