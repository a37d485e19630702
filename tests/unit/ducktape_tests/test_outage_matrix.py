"""Matrix of outages: pairwise coverage and expected results."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from pathlib import Path

import pytest

from ducktape_tests import matrix
from ducktape_tests.matrix import FAULTS, NEEDS, SHAPES, TARGETS, TOPOLOGIES, MatrixOutage, OutageCase
from pyhooks.checkers.phases import OK
from pyhooks.core.errors import RackgateError
from pyhooks.lab import topology
from pyhooks.lab.topology import Topology

NOT_ENOUGH_REPLICAS = "org.apache.kafka.common.errors.NotEnoughReplicasException"
NOT_ENOUGH_RACKS = "org.apache.kafka.common.errors.NotEnoughRacksException"


@cache
def load(name: str) -> Topology:
    return topology.load(topology.find(name))


def cases_of(runs: tuple[MatrixOutage, ...]) -> list[OutageCase]:
    """Return the cases of these outages: each outage with every topic of its topology."""
    return [
        OutageCase(run, shape, need)
        for run in runs
        for shape in SHAPES
        if matrix.placed(shape, load(run.topology))
        for need in NEEDS
    ]


def test_committed_list_is_generated() -> None:
    generated = matrix.choose(matrix.possible())
    assert matrix.text(generated) == matrix.FILE.read_text(encoding="utf-8")
    assert matrix.listed() == generated


def test_every_possible_pair_is_covered() -> None:
    runs = matrix.listed()
    assert len(set(runs)) == len(runs)
    listed, possible = set(cases_of(runs)), set(matrix.possible())
    assert listed <= possible
    pairs = {case: case.pairs for case in possible}
    covered = {pair for case in listed for pair in pairs[case]}
    possible_pairs = {pair for case_pairs in pairs.values() for pair in case_pairs}
    factors = {"topology": TOPOLOGIES, "fault": FAULTS, "target": TARGETS, "shape": SHAPES, "need": NEEDS}
    for (factor, levels), (other, other_levels) in combinations(factors.items(), 2):
        for level, other_level in product(levels, other_levels):
            pair = frozenset({(factor, level), (other, other_level)})
            assert (pair in covered) is (pair in possible_pairs), f"{factor} {level} with {other} {other_level}"
    # Each run covers a pair that no other run covers.
    for run in runs:
        rest = {pair for case in listed if case.run != run for pair in pairs[case]}
        assert rest < covered, run


def test_impossible_cases_and_their_reasons() -> None:
    every = {
        OutageCase(MatrixOutage(name, fault, target), shape, need)
        for name, fault, target, shape, need in product(TOPOLOGIES, FAULTS, TARGETS, SHAPES, NEEDS)
    }
    missing = every - set(matrix.possible())
    assert {case for case in missing if case.run.topology == "az3-outside"} == {
        case for case in every if case.run.topology == "az3-outside" and case.run.target == "controller"
    }
    assert {case for case in missing if case.run.topology == "stretch2"} == {
        case for case in every if case.run.topology == "stretch2" and case.shape == "abc"
    }
    assert {case.run.topology for case in missing} == {"az3-outside", "stretch2"}
    reasons = {matrix.impossible(case, load(case.run.topology)) for case in missing}
    assert reasons == {
        "az3-outside has no controller in a rack that all placements share",
        "stretch2 has no room for abc",
    }


def test_rack_with_a_majority_of_voters_may_only_be_slowed() -> None:
    raw = {
        "name": "two",
        "site": [
            {"name": "a", "brokers": [1, 2], "controllers": [101, 102]},
            {"name": "b", "brokers": [3, 4], "controllers": [103], "client": True},
        ],
    }
    two_racks = topology.parse(raw, source="two")
    for fault, target in product(FAULTS, TARGETS):
        reason = matrix.impossible(OutageCase(MatrixOutage("two", fault, target), "aab", (2, 2)), two_racks)
        # the follower's rack is b; the controller's may be a
        assert bool(reason) is (fault != "slow" and target != "follower"), reason
        assert not reason or reason == "without rack a the voters of two have no majority"


@pytest.mark.parametrize("fault", FAULTS)
def test_placement_in_one_rack_has_no_replica_left(fault: str) -> None:
    reason = matrix.impossible(
        OutageCase(MatrixOutage("az3-outside", fault, "leader"), "aa", (2, 1)), load("az3-outside")
    )
    assert reason == ("" if fault == "slow" else "without rack a no replica of aa is available")


@pytest.mark.parametrize(
    ("shape", "name", "replicas"),
    [
        ("ab", "az3", (1, 3)),
        ("aab", "az3", (1, 2, 3)),
        ("abc", "az3", (1, 3, 5)),
        ("aabb", "az3x2", (1, 2, 3, 4)),
        ("abc", "stretch2", ()),
        ("aab", "stretch2", (1, 2, 3)),
        ("abcc", "az3", ()),
        ("abcc", "az3x2", (1, 3, 5, 6)),
    ],
)
def test_placements(shape: str, name: str, replicas: tuple[int, ...]) -> None:
    assert matrix.placed(shape, load(name)) == replicas


def test_possible_racks() -> None:
    def names(target: str, name: str) -> list[str]:
        return [rack.name for rack in matrix.possible_racks(target, load(name))]

    assert names("leader", "az3") == ["a"]
    assert names("follower", "az3") == ["b"]
    assert names("controller", "az3") == ["a", "b", "c"]
    assert names("controller", "az3-outside") == []
    # the third controller is in no rack
    assert names("controller", "stretch2") == ["east", "west"]
    assert names("follower", "stretch2") == ["west"]


AAB = {1: "a", 2: "a", 3: "b"}


@pytest.mark.parametrize(
    ("fault", "rack", "isr"),
    [
        ("kill", "a", {3}),
        ("cut", "b", {1, 2}),
        ("pause", "b", {1, 2}),
        ("wipe", "a", {3}),
        ("wipe", "c", {1, 2, 3}),
        ("slow", "a", {1, 2, 3}),
    ],
)
def test_surviving_isr(fault: str, rack: str, isr: set[int]) -> None:
    assert matrix.surviving((1, 2, 3), AAB, fault, rack) == isr


@pytest.mark.parametrize(
    ("isr", "need", "result"),
    [
        ({1, 2, 3}, (2, 2), OK),
        ({1, 2}, (2, 2), NOT_ENOUGH_RACKS),
        ({1, 2}, (2, 1), OK),
        # M is checked first.
        ({1, 2}, (3, 2), NOT_ENOUGH_REPLICAS),
        ({3}, (2, 2), NOT_ENOUGH_REPLICAS),
        # R=3 with two racks: rejected even with all replicas in sync
        ({1, 2, 3}, (2, 3), NOT_ENOUGH_RACKS),
        ({1, 2, 3}, (9, 1), OK),
    ],
)
def test_expected_result(isr: set[int], need: tuple[int, int], result: str) -> None:
    assert matrix.expected(isr, AAB, need=need, replicas=3) == result


def test_minimums_are_capped_by_the_number_of_replicas() -> None:
    assert matrix.expected({1, 3}, AAB, need=(3, 3), replicas=2) == OK
    assert matrix.expected({1}, AAB, need=(3, 3), replicas=2) == NOT_ENOUGH_REPLICAS


def test_all_leaders_share_one_rack_and_all_topics_a_second() -> None:
    for name in TOPOLOGIES:
        racks = matrix.racks_of(load(name))
        generated = matrix.topics_of(load(name))
        placements = 3 if name == "stretch2" else 4
        assert len({topic.name for topic in generated}) == len(generated) == len(NEEDS) * placements
        assert len({racks[topic.replicas[0]] for topic in generated}) == 1
        assert len(set.intersection(*({racks[broker] for broker in topic.replicas} for topic in generated))) == 2


def test_topics_of_a_producer_stop_and_continue_together() -> None:
    for name in TOPOLOGIES:
        groups = matrix.together(load(name))
        assert sorted(topic.name for group in groups for topic in group) == sorted(
            topic.name for topic in matrix.topics_of(load(name))
        )
    named = [{topic.name for topic in group} for group in matrix.together(load("az3"))]
    assert {"aab-m2-r1"} in named
    # all three continue without rack c, two of them after it has left the ISR
    assert {"abc-m2-r1", "abc-m2-r2"} in named
    assert {"aabb-m2-r1"} in named
    assert len(named) == 6
    assert len(matrix.together(load("stretch2"))) == 3


def test_missing_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match=r"matrix\.toml: .*missing"):
        matrix.listed(tmp_path / "matrix.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fault = ", "faults = ", "run 1: fault: is missing"),
        ("fault = ", "seed = 1\nfault = ", "run 1: seed: unknown key; known keys: topology, fault, target"),
        ('"leader"', '"leaders"', "run 1: target: must be one of leader, follower, controller, is 'leaders'"),
        ("[[run]]", "[[runs]]", "run: is missing"),
    ],
)
def test_invalid_list_is_an_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(matrix.text([MatrixOutage("az3", "kill", "leader")]).replace(old, new), encoding="utf-8")
    with pytest.raises(RackgateError, match=message):
        matrix.listed(path)
