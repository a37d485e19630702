"""Checker of records that wait in an idle topic until R is lowered, on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.idle_topics import check_idle
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event
from written_histories import S, event, without

TOPIC = "t"
IDLE_S, BEGIN_S, SETTLED_S = 20.0, 21.0, 21.2


def ns(moment_s: float) -> int:
    return round(moment_s * S)


def settings_report(moment_s: float, step: str, racks: int) -> Event:
    fields: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": racks}
    return event(ns(moment_s), "settings", "settings", "ok", topic=TOPIC, step=step, **fields)


def record(moment_s: float, offset: int, run: str = "one") -> Event:
    return event(
        ns(moment_s), "probe", "produce", "ok", run=run, topic=TOPIC, partition=0, offset=offset, seq=offset,
        key=f"{run}/t/0/{offset}", sent_ns=ns(moment_s) - 1000,
    )  # fmt: skip


def intent(run: str, acks: str) -> Event:
    fields: dict[str, Any] = {"first_only": True, "idempotent": False, "acks": acks, "client": "patched"}
    return event(1, "probe", "intend", None, run=run, topic=TOPIC, to={"0": 10}, **fields)


def r_lowered(
    shown_s: float, every_s: float = 0.5, until_s: float = 40.0, *, without_high_watermark: bool = False
) -> list[Event]:
    """Five records wait, R is lowered, and the high watermark includes them from ``shown_s`` on."""
    found = [
        intent("one", "1"),
        intent("all", "all"),
        settings_report(1, "seen", 2),
        *(record(10 + at / 2, at) for at in range(5)),
        event(ns(IDLE_S), "test", "idle", None, topic=TOPIC),
        settings_report(BEGIN_S, "begin", 1),
        settings_report(SETTLED_S, "settled", 1),
    ]
    moment = 0.0
    while (moment := moment + every_s) < until_s:
        high = 5 if moment >= shown_s else 0
        fields: dict[str, Any] = {"run": "v", "asked_ns": ns(moment) - 1000, "next": {"t-0": high}}
        fields["high"] = {} if without_high_watermark else {"t-0": high}
        found.append(event(ns(moment), "viewer", "visible", "ok", **fields))
    return found


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (r_lowered(21.1), "true", ""),
        (r_lowered(22.0), "true", ""),
        # not yet visible in the fetch of 22.5 s
        (r_lowered(23.0), "false", "t-0: record 4 not shown 1.3 s after"),
        (r_lowered(99.0), "false", "t-0: record 4 not shown"),
        # a later write makes waiting records visible even without a reaction to the change
        ([*r_lowered(25.0), record(24.5, 5, "all")], "unknown", "another record was sent"),
        ([*r_lowered(22.0), record(24.5, 5, "all")], "true", ""),
        ([*r_lowered(22.0), record(21.5, 5, "all")], "unknown", "another record was sent"),
        # no read in time
        (r_lowered(22.0, every_s=9.0), "unknown", "no reader learned in time"),
        (r_lowered(99.0, until_s=22.0), "unknown", "no reader learned in time"),
        # no evidence that a record waited
        (r_lowered(15.0), "unknown", "no record is known to have waited"),
        (r_lowered(22.0, without_high_watermark=True), "unknown", "no record is known to have waited"),
        ([entry for entry in r_lowered(22.0) if entry.op != "visible"], "unknown", "no record is known to have waited"),
        ([entry for entry in r_lowered(22.0) if entry.op != "intend"], "unknown", "no record is known to have waited"),
        (without(r_lowered(22.0), lambda entry: entry.data.get("step") == "settled"), "unknown", "no change"),
        ([entry for entry in r_lowered(22.0) if entry.op != "idle"], "unknown", "left idle"),
    ],
)
def test_verdict_on_waiting_records(events: Sequence[Event], valid: str, reason: str) -> None:
    verdict = check_idle(events)
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict


def test_the_checker_applies_to_idle_topics() -> None:
    assert [entry.op for entry in r_lowered(22.0) if CHECKERS["idle"].applies(entry)] == ["idle"]


def test_the_planted_violation_keep_hidden_is_found() -> None:
    for events in planted("keep-hidden", r_lowered(22.0)):
        assert check_idle(events).valid == "false"
