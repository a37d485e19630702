"""Losses that a checker must not judge true, and correct histories that it must not judge false; each was once."""

from __future__ import annotations

from typing import Any, cast

import pytest
from histories import MS, TIMEOUT, Log, S, Simulated, changed, drop, event, is_, key, outage, without

from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.offsets import check_offsets
from pyhooks.checker.progress import check_progress
from pyhooks.checker.promise import check_promise
from pyhooks.checker.recovery import check_recovery
from pyhooks.checker.transactions import check_transactions
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
        at_ns, "reader", "read", **cast(dict[str, Any], {"pass": name}), topic="t", partition=number, partitions=2,
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


# -- progress ---------------------------------------------------------------------------------------------------------


def blind_outage(*, unanswered: bool) -> list[Event]:
    """Nobody sees the outage, and what was refused in it is acknowledged."""
    events = outage().finish()
    from_ns, to_ns = (next(one.mono_ns for one in events if is_("kill-rack", step=step)(one)) for step in STEPS)
    seen = [
        event(one.mono_ns, one.process, one.op, "unknown", error="_TRANSPORT") if unanswered else None
        for one in events
        if one.op == "look" and from_ns < one.mono_ns < to_ns
    ]
    left = [one for one in events if one.op != "look" or not from_ns < one.mono_ns < to_ns]
    for _ in range(5):
        left = changed(left, is_("produce", "fail"), outcome="ok", exception=None)
    return [*left, *filter(None, seen)]


STEPS = ("inject", "heal")


@pytest.mark.parametrize("unanswered", [False, True])
def test_what_nobody_looked_at_is_unknown(unanswered: bool) -> None:
    found = check_progress(blind_outage(unanswered=unanswered))
    assert found.valid == "unknown"
    assert f"nobody saw its state during 5 attempts, the first is {key(5)}" in "; ".join(found.because)
    assert ("(0 looks" in "; ".join(found.because)) is not unanswered


def test_without_an_attempt_that_can_be_judged_nothing_is_fulfilled() -> None:
    made = Simulated()
    made.rest(4)
    events = list(made.events)
    for seq in range(4):
        sent = S * 2 + seq * 300 * MS
        events.append(
            event(sent + 5 * S, "producer", "produce", "unknown", topic="t", key=key(seq), seq=seq, partition=0,
                  sent_ns=sent, exception=TIMEOUT)
        )  # fmt: skip
    made.now += 4 * S
    made.look()
    found = check_progress([*events, made.events[-1]])
    assert found.valid == "unknown"
    assert "t-0: no attempt could be judged while its ISR was enough" in found.because


def test_each_kind_of_state_that_was_seen_needs_an_attempt() -> None:
    silent = [one for one in outage().finish() if not is_("produce", "fail")(one)]
    found = check_progress([*(one for one in silent if one.op != "end"), event(1, "test", "killed", "info",
                                                                                 run="producer-1")])  # fmt: skip
    assert "t-0: no attempt could be judged while its ISR was too few" in found.because


# -- delivery and offsets ---------------------------------------------------------------------------------------------


def test_a_record_in_another_partition_is_wrong() -> None:
    made = Simulated()
    made.rest(4)
    name = made.produce()
    made.end()
    reads = [two_partitions("p1", 0, [], made.now + 1), two_partitions("p1", 1, [name], made.now + 2)]
    found = check_delivery([*made.events, *reads])
    assert found.valid == "false"
    assert f"t: record {name} was sent to partition 0 and was read in partition 1" in found.because


def test_a_record_that_is_acknowledged_after_the_read_is_not_lost() -> None:
    made = Simulated()
    made.rest(4)
    made.produce()
    made.read()
    made.produce()
    made.end()
    for check in (check_delivery, check_offsets):
        assert check(made.events).valid == "unknown"


# -- transactions -----------------------------------------------------------------------------------------------------


def lagging(end: int, keys: int) -> list[Event]:
    """Two transactions of two records; a read of what is committed ends at an offset, after so many records."""
    made = Simulated(mode="transactional")
    made.rest(4)
    made.transaction(2, "ok")
    made.transaction(2, "ok")
    made.end()
    made.read()
    made.note(
        "reader", "read", **cast(dict[str, Any], {"pass": "c"}),
        topic="t", partition=0, partitions=1, isolation="read_committed", low=0,
        end=end, begin=0, next=end, runs=[[0, keys]], keys=made.logs[1].keys[:keys],
    )  # fmt: skip
    return made.events


def test_what_an_open_transaction_holds_back_is_unknown() -> None:
    found = check_transactions(lagging(3, 2))
    assert found.valid == "unknown"
    assert f"read up to offset 3, and {key(2)} was acknowledged at offset 3" in found.because[0]
    below = check_transactions(lagging(3, 1))
    assert below.valid == "false", "this one is below the end"
    assert f"committed: {key(1)} was not read" in below.because[0]
    assert check_transactions(lagging(6, 2)).valid == "false", "nothing is held back"


def test_what_never_left_the_client_is_in_no_transaction() -> None:
    made = Simulated(mode="transactional")
    made.rest(4)
    made.transaction(2, "ok")
    events = made.finish()
    for isolation in ("read_committed", "read_uncommitted"):
        events = drop(events, key(1), is_("read", isolation=isolation))
    told: dict[str, Any] = {"outcome": "fail", "exception": "_QUEUE_FULL", "offset": None}
    assert check_transactions(events).valid == "false"
    assert check_transactions(changed(events, is_("produce", key=key(1)), **told)).valid == "true"


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_faults_that_overlap_are_healed_with_the_last_of_them() -> None:
    made = Simulated(dict(SPREAD), need_replicas=1, need_racks=1)
    made.rest(4)
    made.lose("a")
    made.lose("b", "pause-rack")
    made.heal("b", "pause-rack")
    for _ in range(70):
        made.produce()
        made.rest(1)
    assert check_recovery(made.events).valid == "unknown", "rack a was never healed"
    made.heal("a")
    made.produce()
    made.rest(2)
    made.end()
    assert check_recovery(made.events).valid == "true"
    never = [one for one in made.events if not (one.op == "look" and one.data["partitions"]["t-0"]["isr"] == [1, 2, 3])]
    assert check_recovery(never).valid != "true"


def test_a_partition_in_too_few_racks_owes_no_acknowledgement() -> None:
    made = Simulated(need_replicas=1, need_racks=3)
    made.rest(4)
    made.lose("b")
    made.heal("b")
    for _ in range(70):
        made.produce()
        made.rest(1)
    made.end()
    assert check_recovery(made.events).valid == "true"
    lower = [one for one in made.events if one.op != "settings"]
    assert check_recovery(lower).valid == "unknown"
    lower = changed(made.events, is_("settings"), **{"min.insync.racks": 2})
    assert check_recovery(lower).valid == "false"
