"""Waiting for ISRs, leaders and elections of topics: missing responses are retried, errors show the last state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import topics

confluent_kafka = pytest.importorskip("confluent_kafka")
# leader and ISR of one partition; of a topic with several, one for each
PartitionState = tuple[int, Sequence[int]] | list[tuple[int, Sequence[int]]]


class FakeAdmin:
    """Fake admin client that reports these states in order and repeats the last; None is no response."""

    def __init__(self, *states: Mapping[str, PartitionState] | None) -> None:
        self.states = list(states)

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002 - as in the real class
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is None:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))
        found = {
            name: SimpleNamespace(
                error=None,
                partitions={
                    number: SimpleNamespace(leader=leader, isrs=list(isr))
                    for number, (leader, isr) in enumerate(states if isinstance(states, list) else [states])
                },
            )
            for name, states in state.items()
        }
        return SimpleNamespace(topics=found)


def client(*observations: Mapping[str, PartitionState] | None) -> Any:
    return FakeAdmin(*observations)


EXPECTED = {"t": frozenset({3}), "u": frozenset({3, 5})}


def test_all_isrs_are_awaited_together() -> None:
    neither, only_t = {"t": (1, [1, 3]), "u": (1, [1, 3, 5])}, {"t": (3, [3]), "u": (1, [1, 3, 5])}
    admin = client(neither, None, only_t, {"t": (3, [3]), "u": (5, [5, 3])})
    topics.wait_isrs(admin, EXPECTED, 10)
    assert len(admin.states) == 1


@pytest.mark.parametrize(
    ("observation", "last"),
    [
        # leader no longer in the ISR; no leader
        ({"t": (3, [3]), "u": (1, [3, 5])}, "u-0: LeaderAndIsr(leader=1, isr=(3, 5))"),
        ({"t": (-1, [3]), "u": (3, [3, 5])}, "t-0: LeaderAndIsr(leader=-1, isr=(3,))"),
        ({"t": (3, [3])}, "t-0: LeaderAndIsr(leader=3, isr=(3,))"),
        (None, "nothing"),
    ],
)
def test_a_timeout_includes_the_last_observation(observation: Mapping[str, PartitionState] | None, last: str) -> None:
    with pytest.raises(RackgateError, match=r"ISR \[3\] of t; ISR \[3, 5\] of u") as raised:
        topics.wait_isrs(client(observation), EXPECTED, 0.3)
    assert last in raised.value.detail


def test_leaders_are_awaited() -> None:
    admin = client(None, {"t": (-1, [3])}, {"t": (3, [3])}, {"t": (3, [3]), "u": (5, [5])})
    assert topics.leaders(admin, ["t", "u"], 10) == {"t": 3, "u": 5}
    with pytest.raises(RackgateError, match="waiting for: leaders of t, u"):
        topics.leaders(client({"t": (3, [3])}), ["t", "u"], 0.3)


class FakeElectionAdmin(FakeAdmin):
    """Fake admin client that returns these election results in order: error of the request, or errors by partition."""

    def __init__(
        self,
        *results: int | Mapping[str, int | None],
        error_type: Any = confluent_kafka.KafkaError,
        states: Sequence[Mapping[str, PartitionState] | None] = ({},),
    ) -> None:
        super().__init__(*states)
        self.results = list(results)
        self.error_type = error_type
        self.requests: list[list[str] | None] = []

    def elect_leaders(self, kind: Any, partitions: Any = None) -> Future[Any]:
        assert kind == confluent_kafka.ElectionType.PREFERRED
        self.requests.append(partitions and [f"{partition.topic}-{partition.partition}" for partition in partitions])
        future: Future[Any] = Future()
        result = self.results.pop(0)
        if isinstance(result, int):
            future.set_exception(kafka_exception(result))
        else:
            errors = {name: None if code is None else self.error_type(code) for name, code in result.items()}
            future.set_result({confluent_kafka.TopicPartition(name, 0): error for name, error in errors.items()})
        return future


def kafka_exception(code: int) -> Any:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


# the documented type of errors, and the actual one
@pytest.mark.parametrize("error_type", [kafka_exception, confluent_kafka.KafkaError])
def test_an_election_is_requested_until_it_is_accepted(error_type: Any) -> None:
    codes = confluent_kafka.KafkaError
    unavailable, elected = (
        {"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE},
        {"t": None, "u": codes.ELECTION_NOT_NEEDED},
    )
    silent = (codes._TIMED_OUT, codes._DESTROY_BROKER, codes.NOT_CONTROLLER)
    admin: Any = FakeElectionAdmin(*silent, unavailable, elected, error_type=error_type)
    topics.elect_preferred(admin)
    assert admin.results == []


def test_a_preferred_replica_that_cannot_lead_is_an_error() -> None:
    codes = confluent_kafka.KafkaError
    admin: Any = FakeElectionAdmin({"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE})
    with pytest.raises(RackgateError, match="waiting for: elect preferred leaders") as raised:
        topics.elect_preferred(admin, 0)
    assert raised.value.detail.partition(": ")[2].startswith("u-0: ")
    admin = FakeElectionAdmin({"t": None, "u": codes.UNKNOWN_TOPIC_OR_PART})
    with pytest.raises(RackgateError, match=r"elect preferred leaders: u-0: "):
        topics.elect_preferred(admin)
    admin = FakeElectionAdmin(codes.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RackgateError, match=r"elect preferred leaders: rejected by the cluster: .*uthorization"):
        topics.elect_preferred(admin)


SPECS = [topics.TopicSpec("t", (1, 2, 3), {}), topics.TopicSpec("u", (5, 1), {})]
SETTLED: Mapping[str, PartitionState] = {"t": (1, [1, 2, 3]), "u": (5, [1, 5])}


def test_no_election_where_preferred_replicas_lead() -> None:
    admin: Any = FakeElectionAdmin(states=[{"t": (1, [1]), "u": (5, [1, 5])}, None, SETTLED])
    topics.wait_settled(admin, SPECS, 10)
    assert (admin.requests, len(admin.states)) == ([], 1)


def test_preferred_replicas_are_elected_when_all_are_in_sync() -> None:
    codes = confluent_kafka.KafkaError
    states: list[Mapping[str, PartitionState] | None] = [
        # not yet in sync; then led by other replicas, and the last response may be outdated
        {"t": (2, [2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (1, [1, 5])},
        None,
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        SETTLED,
    ]
    results: list[Any] = [codes._TIMED_OUT, {"t": codes.PREFERRED_LEADER_NOT_AVAILABLE}, {"t": None}]
    admin: Any = FakeElectionAdmin(*results, states=states)
    topics.wait_settled(admin, SPECS, 10)
    # only of the given topics: the cluster may have others
    assert admin.requests == [["t-0", "u-0"], ["t-0"], ["t-0"]]
    assert admin.results == []


WIDE = topics.TopicSpec("w", (1, 2, 3), {}, partitions=4)


def test_the_replicas_lead_the_partitions_of_a_topic_in_turn() -> None:
    assert WIDE.assignment == {("w", 0): (1, 2, 3), ("w", 1): (2, 3, 1), ("w", 2): (3, 1, 2), ("w", 3): (1, 2, 3)}
    assert SPECS[1].assignment == {("u", 0): (5, 1)}


def test_all_partitions_are_awaited_and_only_those_with_another_leader_are_elected() -> None:
    whole = [1, 2, 3]
    states: list[Mapping[str, PartitionState] | None] = [
        # one partition is missing; one is not in sync; one is led by another replica
        {"w": [(1, whole), (2, whole), (3, whole)]},
        {"w": [(1, whole), (2, [2, 3]), (3, whole), (1, whole)]},
        {"w": [(1, whole), (1, whole), (3, whole), (1, whole)]},
        {"w": [(1, whole), (2, whole), (3, whole), (1, whole)]},
    ]
    admin: Any = FakeElectionAdmin({"w": None}, states=states)
    topics.wait_settled(admin, [WIDE], 10)
    assert admin.requests == [["w-1"]]
    assert len(admin.states) == 1


def test_the_isr_of_every_partition_is_awaited() -> None:
    admin = client({"w": [(1, [1, 2]), (2, [1, 2, 3])]}, {"w": [(1, [1, 2]), (2, [1, 2])]})
    topics.wait_isrs(admin, {"w": frozenset({1, 2})}, 10)
    assert len(admin.states) == 1
    assert topics.try_states(admin, ["w"]) == {"w": topics.LeaderAndIsr(1, (1, 2))}
    with pytest.raises(RackgateError) as raised:
        topics.wait_isrs(client({"w": [(1, [1, 2]), (3, [1, 2])]}), {"w": frozenset({1, 2})}, 0.3)
    assert "w-1: LeaderAndIsr(leader=3" in raised.value.detail


def test_a_rejected_election_is_an_error() -> None:
    codes = confluent_kafka.KafkaError
    admin: Any = FakeElectionAdmin(codes.CLUSTER_AUTHORIZATION_FAILED, states=[{"t": (2, [1, 2, 3]), "u": (5, [1, 5])}])
    with pytest.raises(RackgateError, match="elect preferred leaders: rejected by the cluster"):
        topics.wait_settled(admin, SPECS, 10)
