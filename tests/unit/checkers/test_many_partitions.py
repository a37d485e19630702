"""Checker and figures of outages with many partitions: rejected writes, durations and processor time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.many_partitions import check_stops, figures
from pyhooks.history.event_log import Event
from pyhooks.kafka import bulk_topics
from pyhooks.kafka.bulk_topics import BulkTopic
from written_histories import REJECTED, TIMEOUT, TOO_FEW, S, changed, event, is_, probe, without

CYCLES = 2


def history() -> list[Event]:
    """Outages of both arms: stock acknowledges the probes in them, the overlay rejects them."""
    events: list[Event] = []
    now = 0
    for arm in ("stock", "overlay"):
        events.append(event(now, "test", "arm", arm=arm, probed=["gated"]))
        # a new cluster also acknowledges before its first outage
        events.append(probe(now + S, None))
        now += 2 * S
        for cycle in range(CYCLES):
            labels: dict[str, Any] = {"arm": arm, "cycle": cycle}
            events.append(usage(now, "begin", labels, 100))
            events.append(event(now, "fault", "kill", rack="b", step="inject"))
            # until all ISRs have shrunk either outcome may occur
            events.append(probe(now + S, None))
            events.append(probe(now + 9 * S, REJECTED if arm == "overlay" else None))
            now += 10 * S
            events.append(event(now, "test", "reached", what="lost", since_ns=now - 10 * S, **labels))
            events += [probe(now + at * S, REJECTED if arm == "overlay" else None) for at in (1, 2, 3)]
            now += 5 * S
            events.append(usage(now, "end", labels, 100 + 3 * 50))
            events.append(event(now, "fault", "kill", rack="b", step="heal"))
            events.append(probe(now + 5 * S, None))
            events.append(event(now + 5 * S, "test", "reached", what="back", since_ns=now, **labels))
            now += 6 * S
            events.append(event(now, "fault", "kill", rack="b", step="healed"))
    return sorted(events, key=lambda entry: entry.mono_ns)


def usage(at_ns: int, edge: str, labels: dict[str, Any], ticks: int) -> Event:
    return event(at_ns, "test", "stage", edge=edge, hz=100, stage="outage", ticks={"broker-1": [7, ticks]}, **labels)


def probe_key(second: int) -> str:
    return f"p/gated/0/{second * S}"


def without_attempts(from_s: int, to_s: int) -> list[Event]:
    """History without the attempts of an interval."""
    return [entry for entry in history() if entry.op != "produce" or not from_s * S < entry.mono_ns < to_s * S]


def with_timeout() -> list[Event]:
    """History with an additional attempt that times out in an outage of the overlay."""
    events = [*history(), probe(59 * S + 1, TIMEOUT)]
    return sorted(events, key=lambda entry: entry.mono_ns)


def test_rejections_by_the_overlay_and_acknowledgements_by_stock_are_valid() -> None:
    verdict = check_stops(history())
    assert (verdict.valid, verdict.because) == ("true", ())
    rejected = "3 attempts rejected due to too few racks and 0 due to too few replicas, 0 acknowledged, 0 others"
    assert [rejected in note for note in verdict.notes] == [False, False, True, True]


# Stock's outages begin at 2 s and 23 s, the overlay's at 46 s and 67 s. All partitions are reached 10 s later, the heal
# begins after 15 s, and after 20 s an attempt is acknowledged.
@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (
            changed(history(), is_("produce", key=probe_key(57)), outcome="ok", exception=None),
            "false",
            "1 acknowledged",
        ),
        (
            changed(history(), is_("produce", key=probe_key(13)), outcome="fail", exception=REJECTED),
            "false",
            "1 attempts",
        ),
        (
            changed(history(), is_("produce", key=probe_key(57)), exception=TOO_FEW),
            "unknown",
            "due to too few racks and 1 due to",
        ),
        (
            changed(history(), is_("produce", key=probe_key(13)), outcome="fail", exception=TOO_FEW),
            "unknown",
            "racks and 1 due to",
        ),
        (changed(history(), is_("produce", key=probe_key(57)), exception=TIMEOUT), "unknown", "2 attempts rejected"),
        (
            with_timeout(),
            "unknown",
            "3 attempts rejected due to too few racks and 0 due to too few replicas, 0 acknowledged, 1 others",
        ),
        (without_attempts(12, 16), "unknown", "stock, gated: in an outage 0 attempts"),
        (without_attempts(21, 23), "unknown", "stock, gated: nothing acknowledged"),
        (without_attempts(42, 44), "unknown", "stock, gated: nothing acknowledged"),
        (without_attempts(65, 67), "unknown", "overlay, gated: nothing acknowledged"),
        (without(history(), is_("reached", what="back")), "unknown", "or not all in sync, after a heal"),
        ([entry for entry in history() if entry.data.get("arm") != "overlay"], "unknown", "overlay: no outage"),
        (without(history(), is_("reached", what="lost")), "unknown", "did not reach all partitions (0 times)"),
        (without(history(), is_("kill", step="heal"), 3), "unknown", "that was not healed"),
        (without(history(), is_("arm", arm="stock")), "unknown", "an outage of an unknown cluster"),
        (
            changed(history(), is_("arm", arm="stock"), probed=["gated", "unprobed"]),
            "unknown",
            "stock, unprobed: in an outage 0 a",
        ),
    ],
)
def test_other_histories_are_wrong_or_unknown(events: list[Event], valid: str, reason: str) -> None:
    verdict = check_stops(events)
    assert verdict.valid == valid, verdict.because
    assert any(reason in because for because in verdict.because), verdict.because


def test_a_topic_is_judged_only_on_its_own_cluster() -> None:
    other_topic = [
        replace(entry, data={**entry.data, "topic": "own"})
        if entry.op == "produce" and entry.mono_ns > 44 * S
        else entry
        for entry in history()
    ]
    assert check_stops(changed(other_topic, is_("arm", arm="overlay"), probed=["own"])).valid == "true"
    assert check_stops(other_topic).valid == "unknown"


def test_figures_cover_both_arms() -> None:
    found = figures(history())
    assert found["stock"]["rejected_s"] == []
    assert found["overlay"]["rejected_s"] == [9.0] * CYCLES
    for arm in ("stock", "overlay"):
        assert found[arm]["acknowledged_s"] == [5.0] * CYCLES
        assert found[arm]["reached_s"] == {"lost": [10.0] * CYCLES, "back": [5.0] * CYCLES}
        assert found[arm]["processors"] == {"outage": {"broker-1": 0.1}}


def test_figures_exclude_a_restarted_process() -> None:
    labels: dict[str, Any] = {"arm": "stock", "cycle": 0}
    events = [usage(S, "begin", labels, 100), usage(3 * S, "end", labels, 150)]
    assert figures(events)["stock"]["processors"] == {"outage": {"broker-1": 0.25}}
    restarted = changed(events, is_("stage", edge="end"), ticks={"broker-1": [8, 5]})
    assert figures(restarted)["stock"]["processors"] == {}


def test_topics_are_created_in_batches() -> None:
    topics = [
        BulkTopic(name, bulk_topics.rotating(width, ((1, 2), (2, 1))), {})
        for name, width in (("a", 3), ("b", 2), ("c", 9))
    ]
    assert [[topic.name for topic in piece] for piece in bulk_topics.pieces(topics, most=5)] == [["a", "b"], ["c"]]
    assert topics[0].placements == ((1, 2), (2, 1), (1, 2))


def test_the_planted_violation_accept_probe_is_found() -> None:
    for events in planted("accept-probe", history()):
        assert check_stops(events).valid == "false"
