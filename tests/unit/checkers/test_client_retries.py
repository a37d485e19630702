"""Checker of clients that retry through an outage, on correct, incorrect and incomplete histories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from planted_violations import planted
from pyhooks.checkers.client_retries import check_client_retries, is_known
from pyhooks.history.event_log import Event
from written_histories import REJECTED, TIMEOUT, Simulated, changed, event, is_, outage, without

CLIENT = "patched"


def retried_run(clients: Sequence[str] = (CLIENT,), *, sent_in_outage: bool = True) -> list[Event]:
    """Idempotent producer through an outage; with ``sent_in_outage``, its records are acknowledged after the heal."""
    cluster = Simulated(mode="idempotent")
    cluster.note("test", "ride", None, clients=list(clients))
    cluster.rest(4)
    cluster.send(3)
    cluster.lose("b")
    sent_ns = cluster.now
    cluster.rest(3)
    cluster.heal("b")
    if sent_in_outage:
        first = len(cluster.events)
        cluster.send(3)
        cluster.events[first:] = [
            _with_sent_time(entry, sent_ns) if entry.op == "produce" else entry for entry in cluster.events[first:]
        ]
    cluster.send(2)
    return cluster.finish()


def _with_sent_time(entry: Event, sent_ns: int) -> Event:
    return event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "sent_ns": sent_ns})


def test_records_acknowledged_after_the_heal_are_valid() -> None:
    verdict = check_client_retries(retried_run())
    assert (verdict.valid, verdict.because) == ("true", ())
    assert any("3 records waited" in note for note in verdict.notes)


def test_a_record_that_timed_out_is_wrong() -> None:
    events = changed(retried_run(), is_("produce"), 4, outcome="unknown", exception=TIMEOUT)
    verdict = check_client_retries(events)
    assert verdict.valid == "false"
    assert "was not acknowledged" in verdict.because[0]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("org.apache.kafka.common.errors.UnknownServerException", False),
        ("java.lang.IllegalStateException", False),
        ("UNKNOWN", False),
        ("ERR_137?", False),
        ("", False),
        (REJECTED, True),
        ("org.apache.kafka.common.KafkaException", True),
        ("NOT_ENOUGH_REPLICAS", True),
        ("_MSG_TIMED_OUT", True),
        ("UNKNOWN_TOPIC_OR_PART", True),
    ],
)
def test_known_and_unknown_error_names(name: str, known: bool) -> None:
    assert is_known(name) == known


def test_an_unknown_error_is_wrong_in_a_run_without_retries_too() -> None:
    no_retries = outage()
    no_retries.note("test", "ride", None, clients=[CLIENT])
    idempotent = [entry for entry in retried_run() if entry.op == "produce" or (entry.op in ("intend", "end"))]
    other = [
        event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "run": "other"})
        for entry in idempotent
    ]
    events = sorted([*no_retries.finish(), *other], key=lambda entry: entry.mono_ns)
    assert not any("got" in reason for reason in check_client_retries(events).because)
    bad = changed(events, is_("produce", "fail"), exception="UNKNOWN")
    assert f"{CLIENT}: 1 records got UNKNOWN" in check_client_retries(bad).because
    assert check_client_retries(bad).valid == "false"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (retried_run(sent_in_outage=False), "met an ISR that was too small"),
        (retried_run(["patched", "2.8"]), "2.8: no run that retries"),
        (without(retried_run(), is_("end")), "did not end cleanly"),
        (without(retried_run(), lambda entry: entry.data.get("step") == "healed"), "not healed"),
        ([entry for entry in retried_run() if entry.process != "fault"], "no fault"),
        (without(retried_run(), is_("ride")), "no event names the clients"),
        (changed(retried_run(), is_("produce"), 4, outcome="unknown", exception="not-reported"), "did not report on 1"),
    ],
)
def test_missing_evidence_is_unknown(events: list[Event], reason: str) -> None:
    verdict = check_client_retries(events)
    assert verdict.valid == "unknown"
    assert any(reason in because for because in verdict.because), verdict.because


def test_the_planted_violation_give_up_in_outage_is_found() -> None:
    for events in planted("give-up-in-outage", retried_run()):
        assert check_client_retries(events).valid == "false"
