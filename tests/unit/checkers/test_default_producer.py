"""Producers with default settings in an outage: histories that the checker accepts, refuses and calls unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.checkers.default_producer import check_defaults
from pyhooks.checkers.judgement import judge
from pyhooks.history.event_log import Event, Outcome
from written_histories import REFUSED, TIMEOUT, S, Simulated, event


def defaults(exception: str | None, latency_ms: float, timeout_ms: int | None = 8000, sent: int = 0) -> Event:
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
    """Attempts one after the other while rack b is away: sent so much later than its loss, and so long before the heal.

    Args:
        attempts: of each: what it got, its latency in milliseconds, its timeout.
        early_s: how long before the loss was settled the first one is sent.
        late_s: how long the outage lasts after the last one has failed.
        written: the last one is in the log.
    """
    made = Simulated()
    made.rest(4)
    made.send(3)
    made.lose("b")
    sent, own = made.now - round(early_s * S), []
    for attempt in attempts:
        own.append(defaults(*attempt, sent=sent))
        sent = own[-1].mono_ns + 1
    made.rest((sent - made.now) / S + late_s)
    if written:
        made.write("d/t/0/1")
    made.heal("b")
    made.send(3)
    return sorted([*made.finish(), *own], key=lambda one: one.mono_ns)


TIMED_OUT = (TIMEOUT, 8001.0, 8000)


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (outage(TIMED_OUT), "true", ""),
        (outage(TIMED_OUT, (None, 5.0, 8000)), "true", ""),
        (outage((TIMEOUT, 100.0, 8000)), "false", "before the timeout of 8000 ms"),
        (outage((REFUSED, 8001.0, 8000)), "false", "expected"),
        (outage((TIMEOUT, 8001.0, None)), "unknown", "its delivery timeout is not recorded"),
        (outage((None, 5.0, 8000)), "unknown", "no attempt with default settings failed"),
        (outage(), "unknown", "no attempt with default settings failed"),
        # tried, refused before the append each time, and there
        (outage(TIMED_OUT, written=True), "false", "record d/t/0/1 was read"),
        # its first try, or its last one, may have met enough in sync
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
        ([one for one in outage(TIMED_OUT) if one.op != "read"], "unknown", "no final read"),
        (
            [one for one in outage(TIMED_OUT) if one.op != "look"],
            "unknown",
            "no failed attempt with too few replicas or racks in sync throughout",
        ),
    ],
)
def test_defaults(events: Sequence[Event], valid: str, reason: str) -> None:
    found = check_defaults(events)
    assert (found.valid, reason in "; ".join(found.because)) == (valid, True), found
    asked = "defaults" in {one.checker for one in judge(events)[0]}
    assert asked is any(one.data.get("defaults") for one in events)
