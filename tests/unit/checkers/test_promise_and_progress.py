"""Checkers of promise, progress and recovery, on correct, incorrect and incomplete histories."""

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
from written_histories import REJECTED, S, Simulated, back_again, changed, event, is_, key, outage

# -- the promise ------------------------------------------------------------------------------------------------------


def replace_on_disk(broker: int, offset: int) -> Callable[[list[Event]], list[Event]]:
    """Return a change of a history: a broker's disk has another record at an offset."""

    def change(events: list[Event]) -> list[Event]:
        def where(entry: Event) -> bool:
            return (
                entry.op == "disk"
                and entry.data["broker"] == broker
                and entry.data["begin"] <= offset < entry.data["next"]
            )

        return changed(events, where, keys=lambda keys: [name if name != key(offset) else "other" for name in keys])

    return change


def test_a_record_in_one_rack_is_wrong() -> None:
    verdict = check_promise(replace_on_disk(3, 2)(outage().finish()))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert all(term in verdict.because[0] for term in ("t-0", key(2), "offset 2", "1 rack(s) (a)"))


def test_one_replica_in_a_rack_is_sufficient() -> None:
    assert check_promise(replace_on_disk(1, 2)(outage().finish())).valid == "true"
    both = replace_on_disk(2, 2)(replace_on_disk(1, 2)(outage().finish()))
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
        events = replace_on_disk(broker, 2)(events)
    verdict = check_promise(events)
    assert verdict.valid == valid
    assert reason in "; ".join(verdict.because)


def test_the_offset_of_a_record_on_disk_twice_is_unknown() -> None:
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


def destroyed_rack(
    *, before: bool = False, observed: bool = True, observed_s: float = 1.5, later_s: float | None = None
) -> list[Event]:
    """Rack b is destroyed before or after three acknowledgements and stays empty; rack c loses its records, too.

    Args:
        before: whether the rack is destroyed before the acknowledgements.
        observed: whether there is an observation between the acknowledgements and the destruction.
        observed_s: time of that observation after the last acknowledgement.
        later_s: time, after the destruction is verified, of an observation that still shows the rack in the ISR.
    """
    cluster = Simulated({1: "a", 2: "b", 3: "c"})
    cluster.rest(4)
    if before:
        cluster.lose("b", "wipe-rack", wipe=True)
    for _ in range(3):
        cluster.produce()
    if observed:
        cluster.now += round(observed_s * S)
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
        # rack c loses its records without a fault
        cluster.down |= {2}
    cluster.end()
    cluster.stop_and_dump()
    return cluster.events


def test_a_rack_destroyed_after_the_acknowledgement_counts() -> None:
    assert check_promise(destroyed_rack()).valid == "true"


def test_a_rack_destroyed_before_the_acknowledgement_does_not_count() -> None:
    verdict = check_promise(destroyed_rack(before=True))
    assert verdict.valid == "false"
    assert "lies in 1 rack(s) (a), 2 are required" in verdict.because[0]


def test_a_destroyed_rack_without_an_observed_isr_is_unknown() -> None:
    assert check_promise(destroyed_rack(observed=False)).valid == "unknown"
    # an observation may be older than the acknowledgement
    assert check_promise(destroyed_rack(observed_s=0.5)).valid == "unknown"
    assert check_promise(destroyed_rack(observed_s=0.5, later_s=0.3)).valid == "unknown"
    # a destroyed replica cannot rejoin the ISR, so it was in sync before
    assert check_promise(destroyed_rack(observed_s=0.5, later_s=0.8)).valid == "true"


def r_lowered(*, settled: bool) -> list[Event]:
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
    assert check_promise(r_lowered(settled=True)).valid == "true"
    verdict = check_promise(r_lowered(settled=False))
    assert verdict.valid == "unknown"
    assert "may have been 1" in "; ".join(verdict.because)


# -- progress ---------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_without_enough_racks_is_wrong() -> None:
    cluster = outage()
    rejected = [entry for entry in cluster.events if entry.op == "produce" and entry.outcome == "fail"]
    assert len(rejected) == 5
    events = changed(cluster.finish(), is_("produce", "fail"), outcome="ok", exception=None)
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert f"ISR [1, 2] in rack(s) a, leader 1: too few, and record {key(5)} was acknowledged" in verdict.because[0]


