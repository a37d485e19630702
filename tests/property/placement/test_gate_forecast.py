"""Forecasts of the gate's decisions, against enumeration of every set of brokers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.kafka.features import UPGRADE
from pyhooks.placement.findings import (
    TopicReport,
    at_risk,
    below_expected_findings,
    cluster_findings,
    internal_topic_findings,
    topic_reports,
)
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    PartitionForecast,
    RackSizes,
    ReportedPartition,
    forecast_partition,
    limits_of,
)

RACKS = ("", "a", "b", "c")


def requirements(replicas: int, racks: int | None) -> IsrRequirements:
    return IsrRequirements(ConfigValue(replicas, "topic"), None if racks is None else ConfigValue(racks, "topic"))


def cluster(racks: Mapping[int, str], topics: Iterable[CheckedTopic] = (), *, enforced: bool = True) -> ClusterSnapshot:
    brokers = {broker: Broker(broker, rack) for broker, rack in racks.items()}
    return ClusterSnapshot("id", brokers, tuple(topics), enforced, voters=(1, 3, 5) if 5 in racks else ())


def topic(
    name: str, asked: IsrRequirements | None, *placements: tuple[int, ...], isr: tuple[int, ...] | None = None
) -> CheckedTopic:
    partitions = tuple(
        ReportedPartition(name, number, leader=replicas[0], replicas=replicas, isr=replicas if isr is None else isr)
        for number, replicas in enumerate(placements)
    )
    return CheckedTopic(name, False, partitions, asked)


def report(racks: Mapping[int, str], one: CheckedTopic, *, enforced: bool = True) -> TopicReport:
    seen = cluster(racks, [one], enforced=enforced)
    (found,) = topic_reports(seen, seen.topics)
    return found


def codes(found: TopicReport) -> set[tuple[str, str]]:
    return {(finding.severity, finding.code) for finding in found.findings}


# Enumeration: a second implementation of the patch's gate, applied to every set of brokers.


def open_(isr: frozenset[int], placed: int, minimum: int, racks: int, where: Mapping[int, str]) -> bool:
    """Return the gate's decision; ``racks`` is 1 if R is not enforced, ``placed`` is the number of replicas."""
    if not isr or len(isr) < min(minimum, placed):
        return False
    if min(racks, placed) <= 1:
        return True
    return len({where[broker] for broker in isr if where.get(broker)}) >= min(racks, placed)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[ClusterSnapshot, ReportedPartition, IsrRequirements]:
    brokers = draw(st.integers(1, 6))
    where = {broker: draw(st.sampled_from(RACKS)) for broker in range(1, brokers + 1)}
    # an additional, unknown broker may hold a replica
    everyone = [*where, 9]
    replicas = tuple(draw(st.permutations(everyone))[: draw(st.integers(1, min(5, len(everyone))))])
    isr = tuple(sorted(draw(st.sets(st.sampled_from(replicas), min_size=1))))
    leader = draw(st.sampled_from([*isr, -1]))
    asked = requirements(draw(st.integers(1, 6)), draw(st.sampled_from([None, 1, 2, 3, 4])))
    partition = ReportedPartition("t", 0, leader, replicas, isr)
    return cluster(where, enforced=draw(st.booleans())), partition, asked


@settings(max_examples=800, deadline=None)
@given(scenes())
def test_forecast_equals_enumeration(scene: tuple[ClusterSnapshot, ReportedPartition, IsrRequirements]) -> None:
    seen, partition, asked = scene
    where = {broker.broker_id: broker.rack for broker in seen.brokers.values()}
    racks = asked.racks.value if asked.racks and seen.enforced else 1
    placed = len(partition.replicas)

    def lets_through(isr: Iterable[int]) -> bool:
        return open_(frozenset(isr), placed, asked.replicas.value, racks, where)

    state = forecast_partition(partition, asked, asked.min_racks, seen, seen.racks)
    assert state.writable == (partition.leader >= 0 and lets_through(partition.isr))
    for isr, losses, asks in (
        (partition.isr, state.stopped_by, state.writable),
        (partition.replicas, state.stopped_when_whole, lets_through(partition.replicas)),
    ):
        assert set(losses.brokers) == {b for b in isr if asks and not lets_through(set(isr) - {b})}
        named = {rack for rack in where.values() if rack}
        assert set(losses.racks) == {
            rack for rack in named if asks and not lets_through([b for b in isr if where.get(b) != rack])
        }
    # every possible ISR that is in a single rack; brokers without a rack may share one
    subsets = [
        frozenset(members)
        for size in range(1, placed + 1)
        for members in itertools.combinations(partition.replicas, size)
    ]
    alone = {
        next(iter({where[b] for b in members}))
        for members in subsets
        if all(b in where for b in members) and len({where[b] for b in members}) == 1 and lets_through(members)
    }
    assert set(state.lone_racks) == alone
    # reachable: with the feature enabled and M=1, the gate would pass some ISR
    assert state.reachable == any(open_(members, placed, 1, asked.min_racks, where) for members in subsets)


