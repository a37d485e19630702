"""Statistics and plan of the JMH cost measurement, on synthetic forks."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.statistics import Interval
from pyhooks.patchset.distribution import MANIFEST, Distribution
from pyhooks.verify import cli, jmh, jmh_plan, jmh_table
from pyhooks.verify.cpu_contention import ContentionRule, Heat, HeatRunner, Heats, YardstickTime
from pyhooks.verify.jmh_statistics import LIMITS, Comparison, Fork, compare, difference, judge, worst


def normal_sample(mean: float, spread: float, count: int, seed: int) -> list[float]:
    """Draw from a normal distribution with standard deviation ``spread``."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    return [generator.gauss(mean, spread) for _ in range(count)]


def test_a_known_difference_is_inside_its_interval() -> None:
    interval = difference(normal_sample(60, 1, 30, 1), normal_sample(62, 1, 30, 2))
    assert interval.low < 2 < interval.high
    assert interval.high - interval.low < 2
    percent = difference(normal_sample(60, 1, 30, 1), normal_sample(62, 1, 30, 2), relative=True)
    assert percent.low < 100 * 2 / 60 < percent.high


def test_intervals_contain_the_difference_in_95_of_100_cases_even_with_few_forks() -> None:
    hits = 0
    for seed in range(200):
        interval = difference(normal_sample(60, 1, 5, seed), normal_sample(61, 1, 5, seed + 10_000))
        hits += interval.low <= 1 <= interval.high
    assert hits >= 180


def test_a_disturbance_of_both_sides_cancels() -> None:
    bursts = [0.0, 40.0, 3.0, 90.0, 10.0, 0.0]
    interval = difference([60 + burst for burst in bursts], [61 + burst for burst in bursts])
    assert interval == pytest.approx(Interval(1, 1, 1)) or (interval.low, interval.high) == pytest.approx((1, 1))


def test_one_disturbed_fork_does_not_decide() -> None:
    before, after = normal_sample(60, 0.1, 10, 1), normal_sample(60, 0.1, 10, 2)
    after[3] = 600.0
    assert abs(difference(before, after).point) < 0.3


def test_too_few_forks_are_not_evaluated() -> None:
    with pytest.raises(ValueError, match="3 of each"):
        difference([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="forks"):
        difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(0, 1, 2), "met"),
        (Interval(-12, -9, -4), "met"),
        (Interval(6, 7, 8), "not met"),
        (Interval(2, 4, 6), "unknown"),
        (Interval(4, 6, 8), "unknown"),
    ],
)
def test_a_target_is_met_or_missed_only_by_the_whole_interval(interval: Interval, verdict: str) -> None:
    assert judge("ns", interval, 10).verdict == verdict


def test_forks_needed_grow_with_the_noise() -> None:
    near = judge("ns", Interval(0, 4, 8), 10)
    far = judge("ns", Interval(-6, 4, 14), 10)
    assert near.forks_needed == 160
    assert far.forks_needed == 1000
    assert judge("ns", Interval(3, 4, 4.5), 10).forks_needed == 0


def forks(cell: str, cpu: list[float], bytes_: float = 200.0) -> list[Fork]:
    """Return a fork of a cell for each CPU time, in rounds 1, 2, …"""
    return [Fork(cell, number, ns, ns * 1.1, ns * 2, bytes_, 1.0, (ns,) * 30) for number, ns in enumerate(cpu, 1)]


def test_a_comparison_pairs_rounds_and_leaves_unpaired_ones_out() -> None:
    written = [*forks("s", [60, 61, 62, 63]), *forks("o", [61, 62, 63], 201.0)]
    comparison = compare(Comparison("x", "s", "o"), written)
    assert comparison["forks"] == 3
    targets = {target["name"]: target for target in comparison["targets"]}
    assert {name: target["limit"] for name, target in targets.items()} == LIMITS
    assert targets["ns"]["measured"]["estimate"] == pytest.approx(1)
    assert targets["bytes"]["verdict"] == "not met"
    assert comparison["verdict"] == "not met"


# As measured: page faults slow a JVM down until it has used its whole young generation once.
COLD = (*[460.0] * 15, 220.0, 440.0, 93.0, *[81.0] * 12)
WARM = (93.0, *[81.0] * 29)


