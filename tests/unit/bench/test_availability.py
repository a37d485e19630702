"""Behaviour of topics during a rack outage, decided from the fault, the ISR, the load and the probe."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench.analysis import availability
from bench.analysis.availability import NS, SettledOutage, behaviour
from bench.plan import scenarios
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition
from pyhooks.history.event_log import Event

OUTAGE = scenarios.load("question").outage
assert OUTAGE is not None
PLAN = OUTAGE
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


def test_the_fault_is_found_in_the_history() -> None:
    fault = availability.rack_fault(fault_events(), "b")
    assert fault is not None
    assert (fault.inject_ns, fault.heal_ns, availability.is_proved(fault)) == (15 * NS, round(55.1 * NS), True)
    assert availability.rack_fault(fault_events(), "c") is None
    assert not availability.is_proved(None)


@pytest.mark.parametrize(("proved", "held"), [("unknown", "ok"), ("ok", "unknown")])
def test_a_fault_without_verified_start_or_duration_is_not_verified(proved: str, held: str) -> None:
    assert not availability.is_proved(availability.rack_fault(fault_events(proved, held), "b"))


@pytest.mark.parametrize(("at_s", "after_s"), [(14, None), (25, 10.0), (58, None)])
def test_a_rejection_before_the_fault_or_after_the_heal_is_ignored(at_s: float, after_s: float | None) -> None:
    name = "org.apache.kafka.common.errors.NotEnoughRacksException"
    rejection = event(at_s, "probe", "produce", "fail", topic="t", key="k", exception=name)
    probe = availability._probe(availability.probe_attempts([rejection], "t"), FAULT, None, None, 0)
    assert (probe["rejected"], probe["first_rejection_after_s"]) == (1, after_s)


def test_a_fault_that_was_only_injected_is_not_verified() -> None:
    assert not availability.is_proved(availability.rack_fault(fault_events()[:1], "b"))


def partition_state(at_s: float, *racks: str) -> RecordedPartition:
    members = tuple(range(1, len(racks) + 1))
    return RecordedPartition(round(at_s * NS), 1, members, members, dict(zip(members, racks, strict=True)))


def test_the_settled_outage_begins_after_the_rack_left_the_isr() -> None:
    window = availability.settled_outage(
        "t", [partition_state(10, "a", "b"), partition_state(20, "a", "b"), partition_state(25, "a")], FAULT, PLAN
    )
    assert window == SettledOutage("t", 25 * NS, round((25 + PLAN.settle_s) * NS), 55 * NS)


@pytest.mark.parametrize(
    "states",
    [[], [partition_state(20, "a", "b")], [partition_state(10, "a")], [partition_state(54.5, "a")]],
    ids=["no observation", "never left", "left before the fault", "left too late"],
)
def test_without_a_settled_outage_there_is_no_window(states: list[RecordedPartition]) -> None:
    assert availability.settled_outage("t", states, FAULT, PLAN) is None


@pytest.mark.parametrize(
    ("states", "until_s"),
    [
        ([], None),
        ([partition_state(20, "a", "b")], None),
        ([partition_state(10, "a", "b"), partition_state(20, "a", "b"), partition_state(25, "a")], 20),
        # A return to the ISR before the heal does not extend the first membership.
        (
            [
                partition_state(20, "a", "b"),
                partition_state(25, "a"),
                partition_state(30, "a", "b"),
                partition_state(35, "a"),
            ],
            20,
        ),
        ([partition_state(12, "a"), partition_state(14, "a", "b"), partition_state(25, "a")], 14),
        ([partition_state(20, "a")], None),
        ([partition_state(20, "a", "b"), partition_state(56, "a")], None),
    ],
)
def test_the_rack_was_in_the_isr_until_its_last_observation(
    states: list[RecordedPartition], until_s: float | None
) -> None:
    assert availability.in_isr_until(states, FAULT, "b") == (None if until_s is None else until_s * NS)
    assert availability.in_isr_until(states, dataclasses.replace(FAULT, heal_ns=None), "b") is None


def test_an_observation_has_the_time_of_its_request() -> None:
    state = dataclasses.replace(partition_state(20, "a", "b"), asked_ns=19 * NS)
    assert availability.in_isr_until([state, partition_state(25, "a")], FAULT, "b") == 19 * NS


@pytest.mark.parametrize(
    ("sent_s", "done_s", "in_isr_s", "without"),
    [
        (15.9, 16.1, 24, False),
        (15.9, 24.0, 24, False),
        # It waited for the rack until the ISR shrank.
        (15.9, 24.1, 24, True),
        # Sent after the fault: the rack cannot have received it.
        (16.0, 16.1, 24, True),
        (16.1, 24.1, None, True),
        (15.9, 24.1, None, False),
    ],
)
def test_records_that_the_rack_may_have_received_were_in_flight(
    sent_s: float, done_s: float, in_isr_s: float | None, without: bool
) -> None:
    in_isr_ns = None if in_isr_s is None else round(in_isr_s * NS)
    assert availability.without_rack(round(sent_s * NS), round(done_s * NS), FAULT, in_isr_ns) is without


def behaviour_with(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "proved": True,
        "settled": True,
        "intended": 100,
        "acked": 99,
        "probe_acked": 50,
        "probe_rejected": 0,
        "fewest_racks": 2,
        "accepting_share": 0.95,
    }
    return behaviour(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "continued"),
        ({"fewest_racks": 1}, "continued unprotected"),
        ({"acked": 0, "probe_acked": 0, "probe_rejected": 50}, "was rejected"),
        ({"acked": 0, "probe_acked": 0}, "unknown"),  # timeouts are not rejections
        ({"acked": 1, "probe_acked": 0, "probe_rejected": 50}, "unknown"),  # rejections, but one acknowledgement
        ({"probe_rejected": 1}, "unknown"),
        ({"probe_acked": 0}, "unknown"),  # the probe had no acknowledgement
        ({"probe_acked": 0, "fewest_racks": 1}, "unknown"),
        ({"acked": 90}, "unknown"),
        ({"proved": False}, "unknown"),
        ({"settled": False}, "unknown"),
        ({"intended": 0}, "unknown"),
        ({"fewest_racks": None}, "unknown"),
    ],
)
def test_behaviour_is_decided_only_from_complete_evidence(changes: dict[str, Any], expected: str) -> None:
    assert behaviour_with(**changes) == expected


@pytest.mark.parametrize(
    ("exception", "rejection"),
    [
        ("org.apache.kafka.common.errors.NotEnoughRacksException", True),
        ("org.apache.kafka.common.errors.NotEnoughReplicasException", True),
        ("org.apache.kafka.common.errors.TimeoutException", False),
        (None, False),
    ],
)
def test_only_not_enough_racks_or_replicas_is_a_rejection(exception: str | None, rejection: bool) -> None:
    failed = event(30, "probe", "produce", "fail", topic="t", key="k", exception=exception)
    assert [availability.is_rejection(attempt) for attempt in availability.probe_attempts([failed], "t")] == [rejection]


def probe_attempt(sent_s: float, duration_ms: float, *, rejected: bool = False) -> Event:
    name = "org.apache.kafka.common.errors.NotEnoughRacksException" if rejected else None
    sent_ns = round(sent_s * NS)
    return Event(
        sent_ns + round(duration_ms * 1e6),
        0,
        "probe",
        "produce",
        "fail" if rejected else "ok",
        None,
        {"topic": "t", "key": "k", "exception": name, "sent_ns": sent_ns},
    )


def test_attempts_during_catch_up_begin_after_the_last_rejection() -> None:
    events = [
        probe_attempt(10, 3),
        probe_attempt(11, 5),
        probe_attempt(30, 1, rejected=True),
        probe_attempt(57, 1, rejected=True),
        probe_attempt(57.1, 700),
        probe_attempt(58, 4),
        probe_attempt(70, 900),
    ]
    states = [partition_state(10, "a", "b"), partition_state(25, "a"), partition_state(57.2, "a", "b")]
    attempts = availability.probe_attempts(events, "t")
    figures = availability.catch_up(attempts, FAULT, states, PLAN)
    assert figures == {
        "before": {"attempts": 2, "p50_ms": 4.0, "max_ms": 5.0},
        "after": {"attempts": 2, "p50_ms": 352.0, "max_ms": 700.0},
    }


def test_without_rejections_catch_up_begins_when_the_rack_is_observed_in_the_isr() -> None:
    attempts = availability.probe_attempts([probe_attempt(10, 3), probe_attempt(57, 90), probe_attempt(58, 6)], "t")
    states = [partition_state(10, "a", "b"), partition_state(25, "a"), partition_state(57.5, "a", "b")]
    figures = availability.catch_up(attempts, FAULT, states, PLAN)
    assert figures is not None
    assert (figures["after"]["attempts"], figures["after"]["max_ms"]) == (1, 6.0)
    assert availability.catch_up(attempts, FAULT, states[:2], PLAN) is None
