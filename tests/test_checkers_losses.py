"""Losses that a checker must not judge true, and correct histories that it must not judge false; each was once."""

from __future__ import annotations

from typing import Any

from histories import Log, Simulated, changed, event, is_, key, without

from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.offsets import check_offsets
from pyhooks.checker.promise import check_promise
from pyhooks.history import Event

# -- the final read ---------------------------------------------------------------------------------------------------


def test_a_read_before_the_fault_is_no_final_read() -> None:
    made = Simulated()
    made.rest(4)
    for _ in range(5):
        made.produce()
    made.end()
    made.read()
    made.lose("b")
    made.heal("b")
    for log in made.logs.values():
        log.keys.clear()
    for check in (check_delivery, check_offsets):
        found = check(made.events)
        assert found.valid == "unknown"
        assert found.because == ("t: the final read (read_uncommitted) began before kill-rack b: 'healed'",)


def test_a_read_before_a_producer_is_over_is_no_final_read() -> None:
    made = Simulated()
    made.rest(4)
    made.produce()
    made.read()
    made.end()
    assert check_delivery(made.events).because == (
        "t: the final read (read_uncommitted) began before run producer-1 was over",
    )


def two_partitions(name: str, number: int, keys: list[str], at_ns: int) -> Event:
    """A read of one of two partitions of ``t`` that holds these keys."""
    return event(
        at_ns, "reader", "read", **{"pass": name}, topic="t", partition=number, partitions=2,
        isolation="read_uncommitted", low=0, end=len(keys), begin=0, next=len(keys), keys=keys,
        runs=[[0, len(keys)]] if keys else [],
    )  # fmt: skip


def test_an_aborted_pass_is_not_filled_up_from_an_earlier_one() -> None:
    made = Simulated()
    made.rest(4)
    name = made.produce()
    made.end()
    first = [two_partitions("p1", 0, [name], made.now + 1), two_partitions("p1", 1, [], made.now + 2)]
    second = [two_partitions("p2", 0, [name], made.now + 3), two_partitions("p2", 1, [], made.now + 4)]
    whole = [*made.events, *first, *second]
    assert check_delivery(whole).valid == "true"
    for number in (0, 1):
        torn = without(whole, is_("read", **{"pass": "p2"}, partition=number))
        assert check_delivery(torn).because == (f"t-{number}: no final read (read_uncommitted)",)


# -- wipes ------------------------------------------------------------------------------------------------------------

SPREAD = {1: "a", 2: "b", 3: "c"}


def rolling(*, lost: bool, proved: bool = True) -> list[Event]:
    """Three racks are wiped in turn, each in sync again before the next; in the end the records are there, or not."""
    made = Simulated(dict(SPREAD))
    made.rest(4)
    for _ in range(3):
        made.produce()
    made.look()
    for rack in SPREAD.values():
        made.lose(rack, "wipe-rack", wipe=True)
        made.heal(rack, "wipe-rack")
    if lost:
        for log in made.logs.values():
            log.keys[:] = ["other"] * 3
    made.end()
    made.stop_and_dump()
    if proved:
        return made.events
    return changed(made.events, is_("wipe-rack", step="proved"), outcome="unknown")


def test_a_wipe_excuses_a_broker_until_it_is_in_sync_again() -> None:
    assert check_promise(rolling(lost=False)).valid == "true"
    found = check_promise(rolling(lost=True))
    assert found.valid == "false"
    assert f"record {key(0)}, acknowledged at offset 0, lies in 0 rack(s) (none), 2 are required" in found.because[0]


def last_wipe(**change: Any) -> list[Event]:
    """Rack b is wiped once and never comes back; a step of that is changed."""
    made = Simulated({1: "a", 2: "b"})
    made.rest(4)
    made.produce()
    made.look()
    made.lose("b", "wipe-rack", wipe=True)
    made.end()
    made.stop_and_dump()
    return changed(made.events, is_("wipe-rack", step="proved"), **change) if change else made.events


def test_a_wipe_without_proof_excuses_nothing() -> None:
    assert check_promise(last_wipe()).valid == "true"
    assert check_promise(last_wipe(outcome="unknown")).valid == "unknown"


def test_a_record_acknowledged_before_a_wipe_is_proved_may_have_been_on_the_disk() -> None:
    made = Simulated({1: "a", 2: "b"})
    made.rest(4)
    made.produce()
    made.look()
    made.lose("b", "wipe-rack", wipe=True, until_death=1)
    made.end()
    made.stop_and_dump()
    found = check_promise(made.events)
    assert (found.valid, len(found.because)) == ("unknown", 1)
    assert key(1) in found.because[0]


def moved(to: dict[int, str], *, lost: bool = False) -> list[Event]:
    """Three racks are required, and a reassignment leaves only these replicas."""
    made = Simulated(dict(SPREAD), need_replicas=1, need_racks=3)
    made.rest(4)
    made.produce()
    made.look()
    made.racks = dict(to)
    made.logs = {broker: Log([] if lost else list(made.logs[1].keys)) for broker in to}
    made.rest(4)
    made.end()
    made.stop_and_dump()
    return made.events


def test_after_a_reassignment_the_lower_number_of_replicas_counts() -> None:
    assert check_promise(moved({1: "a", 2: "b"})).valid == "true"
    assert check_promise(moved({1: "a", 4: "a"})).valid == "unknown", "who moved them chose that"
    assert check_promise(moved({1: "a", 4: "a"}, lost=True)).valid == "false"
