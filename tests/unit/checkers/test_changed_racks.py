"""Brokers that restart in another rack: each record is judged by the racks at the time of its acknowledgement."""

from __future__ import annotations

import pytest

from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.history.event_log import Event
from written_histories import Simulated


def walked(*, before: str, after: str, leaves: bool = True, looks_s: float = 4) -> Simulated:
    """Broker 3 starts in another rack than it was in; a record before, and one after."""
    made = Simulated({1: "a", 2: "a", 3: before}, need_replicas=1)
    made.rest(4)
    made.produce()
    made.rest(2)
    if leaves:
        made.down = {3}
        made.rest(4)
    made.racks[3] = after
    if leaves:
        made.rest(4)
    for broker in (2, 3):
        made.logs[broker].keys = list(made.logs[1].keys)
    made.down = set()
    made.rest(looks_s)
    return made


def ended(made: Simulated) -> Simulated:
    made.end()
    made.stop_and_dump()
    return made


def test_a_record_was_in_two_racks_when_it_was_acknowledged() -> None:
    assert check_promise(ended(walked(before="b", after="a")).events).valid == "true"


def test_a_record_that_was_in_one_rack_is_wrong_after_its_brokers_moved_to_two() -> None:
    made = Simulated({1: "a", 2: "a", 3: "a"}, need_racks=1)
    made.rest(4)
    made.produce()
    made.rest(2)
    made.down = {3}
    made.rest(4)
    made.racks[3] = "b"
    made.down = set()
    made.rest(4)
    # what the topic required all the time, as a gate that lets it pass would have it
    made.need_racks = 2
    events = ended(made).events
    events = [one for one in events if one.op != "settings"]
    need = Simulated(dict(made.racks)).events[0]
    found = check_promise([need, *events])
    assert found.valid == "false"
    assert "lies in 1 rack(s) (a), 2 are required" in found.because[0]


@pytest.mark.parametrize(("late", "valid"), [(False, "true"), (True, "unknown")])
def test_a_rack_that_changes_around_an_acknowledgement_is_uncertain(*, late: bool, valid: str) -> None:
    """The record after the move is acknowledged by who is in rack b then; the next look shows another rack."""
    made = walked(before="a", after="b")
    made.produce()
    if late:
        made.racks[3] = "a"
    made.rest(4)
    assert check_promise(ended(made).events).valid == valid


def acting(by: str) -> list[Event]:
    """A broker in sync moves from rack b to rack a, and its leader uses the current or the previous racks."""
    made = walked(before="b", after="a")
    made.need_racks = 2 if by == "now" else 1
    for _ in range(3):
        made.rest(3)
        made.produce()
    made.rest(4)
    made.end()
    return made.events


def test_outcomes_are_judged_by_the_racks_of_their_time() -> None:
    """In sync in rack b all is acknowledged; once it is in rack a all is refused."""
    events = acting("now")
    assert [one.outcome for one in events if one.op == "produce"] == ["ok", "fail", "fail", "fail"]
    assert check_progress(events, attempts_min=0).valid == "true"
    found = check_progress(acting("before"), attempts_min=0)
    assert found.valid == "false"
    assert "ISR [1, 2, 3] in rack(s) a, leader 1: too few, and record" in found.because[0]


def test_a_broker_that_changed_racks_was_down_without_an_observation() -> None:
    """Looks at the same ISR in other racks are looks at another state."""
    made = walked(before="b", after="b", leaves=False)
    made.racks[3] = "c"
    made.rest(1.5)
    made.produce()
    made.rest(1.5)
    made.end()
    found = check_progress(made.events, attempts_min=0)
    assert found.valid == "true"
    assert "1 of 2 attempts are not judged" in found.notes[0], "the change has not settled"
