"""What an outage does to other topics, with the gate and without it, on histories that are written for it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from histories import MS, REFUSED, S, changed, event, is_, without

from pyhooks.checker.slowdown import check_slowdown, figures
from pyhooks.cluster import many
from pyhooks.cluster.many import Wide
from pyhooks.history import Event
from pyhooks.workload.records import key_of

CYCLES, BLOCKS, RECORDS = 2, 3, 30
# so much does an outage slow others on stock
STOCK_FACTOR = 1.3


def history(overlay_factor: float = STOCK_FACTOR, drift: float = 1.0, uneven: float = 0.0) -> list[Event]:
    """Two arms; in an outage latencies are longer by a factor.

    Args:
        overlay_factor: that of the overlay.
        drift: by what every second block of both arms is longer.
        uneven: by what the overlay's blocks in an outage differ from each other.
    """
    choice = random.Random(1)  # noqa: S311 - no secret
    made: list[Event] = []
    now = 0
    for arm, factor in (("stock", STOCK_FACTOR), ("overlay", overlay_factor)):
        for cycle in range(CYCLES):
            for stage, slowed in (("before", 1.0), ("outage", factor)):
                told: dict[str, Any] = {"arm": arm, "stage": stage, "cycle": cycle}
                if stage == "outage":
                    now += S
                    made.append(event(now, "fault", "kill", rack="b", step="inject"))
                    made.append(probe(now + 9 * S, "fail"))
                    now += 10 * S
                    made.append(event(now, "test", "reached", what="lost", since_ns=now - 10 * S, **told))
                made.append(usage(now, "begin", told, 100))
                for number in range(BLOCKS):
                    about = {**told, "number": number, "topics": ["other"]}
                    made.append(event(now, "test", "block", edge="begin", **about))
                    factors = slowed * (drift if number % 2 else 1.0)
                    if (arm, stage) == ("overlay", "outage"):
                        factors *= 1 + uneven * (number - 1)
                    for seq in range(RECORDS):
                        now += 100 * MS
                        latency_ms = 10 * factors * choice.uniform(0.998, 1.002)
                        made += record(f"{arm}{cycle}{stage}{number}", seq, now, latency_ms)
                    made.append(event(now, "test", "block", edge="end", **about))
                made.append(usage(now, "end", told, 100 + now // S))
                if stage == "outage":
                    made.append(event(now, "fault", "kill", rack="b", step="heal"))
                    made.append(probe(now + 5 * S, "ok"))
                    now += 6 * S
                    made.append(event(now, "fault", "kill", rack="b", step="healed"))
    return sorted(made, key=lambda one: one.mono_ns)


def usage(at_ns: int, edge: str, told: dict[str, Any], ticks: int) -> Event:
    return event(at_ns, "test", "stage", edge=edge, hz=100, ticks={"broker-1": [7, ticks]}, **told)


def probe(at_ns: int, outcome: Any) -> Event:
    told: dict[str, Any] = {"topic": "gated", "key": f"p/gated/0/{at_ns}", "mode": "probe", "sent_ns": at_ns - MS}
    told |= {"latency_ms": 1.0} | ({"exception": REFUSED} if outcome == "fail" else {"offset": 1})
    return event(at_ns, "producer", "produce", outcome, **told)


def record(run: str, seq: int, at_ns: int, latency_ms: float) -> list[Event]:
    key = key_of(run, "other", 0, seq)
    done_ns = at_ns + round(latency_ms * 1e6)
    told: dict[str, Any] = {
        "topic": "other",
        "key": key,
        "mode": "plain",
        "sent_ns": at_ns - 1,
        "latency_ms": latency_ms,
    }
    come: dict[str, Any] = {"topic": "other", "keys": [key], "ago_ms": [1000.0]}
    return [event(done_ns, "producer", "produce", **told), event(done_ns + S, "follower", "fetched", **come)]


def test_an_outage_that_slows_both_alike() -> None:
    found = check_slowdown(history())
    assert (found.valid, found.because) == ("true", ())
    assert any("fetch: an outage slows others 1.00" in note for note in found.notes), found.notes


def test_one_that_slows_the_overlay_less() -> None:
    assert check_slowdown(history(STOCK_FACTOR * 0.8)).valid == "true"


def test_one_that_slows_the_overlay_more() -> None:
    found = check_slowdown(history(STOCK_FACTOR * 1.2))
    assert found.valid == "false"
    assert any("1.2" in reason for reason in found.because)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (history(STOCK_FACTOR * 1.05, uneven=0.2), "neither below 1.05 nor above"),
        (history(drift=1.4), "two halves of what came before outages differ"),
        (without(history(), is_("block", edge="end")), "pairs of blocks are whole"),
        (changed(history(), is_("produce", mode="plain"), outcome="unknown"), "1 records of the other topics were not"),
        ([one for one in history() if one.op != "fetched"], "0 latencies of fetch"),
        ([one for one in history() if one.op != "block"], "0 of 0 pairs"),
    ],
)
def test_what_is_not_settled_is_unknown(events: list[Event], reason: str) -> None:
    found = check_slowdown(events)
    assert found.valid == "unknown", found.because
    assert any(reason in because for because in found.because), found.because


def test_figures_tell_of_both_arms() -> None:
    found = figures(history())
    for arm in ("stock", "overlay"):
        assert found[arm]["probed_s"] == {"refused": [9.0] * CYCLES, "acknowledged": [5.0] * CYCLES}
        assert found[arm]["reached_s"] == {"lost": [10.0] * CYCLES}
        assert found[arm]["latency_ms"]["produce"]["before"] == pytest.approx(10, rel=0.01)
        assert found[arm]["latency_ms"]["fetch"]["outage"] == pytest.approx(13, rel=0.01)
    assert set(found["stock"]["processors"]) == {"before", "outage"}
    assert found["produce_slowdown"][0][1] == pytest.approx(1, abs=0.01)


def test_a_process_that_was_started_anew_is_left_out() -> None:
    told: dict[str, Any] = {"arm": "stock", "stage": "heal", "cycle": 0}
    events = [usage(S, "begin", told, 100), usage(3 * S, "end", told, 150)]
    assert figures(events)["stock"]["processors"] == {"heal": {"broker-1": 0.25}}
    other = changed(events, is_("stage", edge="end"), ticks={"broker-1": [8, 5]})
    assert figures(other)["stock"]["processors"] == {}


def test_topics_are_made_in_pieces() -> None:
    wide = [Wide(name, many.rotating(width, ((1, 2), (2, 1))), {}) for name, width in (("a", 3), ("b", 2), ("c", 9))]
    assert [[one.name for one in piece] for piece in many.pieces(wide, most=5)] == [["a", "b"], ["c"]]
    assert wide[0].placements == ((1, 2), (2, 1), (1, 2))
