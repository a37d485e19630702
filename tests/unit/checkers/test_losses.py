"""Regression tests: losses that a checker once judged true, and correct histories it once judged false."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from pyhooks.checkers import progress
from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.recovery import check_recovery
from pyhooks.checkers.transactions import check_transactions
from pyhooks.history.event_log import Event
from written_histories import (
    MS,
    TIMEOUT,
    Log,
    S,
    Simulated,
    back_again,
    changed,
    drop,
    event,
    is_,
    key,
    outage,
    without,
)

# -- the final read ---------------------------------------------------------------------------------------------------


def test_a_read_before_the_fault_is_no_final_read() -> None:
    cluster = Simulated()
    cluster.rest(4)
    for _ in range(5):
        cluster.produce()
    cluster.end()
    cluster.read()
    cluster.lose("b")
    cluster.heal("b")
    for log in cluster.logs.values():
        log.keys.clear()
    for check in (check_delivery, check_offsets):
        verdict = check(cluster.events)
        assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
        assert all(term in verdict.because[0] for term in ("t: ", "read_uncommitted", "kill-rack b: 'healed'"))


@pytest.mark.parametrize("op", ["arm", "stage"])
def test_faults_of_the_next_arm_do_not_affect_earlier_reads(op: str) -> None:
    cluster = Simulated()
    cluster.rest(4)
    for _ in range(5):
        cluster.produce()
    cluster.end()
    cluster.read()
    cluster.rest(1)
    cluster.events.append(event(cluster.now, "test", op, arm="other"))
    cluster.rest(1)
    cluster.lose("b")
    cluster.heal("b")
    for check in (check_delivery, check_offsets):
        assert check(cluster.events).valid == ("true" if op == "arm" else "unknown")
    # a fault after the read of the same arm
    cluster.read()
    cluster.events.append(event(cluster.now + S, "fault", "kill-rack", rack="b", step="inject"))
    assert check_delivery(cluster.events).valid == "unknown"


def test_a_read_before_a_producer_ends_is_no_final_read() -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.produce()
    cluster.read()
    cluster.end()
    verdict = check_delivery(cluster.events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert all(term in verdict.because[0] for term in ("t: ", "read_uncommitted", "producer-1"))


def partition_read(name: str, number: int, keys: list[str], at_ns: int) -> Event:
    """Read of one of the two partitions of ``t``, which contains ``keys``."""
    return event(
        at_ns, "reader", "read", **cast(dict[str, Any], {"pass": name}), topic="t", partition=number, partitions=2,
        isolation="read_uncommitted", low=0, end=len(keys), begin=0, next=len(keys), keys=keys,
        runs=[[0, len(keys)]] if keys else [],
    )  # fmt: skip


def test_an_incomplete_pass_is_not_completed_from_an_earlier_one() -> None:
    cluster = Simulated()
    cluster.rest(4)
    name = cluster.produce()
    cluster.end()
    first = [partition_read("p1", 0, [name], cluster.now + 1), partition_read("p1", 1, [], cluster.now + 2)]
    second = [partition_read("p2", 0, [name], cluster.now + 3), partition_read("p2", 1, [], cluster.now + 4)]
    complete = [*cluster.events, *first, *second]
    assert check_delivery(complete).valid == "true"
    for number in (0, 1):
        incomplete = without(complete, is_("read", **{"pass": "p2"}, partition=number))
        verdict = check_delivery(incomplete)
        assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
        assert verdict.because[0].startswith(f"t-{number}: no final read")


# -- wipes ------------------------------------------------------------------------------------------------------------

ONE_REPLICA_PER_RACK = {1: "a", 2: "b", 3: "c"}


def rolling_wipes(*, lost: bool, verified: bool = True) -> list[Event]:
    """Three racks are wiped in turn, each in sync again before the next; if ``lost``, no disk has the records then."""
    cluster = Simulated(dict(ONE_REPLICA_PER_RACK))
    cluster.rest(4)
    for _ in range(3):
        cluster.produce()
    cluster.look()
    for rack in ONE_REPLICA_PER_RACK.values():
        cluster.lose(rack, "wipe-rack", wipe=True)
        cluster.heal(rack, "wipe-rack")
    if lost:
        for log in cluster.logs.values():
            log.keys[:] = ["other"] * 3
    cluster.end()
    cluster.stop_and_dump()
    if verified:
        return cluster.events
    return changed(cluster.events, is_("wipe-rack", step="proved"), outcome="unknown")


def test_rolling_wipes_do_not_excuse_a_lost_record() -> None:
    assert check_promise(rolling_wipes(lost=False)).valid == "true"
    verdict = check_promise(rolling_wipes(lost=True))
    assert verdict.valid == "false"
    assert f"record {key(0)}, acknowledged at offset 0, lies in 0 rack(s) (none), 2 are required" in verdict.because[0]


def last_wipe(**change: Any) -> list[Event]:
    """Rack b is wiped once and never returns; ``change`` replaces data of the ``proved`` step."""
    cluster = Simulated({1: "a", 2: "b"})
    cluster.rest(4)
    cluster.produce()
    cluster.rest(2)
    cluster.lose("b", "wipe-rack", wipe=True)
    cluster.end()
    cluster.stop_and_dump()
    return changed(cluster.events, is_("wipe-rack", step="proved"), **change) if change else cluster.events


def test_an_unverified_wipe_excuses_nothing() -> None:
    assert check_promise(last_wipe()).valid == "true"
    assert check_promise(last_wipe(outcome="unknown")).valid == "unknown"


def test_a_record_acknowledged_before_a_wipe_is_verified_may_have_been_on_the_disk() -> None:
    cluster = Simulated({1: "a", 2: "b"})
    cluster.rest(4)
    cluster.produce()
    cluster.rest(2)
    cluster.lose("b", "wipe-rack", wipe=True, until_death=1)
    cluster.end()
    cluster.stop_and_dump()
    verdict = check_promise(cluster.events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert key(1) in verdict.because[0]


def wiped_and_healed(*, verified: bool, observed: bool) -> list[Event]:
    """Rack b is wiped, healed and in sync again, yet its disk is empty at the end."""
    cluster = Simulated({1: "a", 2: "b"})
    cluster.rest(4)
    cluster.produce()
    cluster.rest(2)
    cluster.lose("b", "wipe-rack", wipe=True)
    cluster.heal("b", "wipe-rack")
    cluster.logs[2] = Log()
    cluster.end()
    cluster.stop_and_dump()
    events = cluster.events
    heal_ns = next(entry.mono_ns for entry in events if is_("wipe-rack", step="heal")(entry))
    if not observed:
        events = [entry for entry in events if entry.op != "look" or entry.mono_ns < heal_ns]
    return events if verified else changed(events, is_("wipe-rack", step="healed"), outcome="unknown")


def test_a_wipe_excuses_only_until_the_rack_is_in_sync_again() -> None:
    assert check_promise(wiped_and_healed(verified=True, observed=True)).valid == "false"
    assert check_promise(wiped_and_healed(verified=False, observed=True)).valid == "unknown"
    assert check_promise(wiped_and_healed(verified=True, observed=False)).valid == "unknown"


def after_reassignment(to: dict[int, str], *, lost: bool = False) -> list[Event]:
    """Three racks are required, and a reassignment leaves only the replicas ``to``."""
    cluster = Simulated(dict(ONE_REPLICA_PER_RACK), need_replicas=1, need_racks=3)
    cluster.rest(4)
    cluster.produce()
    cluster.look()
    cluster.racks = dict(to)
    cluster.logs = {broker: Log([] if lost else list(cluster.logs[1].keys)) for broker in to}
    cluster.rest(4)
    cluster.end()
    cluster.stop_and_dump()
    return cluster.events


def test_a_reassignment_to_fewer_replicas_lowers_the_required_racks() -> None:
    assert check_promise(after_reassignment({1: "a", 2: "b"})).valid == "true"
    assert check_promise(after_reassignment({1: "a", 4: "a"})).valid == "unknown", (
        "the reassignment itself removed the racks"
    )
    assert check_promise(after_reassignment({1: "a", 4: "a"}, lost=True)).valid == "false"


@pytest.mark.parametrize("observed", ["before", "after"])
def test_replicas_are_uncertain_without_observations(observed: str) -> None:
    """Replicas move, and observations exist only before or only after the acknowledgement."""
    events = after_reassignment({1: "a"} if observed == "before" else {1: "a", 4: "a"})
    events += [
        event(events[-1].mono_ns, "disks", "disk-end", rack=rack, broker=broker, replicas=[], stopped=True,
              **cast(dict[str, Any], {"pass": "d1"}))
        for broker, rack in ((2, "b"), (3, "c"))
    ]  # fmt: skip
    acked_ns = next(entry.mono_ns for entry in events if is_("produce", "ok")(entry))
    left = [entry for entry in events if entry.op != "look" or (entry.mono_ns < acked_ns) == (observed == "before")]
    assert check_promise(left).valid == "unknown"


def test_replicas_moved_away_and_back_may_be_empty() -> None:
    cluster = Simulated(dict(ONE_REPLICA_PER_RACK), need_replicas=1, need_racks=3)
    cluster.rest(4)
    cluster.produce()
    cluster.look()
    log = cluster.logs[1]
    cluster.racks = {1: "a"}
    cluster.rest(4)
    cluster.racks = dict(ONE_REPLICA_PER_RACK)
    cluster.logs = {1: log, 2: Log(), 3: Log()}
    cluster.down = {2, 3}
    cluster.rest(4)
    cluster.end()
    cluster.stop_and_dump()
    verdict = check_promise(cluster.events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)


# -- progress ---------------------------------------------------------------------------------------------------------


def unobserved_outage(*, failing: bool) -> list[Event]:
    """Unobserved outage with acknowledgements; observations are absent or, with ``failing``, failed."""
    events = outage().finish()
    from_ns, to_ns = (next(entry.mono_ns for entry in events if is_("kill-rack", step=step)(entry)) for step in STEPS)
    observed = [
        event(entry.mono_ns, entry.process, entry.op, "unknown", error="_TRANSPORT") if failing else None
        for entry in events
        if entry.op == "look" and from_ns < entry.mono_ns < to_ns
    ]
    left = [entry for entry in events if entry.op != "look" or not from_ns < entry.mono_ns < to_ns]
    for _ in range(5):
        left = changed(left, is_("produce", "fail"), outcome="ok", exception=None)
    return [*left, *filter(None, observed)]


STEPS = ("inject", "heal")


@pytest.mark.parametrize("failing", [False, True])
def test_a_period_without_observations_is_unknown(failing: bool) -> None:
    verdict = check_progress(unobserved_outage(failing=failing))
    assert verdict.valid == "unknown"
    assert f"not observed during 5 attempts, the first is {key(5)}" in "; ".join(verdict.because)
    assert ("(0 failed observations" in "; ".join(verdict.because)) is not failing


def test_a_history_without_a_judged_attempt_is_unknown() -> None:
    cluster = Simulated()
    cluster.rest(4)
    events = list(cluster.events)
    for seq in range(4):
        sent = S * 2 + seq * 300 * MS
        events.append(
            event(sent + 5 * S, "producer", "produce", "unknown", topic="t", key=key(seq), seq=seq, partition=0,
                  sent_ns=sent, exception=TIMEOUT)
        )  # fmt: skip
    cluster.now += 4 * S
    cluster.look()
    verdict = check_progress([*events, cluster.events[-1]])
    assert verdict.valid == "unknown"
    assert "t-0: no attempt could be judged" in verdict.because


@pytest.mark.parametrize(("patience_s", "valid"), [(1, "unknown"), (5, "true")])
def test_an_insufficient_isr_of_the_patience_time_needs_an_attempt(
    patience_s: float, valid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    without_rejections = [entry for entry in outage().finish() if not is_("produce", "fail")(entry)]
    killed = event(1, "test", "killed", None, run="producer-1")
    events = [*(entry for entry in without_rejections if entry.op != "end"), killed]
    verdict = check_progress(events, attempts_min=0)
    assert verdict.valid == valid
    assert ("t-0: no attempt could be judged while its ISR was too few" in verdict.because) is (valid == "unknown")


# -- delivery and offsets ---------------------------------------------------------------------------------------------


def test_a_record_in_another_partition_is_wrong() -> None:
    cluster = Simulated()
    cluster.rest(4)
    name = cluster.produce()
    cluster.end()
    reads = [partition_read("p1", 0, [], cluster.now + 1), partition_read("p1", 1, [name], cluster.now + 2)]
    verdict = check_delivery([*cluster.events, *reads])
    assert verdict.valid == "false"
    assert f"t: record {name} was sent to partition 0 and was read in partition 1" in verdict.because


def test_a_record_acknowledged_after_the_read_is_not_lost() -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.produce()
    cluster.read()
    cluster.produce()
    cluster.end()
    for check in (check_delivery, check_offsets):
        assert check(cluster.events).valid == "unknown"


# -- transactions -----------------------------------------------------------------------------------------------------


def short_committed_read(end: int, keys: int) -> list[Event]:
    """Two transactions of two records; a read-committed read ends at offset ``end``, after ``keys`` records."""
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, "ok")
    cluster.transaction(2, "ok")
    cluster.end()
    cluster.read()
    cluster.note(
        "reader", "read", **cast(dict[str, Any], {"pass": "c"}),
        topic="t", partition=0, partitions=1, isolation="read_committed", low=0,
        end=end, begin=0, next=end, runs=[[0, keys]], keys=cluster.logs[1].keys[:keys],
    )  # fmt: skip
    return cluster.events


def test_records_held_back_by_an_open_transaction_are_unknown() -> None:
    verdict = check_transactions(short_committed_read(3, 2))
    assert verdict.valid == "unknown"
    assert f"read up to offset 3, and {key(2)} was acknowledged at offset 3" in verdict.because[0]
    missing = check_transactions(short_committed_read(3, 1))
    assert missing.valid == "false", "record 1 is below the end of the read"
    assert f"committed: {key(1)} was not read" in missing.because[0]
    assert check_transactions(short_committed_read(6, 2)).valid == "false", "the read reached the end of the log"


def test_a_transaction_does_not_need_a_record_that_was_never_sent() -> None:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, "ok")
    events = cluster.finish()
    for isolation in ("read_committed", "read_uncommitted"):
        events = drop(events, key(1), is_("read", isolation=isolation))
    fields: dict[str, Any] = {"outcome": "fail", "exception": "_QUEUE_FULL", "offset": None}
    assert check_transactions(events).valid == "false"
    assert check_transactions(changed(events, is_("produce", key=key(1)), **fields)).valid == "true"


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_an_expired_record_is_not_lost_to_a_transaction(outcome: Literal["ok", "unknown"]) -> None:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, outcome)
    cluster.transaction(2, "ok")
    cluster.end()
    cluster.read()
    for low in (1, 2):
        cluster.note(
            "reader", "read", **cast(dict[str, Any], {"pass": f"c{low}"}),
            topic="t", partition=0, partitions=1, isolation="read_committed", low=low,
            end=6, begin=low, next=6, runs=[[low, 2 - low], [3, 2]],
            keys=[*cluster.logs[1].keys[low:2], key(2), key(3)],
        )  # fmt: skip
        verdict = check_transactions(cluster.events)
        assert verdict.valid == "unknown", verdict
        assert f"below the log's first offset, the first is {key(0)}" in "; ".join(verdict.because)
    cluster.note(
        "reader", "read", **cast(dict[str, Any], {"pass": "c3"}), topic="t", partition=0, partitions=1,
        isolation="read_committed", low=1, end=6, begin=1, next=6, runs=[[1, 1], [3, 1]], keys=[key(1), key(2)],
    )  # fmt: skip
    verdict = check_transactions(cluster.events)
    assert f"committed: {key(3)} was not read" in "; ".join(verdict.because), "record 3 is above the first offset"
    assert verdict.valid == "false"


def test_a_record_committed_after_the_read_is_not_lost() -> None:
    cluster = Simulated(mode="transactional")
    cluster.rest(4)
    cluster.transaction(2, "ok")
    cluster.read("c", "read_committed")
    cluster.transaction(2, "ok")
    assert check_transactions(cluster.events).valid == "unknown"
    lost = drop(cluster.events, key(1), is_("read"))
    verdict = check_transactions(lost)
    assert verdict.valid == "false"
    assert f"committed: {key(1)} was not read" in "; ".join(verdict.because)


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_overlapping_faults_end_with_the_last_heal() -> None:
    cluster = Simulated(dict(ONE_REPLICA_PER_RACK), need_replicas=1, need_racks=1)
    cluster.rest(4)
    cluster.lose("a")
    cluster.lose("b", "pause-rack")
    cluster.heal("b", "pause-rack")
    for _ in range(70):
        cluster.produce()
        cluster.rest(1)
    assert check_recovery(cluster.events).valid == "unknown", "rack a was never healed"
    cluster.heal("a")
    cluster.produce()
    cluster.rest(2)
    cluster.end()
    assert check_recovery(cluster.events).valid == "true"
    never_in_sync = [
        entry
        for entry in cluster.events
        if not (entry.op == "look" and entry.data["partitions"]["t-0"]["isr"] == [1, 2, 3])
    ]
    assert check_recovery(never_in_sync).valid != "true"


def test_a_partition_with_too_few_racks_needs_no_acknowledgement() -> None:
    cluster = back_again(need_replicas=1, need_racks=3)
    for _ in range(70):
        cluster.produce()
        cluster.rest(1)
    cluster.end()
    assert check_recovery(cluster.events).valid == "true"
    without_settings = [entry for entry in cluster.events if entry.op != "settings"]
    assert check_recovery(without_settings).valid == "unknown"
    lower_r = changed(cluster.events, is_("settings"), **{"min.insync.racks": 2})
    assert check_recovery(lower_r).valid == "false"


def test_replicas_added_after_a_heal_need_not_be_in_sync() -> None:
    cluster = back_again({1: "a", 2: "b"}, need_replicas=1, need_racks=1)
    cluster.produce()
    heal_ns = next(entry.mono_ns for entry in cluster.events if is_("kill-rack", step="heal")(entry))
    cluster.racks |= {3: "c"}
    cluster.logs[3], cluster.down = Log(), {3}
    cluster.rest(70)
    cluster.end()
    assert check_recovery(cluster.events).valid == "true"

    def without_observations(from_ns: int, to_ns: int) -> list[Event]:
        return [entry for entry in cluster.events if entry.op != "look" or not from_ns < entry.mono_ns < to_ns]

    assert check_recovery(without_observations(heal_ns, cluster.now - S)).valid != "false"
    assert check_recovery(without_observations(0, cluster.now - S)).valid == "unknown", (
        "the replicas at the heal are unknown"
    )


@pytest.mark.parametrize("stays", [True, False])
def test_a_replica_of_another_placement_may_be_late(*, stays: bool) -> None:
    """No observation for longer than the bound; then the placement is the same (``stays``) or another."""
    cluster = back_again({1: "a", 2: "b"}, need_replicas=1, need_racks=1)
    heal_ns = next(entry.mono_ns for entry in cluster.events if is_("kill-rack", step="heal")(entry))
    cluster.events = [entry for entry in cluster.events if entry.op != "look" or entry.mono_ns < heal_ns]
    cluster.produce()
    cluster.now = heal_ns + 61 * S
    cluster.racks, cluster.down = {1: "a", 2: "b"} | ({} if stays else {3: "c"}), {2}
    cluster.logs[3] = Log()
    cluster.rest(4)
    cluster.down = set()
    cluster.rest(4)
    cluster.end()
    assert check_recovery(cluster.events).valid == ("false" if stays else "unknown")


def test_an_attempt_delayed_by_the_next_fault_does_not_count_for_the_heal() -> None:
    cluster = back_again()
    cluster.rest(10)
    sent_ns = cluster.now
    cluster.lose("b")
    cluster.now += 60 * S
    cluster.note("producer", "produce", "unknown", topic="t", key=key(0), seq=0, partition=0, sent_ns=sent_ns,
              exception=TIMEOUT)  # fmt: skip
    cluster.heal("b")
    verdict = check_recovery(cluster.events)
    assert verdict.valid == "unknown"
    assert "kill-rack b: an acknowledgement by t-0: not seen, and not observed later than 0.0 s" in verdict.because[0]


def test_replicas_in_another_rack_after_a_heal_make_the_acknowledgement_unknown() -> None:
    cluster = back_again(need_replicas=1, need_racks=3)
    for _ in range(70):
        cluster.produce()
        cluster.rest(1)
    assert check_recovery(cluster.events).valid == "true", "the racks are too few for an acknowledgement"
    cluster.racks |= {4: "c"}
    cluster.logs[4] = Log(list(cluster.logs[1].keys))
    cluster.rest(4)
    assert check_recovery(cluster.events).valid == "unknown"