@pytest.mark.parametrize(("cold_forks", "verdict"), [(4, "met"), (5, "unknown"), (6, "unknown")])
def test_a_cold_side_gives_no_verdict_on_time(cold_forks: int, verdict: str) -> None:
    cold_side = [
        replace(fork, iterations_ns=COLD if fork.round_ <= cold_forks else WARM) for fork in forks("o", [60.1] * 6)
    ]
    warm_side = [replace(fork, iterations_ns=WARM) for fork in forks("s", [60, 60.1, 60, 60.1, 60, 60.1])]
    for comparison in (
        compare(Comparison("x", "s", "o"), [*warm_side, *cold_side]),
        compare(Comparison("x", "o", "s"), [*warm_side, *cold_side]),
    ):
        assert max(comparison["warming"].values()) == pytest.approx(cold_forks / 6, abs=0.001)
        assert comparison["cold"] == (verdict == "unknown")
        verdicts = {target["name"]: target["verdict"] for target in comparison["targets"]}
        assert verdicts == {"bytes": "met", "ns": verdict, "percent": verdict}


def test_a_disturbance_at_the_end_of_a_fork_is_not_warm_up() -> None:
    written = [replace(fork, iterations_ns=COLD[::-1]) for cell in "so" for fork in forks(cell, [60.0] * 6)]
    assert compare(Comparison("x", "s", "o"), written)["warming"] == {"stock": 0, "other": 0}


def test_without_forks_the_verdict_is_unknown() -> None:
    comparison = compare(Comparison("x", "s", "o"), forks("s", [60, 61]))
    assert (comparison["verdict"], comparison["targets"]) == ("unknown", [])
    assert worst([]) == "unknown"
    assert worst(["met", "unknown"]) == "unknown"
    assert worst(["unknown", "not met", "met"]) == "not met"


def test_the_plan_covers_all_comparisons() -> None:
    cells, comparisons = jmh_plan.plan()
    names = {cell.name for cell in cells}
    assert len(names) == len(cells)
    assert {comparison.stock for comparison in comparisons} | {comparison.other for comparison in comparisons} == names
    for isr in "357":
        for racks in "12":
            assert any(comparison.name == f"append gate, ISR of {isr}, R={racks}" for comparison in comparisons)
            assert any(comparison.name == f"high watermark, ISR of {isr}, R={racks}" for comparison in comparisons)
    for comparison in comparisons:
        assert comparison.stock.startswith("stock ")
        assert comparison.other.startswith("control " if comparison.control else "overlay ")


