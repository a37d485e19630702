"""Checker of producers with default settings in an outage, on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.default_producer import check_defaults
from pyhooks.checkers.judgement import judge
from pyhooks.history.event_log import Event, Outcome
from written_histories import REJECTED, TIMEOUT, S, Simulated, event


def attempt(exception: str | None, latency_ms: float, timeout_ms: int | None = 8000, sent: int = 0) -> Event:
    outcome: Outcome | None = "unknown" if exception else "ok"
    more: dict[str, Any] = {} if timeout_ms is None else {"delivery_timeout_ms": timeout_ms}
    done_ns = sent + round(latency_ms * 1_000_000)
    return event(
        done_ns, "probe", "produce", outcome, run="d", topic="t", partition=0, seq=1, key="d/t/0/1", defaults=True,
        exception=exception, latency_ms=latency_ms, sent_ns=sent, **more,
    )  # fmt: skip


def outage(
    *attempts: tuple[str | None, float, int | None], early_s: float = 0.0, late_s: float = 4.0, written: bool = False
) -> list[Event]:
    """Outage of rack b with consecutive attempts of a producer with default settings.

    Args:
        attempts: exception or None, latency in ms and delivery timeout in ms of each attempt.
        early_s: seconds from the first send until the loss has settled.
        late_s: seconds from the last failure until the heal.
        written: whether the record is in the log.
    """
    cluster = Simulated()
    cluster.rest(4)
    cluster.send(3)
    cluster.lose("b")
    sent, attempt_events = cluster.now - round(early_s * S), []
    for fields in attempts:
        attempt_events.append(attempt(*fields, sent=sent))
        sent = attempt_events[-1].mono_ns + 1
    cluster.rest((sent - cluster.now) / S + late_s)
    if written:
        cluster.write("d/t/0/1")
    cluster.heal("b")
    cluster.send(3)
    return sorted([*cluster.finish(), *attempt_events], key=lambda entry: entry.mono_ns)


TIMED_OUT = (TIMEOUT, 8001.0, 8000)


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (outage(TIMED_OUT), "true", ""),
        (outage(TIMED_OUT, (None, 5.0, 8000)), "true", ""),
        (outage((TIMEOUT, 100.0, 8000)), "false", "before the timeout of 8000 ms"),
        (outage((REJECTED, 8001.0, 8000)), "false", "expected"),
        (outage((TIMEOUT, 8001.0, None)), "unknown", "its delivery timeout is not recorded"),
        (outage((None, 5.0, 8000)), "unknown", "no attempt with default settings failed"),
        (outage(), "unknown", "no attempt with default settings failed"),
        # every attempt was rejected before the append, yet the record is in the log
        (outage(TIMED_OUT, written=True), "false", "record d/t/0/1 was read"),
        # the ISR may have been sufficient at the first or last attempt
        (
            outage(TIMED_OUT, early_s=6, written=True),
            "unknown",
            "no failed attempt with too few replicas or racks in sync throughout",
        ),
        (
            outage(TIMED_OUT, late_s=1, written=True),
            "unknown",
            "no failed attempt with too few replicas or racks in sync throughout",
        ),
        ([entry for entry in outage(TIMED_OUT) if entry.op != "read"], "unknown", "no final read"),
        (
            [entry for entry in outage(TIMED_OUT) if entry.op != "look"],
            "unknown",
            "no failed attempt with too few replicas or racks in sync throughout",
        ),
    ],
)
def test_verdict_on_default_producers(events: Sequence[Event], valid: str, reason: str) -> None:
    verdict = check_defaults(events)
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict
    applies = "defaults" in {judged.checker for judged in judge(events)[0]}
    assert applies is any(entry.data.get("defaults") for entry in events)


def test_the_planted_violation_show_cause_to_default_is_found() -> None:
    for events in planted("show-cause-to-default", outage(TIMED_OUT)):
        assert check_defaults(events).valid == "false"
