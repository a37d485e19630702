"""Statistics and plan of the cost measurement, on written forks."""

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
from pyhooks.verify import cli, jmh, jmh_plan
from pyhooks.verify.cpu_contention import ContentionRule, Heat, HeatRunner, Heats, YardstickTime
from pyhooks.verify.jmh_statistics import LIMITS, Comparison, Fork, compare, difference, judge, worst


def noisy(middle: float, spread: float, count: int, seed: int) -> list[float]:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    return [drawn.gauss(middle, spread) for _ in range(count)]


def test_a_known_difference_is_inside_its_interval() -> None:
    found = difference(noisy(60, 1, 30, 1), noisy(62, 1, 30, 2))
    assert found.low < 2 < found.high
    assert found.high - found.low < 2
    percent = difference(noisy(60, 1, 30, 1), noisy(62, 1, 30, 2), relative=True)
    assert percent.low < 100 * 2 / 60 < percent.high


def test_intervals_hold_in_95_of_100_cases_even_with_few_forks() -> None:
    hits = 0
    for seed in range(200):
        found = difference(noisy(60, 1, 5, seed), noisy(61, 1, 5, seed + 10_000))
        hits += found.low <= 1 <= found.high
    assert hits >= 180


def test_a_disturbance_of_both_sides_cancels() -> None:
    bursts = [0.0, 40.0, 3.0, 90.0, 10.0, 0.0]
    found = difference([60 + b for b in bursts], [61 + b for b in bursts])
    assert found == pytest.approx(Interval(1, 1, 1)) or (found.low, found.high) == pytest.approx((1, 1))


def test_one_disturbed_fork_does_not_decide() -> None:
    before, after = noisy(60, 0.1, 10, 1), noisy(60, 0.1, 10, 2)
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
def test_a_target_is_met_or_missed_by_the_whole_interval(interval: Interval, verdict: str) -> None:
    assert judge("ns", interval, 10).verdict == verdict


def test_forks_needed_grow_with_the_noise() -> None:
    near = judge("ns", Interval(0, 4, 8), 10)
    far = judge("ns", Interval(-6, 4, 14), 10)
    assert near.forks_needed == 160
    assert far.forks_needed == 1000
    assert judge("ns", Interval(3, 4, 4.5), 10).forks_needed == 0


def forks(cell: str, cpu: list[float], bytes_: float = 200.0) -> list[Fork]:
    return [Fork(cell, number, ns, ns * 2, bytes_, 1.0, (ns,) * 30) for number, ns in enumerate(cpu, 1)]


def test_a_comparison_pairs_rounds_and_leaves_unpaired_ones_out() -> None:
    written = [*forks("s", [60, 61, 62, 63]), *forks("o", [61, 62, 63], 201.0)]
    found = compare(Comparison("x", "s", "o"), written)
    assert found["forks"] == 3
    bars = {bar["name"]: bar for bar in found["bars"]}
    assert {name: bar["limit"] for name, bar in bars.items()} == LIMITS
    assert bars["ns"]["measured"]["estimate"] == pytest.approx(1)
    assert bars["bytes"]["verdict"] == "not met"
    assert found["verdict"] == "not met"


# What was seen: page faults until a JVM had gone through its young generation once.
LATE = (*[460.0] * 15, 220.0, 440.0, 93.0, *[81.0] * 12)
WARM = (93.0, *[81.0] * 29)


@pytest.mark.parametrize(("late", "verdict"), [(4, "met"), (5, "unknown"), (6, "unknown")])
def test_a_cold_side_gives_no_verdict_on_time(late: int, verdict: str) -> None:
    cold = [replace(f, iterations_ns=LATE if f.round_ <= late else WARM) for f in forks("o", [60.1] * 6)]
    warm = [replace(f, iterations_ns=WARM) for f in forks("s", [60, 60.1, 60, 60.1, 60, 60.1])]
    for written in (
        compare(Comparison("x", "s", "o"), [*warm, *cold]),
        compare(Comparison("x", "o", "s"), [*warm, *cold]),
    ):
        assert max(written["warming"].values()) == pytest.approx(late / 6, abs=0.001)
        assert written["cold"] == (verdict == "unknown")
        verdicts = {bar["name"]: bar["verdict"] for bar in written["bars"]}
        assert verdicts == {"bytes": "met", "ns": verdict, "percent": verdict}


def test_a_disturbance_at_the_end_of_a_fork_is_not_warming() -> None:
    written = [replace(f, iterations_ns=LATE[::-1]) for cell in "so" for f in forks(cell, [60.0] * 6)]
    assert compare(Comparison("x", "s", "o"), written)["warming"] == {"stock": 0, "other": 0}


def test_without_forks_the_verdict_is_unknown() -> None:
    found = compare(Comparison("x", "s", "o"), forks("s", [60, 61]))
    assert (found["verdict"], found["bars"]) == ("unknown", [])
    assert worst([]) == "unknown"
    assert worst(["met", "unknown"]) == "unknown"
    assert worst(["unknown", "not met", "met"]) == "not met"


