"""Without a producer no attempt is missing; a wait for a returning replica is allowed for a while."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers.progress import check_progress
from written_histories import S, Simulated


@pytest.mark.parametrize("ended", [True, False], ids=["no producer", "a producer that sends nothing"])
def test_attempts_are_missed_where_a_producer_runs(*, ended: bool) -> None:
    made = Simulated(racks={1: "a", 2: "b", 3: "c"})
    made.rest(4)
    made.send(5)
    # with two of three racks it is enough all the time
    made.lose("b")
    made.send(5)
    if ended:
        made.end()
    made.rest(10)
    made.heal("b")
    if ended:
        made.run, made.seq, made.announced = "producer-2", 0, 0
    made.rest(1)
    made.send(5)
    made.rest(3)
    found = check_progress(made.finish(), attempts_min=6)
    assert any("attempts in" in reason for reason in found.because) is not ended, found
    assert found.valid == ("true" if ended else "unknown"), found


@pytest.mark.parametrize("ended", [True, False], ids=["no producer", "a producer that sends nothing"])
def test_a_state_must_be_judged_if_a_producer_ran_in_it(*, ended: bool) -> None:
    made = Simulated(racks={1: "a", 2: "b", 3: "c"})
    made.rest(4)
    made.send(5)
    if ended:
        made.end()
    made.lose("b")
    made.lose("c")
    made.rest(10)
    made.heal("c")
    made.heal("b")
    if ended:
        made.run, made.seq, made.announced = "producer-2", 0, 0
    made.rest(1)
    made.send(5)
    made.rest(3)
    found = check_progress(made.finish())
    assert any("while its ISR was too few" in reason for reason in found.because) is not ended, found
    assert found.valid == ("true" if ended else "unknown"), found


@pytest.mark.parametrize("between", ["nothing", "no attempt before", "another ISR", "a gap", "another R", "a fault"])
def test_a_period_of_too_few_replicas_needs_no_attempt_if_it_continues(between: str) -> None:
    made = Simulated(racks={1: "a", 2: "b", 3: "c"})
    made.note("settings", "settings", **required(2))
    made.rest(4)
    made.send(5)
    made.lose("b")
    made.lose("c")
    if between == "no attempt before":
        made.rest(8)
    else:
        made.send(5)
        made.rest(3)
    if between == "another R":
        made.note("settings", "settings", **required(3))
    made.step("kill-rack", "c", "held", "ok")
    # it takes its time to come back; meanwhile a patient producer has nothing to begin
    made.step("kill-rack", "c", "heal")
    if between == "another ISR":
        made.down.discard(3)
        made.rest(0.5)
        made.down.add(3)
    if between == "a gap":
        made.now += 20 * S
    if between == "a fault":
        # a leader that was down may count other racks now
        for step in ("before", "inject", "proved", "held", "heal", "healed"):
            made.step("kill-rack", "a", step, None if step in ("inject", "heal") else "ok")
            made.rest(0.5)
    made.rest(12)
    made.down.discard(3)
    made.step("kill-rack", "c", "healed", "ok")
    made.heal("b")
    made.rest(3)
    made.send(5)
    made.rest(3)
    found = check_progress(made.finish())
    missed = sum("0 attempts in" in reason for reason in found.because)
    assert missed == {"nothing": 0, "no attempt before": 2}.get(between, 1), found
    assert found.valid == ("true" if between == "nothing" else "unknown"), found


def required(racks: int) -> dict[str, Any]:
    """A report of a topic's settings."""
    return {"topic": "t", "step": "settled", "min.insync.replicas": 2, "min.insync.racks": racks}


def test_some_state_needs_an_attempt() -> None:
    made = Simulated(racks={1: "a", 2: "b", 3: "c"})
    made.send(2)
    made.end()
    made.rest(10)
    # after the last settled stretch
    made.run, made.seq, made.announced = "producer-2", 0, 0
    made.send(1)
    found = check_progress(made.finish())
    assert found.valid == "unknown"
    assert any("no attempt could be judged" in reason for reason in found.because), found


@pytest.mark.parametrize(("away_s", "valid"), [(10, "true"), (40, "false")])
def test_a_returning_replica_may_delay_records_that_wait_for_it(away_s: int, valid: str) -> None:
    made = Simulated(racks={1: "a", 2: "b", 3: "c"})
    made.rest(4)
    made.send(5)
    made.end()
    begun = made.now
    made.lose("b", "cut-rack")
    made.rest(away_s - (made.now - begun) / S)
    made.run, made.seq, made.announced = "producer-2", 0, 0
    for step in ("held", "heal", "healed"):
        made.step("cut-rack", "b", step, None if step == "heal" else "ok")
    # unfenced, and its fetches do not come yet; looks see no change, but those of other partitions would
    made.rest(3)
    for _ in range(3):
        made.produce(lost_answer=True)
        made.rest(0.5)
    made.down.clear()
    made.rest(4)
    made.send(5)
    made.rest(3)
    found = check_progress(made.finish())
    assert found.valid == valid, found
    assert any("waited for a returning replica" in note for note in found.notes) is (valid == "true")
