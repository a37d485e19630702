"""Progress during a partition between two racks, with the leader in either of them or in a third rack."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers import cluster_view
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.verdict import Verdict
from written_histories import MS, S, Simulated, event

# Rack b is partitioned from rack a.
LEADER_IN_B = {1: "b", 2: "b", 3: "a"}
LEADER_IN_A = {1: "a", 2: "a", 3: "b"}
LEADER_IN_C = {1: "c", 2: "a", 3: "b"}
LEADER_IN_B_OF_THREE = {1: "b", 2: "c", 3: "a"}
PARTITION = {"brokers": [1, 2], "peers": ["a"], "brokers_alone": True}


def judge_partition(
    racks: dict[int, str], removed: set[int], *, only_brokers: bool = True, gate: bool = True, blocked: bool = False
) -> Verdict:
    """Judge a network partition of 40 s; after 30 s replicas are removed from the ISR.

    Args:
        racks: rack of each replica; the first broker leads.
        removed: replicas that are removed from the ISR.
        only_brokers: whether the partition affects neither clients nor controllers.
        gate: whether the leader requires R racks.
        blocked: whether no record completes until replicas have been removed from the ISR.
    """
    cluster = Simulated(dict(racks))
    fields: dict[str, Any] = {"brokers": [broker for broker, rack in racks.items() if rack == "b"], "peers": ["a"]}
    fields["brokers_alone"] = only_brokers

    def step(name: str, outcome: Any = None) -> None:
        cluster.note("fault", "cut-rack", outcome, "b", step=name, **fields)

    def run_for(seconds: int, *, silent: bool = False) -> None:
        for _ in range(seconds * 2):
            if not silent:
                cluster.produce()
            cluster.look()
            cluster.now += S // 2

    run_for(6)
    step("before", "ok")
    step("inject")
    step("proved", "ok")
    run_for(30, silent=blocked)
    cluster.down |= removed
    cluster.look()
    if not gate:
        cluster.need_racks = cluster.need_replicas = 1
    run_for(10)
    cluster.need_racks = cluster.need_replicas = 2
    cluster.rest(4)
    step("held", "ok")
    step("heal")
    cluster.down.clear()
    cluster.look()
    step("healed", "ok")
    run_for(8)
    cluster.end()
    return check_progress(cluster.events)


@pytest.mark.parametrize(
    ("racks", "removed"),
    [(LEADER_IN_B, {3}), (LEADER_IN_A, {3}), (LEADER_IN_B_OF_THREE, {3}), (LEADER_IN_C, set())],
    ids=str,
)
def test_a_correct_leader_is_valid(racks: dict[int, str], removed: set[int]) -> None:
    verdict = judge_partition(racks, removed, blocked=bool(removed))
    assert (verdict.valid, verdict.because) == ("true", ())


@pytest.mark.parametrize("racks", [LEADER_IN_B, LEADER_IN_A])
def test_acknowledgements_by_one_rack_are_wrong_on_either_side(racks: dict[int, str]) -> None:
    verdict = judge_partition(racks, {3}, gate=False, blocked=True)
    assert verdict.valid == "false"
    assert all("too few, and record" in reason for reason in verdict.because), verdict.because


def test_a_leader_that_both_sides_reach_is_judged_during_the_partition() -> None:
    """Its ISR spans both racks, yet it rejects writes."""
    cluster = Simulated(dict(LEADER_IN_C))
    events: list[Any] = []
    for second in range(60):
        if second == 10:
            for name, outcome in (("before", "ok"), ("inject", None), ("proved", "ok")):
                cluster.note("fault", "cut-rack", outcome, "b", step=name, **{**PARTITION, "brokers": [3]})  # type: ignore[arg-type]
        cluster.down |= {2, 3} if 20 <= second < 40 else set()
        cluster.produce()
        cluster.down.clear()
        cluster.look()
        cluster.now += S
    cluster.end()
    events = cluster.events
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert any("enough, and record" in reason for reason in verdict.because), verdict.because


def test_observations_may_be_stale_where_controllers_are_partitioned() -> None:
    verdict = judge_partition(LEADER_IN_B, {3}, only_brokers=False, gate=False, blocked=True)
    assert verdict.valid == "unknown"


def test_a_fault_reports_both_sides_of_its_partition() -> None:
    steps = [event(at * MS, "fault", "cut-rack", None, "b", step="inject", **PARTITION) for at in (1,)]
    (fault,) = cluster_view.faults(steps)
    racks = {1: "b", 2: "b", 3: "a", 4: "c"}
    assert (fault.peers, fault.brokers, fault.brokers_alone) == (("a",), frozenset({1, 2}), True)
    assert [fault.hits(broker, racks) for broker in (1, 2, 3, 4)] == [True, True, False, False]
    assert fault.separates(1, 3, racks)
    assert fault.separates(3, 1, racks)
    assert not any(fault.separates(broker, other, racks) for broker, other in ((1, 2), (1, 4), (3, 4)))
    # the recorded brokers of the fault decide, not the racks that they report
    assert fault.hits(1, {1: "a"})
