"""What outages stop, take and cost with many partitions, on histories that are written for it."""

from __future__ import annotations

from typing import Any

import pytest
from histories import MS, REFUSED, S, changed, event, is_, without

from pyhooks.checker.wide import check_stops, figures
from pyhooks.cluster import many
from pyhooks.cluster.many import Wide
from pyhooks.history import Event

CYCLES = 2


def history() -> list[Event]:
    """Both arms through outages: stock takes what is probed, the overlay does not, and both do after the heal."""
    made: list[Event] = []
    now = 0
    for arm in ("stock", "overlay"):
        for cycle in range(CYCLES):
            told: dict[str, Any] = {"arm": arm, "cycle": cycle}
            made.append(usage(now, "begin", told, 100))
            made.append(event(now, "fault", "kill", rack="b", step="inject"))
            # before all ISRs are without the rack either may happen
            made.append(probe(now + S, None))
            made.append(probe(now + 9 * S, REFUSED if arm == "overlay" else None))
            now += 10 * S
            made.append(event(now, "test", "reached", what="lost", since_ns=now - 10 * S, **told))
            made += [probe(now + at * S, REFUSED if arm == "overlay" else None) for at in (1, 2, 3)]
            now += 5 * S
            made.append(usage(now, "end", told, 100 + 3 * 50))
            made.append(event(now, "fault", "kill", rack="b", step="heal"))
            made.append(probe(now + 5 * S, None))
            now += 6 * S
            made.append(event(now, "fault", "kill", rack="b", step="healed"))
            made.append(event(now, "test", "reached", what="back", since_ns=now - 6 * S, **told))
    return sorted(made, key=lambda one: one.mono_ns)


def usage(at_ns: int, edge: str, told: dict[str, Any], ticks: int) -> Event:
    return event(at_ns, "test", "stage", edge=edge, hz=100, stage="outage", ticks={"broker-1": [7, ticks]}, **told)


def probe(at_ns: int, exception: str | None) -> Event:
    told: dict[str, Any] = {"topic": "gated", "key": f"p/gated/0/{at_ns}", "mode": "probe", "sent_ns": at_ns - MS}
    told |= {"latency_ms": 1.0} | ({"exception": exception} if exception else {"offset": 1})
    return event(at_ns, "producer", "produce", "fail" if exception else "ok", **told)


def named(second: int) -> str:
    return f"p/gated/0/{second * S}"


def test_the_gate_stops_and_stock_does_not() -> None:
    found = check_stops(history())
    assert (found.valid, found.because) == ("true", ())
    assert found.notes == tuple(f"{arm}: {CYCLES} outages of topics that are probed" for arm in ("stock", "overlay"))


# the overlay's first outage begins at 42 s and has reached all partitions at 52 s
@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (changed(history(), is_("produce", key=named(53)), outcome="ok", exception=None), "false", "1 acknowledged"),
        (changed(history(), is_("produce", key=named(11)), outcome="fail", exception=REFUSED), "false", "1 attempts"),
        ([one for one in history() if one.data.get("exception") != REFUSED], "unknown", "overlay, gated: 0 attempts"),
        (
            [one for one in history() if one.op != "produce" or not 10 * S < one.mono_ns < 15 * S],
            "unknown",
            "stock, gated: 0 attempts refused and 0 acknowledged",
        ),
        ([one for one in history() if one.op != "produce" or one.mono_ns < 63 * S], "unknown", "after a heal"),
        ([one for one in history() if one.data.get("arm") != "overlay"], "unknown", "overlay: no outage"),
        (without(history(), is_("reached", what="lost")), "unknown", "never came to all partitions (0 times)"),
        (without(history(), is_("kill", step="heal"), 3), "unknown", "that was not healed"),
    ],
)
def test_what_else_may_have_been(events: list[Event], valid: str, reason: str) -> None:
    found = check_stops(events)
    assert found.valid == valid, found.because
    assert any(reason in because for because in found.because), found.because


def test_figures_tell_of_both_arms() -> None:
    found = figures(history())
    assert found["stock"]["refused_s"] == []
    assert found["overlay"]["refused_s"] == [9.0] * CYCLES
    for arm in ("stock", "overlay"):
        assert found[arm]["acknowledged_s"] == [5.0] * CYCLES
        assert found[arm]["reached_s"] == {"lost": [10.0] * CYCLES, "back": [6.0] * CYCLES}
        assert found[arm]["processors"] == {"outage": {"broker-1": 0.1}}


def test_a_process_that_was_started_anew_is_left_out() -> None:
    told: dict[str, Any] = {"arm": "stock", "cycle": 0}
    events = [usage(S, "begin", told, 100), usage(3 * S, "end", told, 150)]
    assert figures(events)["stock"]["processors"] == {"outage": {"broker-1": 0.25}}
    other = changed(events, is_("stage", edge="end"), ticks={"broker-1": [8, 5]})
    assert figures(other)["stock"]["processors"] == {}


def test_topics_are_made_in_pieces() -> None:
    wide = [Wide(name, many.rotating(width, ((1, 2), (2, 1))), {}) for name, width in (("a", 3), ("b", 2), ("c", 9))]
    assert [[one.name for one in piece] for piece in many.pieces(wide, most=5)] == [["a", "b"], ["c"]]
    assert wide[0].placements == ((1, 2), (2, 1), (1, 2))