def test_the_plan_covers_all_comparisons() -> None:
    cells, comparisons = jmh_plan.plan()
    names = {cell.name for cell in cells}
    assert len(names) == len(cells)
    assert {c.stock for c in comparisons} | {c.other for c in comparisons} == names
    for isr in "357":
        for racks in "12":
            assert any(c.name == f"append gate, ISR of {isr}, R={racks}" for c in comparisons)
            assert any(c.name == f"high watermark, ISR of {isr}, R={racks}" for c in comparisons)
    for comparison in comparisons:
        assert comparison.stock.startswith("stock ")
        assert comparison.other.startswith("control " if comparison.control else "overlay ")


def test_a_round_has_every_cell_and_each_side_follows_each_other_as_often() -> None:
    cells, comparisons = jmh_plan.plan()
    rounds = [jmh_plan.in_turn(cells, number) for number in range(1, 25)]
    assert all(sorted(c.name for heat in one for c in heat) == sorted(c.name for c in cells) for one in rounds)
    places = Counter((c.name, place) for one in rounds for heat in one for place, c in enumerate(heat))
    # the first of a heat comes after the last
    after = Counter((heat[place - 1].name, c.name) for one in rounds for heat in one for place, c in enumerate(heat))
    for heat in rounds[0]:
        for cell in heat:
            assert [places[cell.name, place] for place in range(len(heat))] == [24 / len(heat)] * len(heat)
            others = [other for other in heat if other != cell]
            assert [after[other.name, cell.name] for other in others] == [24 / len(others)] * len(others)
    # who follows whom is even over the rounds of a full run already
    full = rounds[: jmh_plan.FULL.forks]
    fewer = Counter((heat[place - 1].name, c.name) for one in full for heat in one for place, c in enumerate(heat))
    assert fewer == Counter({pair: count * len(full) // 24 for pair, count in after.items()})
    # what is compared is in one heat
    for comparison in comparisons:
        assert any({comparison.stock, comparison.other} <= {c.name for c in heat} for heat in rounds[0])


def heat(number: int, cells: tuple[str, ...], cpu_ns: Callable[[str], float], pace_s: float = 0.3) -> Heat:
    forks = tuple(Fork(cell, number, cpu_ns(cell), 1.0, 0.0, 1.0, (cpu_ns(cell),) * 30) for cell in cells)
    return Heat(number, cells, 0, (), (YardstickTime(pace_s / 2, pace_s / 2, pace_s),) * 2, forks)


def test_more_keeps_all_tries_but_not_those_of_another_build(tmp_path: Path) -> None:
    path = tmp_path / "forks.jsonl"
    written = [heat(number, ("a", "b"), lambda _: 60.0) for number in (1, 2, 2)]
    # a run that was killed was at its fourth try
    path.write_text("".join(jmh._line("k", one) for one in written) + '{"key": "k", "ce')
    assert jmh._kept(path, "k") == written
    assert jmh._kept(tmp_path / "absent", "k") == []
    with pytest.raises(RackgateError, match="omit --more"):
        jmh._kept(path, "another")


def test_more_runs_only_missing_heats() -> None:
    cells, _ = jmh_plan.plan("high watermark, ISR of")
    groups = [tuple(cell.name for cell in members) for members in jmh_plan.in_turn(cells, 1)]
    # a run that ended in its third round, and one that was asked for a part of the first group
    heats = Heats(ContentionRule(), [heat(number, one, lambda _: 60.0) for number in (1, 2) for one in groups])
    heats.tries += [heat(3, groups[0], lambda _: 60.0), heat(4, groups[1][:2], lambda _: 60.0)]
    ran: list[tuple[int, tuple[str, ...]]] = []

    def forked(names: Sequence[str], number: int) -> Sequence[Fork]:
        ran.append((number, tuple(names)))
        return heat(number, tuple(names), lambda _: 60.0).forks

    pacer = HeatRunner(heats, measure=lambda: YardstickTime(0.15, 0.15, 0.3), forks=forked, keep=lambda _: None)
    effort = replace(jmh_plan.QUICK, forks=4)
    text = jmh._beforehand(cells, heats, effort)
    assert text.startswith(f"8 heats kept, 0 to repeat; 4 rounds of {len(cells)} forks, of which 5 heats are missing")
    message = list(jmh._rounds(pacer, heats, cells, effort))
    assert [one[:11] for one in message] == ["round 1/2: ", "round 2/2: "]
    # each round in its own order, whenever it is made
    orders = {
        number: [tuple(cell.name for cell in one) for one in jmh_plan.in_turn(cells, number)] for number in (3, 4)
    }
    assert ran == [(3, one) for one in orders[3][1:]] + [(4, one) for one in orders[4]]
    assert next(iter(jmh._rounds(pacer, heats, cells, effort))).startswith("4 rounds are complete already")
    assert len(ran) == 5


def test_an_incomplete_heat_with_other_cells_does_not_count() -> None:
    cells, _ = jmh_plan.plan("high watermark, ISR of 7")
    part, _ = jmh_plan.plan("high watermark, ISR of 7, R=1")
    began = replace(heat(1, tuple(cell.name for cell in cells), lambda _: 60.0), forks=())
    effort = replace(jmh_plan.QUICK, forks=1)
    assert [*jmh._missing(Heats(ContentionRule(), [began]), part, effort)] == [1]
    assert jmh._missing(Heats(ContentionRule(), [began]), cells, effort) == {}, "it is made again"


def test_forks_of_another_rule_are_not_counted_together(tmp_path: Path) -> None:
    distribution = manifested(tmp_path)
    key = jmh._key(distribution, jmh_plan.QUICK, ContentionRule())
    assert key == jmh._key(distribution, replace(jmh_plan.QUICK, forks=99), ContentionRule())
    assert key != jmh._key(distribution, jmh_plan.QUICK, ContentionRule(within=0.25))
    assert key != jmh._key(distribution, replace(jmh_plan.QUICK, warm_s=9.0), ContentionRule())


def manifested(folder: Path) -> Distribution:
    manifest = {"kafka_version": "4.3.1", "patch_hash": "0", "files": {}, "overlay": [], "patches": []}
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
        for number in range(1, 6)
        for members in jmh_plan.in_turn(cells, number)
    ]
    summary = jmh.summarise(manifested(tmp_path), jmh_plan.QUICK, Heats(ContentionRule(), tries))
    gates = [
        found for found in summary["comparisons"] if found["name"].startswith("append gate") and not found["control"]
    ]
    assert len(gates) == 6
    assert all(found["percent_of_append_to_file"]["estimate"] == pytest.approx(0.1) for found in gates)
    # 2 ns of 60 are below 5 ns, not below 3 %
    assert summary["verdict"] == "not met"
    assert summary["pace"]["forks_kept"] == 5 * len(cells)
    assert {found["forks_disturbed"] for found in summary["comparisons"]} == {0}


def test_disturbed_forks_are_counted_in_their_comparisons(tmp_path: Path) -> None:
    cells, comparisons = jmh_plan.plan("high watermark, ISR of 7")
    tries = [
        heat(number, tuple(cell.name for cell in jmh_plan.in_turn(cells, number)[0]), lambda _: 60.0, pace_s)
        for number, pace_s in ((1, 0.3), (2, 0.6), (3, 0.3))
    ]
    summary = jmh.summarise(manifested(tmp_path), jmh_plan.QUICK, Heats(ContentionRule(tries=1), tries))
    found = {one["name"]: one for one in summary["comparisons"]}
    for comparison in comparisons:
        assert (found[comparison.name]["forks"], found[comparison.name]["forks_disturbed"]) == (3, 1)
        assert cli._line(found[comparison.name]).endswith("; 1 of 3 forks disturbed")
    assert found["append gate, ISR of 3, R=1"]["forks_disturbed"] == 0
    assert jmh.format_pace(summary["pace"]).startswith("0 forks repeated, 3 of 9 disturbed, yardstick 300 ms")


def test_an_unknown_result_prints_the_command_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[jmh_plan.Effort, ContentionRule]] = []

    def measured(
        distribution: Distribution, effort: jmh_plan.Effort, rule: ContentionRule, **_: object
    ) -> dict[str, Any]:
        requested.append((effort, rule))
        group = tuple(cell.name for cell in jmh_plan.plan("high watermark, ISR of 7")[0])
        return jmh.summarise(distribution, effort, Heats(rule, [heat(n, group, lambda _: 60.0) for n in range(1, 6)]))

    monkeypatch.setattr(cli, "measure", measured)
    monkeypatch.setattr(Distribution, "load", lambda: manifested(tmp_path))
    with pytest.raises(
        RackgateError, match=r"14 comp.*, 14 of them .* 3 forks .*`rackgate patch jmh --more --forks N`"
    ):
        cli.jmh_command()
    with pytest.raises(RackgateError, match=r"`rackgate patch jmh --full --within 12.5 --more --forks N`"):
        cli.jmh_command(full=True, forks=7, within=12.5)
    assert requested == [
        (jmh_plan.QUICK, ContentionRule()),
        (replace(jmh_plan.FULL, forks=7), ContentionRule(within=0.125)),
    ]


def test_the_first_estimate_is_of_all_rounds() -> None:
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
    found = compare(Comparison("x", "s", "o"), [*forks("s", [60.0] * 30), *forks("o", after)])
    assert {bar["name"]: bar["measured"]["estimate"] for bar in found["bars"]}["ns"] == 0
    assert found["untrimmed"]["ns"]["estimate"] == pytest.approx(3)
    assert found["untrimmed"]["percent"]["high"] > 5


def test_a_part_of_the_plan() -> None:
    cells, comparisons = jmh_plan.plan("high watermark, ISR of 7")
    assert [c.name[-3:] for c in comparisons] == ["R=1", "R=2"]
    assert len(cells) == 3
    with pytest.raises(RackgateError, match="'elsewhere'"):
        jmh_plan.plan("elsewhere")
