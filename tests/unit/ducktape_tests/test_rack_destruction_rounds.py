"""Random rounds of the tests on destroyed racks: no round may lose an acknowledged record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ducktape_tests.destruction_plan import (
    KEEPING_DISKS,
    MAX_DOWN_S,
    MAX_OUTAGE_S,
    MIN_BEHIND_OUTAGE_S,
    DestructionRound,
    behind_seed,
    draw,
    gapless_s,
    seeds,
)
from pyhooks.core.errors import RackgateError

RACKS = {"a": (1, 2), "b": (3, 4), "c": (5,)}
RACK_OF = {broker: rack for rack, brokers in RACKS.items() for broker in brokers}
MANY = [draw(seed, RACKS) for seed in range(600)]


def test_round_is_determined_by_its_seed() -> None:
    assert draw(3, RACKS) == draw(3, RACKS)
    assert len({replace(draw(seed, RACKS), seed=0) for seed in range(20)}) == 20


@pytest.mark.parametrize("count", [1, 3, 20])
def test_seeds_of_rounds_are_determined_by_the_run(count: int) -> None:
    own = seeds(11, count, RACKS)
    assert own == seeds(11, 20, RACKS)[:count]
    assert len(set(own)) == count
    assert not set(own) & set(seeds(12, count, RACKS))


def test_racks_overlap_in_the_first_round() -> None:
    assert all(draw(seeds(seed, 1, RACKS)[0], RACKS).overlaps for seed in range(60))


def test_rounds_are_valid() -> None:
    for one in MANY:
        check_round(one)


def check_round(one: DestructionRound) -> None:
    own = {RACK_OF[broker] for broker in one.replicas}
    assert len(one.replicas) == len(set(one.replicas)) <= 3
    assert len(own) >= 2
    assert one.wiped in own
    assert one.min_replicas in (1, 2)
    assert 0 <= one.down_s <= MAX_DOWN_S
    assert 0 <= one.outage_s <= MAX_OUTAGE_S
    if one.overlaps:
        assert one.leaves in own - {one.wiped}
    assert (one.how in KEEPING_DISKS) is bool(one.leaves)
    assert one.wiped in one.text
    assert one.leaves in one.text


def test_all_kinds_of_rounds_occur() -> None:
    assert {one.overlaps for one in MANY if one.leaves} == {True, False}
    assert any(not one.leaves for one in MANY)
    assert {one.how for one in MANY if one.overlaps} == set(KEEPING_DISKS)
    assert {one.how for one in MANY if not one.overlaps} == {"", *KEEPING_DISKS}
    assert {one.wiped for one in MANY} == set(RACKS)
    assert {one.first_back for one in MANY if one.overlaps} == {True, False}
    assert {"".join(RACK_OF[broker] for broker in one.replicas) for one in MANY} >= {"aab", "abb", "abc", "bca", "ab"}


def test_rounds_with_a_lagging_rack_have_their_own_seeds() -> None:
    own = [draw(behind_seed(seed), RACKS) for seed in range(200)]
    assert all(one.behind and not one.overlaps for one in own)
    assert not any(one.behind for one in MANY)
    for one in own:
        check_round(one)
        assert {RACK_OF[broker] for broker in one.replicas} == {one.leaves, one.wiped}
        assert one.how == "pause"
        assert MIN_BEHIND_OUTAGE_S <= one.outage_s <= MAX_OUTAGE_S
        assert f"returns, cut off from {one.wiped}" in one.text
    assert {one.wiped for one in own} == set(RACKS)


def test_seeds_give_the_same_rounds_as_in_earlier_versions() -> None:
    assert seeds(1, 3, RACKS) == [501479, 501343, 46391]
    text = "b leaves (pause) for 10.1 s, meanwhile a is destroyed for 7.6 s; a returns first"
    assert draw(501479, RACKS).text == f"round-501479 on 2, 3, 5 with M=1: {text}"


def test_single_rack_is_an_error() -> None:
    with pytest.raises(RackgateError, match="the only rack"):
        draw(1, {"a": (1, 2)})


@pytest.mark.parametrize(
    ("acks_s", "expected_s"),
    [
        ([], 0.0),
        ([4.0], 0.0),
        ([0.0, 1.0, 2.0], 2.0),
        # The time restarts after a gap.
        ([0.0, 0.9, 1.8, 2.9, 3.4], 0.5),
        ([0.0, 5.0], 0.0),
        ([2.0, 0.0, 1.0], 2.0),
    ],
)
def test_time_without_a_gap(acks_s: list[float], expected_s: float) -> None:
    assert gapless_s([round(at * 1e9) for at in acks_s]) == pytest.approx(expected_s)
