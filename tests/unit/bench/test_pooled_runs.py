"""Runs kept in runs.jsonl: histograms, appended lines, pooled analysis, rejection of a changed plan."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bench.analysis import hdr_histograms, pooled_runs
from bench.analysis.comparisons import CellMeasurements, compare
from bench.analysis.quantiles import BinCounts
from bench.cli import bench_app
from bench.plan import scenarios
from bench.plan.scenario import BenchCell, Scenario
from bench.report import figures, run_page
from bench_results import bin_counts, made_up
from pyhooks.core import files, run_folder, statistics
from pyhooks.core.errors import RackgateError

TAIL = scenarios.load("tail")
BLOCKS, RECORDS = 6, 1500
TRUE_MS = {"A": 3.0, "A'": 3.0, "B": 3.1, "P": 1.5}
QUICK = dataclasses.replace(TAIL.latency, blocks=BLOCKS, resamples=200, min_blocks=2 * BLOCKS)


def plan_with(**changes: Any) -> Scenario:
    """Return the scenario ``tail`` with few blocks and these changes of its latency plan."""
    latency = dataclasses.replace(QUICK, **changes)
    plan = dataclasses.replace(TAIL, latency=latency)
    cell = dataclasses.replace(plan.cells[0], scenario=dataclasses.replace(plan, cells=()))
    return dataclasses.replace(plan, cells=(cell,))


PLAN = plan_with()


def measure(seed: int, plan: Scenario = PLAN) -> CellMeasurements:
    (cell,), random = plan.cells, np.random.default_rng(seed)
    rounds: list[dict[str, Any]] = [{"block": -1, "arm": "A", "n": 5, "p50_ms": 9.0, "p99_ms": 9.0}]
    counts: dict[str, dict[int, BinCounts]] = {arm: {} for arm in TRUE_MS}
    for block in range(BLOCKS):
        for arm, true_ms in TRUE_MS.items():
            latency_ms = true_ms * np.exp(random.normal(random.normal(0, 0.02), 0.3, RECORDS))
            p50, p99 = np.quantile(latency_ms, [0.5, 0.99])
            rounds.append({"block": block, "arm": arm, "n": RECORDS, "p50_ms": float(p50), "p99_ms": float(p99)})
            counts[arm][block] = bin_counts(latency_ms)
    late = {"p50": 0.01 * seed, "p99": 0.02}
    entry = {"intended": RECORDS, "acked": RECORDS, "rejected": False, "late_share": late}
    return CellMeasurements(cell, rounds, {arm: {"arm": arm, **entry} for arm in TRUE_MS}, counts)


def append(out: Path, run_id: str, measured: CellMeasurements, *, build: str = "b", plan: Scenario = PLAN) -> None:
    conditions = json.loads(json.dumps({"build": build, "plan": plan.as_json(), "code": f"code of {run_id}"}))
    run = {"run_id": run_id, "started": "2026-01-02T03:04:05+00:00", "conditions": conditions}
    pooled_runs.append_run(out, run, "rackgate bench run", [measured], [{"comparisons": compare([measured])[0]}])


def union(one: CellMeasurements, other: CellMeasurements) -> CellMeasurements:
    """Return the measurements of a single run that has the blocks of both."""
    latency = dataclasses.replace(one.cell.scenario.latency, blocks=2 * BLOCKS)
    cell: BenchCell = dataclasses.replace(one.cell, scenario=dataclasses.replace(one.cell.scenario, latency=latency))
    later = [{**row, "block": row["block"] + BLOCKS} for row in other.rounds if row["block"] >= 0]
    counts = {
        arm: {**blocks, **{block + BLOCKS: bins for block, bins in other.counts[arm].items()}}
        for arm, blocks in one.counts.items()
    }
    summary = {
        arm: {**entry, "late_share": {"p50": 0.02, "p99": 0.02}, "intended": 2 * RECORDS, "acked": 2 * RECORDS}
        for arm, entry in one.summary.items()
    }
    return CellMeasurements(cell, [*one.rounds, *later], summary, counts)


def test_a_histogram_keeps_every_latency_within_a_thousandth() -> None:
    random = np.random.default_rng(3)
    latency_ms = np.concatenate([np.exp(random.normal(1, 1.5, 5000)), [0.2, 0.9, 1.0, 60_000.0]])
    counts = hdr_histograms.decode(hdr_histograms.encode(bin_counts(latency_ms)))
    read_us = np.repeat(statistics.bin_value(counts.bins), counts.counts)
    # below 1 ms, whole microseconds are wider than bins
    assert np.all(np.abs(read_us - np.sort(latency_ms) * 1000) <= np.maximum(0.001 * read_us, 2.0))


def test_a_histogram_returns_exactly_the_bins_from_1_ms_on() -> None:
    bins = np.arange(6908, 18_600)
    whole = BinCounts(bins, bins % 7 + 1)
    found = hdr_histograms.decode(hdr_histograms.encode(whole))
    assert found.bins.tolist() == bins.tolist()
    assert found.counts.tolist() == whole.counts.tolist()


def test_a_histogram_is_read_by_the_library() -> None:
    from hdrh.histogram import HdrHistogram

    latency_ms = np.exp(np.random.default_rng(4).normal(2, 0.5, 4000))
    histogram = HdrHistogram.decode(hdr_histograms.encode(bin_counts(latency_ms)))
    assert histogram.get_total_count() == 4000
    assert histogram.get_value_at_percentile(99) == pytest.approx(np.quantile(latency_ms, 0.99) * 1000, rel=0.003)


def test_two_pooled_runs_equal_the_analysis_of_their_union(tmp_path: Path) -> None:
    one, two = measure(1), measure(2)
    append(tmp_path, "r1", one)
    assert pooled_runs.pool_runs(tmp_path, "r1") is None, "there is nothing to pool"
    append(tmp_path, "r2", two)
    pooled = pooled_runs.pool_runs(tmp_path, "r2")
    assert pooled is not None
    (cell,) = pooled["cells"]
    rows = [{name: value for name, value in row.items() if name != "runs"} for row in cell["comparisons"]]
    assert rows == compare([union(one, two)])[0]
    assert {row["blocks"] for row in rows} == {2 * BLOCKS}
    by_arm = {(row["arm"], row["at"]): row for row in cell["comparisons"]}
    (first,) = [row for row in compare([one])[0] if (row["arm"], row["at"]) == ("B", "p99")]
    assert [run["run_id"] for run in by_arm["B", "p99"]["runs"]] == ["r1", "r2"]
    assert by_arm["B", "p99"]["runs"][0]["ratio"] == first["ratio"]
    assert (first["reason"], by_arm["P", "p50"]["verdict"]) == ("few blocks", "faster")
    assert pooled["runs"][0]["differences"] == ["code: code of r1, now code of r2"]


def test_runs_are_appended_and_never_replaced(tmp_path: Path) -> None:
    append(tmp_path, "r1", measure(1))
    first = (tmp_path / pooled_runs.RUNS).read_text("utf-8")
    append(tmp_path, "r2", measure(2))
    both = (tmp_path / pooled_runs.RUNS).read_text("utf-8")
    assert both.startswith(first)
    assert both.count("\n") == 2
    # a report that was interrupted is written again
    append(tmp_path, "r1", measure(3))
    assert (tmp_path / pooled_runs.RUNS).read_text("utf-8") == both


def test_a_run_of_another_build_is_listed_and_not_pooled(tmp_path: Path) -> None:
    append(tmp_path, "r0", measure(4), build="another")
    for number in (1, 2):
        append(tmp_path, f"r{number}", measure(number))
    pooled = pooled_runs.pool_runs(tmp_path, "r2")
    assert pooled is not None
    assert [run["run_id"] for run in pooled["runs"]] == ["r1", "r2"]
    assert [(run["run_id"], run["differences"][0]) for run in pooled["left_out"]] == [("r0", "build: another, now b")]
    assert pooled_runs.lines(pooled) == [
        "runs of this plan in runs.jsonl: 2 pooled, 1 of other builds or cells left out; see the page"
    ]


def test_a_plan_that_changed_after_a_run_is_rejected(tmp_path: Path) -> None:
    append(tmp_path, "r1", measure(1))
    pooled_runs.check_plan(tmp_path, dataclasses.replace(PLAN, target_min=5.0).as_json())
    pooled_runs.check_plan(tmp_path, dataclasses.replace(PLAN, name="another", seed=3).as_json())
    with pytest.raises(RackgateError) as error:
        pooled_runs.check_plan(tmp_path, plan_with(band_p99=0.2).as_json())
    assert "run r1 had another plan of the name 'tail' (latency.band_p99: 0.1, now 0.2): give the" in str(error.value)
    append(tmp_path, "r2", measure(2), plan=plan_with(min_beyond=9))
    with pytest.raises(RackgateError, match="another plan of the name 'tail'"):
        pooled_runs.pool_runs(tmp_path, "r1")


def test_a_changed_cell_with_a_new_id_is_not_pooled_with_the_old_one(tmp_path: Path) -> None:
    append(tmp_path, "r0", measure(3))
    changed = plan_with(piece_s=3.0)
    renamed = dataclasses.replace(PLAN, cells=(dataclasses.replace(changed.cells[0], id="healthy-3"),))
    pooled_runs.check_plan(tmp_path, renamed.as_json())
    for number in (1, 2):
        append(tmp_path, f"r{number}", measure(number, renamed), plan=renamed)
    pooled = pooled_runs.pool_runs(tmp_path, "r2")
    assert pooled is not None
    assert [run["run_id"] for run in pooled["runs"]] == ["r1", "r2"]
    assert [run["run_id"] for run in pooled["left_out"]] == ["r0"]
    with pytest.raises(RackgateError, match=r"healthy-3\.piece_s: 3\.0, now 2\.2\): give the"):
        pooled_runs.check_plan(
            tmp_path, dataclasses.replace(PLAN, cells=(dataclasses.replace(PLAN.cells[0], id="healthy-3"),)).as_json()
        )


@pytest.mark.parametrize(
    ("text", "found"),
    [("x\n", "malformed"), ("{}\n", "malformed"), ('{"schema": 2}\n', "schema 2"), ("{", "last line is incomplete")],
)
def test_a_damaged_file_of_runs_is_an_error_and_stays(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / pooled_runs.RUNS).write_text(text, encoding="utf-8")
    with pytest.raises(RackgateError, match=rf"runs\.jsonl: .*{found}"):
        append(tmp_path, "r1", measure(1))
    assert (tmp_path / pooled_runs.RUNS).read_text("utf-8") == text


def test_a_plan_is_read_from_its_json() -> None:
    for name in ("tail", "full"):
        plan = scenarios.load(name)
        read = Scenario.from_json(json.loads(json.dumps(plan.as_json())))
        for cell, planned in zip(read.cells, plan.cells, strict=True):
            assert cell.scenario.latency == planned.scenario.latency
            assert cell.scenario.latency_arms == planned.scenario.latency_arms
            assert (cell.setting, cell.judged, cell.replicas) == (planned.setting, planned.judged, planned.replicas)


def test_the_report_pools_the_runs_beside_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Drawing the real pictures takes seconds.
    blank = {name: lambda _: Figure((1, 1)) for name in figures.pictures(made_up())}
    monkeypatch.setattr(figures, "pictures", lambda _: blank)
    monkeypatch.setattr(run_page, "inline_svg", lambda *_: "")
    run_folder.claim(tmp_path, run_folder.BENCH)
    for number in (1, 2):
        append(tmp_path, f"r{number}", measure(number))
    result = made_up()
    result["manifest"]["run_id"] = "r2"
    files.write_json(tmp_path / "results.json", result)
    printed = CliRunner().invoke(bench_app, ["report", str(tmp_path)]).stdout
    assert "runs of this plan in runs.jsonl: 2 pooled; see the page" in printed
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "<th>r1</th><th>r2</th><th>pooled</th>" in page
    table = run_page.pooled_table({"pooled": pooled_runs.pool_runs(tmp_path, "r2")})
    assert [row[:3] for row in table["pooled_rows"]][:2] == [
        ["healthy", "A' (control)", "p50"],
        ["healthy", "B", "p50"],
    ]
