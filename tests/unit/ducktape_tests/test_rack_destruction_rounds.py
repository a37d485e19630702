"""Rounds of the tests on destroyed racks are drawn so that nothing that was promised can be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ducktape_tests.destruction_plan import (
    KEEPING_DISKS,
    LEAST_BEHIND_S,
    MOST_AWAY_S,
    MOST_DOWN_S,
    DestructionRound,
    behind_seed,
    draw,
    goes_on_s,
    seeds,
)
from pyhooks.core.errors import RackgateError

RACKS = {"a": (1, 2), "b": (3, 4), "c": (5,)}
RACK_OF = {broker: rack for rack, brokers in RACKS.items() for broker in brokers}
MANY = [draw(seed, RACKS) for seed in range(600)]


def test_its_own_seed_decides_all_of_a_round() -> None:
    assert draw(3, RACKS) == draw(3, RACKS)
    assert len({replace(draw(seed, RACKS), seed=0) for seed in range(20)}) == 20


@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_seed_of_a_run_decides_those_of_its_rounds(count: int) -> None:
    own = seeds(11, count, RACKS)
    assert own == seeds(11, 20, RACKS)[:count]
    assert len(set(own)) == count
    assert not set(own) & set(seeds(12, count, RACKS))


def test_the_first_round_of_a_run_always_has_two_racks_away_at_a_time() -> None:
    assert all(draw(seeds(seed, 1, RACKS)[0], RACKS).overlaps for seed in range(60))


def test_each_round_takes_no_more_than_one_rack_of_what_two_racks_have() -> None:
    for one in MANY:
        takes_one_rack(one)


def takes_one_rack(one: DestructionRound) -> None:
    own = {RACK_OF[broker] for broker in one.replicas}
    assert len(one.replicas) == len(set(one.replicas)) <= 3
    assert len(own) >= 2
    assert one.wiped in own
    assert one.min_replicas in (1, 2)
    assert 0 <= one.down_s <= MOST_DOWN_S
    assert 0 <= one.away_s <= MOST_AWAY_S
    if one.overlaps:
        assert one.leaves in own - {one.wiped}
    assert (one.how in KEEPING_DISKS) is bool(one.leaves)
    assert one.wiped in one.text
    assert one.leaves in one.text


def test_every_kind_of_round_comes() -> None:
    assert {one.overlaps for one in MANY if one.leaves} == {True, False}
    assert any(not one.leaves for one in MANY)
    assert {one.how for one in MANY if one.overlaps} == set(KEEPING_DISKS)
    assert {one.how for one in MANY if not one.overlaps} == {"", *KEEPING_DISKS}
    assert {one.wiped for one in MANY} == set(RACKS)
    assert {one.first_back for one in MANY if one.overlaps} == {True, False}
    assert {"".join(RACK_OF[broker] for broker in one.replicas) for one in MANY} >= {"aab", "abb", "abc", "bca", "ab"}


def test_a_round_in_which_a_rack_is_back_and_behind_has_a_seed_of_its_own_kind() -> None:
    own = [draw(behind_seed(seed), RACKS) for seed in range(200)]
    assert all(one.behind and not one.overlaps for one in own)
    assert not any(one.behind for one in MANY)
    for one in own:
        takes_one_rack(one)
        assert {RACK_OF[broker] for broker in one.replicas} == {one.leaves, one.wiped}
        assert one.how == "pause"
        assert LEAST_BEHIND_S <= one.away_s <= MOST_AWAY_S
        assert f"comes back, parted from {one.wiped}" in one.text
    assert {one.wiped for one in own} == set(RACKS)


def test_the_other_rounds_are_those_that_they_were() -> None:
    assert seeds(1, 3, RACKS) == [501479, 501343, 46391]
    said = "b leaves (pause) for 10.1 s, meanwhile a is destroyed for 7.6 s; a is back first"
    assert draw(501479, RACKS).text == f"round-501479 on 2, 3, 5 with M=1: {said}"


def test_a_single_rack_is_refused() -> None:
    with pytest.raises(RackgateError, match="no other"):
        draw(1, {"a": (1, 2)})


@pytest.mark.parametrize(
    ("acks_s", "expected_s"),
    [
        ([], 0.0),
        ([4.0], 0.0),
        ([0.0, 1.0, 2.0], 2.0),
        # a gap begins it anew, however long it went on before
        ([0.0, 0.9, 1.8, 2.9, 3.4], 0.5),
        ([0.0, 5.0], 0.0),
        ([2.0, 0.0, 1.0], 2.0),
    ],
)
def test_how_long_acknowledgements_have_gone_on(acks_s: list[float], expected_s: float) -> None:
    assert goes_on_s([round(at * 1e9) for at in acks_s]) == pytest.approx(expected_s)
