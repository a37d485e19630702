"""Spark's analysis of a benchmark of twelve cells, on generated observations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.analysis import analysis_speed, exit_reasons, latency_analysis, verdicts
from bench.report import availability_table
from bench.spark_session import spark_session
from spark_cluster import SHORT_SESSION

SIZE = 40_000
BLOCKS = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Analyse a generated run of twelve cells: in two of them an arm rejects all records; one has constant latency."""
    folder = tmp_path_factory.mktemp("cells")
    planned = analysis_speed.synthetic_cells(BLOCKS)
    latency = dataclasses.replace(planned[0].scenario.latency, min_blocks=4, resamples=200)
    planned = tuple(
        dataclasses.replace(cell, scenario=dataclasses.replace(cell.scenario, latency=latency)) for cell in planned
    )
    with spark_session(folder / "spark", master="local[2]", conf=SHORT_SESSION) as spark:
        rows = analysis_speed.synthetic_observations(spark, SIZE, planned).toPandas()
        rows.loc[rows["cell"] == "cell-3", "done_ns"] = rows["intended_ns"] + 5_000_000
        rows.loc[rows["cell"] == "cell-3", "client_us"] = 4_900
        gone = (rows["cell"] == "cell-1") & (rows["arm"] == "B") | (rows["cell"] == "cell-2") & (rows["arm"] == "A")
        rows.loc[gone, ["outcome", "error"]] = ["unknown", "NOT_ENOUGH_REPLICAS"]
        rows.loc[(rows["cell"] == "cell-5") & (rows["arm"] == "B"), "client_us"] = -1
        timed_out = (rows["cell"] == "cell-4") & (rows["arm"] == "B")
        rows.loc[timed_out, ["outcome", "error"]] = ["unknown", "_MSG_TIMED_OUT"]
        spark.createDataFrame(rows).write.parquet(str(folder / "raw"))
        raw = latency_analysis.read_raw(spark, folder / "raw")
        with pytest.raises(ValueError, match="need a column 'cell'"):
            latency_analysis.measurements(raw.drop("cell"), planned)
        numbers = latency_analysis.cells(latency_analysis.measurements(raw, planned))
        yield {"rows": rows, "numbers": {one["cell"]: one for one in numbers}}


def test_quantiles_equal_those_of_sorted_observations(made: dict[str, Any]) -> None:
    rows: pd.DataFrame = made["rows"]
    assert set(made["numbers"]) == set(rows["cell"]) == {f"cell-{n}" for n in range(12)}
    for cell in ("cell-0", "cell-3", "cell-11"):
        numbers = made["numbers"][cell]
        for arm in numbers["arms"]:
            own = rows[(rows["cell"] == cell) & (rows["arm"] == arm["arm"])]
            took = (own["done_ns"] - own["intended_ns"]) / 1e6
            assert arm["intended"] == arm["acked"] == len(own)
            assert arm["percentiles_ms"]["p50"] == pytest.approx(np.quantile(took, 0.5), rel=1e-12)
            assert arm["percentiles_ms"]["p90"] == pytest.approx(np.quantile(took, 0.9), rel=1e-12)
            # About 830 observations: 83 beyond p90, 8 beyond p99.
            assert arm["percentiles_ms"]["p99"] is None
            assert arm["max_ms"] == took.max()
            late = (own["sent_ns"] - own["intended_ns"]) / 1e6
            assert arm["pacer_late_ms"]["p99"] == pytest.approx(np.quantile(late, 0.99), rel=1e-12)
            client = own["client_us"] / 1e3
            assert arm["client_percentiles_ms"]["p50"] == pytest.approx(np.quantile(client, 0.5), rel=1e-12)
        for row in numbers["rounds"]:
            own = rows[(rows["cell"] == cell) & (rows["arm"] == row["arm"]) & (rows["block"] == row["block"])]
            took = (own["done_ns"] - own["intended_ns"]) / 1e6
            assert row["n"] == len(own)
            assert row["p99_ms"] == pytest.approx(np.quantile(took, 0.99), rel=1e-12)


