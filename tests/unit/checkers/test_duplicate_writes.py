"""A record written twice is wrong, unless an idempotent librdkafka may have written it twice by itself."""

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


def twice(
    client: str | None = CLIENT,
    mode: str = "idempotent",
    *,
    at: str = "outage",
    noted: bool = True,
    faults: bool = True,
) -> Sequence[Event]:
    """Records, one of which is there once more behind the others.

    Args:
        client: of the producer, as it tells.
        mode: of the producer.
        at: when that record was under way: before the outage of rack b, in it, or after it.
        noted: its producer tells of it; else it was killed.
        faults: the fault is recorded; else only observations show the outage.
    """
    made = Simulated(mode=mode)
    made.rest(4)
    victims = {"before": made.produce()}
    made.send(3)
    made.rest(2)
    sent = made.now
    made.lose("b")
    made.heal("b")
    # sent in the outage, acknowledged after it
    victims["outage"] = made.produce()
    made.events[-1] = replace(made.events[-1], data={**made.events[-1].data, "sent_ns": sent})
    made.rest(2)
    victims["after"] = made.produce()
    made.send(3)
    made.write(victims[at])
    if noted:
        made.end()
    else:
        made.note("test", "killed", None, run=made.run)
    made.read()
    made.stop_and_dump()
    found = [
        replace(one, data={**one.data, "client": client}) if one.op == "intend" and client is not None else one
        for one in made.events
        if noted or one.data.get("key") != victims[at]
    ]
    return [one for one in found if faults or one.process != "fault"]


@pytest.mark.parametrize("check", [check_delivery, check_offsets])
@pytest.mark.parametrize(
    ("events", "valid"),
    [
        (twice(), "unknown"),
        (twice(at="before"), "false"),
        (twice(at="after"), "false"),
        # only observations show the outage
        (twice(faults=False), "unknown"),
        (twice(noted=False), "unknown"),
        (twice("patched"), "false"),
        (twice("3.9"), "false"),
    ],
)
def test_a_duplicate_is_unknown_only_where_librdkafka_may_cause_it(
    check: Callable[..., Verdict], events: Sequence[Event], valid: str
) -> None:
    found = check(events)
    assert found.valid == valid, found
    assert valid != "unknown" or "librdkafka 4953" in found.because[0]


def test_a_single_record_out_of_order_is_wrong() -> None:
    made = Simulated(mode="idempotent")
    made.rest(4)
    made.send(2)
    made.lose("b")
    made.heal("b")
    for log in made.logs.values():
        log.keys.reverse()
    made.end()
    made.read()
    events = [replace(one, data={**one.data, "client": CLIENT}) if one.op == "intend" else one for one in made.events]
    assert any("behind record" in why for why in check_offsets(events).because)
    assert check_offsets(events).valid == "false"


def test_a_duplicate_of_a_client_that_may_retry_is_a_note() -> None:
    found = [
        replace(one, data={**one.data, "first_only": False, "idempotent": False}) if one.op == "intend" else one
        for one in twice()
    ]
    assert check_delivery(found).valid == "true"
    assert "2 times" in check_delivery(found).notes[0]


def test_a_duplicate_in_a_transaction_is_wrong() -> None:
    made = Simulated(mode="transactional")
    made.rest(4)
    made.transaction(2, "ok")
    made.step("kill-rack", "b", "inject")
    made.transaction(2, "ok")
    made.write("producer-1/t/0/3")
    made.end()
    made.read()
    events = [replace(one, data={**one.data, "client": CLIENT}) if one.op == "intend" else one for one in made.events]
    assert check_delivery(events).valid == "false"
