"""Checker of the effect of rejections on the latency of other topics."""

from __future__ import annotations

import random
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.slowdown import ARMS, PROBES_MIN, check_slowdown, figures
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from written_histories import MS, REJECTED, TOO_FEW, S, changed, event, is_, probe, without

ROUNDS, RECORDS = 8, 30


def history(gate: float = 1.0, control: float = 1.0, uneven: float = 0.0) -> list[Event]:
    """Rounds of three blocks in an outage.

    Args:
        gate: latency factor of the arm in which records of another topic are rejected.
        control: latency factor of the control arm.
        uneven: relative variation of ``gate`` between rounds.
    """
    choice = random.Random(1)  # noqa: S311 - no secret
    events = [event(0, "fault", "kill", rack="b", step="inject"), event(1, "fault", "kill", rack="b", step="proved")]
    now = S
    for number in range(ROUNDS):
        # the machine becomes slower from round to round, in all arms
        drift = 1 + number / ROUNDS
        for arm, factor in zip(ARMS, (gate * (1 + uneven * (number % 3 - 1)), 1.0, control), strict=True):
            fields: dict[str, Any] = {"arm": arm, "round": number, "topics": ["other"], "probed": ["gated"]}
            fields["driven"] = ["more"]
            events.append(event(now, "test", "block", edge="begin", **fields))
            events += [
                probe(now + at * 200 * MS, REJECTED if arm == "gate" else None) for at in range(1, PROBES_MIN + 1)
            ]
            # an attempt at the driven topic completes before the next block
            events.append(probe(now + 4 * S, None, 3 * S, mode="idempotent", topic="more"))
            for seq in range(RECORDS):
                now += 100 * MS
                events += record(f"{arm}{number}", seq, now, 10 * drift * factor * choice.uniform(0.998, 1.002))
            events.append(event(now, "test", "block", edge="end", **fields))
            # attempts between blocks are not counted
            events.append(probe(now + S, REJECTED))
            now += 2 * S
    events += [
        event(now, "fault", "kill", rack="b", step="heal"),
        event(now + S, "fault", "kill", rack="b", step="healed"),
    ]
    return sorted_by_time(events)


def sorted_by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda entry: entry.mono_ns)


def record(run: str, seq: int, at_ns: int, latency_ms: float) -> list[Event]:
    key = key_of(run, "other", 0, seq)
    done_ns = at_ns + round(latency_ms * 1e6)
    fields: dict[str, Any] = {
        "topic": "other",
        "key": key,
        "mode": "plain",
        "sent_ns": at_ns - 1,
        "latency_ms": latency_ms,
    }
    fetched: dict[str, Any] = {"topic": "other", "keys": [key], "ago_ms": [1000.0]}
    return [event(done_ns, "producer", "produce", **fields), event(done_ns + S, "follower", "fetched", **fetched)]


def test_rejections_without_effect_on_other_topics_are_valid() -> None:
    verdict = check_slowdown(history())
    assert (verdict.valid, verdict.because) == ("true", ())
    assert any("fetch: while other records are rejected it takes 1.00" in note for note in verdict.notes), verdict.notes


def test_rejections_that_speed_up_other_topics_are_valid() -> None:
    assert check_slowdown(history(0.8)).valid == "true"


def test_rejections_that_slow_down_other_topics_are_wrong() -> None:
    verdict = check_slowdown(history(1.2))
    assert verdict.valid == "false"
    assert any("1.2" in reason for reason in verdict.because)


def acknowledged_probes(events: list[Event]) -> list[Event]:
    """Events with acknowledgements instead of the expected rejections."""
    return [
        probe(entry.mono_ns, None) if entry.data.get("mode") == "probe" and entry.outcome == "fail" else entry
        for entry in events
    ]


def probes_in(events: list[Event], *from_ms: int) -> list[Event]:
    """Events with all probes of the first block within half a second from each of these times."""
    rest = [entry for entry in events if entry.mono_ns > 4 * S or entry.data.get("mode") != "probe"]
    sent_ns = [S + begin * MS + at * 50 * MS for begin in from_ms for at in range(1, PROBES_MIN + 1)]
    return [*rest, *(probe(at_ns, REJECTED) for at_ns in sent_ns)]