def test_a_rejection_with_enough_racks_is_wrong() -> None:
    verdict = check_progress(changed(outage().finish(), is_("produce", "ok"), outcome="fail", exception=REJECTED))
    assert verdict.valid == "false"
    assert "enough, and record" in verdict.because[0]


def test_a_single_timeout_is_unknown_and_only_timeouts_are_wrong() -> None:
    events = outage().finish()
    single_timeout = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    assert check_progress(single_timeout).valid == "unknown"
    for _ in range(5):
        events = changed(events, is_("produce", "ok"), outcome="unknown", exception="X")
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert "none of 5 attempts was acknowledged" in verdict.because[0]


def test_an_attempt_that_does_not_end_with_a_sufficient_isr_is_wrong() -> None:
    cluster = Simulated()
    cluster.rest(4)
    sent = cluster.now
    cluster.rest(20)
    cluster.produce()
    cluster.rest(1)
    cluster.end()
    events = changed(cluster.events, is_("produce"), sent_ns=sent)
    assert check_progress(events).valid == "true", "it was acknowledged in the end"
    not_observed_to_the_end = [entry for entry in events if entry.op != "look" or entry.mono_ns < sent + 15 * S]
    assert check_progress(not_observed_to_the_end).valid == "false", "not acknowledged while observed"
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
    without_fault = [entry for entry in events if entry.process != "fault"]
    assert check_progress(without_fault).valid == "unknown"


def test_a_topic_without_recorded_settings_is_unknown() -> None:
    events = [entry for entry in outage().finish() if entry.op != "settings"]
    assert "its required replicas and racks are unknown" in "; ".join(check_progress(events).because)


@pytest.mark.parametrize(
    ("need", "isr", "racks", "met"),
    [
        (Requirement(2, 2), (1, 3), {1: "a", 2: "a", 3: "b"}, True),
        (Requirement(2, 2), (1, 2), {1: "a", 2: "a", 3: "b"}, False),
        (Requirement(3, 1), (1, 2), {1: "a", 2: "a", 3: "b"}, False),
        # M is limited to the number of replicas; R is not limited to the number of racks
        (Requirement(9, 1), (1, 2, 3), {1: "a", 2: "a", 3: "b"}, True),
        (Requirement(1, 9), (1, 2, 3), {1: "a", 2: "a", 3: "b"}, False),
        (Requirement(1, 9), (1, 2, 3), {1: "a", 2: "c", 3: "b"}, True),
        # a broker without a rack counts toward no rack
        (Requirement(1, 2), (1, 2), {1: "a", 2: "", 3: "b"}, False),
        (Requirement(1, 2), (1, 2, 3), {1: "a", 2: "", 3: "b"}, True),
        (Requirement(2, 1), (1, 2), {1: None, 2: "", 3: "b"}, True),
        (Requirement(1, 2), (1, 2), {1: None, 2: "", 3: "b"}, False),
        # an unknown broker counts as a replica but toward no rack
        (Requirement(1, 2), (1, 2), {1: "a", 3: "b"}, False),
        (Requirement(2, 1), (1, 2), {3: "b"}, True),
    ],
)
def test_required_racks_and_replicas_are_counted(
    need: Requirement, isr: tuple[int, ...], racks: dict[int, str | None], met: bool
) -> None:
    state = {"leader": 1, "isr": list(isr), "replicas": [1, 2, 3]}
    names = {str(broker): rack for broker, rack in racks.items()}
    ((_, (observation,)),) = observations(
        [event(1, "isr-watch", "look", partitions={"t-0": state}, racks=names)]
    ).items()
    assert need.met_by(observation) is met


def test_either_value_may_apply_between_two_reports() -> None:
    def settings(at: int, step: str, racks: int) -> Event:
        fields: dict[str, Any] = {MIN_INSYNC_REPLICAS: 1, "min.insync.racks": racks}
        return event(at * S, "x", "settings", topic="t", step=step, **fields)

    def racks(from_s: int, to_s: int, *events: Event) -> set[int]:
        return {need.racks for need in RequirementTimeline(events).possible("t", from_s * S, to_s * S)}

    observed = (settings(10, "seen", 2), settings(20, "seen", 1))
    assert racks(0, 5, *observed) == {2}
    assert racks(12, 15, *observed) == {1, 2}
    assert racks(21, 30, *observed) == {1}
    requested = (settings(10, "seen", 2), settings(20, "begin", 1), settings(30, "settled", 1))
    assert racks(11, 19, *requested) == {1, 2}, "between the observation and the request"
    assert racks(22, 25, *requested) == {1, 2}
    assert racks(31, 40, *requested) == {1}
    assert racks(0, 99, settings(10, "begin", 1)) == set()
    assert racks(0, 99) == set()


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_within_its_bounds_is_valid() -> None:
    events = outage().finish()
    assert check_recovery(events, isr_s=5, ack_s=10).valid == "true"
    late = check_recovery(events, isr_s=0.0001, ack_s=10)
    assert late.valid == "unknown", "no observation between the heal and the first one"