# few values, so that partitions often differ in one of them
REPLICAS = st.sampled_from([(1, 2, 3), (1, 2)])
IDS = st.sampled_from([(), (1, 3)])
PARTITIONS = st.builds(
    ReportedPartition, st.just("t"), st.integers(0, 3), st.sampled_from([-1, 1, 2]), REPLICAS, IDS, IDS, IDS, IDS
)
REQUIREMENTS = st.builds(requirements, st.just(2), st.sampled_from([None, 2]))
TOPICS = st.builds(
    CheckedTopic,
    name=st.just("t"),
    internal=st.just(False),
    partitions=st.lists(PARTITIONS, max_size=4).map(tuple),
    requirements=REQUIREMENTS,
    by_broker=st.dictionaries(st.sampled_from([1, 2]), REQUIREMENTS),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(TOPICS, min_size=2, max_size=6), st.booleans())
def test_a_topic_s_report_does_not_depend_on_other_topics(topics: list[CheckedTopic], enforced: bool) -> None:
    seen = cluster({1: "a", 2: "a", 3: "b"}, topics, enforced=enforced)
    assert list(topic_reports(seen, topics)) == [topic_reports(seen, [one])[0] for one in topics]
    for one in topics:
        for number, partition in enumerate(one.partitions):
            alone = replace(one, partitions=(partition,))
            (forecast,) = topic_reports(seen, [alone])[0].forecasts
            assert topic_reports(seen, [one])[0].forecasts[number] == forecast


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_a_surviving_placement_is_found_if_and_only_if_one_exists(
    sizes: list[int], replicas: int, minimum: int, racks: int
) -> None:
    where = {10 * rack + number: f"r{rack}" for rack, brokers in enumerate(sizes, 1) for number in range(brokers)}
    limits = limits_of(requirements(minimum, racks), replicas, enforced=True)
    placements = [frozenset(chosen) for chosen in itertools.combinations(where, replicas)]
    survives_rack = any(
        all(limits.decide({b for b in placed if where[b] != rack}, where).passes for rack in set(where.values()))
        for placed in placements
    )
    survives_broker = any(all(limits.decide(placed - {b}, where).passes for b in placed) for placed in placements)
    room = RackSizes.of(cluster(where))
    assert room.survives_a_rack(replicas, limits) == survives_rack
    assert room.survives_a_broker(replicas, limits) == survives_broker


