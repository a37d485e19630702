"""Checkers on written histories: what they must refuse, call unknown and accept; no evidence can be missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from histories import REFUSED, S, Simulated, changed, event, outage, random_run, without
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyhooks.checker.cluster import REPLICAS, Requirement, Settings, faults, looks
from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.judging import CHECKERS, judge
from pyhooks.checker.offsets import check_offsets
from pyhooks.checker.progress import check_progress
from pyhooks.checker.promise import check_promise
from pyhooks.checker.records import offsets_of
from pyhooks.checker.recovery import check_recovery
from pyhooks.checker.transactions import check_transactions
from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event
from pyhooks.workload.records import key_of

MODES = ("plain", "idempotent", "transactional")
Where = Callable[[Event], bool]


def is_(op: str, outcome: str = "", **data: Any) -> Where:
    def matches(one: Event) -> bool:
        return (
            one.op == op
            and outcome in ("", one.outcome)
            and all(one.data.get(name) == value for name, value in data.items())
        )

    return matches


def key(seq: int) -> str:
    return key_of("producer-1", "t", 0, seq)


def verdict(name: str, events: Sequence[Event]) -> Verdict:
    return CHECKERS[name].check(events)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rack", ["a", "b"])
def test_a_good_history_passes(mode: str, rack: str) -> None:
    found, left_out = judge(outage(mode, rack).finish())
    assert {one.checker: (one.valid, one.because) for one in found} == {one.checker: ("true", ()) for one in found}
    assert left_out == ["phases"] if mode == "transactional" else ["phases", "transactions"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(MODES))
def test_whatever_a_correct_cluster_does_passes(seed: int, mode: str) -> None:
    found, _ = judge(random_run(seed, mode).finish())
    for one in found:
        assert (one.checker, one.valid, one.because) == (one.checker, "true", ())


# Which evidence each checker lives on: without any one of these events its verdict must not stay true.
EVIDENCE: dict[str, list[Where]] = {
    "delivery": [is_("produce"), is_("end"), is_("read", isolation="read_uncommitted", **{"pass": "p2"})],
    "offsets": [is_("produce"), is_("end"), is_("read", isolation="read_uncommitted", **{"pass": "p2"})],
    "transactions": [
        is_("produce"),
        is_("end"),
        is_("txn"),
        is_("read", isolation="read_committed", **{"pass": "p2c"}),
    ],
    "promise": [is_("produce"), is_("end"), is_("disk"), is_("disk-end")],
    "progress": [is_("produce"), is_("end")],
    "faults": [is_("kill-rack")],
}


@pytest.mark.parametrize("name", EVIDENCE)
@pytest.mark.parametrize("mode", MODES)
def test_no_evidence_can_be_missing(name: str, mode: str) -> None:
    events = outage(mode).finish()
    if name == "transactions" and mode != "transactional":
        assert verdict(name, events).valid == "unknown"
        return
    for where in EVIDENCE[name]:
        for which in range(sum(map(where, events))):
            gone = without(events, where, which)
            assert verdict(name, gone).valid != "true", (which, [one for one in events if where(one)][which])


@pytest.mark.parametrize(
    ("name", "op"),
    [("promise", "settings"), ("promise", "look"), ("progress", "settings"), ("progress", "look"), ("recovery", "look"),
     ("recovery", "kill-rack"), ("recovery", "produce"), ("faults", "kill-rack"), ("delivery", "read"),
     ("promise", "disk")],
)  # fmt: skip
def test_without_any_evidence_of_a_kind_nothing_is_true(name: str, op: str) -> None:
    assert verdict(name, [one for one in outage().finish() if one.op != op]).valid == "unknown"


@pytest.mark.parametrize("name", CHECKERS)
def test_an_empty_history_proves_nothing(name: str) -> None:
    assert verdict(name, []).valid == "unknown"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(MODES), st.data())
def test_one_event_less_is_never_a_false_alarm(seed: int, mode: str, data: st.DataObject) -> None:
    events = random_run(seed, mode).finish()
    at = data.draw(st.integers(0, len(events) - 1))
    left = [*events[:at], *events[at + 1 :]]
    # Without the proof of a wipe, or of a fault, what is not there or not answered is not excused.
    for name in ("offsets", "transactions", "promise", "recovery", "faults", "delivery"):
        assert verdict(name, left).valid != "false" or events[at].op == "wipe-rack", (name, events[at])


def drop(events: Sequence[Event], victim: str, where: Where) -> list[Event]:
    """A history in which a record is missing where it was read; the offsets around it stay."""

    def without_it(one: Event) -> Event:
        if not where(one) or victim not in one.data["keys"]:
            return one
        held = [pair for pair in zip(offsets_of(one.data["runs"]), one.data["keys"], strict=True) if pair[1] != victim]
        told = {**one.data, "runs": [[at, 1] for at, _ in held], "keys": [name for _, name in held]}
        return event(one.mono_ns, one.process, one.op, one.outcome, one.rack, **told)

    return [without_it(one) for one in events]


def lose_record(events: list[Event]) -> list[Event]:
    """An acknowledged record is in no read any more."""
    return drop(events, key(0), is_("read"))


def swap_keys(events: list[Event]) -> list[Event]:
    return changed(events, is_("read"), keys=lambda keys: [keys[1], keys[0], *keys[2:]])


def put_key(name: str) -> Callable[[list[Event]], list[Event]]:
    """Another record is read at the end of each final read."""

    def put(events: list[Event]) -> list[Event]:
        where = is_("read", isolation="read_uncommitted", **{"pass": "p2"})
        last = [one for one in events if where(one)][-1]
        end = last.data["end"]
        told = {"keys": [*last.data["keys"], name], "runs": [*last.data["runs"], [end, 1]]}
        told |= {"end": end + 1, "next": end + 1}
        others = [one for one in events if not where(one)]
        changed_reads = [
            event(one.mono_ns, one.process, one.op, one.outcome, **{**one.data, "end": end + 1})
            for one in events
            if where(one) and one is not last
        ]
        return [*others, *changed_reads, event(last.mono_ns, "reader", "read", "ok", **{**last.data, **told})]

    return put


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(MODES), st.data())
def test_any_acknowledged_record_that_is_lost_is_found(seed: int, mode: str, data: st.DataObject) -> None:
    events = random_run(seed, mode).finish()
    acked = [one.data["key"] for one in events if is_("produce", "ok")(one)]
    assume(acked)
    victim = data.draw(st.sampled_from(acked))
    lost = drop(events, victim, is_("read", isolation="read_uncommitted"))
    assert check_delivery(lost).because == (f"t: acknowledged record {victim} is lost",)
    assert check_offsets(lost).valid == "false"


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(MODES), st.data())
def test_any_record_in_too_few_racks_is_found(seed: int, mode: str, data: st.DataObject) -> None:
    made = random_run(seed, mode)
    events = made.finish()
    acked = [one for one in events if is_("produce", "ok")(one)]
    assume(acked)
    victim = data.draw(st.sampled_from(acked))
    holders = {one.rack for one in events if one.op == "disk" and victim.data["key"] in one.data["keys"]}
    needed = min(made.need_racks, len(made.racks))
    kept = data.draw(st.sets(st.sampled_from(sorted(filter(None, holders)))))
    left = drop(events, victim.data["key"], lambda one: one.op == "disk" and one.rack not in kept)
    found = check_promise(left)
    destroyed = {one.rack for one in events if is_("wipe-rack", step="inject")(one) and one.mono_ns > victim.mono_ns}
    if len(kept) >= needed:
        assert found.valid == "true"
    elif not destroyed:
        assert found.valid == "false"
        assert f"{len(kept)} rack(s)" in found.because[0]
    else:
        assert len(kept | destroyed) >= needed or found.valid == "false"


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_any_acknowledgement_that_should_not_be_is_found(seed: int, data: st.DataObject) -> None:
    events = random_run(seed, "plain").finish()
    refused = [which for which, one in enumerate(e for e in events if e.op == "produce") if one.outcome == "fail"]
    assume(refused)
    which = data.draw(st.sampled_from(refused))
    found = check_progress(changed(events, is_("produce"), which, outcome="ok", exception=None))
    assert found.valid == "false"
    assert "too few, and record" in found.because[0]


@pytest.mark.parametrize(
    ("name", "mode", "defect", "says"),
    [
        ("delivery", "plain", lose_record, f"acknowledged record {key(0)} is lost"),
        ("delivery", "plain", put_key(key(5)), f"refused record {key(5)} was read"),
        ("delivery", "plain", put_key("stranger"), "stranger was read but never produced"),
        ("delivery", "plain", put_key(key(15)), "its producer never came to it"),
        ("delivery", "plain", put_key(key_of("producer-2", "t", 0, 0)), "was read but never produced"),
        ("delivery", "plain", put_key(key(1)), f"{key(1)} was read 2 times"),
        ("delivery", "idempotent", put_key(key(1)), f"{key(1)} was read 2 times"),
        ("offsets", "plain", lose_record, "holds nothing"),
        ("offsets", "plain", swap_keys, "was read as"),
        ("offsets", "idempotent", put_key(key(1)), "behind record"),
        ("offsets", "plain", lambda e: changed(e, is_("produce", "ok"), 1, offset=0), "acknowledged for"),
        ("offsets", "plain", lambda e: [*e, next(one for one in e if one.op == "produce")], "two outcomes"),
        ("transactions", "transactional", lose_record, f"committed: {key(0)} was not read"),
        ("transactions", "transactional", lambda e: changed(e, is_("txn", "fail"), outcome="ok"), "was not read"),
        ("transactions", "transactional", lambda e: changed(e, is_("txn", "ok"), outcome="fail"), "aborted:"),
    ],
)  # fmt: skip
def test_a_defect_is_found(name: str, mode: str, defect: Callable[[list[Event]], list[Event]], says: str) -> None:
    found = verdict(name, defect(outage(mode).finish()))
    assert found.valid == "false", found.because
    assert says in "; ".join(found.because)


def test_what_was_damaged_is_told() -> None:
    events = changed(outage().finish(), is_("read", **{"pass": "p2"}), damaged=[0])
    assert check_delivery(events).because == (f"t: record {key(0)} was read with another value",)


def test_a_client_that_retries_without_idempotence_may_write_twice() -> None:
    events = put_key(key(1))(outage().finish())
    for which in range(sum(map(is_("intend"), events))):
        events = changed(events, is_("intend"), which, first_only=False)
    found = check_delivery(events)
    assert (found.valid, found.notes) == ("true", (f"t: record {key(1)} was read 2 times",))


def uncertain(*, committed: bool) -> list[Event]:
    made = Simulated(mode="transactional")
    made.rest(4)
    made.transaction(3, "ok")
    made.transaction(3, "unknown", committed=committed)
    return made.finish()


@pytest.mark.parametrize("committed", [True, False])
def test_an_uncertain_transaction_is_all_or_nothing(committed: bool) -> None:
    assert check_transactions(uncertain(committed=committed)).valid == "true"


def test_half_of_an_uncertain_transaction_is_wrong() -> None:
    events = uncertain(committed=True)
    half = {key(4)}
    runs = [[0, 3], [4, 1], [6, 1]]
    torn = [
        event(one.mono_ns, one.process, one.op, one.outcome, **{
            **one.data, "keys": [name for name in one.data["keys"] if name not in half], "runs": runs
        })
        if one.op == "read" and one.data["isolation"] == "read_committed" else one
        for one in events
    ]  # fmt: skip
    found = check_transactions(torn)
    assert found.valid == "false"
    assert f"uncertain: {key(3)} was read and {key(4)} was not read" in "; ".join(found.because)


# -- a producer that is killed ----------------------------------------------------------------------------------------


def killed(*, noted: bool = True, stranger: int | None = None) -> list[Event]:
    """A producer is killed: the last of its records is in the log, and it noted nothing of that."""
    made = Simulated()
    made.rest(4)
    for _ in range(4):
        made.produce()
    made.events.pop()
    if stranger is not None:
        made.write(key(stranger))
    if noted:
        made.note("test", "killed", "info", run=made.run)
    made.read()
    return made.events


def test_what_a_killed_producer_did_not_note_is_no_invention() -> None:
    assert check_delivery(killed()).valid == "true"
    assert check_offsets(killed()).valid == "true"


def test_nor_does_a_killed_producer_hide_one() -> None:
    assert check_delivery(killed(stranger=9)).valid == "true", "it was announced"
    found = check_delivery(killed(stranger=10))
    assert (found.valid, found.because) == (
        "false", (f"t: record {key(10)} was read, and its producer never came to it",),
    )  # fmt: skip


def test_a_producer_that_vanished_leaves_a_gap() -> None:
    found = check_delivery(killed(noted=False))
    assert found.valid == "unknown"
    assert "did not end" in "; ".join(found.because)


def test_a_torn_line_is_missing_evidence_unless_its_writer_was_killed() -> None:
    torn = event(0, "history", "torn", "unknown", line=3)
    assert check_delivery([*outage().finish(), torn]).valid == "unknown"
    assert check_delivery([*killed(), torn]).valid == "true"


def test_a_record_below_the_first_offset_is_unknown() -> None:
    events = [
        event(one.mono_ns, one.process, one.op, one.outcome, **{**one.data, "low": 1, "begin": 1, "runs": [[1, 6]],
              "keys": one.data["keys"][1:]})
        if one.op == "read" and one.data["begin"] == 0 else one
        for one in outage().finish()
    ]  # fmt: skip
    assert check_delivery(events).valid == "unknown"
    events = [
        one if one.op != "read" or one.data["low"] else event(
            one.mono_ns, one.process, one.op, one.outcome, **{**one.data, "low": 1})
        for one in events
    ]  # fmt: skip
    assert check_delivery(events).because == (f"t: record {key(0)} is below the log's first offset",)


# -- the promise ------------------------------------------------------------------------------------------------------


def forget(broker: int, offset: int) -> Callable[[list[Event]], list[Event]]:
    """The disk of a broker has another record at an offset."""

    def change(events: list[Event]) -> list[Event]:
        def where(one: Event) -> bool:
            return one.op == "disk" and one.data["broker"] == broker and one.data["begin"] <= offset < one.data["next"]

        return changed(events, where, keys=lambda keys: [name if name != key(offset) else "other" for name in keys])

    return change


def test_a_record_in_one_rack_breaks_the_promise() -> None:
    found = check_promise(forget(3, 2)(outage().finish()))
    assert found.valid == "false"
    assert found.because == (
        f"t-0: record {key(2)}, acknowledged at offset 2, lies in 1 rack(s) (a), 2 are required",
    )  # fmt: skip


def test_a_rack_with_one_of_its_replicas_is_a_rack() -> None:
    assert check_promise(forget(1, 2)(outage().finish())).valid == "true"
    both = forget(2, 2)(forget(1, 2)(outage().finish()))
    assert check_promise(both).valid == "false"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stopped": False}, "stopped"),
        ({"outcome": "unknown", "error": "Permission denied"}, "Permission denied"),
    ],
)  # fmt: skip
def test_a_disk_that_was_not_read_well_is_unknown(change: dict[str, Any], says: str) -> None:
    found = check_promise(changed(outage().finish(), is_("disk-end", broker=3), **change))
    assert found.valid == "unknown" or change.get("stopped") is False
    assert says in "; ".join(found.because)


def wiped(*, before: bool = False, looked: bool = True) -> list[Event]:
    """Rack b is destroyed after (or before) three records were acknowledged, and nothing is given back to it."""
    made = Simulated({1: "a", 2: "b", 3: "c"})
    made.rest(4)
    if before:
        made.lose("b", "wipe-rack", wipe=True)
    for _ in range(3):
        made.produce()
    if looked:
        made.look()
    if not before:
        made.step("wipe-rack", "b", "inject")
        made.logs[2].keys.clear()
    made.logs[3].keys.clear()
    if not before:
        # rack c loses what it had, too: by nobody's leave
        made.away |= {2}
    made.end()
    made.stop_and_dump()
    return made.events


def test_a_rack_that_was_destroyed_afterwards_counts() -> None:
    assert check_promise(wiped()).valid == "true"


def test_a_rack_that_was_destroyed_before_does_not_count() -> None:
    found = check_promise(wiped(before=True))
    assert found.valid == "false"
    assert "lies in 1 rack(s) (a), 2 are required" in found.because[0]


def test_a_destroyed_rack_that_nobody_saw_in_sync_is_unknown() -> None:
    assert check_promise(wiped(looked=False)).valid == "unknown"


def lowered(*, settled: bool) -> list[Event]:
    """R goes from 2 to 1 while rack b is away; the last records are in one rack."""
    made = Simulated(need_replicas=1)
    made.rest(4)
    made.produce()
    made.lose("b")
    made.need_racks = 1
    made.settings("begin")
    made.rest(4)
    if settled:
        made.settings("settled")
        made.rest(4)
    made.produce()
    made.look()
    made.end()
    made.stop_and_dump()
    return made.events


def test_what_was_required_at_the_acknowledgement_counts() -> None:
    assert check_promise(lowered(settled=True)).valid == "true"
    found = check_promise(lowered(settled=False))
    assert found.valid == "unknown"
    assert "may have been 1" in "; ".join(found.because)


# -- progress ---------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_without_enough_racks_is_wrong() -> None:
    made = outage()
    refused = [one for one in made.events if one.op == "produce" and one.outcome == "fail"]
    assert len(refused) == 5
    events = changed(made.finish(), is_("produce", "fail"), outcome="ok", exception=None)
    found = check_progress(events)
    assert found.valid == "false"
    assert f"ISR [1, 2] in rack(s) a, leader 1: too few, and record {key(5)} was acknowledged" in found.because[0]


def test_a_refusal_with_enough_racks_is_wrong() -> None:
    found = check_progress(changed(outage().finish(), is_("produce", "ok"), outcome="fail", exception=REFUSED))
    assert found.valid == "false"
    assert "enough, and record" in found.because[0]


def test_a_timeout_among_acknowledgements_is_unknown_and_nothing_but_timeouts_is_wrong() -> None:
    events = outage().finish()
    one = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    assert check_progress(one).valid == "unknown"
    for _ in range(5):
        events = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    found = check_progress(events)
    assert found.valid == "false"
    assert "none of 5 attempts was acknowledged" in found.because[0]


def test_an_attempt_that_never_ends_where_all_is_well_is_wrong() -> None:
    made = Simulated()
    made.rest(4)
    sent = made.now
    made.rest(20)
    made.produce()
    made.rest(1)
    made.end()
    events = changed(made.events, is_("produce"), sent_ns=sent)
    assert check_progress(events).valid == "true", "it was acknowledged in the end"
    unseen = [one for one in events if one.op != "look" or one.mono_ns < sent + 15 * S]
    assert check_progress(unseen).valid == "false", "while somebody looked it was not"
    late = changed(events, is_("produce"), outcome="unknown", exception="X")
    assert check_progress(late).valid == "false"


def test_while_a_leader_is_cut_off_and_nobody_knows_nothing_is_judged() -> None:
    made = Simulated()
    made.rest(4)
    made.produce()
    made.step("cut-rack", "a", "inject")
    for _ in range(3):
        made.produce()
        made.rest(3)
    made.step("cut-rack", "a", "heal")
    made.step("cut-rack", "a", "healed", "ok")
    made.rest(4)
    made.produce()
    made.rest(1)
    made.end()
    events = made.events
    for which in (1, 2, 3):
        events = changed(events, is_("produce"), which, outcome="unknown", exception="X")
    assert check_progress(events).valid == "true"
    unfaulted = [one for one in events if one.process != "fault"]
    assert check_progress(unfaulted).valid == "unknown"


def test_a_topic_whose_settings_nobody_tells_is_unknown() -> None:
    events = [one for one in outage().finish() if one.op != "settings"]
    assert "nothing tells what it required" in "; ".join(check_progress(events).because)


@pytest.mark.parametrize(
    ("need", "isr", "racks", "met"),
    [
        (Requirement(2, 2), (1, 3), {1: "a", 2: "a", 3: "b"}, True),
        (Requirement(2, 2), (1, 2), {1: "a", 2: "a", 3: "b"}, False),
        (Requirement(3, 1), (1, 2), {1: "a", 2: "a", 3: "b"}, False),
        # more than there are replicas cannot be required; more than there are racks can
        (Requirement(9, 1), (1, 2, 3), {1: "a", 2: "a", 3: "b"}, True),
        (Requirement(1, 9), (1, 2, 3), {1: "a", 2: "a", 3: "b"}, False),
        (Requirement(1, 9), (1, 2, 3), {1: "a", 2: "c", 3: "b"}, True),
        # brokers without a rack are in one without a name
        (Requirement(1, 2), (1, 2), {1: "a", 3: "b"}, True),
        (Requirement(1, 2), (1, 2), {3: "b"}, False),
    ],
)
def test_what_is_required(need: Requirement, isr: tuple[int, ...], racks: dict[int, str], met: bool) -> None:
    state = {"leader": 1, "isr": list(isr), "replicas": [1, 2, 3]}
    told = {str(broker): rack for broker, rack in racks.items()}
    ((_, (look,)),) = looks([event(1, "isr-watch", "look", partitions={"t-0": state}, racks=told)]).items()
    assert need.met_by(look) is met


def test_settings_between_two_words_may_be_either() -> None:
    def said(at: int, step: str, racks: int) -> Event:
        told: dict[str, Any] = {REPLICAS: 1, "min.insync.racks": racks}
        return event(at * S, "x", "settings", topic="t", step=step, **told)

    def racks(from_s: int, to_s: int, *events: Event) -> set[int]:
        return {one.racks for one in Settings(events).possible("t", from_s * S, to_s * S)}

    seen = (said(10, "seen", 2), said(20, "seen", 1))
    assert racks(0, 5, *seen) == {2}
    assert racks(12, 15, *seen) == {1, 2}
    assert racks(21, 30, *seen) == {1}
    asked = (said(10, "seen", 2), said(20, "begin", 1), said(30, "settled", 1))
    assert racks(11, 19, *asked) == {1, 2}, "between what was seen and the next word"
    assert racks(22, 25, *asked) == {1, 2}
    assert racks(31, 40, *asked) == {1}
    assert racks(0, 99, said(10, "begin", 1)) == set()
    assert racks(0, 99) == set()


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_within_its_bounds() -> None:
    events = outage().finish()
    assert check_recovery(events, isr_s=5, ack_s=10).valid == "true"
    late = check_recovery(events, isr_s=0.0001, ack_s=10)
    assert late.valid == "unknown", "nobody looked between the heal and the first look"


def stays_away(*, watched_s: float) -> list[Event]:
    made = Simulated()
    made.rest(4)
    made.lose("b")
    made.step("kill-rack", "b", "heal")
    made.rest(watched_s)
    made.produce()
    made.end()
    return made.events


def test_a_rack_that_does_not_come_back_is_wrong_after_the_bound_and_unknown_before() -> None:
    found = check_recovery(stays_away(watched_s=30), isr_s=20, ack_s=20)
    assert found.valid == "false"
    assert "kill-rack b: t-0 with all replicas in sync: not within" in found.because[0]
    assert "an acknowledgement by t-0: not within" in found.because[1]
    assert check_recovery(stays_away(watched_s=10), isr_s=20, ack_s=20).valid == "unknown"


def test_a_late_acknowledgement_is_wrong_only_if_somebody_asked_in_time() -> None:
    made = Simulated()
    made.rest(4)
    made.lose("b")
    made.heal("b")
    made.rest(30)
    made.produce()
    made.end()
    assert check_recovery(made.events, isr_s=20, ack_s=10).valid == "unknown"
    asked = next(one for one in made.events if one.op == "produce")
    healed = faults(made.events)[0].heal_ns
    assert healed is not None
    refused = event(healed + 15 * S, "producer", "produce", "fail", topic="t", key="k", partition=0, seq=None,
                    sent_ns=healed + 14 * S, exception=REFUSED)  # fmt: skip
    assert asked.mono_ns > refused.mono_ns
    assert check_recovery([*made.events, refused], isr_s=20, ack_s=10).valid == "false"
