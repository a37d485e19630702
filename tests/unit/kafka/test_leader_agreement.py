"""Waiting until a leader and the other brokers report the same ISR of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import leader_agreement
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient, Partition

BROKERS = {1: "one:1", 3: "three:3", 5: "five:5"}
RACKS = {1: "a", 3: "b", 5: "c"}


def metadata(racks: Mapping[int, str] = RACKS, **partitions: tuple[int, Sequence[int]]) -> Metadata:
    return Metadata(
        racks, -1, {(name, 0): Partition(leader, tuple(isr), (1, 3, 5)) for name, (leader, isr) in partitions.items()}
    )


BEFORE, AFTER = metadata(t=(1, [1, 3])), metadata({1: "a", 5: "c"}, t=(1, [1]))


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Metadata | None]]:
    """Return the responses by address, for the test to fill in; the last one repeats, and None is no response."""
    scripted: dict[str, list[Metadata | None]] = {}

    class ScriptedClient(MetadataClient):
        def __init__(self, address: str, **_: Any) -> None:
            self.responses = scripted[address]

        def query(self, topics: Sequence[str], timeout_s: float) -> Metadata:
            assert topics
            assert timeout_s > 0
            response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
            if response is None:
                raise RackgateError("no response")
            return response

    monkeypatch.setattr(leader_agreement, "MetadataClient", ScriptedClient)
    return scripted


def test_a_leader_that_is_behind_is_awaited(responses: dict[str, list[Metadata | None]]) -> None:
    responses |= {"one:1": [BEFORE, None, BEFORE, AFTER], "three:3": [None], "five:5": [AFTER]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=0) == {"t": 1}
    assert responses["one:1"] == [AFTER]


def test_other_brokers_are_awaited_unless_fenced(responses: dict[str, list[Metadata | None]]) -> None:
    responses |= {"one:1": [AFTER], "three:3": [BEFORE], "five:5": [BEFORE, metadata(t=(5, [1, 5])), AFTER]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=0) == {"t": 1}
    assert responses["five:5"] == [AFTER]


def test_brokers_must_agree_for_a_while(responses: dict[str, list[Metadata | None]]) -> None:
    # all report the previous ISR, then one broker after the other reports the next
    previous: list[Metadata | None] = [BEFORE, BEFORE]
    responses |= {"one:1": [*previous, BEFORE, AFTER], "three:3": [*previous, None], "five:5": [*previous, AFTER]}
    assert leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=2.0) == {"t": 1}
    assert responses["one:1"] == [AFTER]


def test_each_topic_has_its_own_leader(responses: dict[str, list[Metadata | None]]) -> None:
    both = metadata(t=(1, [1, 3]), u=(5, [5, 3]))
    outdated = metadata(t=(1, [1, 3]), u=(5, [5]))
    # the order of an ISR does not matter
    responses |= {"one:1": [both], "three:3": [metadata(t=(1, [3, 1]), u=(5, [3, 5]))], "five:5": [outdated, both]}
    assert leader_agreement.wait_agreed(BROKERS, ["t", "u"], steady_s=0) == {"t": 1, "u": 5}


@pytest.mark.parametrize("leader", [BEFORE, None, metadata(), metadata(t=(-1, [1]))])
def test_missing_agreement_is_an_error(responses: dict[str, list[Metadata | None]], leader: Metadata | None) -> None:
    responses |= {"one:1": [leader], "three:3": [None], "five:5": [AFTER]}
    with pytest.raises(RackgateError, match=r"leaders of t .*1 s .*same ISR") as raised:
        leader_agreement.wait_agreed(BROKERS, ["t"], steady_s=1, timeout_s=0.3)
    assert "5: {'t': (1, (1,))}" in raised.value.detail