AAB = {1: "a", 2: "a", 3: "b"}
AABBC = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
STATES: list[tuple[str, Mapping[int, str], CheckedTopic, set[tuple[str, str]]]] = [
    ("three racks, two required", AABBC, topic("t", requirements(2, 2), (1, 3, 5)), set()),
    (
        "two of three in one rack, none required",
        AABBC,
        topic("t", requirements(2, 1), (1, 2, 3)),
        {("risk", "one-rack-can-acknowledge"), ("risk", "rack-loss-stops")},
    ),
    (
        "the same on a stock cluster",
        AABBC,
        topic("t", requirements(2, None), (1, 2, 3)),
        {("risk", "one-rack-can-acknowledge"), ("risk", "rack-loss-stops")},
    ),
    (
        "the same, two required: a better placement would survive",
        AABBC,
        topic("t", requirements(2, 2), (1, 2, 3)),
        {("risk", "rack-loss-stops"), ("risk", "broker-loss-stops")},
    ),
    (
        "the same in a cluster of two racks: it is what R asks for",
        AAB,
        topic("t", requirements(2, 2), (1, 2, 3)),
        {("notice", "rack-loss-stops-by-choice"), ("notice", "broker-loss-stops-by-choice")},
    ),
    (
        "only the rack with two replicas is in sync",
        AABBC,
        topic("t", requirements(2, 1), (1, 2, 3), isr=(1, 2)),
        {
            ("risk", "one-rack-acknowledges-now"),
            ("risk", "rack-loss-stops"),
            ("risk", "broker-loss-stops-now"),
        },
    ),
    (
        "all in one rack",
        AABBC,
        topic("t", requirements(2, 2), (1, 2)),
        {("error", "racks-out-of-reach")},
    ),
    (
        "all in one rack, none required",
        AABBC,
        topic("t", requirements(2, 1), (1, 2)),
        {
            ("risk", "all-in-one-rack"),
            ("notice", "rack-loss-stops-by-choice"),
            ("notice", "broker-loss-stops-by-choice"),
        },
    ),
    (
        "one replica",
        AABBC,
        topic("t", requirements(1, 2), (1,)),
        {("notice", "rack-loss-stops-by-choice"), ("notice", "broker-loss-stops-by-choice")},
    ),
    ("Kafka's defaults", AABBC, topic("t", requirements(1, 1), (1, 3, 5)), {("notice", "one-replica-acknowledges")}),
    (
        "one of three racks is out of sync",
        AABBC,
        topic("t", requirements(2, 2), (1, 3, 5), isr=(1, 3)),
        {("risk", "rack-loss-stops-now"), ("risk", "broker-loss-stops-now")},
    ),
    (
        "too few racks in sync",
        AABBC,
        topic("t", requirements(2, 2), (1, 2, 3), isr=(1, 2)),
        {("error", "too-few-racks"), ("risk", "rack-loss-stops"), ("risk", "broker-loss-stops")},
    ),
    (
        "too few replicas in sync",
        AABBC,
        topic("t", requirements(2, 1), (1, 3, 5), isr=(1,)),
        {("error", "too-few-replicas")},
    ),
    (
        "a broker without a rack counts for none",
        {1: "a", 2: "", 3: "b"},
        topic("t", requirements(1, 2), (1, 2)),
        {("error", "racks-out-of-reach")},
    ),
    (
        "an ISR that lacks the second rack",
        {1: "a", 2: "", 3: "b"},
        topic("t", requirements(1, 2), (1, 2, 3), isr=(1, 2)),
        {
            ("error", "too-few-racks"),
            ("notice", "rack-loss-stops-by-choice"),
            ("notice", "broker-loss-stops-by-choice"),
        },
    ),
    (
        "brokers without a rack acknowledge, which may be in the same one",
        {1: "", 2: "", 3: "b"},
        topic("t", requirements(2, 1), (1, 2, 3), isr=(1, 2)),
        {("risk", "one-rack-acknowledges-now"), ("risk", "broker-loss-stops-now")},
    ),
    (
        "all replicas on brokers without a rack",
        {1: "", 2: "", 3: "b"},
        topic("t", requirements(1, 1), (1, 2)),
        {("notice", "all-in-one-rack")},
    ),
    (
        "more than there are replicas",
        AAB,
        topic("t", requirements(3, 3), (1, 3)),
        {
            ("notice", "racks-capped"),
            ("notice", "replicas-capped"),
            ("notice", "rack-loss-stops-by-choice"),
            ("notice", "broker-loss-stops-by-choice"),
        },
    ),
    ("nobody told", AAB, topic("t", None, (1, 3)), {("unknown", "settings-unknown")}),
    (
        "a replica on a broker that nobody knows",
        AABBC,
        topic("t", requirements(1, 1), (1, 3, 8)),
        {("unknown", "unknown-brokers"), ("notice", "one-replica-acknowledges")},
    ),
]


@pytest.mark.parametrize(("racks", "one", "expected"), [s[1:] for s in STATES], ids=[s[0] for s in STATES])
def test_findings_of_a_topic(racks: Mapping[int, str], one: CheckedTopic, expected: set[tuple[str, str]]) -> None:
    found = report(racks, one)
    assert codes(found) == expected, found.findings
    severe = any(severity != "notice" for severity, _ in expected)
    assert at_risk(found.findings, strict=False) == severe
    assert at_risk(found.findings, strict=True) == bool(expected)


