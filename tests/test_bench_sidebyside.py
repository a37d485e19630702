"""Two results side by side: on made-up runs whose truth is known, and on the command line."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import inference, scenarios, sidebyside
from bench.cli import bench_app
from bench.results import SCHEMA_VERSION
from pyhooks.errors import RackgateError

RULES = dataclasses.replace(scenarios.load("quick").latency.rules, resamples=500)
RUNNER = CliRunner()
CELLS = 6


def comparison(logs: Any, arm: str = "B", at: str = "p50", **changes: Any) -> dict[str, Any]:
    one = inference.effect(logs, RULES, 1)
    interval = one.interval(0.025)
    row = {
        "arm": arm, "against": "A", "at": at, "is_control": False, "word": "undecided", "reason": "noise",
        "refused": [], "error": one.error, "freedom": one.freedom,
        "ratio": {"low": interval.low, "point": interval.point, "high": interval.high},
    }  # fmt: skip
    return row | changes


def result(random: np.random.Generator, ratio: float = 1.0, cells: int = CELLS, spread: float = 0.05) -> dict[str, Any]:
    arms = [{"arm": arm, "label": f"label of {arm}"} for arm in "AB"]
    return {
        "schema": SCHEMA_VERSION,
        "manifest": {"run_id": "r", "conditions": {"build": "b", "machine": {"cpus": 2}}},
        "cells": [
            {"cell": f"c{n}", "state": "healthy", "setting": {"link": "az"}, "confidence": 0.95, "arms": arms,
             "comparisons": [comparison(random.normal(math.log(ratio), spread, 20))]}
            for n in range(cells)
        ],
    }  # fmt: skip


def test_runs_of_the_same_truth_differ_no_more_often_than_stated() -> None:
    random = np.random.default_rng(1)
    runs = 300
    wrong = sum(sidebyside.beside(result(random), result(random))["said"] == "differs" for _ in range(runs))
    assert wrong / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_a_change_beyond_both_noises_is_told_and_measured() -> None:
    random = np.random.default_rng(2)
    found = sidebyside.beside(result(random), result(random, ratio=1.3))
    assert found["said"] == "differs"
    assert {pair["said"] for pair in found["pairs"]} == {"differs"}
    for pair in found["pairs"]:
        assert pair["factor"]["low"] < 1.3 < pair["factor"]["high"]
    # two overlapping intervals may differ all the same, and two ratios far apart may not, if they are noise
    noisy = sidebyside.beside(result(random, spread=0.9), result(random, 1.3, spread=0.9))
    assert noisy["said"] == "alike"


def test_where_two_equal_arms_differ_between_the_labs_nothing_is_said_to() -> None:
    random = np.random.default_rng(7)

    def lab(ratio: float, control: float) -> dict[str, Any]:
        whole = result(random, ratio, cells=1)
        logs = random.normal(math.log(control), 0.05, 20)
        whole["cells"][0]["comparisons"].append(comparison(logs, arm="A'", is_control=True))
        return whole

    assert sidebyside.beside(lab(1.0, 1.0), lab(1.3, 1.0))["said"] == "differs"
    found = sidebyside.beside(lab(1.0, 1.0), lab(1.3, 1.3))
    assert [(pair["said"], pair["why"]) for pair in found["pairs"]] == [("unknown", "two equal arms differ, too")]
    # it takes away no agreement
    assert sidebyside.beside(lab(1.0, 1.0), lab(1.0, 1.3))["said"] == "alike"


def test_the_interval_of_the_difference_is_welch_s() -> None:
    a = {"ratio": {"point": 1.0}, "error": 0.03, "freedom": 11}
    b = {"ratio": {"point": 1.2}, "error": 0.04, "freedom": 15}
    found = sidebyside.factor(a, b, 0.025)
    # freedom (0.0025^2) / (0.03^4 / 11 + 0.04^4 / 15) = 25.6; t(0.975, 25) = 2.0595
    assert found.point == pytest.approx(1.2)
    assert math.log(found.high / found.point) == pytest.approx(0.05 * 2.0595, rel=1e-4)
    certain = {"ratio": {"point": 1.0}, "error": 0.0, "freedom": 11}
    assert sidebyside.factor(certain, certain, 0.025).low == 1.0


def test_refusals_and_missing_numbers_are_no_agreement() -> None:
    random = np.random.default_rng(3)
    plain = result(random, cells=1)

    def with_row(**changes: Any) -> dict[str, Any]:
        whole: dict[str, Any] = json.loads(json.dumps(plain))
        whole["cells"][0]["comparisons"][0] |= changes
        return whole

    refusing = with_row(refused=["A"], ratio=None, reason="refused")
    missing = with_row(ratio=None, reason="missing")
    assert sidebyside.beside(refusing, refusing)["said"] == "alike"
    one_alone = sidebyside.beside(plain, refusing)
    assert one_alone["said"] == "differs"
    assert one_alone["pairs"][0]["why"] == "nobody refuses in A and A refuses in B"
    unknown = sidebyside.beside(plain, missing)
    assert (unknown["said"], unknown["pairs"][0]["why"]) == ("unknown", "no ratio in B: missing")


def test_cells_of_one_result_alone_or_of_another_setting_are_named_and_not_compared() -> None:
    random = np.random.default_rng(4)
    a, b = result(random, cells=2), result(random, cells=3)
    b["cells"][1]["setting"] = {"link": "far"}
    b["manifest"]["conditions"]["machine"]["cpus"] = 8
    found = sidebyside.beside(a, b)
    assert (found["only_in_a"], found["only_in_b"], found["other_setting"]) == ([], ["c2"], ["c1"])
    assert [pair["cell"] for pair in found["pairs"]] == ["c0"]
    assert found["conditions"] == ["machine.cpus: 2, now 8"]


def write(path: Path, one: dict[str, Any]) -> str:
    path.write_text(json.dumps(one), encoding="utf-8")
    return str(path)


def test_the_command_shows_both_and_ends_with_what_it_found(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    a, b = write(tmp_path / "a.json", result(random)), write(tmp_path / "b.json", result(random, 1.3))
    same = RUNNER.invoke(bench_app, ["compare", a, a])
    assert same.exit_code == 0, same.output
    assert "The conditions are the same." in same.output
    assert "(noise)" in same.output
    other = RUNNER.invoke(bench_app, ["compare", a, b, "--json"])
    assert other.exit_code == 1
    told = json.loads(other.stdout)
    assert len(told["pairs"]) == CELLS
    assert told["said"] == "differs"
    missing = result(random, cells=1)
    missing["cells"][0]["comparisons"][0] |= {"ratio": None, "reason": "missing"}
    assert RUNNER.invoke(bench_app, ["compare", a, write(tmp_path / "c.json", missing)]).exit_code == 2


def test_what_cannot_be_compared_is_told_in_a_line(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    a = write(tmp_path / "a.json", result(random))
    old = write(tmp_path / "old.json", result(random) | {"schema": SCHEMA_VERSION - 1})
    with pytest.raises(RackgateError, match=r"old\.json: a result of an old schema"):
        RUNNER.invoke(bench_app, ["compare", a, old], catch_exceptions=False)
    other = result(random)
    for cell in other["cells"]:
        cell["cell"] = f"other-{cell['cell']}"
    with pytest.raises(RackgateError, match="no cell with the same name and setting is in both"):
        RUNNER.invoke(bench_app, ["compare", a, write(tmp_path / "b.json", other)], catch_exceptions=False)
    shown = RUNNER.invoke(bench_app, ["compare", "--help"])
    assert "rackgate bench compare out/bench" in " ".join(shown.stdout.split())