def test_a_rejecting_arm_has_no_latency_and_undecided_comparisons(made: dict[str, Any]) -> None:
    numbers = made["numbers"]["cell-1"]
    rejecting = next(arm for arm in numbers["arms"] if arm["arm"] == "B")
    assert rejecting["rejected"]
    assert rejecting["rejected_with"] == "NOT_ENOUGH_REPLICAS"
    assert set(rejecting["percentiles_ms"].values()) == {None}
    assert rejecting["curve"] is None
    reasons = {row["arm"]: row["reason"] for row in numbers["comparisons"] if row["at"] == "p50"}
    assert reasons["B"] == "rejected"
    assert reasons["C"] != "rejected"
    verdict = next(one for one in verdicts.latency_verdicts(numbers) if one["subject"].startswith("M=2, R=2"))
    assert verdict["verdict"] == "undecided"
    assert verdict["text"].startswith("No latency to compare: records of M=2, R=2 (NOT_ENOUGH_REPLICAS) are rejected")
    # If the baseline rejects all records, no arm is compared, and neither is the control.
    without = made["numbers"]["cell-2"]["comparisons"]
    assert {row["reason"] for row in without} == {"rejected"}
    assert {row["verdict"] for row in without} == {"undecided"}


def test_an_arm_with_timeouts_only_was_not_rejected(made: dict[str, Any]) -> None:
    numbers = made["numbers"]["cell-4"]
    silent = next(arm for arm in numbers["arms"] if arm["arm"] == "B")
    assert (silent["acked"], silent["rejected"], silent["rejected_with"]) == (0, False, None)
    assert silent["error"] == "_MSG_TIMED_OUT"
    assert next(arm["error"] for arm in numbers["arms"] if arm["arm"] == "C") is None
    reasons = {row["arm"]: row["reason"] for row in numbers["comparisons"] if row["at"] == "p50"}
    assert reasons["B"] == "not acknowledged"
    findings = {"isr": [1, 3, 5, 2, 4], "isr_racks": ["a", "b", "c"], "rejected": {}, "expected_to_reject": []}
    (reason,) = exit_reasons._of_cell(numbers | {"findings": findings})
    assert (reason.verdict, reason.text) == ("unknown", "Nothing was acknowledged: _MSG_TIMED_OUT.")
    did = {one.arm: one.did for one in availability_table.arm_availabilities({"cells": [numbers], "outage": None})}
    assert did["B"] == "unknown: nothing acknowledged (_MSG_TIMED_OUT)"
    assert did["C"] == "continued"


def test_constant_latency(made: dict[str, Any]) -> None:
    numbers = made["numbers"]["cell-3"]
    assert {arm["percentiles_ms"]["p90"] for arm in numbers["arms"]} == {5.0}
    found = {row["arm"]: (row["verdict"], row["reason"]) for row in numbers["comparisons"] if row["at"] == "p50"}
    # The positive control (acks=1) has the same latency as well, so equal arms prove nothing.
    assert found.pop("A'") == found.pop("P") == ("equivalent", "decided")
    assert set(found.values()) == {("undecided", "positive control")}


def test_the_share_of_lateness_is_that_of_the_records_from_the_quantile_on(made: dict[str, Any]) -> None:
    rows: pd.DataFrame = made["rows"]
    for arm in made["numbers"]["cell-0"]["arms"]:
        own = rows[(rows["cell"] == "cell-0") & (rows["arm"] == arm["arm"])]
        took = own["done_ns"] - own["intended_ns"]
        late = took - own["client_us"] * 1000
        for name, quantile in (("p50", 0.5), ("p99", 0.99)):
            beyond = took >= np.quantile(took, quantile)
            expected = late[beyond].sum() / took[beyond].sum()
            assert arm["late_share"][name] == pytest.approx(expected, rel=1e-9)
        assert arm["late_share"]["p99"] < 0.5 * arm["late_share"]["p50"]
    # The client's own time of this arm is unknown.
    unknown = next(arm for arm in made["numbers"]["cell-5"]["arms"] if arm["arm"] == "B")
    assert unknown["late_share"] == {"p50": 1.0, "p99": 1.0}
    reasons = {row["arm"]: row["late_share"] for row in made["numbers"]["cell-5"]["comparisons"] if row["at"] == "p50"}
    assert (reasons["B"], reasons["C"] < 0.2) == (1.0, True)
