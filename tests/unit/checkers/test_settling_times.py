"""Time that a change may take to take effect, and the time that it took."""

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


def shrunk(*, lag_s: float, every_s: float = 0.1, for_s: float = 8.0, after_s: float = 0.0) -> list[Event]:
    """Rack b leaves the ISR, without a fault, and acknowledgements go on for a while; looks all the time."""
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


def test_the_settling_time_is_measured_and_noted() -> None:
    events = shrunk(lag_s=0.7)
    verdict = check_progress(events)
    assert verdict.valid == "true", verdict.because
    took = settling_times.measure(events)
    assert took.measured_s == pytest.approx(0.65, abs=0.15)
    assert took.bound_s == SETTLE_S
    assert took.changes == 2, "away and back"
    assert re.findall(r"([\d.]+) s\b", verdict.notes[-1])[:2] == ["2", f"{took.measured_s:.2f}"], "granted and measured"
    assert any("attempts are not judged" in note for note in verdict.notes)


def test_a_change_that_takes_longer_than_the_bound_is_wrong_however_long_it_is_measured() -> None:
    events = shrunk(lag_s=3.2)
    took = settling_times.measure(events)
    assert took.measured_s is not None
    assert took.measured_s > 3
    verdict = check_progress(events)
    assert verdict.valid == "false"
    assert "the change did not take effect within 2 s" in "; ".join(verdict.because)
    # a longer grant is explicit and is noted
    granted = check_progress(events, settle_s=4)
    assert granted.valid == "true"
    assert "4 s are granted" in granted.notes[-1]


def test_a_bound_below_the_measured_time_is_wrong() -> None:
    assert check_progress(shrunk(lag_s=0.7), settle_s=0.3).valid == "false"


def test_a_change_without_a_later_observation_is_unknown() -> None:
    """Too short for the bound: acknowledgements went on until it was over."""
    verdict = check_progress(shrunk(lag_s=9, for_s=1.0))
    assert verdict.valid == "unknown"
    assert "no outcome was seen to follow the change" in "; ".join(verdict.because)
    assert check_progress(shrunk(lag_s=0.5, for_s=1.0)).valid == "true"


