"""Verdicts of several cells as one family of comparisons; ranks, pooled counts and speed of the analysis."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.analysis import analysis_speed, comparisons, quantiles, verdicts
from bench.analysis.comparisons import CellMeasurements, compare
from bench.analysis.quantiles import BinCounts, QuantileQuery
from bench.plan import scenarios as plans
from bench.plan.scenario import BenchCell
from bench_results import bin_counts
from pyhooks.core.errors import RackgateError

TAIL = plans.load("tail")
TAIL = dataclasses.replace(TAIL, latency=dataclasses.replace(TAIL.latency, blocks=20, resamples=300))
RECORDS = 1000


def cells(number: int) -> list[BenchCell]:
    return [BenchCell(f"c{n}", f"cell {n}", "healthy", TAIL) for n in range(number)]


def measurements(
    cell: BenchCell, ratio: float, *, control: float = 1.0, positive: float | None = 0.5, noise: float = 0.02,
    seed: int = 1, late: float = 0.02, records: int = RECORDS,
) -> CellMeasurements:  # fmt: skip
    """Return simulated measurements with these true ratios; ``positive=None`` omits the positive control."""
    true_ratios = {"A": 1.0, "A'": control, "B": ratio} | ({} if positive is None else {"P": positive})
    if positive is None:
        arms = tuple(arm for arm in cell.scenario.arms if arm.latency != "positive")
        cell = dataclasses.replace(cell, scenario=dataclasses.replace(cell.scenario, arms=arms))
    return simulate(cell, true_ratios, seed, noise=noise, late=late, records=records)


def simulate(
    cell: BenchCell,
    true_ratios: Mapping[str, float],
    seed: int,
    *,
    noise: float,
    late: float = 0.02,
    records: int = RECORDS,
) -> CellMeasurements:
    random = np.random.default_rng(seed)
    rounds: list[dict[str, Any]] = []
    counts: dict[str, dict[int, BinCounts]] = {arm: {} for arm in true_ratios}
    for block in range(cell.scenario.latency.blocks):
        for arm, ratio in true_ratios.items():
            block_ms = 3 * ratio * math.exp(random.normal(0, noise))
            latency_ms = block_ms * np.exp(random.normal(0, 0.3, records))
            p99_ms = float(np.quantile(latency_ms, 0.99))
            rounds.append({"block": block, "arm": arm, "n": records, "p50_ms": block_ms, "p99_ms": p99_ms})
            counts[arm][block] = bin_counts(latency_ms)
    share = {"p50": late, "p99": late}
    summary = {arm: {"intended": 100, "acked": 100, "rejected": False, "late_share": share} for arm in true_ratios}
    return CellMeasurements(cell, rounds, summary, counts)


def verdicts_by_arm(run: list[CellMeasurements]) -> list[dict[str, tuple[str, str]]]:
    by_cell = ([row for row in rows if row["at"] == "p50"] for rows in compare(run))
    return [{row["arm"]: (row["verdict"], row["reason"]) for row in rows} for rows in by_cell]


def test_each_cell_has_its_own_verdicts_and_a_failed_control_voids_only_its_cell() -> None:
    one, two, three = cells(3)
    run = [measurements(one, 1.0), measurements(two, 1.4, seed=2), measurements(three, 1.4, control=1.2, seed=3)]
    by_cell = verdicts_by_arm(run)
    assert [by_arm["B"] for by_arm in by_cell] == [
        ("equivalent", "decided"),
        ("slower", "decided"),
        ("undecided", "control"),
    ]
    assert by_cell[2]["A'"] == ("slower", "decided")
    # With a failed control, no ratio is detectable.
    ratios = [
        row["detectable_ratio"] for rows in compare(run) for row in rows if (row["arm"], row["at"]) == ("B", "p50")
    ]
    assert [detectable is None for detectable in ratios] == [False, False, True]


def test_a_cell_whose_usual_baseline_rejects_uses_its_own() -> None:
    full = plans.load("full")
    cell = next(cell for cell in full.cells if cell.id == "isr-2-in-2")
    complete = simulate(cell, {"B": 1.0, "C": 1.0, "C'": 1.0, "P": 0.5}, 5, noise=0.01)
    rejected = {"intended": 0, "acked": 0, "rejected": True, "late_share": None}
    (rows,) = compare([dataclasses.replace(complete, summary={**complete.summary, "A": rejected})])
    by_arm = {row["arm"]: row for row in rows if row["at"] == "p50"}
    assert {row["against"] for row in rows} == {"C"}
    assert (by_arm["B"]["verdict"], by_arm["C'"]["verdict"]) == ("equivalent", "equivalent")
    assert (by_arm["A"]["verdict"], by_arm["A"]["reason"], by_arm["A"]["rejected"]) == ("undecided", "rejected", ["A"])
    assert by_arm["A"]["ratio"] is None


def test_a_cell_among_many_needs_more_evidence_than_a_single_one() -> None:
    single = compare([measurements(cells(1)[0], 1.0, noise=0.05)])[0]
    of_many = compare([measurements(cell, 1.0, noise=0.05, seed=n) for n, cell in enumerate(cells(12), start=1)])
    alone, in_family = (next(row for row in rows if row["arm"] == "B") for rows in (single, of_many[0]))
    assert in_family["detectable_ratio"] > alone["detectable_ratio"] * 1.005
    assert in_family["provable_band"] > alone["provable_band"]
    assert in_family["blocks_needed"] > alone["blocks_needed"]
    with pytest.raises(ValueError, match="1 to 12 cells"):
        compare([measurements(cell, 1.0) for cell in cells(13)])


def test_cells_with_different_rules_are_rejected() -> None:
    one, two = cells(2)
    other = dataclasses.replace(TAIL, latency=dataclasses.replace(TAIL.latency, alpha=0.5))
    with pytest.raises(ValueError, match="same rules"):
        comparisons.rules_of([one, dataclasses.replace(two, scenario=other)])


def test_a_quantile_that_is_not_judged_has_no_verdict_and_is_not_in_the_family() -> None:
    one, two = cells(2)
    p50_only = dataclasses.replace(two, judged=(0.5,))
    assert comparisons.family_size([one, two]) == 4
    assert comparisons.family_size([one, p50_only]) == 3
    rows = compare([measurements(one, 1.4), measurements(p50_only, 1.4, seed=2)])[1]
    by_key = {(row["arm"], row["at"]): (row["verdict"], row["reason"]) for row in rows}
    assert by_key["B", "p50"] == ("slower", "decided")
    assert by_key["B", "p99"] == ("undecided", "not judged")
    assert by_key["A'", "p99"] == ("equivalent", "decided")
    assert next(row for row in rows if (row["arm"], row["at"]) == ("B", "p99"))["ratio"]["point"] > 1.2


def test_too_few_blocks_give_a_ratio_without_a_verdict() -> None:
    few = dataclasses.replace(TAIL, latency=dataclasses.replace(TAIL.latency, blocks=10))
    (rows,) = compare([measurements(dataclasses.replace(cells(1)[0], scenario=few), 1.5)])
    row = next(row for row in rows if row["arm"] == "B")
    assert (row["verdict"], row["reason"]) == ("undecided", "few blocks")
    assert row["ratio"]["point"] == pytest.approx(1.5, rel=0.1)


def test_equivalence_is_undecided_if_the_pacer_is_late() -> None:
    """If all arms share a lateness much larger than their latency, a difference of 50 % appears equivalent."""
    (cell,) = cells(1)
    late_ms, latency_ms, slower = 100.0, 3.0, 1.5
    hidden = (late_ms + latency_ms * slower) / (late_ms + latency_ms)
    assert verdicts_by_arm([measurements(cell, hidden)])[0]["B"] == ("equivalent", "decided")
    assert verdicts_by_arm([measurements(cell, hidden, late=0.3)])[0]["B"] == ("undecided", "pacer")
    # A significant difference remains a verdict.
    assert verdicts_by_arm([measurements(cell, 1.5, late=0.3)])[0]["B"] == ("slower", "decided")


@pytest.mark.parametrize("positive", [None, 1.0, 2.0], ids=["missing", "equal", "slower"])
def test_equivalence_needs_a_positive_control_that_is_faster(positive: float | None) -> None:
    one, two = cells(2)
    run = [measurements(one, 1.0), measurements(two, 1.0, positive=positive, seed=2)]
    with_control, without = verdicts_by_arm(run)
    assert (with_control["B"], with_control["P"]) == (("equivalent", "decided"), ("faster", "decided"))
    assert without["B"] == ("undecided", "positive control")
    # A difference needs no positive control.
    assert verdicts_by_arm([measurements(two, 1.5, positive=positive)])[0]["B"] == ("slower", "decided")
    assert comparisons.family_size([cell_measurements.cell for cell_measurements in run]) == 4


def test_the_positive_control_must_be_complete_and_faster_at_the_same_quantile() -> None:
    complete = measurements(cells(1)[0], 1.0)
    incomplete = {**complete.summary, "P": {**complete.summary["P"], "acked": 99}}
    assert verdicts_by_arm([dataclasses.replace(complete, summary=incomplete)])[0]["B"] == (
        "undecided",
        "positive control",
    )
    slow = [{**row, "p50_ms": 3.0} if row["arm"] == "P" else row for row in complete.rounds]
    (rows,) = compare([dataclasses.replace(complete, rounds=slow)])
    by_key = {row["at"]: (row["verdict"], row["reason"]) for row in rows if row["arm"] == "B"}
    assert by_key == {"p50": ("undecided", "positive control"), "p99": ("equivalent", "decided")}
    verdict = next(row for row in verdicts.latency_verdicts(numbers(rows)) if row["subject"] == "B against A, p50")
    assert "the positive control, P, is equivalent, ratio" in verdict["text"]


def numbers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"cell": "c0", "arms": [], "comparisons": rows, "judged": ["p50", "p99"], "confidence": 0.95}


def test_the_baseline_is_the_mean_of_both_arms_with_its_settings() -> None:
    (rows,) = compare([measurements(cells(1)[0], 1.0, control=1.02, noise=0.002)])
    by_key = {(row["arm"], row["at"]): row for row in rows}
    assert {row["arm"]: row["baseline"] for row in rows} == {"A'": ["A"], "B": ["A", "A'"], "P": ["A", "A'"]}
    assert by_key["A'", "p50"]["ratio"]["point"] == pytest.approx(1.02, abs=0.003)
    assert by_key["B", "p50"]["ratio"]["point"] == pytest.approx(1 / math.sqrt(1.02), abs=0.003)
    assert by_key["B", "p50"]["difference_ms"]["point"] == pytest.approx(3 - 3 * math.sqrt(1.02), abs=0.009)
    assert by_key["B", "p99"]["ratio"]["point"] == pytest.approx(0.99, abs=0.02)
    # of all blocks' records at p99, without trimming
    assert [by_key["B", at]["freedom"] for at in ("p50", "p99")] == [9, 19]


def test_without_a_complete_control_there_is_no_baseline() -> None:
    complete = measurements(cells(1)[0], 1.0)
    without_block = [row for row in complete.rounds if (row["arm"], row["block"]) != ("A'", 3)]
    (rows,) = compare([dataclasses.replace(complete, rounds=without_block)])
    by_key = {row["arm"]: (row["verdict"], row["reason"], row["ratio"]) for row in rows if row["at"] == "p50"}
    assert by_key["A'"] == ("undecided", "missing", None)
    assert by_key["B"] == by_key["P"] == ("undecided", "control", None)
    texts = {verdict["text"] for verdict in verdicts.latency_verdicts(numbers(rows))}
    assert texts == {"Undecided: the control has no ratio."}


def test_a_difference_beyond_the_margin_is_not_equivalent() -> None:
    near = measurements(cells(1)[0], 1.02, noise=0.01)
    far = [{**row, "p50_ms": row["p50_ms"] * 20} for row in near.rounds]
    (rows,) = compare([near])
    (far_rows,) = compare([dataclasses.replace(near, rounds=far)])
    small, large = (
        next(row for row in cell_rows if (row["arm"], row["at"]) == ("B", "p50")) for cell_rows in (rows, far_rows)
    )
    # The same ratio is a difference of 0.06 ms and of 1.2 ms.
    assert (small["verdict"], small["margin_ms"]) == ("equivalent", 1.0)
    assert small["difference_ms"]["point"] == pytest.approx(0.06, abs=0.03)
    assert large["ratio"] == pytest.approx(small["ratio"])
    assert large["difference_ms"]["high"] > 1.0
    assert large["verdict"] == "slower"
    assert large["blocks_needed"] > small["blocks_needed"]


@pytest.mark.parametrize(("records", "enough"), [(999, False), (1000, True)])
def test_a_percentile_needs_ten_records_above_it_in_every_block(records: int, enough: bool) -> None:
    (cell,) = cells(1)
    (rows,) = compare([measurements(cell, 1.4, records=records)])
    by_key = {(row["arm"], row["at"]): (row["verdict"], row["reason"]) for row in rows}
    assert by_key["B", "p50"] == ("slower", "decided")
    assert by_key["B", "p99"] == (("slower", "decided") if enough else ("undecided", "few records"))
    assert by_key["A'", "p99"][1] == ("decided" if enough else "few records")


def test_an_undecided_verdict_has_the_number_of_blocks_needed() -> None:
    (rows,) = compare([measurements(cells(1)[0], 1.0, noise=0.15)])
    row = next(row for row in rows if row["arm"] == "A'")
    assert (row["verdict"], row["reason"]) == ("undecided", "noise")
    assert row["blocks_needed"] > TAIL.latency.blocks


def test_interpolated_ranks_match_numpy() -> None:
    values = np.sort(np.random.default_rng(1).integers(0, 10**9, 1234))
    for quantile in (0.0, 0.5, 0.99, 0.9999, 1.0):
        low, high, share = quantiles.ranks(quantile, values.size)
        interpolated = values[low] + (values[high] - values[low]) * share
        assert interpolated == pytest.approx(np.quantile(values, quantile), rel=1e-12)


def test_ranks_are_those_of_the_sorted_observations() -> None:
    counts = BinCounts(np.array([3, 5, 9]), np.array([2, 1, 4]))
    assert [counts.place(rank) for rank in range(7)] == [(3, 0), (3, 1), (5, 0), *[(9, rank) for rank in range(4)]]
    pooled = quantiles.pool_counts([counts, BinCounts(np.array([5, 6]), np.array([10, 1]))])
    assert (pooled.bins.tolist(), pooled.counts.tolist()) == ([3, 5, 6, 9], [2, 11, 1, 4])


def test_without_queries_no_spark_job_runs() -> None:
    wanted: list[QuantileQuery] = []
    assert quantiles.exact_quantiles(None, "latency_ns", ["cell"], wanted) == []


def test_too_few_observations_for_a_speed_measurement_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="10 observations: at least 1,200"):
        analysis_speed.measure([10], tmp_path, master="local[1]", tell=print)


def test_growth_ignores_the_warm_up() -> None:
    rows = [{"warm_up": n == 0, "analysed_s": s} for n, s in enumerate((9.0, 2.0, 16.0))]
    assert analysis_speed.growth({"rows": rows}) == 8.0
    assert analysis_speed.growth({"rows": rows[:2]}) is None


@pytest.mark.parametrize(
    ("duration_s", "gib", "others_cpus", "outcomes"),
    [
        (80.0, 3.9, 0.2, ["met", "met", "met"]),
        # Other processes may have slowed the smaller analysis, which would hide growth.
        (80.0, 3.9, 0.3, ["met", "met", "unknown"]),
        (80.0, 3.9, 1.0, ["met", "met", "unknown"]),
        (95.0, 3.9, 0.0, ["missed", "met", "met"]),
        (120.0, 4.1, 0.0, ["missed", "missed", "missed"]),
        (120.0, 4.1, 0.5, ["unknown", "missed", "unknown"]),
    ],
)
def test_targets_of_the_analysis_speed(duration_s: float, gib: float, others_cpus: float, outcomes: list[str]) -> None:
    rows = [
        {"observations": size, "warm_up": size == analysis_speed.WARM_UP, "analysed_s": s, "peak_gib_so_far": gib,
         "others_cpus": others_cpus}
        for size, s in zip((analysis_speed.WARM_UP, *analysis_speed.SIZES), (5.0, 10.0, duration_s), strict=True)
    ]  # fmt: skip
    assert [target.outcome for target in analysis_speed.targets_of({"rows": rows})] == outcomes
    assert analysis_speed.targets_of({"rows": rows[:2]}) == []


def test_help_of_bench_speed_shows_an_example() -> None:
    from bench.cli import bench_app

    invocation = CliRunner().invoke(bench_app, ["speed", "--help"])
    assert invocation.exit_code == 0
    assert "--observations 1000000" in invocation.stdout
