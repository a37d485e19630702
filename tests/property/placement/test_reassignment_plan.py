"""Reassignment plans against enumeration of all assignments."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
    reaches,
)
from pyhooks.placement.reassignment_plan import plan_reassignment

Scene = tuple[ClusterSnapshot, CheckedTopic]


def scene(
    brokers: Mapping[int, str], racks: int, *partitions: ReportedPartition, fenced: frozenset[int] = frozenset()
) -> ClusterSnapshot:
    requirements = IsrRequirements(ConfigValue(1, "topic"), ConfigValue(racks, "topic"))
    registered = {number: Broker(number, rack, number in fenced) for number, rack in brokers.items()}
    return ClusterSnapshot("id", registered, (CheckedTopic("t", False, partitions, requirements),), enforced=True)


def partition(*replicas: int, number: int = 0) -> ReportedPartition:
    return ReportedPartition("t", number, replicas[0], replicas, replicas)


@st.composite
def scenes(draw: st.DrawFn) -> ClusterSnapshot:
    brokers = {number: draw(st.sampled_from(["", "a", "b", "c"])) for number in range(1, draw(st.integers(1, 6)) + 1)}
    fenced = frozenset(draw(st.sets(st.sampled_from(sorted(brokers)), max_size=2)))
    everyone = [*brokers, 9]  # broker 9 is unknown
    partitions = []
    for number in range(draw(st.integers(1, 3))):
        replicas = tuple(draw(st.permutations(everyone))[: draw(st.integers(1, min(4, len(everyone))))])
        isr = tuple(sorted(draw(st.sets(st.sampled_from(replicas), min_size=1))))
        partitions.append(ReportedPartition("t", number, isr[0], replicas, isr))
    return scene(brokers, draw(st.integers(1, 4)), *partitions, fenced=fenced)


def least_moves(cluster: ClusterSnapshot, one: ReportedPartition, min_racks: int) -> int | None:
    """Return the fewest moves, by trying all assignments of as many replicas that add only live brokers with a rack."""
    usable = {b.broker_id for b in cluster.brokers.values() if not b.fenced and b.rack}
    best = None
    for chosen in itertools.combinations(sorted(usable | set(one.replicas)), len(one.replicas)):
        if reaches(chosen, min_racks, cluster.racks) and set(chosen) - set(one.replicas) <= usable:
            moved = len(set(chosen) - set(one.replicas))
            best = moved if best is None else min(best, moved)
    return best


@settings(max_examples=500, deadline=None)
@given(scenes())
def test_the_plan_reaches_r_with_minimal_moves(cluster: ClusterSnapshot) -> None:
    (topic,) = cluster.topics
    made = plan_reassignment(cluster)
    moves = {move.partition.number: move for move in made.moves}
    rejections = {rejection.partition.number for rejection in made.rejections}
    assert topic.requirements is not None
    for one in topic.partitions:
        least = least_moves(cluster, one, topic.requirements.min_racks)
        if least is None:
            assert one.number in rejections
            assert one.number not in moves
        elif least == 0:
            assert one.number not in moves
            assert one.number not in rejections
        else:
            move = moves[one.number]
            assert reaches(move.replicas, topic.requirements.min_racks, cluster.racks)
            assert len(set(move.replicas)) == len(one.replicas)
            assert move.moved == least
            # replicas that stay keep their positions, so the preferred leaders stay, too
            kept = [(at, replica) for at, replica in enumerate(one.replicas) if replica in move.replicas]
            assert all(move.replicas[at] == replica for at, replica in kept)
            first = cluster.brokers.get(one.replicas[0])
            moved = set(one.replicas) - set(move.replicas)
            if first is not None and not first.fenced and first.broker_id in one.isr:
                # a replica without a rack moves if every replica has to be in a different rack
                if first.rack or topic.requirements.min_racks < len(one.replicas):
                    assert move.replicas[0] == first.broker_id, "a preferred leader that can lead stays"
            elif first is None and move.replicas[0] == one.replicas[0]:
                assert moved.isdisjoint(cluster.racks), "nobody moves as long as there are others that are gone"
            for new in set(move.replicas) - set(one.replicas):
                assert cluster.brokers[new].rack
                assert not cluster.brokers[new].fenced


def test_moves_balance_replicas() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    partitions = [partition(1, 2, number=number) for number in range(40)]
    made = plan_reassignment(scene(brokers, 2, *partitions))
    load = Counter(replica for move in made.moves for replica in move.replicas)
    assert load == {1: 40, 3: 10, 4: 10, 5: 10, 6: 10}


def test_lagging_replicas_move_first() -> None:
    one = ReportedPartition("t", 0, 1, (1, 2, 3), (1, 3))
    (move,) = plan_reassignment(scene({1: "a", 2: "a", 3: "a", 4: "b"}, 2, one)).moves
    assert move.replicas == (1, 4, 3)


def test_an_unavailable_preferred_leader_moves_before_an_in_sync_replica() -> None:
    brokers = {2: "a", 3: "a", 4: "b"}
    unknown = ReportedPartition("t", 0, 2, (9, 2, 3), (2, 3))
    assert plan_reassignment(scene(brokers, 2, unknown)).moves[0].replicas == (4, 2, 3)
    fenced = ReportedPartition("t", 0, 2, (5, 2, 3), (2, 3))
    known = {**brokers, 5: "a"}
    assert plan_reassignment(scene(known, 2, fenced, fenced=frozenset({5}))).moves[0].replicas == (4, 2, 3)
    behind = ReportedPartition("t", 0, 2, (5, 2, 3), (2, 3))
    assert plan_reassignment(scene(known, 2, behind)).moves[0].replicas == (4, 2, 3)
    fine = ReportedPartition("t", 0, 5, (5, 2, 3), (5, 2, 3))
    assert plan_reassignment(scene(known, 2, fine)).moves[0].replicas == (5, 2, 4)


def test_replicas_on_brokers_without_a_rack_move_and_the_preferred_leader_last() -> None:
    brokers = {1: "", 2: "a", 3: "", 4: "b", 5: "c"}
    (move,) = plan_reassignment(scene(brokers, 2, partition(1, 2, 3))).moves
    assert move.replicas == (1, 2, 4)
    (move,) = plan_reassignment(scene(brokers, 2, partition(1, 3))).moves
    assert move.replicas == (4, 2)


def test_reasons_without_a_plan() -> None:
    two = scene({1: "a", 2: "a", 3: "b", 4: ""}, 3, partition(1, 2, 3))
    (rejection,) = plan_reassignment(two).rejections
    assert rejection.because == (
        "3 racks are needed, and brokers that are up or have a replica are in 2 (a, b); add brokers in another rack, or"
        " lower min.insync.racks"
    )
    away = scene({1: "a", 2: "a", 3: "b"}, 2, partition(1, 2), fenced=frozenset({3}))
    (rejection,) = plan_reassignment(away).rejections
    assert "start the brokers of b" in rejection.because
    moving = ReportedPartition("t", 0, 1, (1, 3, 2), (1, 3), adding=(2,), removing=(3,))
    (rejection,) = plan_reassignment(scene({1: "a", 2: "a", 3: "b"}, 2, moving)).rejections
    assert "being reassigned" in rejection.because


def test_only_selected_topics_move_but_all_count_for_the_balance() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b"}
    base = scene(brokers, 2, partition(1, 2))
    other = CheckedTopic(
        "other", False, (ReportedPartition("other", 0, 3, (3, 1), (3, 1)),), base.topics[0].requirements
    )
    third = CheckedTopic(
        "third", False, (ReportedPartition("third", 0, 1, (1, 2), (1, 2)),), base.topics[0].requirements
    )
    seen = ClusterSnapshot("id", base.brokers, (other, *base.topics, third), enforced=True)
    made = plan_reassignment(seen, frozenset({"t"}))
    assert json.loads(made.to_json()) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 4]}],
    }