def test_an_offline_partition_lists_eligible_leaders() -> None:
    partition = ReportedPartition("t", 0, -1, (1, 2, 3), (), elr=(3,))
    (finding, *_) = report(AAB, CheckedTopic("t", False, (partition,), requirements(2, 2))).findings
    assert (finding.code, finding.remedy) == ("offline", "start broker 3")


def test_without_the_feature_r_is_not_enforced_and_the_placement_is_reported() -> None:
    found = report(AAB, topic("t", requirements(1, 2), (1, 2)), enforced=False)
    (state,) = found.forecasts
    assert state.writable
    assert not state.reachable
    (finding,) = [f for f in found.findings if f.code == "racks-out-of-reach"]
    assert finding.means.startswith("would reject acks=all as soon as min.insync.racks is enforced")


def test_without_the_feature_an_insufficient_placement_acknowledges_in_one_rack() -> None:
    asked = requirements(2, 2)
    now = codes(report(AABBC, topic("t", asked, (1, 2)), enforced=False))
    assert {("error", "racks-out-of-reach"), ("risk", "all-in-one-rack")} <= now
    three = report(AABBC, topic("t", requirements(2, 3), (1, 2, 3)), enforced=False)
    (alone,) = [finding for finding in three.findings if finding.code == "one-rack-can-acknowledge"]
    assert alone.remedy.startswith("move replicas (rackgate check --plan) and then enforce min.insync.racks=3 (")
    assert ("risk", "rack-loss-stops") in codes(three)


@pytest.mark.parametrize(
    ("racks", "enforced", "remedy"),
    [
        (2, False, f"enforce min.insync.racks=2 ({UPGRADE}), or place fewer than 2 replicas in a rack"),
        (1, False, "require racks (min.insync.racks=2), or place fewer than 2 replicas in a rack"),
        (1, True, "require racks (min.insync.racks=2), or place fewer than 2 replicas in a rack"),
        (
            None,
            False,
            "put the overlay first on the classpath and require racks, or place fewer than 2 replicas in a rack",
        ),
    ],
)
def test_remedy_for_acknowledgements_in_one_rack(racks: int | None, enforced: bool, remedy: str) -> None:
    found = report(AABBC, topic("t", requirements(2, racks), (1, 2, 3)), enforced=enforced)
    assert [one.remedy for one in found.findings if one.code == "one-rack-can-acknowledge"] == [remedy]


def test_a_reassignment_counts_with_its_target_replicas() -> None:
    partition = ReportedPartition("t", 0, 1, (1, 3, 2), (1, 3), adding=(2,), removing=(3,))
    found = report(AAB, CheckedTopic("t", False, (partition,), requirements(1, 2)))
    (state,) = found.forecasts
    assert state.writable
    assert not state.reachable
    assert state.racks == ("a",)
    assert {"racks-out-of-reach", "reassigning"} == {finding.code for finding in found.findings}
    assert "as soon as its reassignment has ended" in found.findings[0].means


def test_replicas_that_a_reassignment_adds_do_not_raise_r() -> None:
    partition = ReportedPartition("t", 0, 1, (1, 3), (1,), adding=(3,))
    (state,) = report(AAB, CheckedTopic("t", False, (partition,), requirements(1, 2))).forecasts
    assert (state.writable, state.reachable, state.decision.need_racks) == (True, True, 1)
    # after the reassignment
    assert state.stopped_when_whole.racks == ("a", "b")


def test_the_isr_reported_by_the_leader_counts() -> None:
    one = topic("t", requirements(1, 2), (1, 2))
    reported = CheckedTopic(
        "t", False, one.partitions, one.requirements, {1: requirements(1, None), 2: requirements(1, 2)}
    )
    (state,) = report(AAB, reported).forecasts
    assert state.writable, "the leader does not know of racks, so it rejects nothing"
    assert not state.reachable


def test_equal_findings_of_partitions_are_merged() -> None:
    placements = [(1, 2, 3), (3, 4, 1), (2, 1, 4)]
    found = report(AABBC, topic("t", requirements(2, 1), *placements))
    (alone,) = [finding for finding in found.findings if finding.code == "one-rack-can-acknowledge"]
    assert alone.partitions == (0, 1, 2)
    assert alone.means == "rack a or b can acknowledge alone, since 2 replicas are enough"


