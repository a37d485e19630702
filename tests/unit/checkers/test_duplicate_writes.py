"""Duplicates are wrong unless an idempotent librdkafka producer may have caused them (librdkafka issue 4953)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from written_histories import Simulated

CLIENT = "confluent"


def history_with_duplicate(
    client: str | None = CLIENT,
    mode: str = "idempotent",
    *,
    at: str = "outage",
    ended: bool = True,
    faults: bool = True,
) -> Sequence[Event]:
    """History in which one record is in the log a second time, behind the others.

    Args:
        client: client name that the producer reports; None if it reports none.
        mode: producer mode.
        at: when the duplicated record was in flight: ``before``, in or ``after`` the ``outage`` of rack b.
        ended: whether the producer logged the record and ended; otherwise it was killed.
        faults: whether the fault is recorded; otherwise only observations show the outage.
    """
    cluster = Simulated(mode=mode)
    cluster.rest(4)
    keys = {"before": cluster.produce()}
    cluster.send(3)
    cluster.rest(2)
    sent = cluster.now
    cluster.lose("b")
    cluster.heal("b")
    # sent in the outage, acknowledged after it
    keys["outage"] = cluster.produce()
    cluster.events[-1] = replace(cluster.events[-1], data={**cluster.events[-1].data, "sent_ns": sent})
    cluster.rest(2)
    keys["after"] = cluster.produce()
    cluster.send(3)
    cluster.write(keys[at])
    if ended:
        cluster.end()
    else:
        cluster.note("test", "killed", None, run=cluster.run)
    cluster.read()
    cluster.stop_and_dump()
    events = [
        replace(event, data={**event.data, "client": client}) if event.op == "intend" and client is not None else event
        for event in cluster.events
        if ended or event.data.get("key") != keys[at]
    ]
    return [event for event in events if faults or event.process != "fault"]


@pytest.mark.parametrize("check", [check_delivery, check_offsets])
@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (history_with_duplicate(), "unknown"),
        (history_with_duplicate(at="before"), "false"),
        (history_with_duplicate(at="after"), "false"),
        # only observations show the outage
        (history_with_duplicate(faults=False), "unknown"),
        (history_with_duplicate(ended=False), "unknown"),
        (history_with_duplicate("patched"), "false"),
        (history_with_duplicate("3.9"), "false"),
    ],
)
def test_a_duplicate_is_unknown_only_where_librdkafka_may_cause_it(
    check: Callable[..., Verdict], events: Sequence[Event], valid: str
) -> None:
    verdict = check(events)
    assert verdict.valid == valid, verdict
    assert valid != "unknown" or "librdkafka 4953" in verdict.because[0]


def test_records_in_another_order_are_wrong() -> None:
    cluster = Simulated(mode="idempotent")
    cluster.rest(4)
    cluster.send(2)
    cluster.lose("b")
    cluster.heal("b")
    for log in cluster.logs.values():
        log.keys.reverse()
    cluster.end()
    cluster.read()
    events = [
        replace(event, data={**event.data, "client": CLIENT}) if event.op == "intend" else event
        for event in cluster.events
    ]
    assert any("behind record" in reason for reason in check_offsets(events).because)
    assert check_offsets(events).valid == "false"


def test_a_duplicate_of_a_client_that_retries_without_idempotence_is_noted() -> None:
    events = [
        replace(event, data={**event.data, "first_only": False, "idempotent": False}) if event.op == "intend" else event
        for event in history_with_duplicate()
    ]
    assert check_delivery(events).valid == "true"
    assert "2 times" in check_delivery(events).notes[0]


def test_a_duplicate_in_a_transaction_is_wrong() -> None:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, "ok")
    cluster.step("kill-rack", "b", "inject")
    cluster.transaction(2, "ok")
    cluster.write("producer-1/t/0/3")
    cluster.end()
    cluster.read()
    events = [
        replace(event, data={**event.data, "client": CLIENT}) if event.op == "intend" else event
        for event in cluster.events
    ]
    assert check_delivery(events).valid == "false"
