"""Wait until a leader itself reports what the other brokers report of its partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import leader_agreement
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient, Partition

BROKERS = {1: "one:1", 3: "three:3", 5: "five:5"}
ALL = {1: "a", 3: "b", 5: "c"}


def metadata(racks: Mapping[int, str] = ALL, **partitions: tuple[int, Sequence[int]]) -> Metadata:
    return Metadata(
        racks, -1, {(name, 0): Partition(one, tuple(isr), (1, 3, 5)) for name, (one, isr) in partitions.items()}
    )


WHOLE, LEFT = metadata(t=(1, [1, 3])), metadata({1: "a", 5: "c"}, t=(1, [1]))


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Metadata | None]]:
    """Responses by address, in order; the last one repeats, and None is no response."""
    made: dict[str, list[Metadata | None]] = {}

    class ScriptedClient(MetadataClient):
        def __init__(self, address: str, **_: Any) -> None:
            self.own = made[address]

        def query(self, topics: Sequence[str], timeout_s: float) -> Metadata:
            assert topics
            assert timeout_s > 0
            now = self.own.pop(0) if len(self.own) > 1 else self.own[0]
            if now is None:
                raise RackgateError("silent")
            return now

    monkeypatch.setattr(leader_agreement, "MetadataClient", ScriptedClient)
    return made


def test_a_leader_that_is_behind_is_awaited(responses: dict[str, list[Metadata | None]]) -> None:
    responses |= {"one:1": [WHOLE, None, WHOLE, LEFT], "three:3": [None], "five:5": [LEFT]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=0) == {"t": 1}
    assert responses["one:1"] == [LEFT]


def test_others_that_are_behind_are_awaited_but_not_fenced_ones(responses: dict[str, list[Metadata | None]]) -> None:
    responses |= {"one:1": [LEFT], "three:3": [WHOLE], "five:5": [WHOLE, metadata(t=(5, [1, 5])), LEFT]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=0) == {"t": 1}
    assert responses["five:5"] == [LEFT]


def test_brokers_must_agree_for_a_while(responses: dict[str, list[Metadata | None]]) -> None:
    # all report the previous ISR, and then one after the other the next one
    first: list[Metadata | None] = [WHOLE, WHOLE]
    responses |= {"one:1": [*first, WHOLE, LEFT], "three:3": [*first, None], "five:5": [*first, LEFT]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=0.5) == {"t": 1}
    assert responses["one:1"] == [LEFT]


def test_each_topic_has_its_own_leader(responses: dict[str, list[Metadata | None]]) -> None:
    both = metadata(t=(1, [1, 3]), u=(5, [5, 3]))
    late = metadata(t=(1, [1, 3]), u=(5, [5]))
    # the order of an ISR does not matter
    responses |= {"one:1": [both], "three:3": [metadata(t=(1, [3, 1]), u=(5, [3, 5]))], "five:5": [late, both]}
    assert leader_agreement.wait_agreed(BROKERS, ["t", "u"], steady_s=0) == {"t": 1, "u": 5}


@pytest.mark.parametrize("leader", [WHOLE, None, metadata(), metadata(t=(-1, [1]))])
def test_missing_agreement_is_an_error(responses: dict[str, list[Metadata | None]], leader: Metadata | None) -> None:
    responses |= {"one:1": [leader], "three:3": [None], "five:5": [LEFT]}
    with pytest.raises(RackgateError, match=r"leaders of t .*1 s .*same ISR") as raised:
        leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=1, timeout_s=0.3)
    assert "5: {'t': (1, (1,))}" in raised.value.detail
