"""The exact model against enumeration of all sets of brokers and racks, closed forms, and published figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.placement.exact_model import ELRS, Elr, Evaluation, evaluate, evaluate_groups, isr_groups
from pyhooks.placement.failure_rates import FailureProbabilities
from pyhooks.placement.replica_placement import Placement, distinct_placements, parse_placement


def near(expected: float | tuple[float, ...]) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-15)


def evaluation(where: str, m: int, r: int, *numbers: float, elr: Elr = "racks") -> Evaluation:
    """Evaluate with the failure probabilities p, q, d and D; omitted ones are 0."""
    probabilities = FailureProbabilities(*(*numbers, 0.0, 0.0, 0.0, 0.0)[:4])
    return evaluate(parse_placement(where, "it"), min_replicas=m, min_racks=r, probabilities=probabilities, elr=elr)


# Brute force: every combination of available brokers and racks, with the rules implemented a second time.


def format_probability(things: Iterable[str], hit: frozenset[str], probability: float) -> float:
    total = 1.0
    for thing in things:
        total *= probability if thing in hit else 1 - probability
    return total


def subsets(things: Iterable[str]) -> list[frozenset[str]]:
    every = sorted(things)
    return [frozenset(some) for size in range(len(every) + 1) for some in itertools.combinations(every, size)]


class Brute:
    """Enumeration of all states; ``where`` maps brokers to racks."""

    def __init__(self, where: dict[str, str], m: int, r: int, probabilities: FailureProbabilities, elr: Elr) -> None:
        self.where, self.chances = where, probabilities
        self.m, self.r = min(m, len(where)), min(r, len(where))
        self.least = {"racks": (self.m, self.r), "replicas": (self.m, 1), "off": (1, 1)}[elr]
        self.racks = frozenset(where.values())
        self.loss = lru_cache(self.loss_of)

    def enough(self, brokers: frozenset[str], m: int, r: int) -> bool:
        return len(brokers) >= max(1, m) and len({self.where[one] for one in brokers}) >= r

    def after(self, brokers: frozenset[str], racks: frozenset[str]) -> frozenset[str]:
        return frozenset(one for one in self.where if one not in brokers and self.where[one] not in racks)

    def worlds(self, p: float, q: float) -> Iterable[tuple[frozenset[str], frozenset[str], float]]:
        """Yield remaining replicas, lost racks, and the state's probability."""
        for racks in subsets(self.racks):
            for brokers in subsets(self.where):
                weight = format_probability(self.where, brokers, p) * format_probability(self.racks, racks, q)
                yield self.after(brokers, racks), racks, weight

    def loss_of(self, holders: frozenset[str]) -> tuple[float, float, float]:
        by = [0.0, 0.0, 0.0]
        for left, racks, weight in self.worlds(self.chances.broker_destroyed, self.chances.rack_destroyed):
            if not holders & left:
                by[min(2, len(racks & {self.where[one] for one in holders}))] += weight
        return by[0], by[1], by[2]

    def rejected(self) -> dict[str, float]:
        by = dict.fromkeys(("no_leader", "replicas", "racks", "alone"), 0.0)
        for left, _, weight in self.worlds(self.chances.broker_away, self.chances.rack_away):
            if not left:
                by["no_leader"] += weight
            elif len(left) < self.m:
                by["replicas"] += weight
            elif not self.enough(left, self.m, self.r):
                by["racks"] += weight
            elif len({self.where[one] for one in left}) == 1:
                by["alone"] += weight
        return by

    def holders(self) -> list[frozenset[str]]:
        if not self.enough(frozenset(self.where), self.m, self.r):
            return []
        return [some for some in subsets(self.where) if self.enough(some, *self.least)]

    def usual(self) -> list[float]:
        found, share = [0.0, 0.0, 0.0], 0.0
        fit = set(self.holders())
        for left, _, weight in self.worlds(self.chances.broker_away, self.chances.rack_away):
            if left in fit:
                share += weight
                found = [old + weight * new for old, new in zip(found, self.loss(left), strict=True)]
        return [one / share for one in found] if share else found

    def goes_on_without(self, things: frozenset[str], *, racks: bool) -> int:
        """Return the number of arbitrary losses that writes tolerate; -1 if they are rejected without a loss."""
        for number in range(len(things) + 1):
            for some in itertools.combinations(sorted(things), number):
                left = self.after(frozenset(), frozenset(some)) if racks else self.after(frozenset(some), frozenset())
                if not self.enough(left, self.m, self.r):
                    return number - 1
        raise AssertionError("no set acknowledges")

    def outlives(self, things: frozenset[str], *, racks: bool) -> int:
        for number in range(len(things) + 1):
            for some in itertools.combinations(sorted(things), number):
                left = self.after(frozenset(), frozenset(some)) if racks else self.after(frozenset(some), frozenset())
                if any(not holders & left for holders in self.holders()):
                    return number - 1
        return -1  # no write is ever acknowledged


