"""Faults, phases and leader succession: histories that their checkers accept, refuse and call unknown."""

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

REFUSED = "org.apache.kafka.common.errors.NotEnoughRacksException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"


def event(at: int, process: str, op: str, outcome: Outcome | None, **data: Any) -> Event:
    return Event(at, at, process, op, outcome, data.pop("rack", None), data)


def fault(*steps: str, bad: str = "", how: Outcome | None = "unknown") -> list[Event]:
    kinds: dict[str, Outcome | None] = {"inject": None, "heal": None}
    return [
        event(index, "fault", "kill-rack", how if step == bad else kinds.get(step, "ok"), rack="b", step=step)
        for index, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (fault(*STEPS), "true"),
        (fault(*STEPS) + fault(*STEPS), "true"),
        ([], "unknown"),
        (fault(*STEPS, bad="proved"), "unknown"),
        (fault(*STEPS, bad="held"), "unknown"),
        (fault(*STEPS, bad="healed"), "unknown"),
        (fault(*STEPS, bad="proved", how="fail"), "false"),
        (fault(*STEPS, bad="held", how="fail"), "false"),
        (fault(*STEPS, bad="healed", how="fail"), "false"),
        (fault(*STEPS) + fault(*STEPS, bad="healed", how="fail"), "false"),
        (fault("before", bad="before", how="fail"), "unknown"),
        (fault(*STEPS) + fault("before", bad="before", how="fail"), "unknown"),
        (fault(*STEPS[:-1]), "unknown"),
        (fault("before", "inject", "heal", "healed"), "unknown"),
    ],
)
def test_faults(events: list[Event], valid: str) -> None:
    assert check_faults(events).valid == valid


def phase(name: str, begin: int, end: int, expect: str, before: int | None = 0, after: int | None = 0) -> list[Event]:
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
        ([*phase("p", 0, 9, REFUSED), attempt(1, "fail", REFUSED), attempt(2, "fail", REFUSED)], "true", ""),
        ([*phase("p", 0, 9, REFUSED), attempt(1, "fail", REFUSED), attempt(2, "ok")], "false", "seq 2 got ok"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok"), attempt(2, "fail", REFUSED)], "false", "expected ok"),
        ([*phase("p", 0, 9, REFUSED), attempt(1, "fail", "X"), attempt(2, "fail", REFUSED)], "false", "got X"),
        ([*phase("p", 0, 9, REFUSED, 0, 70), attempt(1, "fail", REFUSED), attempt(2, "fail", REFUSED)], "false", "70"),
        ([*phase("p", 0, 9, REFUSED, None), attempt(1, "fail", REFUSED), attempt(2, "fail", REFUSED)], "unknown", ""),
        ([*phase("p", 0, 9, REFUSED), attempt(1, "unknown", TIMEOUT), attempt(2, "fail", REFUSED)], "unknown", ""),
        ([*phase("p", 0, 9, OK), attempt(1, "ok")], "unknown", "1 attempts"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok"), attempt(10, "ok")], "unknown", "1 attempts"),
        ([*phase("p", 0, 9, OK), attempt(1, "ok", topic="u"), attempt(2, "ok", topic="u")], "unknown", "0 attempts"),
        ([attempt(1, "ok")], "unknown", "no phase"),
        ([phase("p", 0, 9, OK)[0], attempt(1, "ok")], "unknown", "without an end"),
        ([phase("p", 0, 9, OK)[1], attempt(1, "ok")], "unknown", "without a beginning"),
    ],
)
def test_phases(events: list[Event], valid: str, reason: str) -> None:
    found = check_phases(events, attempts_min=2)
    assert found.valid == valid
    assert reason in "; ".join(found.because)


def succession(leader: int = 3, away: Sequence[int] = (1, 2), after: str = "new", *, left_out: str = "") -> list[Event]:
    looks = {WRITTEN: ((1, 2, 3), 1), AWAY: (away, 1), DESTROYED: ((), -1), BACK: ((1, 2, 3), leader)}
    events = [
        event(at, "test", "look", "ok", moment=moment, isr=list(isr), leader=led, elr=[])
        for at, (moment, (isr, led)) in enumerate(looks.items())
        if moment != left_out
    ]
    ids = {"directory_before": "old", "directory_after": after}
    return events + [
        event(9, "test", "destroy", "ok", broker=broker, **ids) for broker in (1, 2) if left_out != "disks"
    ]


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (succession(), "true", ""),
        (succession(leader=2), "false", "broker 2 leads instead of 3"),
        (succession(away=(1, 2, 3)), "unknown", "holder away: ISR [1, 2, 3], expected [1, 2]"),
        (succession(away=(1,)), "unknown", "holder away: ISR [1], expected [1, 2]"),
        (succession(after="old"), "unknown", "broker 1 has the same disk"),
        (succession(left_out="disks"), "unknown", "no destruction of the disk of broker 1"),
        (succession(left_out=BACK), "unknown", "the partition was not observed"),
        (succession(left_out=WRITTEN), "unknown", "the partition was not observed"),
        ([], "unknown", "the partition was not observed"),
    ],
)
def test_succession(events: list[Event], valid: str, reason: str) -> None:
    found = check_succession(events, holder=3, destroyed=(1, 2))
    assert found.valid == valid
    assert reason in "; ".join(found.because)


def test_the_worst_verdict_wins() -> None:
    good, bad, dark = Verdict("a", "true"), Verdict("b", "false", ("x",)), Verdict("c", "unknown", ("y",))
    assert verdict.join([good, good]).valid == "true"
    assert verdict.join([good, dark]).valid == "unknown"
    assert verdict.join([dark, bad, good]) == Verdict("all", "false", ("c: y", "b: x"))
    assert verdict.join([]).valid == "unknown"