def observed_late(lag_s: float, *, changes: tuple[float, ...] = (6.0, 12.0), slow: bool = False) -> list[Event]:
    """Rack b leaves the ISR and returns; the partition is correct, and observations show it with a delay."""
    cluster = Simulated()

    def away(at_s: float) -> set[int]:
        return {3} if sum(change_s <= at_s for change_s in changes) % 2 else set()

    for tenth in range(180):
        if slow and tenth in (30, 150):
            cluster.step("slow-rack", "b", "inject" if tenth == 30 else "heal")
        cluster.now = max(cluster.now, tenth * S // 10)
        cluster.down = away(cluster.now / S)
        cluster.produce()
        cluster.down = away(cluster.now / S - lag_s)
        cluster.look()
    if slow:
        cluster.step("slow-rack", "b", "healed", "ok")
    cluster.down = set()
    busy(cluster, 8)
    cluster.end()
    return cluster.events


def test_a_leader_may_know_of_a_change_before_the_observed_broker() -> None:
    for changes in ((6.0, 12.0), (6.0, 12.0, 14.5, 16.0)):
        verdict = check_progress(observed_late(0.7, changes=changes))
        assert verdict.valid == "true", verdict.because
        assert any("attempts are not judged" in note for note in verdict.notes)
    # over before it was seen
    assert check_progress(observed_late(0.7, changes=(6.0, 12.0, 14.5, 14.9))).valid == "unknown"
    late = check_progress(observed_late(2.6))
    assert late.valid == "false"
    assert "enough, and record" in late.because[0]
    # what was never seen to become otherwise is no change of which a leader could have known
    assert check_progress(observed_late(30.0)).valid == "false"


@pytest.mark.parametrize(("number", "valid"), [(58, "true"), (30, "unknown")])
def test_an_attempt_may_meet_a_change_that_the_next_observation_shows(number: int, valid: str) -> None:
    """An attempt without a response is no evidence if others were acknowledged and the next state is observed."""
    events = changed(observed_late(0.7), is_("produce", "ok"), number, outcome="unknown", exception=TIMEOUT)
    verdict = check_progress(events)
    assert verdict.valid == valid, verdict.because


@pytest.mark.parametrize("end", ["looks", "gap", "inject"])
def test_a_change_that_was_not_observed_is_unknown(end: str) -> None:
    """The last second before observations end or pause, or before a fault, after which the state is unknown."""
    events = observed_late(0.7, changes=(9.5,))
    if end == "inject":
        events = [*events, event(round(9.8 * S), "fault", "kill-rack", None, "b", step="inject")]
        events.sort(key=lambda entry: entry.mono_ns)
    until_s = {"looks": 99.0, "gap": 13.5, "inject": 0.0}[end]
    verdict = check_progress(
        [entry for entry in events if entry.op != "look" or not 10 * S < entry.mono_ns < until_s * S]
    )
    assert verdict.valid == "unknown", verdict.because
    assert "enough, and record" in "; ".join(verdict.because)


@pytest.mark.parametrize("need", [2, 3])
def test_several_changes_within_the_lag_are_allowed(need: int) -> None:
    """Replicas of two racks get in sync one after the other; or leave the ISR so."""
    cluster = Simulated({1: "a", 2: "b", 3: "c"}, need_replicas=need)

    def away(at_s: float) -> set[int]:
        both = 5 <= at_s < 11.8 or 17.2 <= at_s < 22
        return {2, 3} if both else {3} if 11.8 <= at_s < 12 or 17 <= at_s < 17.2 else set()

    for tenth in range(280):
        cluster.now = max(cluster.now, tenth * S // 10)
        if tenth == 124:
            cluster.settings("seen")
        cluster.down = away(cluster.now / S)
        cluster.produce()
        cluster.down = away(cluster.now / S - 0.7)
        cluster.look()
    cluster.end()
    assert check_progress(cluster.events).valid == "true"


def test_an_outcome_that_contradicts_observations_under_a_fault_is_unknown() -> None:
    assert check_progress(observed_late(0.7, slow=True)).valid == "true"
    verdict = check_progress(observed_late(30.0, slow=True))
    assert verdict.valid == "unknown"
    assert "contradict observations that a fault makes doubtful" in "; ".join(verdict.because)


def flapping(*, refused: bool) -> list[Event]:
    """Too few all the time, in states of which none lasts: brokers 1 and 2 of rack a come and go."""
    cluster = Simulated({1: "a", 2: "a", 3: "b"}, need_replicas=1)
    cluster.rest(4)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    for at in range(8):
        cluster.down = {3} if at % 2 else {2, 3}
        cluster.rest(1, 0.2)
        if at < 5 or refused:
            cluster.produce()
        else:
            key_away, cluster.down = cluster.down, set()
            cluster.produce()
            cluster.down = key_away
        cluster.look()
    cluster.down = set()
    cluster.rest(5)
    for _ in range(5):
        cluster.produce()
        cluster.look()
    cluster.end()
    return cluster.events


def look(at_s: float, isr: tuple[int, ...], leader: int = 2) -> RecordedPartition:
    return RecordedPartition(round(at_s * S), leader, isr, (1, 2, 3), {1: "a", 2: "b", 3: "a"}, round(at_s * S) - 1)


def away_and_back(inject_s: float, heal_s: float) -> RecordedFault:
    return RecordedFault("kill-broker", None, 1, round(inject_s * S), round(heal_s * S), round((heal_s + 0.2) * S))


def test_a_fault_or_heal_separates_observations_of_the_same_state() -> None:
    """Broker 1 may have been in sync for a moment, though two looks in a row don't show it."""
    seen = [look(1, (2,)), look(3, (2,)), look(5, (2,))]
    assert list(settling_times.stretches(seen, [away_and_back(0.2, 9)])) == [seen]
    assert list(settling_times.stretches(seen, [away_and_back(3.5, 9)])) == [seen[:2], seen[2:]]
    assert list(settling_times.stretches(seen, [away_and_back(0.2, 1.5)])) == [seen[:1], seen[1:]]
    elsewhere = replace(away_and_back(3.5, 9), broker=4)
    assert list(settling_times.stretches(seen, [elsewhere])) == [seen]


@pytest.mark.parametrize(
    ("first", "second", "enough", "spans"),
    [
        ((2,), (2, 2), False, 1),
        # rack b alone, then rack a alone: by way of both
        ((2,), (1,), False, 2),
        ((1,), (3,), False, 1),
        ((1, 2), (2, 3), True, 2),
        ((1, 2), (1, 2, 3), True, 1),
    ],
)
def test_states_are_joined_only_with_the_same_transition(
    first: tuple[int, ...], second: tuple[int, ...], enough: bool, spans: int
) -> None:
    seen = [look(at_s, first) for at_s in (1, 2, 3)] + [look(at_s, second) for at_s in (4, 5, 6)]
    fields: dict[str, Any] = {"topic": "t", "step": "seen", MIN_INSYNC_REPLICAS: 1, MIN_INSYNC_RACKS: 2}
    settings = event(0, "look", "settings", **fields)
    partition = PartitionName("t", 0)
    cluster = ClusterView({partition: seen}, RequirementTimeline([settings]), [])
    found = settling_times.spans(partition, cluster, 2 * S)
    assert [one.enough for one in found] == [enough] * spans


def test_an_unchanged_expectation_is_judged_after_the_bound() -> None:
    assert check_progress(flapping(refused=True)).valid == "true"
    verdict = check_progress(flapping(refused=False))
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


def required(*, lag_s: float, back: bool = True) -> list[Event]:
    """R changes from 1 to 2 with all replicas in one rack, and back; the ISR is constant."""
    cluster = Simulated({1: "a", 2: "a"}, need_replicas=1, need_racks=1)
    reported = 1

    def go_on(seconds: float, obeys: int) -> None:
        until = cluster.now + round(seconds * S)
        while cluster.now < until:
            cluster.need_racks = obeys
            cluster.produce()
            cluster.need_racks = reported
            cluster.look()
            cluster.now += S // 5

    def asks(racks: int, lag_s: float) -> None:
        nonlocal reported
        cluster.settings("seen")
        cluster.need_racks = racks
        cluster.settings("begin")
        cluster.now += S // 4
        cluster.settings("settled")
        before, reported = reported, racks
        go_on(lag_s, before)

    go_on(4, 1)
    asks(2, lag_s)
    go_on(6, 2)
    if back:
        asks(1, 0)
        go_on(6, 1)
    cluster.end()
    return cluster.events


def test_settings_that_change_with_a_constant_isr_are_judged_before_and_after() -> None:
    for events in (required(lag_s=0.0), required(lag_s=0.8), required(lag_s=0.8, back=False)):
        verdict = check_progress(events)
        assert verdict.valid == "true", verdict.because
        took = settling_times.measure(events)
        assert took.changes in (1, 2)
        assert took.reported_s == pytest.approx(0.25, abs=0.01)
    late = check_progress(required(lag_s=2.6))
    assert late.valid == "false"
    assert "too few, and record" in late.because[0]
    assert "did not take effect within 2 s" in late.because[-1]
    refused = [entry for entry in required(lag_s=0.0) if entry.op == "produce" and entry.outcome == "fail"]
    wrong = changed(required(lag_s=0.0), is_("produce", "fail"), len(refused) - 2, outcome="ok", exception=None)
    assert check_progress(wrong).valid == "false"


def test_a_late_response_does_not_extend_its_observation() -> None:
    """The state is of some moment since the question; an acknowledgement after that moment may be rightful."""
    events = shrunk(lag_s=0.0)
    assert check_progress(events).valid == "true"
    last = max(
        at for at, entry in enumerate(events) if entry.op == "look" and entry.data["partitions"]["t-0"]["isr"] == [1, 2]
    )
    refused = [entry for entry in events if entry.op == "produce" and entry.outcome == "fail"]
    # longer before the change than metadata may lag behind
    wrong = changed(events, is_("produce", "fail"), len(refused) - 15, outcome="ok", exception=None)
    assert check_progress(wrong).valid == "false"
    asked_ns = refused[-16].mono_ns
    late = [
        event(entry.mono_ns, entry.process, entry.op, entry.outcome, **{**entry.data, "asked_ns": asked_ns})
        if at == last
        else entry
        for at, entry in enumerate(wrong)
    ]
    assert "acknowledged" not in "; ".join(check_progress(late).because)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_reports_the_granted_and_the_measured_time(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).extend(shrunk(lag_s=0.7))
    command = ["judge", str(path), "--checker", "progress"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "2 s are granted to a change to take effect; measured: 0." in shown.output
    output = json.loads(CliRunner().invoke(app, [*command, "--json", "--settle", "900ms"]).output)
    assert (output["settle_s"], output["measured_changes"], output["valid"]) == (0.9, 2, "true")
    assert 0.5 < output["measured_settle_s"] < 0.8
    assert CliRunner().invoke(app, [*command, "--settle", "300ms"]).exit_code == 1
    assert CliRunner().invoke(app, [*command, "--settle", "0s"]).exception is not None


def test_checkers_without_a_settling_time_do_not_report_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).extend(shrunk(lag_s=0.0))
    output = json.loads(CliRunner().invoke(app, ["judge", str(path), "--checker", "delivery", "--json"]).output)
    assert (output["measured_settle_s"], output["measured_changes"]) == (None, 0)
    assert measure_settling([], ["delivery"]) is None
    (found,), _ = judge(shrunk(lag_s=3.2), ["progress"], settle_s=4)
    assert found.valid == "true"
    assert "up to 2 s before" in check_promise(outage().finish()).notes[0]