probabilities = st.sampled_from([0.0, 1e-4, 0.02, 0.3, 0.9, 1.0])
elrs = st.sampled_from(ELRS)


@st.composite
def placements(draw: st.DrawFn, most: int = 5) -> dict[str, int]:
    counts = {rack: draw(st.integers(0, 3)) for rack in ("a", "b", "c", "d")}
    while sum(counts.values()) > most:
        counts[max(counts, key=lambda rack: counts[rack])] -= 1
    return counts if sum(counts.values()) else {"a": 1}


@settings(max_examples=40, deadline=None)
@given(placements(), st.integers(1, 6), st.integers(1, 5), st.tuples(*[probabilities] * 4), elrs)
def test_model_equals_enumeration_of_brokers_and_racks(
    counts: dict[str, int], m: int, r: int, numbers: tuple[float, float, float, float], elr: Elr
) -> None:
    where = {f"{rack}{number}": rack for rack, count in counts.items() for number in range(count)}
    probabilities = FailureProbabilities(*numbers)
    brute = Brute(where, m, r, probabilities, elr)
    found = evaluate(Placement.of(counts), min_replicas=m, min_racks=r, probabilities=probabilities, elr=elr)
    by = brute.rejected()
    assert (found.rejected.no_leader, found.rejected.replicas, found.rejected.racks) == pytest.approx(
        (by["no_leader"], by["replicas"], by["racks"])
    )
    assert found.one_rack_alone == near(by["alone"])
    holders = brute.holders()
    assert found.writable is bool(holders)
    worst = max((sum(brute.loss(some)) for some in holders), default=0.0)
    assert found.worst.total == near(worst)
    assert (found.usual.brokers, found.usual.one_rack, found.usual.more_racks) == near(tuple(brute.usual()))
    if holders:
        whole = brute.loss(frozenset(where))
        assert (found.whole.brokers, found.whole.one_rack, found.whole.more_racks) == near(whole)
    assert found.writes_without_brokers == brute.goes_on_without(frozenset(where), racks=False)
    assert found.writes_without_racks == brute.goes_on_without(brute.racks, racks=True)
    assert found.outlives_brokers == brute.outlives(frozenset(where), racks=False)
    assert found.outlives_racks == brute.outlives(brute.racks, racks=True)


@settings(max_examples=100, deadline=None)
@given(placements(12), st.tuples(*[st.floats(0.0, 1.0)] * 4), elrs)
def test_higher_requirements_lower_availability_and_losses(
    counts: dict[str, int], numbers: tuple[float, float, float, float], elr: Elr
) -> None:
    where, probabilities = Placement.of(counts), FailureProbabilities(*numbers)
    seen = isr_groups(where, probabilities)
    grid = {
        (m, r): evaluate_groups(where, seen, min_replicas=m, min_racks=r, elr=elr)
        for m in range(1, where.replicas + 1)
        for r in range(1, where.replicas + 1)
    }
    slack = 1e-12
    for (m, r), one in grid.items():
        taken = 1 - one.rejected.total
        assert -slack <= taken <= 1 + slack
        assert -slack <= one.one_rack_alone <= taken + slack
        assert one.usual.total <= one.worst.total + slack
        assert one.whole.total <= one.worst.total + slack
        for more in ((m + 1, r), (m, r + 1)):
            if more not in grid:
                continue
            other = grid[more]
            assert other.rejected.total >= one.rejected.total - slack
            assert other.one_rack_alone <= one.one_rack_alone + slack
            assert other.worst.total <= one.worst.total + slack
            assert other.writes_without_brokers <= one.writes_without_brokers
            assert other.writes_without_racks <= one.writes_without_racks
            if other.writable:
                assert other.outlives_brokers >= one.outlives_brokers
                assert other.outlives_racks >= one.outlives_racks


# Closed forms.


@pytest.mark.parametrize("rf", range(1, 8))
def test_writes_continue_without_rf_minus_m_brokers(rf: int) -> None:
    for m in range(1, rf + 1):
        for where in distinct_placements({"a": rf, "b": rf, "c": rf}, rf):
            found = evaluation(",".join(str(where).split()), m, 1)
            assert found.writes_without_brokers == rf - m


