from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench.analysis import availability
from bench.analysis.availability import NS, SettledOutage, behaviour
from bench.plan import scenarios
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition
from pyhooks.history.event_log import Event

PLANNED = scenarios.load("question").outage
assert PLANNED is not None
PLAN = PLANNED
FAULT = RecordedFault(
    "kill-rack", "b", None, inject_ns=15 * NS, heal_ns=55 * NS, healed_ns=60 * NS, proved_ns=16 * NS, held_ns=55 * NS
)


def event(at_s: float, process: str, op: str, outcome: Any, rack: str | None = None, **data: Any) -> Event:
    return Event(round(at_s * NS), 0, process, op, outcome, rack, data)


def fault_events(proved: Any = "ok", held: Any = "ok") -> list[Event]:
    return [
        event(15, "fault", "kill-rack", None, "b", step="inject"),
        event(16, "fault", "kill-rack", proved, "b", step="proved"),
        event(55, "fault", "kill-rack", held, "b", step="held"),
        event(55.1, "fault", "kill-rack", None, "b", step="heal"),
        event(60, "fault", "kill-rack", "ok", "b", step="healed"),
    ]


def test_the_fault_is_read_from_the_history() -> None:
    fault = availability.rack_fault(fault_events(), "b")
    assert fault is not None
    assert (fault.inject_ns, fault.heal_ns, availability.is_proved(fault)) == (15 * NS, round(55.1 * NS), True)
    assert availability.rack_fault(fault_events(), "c") is None
    assert not availability.is_proved(None)


@pytest.mark.parametrize(("proved", "held"), [("unknown", "ok"), ("ok", "unknown")])
def test_a_fault_that_did_not_take_hold_or_last_is_not_proved(proved: str, held: str) -> None:
    assert not availability.is_proved(availability.rack_fault(fault_events(proved, held), "b"))


@pytest.mark.parametrize(("at_s", "after_s"), [(14, None), (25, 10.0), (58, None)])
def test_a_refusal_before_the_fault_or_after_the_heal_does_not_count(at_s: float, after_s: float | None) -> None:
    name = "org.apache.kafka.common.errors.NotEnoughRacksException"
    refused = event(at_s, "probe", "produce", "fail", topic="t", key="k", exception=name)
    found = availability._probe(availability.probe_attempts([refused], "t"), FAULT, None, None, 0)
    assert (found["refused"], found["first_refusal_after_s"]) == (1, after_s)


def test_a_fault_without_proof_is_not_proved() -> None:
    assert not availability.is_proved(availability.rack_fault(fault_events()[:1], "b"))


def look(at_s: float, *racks: str) -> RecordedPartition:
    members = tuple(range(1, len(racks) + 1))
    return RecordedPartition(round(at_s * NS), 1, members, members, dict(zip(members, racks, strict=True)))


def test_the_outage_settles_after_the_rack_has_left_the_isr() -> None:
    window = availability.settled_outage("t", [look(10, "a", "b"), look(20, "a", "b"), look(25, "a")], FAULT, PLAN)
    assert window == SettledOutage("t", 25 * NS, round((25 + PLAN.settle_s) * NS), 55 * NS)


@pytest.mark.parametrize(
    "looks",
    [[], [look(20, "a", "b")], [look(10, "a")], [look(54.5, "a")]],
    ids=["no observation", "never left", "was gone before", "left too late"],
)
def test_without_a_settled_outage_there_is_no_window(looks: list[RecordedPartition]) -> None:
    assert availability.settled_outage("t", looks, FAULT, PLAN) is None


@pytest.mark.parametrize(
    ("looks", "until_s"),
    [
        ([], None),
        ([look(20, "a", "b")], None),
        ([look(10, "a", "b"), look(20, "a", "b"), look(25, "a")], 20),
        # what came back before the heal is not what left first
        ([look(20, "a", "b"), look(25, "a"), look(30, "a", "b"), look(35, "a")], 20),
        ([look(12, "a"), look(14, "a", "b"), look(25, "a")], 14),
        ([look(20, "a")], None),
        ([look(20, "a", "b"), look(56, "a")], None),
    ],
)
def test_the_rack_was_in_the_isr_until_its_last_observation(
    looks: list[RecordedPartition], until_s: float | None
) -> None:
    assert availability.in_isr_until(looks, FAULT, "b") == (None if until_s is None else until_s * NS)
    assert availability.in_isr_until(looks, dataclasses.replace(FAULT, heal_ns=None), "b") is None


def test_an_observation_has_the_time_of_its_request() -> None:
    asked = dataclasses.replace(look(20, "a", "b"), asked_ns=19 * NS)
    assert availability.in_isr_until([asked, look(25, "a")], FAULT, "b") == 19 * NS


@pytest.mark.parametrize(
    ("sent_s", "done_s", "had_s", "without"),
    [
        (15.9, 16.1, 24, False),
        (15.9, 24.0, 24, False),
        # what waited for the rack, and the change of the ISR sets free
        (15.9, 24.1, 24, True),
        # what the rack can't have had
        (16.0, 16.1, 24, True),
        (16.1, 24.1, None, True),
        (15.9, 24.1, None, False),
    ],
)
def test_only_records_the_rack_may_hold_were_in_flight(
    sent_s: float, done_s: float, had_s: float | None, without: bool
) -> None:
    had_ns = None if had_s is None else round(had_s * NS)
    assert availability.without_rack(round(sent_s * NS), round(done_s * NS), FAULT, had_ns) is without


def decided(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "proved": True,
        "settled": True,
        "intended": 100,
        "acked": 99,
        "probe_acked": 50,
        "probe_refused": 0,
        "fewest_racks": 2,
        "went_on_share": 0.95,
    }
    return behaviour(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "did"),
    [
        ({}, "went on"),
        ({"fewest_racks": 1}, "went on unprotected"),
        ({"acked": 0, "probe_acked": 0, "probe_refused": 50}, "was refused"),
        ({"acked": 0, "probe_acked": 0}, "unknown"),  # silence is not a refusal
        ({"acked": 1, "probe_acked": 0, "probe_refused": 50}, "unknown"),  # nor is a refusal that lets one pass
        ({"probe_refused": 1}, "unknown"),
        ({"probe_acked": 0}, "unknown"),  # nor is a probe that got nothing an ack
        ({"probe_acked": 0, "fewest_racks": 1}, "unknown"),
        ({"acked": 90}, "unknown"),
        ({"proved": False}, "unknown"),
        ({"settled": False}, "unknown"),
        ({"intended": 0}, "unknown"),
        ({"fewest_racks": None}, "unknown"),
    ],
)
def test_behaviour_is_decided_only_from_complete_evidence(changes: dict[str, Any], did: str) -> None:
    assert decided(**changes) == did


@pytest.mark.parametrize(
    ("exception", "refusal"),
    [
        ("org.apache.kafka.common.errors.NotEnoughRacksException", True),
        ("org.apache.kafka.common.errors.NotEnoughReplicasException", True),
        ("org.apache.kafka.common.errors.TimeoutException", False),
        (None, False),
    ],
)
def test_only_errors_of_the_gate_are_refusals(exception: str | None, refusal: bool) -> None:
    failed = event(30, "probe", "produce", "fail", topic="t", key="k", exception=exception)
    assert [availability.is_refusal(one) for one in availability.probe_attempts([failed], "t")] == [refusal]
