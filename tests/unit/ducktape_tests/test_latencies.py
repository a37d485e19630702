"""Latencies in the parts of an outage, and losses."""

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

INJECT_S, HEAL_S, WHOLE_S, SHOWN_S, END_S = 20.0, 40.0, 42.0, 46.0, 56.0


def simulated(*, shown: bool = True, acked: bool = True) -> list[Event]:
    """A record with acks=1 and one with acks=all each second; the second waits until the backlog is read."""
    found: list[Event] = []

    def note(at_s: float, process: str, op: str, outcome: Any = "ok", rack: str | None = None, **data: Any) -> None:
        found.append(event(round(at_s * S), process, op, outcome, rack, **data))

    for run, acks in (("one", "1"), ("all", "all")):
        note(0, "producer", "intend", None, run=run, topic="t", acks=acks, first_only=True, idempotent=False, to={})
    for step, at_s in (("inject", INJECT_S), ("heal", HEAL_S)):
        note(at_s, "fault", "cut-rack", None, "b", step=step)
    for second in range(int(END_S)):
        sent: dict[str, Any] = {"topic": "t", "partition": 0, "seq": second, "sent_ns": round((second + 0.5) * S)}
        sent["intended_ns"] = second * S
        for run in ("one", "all"):
            sent |= {"run": run, "key": key_of(run, "t", 0, second)}
            if run == "one":
                note(second + 0.6, "producer", "produce", offset=second, **sent)
            elif INJECT_S <= second < (WHOLE_S if acked else END_S):
                note(second + 0.6, "producer", "produce", "fail", exception="X", **sent)
            else:
                late = WHOLE_S <= second < SHOWN_S
                note(SHOWN_S if late else second + 0.75, "producer", "produce", offset=100 + second, **sent)
        read = second if shown and not INJECT_S <= second < SHOWN_S else 0
        note(second, "viewer", "visible", run="v", asked_ns=second * S, next={"t-0": read}, high={"t-0": read})
    return found


def test_latencies_in_each_part_of_an_outage() -> None:
    assert backlog(simulated(), "t").records == 20
    found = latencies(simulated(), "t")
    assert found[BEFORE] == Latency(15.0, 15, 0, 750.0, 750.0, 750.0)
    assert found[OUTAGE] == Latency(20.0, 0, 20, None, None, None)
    assert found[RETURNING] == Latency(2.0, 0, 2, None, None, None)
    assert found[CATCHING_UP] == Latency(4.0, 4, 0, 2000.0, 4000.0, 4000.0)
    assert found[AFTER] == Latency(9.0, 10, 0, 750.0, 750.0, 750.0)


def test_percentiles_are_measured_values() -> None:
    assert summarize([float(one) for one in range(200, 0, -1)], 3, 1.04) == Latency(1.0, 200, 3, 100.0, 198.0, 200.0)
    assert summarize([7.0], 0, 1.0) == Latency(1.0, 1, 0, 7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "expected one healed fault"),
        ([one for one in simulated() if one.data.get("step") != "heal"], "expected one healed fault"),
        ([*simulated(), *(one for one in simulated() if one.process == "fault")], "found 2 faults"),
        (simulated(shown=False), "no record accepted with acks=1"),
        (simulated(acked=False), "no record was acknowledged with acks=all"),
        ([one for one in simulated() if one.data.get("run") != "one"], "no record accepted with acks=1"),
        ([one for one in simulated() if one.data.get("run") != "all"], "no record was sent with acks=all"),
    ],
)
def test_undetermined_parts_are_an_error(events: list[Event], message: str) -> None:
    with pytest.raises(RackgateError, match=message):
        latencies(events, "t")


def test_losses_are_counted() -> None:
    events = outage().finish()
    (whole,) = losses(events).values()
    assert (whole.acked, whole.lost) == (10, ())
    assert whole.first_ns < whole.last_ns
    (one,) = losses(drop(events, key(2), is_("read"))).values()
    assert (one.acked, one.lost) == (10, (key(2),))
    # without any read
    (unread,) = losses([event for event in events if event.op != "read"]).values()
    assert unread.lost == ()
