"""Latencies per phase of an outage, and lost records."""

from __future__ import annotations

from typing import Any

import pytest

from ducktape_tests.latencies import (
    AFTER,
    BEFORE,
    CATCHING_UP,
    OUTAGE,
    RETURNING,
    Latency,
    backlog,
    latencies,
    summarize,
)
from pyhooks.checkers.delivery import losses
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from written_histories import S, drop, event, is_, key, outage

INJECT_S, HEAL_S, RESUMED_S, CAUGHT_UP_S, END_S = 20.0, 40.0, 42.0, 46.0, 56.0


def simulate(*, backlog_visible: bool = True, acks_all_resumes: bool = True) -> list[Event]:
    """Simulate a record with acks=1 and one with acks=all each second.

    acks=all fails from the fault to ``RESUMED_S`` and then waits until the backlog is visible, at ``CAUGHT_UP_S``.
    """
    events: list[Event] = []

    def record(at_s: float, process: str, op: str, outcome: Any = "ok", rack: str | None = None, **data: Any) -> None:
        events.append(event(round(at_s * S), process, op, outcome, rack, **data))

    for run, acks in (("one", "1"), ("all", "all")):
        record(0, "producer", "intend", None, run=run, topic="t", acks=acks, first_only=True, idempotent=False, to={})
    for step, at_s in (("inject", INJECT_S), ("heal", HEAL_S)):
        record(at_s, "fault", "cut-rack", None, "b", step=step)
    for second in range(int(END_S)):
        sent: dict[str, Any] = {"topic": "t", "partition": 0, "seq": second, "sent_ns": round((second + 0.5) * S)}
        sent["intended_ns"] = second * S
        for run in ("one", "all"):
            sent |= {"run": run, "key": key_of(run, "t", 0, second)}
            if run == "one":
                record(second + 0.6, "producer", "produce", offset=second, **sent)
            elif INJECT_S <= second < (RESUMED_S if acks_all_resumes else END_S):
                record(second + 0.6, "producer", "produce", "fail", exception="X", **sent)
            else:
                late = RESUMED_S <= second < CAUGHT_UP_S
                record(CAUGHT_UP_S if late else second + 0.75, "producer", "produce", offset=100 + second, **sent)
        read = second if backlog_visible and not INJECT_S <= second < CAUGHT_UP_S else 0
        record(second, "viewer", "visible", run="v", asked_ns=second * S, next={"t-0": read}, high={"t-0": read})
    return events


def test_latencies_in_each_phase_of_an_outage() -> None:
    assert backlog(simulate(), "t").records == 20
    phases = latencies(simulate(), "t")
    assert phases[BEFORE] == Latency(15.0, 15, 0, 750.0, 750.0, 750.0)
    assert phases[OUTAGE] == Latency(20.0, 0, 20, None, None, None)
    assert phases[RETURNING] == Latency(2.0, 0, 2, None, None, None)
    assert phases[CATCHING_UP] == Latency(4.0, 4, 0, 2000.0, 4000.0, 4000.0)
    assert phases[AFTER] == Latency(9.0, 10, 0, 750.0, 750.0, 750.0)


def test_percentiles_are_measured_values() -> None:
    latencies_ms = [float(latency_ms) for latency_ms in range(200, 0, -1)]
    assert summarize(latencies_ms, 3, 1.04) == Latency(1.0, 200, 3, 100.0, 198.0, 200.0)
    assert summarize([7.0], 0, 1.0) == Latency(1.0, 1, 0, 7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "expected one healed fault"),
        ([event for event in simulate() if event.data.get("step") != "heal"], "expected one healed fault"),
        ([*simulate(), *(event for event in simulate() if event.process == "fault")], "found 2 faults"),
        (simulate(backlog_visible=False), "no record accepted with acks=1"),
        (simulate(acks_all_resumes=False), "no record was acknowledged with acks=all"),
        ([event for event in simulate() if event.data.get("run") != "one"], "no record accepted with acks=1"),
        ([event for event in simulate() if event.data.get("run") != "all"], "no record was sent with acks=all"),
    ],
)
def test_undetermined_phases_are_an_error(events: list[Event], message: str) -> None:
    with pytest.raises(RackgateError, match=message):
        latencies(events, "t")


def test_losses_are_counted() -> None:
    events = outage().finish()
    (complete,) = losses(events).values()
    assert (complete.acked, complete.lost) == (10, ())
    assert complete.first_ns < complete.last_ns
    (lossy,) = losses(drop(events, key(2), is_("read"))).values()
    assert (lossy.acked, lossy.lost) == (10, (key(2),))
    # A history without reads shows no loss.
    (unread,) = losses([event for event in events if event.op != "read"]).values()
    assert unread.lost == ()
