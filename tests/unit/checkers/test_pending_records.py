"""Records that wait in an idle topic when R is lowered: histories that are accepted, refused and called unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.checkers.idle_topics import check_idle
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event
from written_histories import S, event, without

TOPIC = "t"
LEFT, BEGUN, SETTLED = 20.0, 21.0, 21.2


def ns(moment_s: float) -> int:
    return round(moment_s * S)


def required(moment_s: float, step: str, racks: int) -> Event:
    fields: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": racks}
    return event(ns(moment_s), "settings", "settings", "ok", topic=TOPIC, step=step, **fields)


def record(moment_s: float, offset: int, run: str = "one") -> Event:
    return event(
        ns(moment_s), "probe", "produce", "ok", run=run, topic=TOPIC, partition=0, offset=offset, seq=offset,
        key=f"{run}/t/0/{offset}", sent_ns=ns(moment_s) - 1000,
    )  # fmt: skip


def runs(run: str, acks: str) -> Event:
    fields: dict[str, Any] = {"first_only": True, "idempotent": False, "acks": acks, "client": "patched"}
    return event(1, "probe", "intend", None, run=run, topic=TOPIC, to={"0": 10}, **fields)


def lowered(shown_s: float, every_s: float = 0.5, until_s: float = 40.0, *, silent: bool = False) -> list[Event]:
    """Five records wait, R is lowered, and a reader reports them from some time on."""
    found = [
        runs("one", "1"),
        runs("all", "all"),
        required(1, "seen", 2),
        *(record(10 + at / 2, at) for at in range(5)),
        event(ns(LEFT), "test", "idle", None, topic=TOPIC),
        required(BEGUN, "begin", 1),
        required(SETTLED, "settled", 1),
    ]
    moment = 0.0
    while (moment := moment + every_s) < until_s:
        high = 5 if moment >= shown_s else 0
        fields: dict[str, Any] = {"run": "v", "asked_ns": ns(moment) - 1000, "next": {"t-0": high}}
        fields["high"] = {} if silent else {"t-0": high}
        found.append(event(ns(moment), "viewer", "visible", "ok", **fields))
    return found


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        (lowered(21.1), "true", ""),
        (lowered(22.0), "true", ""),
        # asked at 22.5 it was not there
        (lowered(23.0), "false", "t-0: record 4 not shown 1.3 s after"),
        (lowered(99.0), "false", "t-0: record 4 not shown"),
        # a write shows what waited before it, gate or no gate
        ([*lowered(25.0), record(24.5, 5, "all")], "unknown", "another record was sent"),
        ([*lowered(22.0), record(24.5, 5, "all")], "true", ""),
        ([*lowered(22.0), record(21.5, 5, "all")], "unknown", "another record was sent"),
        # no report of a reader in time
        (lowered(22.0, every_s=9.0), "unknown", "no reader learned in time"),
        (lowered(99.0, until_s=22.0), "unknown", "no reader learned in time"),
        # no report of a waiting record
        (lowered(15.0), "unknown", "no record is known to have waited"),
        (lowered(22.0, silent=True), "unknown", "no record is known to have waited"),
        ([entry for entry in lowered(22.0) if entry.op != "visible"], "unknown", "no record is known to have waited"),
        ([entry for entry in lowered(22.0) if entry.op != "intend"], "unknown", "no record is known to have waited"),
        (without(lowered(22.0), lambda entry: entry.data.get("step") == "settled"), "unknown", "no change"),
        ([entry for entry in lowered(22.0) if entry.op != "idle"], "unknown", "left idle"),
    ],
)
def test_waiting_records_become_visible(events: Sequence[Event], valid: str, reason: str) -> None:
    verdict = check_idle(events)
    assert (verdict.valid, reason in "; ".join(verdict.because)) == (valid, True), verdict


def test_the_checker_applies_to_idle_topics() -> None:
    assert [entry.op for entry in lowered(22.0) if CHECKERS["idle"].applies(entry)] == ["idle"]
