"""Clients that retry through an outage: histories that the checker accepts, refuses and calls unknown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyhooks.checkers.client_retries import check_client_retries, is_known
from pyhooks.history.event_log import Event
from written_histories import REFUSED, TIMEOUT, Simulated, changed, event, is_, outage, without

CLIENT = "patched"


def ridden(clients: Sequence[str] = (CLIENT,), *, late: bool = True) -> list[Event]:
    """An idempotent producer through an outage: records that are sent in it are acknowledged after the heal."""
    made = Simulated(mode="idempotent")
    made.note("test", "ride", None, clients=list(clients))
    made.rest(4)
    made.send(3)
    made.lose("b")
    sent_ns = made.now
    made.rest(3)
    made.heal("b")
    if late:
        first = len(made.events)
        made.send(3)
        made.events[first:] = [_sent(one, sent_ns) if one.op == "produce" else one for one in made.events[first:]]
    made.send(2)
    return made.finish()


def _sent(one: Event, sent_ns: int) -> Event:
    return event(one.mono_ns, one.process, one.op, one.outcome, **{**one.data, "sent_ns": sent_ns})


def test_records_that_waited_and_were_acknowledged_are_valid() -> None:
    found = check_client_retries(ridden())
    assert (found.valid, found.because) == ("true", ())
    assert any("3 records waited" in note for note in found.notes)


def test_a_record_without_an_acknowledgement_is_wrong() -> None:
    events = changed(ridden(), is_("produce"), 4, outcome="unknown", exception=TIMEOUT)
    found = check_client_retries(events)
    assert found.valid == "false"
    assert "was not acknowledged" in found.because[0]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("org.apache.kafka.common.errors.UnknownServerException", False),
        ("java.lang.IllegalStateException", False),
        ("UNKNOWN", False),
        ("ERR_137?", False),
        ("", False),
        (REFUSED, True),
        ("org.apache.kafka.common.KafkaException", True),
        ("NOT_ENOUGH_REPLICAS", True),
        ("_MSG_TIMED_OUT", True),
        ("UNKNOWN_TOPIC_OR_PART", True),
    ],
)
def test_names_that_a_client_knows(name: str, right: bool) -> None:
    assert is_known(name) == right


def test_an_unknown_error_is_wrong_in_a_run_that_tries_once_too() -> None:
    plain = outage()
    plain.note("test", "ride", None, clients=[CLIENT])
    idempotent = [one for one in ridden() if one.op == "produce" or (one.op in ("intend", "end"))]
    other = [event(one.mono_ns, one.process, one.op, one.outcome, **{**one.data, "run": "other"}) for one in idempotent]
    events = sorted([*plain.finish(), *other], key=lambda one: one.mono_ns)
    assert not any("got" in reason for reason in check_client_retries(events).because)
    bad = changed(events, is_("produce", "fail"), exception="UNKNOWN")
    assert f"{CLIENT}: 1 records got UNKNOWN" in check_client_retries(bad).because
    assert check_client_retries(bad).valid == "false"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (ridden(late=False), "met an ISR that was too small"),
        (ridden(["patched", "2.8"]), "2.8: no run that retries"),
        (without(ridden(), is_("end")), "did not end cleanly"),
        (without(ridden(), lambda one: one.data.get("step") == "healed"), "not healed"),
        ([one for one in ridden() if one.process != "fault"], "no fault"),
        (without(ridden(), is_("ride")), "no event names the clients"),
        (changed(ridden(), is_("produce"), 4, outcome="unknown", exception="not-reported"), "did not report on 1"),
    ],
)
def test_missing_evidence_is_unknown(events: list[Event], reason: str) -> None:
    found = check_client_retries(events)
    assert found.valid == "unknown"
    assert any(reason in because for because in found.because), found.because