@pytest.mark.parametrize(
    ("racks", "default", "expected"),
    [
        (AABBC, requirements(1, 1), set()),
        (AABBC, None, set()),
        (AAB, requirements(1, 3), {("error", "default-above-racks")}),
        ({1: "a", 2: "a"}, requirements(1, 1), {("notice", "one-rack")}),
        ({1: "", 2: ""}, requirements(1, 1), {("notice", "brokers-without-rack")}),
        ({1: "", 2: "a"}, requirements(1, 1), {("risk", "brokers-without-rack")}),
        ({1: "", 2: ""}, requirements(1, 2), {("error", "brokers-without-rack"), ("error", "default-above-racks")}),
        ({1: "", 2: "a"}, requirements(1, 2), {("error", "brokers-without-rack"), ("error", "default-above-racks")}),
        ({1: "", 2: "a", 3: "b"}, requirements(1, 2), {("error", "brokers-without-rack")}),
        ({1: "", 2: "a", 3: "b"}, requirements(1, 1), {("risk", "brokers-without-rack")}),
    ],
)
def test_findings_of_the_cluster(
    racks: Mapping[int, str], default: IsrRequirements | None, expected: set[object]
) -> None:
    found = cluster_findings(cluster(racks), default)
    assert {(finding.severity, finding.code) for finding in found} == expected


@pytest.mark.parametrize(
    ("one", "severity"),
    [
        (topic("t", requirements(1, 2), (1, 2)), "error"),
        # the effective R is 1, for which racks do not matter
        (topic("t", requirements(1, 2), (1,), (2,)), "risk"),
        (topic("t", requirements(1, 2), (1,), (2, 3)), "error"),
        (topic("t", requirements(1, 1), (1, 2)), "risk"),
        (topic("t", None, (1, 2)), "risk"),
    ],
)
def test_a_broker_without_a_rack_is_an_error_while_an_effective_r_is_above_1(one: CheckedTopic, severity: str) -> None:
    (found,) = cluster_findings(cluster({1: "a", 2: "b", 3: ""}, [one]), requirements(1, 1))
    assert (found.code, found.severity) == ("brokers-without-rack", severity)
    assert "broker 3" in found.means


TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"


@pytest.mark.parametrize(
    ("internal", "others", "expected"),
    [
        (
            topic(TRANSACTIONS, requirements(2, 1), (1, 3, 5)),
            [topic("t", requirements(2, 2), (1, 3, 5))],
            [(TRANSACTIONS, "1", "t")],
        ),
        (
            topic(OFFSETS, requirements(2, 1), (1, 3, 5)),
            [topic("t", requirements(2, 2), (1, 3, 5))],
            [(OFFSETS, "1", "t")],
        ),
        (topic(TRANSACTIONS, requirements(2, 2), (1, 3, 5)), [topic("t", requirements(2, 2), (1, 3, 5))], []),
        (
            topic(TRANSACTIONS, requirements(2, 2), (1, 3, 5)),
            [topic("t", requirements(2, 3), (1, 3, 5))],
            [(TRANSACTIONS, "2", "t")],
        ),
        # both are capped by the number of replicas
        (topic(TRANSACTIONS, requirements(2, 3), (1, 3)), [topic("t", requirements(2, 3), (1, 3))], []),
        (
            topic(TRANSACTIONS, requirements(2, 3), (1,), (3, 1)),
            [topic("t", requirements(2, 3), (1, 3))],
            [(TRANSACTIONS, "1", "t")],
        ),
        (topic(TRANSACTIONS, requirements(1, 1), (1,)), [topic("t", requirements(2, 2), (1,))], []),
        (topic(TRANSACTIONS, None, (1, 3)), [topic("t", requirements(2, 2), (1, 3))], []),
        (topic("other", requirements(2, 1), (1, 3)), [topic("t", requirements(2, 2), (1, 3))], []),
    ],
)
def test_internal_topics_that_require_fewer_racks(
    internal: CheckedTopic, others: list[CheckedTopic], expected: list[tuple[str, str, str]]
) -> None:
    hidden = replace(internal, internal=True)
    seen = cluster(AABBC, [hidden, *others])
    found = list(internal_topic_findings(seen, seen.topics))
    assert [(one.topic, one.means.split()[2].rstrip(","), one.means.split()[4]) for one in found] == expected
    assert {(one.severity, one.code) for one in found} <= {("risk", "internal-topic-requires-fewer-racks")}
    assert list(internal_topic_findings(seen, [hidden])) == [], "only topics that are reported count"


