"""Comparison of two results: simulated runs with known true ratios, and the command ``bench compare``."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.analysis import inference
from bench.analysis.inference import Effect
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.cli import bench_app
from bench.plan import scenarios
from bench.report import result_comparison, run_page
from pyhooks.core.errors import RackgateError

RULES = dataclasses.replace(scenarios.load("tail").latency.rules, resamples=500)
RUNNER = CliRunner()
CELLS = 6
BAND = 0.05
# Standard deviation of a block's log-ratio, small enough that 20 blocks can show equivalence.
NOISE = 0.02


def effect(log_ratios: Any) -> Effect:
    return inference.block_effect(np.exp(log_ratios), np.ones((1, len(log_ratios))), RULES)


def comparison(log_ratios: Any, arm: str = "B", at: str = "p50", **changes: Any) -> dict[str, Any]:
    estimate = effect(log_ratios)
    interval = estimate.interval(0.025)
    row = {
        "arm": arm, "against": "A", "at": at, "is_control": False, "verdict": "undecided", "reason": "noise",
        "rejected": [], "error": estimate.log_ratio.error, "freedom": estimate.log_ratio.freedom, "band": BAND,
        "mean_ratio": math.exp(estimate.ratios[-1].point),
        "ratio": {"low": interval.low, "point": interval.point, "high": interval.high},
    }  # fmt: skip
    return row | changes


def control(log_ratios: Any, **changes: Any) -> dict[str, Any]:
    row = comparison(log_ratios, arm="A'", is_control=True)
    verdict = inference.control_verdict(effect(log_ratios), BAND, 1.0, RULES)
    return row | {"verdict": verdict, "reason": "decided" if verdict != "undecided" else "noise"} | changes


def result(
    random: np.random.Generator,
    ratio: float = 1.0,
    cells: int = CELLS,
    spread: float = NOISE,
    control_ratio: float = 1.0,
) -> dict[str, Any]:
    """Return a result whose cells have a candidate with this true ratio and spread, and a control."""
    arms = [{"arm": arm, "label": f"label of {arm}"} for arm in "AB"]
    return {
        "schema": SCHEMA_VERSION,
        "manifest": {"run_id": "r", "conditions": {"build": "b", "machine": {"cpus": 2}}},
        "cells": [
            {"cell": f"c{n}", "state": "healthy", "setting": {"link": "az"}, "confidence": 0.95, "arms": arms,
             "comparisons": [comparison(random.normal(math.log(ratio), spread, 20)),
                             control(random.normal(math.log(control_ratio), NOISE, 20))]}
            for n in range(cells)
        ],
    }  # fmt: skip


def test_equal_runs_differ_no_more_often_than_the_error_rate() -> None:
    random = np.random.default_rng(1)
    runs = 300
    verdicts = [result_comparison.compare_results(result(random), result(random))["verdict"] for _ in range(runs)]
    assert verdicts.count("differs") / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert verdicts.count("alike") / runs > 0.8


def test_runs_at_the_edge_of_the_band_are_alike_no_more_often_than_the_error_rate() -> None:
    random = np.random.default_rng(8)
    runs, edge = 300, 1 + BAND
    verdicts = [
        result_comparison.compare_results(result(random, cells=1), result(random, edge, cells=1))["verdict"]
        for _ in range(runs)
    ]
    assert verdicts.count("alike") / runs <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / runs)


def test_noisy_runs_are_not_alike() -> None:
    random = np.random.default_rng(9)
    noisy = result_comparison.compare_results(result(random, spread=0.2), result(random, spread=0.2))
    assert noisy["verdict"] == "unknown"
    assert {(pair["verdict"], pair["why"]) for pair in noisy["pairs"]} == {("unknown", "noise")}
    # A significant difference within the band is too small to matter.
    tiny = result_comparison.compare_results(result(random, spread=0.001), result(random, 1.01, spread=0.001))
    assert tiny["pairs"][0]["factor"]["low"] > 1
    assert tiny["verdict"] == "alike"


def test_a_difference_removed_by_trimming_is_not_alike() -> None:
    random = np.random.default_rng(10)
    plain, burst = result(random, cells=1), result(random, cells=1)
    burst["cells"][0]["comparisons"][0]["mean_ratio"] = 1.2
    assert result_comparison.compare_results(plain, plain)["verdict"] == "alike"
    assert result_comparison.compare_results(plain, burst)["verdict"] == "unknown"


def test_a_quantile_that_is_not_judged_is_ignored() -> None:
    random = np.random.default_rng(11)

    def with_p99(reason: str, ratio: float) -> dict[str, Any]:
        data = result(np.random.default_rng(11), cells=1)
        log_ratios = random.normal(math.log(ratio), NOISE, 20), random.normal(0, NOISE, 20)
        data["cells"][0]["comparisons"] += [
            comparison(log_ratios[0], at="p99", reason=reason),
            control(log_ratios[1], at="p99"),
        ]
        return data

    compared = result_comparison.compare_results(with_p99("not judged", 1.0), with_p99("not judged", 2.0))
    assert compared["verdict"] == "alike"
    assert [(pair["at"], pair["verdict"]) for pair in compared["pairs"]] == [("p50", "alike"), ("p99", "not judged")]
    # It does not widen the intervals of judged quantiles.
    p50_only = result_comparison.compare_results(
        result(np.random.default_rng(11), cells=1), result(np.random.default_rng(11), cells=1)
    )
    assert compared["pairs"][0]["factor"] == p50_only["pairs"][0]["factor"]
    assert result_comparison.compare_results(with_p99("noise", 1.0), with_p99("noise", 2.0))["verdict"] == "differs"
    one_sided = result_comparison.compare_results(with_p99("noise", 1.0), with_p99("not judged", 1.0))
    assert (one_sided["verdict"], one_sided["pairs"][1]["why"]) == ("unknown", "not judged in B")
    assert result_comparison.joint_verdict(["not judged"], whole=True) == "unknown"


def test_a_change_larger_than_the_noise_is_detected() -> None:
    random = np.random.default_rng(2)
    compared = result_comparison.compare_results(result(random), result(random, ratio=1.3))
    assert compared["verdict"] == "differs"
    assert {pair["verdict"] for pair in compared["pairs"]} == {"differs"}
    for pair in compared["pairs"]:
        assert pair["factor"]["low"] < 1.3 < pair["factor"]["high"]
    # The same change in noisy runs is unknown.
    noisy = result_comparison.compare_results(result(random, spread=0.9), result(random, 1.3, spread=0.9))
    assert noisy["verdict"] == "unknown"


def test_a_failed_control_makes_the_comparison_unknown() -> None:
    random = np.random.default_rng(7)

    def single_cell(true_ratio: float, control_ratio: float = 1.0, **control_changes: Any) -> dict[str, Any]:
        data = result(random, true_ratio, cells=1, control_ratio=control_ratio)
        data["cells"][0]["comparisons"][1] |= control_changes
        return data

    no_control = single_cell(1.0)
    del no_control["cells"][0]["comparisons"][1]
    undecided: dict[str, Any] = {"verdict": "undecided", "reason": "noise"}
    assert result_comparison.compare_results(single_cell(1.0), single_cell(1.3))["verdict"] == "differs"
    assert result_comparison.compare_results(single_cell(1.0), single_cell(1.0))["verdict"] == "alike"
    for a, b in (
        (single_cell(1.0), single_cell(1.3, 1.3)),
        (single_cell(1.0), single_cell(1.0, 1.3)),
        # The control fails alike in both runs.
        (single_cell(1.0, 1.3), single_cell(1.0, 1.3)),
        (single_cell(1.0, **undecided), single_cell(1.0, **undecided)),
        (single_cell(1.0, **undecided), single_cell(1.3)),
        # Each control is equivalent, but their comparison is too noisy.
        (single_cell(1.0, error=0.02), single_cell(1.0, error=0.02)),
        (single_cell(1.0, ratio=None), single_cell(1.0, ratio=None)),
        (no_control, no_control),
        (single_cell(1.0), no_control),
    ):
        compared = result_comparison.compare_results(a, b)
        reason = "two equal arms are not shown to be equal"
        assert [(pair["verdict"], pair["why"]) for pair in compared["pairs"]] == [("unknown", reason)]
        assert compared["verdict"] == "unknown"


def test_a_run_without_a_p99_is_unknown_at_p99_even_against_itself() -> None:
    random = np.random.default_rng(5)
    run = result(random, cells=1)
    noisy = random.normal(0.0, 0.5, 20)
    run["cells"][0]["comparisons"] += [comparison(noisy, at="p99"), control(noisy, at="p99")]
    compared = result_comparison.compare_results(run, run)
    assert [(pair["at"], pair["verdict"]) for pair in compared["pairs"]] == [("p50", "alike"), ("p99", "unknown")]
    assert compared["verdict"] == "unknown"


def test_the_interval_of_the_factor_is_that_of_welch() -> None:
    a = {"ratio": {"point": 1.0}, "error": 0.03, "freedom": 11}
    b = {"ratio": {"point": 1.2}, "error": 0.04, "freedom": 15}
    factor = result_comparison.factor(a, b, 0.025)
    # Degrees of freedom: (0.0025^2) / (0.03^4 / 11 + 0.04^4 / 15) = 25.6; t(0.975, 25) = 2.0595
    assert factor.point == pytest.approx(1.2)
    assert math.log(factor.high / factor.point) == pytest.approx(0.05 * 2.0595, rel=1e-4)
    certain = {"ratio": {"point": 1.0}, "error": 0.0, "freedom": 11}
    assert result_comparison.factor(certain, certain, 0.025).low == 1.0


def test_rejecting_arms_and_missing_ratios_are_compared() -> None:
    random = np.random.default_rng(3)
    plain = result(random, cells=1)

    def with_row(**changes: Any) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(json.dumps(plain))
        data["cells"][0]["comparisons"][0] |= changes
        return data

    rejecting = with_row(rejected=["A"], ratio=None, reason="rejected")
    missing = with_row(ratio=None, reason="missing")
    assert result_comparison.compare_results(rejecting, rejecting)["verdict"] == "alike"
    only_b_rejects = result_comparison.compare_results(plain, rejecting)
    assert only_b_rejects["verdict"] == "differs"
    assert only_b_rejects["pairs"][0]["why"] == "no arm rejects in A and A rejects in B"
    unknown = result_comparison.compare_results(plain, missing)
    assert (unknown["verdict"], unknown["pairs"][0]["why"]) == ("unknown", "no ratio in B: missing")
    # These ratios are present but invalid.
    for reason in ("not acknowledged", "few blocks", "few records"):
        invalid = result_comparison.compare_results(plain, with_row(reason=reason))
        assert (invalid["verdict"], invalid["pairs"][0]["why"]) == ("unknown", f"no ratio in B: {reason}")
    late = result_comparison.compare_results(plain, with_row(reason="pacer"))
    assert (late["verdict"], late["pairs"][0]["why"]) == ("unknown", "the pacer is late in B")


def test_cells_without_a_counterpart_are_listed_and_not_compared() -> None:
    random = np.random.default_rng(4)
    a, b = result(random, cells=2), result(random, cells=3)
    b["cells"][1]["setting"] = {"link": "far"}
    b["manifest"]["conditions"]["machine"]["cpus"] = 8
    compared = result_comparison.compare_results(a, b)
    assert (compared["only_in_a"], compared["only_in_b"], compared["other_setting"]) == ([], ["c2"], ["c1"])
    assert [pair["cell"] for pair in compared["pairs"]] == ["c0"]
    assert compared["conditions"] == ["machine.cpus: 2, now 8"]
    # Cells in only one result prevent the verdict alike, but not the verdict differs.
    assert (compared["verdict"], compared["pairs"][0]["verdict"]) == ("unknown", "alike")
    b["cells"][0]["comparisons"][0] = comparison(random.normal(math.log(1.3), NOISE, 20))
    assert result_comparison.compare_results(a, b)["verdict"] == "differs"
    for left, right in ((1, 2), (2, 1)):
        fewer = result_comparison.compare_results(result(random, cells=left), result(random, cells=right))
        assert (fewer["verdict"], {pair["verdict"] for pair in fewer["pairs"]}) == ("unknown", {"alike"})
    # The same applies to arms.
    more = result(random, cells=1)
    more["cells"][0]["comparisons"].append(comparison(random.normal(0, NOISE, 20), arm="C"))
    compared = result_comparison.compare_results(result(random, cells=1), more)
    assert (compared["verdict"], compared["only_in_a"], compared["only_in_b"]) == ("unknown", [], ["c0: C at p50"])
    compared = result_comparison.compare_results(more, result(random, cells=1))
    assert (compared["verdict"], compared["only_in_a"], compared["only_in_b"]) == ("unknown", ["c0: C at p50"], [])


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_bench_compare_exits_with_the_status_of_the_verdict(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    a, b = write(tmp_path / "a.json", result(random)), write(tmp_path / "b.json", result(random, 1.3))
    itself = RUNNER.invoke(bench_app, ["compare", a, a])
    assert itself.exit_code == 0, itself.output
    assert "The conditions are the same." in itself.output
    assert "(noise)" in itself.output
    changed = RUNNER.invoke(bench_app, ["compare", a, b, "--json"])
    assert changed.exit_code == 1
    output = json.loads(changed.stdout)
    assert len(output["pairs"]) == CELLS
    assert output["verdict"] == "differs"
    missing = result(random, cells=1)
    missing["cells"][0]["comparisons"][0] |= {"ratio": None, "reason": "missing"}
    assert RUNNER.invoke(bench_app, ["compare", a, write(tmp_path / "c.json", missing)]).exit_code == 2


def test_results_that_cannot_be_compared_are_a_one_line_error(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    a = write(tmp_path / "a.json", result(random))
    for schema, error in ((run_page.OLDEST_SCHEMA - 1, r"old\.json: has an earlier schema"), (4, "different kinds")):
        old = write(tmp_path / "old.json", result(random) | {"schema": schema})
        with pytest.raises(RackgateError, match=error):
            RUNNER.invoke(bench_app, ["compare", a, old], catch_exceptions=False)
    other = result(random)
    for cell in other["cells"]:
        cell["cell"] = f"other-{cell['cell']}"
    with pytest.raises(RackgateError, match="they have no cell with the same name and setting"):
        RUNNER.invoke(bench_app, ["compare", a, write(tmp_path / "b.json", other)], catch_exceptions=False)
    help_result = RUNNER.invoke(bench_app, ["compare", "--help"])
    assert "rackgate bench compare out/bench" in " ".join(help_result.stdout.split())
