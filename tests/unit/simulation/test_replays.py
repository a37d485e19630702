"""The simulator comes to what the lab measured: its state machine of the same faults, its rule of recorded runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.simulation import replay as recorded
from pyhooks.simulation.machine_script import (
    LOWERED,
    NEVER,
    Code,
    Outcome,
    Scripts,
    Seen,
    Setting,
    Status,
    Timing,
    tables,
)
from pyhooks.simulation.partition_machine import run
from pyhooks.simulation.replay import AGREES, CONTRADICTS, ONE_RACK_ALONE, UNKNOWN, WORDS

TABLE = paths.REPO / "tests/support/lab_outcomes.toml"
RUNS: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["run"]
# as in the lab, where little is written between the faults
TIMING = Timing(session_s=9.0, lag_s=30.0, flush_s=30.0, catch_up=0.05, copy_s=5.0)


def mask(slots: list[int]) -> int:
    return sum(1 << (slot - 1) for slot in slots)


def slots(sets: int) -> list[int]:
    return [slot + 1 for slot in range(12) if sets >> slot & 1]


def replay(
    script: list[Any], racks: str, settings: list[Setting], timing: Timing = TIMING, begin_s: float = 0.0
) -> tuple[Outcome, list[Seen]]:
    """Runs one script; the partition is well for ever before it and after it."""
    events = sorted(script, key=lambda one: one[0])
    numbers = {rack: number for number, rack in enumerate(dict.fromkeys(racks))}
    scripts = Scripts(
        np.array([0, len(events)]),
        np.array([float(one[0]) for one in events]),
        np.array([Code[one[1]] for one in events], dtype=np.int64),
        np.array([mask(one[2]) for one in events]),
        np.zeros(1, dtype=np.int64),
    )
    seen: list[Seen] = []
    outcome = run(scripts, [[numbers[rack] for rack in racks]], settings, timing, end_s=1e9, begin_s=begin_s, seen=seen)
    return outcome, seen


def at(seen: list[Seen], setting: int, second: float) -> Seen:
    own = [one for one in seen if one.setting == setting]
    for one in own:
        if one.from_s <= second < one.to_s:
            return one
    # before the script and after it all is well
    assert second < own[0].from_s or second >= own[-1].to_s
    full = own[0].isr
    return Seen(0, setting, 0.0, NEVER, Status.TAKEN, 0, full, 0)


@pytest.mark.parametrize("one", RUNS, ids=lambda one: f"{one['racks']} {one['source'].partition(':')[0]}")
def test_it_comes_to_what_the_lab_measured(one: dict[str, Any]) -> None:
    lower = float(one.get("lower_after_s", NEVER))
    elr = "replicas" if one.get("stock") else "racks"
    settings = [Setting(m, r, elr, lower) for m, r in one["settings"]]  # type: ignore[arg-type]
    outcome, seen = replay(one["script"], one["racks"], settings)
    for setting, expected in enumerate(one["expect"]):
        found = [[second, at(seen, setting, second).status.name] for second, _ in expected]
        assert found == expected, f"setting {setting}"
    for setting, expected in enumerate(one.get("elr", [])):
        assert [[second, slots(at(seen, setting, second).elr)] for second, _ in expected] == expected
    for setting, expected in enumerate(one.get("leader", [])):
        for second, some in expected:
            assert at(seen, setting, second).leader + 1 in some, second
    lost = set(outcome.losses.setting.tolist())
    assert [setting in lost for setting in range(len(settings))] == one["lost"]


def test_the_table_names_its_sources() -> None:
    for one in RUNS:
        file = one["source"].partition(",")[0].partition(":")[0]
        assert (TABLE.parent.parent / file).is_file(), one["source"]


def spent(outcome: Outcome, status: Status, setting: int = 0) -> float:
    return float(outcome.spent_s[0, setting, status])


def test_seconds_of_a_crash() -> None:
    """Waits for the session, then goes on; who is back is in the ISR after it has caught up."""
    outcome, seen = replay([[100, "CRASH", [2]], [200, "BACK", [2]]], "abc", [Setting(2, 2), Setting(3, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(9.0)
    assert spent(outcome, Status.TAKEN) == pytest.approx(100 - 9 + 0.05 * 100)
    assert spent(outcome, Status.REPLICAS, 1) == pytest.approx(100 - 9 + 0.05 * 100)
    assert outcome.ended_s.tolist() == pytest.approx([205.0])
    assert not len(outcome.losses.script)
    assert {one.isr for one in seen} == {0b111, 0b101}


def test_seconds_of_a_follower_that_is_slow() -> None:
    """Waits until the lag is too long and the leader looks, each 15 s; a leader that is slow lags behind nobody."""
    slow, fast = [[100, "SLOW", [2]], [160, "FAST", [2]]], [[100, "SLOW", [1]], [160, "FAST", [1]]]
    outcome, seen = replay(slow, "abc", [Setting(2, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(35.0)
    assert at(seen, 0, 134).isr == 0b111
    assert at(seen, 0, 150).isr == 0b101
    assert outcome.ended_s.tolist() == pytest.approx([163.0])
    outcome, seen = replay(fast, "abc", [Setting(2, 1)])
    assert spent(outcome, Status.WAITS) == 0.0
    short, seen = replay([[100, "SLOW", [2]], [120, "FAST", [2]]], "abc", [Setting(2, 1)])
    assert spent(short, Status.WAITS) == pytest.approx(20.0)
    assert {one.isr for one in seen} == {0b111}


def test_a_slow_follower_leaves_after_one_to_one_and_a_half_times_the_limit() -> None:
    """As ReplicaManager: 30 s of lag are not too long at a look that comes then, and 30.1 s are."""
    waits = []
    for begin in np.arange(-45.0, 45.0, 0.1):
        outcome, _ = replay([[begin, "SLOW", [2]], [begin + 60, "FAST", [2]]], "abc", [Setting(2, 1)], begin_s=-NEVER)
        waits.append(spent(outcome, Status.WAITS))
    assert 30.0 < min(waits) < 30.2
    assert max(waits) == pytest.approx(45.0)
    assert np.mean(waits) == pytest.approx(1.25 * 30.0, rel=0.01)


@pytest.mark.parametrize("away", [(105, 110), (130, 134.9), (130, 136)])
def test_who_was_cut_off_for_a_moment_is_behind_as_before(away: tuple[float, float]) -> None:
    """Slow since second 100, so that the leader finds it at 135, whether it is there then or its session goes on."""
    script = [[100, "SLOW", [2]], [away[0], "CUT", [2]], [away[1], "BACK", [2]], [200, "FAST", [2]]]
    outcome, _ = replay(script, "abc", [Setting(2, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(35.0)


@pytest.mark.parametrize(("where", "lost_s"), [("aaa", 30.0), ("abb", None)])
def test_what_is_not_flushed_is_lost_if_all_lose_their_power(where: str, lost_s: float | None) -> None:
    """Racks without a common supply keep it; the third replica of aaa was away before and has less."""
    off = [[100, "STOP", [3]], [1000, "POWER", [1, 2] if where == "aaa" else [2]]]
    script = [*off, [1100, "BACK", [1, 2] if where == "aaa" else [2]], [1200, "BACK", [3]]]
    outcome, _ = replay(script, where, [Setting(2, 1)])
    assert outcome.losses.seconds.tolist() == ([] if lost_s is None else pytest.approx([lost_s]))


def test_an_idle_gate_has_flushed_what_it_took() -> None:
    """With R=2 nothing is acknowledged after rack b has left, so a loss of power later on finds it flushed."""
    script = [[100, "CUT", [3]], [300, "POWER", [1, 2]], [400, "BACK", [1, 2]], [500, "BACK", [3]]]
    outcome, _ = replay(script, "aab", [Setting(2, 2), Setting(2, 1)])
    assert outcome.losses.setting.tolist() == [1]
    assert outcome.losses.seconds.tolist() == pytest.approx([30.0])


def test_without_elr_the_last_one_leads_whatever_it_has_lost() -> None:
    script = [[100, "STOP", [2]], [200, "DISK", [1]], [300, "BACK", [1]], [400, "BACK", [2]]]
    outcome, _ = replay(script, "ab", [Setting(1, 1, "off"), Setting(1, 1, "racks"), Setting(2, 1, "racks")])
    # M=1 acknowledges alone in both; with M=2 nobody did
    assert outcome.losses.setting.tolist() == [0, 1]
    assert np.isinf(outcome.losses.seconds).all()


def test_killed_replica_is_remembered_under_a_leader() -> None:
    """2 was killed and is back, but not in sync when the disk of the leader is replaced."""
    script = [[100, "CRASH", [2]], [500, "BACK", [2]], [501, "DISK", [1]], [550, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [Setting(1, 2), Setting(1, 2, "replicas")])
    assert outcome.losses.setting.tolist() == [1]
    assert [at(seen, setting, 551).leader for setting in (0, 1)] == [1, 0]


def test_last_leader_is_awaited_before_other_killed_replicas() -> None:
    script = [[100, "CRASH", [2]], [200, "CRASH", [1]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [Setting(1, 2)])
    assert [at(seen, 0, second).leader for second in (301, 401)] == [-1, 0]
    assert not len(outcome.losses.script)


def test_lost_replica_leads_if_there_is_no_other_one_to_wait_for() -> None:
    script = [[100, "CRASH", [2]], [200, "DISK", [1, 2]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [Setting(1, 2)])
    assert at(seen, 0, 301).leader == -1
    assert at(seen, 0, 401).leader == 0
    assert np.isinf(outcome.losses.seconds).all()
    assert len(outcome.losses.seconds) == 1


def test_one_killed_replica_is_remembered_when_r_is_lowered_to_1() -> None:
    script = [[100, "CRASH", [2]], [120, "CRASH", [1]], [140, "BACK", [2]], [200, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [Setting(1, 2, "racks", 60.0)])
    assert [at(seen, 0, second).leader for second in (190, 201)] == [-1, 0]
    assert outcome.spent_s[0, 0, LOWERED] > 0
    assert not len(outcome.losses.script)


@pytest.mark.parametrize("racks", ["aab", "abb", "abc", "aabbc"])
def test_nothing_is_lost_with_one_rack_while_others_are_killed(racks: str) -> None:
    """Disks are replaced in rack a alone, and processes end everywhere; without the memory of R some is lost."""
    random = np.random.default_rng(1)
    settings = [Setting(2, 2), Setting(1, 2), Setting(2, 2, "replicas")]
    lost = np.zeros(len(settings))
    for _ in range(40):
        script: list[Any] = []
        for slot, rack in enumerate(racks, 1):
            second = 100.0
            for _ in range(int(random.integers(1, 4))):
                second += float(random.uniform(1, 60))
                codes = ("DISK", "CRASH", "STOP") if rack == "a" else ("CRASH", "STOP", "CUT")
                away = float(random.uniform(1, 60))
                script += [[second, str(random.choice(codes)), [slot]], [second + away, "BACK", [slot]]]
                second += away
        outcome, _ = replay(script, racks, settings)
        lost += np.bincount(outcome.losses.setting, minlength=len(settings))
    assert lost[:2].tolist() == [0, 0]
    assert lost[2] > 0


def test_a_script_without_an_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="before all replicas are back"):
        replay([[100, "CRASH", [1]]], "ab", [Setting(1, 1)])


def test_sets_of_replicas() -> None:
    members, count, first = tables(3)
    assert members[0b101].tolist() == [True, False, True]
    assert count.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert first.tolist() == [-1, 0, 1, 0, 2, 0, 1, 0]


HISTORIES = sorted((paths.REPO / "tests/support/lab_histories").glob("*.jsonl"))
OUTAGE = paths.REPO / "tests/support/lab_histories/whole_rack_shut_down.jsonl"
R = "min.insync.racks"


def events_of(path: Path) -> list[Event]:
    return list(History(path).events())


def verdicts(events: list[Event], says: str) -> dict[str, int]:
    return recorded.counts(recorded.replay(events)).get(says, {})


def changed(events: list[Event], op: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Event]:
    return [replace(one, data=change(dict(one.data))) if one.op == op else one for one in events]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_run_met_what_the_rule_says(path: Path) -> None:
    found = recorded.replay(events_of(path))
    assert [one for one in found if one.verdict == CONTRADICTS] == []
    assert sum(one.verdict == AGREES for one in found) >= 5
    assert all(one.because for one in found if one.verdict == UNKNOWN)


def test_the_recorded_runs_have_each_thing_that_acks_all_can_meet() -> None:
    agreed = {one.says for path in HISTORIES for one in recorded.replay(events_of(path)) if one.verdict == AGREES}
    assert agreed >= {WORDS[one] for one in (Status.TAKEN, Status.WAITS, Status.REPLICAS, Status.RACKS)}
    assert ONE_RACK_ALONE in agreed


def test_a_rule_that_is_not_the_brokers_is_contradicted() -> None:
    """As if one rack had been enough: then what was refused should have been taken by one rack alone."""
    one_rack = changed(events_of(OUTAGE), "settings", lambda data: data | {R: 1})
    assert verdicts(one_rack, ONE_RACK_ALONE)[CONTRADICTS] == 1
    done = CliRunner().invoke(app, ["model", "replay", str(OUTAGE)])
    assert done.exit_code == 0, done.output


def test_acknowledged_though_it_should_be_refused_is_contradicted() -> None:
    def accepted(one: Event) -> Event:
        taken = one.op == "produce" and one.outcome == "fail"
        return replace(one, outcome="ok", data={**one.data, "exception": None, "offset": 1}) if taken else one

    wrong = [accepted(one) for one in events_of(OUTAGE)]
    assert verdicts(wrong, WORDS[Status.RACKS])[CONTRADICTS] == 1


def test_for_want_of_replicas_nobody_is_told_of_racks() -> None:
    """As if M had been 3 all the time: the leader looks at replicas first."""
    more = changed(events_of(OUTAGE), "settings", lambda data: data | {"min.insync.replicas": 3})
    assert verdicts(more, WORDS[Status.REPLICAS])[CONTRADICTS] == 1


def test_what_is_not_known_is_not_said() -> None:
    events = events_of(OUTAGE)
    untold = [one for one in events if one.op != "settings"]
    assert {one.because for one in recorded.replay(untold)} == {"M and R are not known, or are being changed"}
    # of a fault that was not proved nobody knows whether the brokers were there
    unproved = [one for one in events if not (one.process == "fault" and one.data["step"] == "proved")]
    assert not verdicts(unproved, WORDS[Status.WAITS])
    assert any("a fault of a replica" in one.because for one in recorded.replay(unproved))
    with pytest.raises(RackgateError, match="no look"):
        recorded.replay([one for one in events if one.op != "look"])


def test_the_command_tells_counts_and_ends_with_a_status(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["model", "replay", "--json", *map(str, HISTORIES)])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["stretches"][CONTRADICTS] == 0
    assert told["stretches"][AGREES] == sum(row[AGREES] for row in told["says"].values()) > 20
    wrong = History(tmp_path / "wrong.jsonl")
    wrong.extend(changed(events_of(OUTAGE), "settings", lambda data: data | {R: 1}))
    shown = runner.invoke(app, ["model", "replay", str(wrong.path)])
    assert shown.exit_code == 1
    assert "taken by one rack alone, and" in shown.stdout
    silent = History(tmp_path / "silent.jsonl")
    silent.extend(one for one in events_of(OUTAGE) if one.op != "produce")
    for path, says in ((silent.path, "nothing could be compared"), (tmp_path / "none.jsonl", "no such file")):
        error = runner.invoke(app, ["model", "replay", str(path)]).exception
        assert isinstance(error, RackgateError)
        assert says in str(error)
    (tmp_path / "other.jsonl").write_text("{}\n", encoding="utf-8")
    error = runner.invoke(app, ["model", "replay", str(tmp_path / "other.jsonl")]).exception
    assert isinstance(error, RackgateError)
