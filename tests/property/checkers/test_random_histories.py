"""Checkers on random histories: a correct cluster is never judged wrong, and a planted defect is never judged right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.faults import check_faults
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.rack_spread import CLOCK_NS, check_spread
from pyhooks.checkers.realtime_order import check_realtime_order
from pyhooks.checkers.recovery import check_recovery
from pyhooks.checkers.rejections import check_rejections
from pyhooks.checkers.transactions import check_transactions
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from random_cluster import BYTES, STEP_NS
from random_cluster_parts import Sent
from random_runs import Run, excused, known, runs, settled
from written_histories import S, changed, drop, is_

# A cluster recovers within 6 s of the beginning of a heal.
BOUND_S = 12.0


def recovery(events: Sequence[Event]) -> Verdict:
    return check_recovery(events, isr_s=BOUND_S, ack_s=BOUND_S)


CHECKS: tuple[Callable[[Sequence[Event]], Verdict], ...] = (
    check_faults, check_delivery, check_offsets, check_transactions, check_promise, check_progress, check_rejections,
    check_spread, check_realtime_order, recovery,
)  # fmt: skip


# Factor on the number of examples in the profile "hunt", see conftest.py.
MORE = 25 if settings.get_current_profile_name() == "hunt" else 1


def example(number: int) -> Callable[[Any], Any]:
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=number * MORE, deadline=None, suppress_health_check=slow)


@example(140)
@given(
    st.builds(divmod, st.integers(0, 7), st.just(2)).flatmap(
        lambda two: runs(lag_ns=two[0] * STEP_NS, every=1 + two[1])
    )
)
def test_no_checker_rejects_a_correct_cluster(run: Run) -> None:
    for check in CHECKS:
        found = check(run.events)
        assert found.valid != "false", found


@example(60)
@given(runs(calm=True, blurred=False))
def test_checkers_accept_a_correct_and_fully_observed_cluster(run: Run) -> None:
    made = run.cluster
    assume(run.acked)
    expected = [check_delivery, check_offsets]
    if made.outages and run.seen_all and not any(one.fails for one in made.outages):
        expected.append(check_faults)
    if made.txns:
        expected.append(check_transactions)
    if all(len(racks(run, sent, holders(run, sent))) >= sent.racks for sent in run.acked):
        expected.append(check_promise)
    for check in expected:
        found = check(run.events)
        assert (found.checker, found.valid, found.because) == (found.checker, "true", ())


@example(60)
@given(runs(), st.data())
def test_a_missing_event_causes_no_false_alarm(run: Run, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(run.events) - 1))
    gone = run.events[at]
    # Not these events, whose absence may cause a false alarm: they excuse missing records and responses, state the
    # required racks, and show where replicas moved.
    assume(gone.data.get("step") not in ("inject", "begin", "settled", "seen") and gone.op != "look")
    for check in CHECKS:
        found = check([*run.events[:at], *run.events[at + 1 :]])
        assert found.valid != "false", (gone, found)


# -- records in too few racks -----------------------------------------------------------------------------------------


def holders(run: Run, sent: Sent) -> list[int]:
    """Return the replicas whose disks have a record at the end."""
    part = run.cluster.parts[sent.part]
    return [one for one in part.replicas if sent.key in part.logs.get(one, ())]


def racks(run: Run, sent: Sent, kept: Sequence[int]) -> set[str]:
    """Return the racks of the replicas that have kept a record, and of those that a wipe truly excuses."""
    own = [one for one in run.cluster.parts[sent.part].replicas if excused(run.cluster, one, sent)]
    return {run.cluster.racks[one] for one in (*kept, *own)}


def draw_record(data: st.DataObject, run: Run) -> Sent:
    """Draw an acknowledged record that retention has not deleted."""
    found = [one for one in run.acked if (one.offset or 0) >= run.cluster.parts[one.part].low]
    assume(found)
    return data.draw(st.sampled_from(found), label="record")


def spoil(run: Run, sent: Sent, data: st.DataObject) -> tuple[list[Event], set[str]]:
    """Remove a record from some disks; return the history and the racks that truly have it or had it when wiped."""
    kept = [one for one in holders(run, sent) if data.draw(st.booleans(), label=f"broker {one} keeps it")]
    lost = drop(run.events, sent.key, lambda one: one.op == "disk" and one.data["broker"] not in kept)
    return lost, racks(run, sent, kept)


@example(100)
@given(runs(), st.data())
def test_a_record_in_too_few_racks_is_never_accepted(run: Run, data: st.DataObject) -> None:
    never_right(run, data)


@example(40)
@given(runs(calm=True, blurred=False, racks_min=2, heals=False, first="wipe"))
def test_acks_at_the_start_of_a_wipe_cause_no_false_alarm(run: Run) -> None:
    assert check_promise(run.events).valid != "false"


@example(60)
@given(runs(calm=True, blurred=False, racks_min=2, heals=False, first="cycle"), st.data())
def test_an_ended_or_absent_wipe_excuses_nothing(run: Run, data: st.DataObject) -> None:
    assume(run.cluster.outages)
    wipe = run.cluster.outages[0]
    before = [one for one in run.acked if one.done_ns < wipe.inject_ns]
    assume(before)
    sent = data.draw(st.sampled_from(before))
    kept = [one for one in holders(run, sent) if one not in wipe.brokers]
    events = drop(run.events, sent.key, lambda one: one.op == "disk" and one.data["broker"] not in kept)
    if len(racks(run, sent, kept)) < sent.racks:
        assert check_promise(events).valid != "true"


def never_right(run: Run, data: st.DataObject) -> None:
    made, sent = run.cluster, draw_record(data, run)
    events, left = spoil(run, sent, data)
    lowest = min(racks for _, racks in made.needs) if not made.moves else 1
    required = min(lowest, len(made.parts[sent.part].replicas))
    found = check_promise(events)
    if len(left) < required:
        assert found.valid != "true", found
    if len(left) >= sent.racks:
        assert found.valid != "false", found


@example(100)
@given(runs(calm=True, blurred=False), st.data())
def test_a_record_in_too_few_racks_is_found_if_fully_observed(run: Run, data: st.DataObject) -> None:
    made, sent = run.cluster, draw_record(data, run)
    events, left = spoil(run, sent, data)
    gone = set(made.parts[sent.part].replicas) - set(holders(run, sent)) | set(made.racks)
    assume(all(known(run, outage, one, sent) for outage in made.outages for one in gone & outage.brokers))
    found = check_promise(events)
    if len(left) < sent.racks:
        assert found.valid == "false", found
        assert any(sent.key in reason and f"lies in {len(left)} rack(s)" in reason for reason in found.because)
    else:
        assert found.valid != "false", found


# -- records that a single rack acknowledges in an outage -------------------------------------------------------------


def alone(run: Run, sent: Sent) -> bool:
    """Return whether verified faults show that too few racks could have a record; requires that no replica moves."""
    made = run.cluster
    away: set[int] = set()
    for one in made.outages:
        ends_ns = one.heal_ns if one.heal_ns is not None else 0
        if one.proved_ns is not None and one.proved_ns + CLOCK_NS < sent.sent_ns and sent.done_ns + STEP_NS < ends_ns:
            away |= one.brokers
    left = {made.racks[one] for one in made.parts[sent.part].replicas if one not in away}
    # a partitioned replica may be the leader
    best = max(len(left), *(1 for _ in away), 1)
    return best < sent.racks


@example(150)
@given(runs(["plain", "idempotent"], calm=True, blurred=False, racks_min=2, first="late", gated=False))
def test_a_missing_gate_at_an_isr_shrink_is_found(run: Run) -> None:
    found = check_spread(run.events)
    against = [one for one in run.acked if one.ungated and alone(run, one)]
    for one in against:
        assert any(f"record {one.key} was" in reason for reason in found.because), (one, found)
    assert (found.valid == "false") is bool(against), found


@example(40)
@given(runs(calm=True, blurred=False, racks_min=2, first="late"))
def test_records_waiting_for_an_isr_shrink_cause_no_false_alarm(run: Run) -> None:
    for check in CHECKS:
        found = check(run.events)
        assert found.valid != "false", found
    if run.seen_all and any(one.fate is not None and alone(run, one) for one in run.cluster.sent if one.done_ns > 0):
        assert check_spread(run.events).valid == "true"


# -- unrequested settings reported by brokers ------------------------------------------------------------------------


@example(60)
@given(runs(["plain", "idempotent"], racks_min=2, first="lie", blurred=False, settings_at_creation=True))
def test_a_wrong_number_of_racks_is_found(run: Run) -> None:
    assume(run.cluster.lied_ns and run.acked)
    lie = f"t: a broker reports M={run.cluster.needs[0][0]} and R={run.cluster.needs[1][1]}"
    for check in (check_progress, check_promise):
        found = check(run.events)
        assert found.valid == "false", found
        assert any(reason.startswith(lie) for reason in found.because), found


# -- records that are lost, rejected, moved, cut short or exchanged ---------------------------------------------------

UNCOMMITTED = is_("read", isolation="read_uncommitted")


def rejected_by(run: Run, found: Verdict) -> None:
    """Check that the verdict is never true, and is false if the final passes read every partition."""
    assert found.valid == "false" if run.read else found.valid != "true", found


@example(60)
@given(runs(), st.data())
def test_a_lost_acknowledged_record_is_found(run: Run, data: st.DataObject) -> None:
    sent = draw_record(data, run)
    lost = drop(run.events, sent.key, lambda one: UNCOMMITTED(one) and bool(one.data.get("keys")))
    for check in (check_delivery, check_offsets):
        rejected_by(run, check(lost))


@example(40)
@given(runs(["transactional"]), st.data())
def test_a_lost_committed_record_is_found(run: Run, data: st.DataObject) -> None:
    made = run.cluster
    committed = {one.data["txn"] for one in run.events if is_("txn", "ok")(one)}
    found = [one for one in run.acked if one.data["txn"] in committed and one.data["run"] == made.run]
    found = [one for one in found if made.parts[one.part].low <= (one.offset or 0)]
    found = [one for one in found if made.parts[one.part].stable in (None, *range((one.offset or 0) + 1, 1000))]
    assume(found)
    sent = data.draw(st.sampled_from(found))
    lost = drop(run.events, sent.key, lambda one: one.op == "read" and bool(one.data.get("keys")))
    rejected_by(run, check_transactions(lost))


def last_chunk(events: Sequence[Event], part: int) -> int:
    """Return the index of the last chunk read from a partition."""
    found = [at for at, one in enumerate(events) if UNCOMMITTED(one) and one.data["partition"] == part and
             one.data.get("next") == one.data.get("end", -1)]  # fmt: skip
    assume(found)
    return found[-1]


def put(events: Sequence[Event], part: int, key: str) -> list[Event]:
    """Add a record to the end of a partition in its last pass."""
    at = last_chunk(events, part)
    end, name = events[at].data["end"], events[at].data["pass"]
    mine = is_("read", partition=part, **{"pass": name})
    longer = [replace(one, data={**one.data, "end": end + 1}) if mine(one) else one for one in events]
    fields = {"keys": [*events[at].data["keys"], key], "runs": [*events[at].data["runs"], [end, 1]], "next": end + 1,
            "sizes": [*events[at].data.get("sizes", ()), [BYTES, 1]]}  # fmt: skip
    longer[at] = replace(longer[at], data={**longer[at].data, **fields})
    return longer


@example(40)
@given(runs(["plain"]), st.data())
def test_a_read_of_a_rejected_record_is_found(run: Run, data: st.DataObject) -> None:
    rejected = [one for one in run.cluster.sent if one.fate == "fail" and one.done_ns > 0]
    assume(rejected)
    sent = data.draw(st.sampled_from(rejected))
    rejected_by(run, check_delivery(put(run.events, sent.part, sent.key)))


@example(40)
@given(runs(), st.data())
def test_a_record_in_another_partition_is_found(run: Run, data: st.DataObject) -> None:
    assume(len(run.cluster.parts) > 1)
    sent = draw_record(data, run)
    lost = drop(run.events, sent.key, lambda one: UNCOMMITTED(one) and bool(one.data.get("keys")))
    rejected_by(run, check_delivery(put(lost, 1 - sent.part, sent.key)))


@example(40)
@given(runs(), st.data())
def test_two_records_at_one_offset_are_found(run: Run, data: st.DataObject) -> None:
    sent = draw_record(data, run)
    where = [at for at, one in enumerate(run.events) if UNCOMMITTED(one) and sent.key in one.data.get("keys", ())]
    assume(where)
    at = data.draw(st.sampled_from(where))
    other = key_of(run.cluster.run, "t", sent.part, 10**6)
    events = list(run.events)
    keys = [other if key == sent.key else key for key in events[at].data["keys"]]
    events[at] = replace(events[at], data={**events[at].data, "keys": keys})
    rejected_by(run, check_offsets(events))
    twin = is_("produce", "ok", key=sent.key)
    others = [one for one in run.acked if one.part == sent.part and one is not sent]
    if others:
        assert check_offsets(changed(run.events, twin, offset=others[0].offset)).valid == "false"


@example(40)
@given(runs(), st.data())
def test_a_truncated_value_is_found(run: Run, data: st.DataObject) -> None:
    at = last_chunk(run.events, data.draw(st.integers(0, len(run.cluster.parts) - 1)))
    count = len(run.events[at].data["keys"])
    assume(count)
    short = data.draw(st.integers(0, count - 1))
    sizes = [[BYTES, short], [BYTES - 1, 1], [BYTES, count - short - 1]]
    events = list(run.events)
    events[at] = replace(events[at], data={**events[at].data, "sizes": sizes})
    rejected_by(run, check_delivery(events))


@example(40)
@given(runs(), st.data())
def test_an_early_read_does_not_replace_the_final_read(run: Run, data: st.DataObject) -> None:
    """Remove reads after a fault's last step or the producer's end, or one partition from the last pass."""
    made = run.cluster
    steps = [one.mono_ns for one in run.events if one.process == "fault"]
    moment = data.draw(st.sampled_from([made.ended_ns or 0, *steps[-1:]]))
    early = [one for one in run.events if not (UNCOMMITTED(one) and one.mono_ns > moment)]
    part = data.draw(st.integers(0, len(made.parts) - 1))
    last = [one.data["pass"] for one in run.events if UNCOMMITTED(one)][-1:]
    torn = [one for one in run.events if not (UNCOMMITTED(one) and [one.data["pass"]] == last and
                                              one.data["partition"] == part)]  # fmt: skip
    for check in (check_delivery, check_offsets):
        assert check(early).valid == "unknown"
        if len(made.parts) > 1:
            assert check(torn).valid == "unknown"


# -- recovery -------------------------------------------------------------------------------------------------------


@example(30)
@given(st.integers(1, 3).flatmap(lambda racks: runs(calm=True, racks_min=racks, first="overlap")))
def test_overlapping_faults_end_with_the_last(run: Run) -> None:
    assert recovery(run.events).valid != "false"


# -- progress ------------------------------------------------------------------------------------------------------


@example(40)
@given(st.booleans(), st.data())
def test_an_acknowledgement_against_the_gate_is_found(exact: bool, data: st.DataObject) -> None:
    run = data.draw(runs(["plain"], calm=exact, blurred=not exact, racks_min=2))
    before_ns, after_ns = (3 * S, S) if exact else (6 * S, 7 * S // 2)
    rejected = [one for one in run.cluster.sent if one.fate == "fail" and one.done_ns > 0]
    rejected = [one for one in rejected if settled(run, one, before_ns, after_ns)]
    assume(rejected)
    sent = data.draw(st.sampled_from(rejected))
    events = changed(run.events, is_("produce", key=sent.key), outcome="ok", exception=None)
    found = check_progress(events)
    if exact:
        assert any(f"too few, and record {sent.key} was acknowledged" in reason for reason in found.because), found
    assert found.valid == "false" if exact else found.valid != "true", found