def test_long_lists_of_topics_are_shortened() -> None:
    many = [topic(f"t{number:02}", requirements(2, 2), (1, 3, 5)) for number in range(30)]
    hidden = replace(topic(TRANSACTIONS, requirements(2, 1), (1, 3, 5)), internal=True)
    (found,) = internal_topic_findings(cluster(AABBC, [hidden, *many]), [hidden, *many])
    assert "t07 and 22 more" in found.means
    assert "t08" not in found.means


def test_an_unreachable_default_rejects_only_when_enforced() -> None:
    for enforced in (True, False):
        (found,) = cluster_findings(cluster(AABBC, enforced=enforced), requirements(1, 4))
        assert found.code == "default-above-racks"
        assert found.means.endswith("acks=all as soon as min.insync.racks is enforced") == (not enforced)


@pytest.mark.parametrize(
    ("voters", "expected"),
    [
        ((1, 3, 5), set()),
        ((1, 2, 3), {("risk", "quorum-loss")}),
        ((1, 2, 3, 5), {("risk", "quorum-loss")}),
        ((1, 2, 3, 4, 5), set()),
        ((1,), {("notice", "quorum-loss")}),
        ((101, 102, 103), {("notice", "quorum-racks-unknown")}),
        (None, {("notice", "quorum-unknown")}),
    ],
)
def test_racks_of_the_controllers(voters: tuple[int, ...] | None, expected: set[object]) -> None:
    found = cluster_findings(replace(cluster(AABBC), voters=voters), requirements(1, 1))
    assert {(finding.severity, finding.code) for finding in found} == expected


def test_ten_thousand_partitions_within_the_time_limit() -> None:
    racks = {broker: "abc"[broker % 3] for broker in range(30)}
    topics = [
        topic(f"t{n}", requirements(2, 2), *((b % 30, (b + 1) % 30, (b + 3 * (n % 2)) % 30) for b in range(n, n + 10)))
        for n in range(1000)
    ]
    seen = cluster(racks, topics)
    # CPU time, since elapsed time can be ten times as long on a busy machine
    started = time.process_time()
    reports = topic_reports(seen, seen.topics)
    duration_s = time.process_time() - started
    assert sum(len(found.forecasts) for found in reports) == 10_000
    assert duration_s < 5, duration_s


def test_states_are_kept_for_each_partition() -> None:
    found = report(AAB, topic("t", requirements(1, 2), (1, 3), (3, 2)))
    assert [state.partition.number for state in found.forecasts] == [0, 1]
    assert all(isinstance(state, PartitionForecast) and state.writable for state in found.forecasts)


def test_topics_with_fewer_required_racks_are_reported() -> None:
    default = IsrRequirements(ConfigValue(2, "default"), ConfigValue(1, "default"))
    topics = [
        topic("lowered", requirements(2, 1), (1, 2, 3)),
        topic("by-default", default, (1, 2, 3)),
        topic("stock", requirements(2, None), (1, 2, 3)),
        topic("as-expected", requirements(2, 2), (1, 2, 3)),
        topic("more", requirements(2, 3), (1, 2, 3)),
        topic("one-replica", requirements(1, 1), (1,)),
        topic("unknown", None, (1, 2, 3)),
    ]
    assert below_expected_findings(topics, 1) == ()
    found = {finding.topic: finding for finding in below_expected_findings(topics, 2)}
    assert list(found) == ["lowered", "by-default", "stock"]
    assert found["lowered"].means == "requires racks: 1 (topic), expected: 2"
    assert "on the topic," in found["lowered"].remedy
    assert "on the topic or for the cluster" in found["by-default"].remedy
    assert "unknown to the brokers" in found["stock"].means
    assert at_risk(found.values(), strict=False)
    # at most the number of its replicas
    (capped,) = below_expected_findings([topic("two", requirements(2, 1), (1, 3))], 3)
    assert capped.means == "requires racks: 1 (topic), expected: 2"
