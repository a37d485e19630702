"""The model of a moment against a chain of events: failures and repairs one after the other, with ISR and ELR in it.

The chain knows who was the last ISR that passed the gate, so it knows the one thing that the model leaves out: that
others who come back before any of these must wait for one. It needs rates, where the model needs probabilities alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from pyhooks.placement.exact_model import evaluate
from pyhooks.placement.failure_rates import FailureProbabilities
from pyhooks.placement.replica_placement import parse_placement

# brokers, racks and the last ISR that passed
State = tuple[frozenset[int], frozenset[str], frozenset[int]]


@dataclass(frozen=True)
class Shares:
    """Shares of time: no replica is up; enough are up, but none of the last ISR; other refusals."""

    none_up: float
    wait: float
    few: float


def stationary(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of time in each state, by Grassmann, Taksar and Heyman (1985): nothing is subtracted.

    Not by LAPACK: in a process with a JVM, as other tests leave it, that ends in a segmentation fault from 200 unknowns
    on (numpy 2.4, OpenJDK 17), most likely as its frames reach the guard pages of the main thread's stack.

    Args:
        rates: from the state of a row to that of a column; what leads from a state to itself does not matter.
    """
    left = rates.copy()
    for last in range(len(left) - 1, 0, -1):
        left[:last, last] /= left[last, :last].sum()
        left[:last, :last] += np.multiply.outer(left[:last, last], left[last, :last])
    share = np.zeros(len(left))
    share[0] = 1.0
    for state in range(1, len(left)):
        share[state] = (share[:state] * left[:state, state]).sum()
    share /= share.sum()
    return share


@dataclass(frozen=True)
class Chain:
    """Replicas in the racks of ``where``, one letter each; rates of failure and of repair, of brokers and of racks."""

    where: str
    m: int
    r: int
    broker: tuple[float, float]
    rack: tuple[float, float]

    def there(self, state: State) -> frozenset[int]:
        return frozenset(one for one in state[0] if self.where[one] in state[1])

    def enough(self, isr: frozenset[int]) -> bool:
        return len(isr) >= self.m and len({self.where[one] for one in isr}) >= self.r

    def next(self, state: State) -> Iterator[tuple[State, float]]:
        brokers, racks, last = state
        for one in range(len(self.where)):
            yield (brokers ^ {one}, racks, last), self.broker[one not in brokers]
        for rack in set(self.where):
            yield (brokers, racks ^ {rack}, last), self.rack[rack not in racks]

    def after(self, state: State) -> State:
        """Replicas that are up are in the ISR if one of the last ISR can lead; that ISR is the last if it passes."""
        there = self.there(state)
        return (*state[:2], there) if there & state[2] and self.enough(there) else state

    def shares(self) -> Shares:
        everyone = frozenset(range(len(self.where)))
        states: dict[State, int] = {(everyone, frozenset(self.where), everyone): 0}
        steps: list[tuple[int, int, float]] = []
        todo = list(states)
        while todo:
            state = todo.pop()
            for other, rate in self.next(state):
                to = self.after(other)
                if to not in states:
                    states[to] = len(states)
                    todo.append(to)
                steps.append((states[state], states[to], rate))
        rates = np.zeros((len(states), len(states)))
        for before, later, rate in steps:
            rates[before, later] += rate
        share = stationary(rates)
        none_up = wait = few = 0.0
        for state, number in states.items():
            there = self.there(state)
            if not there:
                none_up += share[number]
            elif not self.enough(there):
                few += share[number]
            elif not there & state[2]:
                wait += share[number]
        return Shares(none_up, wait, few)


def both(where: str, m: int, r: int, broker: tuple[float, float], rack: tuple[float, float]) -> tuple[Shares, Shares]:
    """Shares of the chain, and of the model, which has no wait."""
    found = Chain(where, m, r, broker, rack).shares()
    probabilities = FailureProbabilities(broker[0] / sum(broker), rack[0] / sum(rack), 0.0, 0.0)
    evaluation = evaluate(
        parse_placement(",".join(where), "it"), min_replicas=m, min_racks=r, probabilities=probabilities
    )
    refused = evaluation.refused
    return found, Shares(refused.no_leader, 0.0, refused.replicas + refused.racks)


@pytest.mark.parametrize(
    ("where", "m", "r"), [("abc", 2, 1), ("aab", 2, 2), ("aab", 1, 1), ("aabb", 2, 2), ("aabc", 2, 2)]
)
@pytest.mark.parametrize(("broker", "rack"), [((0.02, 1.0), (0.01, 0.3)), ((0.05, 1.0), (0.01, 3.0))])
def test_refusals_because_of_missing_replicas_are_the_same(
    where: str, m: int, r: int, broker: tuple[float, float], rack: tuple[float, float]
) -> None:
    chain, model = both(where, m, r, broker, rack)
    assert chain.none_up == pytest.approx(model.none_up, rel=1e-6)
    assert chain.few == pytest.approx(model.few, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("where", ["ab", "abc", "abcd"])
def test_with_m_1_the_wait_is_rf_minus_1_times_no_leader(where: str) -> None:
    """The last replica up returns last as often as any other; racks that never fail, equal repairs."""
    chain, _ = both(where, 1, 1, (0.002, 1.0), (1e-12, 1.0))
    assert chain.wait / chain.none_up == pytest.approx(len(where) - 1, rel=0.01)


@pytest.mark.parametrize(("where", "m"), [("abc", 2), ("abc", 3), ("aab", 2)])
def test_with_m_above_half_there_is_no_wait(where: str, m: int) -> None:
    """Any two sets of M have a member in common."""
    chain, _ = both(where, m, 1, (0.05, 1.0), (0.02, 0.5))
    assert chain.wait == pytest.approx(0.0, abs=1e-12)


def test_two_racks_lost_in_turn_cause_a_wait_only_without_r() -> None:
    """R=1: half of the time the rack that returns first lacks what the other took alone. R=2: neither took any."""
    rates = ((0.001, 1.0), (0.003, 0.3))
    without, _ = both("aabb", 2, 1, *rates)
    assert without.wait == pytest.approx(without.none_up, rel=0.05)
    required, _ = both("aabb", 2, 2, *rates)
    assert required.wait < required.none_up * 1e-6
