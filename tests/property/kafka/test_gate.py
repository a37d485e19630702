"""The gate's decision as a pure function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.kafka.gate import decide, racks_of

RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: None, 5: "", 6: " "}


@pytest.mark.parametrize(
    ("isr", "need", "replicas", "passes"),
    [
        ((1, 3), (2, 2), 3, True),
        ((1, 2), (2, 2), 3, False),
        ((1,), (2, 1), 3, False),
        ((1,), (9, 9), 1, True),
        ((), (0, 0), 3, False),
        # a broker without a rack counts for no rack, and R=1 needs no rack
        ((1, 4), (1, 2), 3, False),
        ((4, 5, 6), (1, 2), 3, False),
        ((4, 5), (2, 1), 3, True),
        ((1, 3, 4), (3, 2), 3, True),
        # broker 9 is unknown: a replica without a rack
        ((1, 9), (2, 2), 3, False),
        ((9,), (1, 1), 3, True),
    ],
)
def test_gate(isr: tuple[int, ...], need: tuple[int, int], replicas: int, passes: bool) -> None:
    assert decide(isr, RACKS, min_replicas=need[0], min_racks=need[1], replicas=replicas).passes is passes


def test_gate_counts_replicas_and_racks() -> None:
    gate = decide([1, 2, 4, 9], RACKS, min_replicas=7, min_racks=3, replicas=4)
    assert (gate.replicas, gate.racks, gate.need_replicas, gate.need_racks) == (4, frozenset({"a"}), 4, 3)
    assert (gate.enough_replicas, gate.enough_racks) == (True, False)


def test_replicas_that_are_added_raise_m_and_not_r() -> None:
    gate = decide([1], RACKS, min_replicas=2, min_racks=2, replicas=2, adding=1)
    assert (gate.need_replicas, gate.need_racks, gate.enough_racks, gate.passes) == (2, 1, True, False)


@given(st.sets(st.integers(1, 9)), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))
def test_an_added_replica_never_closes_the_gate(isr: set[int], more: int, m: int, r: int, replicas: int) -> None:
    before, after = (
        decide(one, RACKS, min_replicas=m, min_racks=r, replicas=replicas).passes for one in (isr, isr | {more})
    )
    assert after or not before
    assert len(racks_of(isr, RACKS)) <= len(isr)
