"""Settling time of changes to ISRs and settings: the granted bound and the measured time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyhooks.checkers import settling_times
from pyhooks.checkers.cluster_view import ClusterView, RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.judgement import judge, measure_settling
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.settling_times import SETTLE_S
from pyhooks.cli import app
from pyhooks.history.event_log import Event, History
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from written_histories import TIMEOUT, S, Simulated, busy, changed, event, is_, outage


def isr_shrink(*, lag_s: float, every_s: float = 0.1, for_s: float = 8.0, after_s: float = 0.0) -> list[Event]:
    """Rack b leaves the ISR without a fault for ``for_s``; acknowledgements continue for ``lag_s``."""
    cluster = Simulated()
    cluster.rest(4)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    cluster.down |= {3}
    cluster.look()
    left = cluster.now
    while cluster.now < left + round(for_s * S):
        cluster.down = set() if cluster.now < left + round(lag_s * S) else {3}
        cluster.produce()
        cluster.down = {3}
        cluster.look()
        cluster.now += round(every_s * S)
    cluster.down = set()
    cluster.rest(3 + after_s)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    cluster.end()
    return cluster.events


def test_the_settling_time_is_measured_and_reported() -> None:
    events = isr_shrink(lag_s=0.7)
    verdict = check_progress(events)
    assert verdict.valid == "true", verdict.because
    measured = settling_times.measure(events)
    assert measured.measured_s == pytest.approx(0.65, abs=0.15)
    assert measured.bound_s == SETTLE_S
    assert measured.changes == 2, "leaving and returning"
    assert re.findall(r"([\d.]+) s\b", verdict.notes[-1])[:2] == ["2", f"{measured.measured_s:.2f}"], (
        "granted and measured"
    )
    assert any("attempts are not judged" in note for note in verdict.notes)


def test_a_change_that_takes_longer_than_the_bound_is_wrong() -> None:
    events = isr_shrink(lag_s=3.2)
    measured = settling_times.measure(events)
    assert measured.measured_s is not None
    assert measured.measured_s > 3
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert "the change did not take effect within 2 s" in "; ".join(verdict.because)
    # a larger bound must be explicit and is noted
    granted = check_progress(events, settle_s=4)
    assert granted.valid == "true"
    assert "4 s are granted" in granted.notes[-1]


def test_a_bound_below_the_measured_time_is_wrong() -> None:
    assert check_progress(isr_shrink(lag_s=0.7), settle_s=0.3).valid == "false"


def test_a_change_without_a_later_observation_is_unknown() -> None:
    """A change shorter than the bound, with acknowledgements until its end."""
    verdict = check_progress(isr_shrink(lag_s=9, for_s=1.0))
    assert verdict.valid == "unknown"
    assert "no outcome was seen to follow the change" in "; ".join(verdict.because)
    assert check_progress(isr_shrink(lag_s=0.5, for_s=1.0)).valid == "true"


def observed_late(lag_s: float, *, changes: tuple[float, ...] = (6.0, 12.0), under_fault: bool = False) -> list[Event]:
    """Rack b leaves the ISR and returns; outcomes are correct, and observations are ``lag_s`` late."""
    cluster = Simulated()

    def unavailable(at_s: float) -> set[int]:
        return {3} if sum(change_s <= at_s for change_s in changes) % 2 else set()

    for tenth in range(180):
        if under_fault and tenth in (30, 150):
            cluster.step("slow-rack", "b", "inject" if tenth == 30 else "heal")
        cluster.now = max(cluster.now, tenth * S // 10)
        cluster.down = unavailable(cluster.now / S)
        cluster.produce()
        cluster.down = unavailable(cluster.now / S - lag_s)
        cluster.look()
    if under_fault:
        cluster.step("slow-rack", "b", "healed", "ok")
    cluster.down = set()
    busy(cluster, 8)
    cluster.end()
    return cluster.events


def test_a_leader_may_apply_a_change_before_the_observed_broker() -> None:
    for changes in ((6.0, 12.0), (6.0, 12.0, 14.5, 16.0)):
        verdict = check_progress(observed_late(0.7, changes=changes))
        assert verdict.valid == "true", verdict.because
        assert any("attempts are not judged" in note for note in verdict.notes)
    # reverted before it was observed
    assert check_progress(observed_late(0.7, changes=(6.0, 12.0, 14.5, 14.9))).valid == "unknown"
    late = check_progress(observed_late(2.6))
    assert late.valid == "false"
    assert "enough, and record" in late.because[0]
    # without an observed change, the leader cannot have applied one
    assert check_progress(observed_late(30.0)).valid == "false"


@pytest.mark.parametrize(("number", "valid"), [(58, "true"), (30, "unknown")])
def test_an_attempt_may_follow_a_change_that_the_next_observation_shows(number: int, valid: str) -> None:
    """A timed-out attempt is excused if others were acknowledged and the next observation shows the change."""
    events = changed(observed_late(0.7), is_("produce", "ok"), number, outcome="unknown", exception=TIMEOUT)
    verdict = check_progress(events)
    assert verdict.valid == valid, verdict.because


@pytest.mark.parametrize("end", ["end of observations", "gap", "inject"])
def test_a_change_that_was_not_observed_is_unknown(end: str) -> None:
    """A change in the last second before observations end or pause, or before a fault."""
    events = observed_late(0.7, changes=(9.5,))
    if end == "inject":
        events = [*events, event(round(9.8 * S), "fault", "kill-rack", None, "b", step="inject")]
        events.sort(key=lambda entry: entry.mono_ns)
    until_s = {"end of observations": 99.0, "gap": 13.5, "inject": 0.0}[end]
    verdict = check_progress(
        [entry for entry in events if entry.op != "look" or not 10 * S < entry.mono_ns < until_s * S]
    )
    assert verdict.valid == "unknown", verdict.because
    assert "enough, and record" in "; ".join(verdict.because)


@pytest.mark.parametrize("need", [2, 3])
def test_several_changes_within_the_lag_are_allowed(need: int) -> None:
    """Replicas of two racks join or leave the ISR one shortly after the other."""
    cluster = Simulated({1: "a", 2: "b", 3: "c"}, need_replicas=need)

    def unavailable(at_s: float) -> set[int]:
        both = 5 <= at_s < 11.8 or 17.2 <= at_s < 22
        return {2, 3} if both else {3} if 11.8 <= at_s < 12 or 17 <= at_s < 17.2 else set()

    for tenth in range(280):
        cluster.now = max(cluster.now, tenth * S // 10)
        if tenth == 124:
            cluster.settings("seen")
        cluster.down = unavailable(cluster.now / S)
        cluster.produce()
        cluster.down = unavailable(cluster.now / S - 0.7)
        cluster.look()
    cluster.end()
    assert check_progress(cluster.events).valid == "true"


def test_an_outcome_that_contradicts_observations_under_a_fault_is_unknown() -> None:
    assert check_progress(observed_late(0.7, under_fault=True)).valid == "true"
    verdict = check_progress(observed_late(30.0, under_fault=True))
    assert verdict.valid == "unknown"
    assert "contradict observations that a fault makes doubtful" in "; ".join(verdict.because)


def changing_states(*, rejected: bool) -> list[Event]:
    """Broker 3 is out of the ISR while broker 2 leaves and rejoins it so often that no state settles.

    ``rejected``: whether all records are rejected; otherwise the last ones are acknowledged.
    """
    cluster = Simulated({1: "a", 2: "a", 3: "b"}, need_replicas=1)
    cluster.rest(4)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    for at in range(8):
        cluster.down = {3} if at % 2 else {2, 3}
        cluster.rest(1, 0.2)
        if at < 5 or rejected:
            cluster.produce()
        else:
            out_of_sync, cluster.down = cluster.down, set()
            cluster.produce()
            cluster.down = out_of_sync
        cluster.look()
    cluster.down = set()
    cluster.rest(5)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    cluster.end()
    return cluster.events


def observation(at_s: float, isr: tuple[int, ...], leader: int = 2) -> RecordedPartition:
    return RecordedPartition(round(at_s * S), leader, isr, (1, 2, 3), {1: "a", 2: "b", 3: "a"}, round(at_s * S) - 1)


def broker_fault(inject_s: float, heal_s: float) -> RecordedFault:
    return RecordedFault("kill-broker", None, 1, round(inject_s * S), round(heal_s * S), round((heal_s + 0.2) * S))


def test_a_fault_or_heal_separates_observations_of_the_same_state() -> None:
    """Broker 1 may have been in sync for a moment between two identical observations."""
    observed = [observation(1, (2,)), observation(3, (2,)), observation(5, (2,))]
    assert list(settling_times.stretches(observed, [broker_fault(0.2, 9)])) == [observed]
    assert list(settling_times.stretches(observed, [broker_fault(3.5, 9)])) == [observed[:2], observed[2:]]
    assert list(settling_times.stretches(observed, [broker_fault(0.2, 1.5)])) == [observed[:1], observed[1:]]
    elsewhere = replace(broker_fault(3.5, 9), broker=4)
    assert list(settling_times.stretches(observed, [elsewhere])) == [observed]


@pytest.mark.parametrize(
    ("first", "second", "enough", "spans"),
    [
        ((2,), (2, 2), False, 1),
        # from rack b only to rack a only, via a state with both
        ((2,), (1,), False, 2),
        ((1,), (3,), False, 1),
        ((1, 2), (2, 3), True, 2),
        ((1, 2), (1, 2, 3), True, 1),
    ],
)
def test_states_are_joined_only_with_the_same_transition(
    first: tuple[int, ...], second: tuple[int, ...], enough: bool, spans: int
) -> None:
    observed = [observation(at_s, first) for at_s in (1, 2, 3)] + [observation(at_s, second) for at_s in (4, 5, 6)]
    fields: dict[str, Any] = {"topic": "t", "step": "seen", MIN_INSYNC_REPLICAS: 1, MIN_INSYNC_RACKS: 2}
    settings = event(0, "look", "settings", **fields)
    partition = PartitionName("t", 0)
    cluster = ClusterView({partition: observed}, RequirementTimeline([settings]), [])
    intervals = settling_times.spans(partition, cluster, 2 * S)
    assert [interval.enough for interval in intervals] == [enough] * spans


def test_an_unchanged_expected_outcome_is_judged_in_changing_states() -> None:
    assert check_progress(changing_states(rejected=True)).valid == "true"
    verdict = check_progress(changing_states(rejected=False))
    assert verdict.valid == "false"
    assert "in changing states, and record" in "; ".join(verdict.because)


def test_without_a_change_nothing_is_measured() -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.produce()
    cluster.rest(1)
    cluster.end()
    verdict = check_progress(cluster.events)
    assert verdict.valid == "true"
    assert "not measured" in verdict.notes[-1]
    assert settling_times.measure(cluster.events).measured_s is None


def test_the_time_from_a_request_until_all_brokers_report_it_is_measured() -> None:
    cluster = Simulated(need_racks=1)
    cluster.rest(4)
    cluster.produce()
    cluster.settings("seen")
    cluster.need_racks = 2
    cluster.settings("begin")
    cluster.rest(1)
    cluster.settings("settled")
    cluster.rest(4)
    cluster.end()
    delay_s = settling_times.measure(cluster.events).reported_s
    assert delay_s is not None
    assert 0.9 < delay_s < 1.6


def changed_r(*, lag_s: float, back: bool = True) -> list[Event]:
    """R changes from 1 to 2 and, with ``back``, to 1 again; the constant ISR is in one rack.

    ``lag_s``: how long the leader applies R=1 after the first change.
    """
    cluster = Simulated({1: "a", 2: "a"}, need_replicas=1, need_racks=1)
    reported = 1

    def run_for(seconds: float, applied: int) -> None:
        until = cluster.now + round(seconds * S)
        while cluster.now < until:
            cluster.need_racks = applied
            cluster.produce()
            cluster.need_racks = reported
            cluster.look()
            cluster.now += S // 5

    def set_racks(racks: int, lag_s: float) -> None:
        nonlocal reported
        cluster.settings("seen")
        cluster.need_racks = racks
        cluster.settings("begin")
        cluster.now += S // 4
        cluster.settings("settled")
        before, reported = reported, racks
        run_for(lag_s, before)

    run_for(4, 1)
    set_racks(2, lag_s)
    run_for(6, 2)
    if back:
        set_racks(1, 0)
        run_for(6, 1)
    cluster.end()
    return cluster.events


def test_settings_that_change_with_a_constant_isr_are_judged_before_and_after() -> None:
    for events in (changed_r(lag_s=0.0), changed_r(lag_s=0.8), changed_r(lag_s=0.8, back=False)):
        verdict = check_progress(events)
        assert verdict.valid == "true", verdict.because
        measured = settling_times.measure(events)
        assert measured.changes in (1, 2)
        assert measured.reported_s == pytest.approx(0.25, abs=0.01)
    late = check_progress(changed_r(lag_s=2.6))
    assert late.valid == "false"
    assert "too few, and record" in late.because[0]
    assert "did not take effect within 2 s" in late.because[-1]
    rejected = [entry for entry in changed_r(lag_s=0.0) if entry.op == "produce" and entry.outcome == "fail"]
    wrong = changed(changed_r(lag_s=0.0), is_("produce", "fail"), len(rejected) - 2, outcome="ok", exception=None)
    assert check_progress(wrong).valid == "false"


def test_a_late_response_does_not_extend_its_observation() -> None:
    """The response shows the state at some moment since the query; a later acknowledgement may be correct."""
    events = isr_shrink(lag_s=0.0)
    assert check_progress(events).valid == "true"
    last = max(
        at for at, entry in enumerate(events) if entry.op == "look" and entry.data["partitions"]["t-0"]["isr"] == [1, 2]
    )
    rejected = [entry for entry in events if entry.op == "produce" and entry.outcome == "fail"]
    # longer before the change than metadata may lag
    wrong = changed(events, is_("produce", "fail"), len(rejected) - 15, outcome="ok", exception=None)
    assert check_progress(wrong).valid == "false"
    asked_ns = rejected[-16].mono_ns
    late = [
        event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "asked_ns": asked_ns})
        if at == last
        else entry
        for at, entry in enumerate(wrong)
    ]
    assert "acknowledged" not in "; ".join(check_progress(late).because)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_reports_the_granted_and_the_measured_settling_time(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).extend(isr_shrink(lag_s=0.7))
    command = ["judge", str(path), "--checker", "progress"]
    table = CliRunner().invoke(app, command)
    assert table.exit_code == 0
    assert "2 s are granted to a change to take effect; measured: 0." in table.output
    output = json.loads(CliRunner().invoke(app, [*command, "--json", "--settle", "900ms"]).output)
    assert (output["settle_s"], output["measured_changes"], output["valid"]) == (0.9, 2, "true")
    assert 0.5 < output["measured_settle_s"] < 0.8
    assert CliRunner().invoke(app, [*command, "--settle", "300ms"]).exit_code == 1
    assert CliRunner().invoke(app, [*command, "--settle", "0s"]).exception is not None


def test_checkers_without_a_settling_time_report_none(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).extend(isr_shrink(lag_s=0.0))
    output = json.loads(CliRunner().invoke(app, ["judge", str(path), "--checker", "delivery", "--json"]).output)
    assert (output["measured_settle_s"], output["measured_changes"]) == (None, 0)
    assert measure_settling([], ["delivery"]) is None
    (verdict,), _ = judge(isr_shrink(lag_s=3.2), ["progress"], settle_s=4)
    assert verdict.valid == "true"
    assert "up to 2 s before" in check_promise(outage().finish()).notes[0]