@pytest.mark.parametrize(("overlaps", "valid"), [(True, "true"), (False, "unknown")])
def test_recovery_of_overlapping_faults_counts_from_the_last_heal(overlaps: bool, valid: str) -> None:
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


def late_return(lag_s: float, *, back_s: float, until_s: float, stale_s: tuple[float, ...] = ()) -> list[Event]:
    """Rack b leaves the ISR just before its heal and returns ``back_s`` after it; observations lag by ``lag_s``."""
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
        # the observation right after the heal shows the ISR before it shrank
        (0.7, 999, 70, (), "false"),
        (0.7, 999, 30, (), "unknown"),
        # stale observations by an isolated broker
        (0.0, 999, 70, (0.5, 3.0, 7.5), "false"),
        (0.0, 999, 7.5, (0.5, 3.0, 7.0), "unknown"),
        # returned in time, observed too late
        (0.7, 59.8, 70, (), "unknown"),
        (0.7, 59.8, 60.5, (), "unknown"),
        (0.7, 62.0, 70, (), "false"),
    ],
)
def test_an_observation_after_a_heal_may_be_stale(
    lag_s: float, back_s: float, until_s: float, stale_s: tuple[float, ...], valid: str
) -> None:
    verdict = check_recovery(late_return(lag_s, back_s=back_s, until_s=until_s, stale_s=stale_s))
    assert verdict.valid == valid, verdict.because


def no_return(*, observed_s: float) -> list[Event]:
    cluster = Simulated()
    cluster.rest(4)
    cluster.lose("b")
    cluster.step("kill-rack", "b", "heal")
    cluster.rest(observed_s)
    cluster.produce()
    cluster.end()
    return cluster.events


def test_a_rack_that_does_not_come_back_is_wrong_after_the_bound_and_unknown_before() -> None:
    verdict = check_recovery(no_return(observed_s=30), isr_s=20, ack_s=20)
    assert verdict.valid == "false"
    assert "kill-rack b: t-0 with all replicas in sync: not within" in verdict.because[0]
    assert "an acknowledgement by t-0: not within" in verdict.because[1]
    assert check_recovery(no_return(observed_s=10), isr_s=20, ack_s=20).valid == "unknown"


def test_a_late_acknowledgement_is_wrong_only_if_an_attempt_was_made_in_time() -> None:
    cluster = back_again()
    cluster.rest(30)
    cluster.produce()
    cluster.end()
    assert check_recovery(cluster.events, isr_s=20, ack_s=10).valid == "unknown"
    acknowledged = next(entry for entry in cluster.events if entry.op == "produce")
    healed = faults(cluster.events)[0].heal_ns
    assert healed is not None
    rejected = event(healed + 15 * S, "producer", "produce", "fail", topic="t", key="k", partition=0, seq=None,
                    sent_ns=healed + 14 * S, exception=REJECTED)  # fmt: skip
    assert acknowledged.mono_ns > rejected.mono_ns
    assert check_recovery([*cluster.events, rejected], isr_s=20, ack_s=10).valid == "false"


def test_observations_show_which_replicas_a_reassignment_adds() -> None:
    placements: list[tuple[list[int], list[int]]] = [
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
        for at, (replicas, isr) in enumerate(placements, 1)
    ]  # fmt: skip
    (observed,) = observations(events).values()
    assert [sorted(observation.adding) for observation in observed] == [[], [2, 3], [2, 3], [], [], [4], [], []]
    need = Requirement(replicas=1, racks=2)
    assert [need.effective(observation).racks for observation in observed] == [1, 1, 1, 2, 2, 2, 2, 2]
    # a reassignment from one replica does not stop writes
    assert [need.met_by(observation) for observation in observed] == [True, True, True, True, True, True, True, False]
