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
# as in the lab, where little is written between the faults
TIMING = Timing(session_s=9.0, lag_s=30.0, flush_s=30.0, catch_up=0.05, copy_s=5.0)


def mask(slots: list[int]) -> int:
    return sum(1 << (slot - 1) for slot in slots)


def slots(sets: int) -> list[int]:
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
    """Runs one script; the partition is well for ever before it and after it."""
    events = sorted(script, key=lambda one: one[0])
    numbers = {rack: number for number, rack in enumerate(dict.fromkeys(racks))}
    scripts = Scripts(
        np.array([0, len(events)]),
        np.array([float(one[0]) for one in events]),
        np.array([EventCode[one[1]] for one in events], dtype=np.int64),
        np.array([mask(one[2]) for one in events]),
        np.zeros(1, dtype=np.int64),
    )
    seen: list[ObservedState] = []

    def observe(rows: Any, until: Floats) -> None:
        for index in np.flatnonzero(until > rows.now):
            state = (int(part[index]) for part in (rows.leader, rows.isr, rows.elr))
            seen.append(ObservedState(int(rows.row[index]), rows.now[index], until[index], rows.status[index], *state))

    outcome = run(
        scripts, [[numbers[rack] for rack in racks]], settings, timing, end_s=1e9, begin_s=begin_s, observe=observe
    )
    return outcome, seen


def at(seen: list[ObservedState], setting: int, second: float) -> ObservedState:
    own = [one for one in seen if one.setting == setting]
    for one in own:
        if one.from_s <= second < one.to_s:
            return one
    # before the script and after it all is well
    assert second < own[0].from_s or second >= own[-1].to_s
    full = own[0].isr
    return ObservedState(setting, 0.0, NEVER, Status.ACCEPTED, 0, full, 0)


@pytest.mark.parametrize("one", RUNS, ids=lambda one: f"{one['racks']} {one['source'].partition(':')[0]}")
def test_outcomes_equal_those_of_the_lab(one: dict[str, Any]) -> None:
    lower = float(one.get("lower_after_s", NEVER))
    elr = "replicas" if one.get("stock") else "racks"
    settings = [GateSetting(m, r, elr, lower) for m, r in one["settings"]]  # type: ignore[arg-type]
    outcome, seen = replay(one["script"], one["racks"], settings)
    for setting, expected in enumerate(one["expect"]):
        found = [[second, Status(at(seen, setting, second).status).name] for second, _ in expected]
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
        assert (paths.REPO / file).is_file(), one["source"]


def spent(outcome: MachineResult, status: Status, setting: int = 0) -> float:
    return float(outcome.spent_s[0, setting, status])


