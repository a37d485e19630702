"""Brokers that restart in another rack: records are judged by the racks at the time of their acknowledgement."""

from __future__ import annotations

import pytest

from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.history.event_log import Event
from written_histories import Simulated


def moved_broker(*, before: str, after: str, leaves: bool = True, observed_s: float = 4) -> Simulated:
    """Broker 3 moves between racks after one record; with ``leaves`` it is out of the ISR meanwhile."""
    cluster = Simulated({1: "a", 2: "a", 3: before}, need_replicas=1)
    cluster.rest(4)
    cluster.produce()
    cluster.rest(2)
    if leaves:
        cluster.down = {3}
        cluster.rest(4)
    cluster.racks[3] = after
    if leaves:
        cluster.rest(4)
    for broker in (2, 3):
        cluster.logs[broker].keys = list(cluster.logs[1].keys)
    cluster.down = set()
    cluster.rest(observed_s)
    return cluster


def finished(cluster: Simulated) -> Simulated:
    cluster.end()
    cluster.stop_and_dump()
    return cluster


def test_a_record_in_two_racks_stays_valid_after_its_replicas_moved_to_one() -> None:
    assert check_promise(finished(moved_broker(before="b", after="a")).events).valid == "true"


def test_a_record_in_one_rack_stays_wrong_after_its_replicas_moved_to_two() -> None:
    cluster = Simulated({1: "a", 2: "a", 3: "a"}, need_racks=1)
    cluster.rest(4)
    cluster.produce()
    cluster.rest(2)
    cluster.down = {3}
    cluster.rest(4)
    cluster.racks[3] = "b"
    cluster.down = set()
    cluster.rest(4)
    # R=2 applied throughout; a gate with a defect accepted the record
    cluster.need_racks = 2
    events = finished(cluster).events
    events = [event for event in events if event.op != "settings"]
    settings = Simulated(dict(cluster.racks)).events[0]
    verdict = check_promise([settings, *events])
    assert verdict.valid == "false"
    assert "lies in 1 rack(s) (a), 2 are required" in verdict.because[0]


@pytest.mark.parametrize(("late", "valid"), [(False, "true"), (True, "unknown")])
def test_a_rack_that_changes_around_an_acknowledgement_is_uncertain(*, late: bool, valid: str) -> None:
    """A replica in rack b acknowledges the record after the move; if ``late``, the next observation shows rack a."""
    cluster = moved_broker(before="a", after="b")
    cluster.produce()
    if late:
        cluster.racks[3] = "a"
    cluster.rest(4)
    assert check_promise(finished(cluster).events).valid == valid


def leader_using(racks: str) -> list[Event]:
    """An in-sync broker moves from rack b to rack a; the leader uses the ``current`` or the ``previous`` racks."""
    cluster = moved_broker(before="b", after="a")
    cluster.need_racks = 2 if racks == "current" else 1
    for _ in range(3):
        cluster.rest(3)
        cluster.produce()
    cluster.rest(4)
    cluster.end()
    return cluster.events


def test_outcomes_are_judged_by_the_racks_at_their_time() -> None:
    """Records are acknowledged while the broker is in rack b and rejected once it is in rack a."""
    events = leader_using("current")
    assert [event.outcome for event in events if event.op == "produce"] == ["ok", "fail", "fail", "fail"]
    assert check_progress(events, attempts_min=0).valid == "true"
    verdict = check_progress(leader_using("previous"), attempts_min=0)
    assert verdict.valid == "false"
    assert "ISR [1, 2, 3] in rack(s) a, leader 1: too few, and record" in verdict.because[0]


def test_the_same_isr_in_other_racks_is_another_state() -> None:
    """A broker that changed racks was down meanwhile, even if no observation shows it."""
    cluster = moved_broker(before="b", after="b", leaves=False)
    cluster.racks[3] = "c"
    cluster.rest(1.5)
    cluster.produce()
    cluster.rest(1.5)
    cluster.end()
    verdict = check_progress(cluster.events, attempts_min=0)
    assert verdict.valid == "true"
    assert "1 of 2 attempts are not judged" in verdict.notes[0], "the change has not settled"
