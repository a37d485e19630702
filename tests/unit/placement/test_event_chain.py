"""The exact model, which has no history, compared with a Markov chain of failures and repairs.

The state of the chain includes the last ISR that met the requirements. So it includes what the model omits: replicas
that return first must wait for a member of that ISR. The chain needs rates; the model needs only probabilities.
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

# running brokers, available racks, and the last ISR that met M and R
State = tuple[frozenset[int], frozenset[str], frozenset[int]]


@dataclass(frozen=True)
class Shares:
    """Shares of time: no replica is up; enough are up, but none of the last ISR; too few replicas or racks."""

    none_up: float
    wait: float
    too_few: float


def stationary(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of time in each state by the algorithm of Grassmann, Taksar and Heyman (1985).

    LAPACK is avoided: in a process with a JVM, which other tests leave behind, it ends in a segmentation fault from 200
    unknowns on (numpy 2.4, OpenJDK 17), probably because its frames reach the guard pages of the main thread's stack.

    Args:
        rates: transition rates from the state of a row to that of a column; the diagonal is ignored.
    """
    reduced = rates.copy()
    for last in range(len(reduced) - 1, 0, -1):
        reduced[:last, last] /= reduced[last, :last].sum()
        reduced[:last, :last] += np.multiply.outer(reduced[:last, last], reduced[last, :last])
    share = np.zeros(len(reduced))
    share[0] = 1.0
    for state in range(1, len(reduced)):
        share[state] = (share[:state] * reduced[:state, state]).sum()
    share /= share.sum()
    return share


@dataclass(frozen=True)
class Chain:
    """Markov chain of a partition.

    Attributes:
        placement: rack of each replica, a letter each.
        m: required in-sync replicas.
        r: required racks.
        broker: failure and repair rate of a broker.
        rack: failure and repair rate of a rack.
    """

    placement: str
    m: int
    r: int
    broker: tuple[float, float]
    rack: tuple[float, float]

    def available(self, state: State) -> frozenset[int]:
        return frozenset(broker for broker in state[0] if self.placement[broker] in state[1])

    def enough(self, isr: frozenset[int]) -> bool:
        return len(isr) >= self.m and len({self.placement[broker] for broker in isr}) >= self.r

    def next(self, state: State) -> Iterator[tuple[State, float]]:
        brokers, racks, last = state
        for broker in range(len(self.placement)):
            yield (brokers ^ {broker}, racks, last), self.broker[broker not in brokers]
        for rack in set(self.placement):
            yield (brokers, racks ^ {rack}, last), self.rack[rack not in racks]

    def after(self, state: State) -> State:
        """Return the state with its last ISR: the available replicas if a previous member leads and M and R are met."""
        available = self.available(state)
        return (*state[:2], available) if available & state[2] and self.enough(available) else state

    def shares(self) -> Shares:
        replicas = frozenset(range(len(self.placement)))
        states: dict[State, int] = {(replicas, frozenset(self.placement), replicas): 0}
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
        none_up = wait = too_few = 0.0
        for state, number in states.items():
            available = self.available(state)
            if not available:
                none_up += share[number]
            elif not self.enough(available):
                too_few += share[number]
            elif not available & state[2]:
                wait += share[number]
        return Shares(none_up, wait, too_few)


def chain_and_model(
    placement: str, m: int, r: int, broker: tuple[float, float], rack: tuple[float, float]
) -> tuple[Shares, Shares]:
    """Return the shares by the chain and by the model; the latter has no ``wait``."""
    chain = Chain(placement, m, r, broker, rack).shares()
    probabilities = FailureProbabilities(broker[0] / sum(broker), rack[0] / sum(rack), 0.0, 0.0)
    evaluation = evaluate(
        parse_placement(",".join(placement), "it"), min_replicas=m, min_racks=r, probabilities=probabilities
    )
    rejected = evaluation.rejected
    return chain, Shares(rejected.no_leader, 0.0, rejected.replicas + rejected.racks)


@pytest.mark.parametrize(
    ("placement", "m", "r"), [("abc", 2, 1), ("aab", 2, 2), ("aab", 1, 1), ("aabb", 2, 2), ("aabc", 2, 2)]
)
@pytest.mark.parametrize(("broker", "rack"), [((0.02, 1.0), (0.01, 0.3)), ((0.05, 1.0), (0.01, 3.0))])
def test_rejections_because_of_missing_replicas_are_the_same(
    placement: str, m: int, r: int, broker: tuple[float, float], rack: tuple[float, float]
) -> None:
    chain, model = chain_and_model(placement, m, r, broker, rack)
    assert chain.none_up == pytest.approx(model.none_up, rel=1e-6)
    assert chain.too_few == pytest.approx(model.too_few, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("placement", ["ab", "abc", "abcd"])
def test_with_m_1_the_wait_is_rf_minus_1_times_no_leader(placement: str) -> None:
    """Racks never fail and repair rates are equal, so the last replica that was up returns last as often as others."""
    chain, _ = chain_and_model(placement, 1, 1, (0.002, 1.0), (1e-12, 1.0))
    assert chain.wait / chain.none_up == pytest.approx(len(placement) - 1, rel=0.01)


@pytest.mark.parametrize(("placement", "m"), [("abc", 2), ("abc", 3), ("aab", 2)])
def test_with_m_above_half_there_is_no_wait(placement: str, m: int) -> None:
    """Any two sets of M replicas have a member in common."""
    chain, _ = chain_and_model(placement, m, 1, (0.05, 1.0), (0.02, 0.5))
    assert chain.wait == pytest.approx(0.0, abs=1e-12)


def test_successive_losses_of_two_racks_cause_a_wait_only_without_r() -> None:
    """With R=1, half of the time the rack that returns first lacks records of the other. With R=2 it never does."""
    rates = ((0.001, 1.0), (0.003, 0.3))
    without_r, _ = chain_and_model("aabb", 2, 1, *rates)
    assert without_r.wait == pytest.approx(without_r.none_up, rel=0.05)
    with_r, _ = chain_and_model("aabb", 2, 2, *rates)
    assert with_r.wait < with_r.none_up * 1e-6