def test_times_of_a_crash() -> None:
    """Waits for the session, then continues; a returning replica is in the ISR after it has caught up."""
    outcome, seen = replay([[100, "CRASH", [2]], [200, "BACK", [2]]], "abc", [GateSetting(2, 2), GateSetting(3, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(9.0)
    assert spent(outcome, Status.ACCEPTED) == pytest.approx(100 - 9 + 0.05 * 100)
    assert spent(outcome, Status.REPLICAS, 1) == pytest.approx(100 - 9 + 0.05 * 100)
    assert outcome.ended_s.tolist() == pytest.approx([205.0])
    assert not len(outcome.losses.script)
    assert {one.isr for one in seen} == {0b111, 0b101}


def test_times_of_a_slow_follower() -> None:
    """Waits until the lag is too long and the leader looks, each 15 s; a slow leader has no lag."""
    slow, fast = [[100, "SLOW", [2]], [160, "FAST", [2]]], [[100, "SLOW", [1]], [160, "FAST", [1]]]
    outcome, seen = replay(slow, "abc", [GateSetting(2, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(35.0)
    assert at(seen, 0, 134).isr == 0b111
    assert at(seen, 0, 150).isr == 0b101
    assert outcome.ended_s.tolist() == pytest.approx([163.0])
    outcome, seen = replay(fast, "abc", [GateSetting(2, 1)])
    assert spent(outcome, Status.WAITS) == 0.0
    short, seen = replay([[100, "SLOW", [2]], [120, "FAST", [2]]], "abc", [GateSetting(2, 1)])
    assert spent(short, Status.WAITS) == pytest.approx(20.0)
    assert {one.isr for one in seen} == {0b111}


def test_a_slow_follower_leaves_after_one_to_one_and_a_half_times_the_limit() -> None:
    """As in ReplicaManager: a lag of 30 s is not too long when it is checked, and 30.1 s is."""
    waits = []
    for begin in np.arange(-45.0, 45.0, 0.1):
        outcome, _ = replay(
            [[begin, "SLOW", [2]], [begin + 60, "FAST", [2]]], "abc", [GateSetting(2, 1)], begin_s=-NEVER
        )
        waits.append(spent(outcome, Status.WAITS))
    assert 30.0 < min(waits) < 30.2
    assert max(waits) == pytest.approx(45.0)
    assert np.mean(waits) == pytest.approx(1.25 * 30.0, rel=0.01)


@pytest.mark.parametrize("partitioned", [(105, 110), (130, 134.9), (130, 136)])
def test_partitioned_slow_follower_stays_behind(partitioned: tuple[float, float]) -> None:
    """Slow since second 100, so the leader detects it at 135, whether it is up or only its session lasts."""
    script = [[100, "SLOW", [2]], [partitioned[0], "CUT", [2]], [partitioned[1], "BACK", [2]], [200, "FAST", [2]]]
    outcome, _ = replay(script, "abc", [GateSetting(2, 1)])
    assert spent(outcome, Status.WAITS) == pytest.approx(35.0)


@pytest.mark.parametrize(("where", "lost_s"), [("aaa", 30.0), ("abb", None)])
def test_unflushed_records_are_lost_if_all_replicas_lose_power(where: str, lost_s: float | None) -> None:
    """Racks without a common supply keep it; the third replica of aaa was away before and has less."""
    off = [[100, "STOP", [3]], [1000, "POWER", [1, 2] if where == "aaa" else [2]]]
    script = [*off, [1100, "BACK", [1, 2] if where == "aaa" else [2]], [1200, "BACK", [3]]]
    outcome, _ = replay(script, where, [GateSetting(2, 1)])
    assert outcome.losses.seconds.tolist() == ([] if lost_s is None else pytest.approx([lost_s]))


def test_records_are_flushed_while_writes_are_refused() -> None:
    """With R=2 nothing is acknowledged after rack b has left, so a loss of power later on finds it flushed."""
    script = [[100, "CUT", [3]], [300, "POWER", [1, 2]], [400, "BACK", [1, 2]], [500, "BACK", [3]]]
    outcome, _ = replay(script, "aab", [GateSetting(2, 2), GateSetting(2, 1)])
    assert outcome.losses.setting.tolist() == [1]
    assert outcome.losses.seconds.tolist() == pytest.approx([30.0])


def test_without_elr_the_last_member_leads_despite_losses() -> None:
    script = [[100, "STOP", [2]], [200, "DISK", [1]], [300, "BACK", [1]], [400, "BACK", [2]]]
    outcome, _ = replay(
        script, "ab", [GateSetting(1, 1, "off"), GateSetting(1, 1, "racks"), GateSetting(2, 1, "racks")]
    )
    # with M=1 one replica acknowledges in both; with M=2 none does
    assert outcome.losses.setting.tolist() == [0, 1]
    assert np.isinf(outcome.losses.seconds).all()


def test_killed_replica_is_remembered_under_a_leader() -> None:
    """2 was killed and is back, but not in sync when the disk of the leader is replaced."""
    script = [[100, "CRASH", [2]], [500, "BACK", [2]], [501, "DISK", [1]], [550, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [GateSetting(1, 2), GateSetting(1, 2, "replicas")])
    assert outcome.losses.setting.tolist() == [1]
    assert [at(seen, setting, 551).leader for setting in (0, 1)] == [1, 0]


def test_last_leader_is_awaited_before_other_killed_replicas() -> None:
    script = [[100, "CRASH", [2]], [200, "CRASH", [1]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [GateSetting(1, 2)])
    assert [at(seen, 0, second).leader for second in (301, 401)] == [-1, 0]
    assert not len(outcome.losses.script)


def test_lost_replica_leads_if_there_is_no_other_one_to_wait_for() -> None:
    script = [[100, "CRASH", [2]], [200, "DISK", [1, 2]], [300, "BACK", [2]], [400, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [GateSetting(1, 2)])
    assert at(seen, 0, 301).leader == -1
    assert at(seen, 0, 401).leader == 0
    assert np.isinf(outcome.losses.seconds).all()
    assert len(outcome.losses.seconds) == 1


def test_one_killed_replica_is_remembered_when_r_is_lowered_to_1() -> None:
    script = [[100, "CRASH", [2]], [120, "CRASH", [1]], [140, "BACK", [2]], [200, "BACK", [1]]]
    outcome, seen = replay(script, "ab", [GateSetting(1, 2, "racks", 60.0)])
    assert [at(seen, 0, second).leader for second in (190, 201)] == [-1, 0]
    assert outcome.spent_s[0, 0, LOWERED] > 0
    assert not len(outcome.losses.script)


@pytest.mark.parametrize("racks", ["aab", "abb", "abc", "aabbc"])
def test_nothing_is_lost_with_one_rack_while_others_are_killed(racks: str) -> None:
    """Disks are replaced in rack a alone, and processes end everywhere; without the memory of R some is lost."""
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
