"""Random rounds of the rack destruction tests: valid, varied and determined by their seeds."""

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
ROUNDS = [draw(seed, RACKS) for seed in range(600)]


def test_round_is_determined_by_its_seed() -> None:
    assert draw(3, RACKS) == draw(3, RACKS)
    assert len({replace(draw(seed, RACKS), seed=0) for seed in range(20)}) == 20


@pytest.mark.parametrize("count", [1, 3, 20])
def test_seeds_of_rounds_are_determined_by_the_run(count: int) -> None:
    drawn = seeds(11, count, RACKS)
    assert drawn == seeds(11, 20, RACKS)[:count]
    assert len(set(drawn)) == count
    assert not set(drawn) & set(seeds(12, count, RACKS))


def test_racks_overlap_in_the_first_round() -> None:
    assert all(draw(seeds(seed, 1, RACKS)[0], RACKS).overlaps for seed in range(60))


def test_rounds_are_valid() -> None:
    for round_ in ROUNDS:
        check_round(round_)


def check_round(round_: DestructionRound) -> None:
    racks = {RACK_OF[broker] for broker in round_.replicas}
    assert len(round_.replicas) == len(set(round_.replicas)) <= 3
    assert len(racks) >= 2
    assert round_.wiped in racks
    assert round_.min_replicas in (1, 2)
    assert 0 <= round_.down_s <= MAX_DOWN_S
    assert 0 <= round_.outage_s <= MAX_OUTAGE_S
    if round_.overlaps:
        assert round_.leaves in racks - {round_.wiped}
    assert (round_.how in KEEPING_DISKS) is bool(round_.leaves)
    assert round_.wiped in round_.text
    assert round_.leaves in round_.text


def test_all_kinds_of_rounds_occur() -> None:
    assert {round_.overlaps for round_ in ROUNDS if round_.leaves} == {True, False}
    assert any(not round_.leaves for round_ in ROUNDS)
    assert {round_.how for round_ in ROUNDS if round_.overlaps} == set(KEEPING_DISKS)
    assert {round_.how for round_ in ROUNDS if not round_.overlaps} == {"", *KEEPING_DISKS}
    assert {round_.wiped for round_ in ROUNDS} == set(RACKS)
    assert {round_.first_back for round_ in ROUNDS if round_.overlaps} == {True, False}
    placements = {"".join(RACK_OF[broker] for broker in round_.replicas) for round_ in ROUNDS}
    assert placements >= {"aab", "abb", "abc", "bca", "ab"}


def test_rounds_with_a_lagging_rack_have_their_own_seeds() -> None:
    lagging = [draw(behind_seed(seed), RACKS) for seed in range(200)]
    assert all(round_.behind and not round_.overlaps for round_ in lagging)
    assert not any(round_.behind for round_ in ROUNDS)
    for round_ in lagging:
        check_round(round_)
        assert {RACK_OF[broker] for broker in round_.replicas} == {round_.leaves, round_.wiped}
        assert round_.how == "pause"
        assert MIN_BEHIND_OUTAGE_S <= round_.outage_s <= MAX_OUTAGE_S
        assert f"returns, cut off from {round_.wiped}" in round_.text
    assert {round_.wiped for round_ in lagging} == set(RACKS)


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