def test_each_round_has_every_cell_and_the_order_is_balanced() -> None:
    cells, comparisons = jmh_plan.plan()
    rounds = [jmh_plan.in_turn(cells, number) for number in range(1, 25)]
    assert all(
        sorted(cell.name for heat in round_ for cell in heat) == sorted(cell.name for cell in cells)
        for round_ in rounds
    )
    positions = Counter(
        (cell.name, position) for round_ in rounds for heat in round_ for position, cell in enumerate(heat)
    )
    # The first cell of a heat follows the last one.
    followers = Counter(
        (heat[position - 1].name, cell.name)
        for round_ in rounds
        for heat in round_
        for position, cell in enumerate(heat)
    )
    for heat in rounds[0]:
        for cell in heat:
            assert [positions[cell.name, position] for position in range(len(heat))] == [24 / len(heat)] * len(heat)
            others = [other for other in heat if other != cell]
            assert [followers[other.name, cell.name] for other in others] == [24 / len(others)] * len(others)
    # The order is already balanced over the rounds of a full run.
    full_run = rounds[: jmh_plan.FULL.forks]
    full_followers = Counter(
        (heat[position - 1].name, cell.name)
        for round_ in full_run
        for heat in round_
        for position, cell in enumerate(heat)
    )
    assert full_followers == Counter({pair: count * len(full_run) // 24 for pair, count in followers.items()})
    # Both sides of a comparison are in the same heat.
    for comparison in comparisons:
        assert any({comparison.stock, comparison.other} <= {cell.name for cell in heat} for heat in rounds[0])


def heat(number: int, cells: tuple[str, ...], cpu_ns: Callable[[str], float], pace_s: float = 0.3) -> Heat:
    """Return a heat: a fork of each cell between two yardstick measurements of ``pace_s``."""
    forks = tuple(Fork(cell, number, cpu_ns(cell), cpu_ns(cell), 1.0, 0.0, 1.0, (cpu_ns(cell),) * 30) for cell in cells)
    return Heat(number, cells, 0, (), (YardstickTime(pace_s / 2, pace_s / 2, pace_s),) * 2, forks)


def test_more_keeps_the_tries_of_this_build_and_rejects_those_of_another(tmp_path: Path) -> None:
    path = tmp_path / "forks.jsonl"
    written = [heat(number, ("a", "b"), lambda _: 60.0) for number in (1, 2, 2)]
    # The run was killed while it wrote its fourth try.
    path.write_text("".join(jmh._line("k", heat_) for heat_ in written) + '{"key": "k", "ce')
    assert jmh._kept(path, "k") == written
    assert jmh._kept(tmp_path / "absent", "k") == []
    with pytest.raises(RackgateError, match="omit --more"):
        jmh._kept(path, "another")


def test_more_runs_only_missing_heats() -> None:
    cells, _ = jmh_plan.plan("high watermark, ISR of")
    groups = [tuple(cell.name for cell in members) for members in jmh_plan.in_turn(cells, 1)]
    # One run ended in its third round; another was limited to a part of the second group.
    heats = Heats(ContentionRule(), [heat(number, members, lambda _: 60.0) for number in (1, 2) for members in groups])
    heats.tries += [heat(3, groups[0], lambda _: 60.0), heat(4, groups[1][:2], lambda _: 60.0)]
    ran: list[tuple[int, tuple[str, ...]]] = []

    def run_forks(names: Sequence[str], number: int) -> Sequence[Fork]:
        ran.append((number, tuple(names)))
        return heat(number, tuple(names), lambda _: 60.0).forks

    runner = HeatRunner(heats, measure=lambda: YardstickTime(0.15, 0.15, 0.3), forks=run_forks, keep=lambda _: None)
    effort = replace(jmh_plan.QUICK, forks=4)
    estimate = jmh._beforehand(cells, heats, effort)
    assert estimate.startswith(
        f"8 heats kept, 0 to repeat; 4 rounds of {len(cells)} forks, of which 5 heats are missing"
    )
    lines = list(jmh._rounds(runner, heats, cells, effort))
    assert [line[:11] for line in lines] == ["round 3 of ", "round 4 of "]
    # Each round has its own order, whichever run makes it.
    orders = {
        number: [tuple(cell.name for cell in members) for members in jmh_plan.in_turn(cells, number)]
        for number in (3, 4)
    }
    assert ran == [(3, members) for members in orders[3][1:]] + [(4, members) for members in orders[4]]
    assert next(iter(jmh._rounds(runner, heats, cells, effort))).startswith("4 rounds are complete already")
    assert len(ran) == 5


def test_an_incomplete_heat_with_other_cells_does_not_count() -> None:
    cells, _ = jmh_plan.plan("high watermark, ISR of 7")
    part, _ = jmh_plan.plan("high watermark, ISR of 7, R=1")
    incomplete = replace(heat(1, tuple(cell.name for cell in cells), lambda _: 60.0), forks=())
    effort = replace(jmh_plan.QUICK, forks=1)
    assert [*jmh._missing(Heats(ContentionRule(), [incomplete]), part, effort)] == [1]
    assert jmh._missing(Heats(ContentionRule(), [incomplete]), cells, effort) == {}, "the heat is repeated"


def test_forks_of_different_rules_have_different_keys(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path)
    key = jmh._key(distribution, jmh_plan.QUICK, ContentionRule())
    assert key == jmh._key(distribution, replace(jmh_plan.QUICK, forks=99), ContentionRule())
    assert key != jmh._key(distribution, jmh_plan.QUICK, ContentionRule(within=0.25))
    assert key != jmh._key(distribution, replace(jmh_plan.QUICK, warm_s=9.0), ContentionRule())


def make_distribution(folder: Path) -> Distribution:
    manifest = {"kafka_version": "4.0.0", "patch_hash": "0", "files": {}, "overlay": [], "patches": []}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return Distribution(folder)


def test_the_gate_is_compared_with_an_append_to_a_file(tmp_path: Path) -> None:
    def cpu_ns(cell: str) -> float:
        if "log=file" in cell:
            return 2_000.0
        return 62.0 if cell.startswith(jmh_plan.OVERLAY) else 60.0

    cells, _ = jmh_plan.plan()
    tries = [
        heat(number, tuple(cell.name for cell in members), cpu_ns)
        for number in range(1, 7)
        for members in jmh_plan.in_turn(cells, number)
    ]
    summary = jmh.summarise(make_distribution(tmp_path), jmh_plan.QUICK, Heats(ContentionRule(), tries))
    gates = [
        comparison
        for comparison in summary["comparisons"]
        if comparison["name"].startswith("append gate") and not comparison["control"]
    ]
    assert len(gates) == 6
    assert all(comparison["percent_of_append_to_file"]["estimate"] == pytest.approx(0.1) for comparison in gates)
    # 2 ns of 60 ns are within the limit of 5 ns but not within 3 %.
    assert summary["verdict"] == "not met"
    assert summary["pace"]["forks_kept"] == 6 * len(cells)
    table = jmh_table.render(summary).splitlines()
    assert len(table) == 2 + len(summary["comparisons"]) + 2
    row = next(line for line in table if line.startswith("| append gate, ISR of 3, R=1 "))
    interval = "1.0333 (1.0333 to 1.0333)"
    assert row.split(" | ")[1:4] == ["6", interval, interval]
    assert row.endswith("| 2.00 (2.00 to 2.00) | 0.00 (0.00 to 0.00) | not met |")
    assert {comparison["forks_disturbed"] for comparison in summary["comparisons"]} == {0}


def test_disturbed_forks_are_counted_in_their_comparisons(tmp_path: Path) -> None:
    cells, comparisons = jmh_plan.plan("high watermark, ISR of 7")
    tries = [
        heat(number, tuple(cell.name for cell in jmh_plan.in_turn(cells, number)[0]), lambda _: 60.0, pace_s)
        for number, pace_s in ((1, 0.3), (2, 0.6), (3, 0.3))
    ]
    summary = jmh.summarise(make_distribution(tmp_path), jmh_plan.QUICK, Heats(ContentionRule(tries=1), tries))
    by_name = {row["name"]: row for row in summary["comparisons"]}
    for comparison in comparisons:
        assert (by_name[comparison.name]["forks"], by_name[comparison.name]["forks_disturbed"]) == (3, 1)
        assert cli._line(by_name[comparison.name]).endswith("; 1 of 3 forks disturbed")
    assert by_name["append gate, ISR of 3, R=1"]["forks_disturbed"] == 0
    assert jmh.format_pace(summary["pace"]).startswith("0 forks repeated, 3 of 9 disturbed, yardstick 300 ms")


def test_an_unknown_result_prints_the_command_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[jmh_plan.Effort, ContentionRule]] = []

    def fake_measure(
        distribution: Distribution, effort: jmh_plan.Effort, rule: ContentionRule, **_: object
    ) -> dict[str, Any]:
        requested.append((effort, rule))
        group = tuple(cell.name for cell in jmh_plan.plan("high watermark, ISR of 7")[0])
        return jmh.summarise(
            distribution, effort, Heats(rule, [heat(number, group, lambda _: 60.0) for number in range(1, 7)])
        )

    monkeypatch.setattr(cli, "measure", fake_measure)
    monkeypatch.setattr(Distribution, "load", lambda: make_distribution(tmp_path))
    with pytest.raises(
        RackgateError, match=r"14 comp.*, 14 of them .* 6 forks .*, at most 48 .*`rackgate patch jmh --full --more`"
    ):
        cli.jmh_command()
    with pytest.raises(RackgateError, match=r"`rackgate patch jmh --full --within 12.5 --more`"):
        cli.jmh_command(full=True, forks=7, within=12.5)
    assert requested == [
        (jmh_plan.QUICK, ContentionRule()),
        (replace(jmh_plan.FULL, forks=7), ContentionRule(within=0.125)),
    ]


def test_the_estimate_covers_all_missing_heats() -> None:
    cells, _ = jmh_plan.plan()
    effort = jmh_plan.Effort(forks=10, warm_s=4, iterations=10, iteration_s=0.3)
    minutes = 10 * (len(cells) * 7 + 9 * jmh._START_S) / 60
    text = jmh._beforehand(cells, Heats(ContentionRule()), effort)
    assert text.startswith(
        f"10 rounds of {len(cells)} forks, of which 90 heats are missing, about {math.ceil(minutes)} "
    )
    kept = Heats(ContentionRule(), [heat(1, ("a", "b"), lambda _: 60.0), heat(2, ("a", "b"), lambda _: 60.0, 0.6)])
    assert jmh._beforehand(cells, kept, effort).startswith("2 heats kept, 1 to repeat; 10 rounds")


def test_effects_in_few_forks_are_reported_with_the_untrimmed_mean() -> None:
    after = [60.0] * 30
    after[3] = after[17] = after[20] = 90.0
    comparison = compare(Comparison("x", "s", "o"), [*forks("s", [60.0] * 30), *forks("o", after)])
    assert {target["name"]: target["measured"]["estimate"] for target in comparison["targets"]}["ns"] == 0
    assert comparison["untrimmed"]["ns"]["estimate"] == pytest.approx(3)
    assert comparison["untrimmed"]["percent"]["high"] > 5


def test_comparisons_are_selected_by_a_part_of_their_name() -> None:
    cells, comparisons = jmh_plan.plan("high watermark, ISR of 7")
    assert [comparison.name[-3:] for comparison in comparisons] == ["R=1", "R=2"]
    assert len(cells) == 3
    with pytest.raises(RackgateError, match="'elsewhere'"):
        jmh_plan.plan("elsewhere")
