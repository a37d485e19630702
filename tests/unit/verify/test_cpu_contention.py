"""CPU contention rule that decides which JMH forks count, with scripted yardstick times and fork results."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pyhooks.verify import cpu_contention, jmh
from pyhooks.verify.cpu_contention import ContentionRule, Heat, HeatRunner, Heats, YardstickTime
from pyhooks.verify.jmh_plan import Effort, plan
from pyhooks.verify.jmh_statistics import Fork

CELLS = ("stock", "overlay")
ALL_CELLS = frozenset(CELLS)


class FakeMachine:
    """Fake machine: the yardstick returns ``speeds``, then 100; the forks return ``results``, then 60."""

    def __init__(self, heats: Heats, speeds: Iterable[float] = (), results: Iterable[float] = ()) -> None:
        self.heats = heats
        self.speeds = itertools.chain(speeds, itertools.repeat(100.0))
        self.results = itertools.chain(results, itertools.repeat(60.0))
        self.forks: list[tuple[int, str]] = []
        self.cores: list[int] = []
        self.slept_s: list[float] = []
        self.kept: list[str] = []
        self.runner = HeatRunner(
            heats,
            measure=lambda: self.yardstick_time(next(self.speeds)),
            forks=self.run,
            keep=lambda heat: self.kept.append(json.dumps(asdict(heat))),
            cores=(3, 5),
            pin=self.pin,
            sleep=self.slept_s.append,
        )

    @staticmethod
    def yardstick_time(speed: float) -> YardstickTime:
        return YardstickTime(speed * 0.6, 0.0, 0.1)

    def run(self, cells: Sequence[str], number: int) -> list[Fork]:
        self.forks += [(number, cell) for cell in cells]
        return [Fork(cell, number, next(self.results), 1.0, 1.0, 200.0, 0.5, (1.0,)) for cell in cells]

    @contextmanager
    def pin(self, core: int) -> Iterator[None]:
        self.cores.append(core)
        yield


def test_a_heat_with_all_measurements_within_the_limit_counts() -> None:
    machine = FakeMachine(Heats(ContentionRule()), [100, 148])
    machine.runner.run(1, CELLS)
    assert machine.forks == [(1, "stock"), (1, "overlay")]
    assert machine.heats.to_make_again() == []
    assert [len(heat.paces) for heat in machine.heats.kept()] == [2]
    summary = machine.heats.summary()
    assert (summary["forks_kept"], summary["forks_made_again"], summary["forks_disturbed"], summary["measures"]) == (
        2,
        0,
        0,
        2,
    )
    assert summary["fastest_ms"] == 60_000
    assert summary["slower_by_percent"] == {"median": 24.0, "p90": 43.2, "most": 48.0}


@pytest.mark.parametrize(("slowest", "counts"), [(149.9, True), (150.1, False)])
@pytest.mark.parametrize("place", [0, 1])
def test_measurements_before_and_after_must_be_within_the_limit(slowest: float, counts: bool, place: int) -> None:
    speeds = [100.0, 100.0]
    speeds[place] = slowest
    heats = Heats(ContentionRule(measurements=1))
    machine = FakeMachine(heats, [100, 100, *speeds])
    machine.runner.run(1, CELLS)
    machine.runner.run(2, CELLS)
    assert heats.to_make_again() == ([] if counts else [(2, CELLS)])
    # A try whose first measurement is too slow runs no forks.
    assert len(machine.forks) == (2 if place == 0 and not counts else 4)


def test_a_slow_heat_is_repeated_on_another_core_and_its_last_try_is_kept() -> None:
    heats = Heats(ContentionRule(measurements=1))
    machine = FakeMachine(heats, [100, 160], results=[1.0, 2.0, 60.0, 61.0])
    machine.runner.run(1, CELLS)
    machine.runner.repeat(ALL_CELLS)
    assert machine.forks == [(1, "stock"), (1, "overlay")] * 2
    assert machine.cores == [5, 3]
    (kept,) = heats.kept()
    assert [fork.cpu_ns for fork in kept.forks] == [60.0, 61.0]
    summary = heats.summary()
    assert (summary["forks_kept"], summary["forks_made_again"], summary["forks_disturbed"]) == (2, 2, 0)
    # Tries that do not count are kept in the file, too.
    assert [len(json.loads(line)["forks"]) for line in machine.kept] == [2, 2]


def test_the_third_try_is_kept_and_reported_as_disturbed() -> None:
    heats = Heats(ContentionRule(measurements=1))
    machine = FakeMachine(heats, [100, 100, 160, 160, 170, 180], results=[60.0, 60.0, 70.0, 71.0])
    machine.runner.run(1, CELLS)
    machine.runner.run(2, CELLS)
    assert [fork.round_ for heat in heats.kept() for fork in heat.forks] == [1, 1]
    machine.runner.repeat(ALL_CELLS)
    assert heats.to_make_again() == [(2, CELLS)]
    machine.runner.repeat(ALL_CELLS)
    assert heats.to_make_again() == []
    assert [fork.cpu_ns for heat in heats.disturbed() for fork in heat.forks] == [70.0, 71.0]
    summary = heats.summary()
    assert (summary["forks_kept"], summary["forks_made_again"], summary["forks_disturbed"]) == (4, 0, 2)
    machine.runner.repeat(ALL_CELLS)
    assert heats.tries_of((2, CELLS)) == 3


def test_a_try_waits_for_a_fast_yardstick_for_a_limited_time() -> None:
    machine = FakeMachine(
        Heats(ContentionRule(measurements=3, pause_s=7.0)), [100, 100, 160, 160, 101, 100, 160, 160, 160]
    )
    machine.runner.run(1, CELLS)
    machine.runner.run(2, CELLS)
    assert machine.slept_s == [7.0, 7.0]
    assert machine.heats.to_make_again() == []
    machine.runner.run(3, CELLS)
    assert machine.slept_s == [7.0] * 4
    assert machine.heats.tries[-1].forks == ()
    # Measurements taken while waiting are in the summary.
    assert machine.heats.summary()["slower_by_percent"]["most"] == 60.0


def test_a_faster_measurement_disqualifies_earlier_heats() -> None:
    heats = Heats(ContentionRule())
    machine = FakeMachine(heats, [160, 160, 160, 160, 100, 100])
    for number in (1, 2):
        machine.runner.run(number, CELLS)
    assert heats.to_make_again() == []
    machine.runner.run(3, CELLS)
    assert heats.to_make_again() == [(1, CELLS), (2, CELLS)]
    machine.runner.repeat(ALL_CELLS)
    assert heats.to_make_again() == []
    assert heats.summary()["forks_made_again"] == 4
    assert [heat.round_ for heat in heats.kept()] == [1, 2, 3]


def test_a_disqualified_heat_without_tries_left_is_disturbed() -> None:
    heats = Heats(ContentionRule(tries=1))
    machine = FakeMachine(heats, [160, 160, 100])
    machine.runner.run(1, CELLS)
    assert heats.disturbed() == []
    machine.runner.run(2, CELLS)
    assert [heat.round_ for heat in heats.disturbed()] == [1]
    assert heats.to_make_again() == []


@given(st.lists(st.floats(100, 250), min_size=40, max_size=40))
def test_a_disqualified_heat_stays_disqualified(speeds: list[float]) -> None:
    heats = Heats(ContentionRule())
    machine = FakeMachine(heats, speeds)
    disqualified: set[int] = set()
    for number in range(1, 6):
        machine.runner.run(number, CELLS)
        machine.runner.repeat(ALL_CELLS)
        undisturbed = {id(heat) for heat in heats.kept()} - {id(heat) for heat in heats.disturbed()}
        assert not disqualified & undisturbed
        disqualified |= {id(heat) for heat in heats.tries} - undisturbed
    while heats.to_make_again():
        machine.runner.repeat(ALL_CELLS)
    assert max(heats.tries_of(heat.name) for heat in heats.tries) <= 3
    # In the end each heat is kept once, and every undisturbed heat is within 50 % of the fastest measurement.
    assert sorted(heat.round_ for heat in heats.kept()) == [1, 2, 3, 4, 5]
    fastest_s = min(measurement.total_s for measurement in heats.measures)
    for heat in heats.kept():
        within_limit = max(measurement.total_s for measurement in heat.paces) <= fastest_s * 1.5
        assert within_limit == (heat not in heats.disturbed())


@given(st.lists(st.floats(100, 180), max_size=40), st.lists(st.floats(1, 1e6), max_size=40))
def test_the_rule_is_independent_of_fork_results(speeds: list[float], results: list[float]) -> None:
    outcomes = []
    for fork_results in ([], results):
        machine = FakeMachine(Heats(ContentionRule()), speeds, fork_results)
        for number in range(1, 5):
            machine.runner.run(number, CELLS)
            machine.runner.repeat(ALL_CELLS)
        kept = [machine.heats.tries.index(heat) for heat in machine.heats.kept()]
        outcomes.append((machine.forks, machine.cores, kept, machine.heats.summary()))
    assert outcomes[0] == outcomes[1]


def test_a_resumed_run_keeps_the_fastest_measurement_and_the_tries_of_the_earlier_run() -> None:
    first = FakeMachine(Heats(ContentionRule(measurements=1)), [100, 100, 160, 160])
    first.runner.run(1, CELLS)
    first.runner.run(2, CELLS)
    first.runner.repeat(ALL_CELLS)
    heats = Heats(first.heats.rule, [TypeAdapter(Heat).validate_json(line) for line in first.kept])
    assert heats.tries == first.heats.tries
    assert heats.summary() == first.heats.summary()
    # The second run's own fastest measurement is 155.
    second = FakeMachine(heats, [155] * 20)
    second.runner.repeat(ALL_CELLS)
    assert [fork.round_ for heat in heats.disturbed() for fork in heat.forks] == [2, 2]
    second.runner.run(3, CELLS)
    assert (3, CELLS) in heats.to_make_again()


def test_heats_of_other_cells_are_left_for_another_run() -> None:
    heats = Heats(ContentionRule(measurements=1))
    machine = FakeMachine(heats, [100, 100, 160])
    machine.runner.run(1, CELLS)
    machine.runner.run(1, ("other", "cells"))
    machine.runner.repeat(ALL_CELLS)
    assert heats.to_make_again() == [(1, ("other", "cells"))]
    assert machine.runner.open(ALL_CELLS) == []


def test_rounds_continue_until_no_heat_must_be_repeated() -> None:
    cells, _ = plan("high watermark, ISR of 7")
    effort = Effort(forks=3, warm_s=1, iterations=1, iteration_s=1)
    heats = Heats(ContentionRule(measurements=1))
    # The last round and its first repetition are slow; the third try runs after all rounds.
    machine = FakeMachine(heats, [*[100] * 4, 160, 160])
    lines = list(jmh._rounds(machine.runner, heats, cells, effort))
    assert [line.split(":")[0] for line in lines[:3]] == [f"round {number} of at most 3" for number in (1, 2, 3)]
    assert len(lines) == 4
    assert "heats repeated: 1;" in lines[3]
    assert "0 of 9 disturbed" in lines[3]
    assert "all within +60.0 %" in lines[3]
    assert heats.to_make_again() == []
    # A run with more forks continues the round numbers.
    resumed = FakeMachine(heats)
    list(jmh._rounds(resumed.runner, heats, cells, replace(effort, forks=5)))
    assert sorted({number for number, _ in resumed.forks}) == [4, 5]


def test_the_yardstick_measures_two_parts_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    with cpu_contention.on_core(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
        yardstick = cpu_contention.Yardstick()
        time = yardstick.measure()
    assert os.sched_getaffinity(0) == before
    assert time.total_s == time.hash_s + time.memory_s
    # CPU time can't exceed elapsed time, apart from clock resolution.
    assert 0 < time.cpu_s < time.total_s + 0.02
    monkeypatch.setattr(cpu_contention, "_WALKS", 1)
    shorter = yardstick.measure()
    assert shorter.memory_s < time.memory_s
    assert shorter.cpu_s < time.cpu_s


def test_an_unavailable_core_leaves_the_affinity_unchanged() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(OSError, match="Invalid argument"), cpu_contention.on_core(1_000):
        pass
    assert os.sched_getaffinity(0) == before
