"""Verdicts for several cells of one family, and exact quantiles by Spark against sorting."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.analysis import analysis_speed, comparisons, quantiles
from bench.analysis.comparisons import CellMeasurements, compare
from bench.analysis.quantiles import BinCounts, QuantileQuery
from bench.plan import scenarios as plans
from bench.plan.scenario import BenchCell
from bench_plans import healthy_with_outage
from pyhooks.core.errors import RackgateError

QUICK = healthy_with_outage()
QUICK = dataclasses.replace(QUICK, latency=dataclasses.replace(QUICK.latency, resamples=1000))


def cells(number: int) -> list[BenchCell]:
    return [BenchCell(f"c{n}", f"cell {n}", "healthy", QUICK) for n in range(number)]


def measured(
    cell: BenchCell, ratio: float, *, control: float = 1.0, noise: float = 0.02, seed: int = 1, late_ms: float = 0.1,
    records: int = 100,
) -> CellMeasurements:  # fmt: skip
    random = np.random.default_rng(seed)
    truth = {"A": 1.0, "A'": control, "B": ratio}
    rounds = [
        {"block": block, "arm": arm, "n": records, "p50_ms": 3 * x, "p99_ms": 12 * x}
        for block in range(QUICK.latency.blocks)
        for arm, x in ((arm, level * math.exp(random.normal(0, noise))) for arm, level in truth.items())
    ]
    late = {"p50": late_ms, "p99": 2 * late_ms}
    summary = {arm: {"intended": 100, "acked": 100, "refused": False, "pacer_late_ms": late} for arm in truth}
    return CellMeasurements(cell, rounds, summary)


def verdicts_by_arm(run: list[CellMeasurements]) -> list[dict[str, tuple[str, str]]]:
    return [{row["arm"]: (row["word"], row["reason"]) for row in rows if row["at"] == "p50"} for rows in compare(run)]


def test_each_cell_has_its_own_verdicts_and_a_failed_control_voids_only_its_cell() -> None:
    one, two, three = cells(3)
    run = [measured(one, 1.0), measured(two, 1.4, seed=2), measured(three, 1.4, control=1.2, seed=3)]
    found = verdicts_by_arm(run)
    assert [own["B"] for own in found] == [
        ("equivalent", "decided"),
        ("slower", "decided"),
        ("undecided", "control"),
    ]
    assert found[2]["A'"] == ("slower", "decided")
    # where the control fails no ratio would have got a word
    ratios = [
        row["detectable_ratio"] for rows in compare(run) for row in rows if (row["arm"], row["at"]) == ("B", "p50")
    ]
    assert [one is None for one in ratios] == [False, False, True]


def test_a_cell_whose_usual_baseline_refuses_uses_its_own() -> None:
    full = plans.load("full")
    cell = next(one for one in full.cells if one.id == "isr-2-in-2")
    truth, random = {"B": 1.0, "C": 1.0, "C'": 1.0}, np.random.default_rng(5)
    rounds = [
        {"block": block, "arm": arm, "n": 1000, "p50_ms": 3 * x, "p99_ms": 12 * x}
        for block in range(cell.scenario.latency.blocks)
        for arm, x in ((arm, level * math.exp(random.normal(0, 0.01))) for arm, level in truth.items())
    ]
    fine = {"intended": 100, "acked": 100, "refused": False, "pacer_late_ms": {"p50": 0.01, "p99": 0.02}}
    refused = {"intended": 0, "acked": 0, "refused": True, "pacer_late_ms": None}
    summary = {arm.id: refused if arm.id == "A" else fine for arm in cell.scenario.latency_arms}
    (rows,) = compare([CellMeasurements(cell, rounds, summary)])
    found = {row["arm"]: row for row in rows if row["at"] == "p50"}
    assert {row["against"] for row in rows} == {"C"}
    assert (found["B"]["word"], found["C'"]["word"]) == ("equivalent", "equivalent")
    assert (found["A"]["word"], found["A"]["reason"], found["A"]["refused"]) == ("undecided", "refused", ["A"])
    assert found["A"]["ratio"] is None


def test_a_cell_among_many_needs_more_evidence_than_a_single_one() -> None:
    single = compare([measured(cells(1)[0], 1.0)])[0]
    among = compare([measured(cell, 1.0, seed=n) for n, cell in enumerate(cells(12))])
    b_alone, b_among = (next(row for row in rows if row["arm"] == "B") for rows in (single, among[0]))
    assert b_among["detectable_ratio"] > b_alone["detectable_ratio"] * 1.005
    assert b_among["provable_band"] > b_alone["provable_band"]
    assert b_among["blocks_needed"] > b_alone["blocks_needed"]
    with pytest.raises(ValueError, match="1 to 12 cells"):
        compare([measured(cell, 1.0) for cell in cells(13)])


def test_cells_with_different_rules_are_refused() -> None:
    one, two = cells(2)
    other = dataclasses.replace(QUICK, latency=dataclasses.replace(QUICK.latency, alpha=0.5))
    with pytest.raises(ValueError, match="same rules"):
        comparisons.rules_of([one, dataclasses.replace(two, scenario=other)])


def test_a_quantile_that_is_not_judged_has_no_verdict_and_does_not_affect_others() -> None:
    one, two = cells(2)
    some = dataclasses.replace(two, judged=(0.5,))
    assert comparisons.family_size([one, two]) == 4
    assert comparisons.family_size([one, some]) == 3
    rows = compare([measured(one, 1.4), measured(some, 1.4, seed=2)])[1]
    found = {(row["arm"], row["at"]): (row["word"], row["reason"]) for row in rows}
    assert found["B", "p50"] == ("slower", "decided")
    assert found["B", "p99"] == ("undecided", "not judged")
    assert found["A'", "p99"] == ("equivalent", "decided")
    assert next(row for row in rows if (row["arm"], row["at"]) == ("B", "p99"))["ratio"]["point"] > 1.2


def test_too_few_blocks_give_a_ratio_without_a_verdict() -> None:
    few = dataclasses.replace(QUICK, latency=dataclasses.replace(QUICK.latency, blocks=10))
    (rows,) = compare([measured(dataclasses.replace(cells(1)[0], scenario=few), 1.5)])
    row = next(row for row in rows if row["arm"] == "B")
    assert (row["word"], row["reason"]) == ("undecided", "few blocks")
    assert row["ratio"]["point"] == pytest.approx(1.5, rel=0.1)


def test_a_late_pacer_hides_no_difference() -> None:
    """Arms that differ by half, behind a pacer that is late by more than they take, look the same."""
    (cell,) = cells(1)
    late_ms, took_ms, slower = 100.0, 3.0, 1.5
    hidden = (late_ms + took_ms * slower) / (late_ms + took_ms)
    assert verdicts_by_arm([measured(cell, hidden)])[0]["B"] == ("equivalent", "decided")
    assert verdicts_by_arm([measured(cell, hidden, late_ms=2.0)])[0]["B"] == ("undecided", "pacer")
    # A difference that is significant in spite of it stays.
    assert verdicts_by_arm([measured(cell, 1.5, late_ms=2.0)])[0]["B"] == ("slower", "decided")


def test_a_percentile_needs_records_beyond_it_in_every_block() -> None:
    (cell,) = cells(1)
    (rows,) = compare([measured(cell, 1.4, records=99)])
    found = {(row["arm"], row["at"]): (row["word"], row["reason"]) for row in rows}
    assert found["B", "p50"] == ("slower", "decided")
    assert found["B", "p99"] == found["A'", "p99"] == ("undecided", "few records")


def test_an_undecided_verdict_has_the_number_of_blocks_needed() -> None:
    (rows,) = compare([measured(cells(1)[0], 1.0, noise=0.15)])
    row = next(row for row in rows if row["arm"] == "A'")
    assert (row["word"], row["reason"]) == ("undecided", "noise")
    assert row["blocks_needed"] > QUICK.latency.blocks


def test_ranks_are_numpys() -> None:
    values = np.sort(np.random.default_rng(1).integers(0, 10**9, 1234))
    for quantile in (0.0, 0.5, 0.99, 0.9999, 1.0):
        low, high, share = quantiles.ranks(quantile, values.size)
        between = values[low] + (values[high] - values[low]) * share
        assert between == pytest.approx(np.quantile(values, quantile), rel=1e-12)


def test_ranks_are_those_of_the_sorted_observations() -> None:
    counts = BinCounts(np.array([3, 5, 9]), np.array([2, 1, 4]))
    assert [counts.place(rank) for rank in range(7)] == [(3, 0), (3, 1), (5, 0), *[(9, rank) for rank in range(4)]]
    both = quantiles.pool_counts([counts, BinCounts(np.array([5, 6]), np.array([10, 1]))])
    assert (both.bins.tolist(), both.counts.tolist()) == ([3, 5, 6, 9], [2, 11, 1, 4])


def test_no_quantiles_need_no_spark_job() -> None:
    wanted: list[QuantileQuery] = []
    assert quantiles.exact_quantiles(None, "latency_ns", ["cell"], wanted) == []


def test_too_few_observations_for_the_speed_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="10 observations: at least 1,200"):
        analysis_speed.measure([10], tmp_path, master="local[1]", tell=print)


def test_growth_leaves_the_warm_up_out() -> None:
    rows = [{"warm_up": n == 0, "analysed_s": s} for n, s in enumerate((9.0, 2.0, 16.0))]
    assert analysis_speed.growth({"rows": rows}) == 8.0
    assert analysis_speed.growth({"rows": rows[:2]}) is None


@pytest.mark.parametrize(
    ("took_s", "gib", "others_cpus", "outcomes"),
    [
        (80.0, 3.9, 0.2, ["met", "met", "met"]),
        # others may have slowed the smaller one down and made the growth look smaller
        (80.0, 3.9, 0.3, ["met", "met", "unknown"]),
        (80.0, 3.9, 1.0, ["met", "met", "unknown"]),
        (95.0, 3.9, 0.0, ["missed", "met", "met"]),
        (120.0, 4.1, 0.0, ["missed", "missed", "missed"]),
        (120.0, 4.1, 0.5, ["unknown", "missed", "unknown"]),
    ],
)
def test_the_targets_of_the_speed(took_s: float, gib: float, others_cpus: float, outcomes: list[str]) -> None:
    rows = [
        {"observations": size, "warm_up": size == analysis_speed.WARM_UP, "analysed_s": s, "peak_gib_so_far": gib,
         "others_cpus": others_cpus}
        for size, s in zip((analysis_speed.WARM_UP, *analysis_speed.SIZES), (5.0, 10.0, took_s), strict=True)
    ]  # fmt: skip
    assert [bar.outcome for bar in analysis_speed.targets_of({"rows": rows})] == outcomes
    assert analysis_speed.targets_of({"rows": rows[:2]}) == []


def test_help_of_speed_shows_an_example() -> None:
    from bench.cli import bench_app

    done = CliRunner().invoke(bench_app, ["speed", "--help"])
    assert done.exit_code == 0
    assert "--observations 1000000" in done.stdout
