"""Waiting for ISRs and leaders of topics: nobody's answer is no answer, and what was seen last is told."""

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
    """Tells one state after the other, and the last one for good; None is no answer."""

    def __init__(self, *told: Mapping[str, Seen] | None) -> None:
        self.told = list(told)

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002 - the client's own name
        now = self.told.pop(0) if len(self.told) > 1 else self.told[0]
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
    assert len(admin.told) == 1


@pytest.mark.parametrize(
    ("observation", "last"),
    [
        # one who leads no more, and nobody
        ({"t": (3, [3]), "u": (1, [3, 5])}, "u: State(leader=1, isr=(3, 5))"),
        ({"t": (-1, [3]), "u": (3, [3, 5])}, "t: State(leader=-1, isr=(3,))"),
        ({"t": (3, [3])}, "t: State(leader=3, isr=(3,))"),
        (None, "nothing"),
    ],
)
def test_what_does_not_come_is_told_with_what_was_seen(observation: Mapping[str, Seen] | None, last: str) -> None:
    with pytest.raises(RackgateError, match=r"in vain for: ISR \[3\] of t; ISR \[3, 5\] of u") as raised:
        topics.wait_isrs(client(observation), LEFT, 0.3)
    assert last in raised.value.detail


def test_leaders_are_awaited() -> None:
    admin = client(None, {"t": (-1, [3])}, {"t": (3, [3])}, {"t": (3, [3]), "u": (5, [5])})
    assert topics.leaders(admin, ["t", "u"], 10) == {"t": 3, "u": 5}
    with pytest.raises(RackgateError, match="in vain for: leaders of t, u"):
        topics.leaders(client({"t": (3, [3])}), ["t", "u"], 0.3)


class Elector(Admin):
    """Tells one result of an election after the other: an error of the whole, or one of each partition."""

    def __init__(
        self,
        *results: int | Mapping[str, int | None],
        one: Any = confluent_kafka.KafkaError,
        told: Sequence[Mapping[str, Seen] | None] = ({},),
    ) -> None:
        super().__init__(*told)
        self.results = list(results)
        self.one = one
        self.asked: list[list[str] | None] = []

    def elect_leaders(self, kind: Any, partitions: Any = None) -> Future[Any]:
        assert kind == confluent_kafka.ElectionType.PREFERRED
        self.asked.append(partitions and [f"{one.topic}-{one.partition}" for one in partitions])
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
def test_an_election_is_asked_for_until_it_is_taken(one: Any) -> None:
    codes = confluent_kafka.KafkaError
    late, taken = {"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE}, {"t": None, "u": codes.ELECTION_NOT_NEEDED}
    elector: Any = Elector(codes._TIMED_OUT, codes.NOT_CONTROLLER, late, taken, one=one)
    topics.elect_preferred(elector)
    assert elector.results == []


def test_a_first_replica_that_cannot_lead_is_told() -> None:
    codes = confluent_kafka.KafkaError
    elector: Any = Elector({"t": None, "u": codes.PREFERRED_LEADER_NOT_AVAILABLE})
    with pytest.raises(RackgateError, match="in vain for: elect preferred leaders") as raised:
        topics.elect_preferred(elector, 0)
    assert raised.value.detail.startswith("told last: u-0: ")
    elector = Elector({"t": None, "u": codes.UNKNOWN_TOPIC_OR_PART})
    with pytest.raises(RackgateError, match=r"elect preferred leaders: u-0: "):
        topics.elect_preferred(elector)
    elector = Elector(codes.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RackgateError, match=r"elect preferred leaders: the cluster refused: .*uthorization"):
        topics.elect_preferred(elector)


SPECS = [topics.TopicSpec("t", (1, 2, 3), {}), topics.TopicSpec("u", (5, 1), {})]
WHOLE: Mapping[str, Seen] = {"t": (1, [1, 2, 3]), "u": (5, [1, 5])}


def test_nobody_is_elected_where_the_first_ones_lead() -> None:
    elector: Any = Elector(told=[{"t": (1, [1]), "u": (5, [1, 5])}, None, WHOLE])
    topics.wait_settled(elector, SPECS, 10)
    assert (elector.asked, len(elector.told)) == ([], 1)


def test_the_first_ones_are_elected_when_all_are_in_sync() -> None:
    codes = confluent_kafka.KafkaError
    told: list[Mapping[str, Seen] | None] = [
        # not yet in sync, then led by others, of which the last answer may be out of date
        {"t": (2, [2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (1, [1, 5])},
        None,
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        {"t": (2, [1, 2, 3]), "u": (5, [1, 5])},
        WHOLE,
    ]
    results: list[Any] = [codes._TIMED_OUT, {"t": codes.PREFERRED_LEADER_NOT_AVAILABLE}, {"t": None}]
    elector: Any = Elector(*results, told=told)
    topics.wait_settled(elector, SPECS, 10)
    # of theirs alone: the cluster may have others
    assert elector.asked == [["t-0", "u-0"], ["t-0"], ["t-0"]]
    assert elector.results == []


def test_an_election_that_is_refused_is_told() -> None:
    codes = confluent_kafka.KafkaError
    elector: Any = Elector(codes.CLUSTER_AUTHORIZATION_FAILED, told=[{"t": (2, [1, 2, 3]), "u": (5, [1, 5])}])
    with pytest.raises(RackgateError, match="elect preferred leaders: the cluster refused"):
        topics.wait_settled(elector, SPECS, 10)
