"""The simulation's placement of new topics equals that of Kafka's own class."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jpype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.jvm.client import InProcess
from pyhooks.simulation.striped_placement import JavaRandom, place, place_topic

SHAPES = [(2, 2, 1), (1, 1, 1), (4, 3, 3), (5, 1), (3,), (2, 2, 2, 2)]


def numbered(sizes: tuple[int, ...]) -> list[list[int]]:
    """Return the broker ids of each rack, numbered consecutively."""
    numbers = iter(range(sum(sizes)))
    return [[next(numbers) for _ in range(size)] for size in sizes]


@pytest.fixture(scope="module")
def kafka() -> Any:
    """Return Kafka's placer, loaded in this process."""
    # a process has only one JVM: use the one of the project's clients, with its class path
    InProcess().make("java.util.Properties", {})
    placing = jpype.JPackage("org").apache.kafka.metadata.placement
    optional, array_list = jpype.JClass("java.util.Optional"), jpype.JClass("java.util.ArrayList")

    class Described:
        def __init__(self, racks: list[list[int]]) -> None:
            self.brokers = array_list()
            for number, rack in enumerate(racks):
                # rack names of one letter, which a HashMap of at most 12 entries iterates in alphabetical order
                name = optional.of(jpype.JString("abcdefghijkl"[number]))
                for broker in rack:
                    self.brokers.add(placing.UsableBroker(broker, name, False))

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def usableBrokers(self) -> Any:  # noqa: N802 - Java's name
            return self.brokers.iterator()

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def defaultDir(self, _broker: int) -> Any:  # noqa: N802 - Java's name
            return jpype.JClass("org.apache.kafka.common.Uuid")(1, 1)

    described = jpype.JImplements("org.apache.kafka.metadata.placement.ClusterDescriber")(Described)

    def placed(racks: list[list[int]], partitions: list[int], replicas: int, seed: int) -> list[list[int]]:
        placer = placing.StripedReplicaPlacer(jpype.JClass("java.util.Random")(seed))
        found: list[list[int]] = []
        for number in partitions:
            topic = placer.place(placing.PlacementSpec(0, number, replicas), described(racks))
            found += [[int(broker) for broker in one.replicas()] for one in topic.assignments()]
        return found

    return placed


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("seed", [0, 1290])
def test_placement_equals_that_of_kafka(kafka: Any, sizes: tuple[int, ...], seed: int) -> None:
    """Three topics with the same random numbers; the first is long enough for several reshuffles."""
    racks = numbered(sizes)
    for replicas in range(1, min(5, sum(sizes)) + 1):
        random = JavaRandom(seed)
        topics = [40, 1, 7]
        found = [one for number in topics for one in place_topic(racks, number, replicas, random)]
        assert found == kafka(racks, topics, replicas, seed)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 2**31))
def test_racks_are_spread_as_evenly_as_they_have_brokers(sizes: list[int], replicas: int, seed: int) -> None:
    replicas = min(replicas, sum(sizes))
    racks = numbered(tuple(sizes))
    rack_of = {broker: number for number, rack in enumerate(racks) for broker in rack}
    for one in place(racks, topics=2, partitions=30, replicas=replicas, seed=seed):
        assert len(set(one)) == replicas
        number = Counter(rack_of[broker] for broker in one)
        for rack, size in enumerate(sizes):
            for other in range(len(sizes)):
                # no rack has two more replicas than a rack with an unused broker
                assert number[other] <= number[rack] + 1 or number[rack] == size


def test_brokers_get_similar_numbers_of_replicas() -> None:
    placed = place(numbered((34, 33, 33)), topics=100, partitions=10_000, replicas=3, seed=1)
    assert len(placed) == 10_000
    everywhere = Counter(broker for one in placed for broker in one)
    leads = Counter(one[0] for one in placed)
    assert max(everywhere.values()) < 1.2 * 300
    assert min(everywhere.values()) > 0.8 * 300
    assert max(leads.values()) < 1.5 * 100
    assert min(leads.values()) > 0.5 * 100
    # many broker sets, so that few partitions share all their brokers
    assert len({frozenset(one) for one in placed}) > 5000


def test_topics_share_the_partitions() -> None:
    assert len(place(numbered((2, 1)), topics=3, partitions=10, replicas=2, seed=7)) == 10
    assert place(numbered((2, 1)), topics=3, partitions=10, replicas=2, seed=7) == place(
        numbered((2, 1)), topics=3, partitions=10, replicas=2, seed=7
    )
