"""``rackgate check`` on late, missing, partial and invalid responses of brokers, and on a large cluster."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from check_command import CPU_S, MEMORY_MB, measured_check
from fake_cluster import BLANK, CLOSE, SILENT, FakeCluster, Odd
from pyhooks.core.errors import RackgateError
from pyhooks.placement import cluster_query
from pyhooks.placement.check_cli import make_report
from pyhooks.placement.check_report import json_parts
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.gate_forecast import ConfigValue
from pyhooks.placement.reassignment_plan import plan_reassignment
from silent_brokers import dead

pytestmark = pytest.mark.timeout(300)
RACKS = {1: "[red]", 2: "[/x]", 3: "b\x1b[31m\n‮"}
TOPICS: Mapping[str, Sequence[Sequence[int]]] = {"t": [(1, 2, 3), (2, 3, 1)], "a.b": [(2, 1)], "a_b": [(3, 1)]}
# allowance beyond the timeout, for closing clients and for a busy machine
SLACK_S = 6.0


def fake(odd: Mapping[int, Odd] | None = None, **more: Any) -> FakeCluster:
    return FakeCluster(RACKS, TOPICS, {"t": ("2", "2")}, odd=odd or {}, **more)


def look(cluster: FakeCluster, timeout_s: float = 20.0) -> ClusterObservation:
    begun = time.monotonic()
    seen = cluster_query.query_cluster(cluster.bootstrap, {}, timeout_s=timeout_s, report_step=lambda _: None)
    assert time.monotonic() - begun < timeout_s + SLACK_S
    return seen


def codes(seen: ClusterObservation) -> Mapping[str, str]:
    made = make_report(seen, seen.cluster.topics, strict=False)
    json.loads("".join(json_parts(made)))
    found = {one.code: one.severity for one in made.findings}
    assert made.at_risk == any(severity != "notice" for severity in found.values())
    return found


def of(name: str, answer: bytes) -> Odd:
    """Return a handler that gives requests of one API this response."""
    return lambda asked, _: answer if asked == name else None


def test_names_arrive_as_they_are() -> None:
    with fake().running() as cluster:
        seen = look(cluster)
    assert {broker.broker_id: broker.rack for broker in seen.cluster.brokers.values()} == RACKS
    assert [topic.name for topic in seen.cluster.topics] == sorted(TOPICS)
    assert not seen.enforcement.unresponsive
    assert {
        topic.requirements.min_racks for topic in seen.cluster.topics if topic.requirements and topic.name == "t"
    } == {2}


@pytest.mark.parametrize(
    ("odd", "timeout_s", "reason"),
    [
        (of("DescribeConfigs", SILENT), 5.0, "no response"),
        (of("ApiVersions", SILENT), 5.0, "no connection"),
        (of("DescribeConfigs", CLOSE), 20.0, "the connection was closed"),
        (of("DescribeConfigs", b"\x7f" * 30), 20.0, ""),
        (of("DescribeConfigs", b""), 20.0, ""),
    ],
)
def test_broker_without_response_is_unknown_and_the_rest_is_reported(odd: Odd, timeout_s: float, reason: str) -> None:
    with fake({3: odd}).running() as cluster:
        seen = look(cluster, timeout_s)
    assert set(seen.enforcement.unresponsive) == {3}
    assert reason in seen.enforcement.unresponsive[3]
    assert set(seen.enforcement.responses) == {1, 2}
    assert codes(seen)["broker-silent"] == "unknown"
    assert all(topic.requirements for topic in seen.cluster.topics)


def test_a_slow_broker_is_awaited_within_the_timeout() -> None:
    asked = threading.Event()

    def slow(name: str, _: Mapping[str, Any]) -> None:
        if name == "DescribeConfigs":
            asked.wait(1.5)

    with fake({2: slow}).running() as cluster:
        assert not look(cluster).enforcement.unresponsive


def test_all_brokers_share_one_timeout() -> None:
    racks = {number: "abc"[number % 3] for number in range(1, 71)}
    silent = of("DescribeConfigs", SILENT)
    with FakeCluster(racks, {"t": [(1, 2, 3)]}, odd=dict.fromkeys(racks, silent)).running() as cluster:
        seen = look(cluster, timeout_s=6.0)
    assert set(seen.enforcement.unresponsive) == set(racks)
    assert codes(seen)["settings-unknown"] == "unknown"
    made = plan_reassignment(seen.cluster)
    assert not made.complete


def test_a_silent_cluster_is_an_error_within_the_timeout() -> None:
    everything = dict.fromkeys(RACKS, lambda _name, _asked: SILENT)
    with fake(everything).running() as cluster, pytest.raises(RackgateError, match="no response within 2 s"):
        look(cluster, timeout_s=2.0)
    with dead() as address, pytest.raises(RackgateError, match="refused"):
        cluster_query.query_cluster(address, {}, timeout_s=2.0, report_step=lambda _: None)


def test_invalid_numbers_of_one_broker_are_unknown_only_for_it() -> None:
    def odd(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name != "DescribeConfigs":
            return None
        results = [
            {
                "errorCode": 0,
                "errorMessage": None,
                "resourceType": one["resourceType"],
                "resourceName": one["resourceName"],
                "configs": [
                    {**BLANK, "name": "min.insync.replicas", "value": "2", "configSource": 1},
                    {**BLANK, "name": "min.insync.racks", "value": "abc\x1b", "configSource": 1},
                ],
            }
            for one in asked["resources"]
        ]
        return {"throttleTimeMs": 0, "results": results}

    with fake({2: odd}).running() as cluster:
        seen = look(cluster)
    assert not seen.enforcement.unresponsive
    assert codes(seen)["value-invalid"] == "unknown"
    made = make_report(seen, seen.cluster.topics, strict=False)
    named = {(one.topic, one.means.split(" is ")[0]) for one in made.findings if one.code == "value-invalid"}
    assert named == {(name, r"broker 2: min.insync.racks='abc\x1b'") for name in ("", "t", "a.b")}
    assert all(topic.requirements for topic in seen.cluster.topics), "the others reported"


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("ListPartitionReassignments", "reassignments", "reassignments-unanswered"),
        ("DescribeQuorum", "quorum", "quorum-unanswered"),
    ],
)
def test_an_unanswered_query_keeps_the_other_results(name: str, key: str, code: str) -> None:
    with fake(dict.fromkeys(RACKS, of(name, SILENT))).running() as cluster:
        seen = look(cluster, timeout_s=8.0)
    assert set(seen.cluster.unanswered) == {key}
    assert codes(seen)[code] == "unknown"
    assert not seen.enforcement.unresponsive


def test_rejected_reassignments_are_unknown() -> None:
    rejected = {"throttleTimeMs": 0, "errorCode": 31, "errorMessage": "not you", "topics": []}
    odd: Odd = lambda name, _: rejected if name == "ListPartitionReassignments" else None  # noqa: E731
    with fake(dict.fromkeys(RACKS, odd)).running() as cluster:
        seen = look(cluster)
    assert seen.cluster.unanswered == {"reassignments": "not you"}
    assert codes(seen)["reassignments-unanswered"] == "unknown"


def topic_error(cluster: FakeCluster, code: int) -> Odd:
    def odd(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name != "DescribeTopicPartitions":
            return None
        response = cluster._DescribeTopicPartitions(1, asked)
        for one in response["topics"]:
            if one["name"] == "a.b":
                one.update(errorCode=code, partitions=[])
        return response

    return odd


def test_a_rejected_or_unknown_topic_is_unknown_and_a_deleted_one_left_out() -> None:
    cluster = fake()
    with cluster.running():
        cluster.odd = dict.fromkeys(RACKS, topic_error(cluster, 29))
        seen = look(cluster)
        assert codes(seen)["topic-unanswered"] == "unknown"
        assert {topic.name: bool(topic.unanswered) for topic in seen.cluster.topics} == {
            "a.b": True, "a_b": False, "t": False,
        }  # fmt: skip
        assert not plan_reassignment(seen.cluster).complete
        # listed by a broker that knows the topic, described by one whose metadata is older
        cluster.odd = dict.fromkeys(RACKS, topic_error(cluster, 3))
        assert codes(look(cluster))["topic-unanswered"] == "unknown"
        gone = topic_error(cluster, 3)

        def deleted(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | bytes | None:
            response = gone(name, asked)
            if response is not None:
                cluster.topics = {name: placed for name, placed in TOPICS.items() if name != "a.b"}
            return response

        cluster.odd = dict.fromkeys(RACKS, deleted)
        assert [topic.name for topic in look(cluster).cluster.topics] == ["a_b", "t"]


def test_rejected_settings_of_one_topic_are_named() -> None:
    cluster = fake()

    def odd(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name != "DescribeConfigs":
            return None
        response = cluster._DescribeConfigs(1, asked)
        for one in response["results"]:
            if one["resourceName"] == "a_b":
                one.update(errorCode=29, errorMessage="[not] authorized\n", configs=[])
        return response

    with cluster.running():
        cluster.odd = dict.fromkeys(RACKS, odd)
        seen = look(cluster)
    (found,) = [
        one for one in make_report(seen, seen.cluster.topics, strict=False).findings if one.code == "settings-rejected"
    ]
    assert "a_b" in found.means
    assert {topic.name for topic in seen.cluster.topics if topic.requirements is None} == {"a_b"}
    assert codes(seen)["settings-unknown"] == "unknown"


def test_partitions_without_a_leader_and_brokers_without_a_rack() -> None:
    racks: dict[int, str | None] = {1: None, 2: "", 3: " ", 4: "a"}
    with FakeCluster(racks, {"t": [(1, 4)]}, offline=frozenset({("t", 0)})).running() as cluster:
        seen = look(cluster)
    assert {broker.rack for broker in seen.cluster.brokers.values()} == {"", "a"}
    found = codes(seen)
    assert found["offline"] == "error"
    assert found["brokers-without-rack"] == "risk"


@pytest.mark.parametrize(
    ("source", "value", "own", "expected"),
    [
        # set only in the properties: R=1, whatever a broker reports
        (4, "2", "2", (1, "default", 2, "error")),
        (3, "1", "2", (1, "cluster", 2, "error")),
        (3, "2", "2", (2, "cluster", 2, None)),
        (3, "2", "1", (2, "cluster", 1, None)),
        (3, "2", None, (2, "cluster", None, None)),
        (2, "2", None, (1, "default", None, None)),
    ],
)
def test_the_metadata_is_the_only_source_of_r(
    source: int, value: str, own: str | None, expected: tuple[int, str, int | None, str | None]
) -> None:
    static = [{"name": "min.insync.racks", "value": own, "source": 4}] * (own is not None)

    def odd(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name != "DescribeConfigs":
            return None
        results = []
        for one in asked["resources"]:
            broker = one["resourceType"] == 4
            assert asked["includeSynonyms"] is broker
            configs = [
                {**BLANK, "name": "min.insync.replicas", "value": "2", "configSource": 5},
                {**BLANK, "name": "min.insync.racks", "value": value, "configSource": source}
                | ({"synonyms": static} if broker else {}),
                {**BLANK, "name": "min.insync.racks.observe", "value": "3", "configSource": 3 if broker else 5},
            ]
            what = {"resourceType": one["resourceType"], "resourceName": one["resourceName"]}
            results.append({"errorCode": 0, "errorMessage": None, **what, "configs": configs})
        return {"throttleTimeMs": 0, "results": results}

    with FakeCluster(
        {1: "a", 2: "b", 3: "c"}, {"t": [(1, 2, 3)]}, odd=dict.fromkeys((1, 2, 3), odd)
    ).running() as cluster:
        seen = look(cluster)
    racks, where, property_racks, severity = expected
    (one,) = seen.cluster.topics
    assert one.requirements is not None
    assert (one.requirements.racks, one.requirements.observed) == (ConfigValue(racks, where), None)
    answer = seen.enforcement.responses[2]
    assert answer.default is not None
    assert (answer.default.racks, answer.default.observed) == (ConfigValue(racks, where), ConfigValue(3, "cluster"))
    assert answer.property_racks == property_racks
    assert codes(seen).get("property-above-cluster-value") == severity


@settings(max_examples=15)
@given(st.binary(max_size=40), st.sampled_from(["DescribeConfigs", "DescribeQuorum", "ListPartitionReassignments"]))
def test_arbitrary_bytes_do_not_prevent_a_report(small: FakeCluster, answer: bytes, name: str) -> None:
    small.odd = {1: of(name, answer)}
    # if the bytes announce a longer response, the client waits for the rest until its timeout
    found = codes(look(small, timeout_s=6.0))
    assert "broker-silent" in found or name != "DescribeConfigs"


@pytest.fixture(scope="module")
def small() -> Iterator[FakeCluster]:
    with FakeCluster({1: "a", 2: "b"}, {"t": [(2, 1)]}).running() as cluster:
        yield cluster


# -- a large cluster -------------------------------------------------------------------------------------------------


@contextmanager
def large(topics: int, partitions: int) -> Iterator[FakeCluster]:
    drawn = random.Random(7)  # noqa: S311 - nothing secret
    racks = {number: "abc"[number % 3] for number in range(1, 13)}
    placed = {
        f"topic-{number:06}": [tuple(drawn.sample(sorted(racks), 3)) for _ in range(partitions)]
        for number in range(topics)
    }
    with FakeCluster(racks, placed, dict.fromkeys(placed, ("2", "2"))).running() as cluster:
        yield cluster


@pytest.mark.alone
def test_100000_partitions_take_10_s_and_500_mb_at_most(tmp_path: Path) -> None:
    with large(2000, 50) as cluster:
        status, cpu_s, memory_mb = measured_check(cluster.bootstrap, tmp_path / "out", "--json", "--timeout", "200")
    output = json.loads((tmp_path / "out").read_bytes())
    assert sum(len(topic["partitions"]) for topic in output["topics"]) == 100_000
    assert all(broker["answered"] for broker in output["brokers"])
    assert {topic["min_insync_racks"]["value"] for topic in output["topics"]} == {2}
    assert status == 1
    assert cpu_s <= CPU_S, f"{cpu_s:.1f} s of CPU time, {memory_mb:.0f} MB"
    assert memory_mb <= MEMORY_MB, f"{cpu_s:.1f} s of CPU time, {memory_mb:.0f} MB"


def test_enforcement_is_linear_in_topics() -> None:
    from pyhooks.placement.enforcement import BrokerResponse, Enforcement, enforcement_findings
    from pyhooks.placement.gate_forecast import Broker, CheckedTopic, ConfigValue, IsrRequirements, ReportedPartition

    requirements = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(2, "topic"))
    brokers = {1: Broker(1, "a"), 2: Broker(2, "b")}
    stock = IsrRequirements(ConfigValue(2, "default"), None)
    responses = {1: BrokerResponse(13, 0, {}, 7, stock), 2: BrokerResponse(14, 1, {}, 7, requirements)}

    def cpu_s(number: int) -> float:
        topics = [
            CheckedTopic(f"t{n}", False, (ReportedPartition(f"t{n}", 0, 1, (1, 2), (1, 2)),), requirements)
            for n in range(number)
        ]
        begun = time.process_time()
        found = enforcement_findings(Enforcement(responses, {}), brokers, topics)
        assert sum(one.code == "would-not-enforce" for one in found) == number
        return time.process_time() - begun

    assert cpu_s(20_000) < 1.0
