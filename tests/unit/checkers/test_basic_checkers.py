"""Checkers of faults, phases and leader succession on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leader_succession import AWAY, BACK, DESTROYED, WRITTEN, check_succession
from pyhooks.checkers import verdict
from pyhooks.checkers.faults import STEPS, check_faults
from pyhooks.checkers.phases import OK, check_phases
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event, Outcome

REJECTED = "org.apache.kafka.common.errors.NotEnoughRacksException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"


def event(at: int, process: str, op: str, outcome: Outcome | None, **data: Any) -> Event:
    return Event(at, at, process, op, outcome, data.pop("rack", None), data)


def fault_steps(*steps: str, bad: str = "", outcome: Outcome | None = "unknown") -> list[Event]:
    """Events of a fault; the step ``bad`` has the given outcome, all others succeed."""
    no_outcome: dict[str, Outcome | None] = {"inject": None, "heal": None}
    return [
        event(index, "fault", "kill-rack", outcome if step == bad else no_outcome.get(step, "ok"), rack="b", step=step)
        for index, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (fault_steps(*STEPS), "true"),
        (fault_steps(*STEPS) + fault_steps(*STEPS), "true"),
        ([], "unknown"),
        (fault_steps(*STEPS, bad="proved"), "unknown"),
        (fault_steps(*STEPS, bad="held"), "unknown"),
        (fault_steps(*STEPS, bad="healed"), "unknown"),
        (fault_steps(*STEPS, bad="proved", outcome="fail"), "false"),
        (fault_steps(*STEPS, bad="held", outcome="fail"), "false"),
        (fault_steps(*STEPS, bad="healed", outcome="fail"), "false"),
        (fault_steps(*STEPS) + fault_steps(*STEPS, bad="healed", outcome="fail"), "false"),
        (fault_steps("before", bad="before", outcome="fail"), "unknown"),
        (fault_steps(*STEPS) + fault_steps("before", bad="before", outcome="fail"), "unknown"),
        (fault_steps(*STEPS[:-1]), "unknown"),
        (fault_steps("before", "inject", "heal", "healed"), "unknown"),
    ],
)
def test_verdict_on_fault_steps(events: list[Event], valid: str) -> None:
    assert check_faults(events).valid == valid


def phase(name: str, begin: int, end: int, expect: str, before: int | None = 0, after: int | None = 0) -> list[Event]:
    """Begin and end of a phase with its expected outcome; ``before`` and ``after`` are log sizes in bytes, if read."""
    edges = (("begin", begin, before), ("end", end, after))
    return [
        event(at, "test", "phase", None, name=name, topic="t", expect=expect, edge=edge)
        if size is None
        else event(at, "test", "phase", None, name=name, topic="t", expect=expect, edge=edge, log_bytes=size)
        for edge, at, size in edges
    ]


def attempt(at: int, outcome: Outcome | None, exception: str | None = None, topic: str = "t") -> Event:
    return event(at, "probe", "produce", outcome, topic=topic, seq=at, key=f"k{at}", exception=exception)


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        ([*phase("p", 0, 9, OK), attempt(1, "ok"), attempt(2, "ok")], "true", ""),
        ([*phase("p", 0, 9, REJECTED), attempt(1, "fail", REJECTED), attempt(2, "fail", REJECTED)], "true", ""),
        ([*phase("p", 0, 9, REJECTED), attempt(1, "fail", REJECTED), attempt(2, "ok")], "false", "seq 2 got ok"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok"), attempt(2, "fail", REJECTED)], "false", "expected ok"),
        ([*phase("p", 0, 9, REJECTED), attempt(1, "fail", "X"), attempt(2, "fail", REJECTED)], "false", "got X"),
        (
            [*phase("p", 0, 9, REJECTED, 0, 70), attempt(1, "fail", REJECTED), attempt(2, "fail", REJECTED)],
            "false",
            "70",
        ),
        (
            [*phase("p", 0, 9, REJECTED, None), attempt(1, "fail", REJECTED), attempt(2, "fail", REJECTED)],
            "unknown",
            "",
        ),
        ([*phase("p", 0, 9, REJECTED), attempt(1, "unknown", TIMEOUT), attempt(2, "fail", REJECTED)], "unknown", ""),
        ([*phase("p", 0, 9, OK), attempt(1, "ok")], "unknown", "1 attempts"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok"), attempt(10, "ok")], "unknown", "1 attempts"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok", topic="u"), attempt(2, "ok", topic="u")], "unknown", "0 attempts"),
        ([attempt(1, "ok")], "unknown", "no phase"),
        ([phase("p", 0, 9, OK)[0], attempt(1, "ok")], "unknown", "without an end"),
        ([phase("p", 0, 9, OK)[1], attempt(1, "ok")], "unknown", "without a beginning"),
    ],
)
def test_verdict_on_phases(events: list[Event], valid: str, reason: str) -> None:
    result = check_phases(events, attempts_min=2)
    assert result.valid == valid
    assert reason in "; ".join(result.because)


def succession_events(
    leader: int = 3, isr_away: Sequence[int] = (1, 2), after: str = "new", *, left_out: str = ""
) -> list[Event]:
    observed = {WRITTEN: ((1, 2, 3), 1), AWAY: (isr_away, 1), DESTROYED: ((), -1), BACK: ((1, 2, 3), leader)}
    events = [
        event(at, "test", "look", "ok", moment=moment, isr=list(isr), leader=leading, elr=[])
        for at, (moment, (isr, leading)) in enumerate(observed.items())
        if moment != left_out
    ]
    ids = {"directory_before": "old", "directory_after": after}
    return events + [
        event(9, "test", "destroy", "ok", broker=broker, **ids) for broker in (1, 2) if left_out != "disks"
    ]


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (succession_events(), "true", ""),
        (succession_events(leader=2), "false", "broker 2 leads instead of 3"),
        (succession_events(isr_away=(1, 2, 3)), "unknown", "holder away: ISR [1, 2, 3], expected [1, 2]"),
        (succession_events(isr_away=(1,)), "unknown", "holder away: ISR [1], expected [1, 2]"),
        (succession_events(after="old"), "unknown", "broker 1 has the same disk"),
        (succession_events(left_out="disks"), "unknown", "no destruction of the disk of broker 1"),
        (succession_events(left_out=BACK), "unknown", "the partition was not observed"),
        (succession_events(left_out=WRITTEN), "unknown", "the partition was not observed"),
        ([], "unknown", "the partition was not observed"),
    ],
)
def test_verdict_on_leader_succession(events: list[Event], valid: str, reason: str) -> None:
    result = check_succession(events, holder=3, destroyed=(1, 2))
    assert result.valid == valid
    assert reason in "; ".join(result.because)


def test_joined_verdicts_have_the_worst_value() -> None:
    good, bad, unknown = Verdict("a", "true"), Verdict("b", "false", ("x",)), Verdict("c", "unknown", ("y",))
    assert verdict.join([good, good]).valid == "true"
    assert verdict.join([good, unknown]).valid == "unknown"
    assert verdict.join([unknown, bad, good]) == Verdict("all", "false", ("c: y", "b: x"))
    assert verdict.join([]).valid == "unknown"
