"""Waiting for ISRs and leaders of topics: no response proves nothing, and errors include the last observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import topics

confluent_kafka = pytest.importorskip("confluent_kafka")
# a leader and an ISR
Seen = tuple[int, Sequence[int]]


class Admin:
    """Admin client that reports given states in order; the last one repeats, and None is no response."""

    def __init__(self, *states: Mapping[str, Seen] | None) -> None:
        self.states = list(states)

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002 - the client's own name
        now = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if now is None:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))
        found = {
            name: SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=leader, isrs=list(isr))})
            for name, (leader, isr) in now.items()
        }
        return SimpleNamespace(topics=found)


def client(*observations: Mapping[str, Seen] | None) -> Any:
    return Admin(*observations)


LEFT = {"t": frozenset({3}), "u": frozenset({3, 5})}


def test_all_isrs_are_awaited_together() -> None:
    before, one = {"t": (1, [1, 3]), "u": (1, [1, 3, 5])}, {"t": (3, [3]), "u": (1, [1, 3, 5])}
    admin = client(before, None, one, {"t": (3, [3]), "u": (5, [5, 3])})
    topics.wait_isrs(admin, LEFT, 10)
    assert len(admin.states) == 1


@pytest.mark.parametrize(
    ("observation", "last"),
    [
        # a leader that is no longer in the ISR, and no leader
        ({"t": (3, [3]), "u": (1, [3, 5])}, "u: LeaderAndIsr(leader=1, isr=(3, 5))"),
        ({"t": (-1, [3]), "u": (3, [3, 5])}, "t: LeaderAndIsr(leader=-1, isr=(3,))"),
        ({"t": (3, [3])}, "t: LeaderAndIsr(leader=3, isr=(3,))"),
        (None, "nothing"),
    ],
)
def test_a_timeout_includes_the_last_observation(observation: Mapping[str, Seen] | None, last: str) -> None:
    with pytest.raises(RackgateError, match=r"ISR \[3\] of t; ISR \[3, 5\] of u") as raised:
        topics.wait_isrs(client(observation), LEFT, 0.3)
    assert last in raised.value.detail


def test_leaders_are_awaited() -> None:
    admin = client(None, {"t": (-1, [3])}, {"t": (3, [3])}, {"t": (3, [3]), "u": (5, [5])})
    assert topics.leaders(admin, ["t", "u"], 10) == {"t": 3, "u": 5}
    with pytest.raises(RackgateError, match="in vain for: leaders of t, u"):
        topics.leaders(client({"t": (3, [3])}), ["t", "u"], 0.3)


class Elector(Admin):
    """Returns given results of elections in order: an error of the request, or one of each partition."""

    def __init__(
        self,
        *results: int | Mapping[str, int | None],
        one: Any = confluent_kafka.KafkaError,
        states: Sequence[Mapping[str, Seen] | None] = ({},),
    ) -> None:
        super().__init__(*states)
        self.results = list(results)
        self.one = one
        self.requests: list[list[str] | None] = []

    def elect_leaders(self, kind: Any, partitions: Any = None) -> Future[Any]:
        assert kind == confluent_kafka.ElectionType.PREFERRED
        self.requests.append(partitions and [f"{one.topic}-{one.partition}" for one in partitions])
        future: Future[Any] = Future()
        now = self.results.pop(0)
        if isinstance(now, int):
            future.set_exception(failure(now))
        else:
            errors = {name: None if code is None else self.one(code) for name, code in now.items()}
            future.set_result({confluent_kafka.TopicPartition(name, 0): error for name, error in errors.items()})
        return future


def failure(code: int) -> Any:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


# as it is documented, and as it is
@pytest.mark.parametrize("one", [failure, confluent_kafka.KafkaError])
def test_an_election_is_requested_until_it_is_accepted(one: Any) -> None:
    codes = confluent_kafka.KafkaError
    late, taken = {"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE}, {"t": None, "u": codes.ELECTION_NOT_NEEDED}
    elector: Any = Elector(codes._TIMED_OUT, codes.NOT_CONTROLLER, late, taken, one=one)
    topics.elect_preferred(elector)
    assert elector.results == []


def test_a_preferred_replica_that_cannot_lead_is_an_error() -> None:
    codes = confluent_kafka.KafkaError
    elector: Any = Elector({"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE})
    with pytest.raises(RackgateError, match="in vain for: elect preferred leaders") as raised:
        topics.elect_preferred(elector, 0)
    assert raised.value.detail.partition(": ")[2].startswith("u-0: ")
    elector = Elector({"t": None, "u": codes.UNKNOWN_TOPIC_OR_PART})
    with pytest.raises(RackgateError, match=r"elect preferred leaders: u-0: "):
        topics.elect_preferred(elector)
    elector = Elector(codes.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RackgateError, match=r"elect preferred leaders: the cluster refused: .*uthorization"):
        topics.elect_preferred(elector)


SPECS = [topics.TopicSpec("t", (1, 2, 3), {}), topics.TopicSpec("u", (5, 1), {})]
WHOLE: Mapping[str, Seen] = {"t": (1, [1, 2, 3]), "u": (5, [1, 5])}


def test_no_election_where_preferred_replicas_lead() -> None:
    elector: Any = Elector(states=[{"t": (1, [1]), "u": (5, [1, 5])}, None, WHOLE])
    topics.wait_settled(elector, SPECS, 10)
    assert (elector.requests, len(elector.states)) == ([], 1)


def test_preferred_replicas_are_elected_when_all_are_in_sync() -> None:
    codes = confluent_kafka.KafkaError
    states: list[Mapping[str, Seen] | None] = [
        # not yet in sync, then led by others, of which the last answer may be out of date
        {"t": (2, [2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (1, [1, 5])},
        None,
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        WHOLE,
    ]
    results: list[Any] = [codes._TIMED_OUT, {"t": codes.PREFERRED_LEADER_NOT_AVAILABLE}, {"t": None}]
    elector: Any = Elector(*results, states=states)
    topics.wait_settled(elector, SPECS, 10)
    # of theirs alone: the cluster may have others
    assert elector.requests == [["t-0", "u-0"], ["t-0"], ["t-0"]]
    assert elector.results == []


def test_a_refused_election_is_an_error() -> None:
    codes = confluent_kafka.KafkaError
    elector: Any = Elector(codes.CLUSTER_AUTHORIZATION_FAILED, states=[{"t": (2, [1, 2, 3]), "u": (5, [1, 5])}])
    with pytest.raises(RackgateError, match="elect preferred leaders: the cluster refused"):
        topics.wait_settled(elector, SPECS, 10)