def with_other_data(events: list[Event], op: str, **other: Any) -> list[Event]:
    """Events in which the data of an op are replaced."""
    return [
        event(entry.mono_ns, entry.process, op, **{**entry.data, **other}) if entry.op == op else entry
        for entry in events
    ]


# The first block, with rejections, is from 1 s to 4 s; the second one begins at 6 s.
@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (history(1.05, uneven=0.2), "neither below 1.05 nor above"),
        (history(control=1.1), "two identical arms: 1.1"),
        (without(history(), is_("block", edge="end")), "gate, round 0: it did not end"),
        (
            [entry for entry in history() if entry.op != "block" or entry.data["round"] < 5],
            "5 of 5 rounds are complete",
        ),
        ([*history(), *(entry for entry in history() if entry.op == "block")][:-1], "begun twice"),
        (changed(history(), is_("produce", mode="plain"), outcome="unknown"), "29 acknowledged, 29 fetched"),
        (without(history(), is_("fetched")), "30 acknowledged, 29 fetched"),
        ([entry for entry in history() if entry.op != "block"], "0 of 0 rounds"),
        (
            changed(history(), is_("produce", mode="probe"), exception=TOO_FEW),
            "gate, round 0: of 10 attempts at gated 9",
        ),
        ([*history(), probe(7 * S, REJECTED)], "free, round 0: of 11 attempts at gated 1 rejected"),
        (without(history(), is_("produce", mode="probe")), "gate, round 0: of 9 attempts at gated"),
        (probes_in(history(), 0), "gate, round 0: 2.5 s without a result of gated"),
        (probes_in(history(), 2500), "gate, round 0: 2.5 s without a result of gated"),
        (probes_in(history(), 0, 2500), "gate, round 0: 2.0 s without a result of gated"),
        (
            [entry for entry in history() if entry.data.get("topic") != "more"],
            "free, round 7: no record was sent to more",
        ),
        (
            [*history(), probe(8 * S, None, 4 * S, mode="idempotent", topic="more")],
            "free, round 0: 1 records of more that were held back before were sent in it",
        ),
        (with_other_data(history(), "block", probed=[]), "gate, round 0: no topic is measured, probed or driven"),
        (without(history(), is_("kill", step="proved")), "gate, round 0: not within an outage"),
        # slower, but without rejections
        (
            acknowledged_probes(history(1.2)),
            "gate, round 0: of 10 attempts at gated 0 rejected due to too few racks, 10 acknowledged",
        ),
    ],
)
def test_missing_evidence_is_unknown(events: list[Event], reason: str) -> None:
    verdict = check_slowdown(sorted_by_time(events))
    assert verdict.valid == "unknown", verdict.because
    assert any(reason in because for because in verdict.because), verdict.because


@pytest.mark.parametrize("latency_ns", [2 * MS, 2 * S])
def test_a_response_after_its_block_is_not_counted(latency_ns: int) -> None:
    late = probe(4 * S + MS, None, latency_ns)
    assert check_slowdown(sorted_by_time([*history(), late])).valid == "true"


def test_figures_cover_all_arms() -> None:
    found = figures(history(1.2))
    assert set(found["produce"]["latency_ms"]) == set(ARMS)
    assert found["fetch"]["latency_ms"]["free"] == pytest.approx(14.4, rel=0.1)
    (_, ratio, _), (_, control, _) = found["produce"]["ratios"]
    assert (ratio, control) == (pytest.approx(1.2, rel=0.01), pytest.approx(1, rel=0.01))
    assert figures([])["fetch"] == {
        "latency_ms": {},
        "ratios": "0 of 0 rounds are complete; required: all, and at least 6",
    }


def test_the_planted_violation_slow_others_is_found() -> None:
    for events in planted("slow-others", history()):
        assert check_slowdown(events).valid == "false"
