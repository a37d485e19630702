"""Promise, progress and recovery: histories that they accept, refuse and call unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyhooks.checkers.cluster_view import RequirementTimeline, faults, observations
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.recovery import check_recovery
from pyhooks.history.event_log import Event
from pyhooks.kafka.gate import MIN_INSYNC_REPLICAS, Requirement
from written_histories import REFUSED, S, Simulated, back_again, changed, event, is_, key, outage

# -- the promise ------------------------------------------------------------------------------------------------------


def forget(broker: int, offset: int) -> Callable[[list[Event]], list[Event]]:
    """The disk of a broker has another record at an offset."""

    def change(events: list[Event]) -> list[Event]:
        def where(entry: Event) -> bool:
            return (
                entry.op == "disk"
                and entry.data["broker"] == broker
                and entry.data["begin"] <= offset < entry.data["next"]
            )

        return changed(events, where, keys=lambda keys: [name if name != key(offset) else "other" for name in keys])

    return change


def test_a_record_in_one_rack_breaks_the_promise() -> None:
    verdict = check_promise(forget(3, 2)(outage().finish()))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert all(term in verdict.because[0] for term in ("t-0", key(2), "offset 2", "1 rack(s) (a)"))


def test_a_rack_counts_with_one_of_its_replicas() -> None:
    assert check_promise(forget(1, 2)(outage().finish())).valid == "true"
    both = forget(2, 2)(forget(1, 2)(outage().finish()))
    assert check_promise(both).valid == "false"


@pytest.mark.parametrize(
    ("wiped", "valid", "reason"),
    [((), "true", ""), ((3,), "false", "acknowledged at offset 2, lies in 1 rack"), ((1, 2, 3), "unknown", "offset")],
)  # fmt: skip
def test_a_record_acknowledged_without_an_offset_is_found_by_its_key(
    wiped: tuple[int, ...], valid: str, reason: str
) -> None:
    """librdkafka reports no offset for a repeated record that the broker knows as a duplicate."""
    events = changed(outage().finish(), is_("produce", key=key(2)), offset=None)
    for broker in wiped:
        events = forget(broker, 2)(events)
    verdict = check_promise(events)
    assert verdict.valid == valid
    assert reason in "; ".join(verdict.because)


def test_a_record_that_is_on_disk_twice_has_no_known_offset() -> None:
    def doubled(keys: list[str]) -> list[str]:
        return [key(2) if name == key(3) else name for name in keys]

    events = changed(outage().finish(), is_("produce", key=key(2)), offset=None)
    verdict = check_promise(
        changed(events, lambda entry: is_("disk", broker=1)(entry) and key(3) in entry.data["keys"], keys=doubled)
    )
    assert verdict.valid == "unknown"
    assert f"the offset at which {key(2)} was acknowledged is unknown" in "; ".join(verdict.because)


@pytest.mark.parametrize(
    ("change", "valid", "reason"),
    [
        ({"stopped": False}, "unknown", "stopped"),
        ({"outcome": "unknown", "error": "Permission denied"}, "unknown", "Permission denied"),
    ],
)  # fmt: skip
def test_an_incomplete_read_of_a_disk_is_unknown(change: dict[str, Any], valid: str, reason: str) -> None:
    verdict = check_promise(changed(outage().finish(), is_("disk-end", broker=3), **change))
    assert verdict.valid == valid
    assert reason in "; ".join(verdict.because)


def wiped(
    *, before: bool = False, looked: bool = True, look_s: float = 1.5, later_s: float | None = None
) -> list[Event]:
    """Rack b is destroyed after (or before) three records were acknowledged, and nothing is given back to it.

    Args:
        before: whether it is before that.
        looked: whether somebody looks in between.
        look_s: when, after the last of them.
        later_s: when somebody looks once more, after the proof, and sees it in the ISR still.
    """
    cluster = Simulated({1: "a", 2: "b", 3: "c"})
    cluster.rest(4)
    if before:
        cluster.lose("b", "wipe-rack", wipe=True)
    for _ in range(3):
        cluster.produce()
    if looked:
        cluster.now += round(look_s * S)
        cluster.look()
    if not before:
        cluster.step("wipe-rack", "b", "inject")
        cluster.logs[2].keys.clear()
        cluster.step("wipe-rack", "b", "proved", "ok")
    if later_s is not None:
        cluster.now += round(later_s * S)
        cluster.look()
    cluster.logs[3].keys.clear()
    if not before:
        # rack c loses its records, too, without a fault
        cluster.down |= {2}
    cluster.end()
    cluster.stop_and_dump()
    return cluster.events


def test_a_rack_that_was_destroyed_afterwards_counts() -> None:
    assert check_promise(wiped()).valid == "true"


def test_a_rack_that_was_destroyed_before_does_not_count() -> None:
    verdict = check_promise(wiped(before=True))
    assert verdict.valid == "false"
    assert "lies in 1 rack(s) (a), 2 are required" in verdict.because[0]


def test_a_destroyed_rack_without_an_observed_isr_is_unknown() -> None:
    assert check_promise(wiped(looked=False)).valid == "unknown"
    # an observation may be older than the acknowledgement
    assert check_promise(wiped(look_s=0.5)).valid == "unknown"
    assert check_promise(wiped(look_s=0.5, later_s=0.3)).valid == "unknown"
    # what is destroyed does not get in sync: it was
    assert check_promise(wiped(look_s=0.5, later_s=0.8)).valid == "true"


def lowered(*, settled: bool) -> list[Event]:
    """R is lowered from 2 to 1 while rack b is down; the last records are in one rack."""
    cluster = Simulated(need_replicas=1)
    cluster.rest(4)
    cluster.produce()
    cluster.lose("b")
    cluster.need_racks = 1
    cluster.settings("begin")
    cluster.rest(4)
    if settled:
        cluster.settings("settled")
        cluster.rest(4)
    cluster.produce()
    cluster.look()
    cluster.end()
    cluster.stop_and_dump()
    return cluster.events


def test_the_requirement_at_the_acknowledgement_counts() -> None:
    assert check_promise(lowered(settled=True)).valid == "true"
    verdict = check_promise(lowered(settled=False))
    assert verdict.valid == "unknown"
    assert "may have been 1" in "; ".join(verdict.because)


# -- progress ---------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_without_enough_racks_is_wrong() -> None:
    cluster = outage()
    refused = [entry for entry in cluster.events if entry.op == "produce" and entry.outcome == "fail"]
    assert len(refused) == 5
    events = changed(cluster.finish(), is_("produce", "fail"), outcome="ok", exception=None)
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert f"ISR [1, 2] in rack(s) a, leader 1: too few, and record {key(5)} was acknowledged" in verdict.because[0]


def test_a_refusal_with_enough_racks_is_wrong() -> None:
    verdict = check_progress(changed(outage().finish(), is_("produce", "ok"), outcome="fail", exception=REFUSED))
    assert verdict.valid == "false"
    assert "enough, and record" in verdict.because[0]


def test_a_timeout_among_acknowledgements_is_unknown_and_nothing_but_timeouts_is_wrong() -> None:
    events = outage().finish()
    one = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    assert check_progress(one).valid == "unknown"
    for _ in range(5):
        events = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert "none of 5 attempts was acknowledged" in verdict.because[0]


def test_an_attempt_that_never_ends_where_all_is_well_is_wrong() -> None:
    cluster = Simulated()
    cluster.rest(4)
    sent = cluster.now
    cluster.rest(20)
    cluster.produce()
    cluster.rest(1)
    cluster.end()
    events = changed(cluster.events, is_("produce"), sent_ns=sent)
    assert check_progress(events).valid == "true", "it was acknowledged in the end"
    unseen = [entry for entry in events if entry.op != "look" or entry.mono_ns < sent + 15 * S]
    assert check_progress(unseen).valid == "false", "while somebody looked it was not"
    late = changed(events, is_("produce"), outcome="unknown", exception="X")
    assert check_progress(late).valid == "false"


def test_nothing_is_judged_while_an_isolated_leader_is_undetected() -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.produce()
    cluster.step("cut-rack", "a", "inject")
    for _ in range(3):
        cluster.produce()
        cluster.rest(3)
    cluster.step("cut-rack", "a", "heal")
    cluster.step("cut-rack", "a", "healed", "ok")
    cluster.rest(4)
    cluster.produce()
    cluster.rest(1)
    cluster.end()
    events = cluster.events
    for which in (1, 2, 3):
        events = changed(events, is_("produce"), which, outcome="unknown", exception="X")
    assert check_progress(events).valid == "true"
    unfaulted = [entry for entry in events if entry.process != "fault"]
    assert check_progress(unfaulted).valid == "unknown"


def test_a_topic_without_recorded_settings_is_unknown() -> None:
    events = [entry for entry in outage().finish() if entry.op != "settings"]
    assert "its required replicas and racks are unknown" in "; ".join(check_progress(events).because)


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
        # a broker without a rack counts for none
        (Requirement(1, 2), (1, 2), {1: "a", 2: "", 3: "b"}, False),
        (Requirement(1, 2), (1, 2, 3), {1: "a", 2: "", 3: "b"}, True),
        (Requirement(2, 1), (1, 2), {1: None, 2: "", 3: "b"}, True),
        (Requirement(1, 2), (1, 2), {1: None, 2: "", 3: "b"}, False),
        # an unknown broker is in no rack, but a replica
        (Requirement(1, 2), (1, 2), {1: "a", 3: "b"}, False),
        (Requirement(2, 1), (1, 2), {3: "b"}, True),
    ],
)
def test_required_racks_and_replicas_are_counted(
    need: Requirement, isr: tuple[int, ...], racks: dict[int, str | None], met: bool
) -> None:
    state = {"leader": 1, "isr": list(isr), "replicas": [1, 2, 3]}
    names = {str(broker): rack for broker, rack in racks.items()}
    ((_, (look,)),) = observations([event(1, "isr-watch", "look", partitions={"t-0": state}, racks=names)]).items()
    assert need.met_by(look) is met


def test_settings_between_two_reports_may_be_either() -> None:
    def settings(at: int, step: str, racks: int) -> Event:
        fields: dict[str, Any] = {MIN_INSYNC_REPLICAS: 1, "min.insync.racks": racks}
        return event(at * S, "x", "settings", topic="t", step=step, **fields)

    def racks(from_s: int, to_s: int, *events: Event) -> set[int]:
        return {one.racks for one in RequirementTimeline(events).possible("t", from_s * S, to_s * S)}

    seen = (settings(10, "seen", 2), settings(20, "seen", 1))
    assert racks(0, 5, *seen) == {2}
    assert racks(12, 15, *seen) == {1, 2}
    assert racks(21, 30, *seen) == {1}
    asked = (settings(10, "seen", 2), settings(20, "begin", 1), settings(30, "settled", 1))
    assert racks(11, 19, *asked) == {1, 2}, "between what was seen and the next word"
    assert racks(22, 25, *asked) == {1, 2}
    assert racks(31, 40, *asked) == {1}
    assert racks(0, 99, settings(10, "begin", 1)) == set()
    assert racks(0, 99) == set()


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_within_its_bounds() -> None:
    events = outage().finish()
    assert check_recovery(events, isr_s=5, ack_s=10).valid == "true"
    late = check_recovery(events, isr_s=0.0001, ack_s=10)
    assert late.valid == "unknown", "no observation between the heal and the first one"


@pytest.mark.parametrize(("overlaps", "valid"), [(True, "true"), (False, "unknown")])
def test_of_faults_that_overlap_the_last_heal_counts_and_one_that_comes_early_hides_it(
    overlaps: bool, valid: str
) -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.send(3)
    cluster.lose("b")
    healed = [("kill-rack", "b", step) for step in ("held", "heal", "healed")]
    destroyed = [("wipe-rack", "a", step) for step in ("inject", "proved")]
    for op, rack, step in [*destroyed, *healed] if overlaps else [*healed, *destroyed]:
        cluster.step(op, rack, step, None if step in ("heal", "inject") else "ok")
    cluster.rest(2)
    cluster.step("wipe-rack", "a", "heal")
    cluster.step("wipe-rack", "a", "healed", "ok")
    cluster.down.clear()
    cluster.rest(4)
    cluster.send(3)
    assert check_recovery(cluster.events).valid == valid


def back_late(lag_s: float, *, back_s: float, until_s: float, stale_s: tuple[float, ...] = ()) -> list[Event]:
    """Rack b leaves the ISR just before its heal and returns some time after it; observations show that late."""
    cluster = Simulated()

    def isr(at_s: float) -> set[int]:
        return {3} if 14.6 <= at_s < 15.0 + back_s else set()

    for half in range(round(2 * (15.0 + until_s))):
        cluster.now = half * S // 2
        for at_s, step in ((10.0, "inject"), (15.0, "heal"), (17.0, "healed")):
            if cluster.now / S == at_s:
                cluster.step("kill-rack", "b", step, "ok")
        cluster.down = isr(cluster.now / S)
        cluster.produce()
        cluster.down = set() if cluster.now / S - 15.0 in stale_s else isr(cluster.now / S - lag_s)
        cluster.look()
    cluster.end()
    return cluster.events


@pytest.mark.parametrize(
    ("lag_s", "back_s", "until_s", "stale_s", "valid"),
    [
        (0.0, 30.0, 70, (), "true"),
        (0.7, 30.0, 70, (), "true"),
        # what a look shows right after the heal is what was before the replicas left
        (0.7, 999, 70, (), "false"),
        (0.7, 999, 30, (), "unknown"),
        # as an isolated broker reports until it is connected again
        (0.0, 999, 70, (0.5, 3.0, 7.5), "false"),
        (0.0, 999, 7.5, (0.5, 3.0, 7.0), "unknown"),
        # in time, and seen too late
        (0.7, 59.8, 70, (), "unknown"),
        (0.7, 59.8, 60.5, (), "unknown"),
        (0.7, 62.0, 70, (), "false"),
    ],
)
def test_an_observation_after_a_heal_may_be_stale(
    lag_s: float, back_s: float, until_s: float, stale_s: tuple[float, ...], valid: str
) -> None:
    verdict = check_recovery(back_late(lag_s, back_s=back_s, until_s=until_s, stale_s=stale_s))
    assert verdict.valid == valid, verdict.because


def stays_away(*, watched_s: float) -> list[Event]:
    cluster = Simulated()
    cluster.rest(4)
    cluster.lose("b")
    cluster.step("kill-rack", "b", "heal")
    cluster.rest(watched_s)
    cluster.produce()
    cluster.end()
    return cluster.events


def test_a_rack_that_does_not_come_back_is_wrong_after_the_bound_and_unknown_before() -> None:
    verdict = check_recovery(stays_away(watched_s=30), isr_s=20, ack_s=20)
    assert verdict.valid == "false"
    assert "kill-rack b: t-0 with all replicas in sync: not within" in verdict.because[0]
    assert "an acknowledgement by t-0: not within" in verdict.because[1]
    assert check_recovery(stays_away(watched_s=10), isr_s=20, ack_s=20).valid == "unknown"


def test_a_late_acknowledgement_is_wrong_only_if_an_attempt_was_made_in_time() -> None:
    cluster = back_again()
    cluster.rest(30)
    cluster.produce()
    cluster.end()
    assert check_recovery(cluster.events, isr_s=20, ack_s=10).valid == "unknown"
    asked = next(entry for entry in cluster.events if entry.op == "produce")
    healed = faults(cluster.events)[0].heal_ns
    assert healed is not None
    refused = event(healed + 15 * S, "producer", "produce", "fail", topic="t", key="k", partition=0, seq=None,
                    sent_ns=healed + 14 * S, exception=REFUSED)  # fmt: skip
    assert asked.mono_ns > refused.mono_ns
    assert check_recovery([*cluster.events, refused], isr_s=20, ack_s=10).valid == "false"


def test_observations_show_which_replicas_a_reassignment_adds() -> None:
    placed: list[tuple[list[int], list[int]]] = [
        ([1], [1]),
        # 2 and 3 are added, 2 joins the ISR first, and all are in sync before 1 is removed
        ([1, 2, 3], [1]),
        ([1, 2, 3], [1, 2]),
        ([1, 2, 3], [1, 2, 3]),
        ([2, 3], [2, 3]),
        # 4 is added, and the reassignment is cancelled
        ([2, 3, 4], [2, 3]),
        ([2, 3], [2, 3]),
        # 3 leaves the ISR of a partition without a reassignment
        ([2, 3], [2]),
    ]
    racks = {"1": "a", "2": "a", "3": "b", "4": "c"}
    events = [
        event(at * S, "isr-watch", "look", racks=racks,
              partitions={"t-0": {"leader": isr[0], "isr": isr, "replicas": replicas}})
        for at, (replicas, isr) in enumerate(placed, 1)
    ]  # fmt: skip
    (seen,) = observations(events).values()
    assert [sorted(look.adding) for look in seen] == [[], [2, 3], [2, 3], [], [], [4], [], []]
    need = Requirement(replicas=1, racks=2)
    assert [need.effective(look).racks for look in seen] == [1, 1, 1, 2, 2, 2, 2, 2]
    # a reassignment from one replica does not stop writes
    assert [need.met_by(look) for look in seen] == [True, True, True, True, True, True, True, False]
