"""Replays of lab faults: the simulation's state machine gives the outcomes that the lab measured."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pyhooks.core import paths
from pyhooks.simulation.partition_machine import (
    LOWERED,
    NEVER,
    EventCode,
    Floats,
    GateSetting,
    MachineResult,
    Scripts,
    Status,
    Timing,
    replica_sets,
    run,
)

TABLE = paths.REPO / "tests/support/lab_outcomes.toml"
RUNS: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["run"]
# as in the lab, where few records are written between the faults
TIMING = Timing(session_s=9.0, lag_s=30.0, flush_s=30.0, catch_up=0.05, copy_s=5.0)


def mask(slots: list[int]) -> int:
    """Return the bit set of replica slots, which are numbered from 1."""
    return sum(1 << (slot - 1) for slot in slots)


def slots(sets: int) -> list[int]:
    """Return the replica slots in a bit set, numbered from 1."""
    return [slot + 1 for slot in range(12) if sets >> slot & 1]


@dataclass(frozen=True)
class ObservedState:
    """State under one setting between two events."""

    setting: int
    from_s: float
    to_s: float
    status: Status
    leader: int
    isr: int
    elr: int


def replay(
    script: list[Any], racks: str, settings: list[GateSetting], timing: Timing = TIMING, begin_s: float = 0.0
) -> tuple[MachineResult, list[ObservedState]]:
    """Run one script; no fault is in force before and after it. Return the result and the observed states."""
    events = sorted(script, key=lambda event: event[0])
    numbers = {rack: number for number, rack in enumerate(dict.fromkeys(racks))}
    scripts = Scripts(
        np.array([0, len(events)]),
        np.array([float(event[0]) for event in events]),
        np.array([EventCode[event[1]] for event in events], dtype=np.int64),
        np.array([mask(event[2]) for event in events]),
        np.zeros(1, dtype=np.int64),
    )
    observed: list[ObservedState] = []

    def observe(rows: Any, until: Floats) -> None:
        for index in np.flatnonzero(until > rows.now):
            state = (int(part[index]) for part in (rows.leader, rows.isr, rows.elr))
            observed.append(
                ObservedState(int(rows.row[index]), rows.now[index], until[index], rows.status[index], *state)
            )

    outcome = run(
        scripts, [[numbers[rack] for rack in racks]], settings, timing, end_s=1e9, begin_s=begin_s, observe=observe
    )
    return outcome, observed


def at(observed: list[ObservedState], setting: int, second: float) -> ObservedState:
    """Return the state under a setting at a time."""
    states = [state for state in observed if state.setting == setting]
    for state in states:
        if state.from_s <= second < state.to_s:
            return state
    # before and after the script no fault is in force
    assert second < states[0].from_s or second >= states[-1].to_s
    full = states[0].isr
    return ObservedState(setting, 0.0, NEVER, Status.ACCEPTED, 0, full, 0)


@pytest.mark.parametrize(
    "lab_run", RUNS, ids=lambda lab_run: f"{lab_run['racks']} {lab_run['source'].partition(':')[0]}"
)
def test_outcomes_equal_those_of_the_lab(lab_run: dict[str, Any]) -> None:
    lower = float(lab_run.get("lower_after_s", NEVER))
    elr = "replicas" if lab_run.get("stock") else "racks"
    settings = [GateSetting(m, r, elr, lower) for m, r in lab_run["settings"]]  # type: ignore[arg-type]
    outcome, observed = replay(lab_run["script"], lab_run["racks"], settings)
    for setting, expected in enumerate(lab_run["expect"]):
        found = [[second, Status(at(observed, setting, second).status).name] for second, _ in expected]
        assert found == expected, f"setting {setting}"
    for setting, expected in enumerate(lab_run.get("elr", [])):
        assert [[second, slots(at(observed, setting, second).elr)] for second, _ in expected] == expected
    for setting, expected in enumerate(lab_run.get("leader", [])):
        for second, leaders in expected:
            assert at(observed, setting, second).leader + 1 in leaders, second
    lost = set(outcome.losses.setting.tolist())
    assert [setting in lost for setting in range(len(settings))] == lab_run["lost"]


def test_the_table_names_its_sources() -> None:
    for lab_run in RUNS:
        file = lab_run["source"].partition(",")[0].partition(":")[0]
        assert (paths.REPO / file).is_file(), lab_run["source"]


def duration_s(outcome: MachineResult, status: Status, setting: int = 0) -> float:
    return float(outcome.spent_s[0, setting, status])


def test_duration_of_each_status_after_a_crash() -> None:
    """Writes wait until the session expires. A returning replica rejoins the ISR after it has caught up."""
    outcome, observed = replay([[100, "CRASH", [2]], [200, "BACK", [2]]], "abc", [GateSetting(2, 2), GateSetting(3, 1)])
    assert duration_s(outcome, Status.WAITS) == pytest.approx(9.0)
    assert duration_s(outcome, Status.ACCEPTED) == pytest.approx(100 - 9 + 0.05 * 100)
    assert duration_s(outcome, Status.REPLICAS, 1) == pytest.approx(100 - 9 + 0.05 * 100)
    assert outcome.ended_s.tolist() == pytest.approx([205.0])
    assert not len(outcome.losses.script)
    assert {state.isr for state in observed} == {0b111, 0b101}


def test_duration_of_each_status_with_a_slow_follower() -> None:
    """Writes wait until the leader, which checks every 15 s, finds the lag too long. A slow leader has no lag."""
    slow_follower, slow_leader = [[100, "SLOW", [2]], [160, "FAST", [2]]], [[100, "SLOW", [1]], [160, "FAST", [1]]]
    outcome, observed = replay(slow_follower, "abc", [GateSetting(2, 1)])
    assert duration_s(outcome, Status.WAITS) == pytest.approx(35.0)
    assert at(observed, 0, 134).isr == 0b111
    assert at(observed, 0, 150).isr == 0b101
    assert outcome.ended_s.tolist() == pytest.approx([163.0])
    outcome, observed = replay(slow_leader, "abc", [GateSetting(2, 1)])
    assert duration_s(outcome, Status.WAITS) == 0.0
    short, observed = replay([[100, "SLOW", [2]], [120, "FAST", [2]]], "abc", [GateSetting(2, 1)])
    assert duration_s(short, Status.WAITS) == pytest.approx(20.0)
    assert {state.isr for state in observed} == {0b111}


def test_a_slow_follower_leaves_after_one_to_one_and_a_half_times_the_limit() -> None:
    """As in ReplicaManager: a check accepts a lag of 30 s but not of 30.1 s."""
    waits = []
    for begin in np.arange(-45.0, 45.0, 0.1):
        outcome, _ = replay(
            [[begin, "SLOW", [2]], [begin + 60, "FAST", [2]]], "abc", [GateSetting(2, 1)], begin_s=-NEVER
        )
        waits.append(duration_s(outcome, Status.WAITS))
    assert 30.0 < min(waits) < 30.2
    assert max(waits) == pytest.approx(45.0)
    assert np.mean(waits) == pytest.approx(1.25 * 30.0, rel=0.01)


@pytest.mark.parametrize("partitioned", [(105, 110), (130, 134.9), (130, 136)])
def test_a_partition_does_not_reset_the_lag_of_a_slow_follower(partitioned: tuple[float, float]) -> None:
    """Slow since second 100, so the leader detects it at 135, also if the follower is cut off but not yet fenced."""
    script = [[100, "SLOW", [2]], [partitioned[0], "CUT", [2]], [partitioned[1], "BACK", [2]], [200, "FAST", [2]]]
    outcome, _ = replay(script, "abc", [GateSetting(2, 1)])
    assert duration_s(outcome, Status.WAITS) == pytest.approx(35.0)


@pytest.mark.parametrize(("racks", "lost_s"), [("aaa", 30.0), ("abb", None)])
def test_unflushed_records_are_lost_if_all_replicas_lose_power(racks: str, lost_s: float | None) -> None:
    """Racks have separate power supplies. In aaa, the third replica was stopped earlier and lacks the last records."""
    down = [[100, "STOP", [3]], [1000, "POWER", [1, 2] if racks == "aaa" else [2]]]
    script = [*down, [1100, "BACK", [1, 2] if racks == "aaa" else [2]], [1200, "BACK", [3]]]
    outcome, _ = replay(script, racks, [GateSetting(2, 1)])
    assert outcome.losses.seconds.tolist() == ([] if lost_s is None else pytest.approx([lost_s]))


def test_records_are_flushed_while_writes_are_rejected() -> None:
    """With R=2 no write is acknowledged after rack b is cut off, so all records are flushed before the power loss."""
    script = [[100, "CUT", [3]], [300, "POWER", [1, 2]], [400, "BACK", [1, 2]], [500, "BACK", [3]]]
    outcome, _ = replay(script, "aab", [GateSetting(2, 2), GateSetting(2, 1)])
    assert outcome.losses.setting.tolist() == [1]
    assert outcome.losses.seconds.tolist() == pytest.approx([30.0])


def test_without_elr_the_last_member_leads_despite_losses() -> None:
    script = [[100, "STOP", [2]], [200, "DISK", [1]], [300, "BACK", [1]], [400, "BACK", [2]]]
    outcome, _ = replay(
        script, "ab", [GateSetting(1, 1, "off"), GateSetting(1, 1, "racks"), GateSetting(2, 1, "racks")]
    )
    # with M=1 one replica acknowledges writes in both; with M=2 none does
    assert outcome.losses.setting.tolist() == [0, 1]
    assert np.isinf(outcome.losses.seconds).all()


def test_a_killed_replica_is_remembered_while_there_is_a_leader() -> None:
    """Replica 2 was killed and is back, but not in sync when the disk of the leader is replaced."""
    script = [[100, "CRASH", [2]], [500, "BACK", [2]], [501, "DISK", [1]], [550, "BACK", [1]]]
    outcome, observed = replay(script, "ab", [GateSetting(1, 2), GateSetting(1, 2, "replicas")])
    assert outcome.losses.setting.tolist() == [1]
    assert [at(observed, setting, 551).leader for setting in (0, 1)] == [1, 0]


def test_last_leader_is_awaited_before_other_killed_replicas() -> None:
    script = [[100, "CRASH", [2]], [200, "CRASH", [1]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, observed = replay(script, "ab", [GateSetting(1, 2)])
    assert [at(observed, 0, second).leader for second in (301, 401)] == [-1, 0]
    assert not len(outcome.losses.script)


def test_a_replica_without_its_records_leads_if_all_lost_theirs() -> None:
    script = [[100, "CRASH", [2]], [200, "DISK", [1, 2]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, observed = replay(script, "ab", [GateSetting(1, 2)])
    assert at(observed, 0, 301).leader == -1
    assert at(observed, 0, 401).leader == 0
    assert np.isinf(outcome.losses.seconds).all()
    assert len(outcome.losses.seconds) == 1


def test_a_killed_replica_is_remembered_after_r_is_lowered_to_1() -> None:
    script = [[100, "CRASH", [2]], [120, "CRASH", [1]], [140, "BACK", [2]], [200, "BACK", [1]]]
    outcome, observed = replay(script, "ab", [GateSetting(1, 2, "racks", 60.0)])
    assert [at(observed, 0, second).leader for second in (190, 201)] == [-1, 0]
    assert outcome.spent_s[0, 0, LOWERED] > 0
    assert not len(outcome.losses.script)


@pytest.mark.parametrize("racks", ["aab", "abb", "abc", "aabbc"])
def test_no_record_is_lost_with_one_rack_while_others_are_killed(racks: str) -> None:
    """Only rack a loses disks; processes end in all racks. With the ELR that ignores racks, records are lost."""
    random = np.random.default_rng(1)
    settings = [GateSetting(2, 2), GateSetting(1, 2), GateSetting(2, 2, "replicas")]
    lost = np.zeros(len(settings))
    for _ in range(40):
        script: list[Any] = []
        for slot, rack in enumerate(racks, 1):
            second = 100.0
            for _ in range(int(random.integers(1, 4))):
                second += float(random.uniform(1, 60))
                codes = ("DISK", "CRASH", "STOP") if rack == "a" else ("CRASH", "STOP", "CUT")
                down_s = float(random.uniform(1, 60))
                script += [[second, str(random.choice(codes)), [slot]], [second + down_s, "BACK", [slot]]]
                second += down_s
        outcome, _ = replay(script, racks, settings)
        lost += np.bincount(outcome.losses.setting, minlength=len(settings))
    assert lost[:2].tolist() == [0, 0]
    assert lost[2] > 0


def test_a_script_without_an_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="before all replicas are back"):
        replay([[100, "CRASH", [1]]], "ab", [GateSetting(1, 1)])


def test_sets_of_replicas_are_counted() -> None:
    members, count, first = replica_sets(3)
    assert members[0b101].tolist() == [True, False, True]
    assert count.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert first.tolist() == [-1, 0, 1, 0, 2, 0, 1, 0]