@pytest.mark.parametrize(("rf", "expected"), [(1, 2e-2), (2, 4e-4), (3, 8e-6), (5, 3.2e-9)])
def test_p_to_the_power_of_rf(rf: int, expected: float) -> None:
    """The table of the background document: loss of all copies of a record on all replicas, p = 2 %."""
    for where in (f"a:{rf}", ",".join("abcde"[:rf])):
        assert evaluation(where, 1, 1, 0.0, 0.0, 0.02).whole.total == pytest.approx(expected, rel=1e-12)
    # with M = RF only the full replica set acknowledges
    assert evaluation(f"a:{rf}", rf, 1, 0.0, 0.0, 0.02).worst.total == pytest.approx(expected, rel=1e-12)


def test_copies_in_one_rack_are_one_copy_when_the_rack_is_lost() -> None:
    assert evaluation("a,a,a", 2, 1, 0.0, 0.0, 0.0, 0.02).whole.total == pytest.approx(0.02)
    assert evaluation("a,b,c", 2, 1, 0.0, 0.0, 0.0, 0.02).whole.total == pytest.approx(8e-6)


@pytest.mark.parametrize(
    ("m", "r", "q", "expected"),
    [(3, 1, 0.0, 9.9e-6), (2, 2, 0.0, 2.0e-6), (3, 1, 0.001, 7.3e-5), (2, 2, 0.001, 2.5e-5)],
)
def test_known_values(m: int, r: int, q: float, expected: float) -> None:
    """Five replicas in racks a, a, b, b, c with p = 0.01; published with two digits."""
    assert evaluation("a:2,b:2,c", m, r, 0.01, q).rejected.total == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("r", "expected"), [(2, 2.2e-3), (1, 4.5e-5)])
def test_two_racks_alone_make_each_outage_of_a_rack_one_of_writes(r: int, expected: float) -> None:
    assert evaluation("a:2,b:2", 2, r, 0.01, 0.001).rejected.total == pytest.approx(expected, rel=0.03)


# Purpose of the gate.


def test_one_rack_acknowledges_alone_only_where_racks_are_not_required() -> None:
    assert evaluation("a,a,b", 2, 1, 0.01, 0.001).one_rack_alone > 1e-3
    assert evaluation("a,a,b", 2, 2, 0.01, 0.001).one_rack_alone == 0
    assert evaluation("a:3,b,c", 3, 1, 0.01, 0.001).one_rack_alone > 0
    assert evaluation("a:2,b:2,c", 3, 1, 0.01, 0.001).one_rack_alone == 0, "three of these span two racks anyway"


def test_one_rack_in_each_replica_makes_r_2_the_same_as_m_2() -> None:
    both = [evaluation("a,b,c", 2, r, 0.01, 0.001, 0.02, 0.001) for r in (1, 2)]
    assert both[0].rejected.total == both[1].rejected.total
    assert both[0].worst == both[1].worst


def test_without_rack_aware_elr_a_destroyed_rack_takes_what_the_other_has() -> None:
    """Replicas in a, a, b with M = R = 2 (section 0.12 of the notes): the gate alone does not prevent the loss."""
    numbers = (0.01, 0.001, 0.0, 0.02)
    saved = evaluation("a,a,b", 2, 2, *numbers)
    assert saved.outlives_racks == 1
    assert saved.worst.total == pytest.approx(0.02**2)
    others: tuple[Elr, ...] = ("replicas", "off")
    for elr in others:
        lost = evaluation("a,a,b", 2, 2, *numbers, elr=elr)
        assert lost.outlives_racks == 0
        assert lost.worst.total == pytest.approx(0.02)
        assert lost.rejected == saved.rejected


def test_minima_are_capped_by_the_replication_factor_and_not_by_racks() -> None:
    assert evaluation("a", 2, 2, 0.01).rejected.total == pytest.approx(0.01)
    assert evaluation("a,a", 3, 1, 0.01).limits.replicas == 2
    never = evaluation("a,a", 1, 2, 0.01, 0.001, 0.02, 0.001)
    assert not never.writable
    assert never.rejected.total == pytest.approx(1.0)
    assert never.worst.total == never.usual.total == never.whole.total == 0
    assert (never.worst_set, never.writes_without_brokers, never.outlives_racks) == (None, -1, -1)
