"""Outages with many partitions: what they stop, how long they take and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyhooks.checkers.many_partitions import check_stops, figures
from pyhooks.history.event_log import Event
from pyhooks.kafka import bulk_topics
from pyhooks.kafka.bulk_topics import BulkTopic
from written_histories import REFUSED, TIMEOUT, TOO_FEW, S, changed, event, is_, probe, without

CYCLES = 2


def history() -> list[Event]:
    """Both arms through outages: stock takes what is probed, the overlay does not, and both do after the heal."""
    made: list[Event] = []
    now = 0
    for arm in ("stock", "overlay"):
        made.append(event(now, "test", "arm", arm=arm, probed=["gated"]))
        # a new cluster takes what is tried before its first outage, too
        made.append(probe(now + S, None))
        now += 2 * S
        for cycle in range(CYCLES):
            labels: dict[str, Any] = {"arm": arm, "cycle": cycle}
            made.append(usage(now, "begin", labels, 100))
            made.append(event(now, "fault", "kill", rack="b", step="inject"))
            # before all ISRs are without the rack either may happen
            made.append(probe(now + S, None))
            made.append(probe(now + 9 * S, REFUSED if arm == "overlay" else None))
            now += 10 * S
            made.append(event(now, "test", "reached", what="lost", since_ns=now - 10 * S, **labels))
            made += [probe(now + at * S, REFUSED if arm == "overlay" else None) for at in (1, 2, 3)]
            now += 5 * S
            made.append(usage(now, "end", labels, 100 + 3 * 50))
            made.append(event(now, "fault", "kill", rack="b", step="heal"))
            made.append(probe(now + 5 * S, None))
            made.append(event(now + 5 * S, "test", "reached", what="back", since_ns=now, **labels))
            now += 6 * S
            made.append(event(now, "fault", "kill", rack="b", step="healed"))
    return sorted(made, key=lambda entry: entry.mono_ns)


def usage(at_ns: int, edge: str, labels: dict[str, Any], ticks: int) -> Event:
    return event(at_ns, "test", "stage", edge=edge, hz=100, stage="outage", ticks={"broker-1": [7, ticks]}, **labels)


def named(second: int) -> str:
    return f"p/gated/0/{second * S}"


def between(from_s: int, to_s: int) -> list[Event]:
    """The history without what was tried in a stretch of it."""
    return [entry for entry in history() if entry.op != "produce" or not from_s * S < entry.mono_ns < to_s * S]


def and_silence() -> list[Event]:
    """The history with one more attempt in an outage of the overlay, that gets no answer."""
    made = [*history(), probe(59 * S + 1, TIMEOUT)]
    return sorted(made, key=lambda entry: entry.mono_ns)


def test_the_gate_stops_and_stock_does_not() -> None:
    verdict = check_stops(history())
    assert (verdict.valid, verdict.because) == ("true", ())
    refused = "3 attempts refused due to too few racks and 0 due to too few replicas, 0 acknowledged, 0 others"
    assert [refused in note for note in verdict.notes] == [False, False, True, True]


# Stock's outages begin at 2 s and 23 s, the overlay's at 46 s and 67 s. All partitions are reached 10 s later, the heal
# begins after 15 s, and after 20 s an attempt is acknowledged.
@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (changed(history(), is_("produce", key=named(57)), outcome="ok", exception=None), "false", "1 acknowledged"),
        (changed(history(), is_("produce", key=named(13)), outcome="fail", exception=REFUSED), "false", "1 attempts"),
        (
            changed(history(), is_("produce", key=named(57)), exception=TOO_FEW),
            "unknown",
            "due to too few racks and 1 due to",
        ),
        (
            changed(history(), is_("produce", key=named(13)), outcome="fail", exception=TOO_FEW),
            "unknown",
            "racks and 1 due to",
        ),
        (changed(history(), is_("produce", key=named(57)), exception=TIMEOUT), "unknown", "2 attempts refused"),
        (
            and_silence(),
            "unknown",
            "3 attempts refused due to too few racks and 0 due to too few replicas, 0 acknowledged, 1 others",
        ),
        (between(12, 16), "unknown", "stock, gated: in an outage 0 attempts"),
        (between(21, 23), "unknown", "stock, gated: nothing acknowledged"),
        (between(42, 44), "unknown", "stock, gated: nothing acknowledged"),
        (between(65, 67), "unknown", "overlay, gated: nothing acknowledged"),
        (without(history(), is_("reached", what="back")), "unknown", "or not all in sync, after a heal"),
        ([entry for entry in history() if entry.data.get("arm") != "overlay"], "unknown", "overlay: no outage"),
        (without(history(), is_("reached", what="lost")), "unknown", "did not reach all partitions (0 times)"),
        (without(history(), is_("kill", step="heal"), 3), "unknown", "that was not healed"),
        (without(history(), is_("arm", arm="stock")), "unknown", "an outage of an unknown cluster"),
        (
            changed(history(), is_("arm", arm="stock"), probed=["gated", "mute"]),
            "unknown",
            "stock, mute: in an outage 0 a",
        ),
    ],
)
def test_other_histories_are_wrong_or_unknown(events: list[Event], valid: str, reason: str) -> None:
    verdict = check_stops(events)
    assert verdict.valid == valid, verdict.because
    assert any(reason in because for because in verdict.because), verdict.because


def test_a_topic_is_judged_only_on_its_own_cluster() -> None:
    renamed = [
        replace(entry, data={**entry.data, "topic": "own"})
        if entry.op == "produce" and entry.mono_ns > 44 * S
        else entry
        for entry in history()
    ]
    assert check_stops(changed(renamed, is_("arm", arm="overlay"), probed=["own"])).valid == "true"
    assert check_stops(renamed).valid == "unknown"


def test_figures_cover_both_arms() -> None:
    found = figures(history())
    assert found["stock"]["refused_s"] == []
    assert found["overlay"]["refused_s"] == [9.0] * CYCLES
    for arm in ("stock", "overlay"):
        assert found[arm]["acknowledged_s"] == [5.0] * CYCLES
        assert found[arm]["reached_s"] == {"lost": [10.0] * CYCLES, "back": [5.0] * CYCLES}
        assert found[arm]["processors"] == {"outage": {"broker-1": 0.1}}


def test_a_restarted_process_is_left_out() -> None:
    labels: dict[str, Any] = {"arm": "stock", "cycle": 0}
    events = [usage(S, "begin", labels, 100), usage(3 * S, "end", labels, 150)]
    assert figures(events)["stock"]["processors"] == {"outage": {"broker-1": 0.25}}
    other = changed(events, is_("stage", edge="end"), ticks={"broker-1": [8, 5]})
    assert figures(other)["stock"]["processors"] == {}


def test_topics_are_made_in_pieces() -> None:
    wide = [
        BulkTopic(name, bulk_topics.rotating(width, ((1, 2), (2, 1))), {})
        for name, width in (("a", 3), ("b", 2), ("c", 9))
    ]
    assert [[one.name for one in piece] for piece in bulk_topics.pieces(wide, most=5)] == [["a", "b"], ["c"]]
    assert wide[0].placements == ((1, 2), (2, 1), (1, 2))
