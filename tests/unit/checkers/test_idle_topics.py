"""Progress of idle topics: attempts are required only while a producer runs; a returning replica may delay them."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers.progress import check_progress
from written_histories import S, Simulated


@pytest.mark.parametrize("ended", [True, False], ids=["no producer", "an idle producer"])
def test_attempts_are_required_only_while_a_producer_runs(*, ended: bool) -> None:
    cluster = Simulated(racks={1: "a", 2: "b", 3: "c"})
    cluster.rest(4)
    cluster.send(5)
    # two of three racks are sufficient throughout
    cluster.lose("b")
    cluster.send(5)
    if ended:
        cluster.end()
    cluster.rest(10)
    cluster.heal("b")
    if ended:
        cluster.run, cluster.seq, cluster.announced = "producer-2", 0, 0
    cluster.rest(1)
    cluster.send(5)
    cluster.rest(3)
    verdict = check_progress(cluster.finish(), attempts_min=6)
    assert any("attempts in" in reason for reason in verdict.because) is not ended, verdict
    assert verdict.valid == ("true" if ended else "unknown"), verdict


@pytest.mark.parametrize("ended", [True, False], ids=["no producer", "an idle producer"])
def test_an_insufficient_isr_needs_a_judged_attempt_only_while_a_producer_runs(*, ended: bool) -> None:
    cluster = Simulated(racks={1: "a", 2: "b", 3: "c"})
    cluster.rest(4)
    cluster.send(5)
    if ended:
        cluster.end()
    cluster.lose("b")
    cluster.lose("c")
    cluster.rest(10)
    cluster.heal("c")
    cluster.heal("b")
    if ended:
        cluster.run, cluster.seq, cluster.announced = "producer-2", 0, 0
    cluster.rest(1)
    cluster.send(5)
    cluster.rest(3)
    verdict = check_progress(cluster.finish())
    assert any("while its ISR was too few" in reason for reason in verdict.because) is not ended, verdict
    assert verdict.valid == ("true" if ended else "unknown"), verdict


@pytest.mark.parametrize("between", ["no change", "no attempt before", "another ISR", "a gap", "another R", "a fault"])
def test_an_insufficient_interval_needs_no_attempt_if_it_continues_a_judged_one(between: str) -> None:
    cluster = Simulated(racks={1: "a", 2: "b", 3: "c"})
    cluster.note("settings", "settings", **settings_report(2))
    cluster.rest(4)
    cluster.send(5)
    cluster.lose("b")
    cluster.lose("c")
    if between == "no attempt before":
        cluster.rest(8)
    else:
        cluster.send(5)
        cluster.rest(3)
    if between == "another R":
        cluster.note("settings", "settings", **settings_report(3))
    cluster.step("kill-rack", "c", "held", "ok")
    # the rack returns late; a producer with records in flight begins no attempt meanwhile
    cluster.step("kill-rack", "c", "heal")
    if between == "another ISR":
        cluster.down.discard(3)
        cluster.rest(0.5)
        cluster.down.add(3)
    if between == "a gap":
        cluster.now += 20 * S
    if between == "a fault":
        # a leader that was down may count racks differently now
        for step in ("before", "inject", "proved", "held", "heal", "healed"):
            cluster.step("kill-rack", "a", step, None if step in ("inject", "heal") else "ok")
            cluster.rest(0.5)
    cluster.rest(12)
    cluster.down.discard(3)
    cluster.step("kill-rack", "c", "healed", "ok")
    cluster.heal("b")
    cluster.rest(3)
    cluster.send(5)
    cluster.rest(3)
    verdict = check_progress(cluster.finish())
    missed = sum("0 attempts in" in reason for reason in verdict.because)
    assert missed == {"no change": 0, "no attempt before": 2}.get(between, 1), verdict
    assert verdict.valid == ("true" if between == "no change" else "unknown"), verdict


def settings_report(racks: int) -> dict[str, Any]:
    """Data of a report of the topic's settings."""
    return {"topic": "t", "step": "settled", "min.insync.replicas": 2, "min.insync.racks": racks}


def test_a_history_without_a_judged_attempt_is_unknown() -> None:
    cluster = Simulated(racks={1: "a", 2: "b", 3: "c"})
    cluster.send(2)
    cluster.end()
    cluster.rest(10)
    # after the last settled interval
    cluster.run, cluster.seq, cluster.announced = "producer-2", 0, 0
    cluster.send(1)
    verdict = check_progress(cluster.finish())
    assert verdict.valid == "unknown"
    assert any("no attempt could be judged" in reason for reason in verdict.because), verdict


@pytest.mark.parametrize(("unavailable_s", "valid"), [(10, "true"), (40, "false")])
def test_a_returning_replica_may_delay_records_that_wait_for_it(unavailable_s: int, valid: str) -> None:
    cluster = Simulated(racks={1: "a", 2: "b", 3: "c"})
    cluster.rest(4)
    cluster.send(5)
    cluster.end()
    begun = cluster.now
    cluster.lose("b", "cut-rack")
    cluster.rest(unavailable_s - (cluster.now - begun) / S)
    cluster.run, cluster.seq, cluster.announced = "producer-2", 0, 0
    for step in ("held", "heal", "healed"):
        cluster.step("cut-rack", "b", step, None if step == "heal" else "ok")
    # the replica is unfenced but does not fetch yet; observations show no change
    cluster.rest(3)
    for _ in range(3):
        cluster.produce(lost_answer=True)
        cluster.rest(0.5)
    cluster.down.clear()
    cluster.rest(4)
    cluster.send(5)
    cluster.rest(3)
    verdict = check_progress(cluster.finish())
    assert verdict.valid == valid, verdict
    assert any("waited for a returning replica" in note for note in verdict.notes) is (valid == "true")
