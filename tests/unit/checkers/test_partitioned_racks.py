"""A rack that is partitioned from only one other rack: leaders on either side and on neither are judged."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers import cluster_view
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.verdict import Verdict
from written_histories import MS, S, Simulated, event

# rack b is cut off from rack a
LED_FROM_B = {1: "b", 2: "b", 3: "a"}
LED_FROM_A = {1: "a", 2: "a", 3: "b"}
LED_FROM_C = {1: "c", 2: "a", 3: "b"}
AAB_C = {1: "b", 2: "c", 3: "a"}
CUT = {"brokers": [1, 2], "peers": ["a"], "brokers_alone": True}


def parted(
    racks: dict[int, str], leaves: set[int], *, alone: bool = True, gate: bool = True, blocked: bool = False
) -> Verdict:
    """Before, 30 s of a cut in which nothing leaves the ISR, 10 s after replicas have left it, and after the heal.

    Args:
        racks: of all replicas; the first one leads.
        leaves: the ISR in the end.
        alone: neither clients nor controllers are at the cut.
        gate: whether racks are asked for.
        blocked: whether nothing is acknowledged before replicas have left the ISR.
    """
    cluster = Simulated(dict(racks))
    fields: dict[str, Any] = {"brokers": [one for one, rack in racks.items() if rack == "b"], "peers": ["a"]}
    fields["brokers_alone"] = alone

    def step(name: str, outcome: Any = None) -> None:
        cluster.note("fault", "cut-rack", outcome, "b", step=name, **fields)

    def go(seconds: int, *, silent: bool = False) -> None:
        for _ in range(seconds * 2):
            if not silent:
                cluster.produce()
            cluster.look()
            cluster.now += S // 2

    go(6)
    step("before", "ok")
    step("inject")
    step("proved", "ok")
    go(30, silent=blocked)
    cluster.down |= leaves
    cluster.look()
    if not gate:
        cluster.need_racks = cluster.need_replicas = 1
    go(10)
    cluster.need_racks = cluster.need_replicas = 2
    cluster.rest(4)
    step("held", "ok")
    step("heal")
    cluster.down.clear()
    cluster.look()
    step("healed", "ok")
    go(8)
    cluster.end()
    return check_progress(cluster.events)


@pytest.mark.parametrize(
    ("racks", "leaves"), [(LED_FROM_B, {3}), (LED_FROM_A, {3}), (AAB_C, {3}), (LED_FROM_C, set())], ids=str
)
def test_a_correct_leader_passes(racks: dict[int, str], leaves: set[int]) -> None:
    verdict = parted(racks, leaves, blocked=bool(leaves))
    assert (verdict.valid, verdict.because) == ("true", ())


@pytest.mark.parametrize("racks", [LED_FROM_B, LED_FROM_A])
def test_one_rack_that_acknowledges_is_found_on_either_side(racks: dict[int, str]) -> None:
    verdict = parted(racks, {3}, gate=False, blocked=True)
    assert verdict.valid == "false"
    assert all("too few, and record" in reason for reason in verdict.because), verdict.because


def test_a_leader_that_both_sides_reach_is_judged_in_the_cut() -> None:
    """It has both in sync, and refuses."""
    cluster = Simulated(dict(LED_FROM_C))
    events: list[Any] = []
    for second in range(60):
        if second == 10:
            for name, outcome in (("before", "ok"), ("inject", None), ("proved", "ok")):
                cluster.note("fault", "cut-rack", outcome, "b", step=name, **{**CUT, "brokers": [3]})  # type: ignore[arg-type]
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
    verdict = parted(LED_FROM_B, {3}, alone=False, gate=False, blocked=True)
    assert verdict.valid == "unknown"


def test_a_fault_reports_both_sides_of_its_partition() -> None:
    steps = [event(at * MS, "fault", "cut-rack", None, "b", step="inject", **CUT) for at in (1,)]
    (fault,) = cluster_view.faults(steps)
    racks = {1: "b", 2: "b", 3: "a", 4: "c"}
    assert (fault.peers, fault.brokers, fault.brokers_alone) == (("a",), frozenset({1, 2}), True)
    assert [fault.hits(one, racks) for one in (1, 2, 3, 4)] == [True, True, False, False]
    assert fault.separates(1, 3, racks)
    assert fault.separates(3, 1, racks)
    assert not any(fault.separates(one, two, racks) for one, two in ((1, 2), (1, 4), (3, 4)))
    # a rack is its nodes', whatever they say of themselves
    assert fault.hits(1, {1: "a"})
