"""Runs of the same plan, kept in ``runs.jsonl`` beside the results, and their analysis as one sample.

Every run appends one line, whatever its verdicts: its conditions with the plan, and of each cell the counts of each
arm, the ratios, and of each arm in each block the exact p50 and p99 and the HdrHistogram of its latencies.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import run_conditions
from bench.analysis import hdr_histograms
from bench.analysis.comparisons import CellMeasurements, compare
from bench.analysis.quantiles import BinCounts
from bench.plan.scenario import BenchCell, Scenario
from pyhooks.core import files
from pyhooks.core.errors import RackgateError

RUNS = "runs.jsonl"
SCHEMA_VERSION = 1
ADVICE = "nothing was changed: restore the file, or choose another folder with --out"
# Keys of a line and their types.
_KEYS = {"run_id": str, "started": str, "command": str, "conditions": dict, "cells": list}
_ARM = ("arm", "intended", "acked", "rejected", "late_share")
_COMPARISON = ("arm", "at", "ratio", "verdict", "reason")


def stored_runs(out: Path) -> list[dict[str, Any]]:
    """Return the runs in a folder of results, the first run first.

    Raises:
        RackgateError: a line is damaged, or two lines have the same run.
    """
    file = out / RUNS
    runs: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(file), start=1):
        with files.evaluating(file, f"a run in line {number}; {ADVICE}"):
            run = files.parse_json(line)
            if run["schema"] != SCHEMA_VERSION:
                raise RackgateError(f"{file}: line {number} has schema {run['schema']}, not {SCHEMA_VERSION}; {ADVICE}")
            for name, kind in _KEYS.items():
                if not isinstance(run[name], kind):
                    raise TypeError(f"{name} must be of type {kind.__name__}")
            _ = run["conditions"]["build"], run["conditions"]["plan"]["name"], _cell_ids(run["conditions"]["plan"])
        if run["run_id"] in {earlier["run_id"] for earlier in runs}:
            raise RackgateError(f"{file}: run {run['run_id']} occurs twice; {ADVICE}")
        runs.append(run)
    return runs


def _lines(file: Path) -> list[str]:
    if not os.path.lexists(file):
        return []
    *lines, rest = files.read_text(file, ADVICE).split("\n")
    if rest:
        raise RackgateError(f"{file}: its last line is incomplete; {ADVICE}")
    return lines


def check_plan(out: Path, plan: Mapping[str, Any]) -> None:
    """Check that no cell of a plan has changed since a run of the same plan and cell names.

    A changed cell needs a new id. If two plans (``Scenario.as_json``) share no cell, nothing of them is compared.

    Raises:
        RackgateError: it has; or see ``stored_runs``.
    """
    now = json.loads(json.dumps(plan))
    for run in stored_runs(out):
        before = run["conditions"]["plan"]
        shared = set(_cell_ids(before)) & set(_cell_ids(now))
        old, new = (one | {"cells": [cell for cell in one["cells"] if cell["id"] in shared]} for one in (before, now))
        if before["name"] == now["name"] and shared and old != new:
            changes = run_conditions.differences_text(run_conditions.differences(old, new))
            raise RackgateError(
                f"{out / RUNS}: run {run['run_id']} had another plan of the name {now['name']!r} ({changes}): give the"
                " changed plan or cell a new name, or choose another folder with --out"
            )


def _cell_ids(plan: Mapping[str, Any]) -> list[str]:
    return [cell["id"] for cell in plan["cells"]]


def append_run(
    out: Path,
    run: Mapping[str, Any],
    command: str,
    measured: Sequence[CellMeasurements],
    cells: Sequence[Mapping[str, Any]],
) -> None:
    """Append a run to ``runs.jsonl``, unless it is there since its report was interrupted.

    ``run`` has ``run_id``, ``started`` and ``conditions``; ``cells`` are the entries of ``measured`` in the result.

    Raises:
        RackgateError: see ``stored_runs``; or the file can't be written.
    """
    if run["run_id"] in {earlier["run_id"] for earlier in stored_runs(out)}:
        return
    line = {
        "schema": SCHEMA_VERSION,
        **{name: run[name] for name in ("run_id", "started", "conditions")},
        "command": command,
        "cells": [_cell_line(cell, numbers) for cell, numbers in zip(measured, cells, strict=True)],
    }
    # in one step with the earlier lines, so that a killed run leaves no incomplete line
    every_line = [*_lines(out / RUNS), json.dumps(line, allow_nan=False)]
    files.write_text(out / RUNS, "".join(f"{text}\n" for text in every_line))


def _cell_line(measured: CellMeasurements, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cell": measured.cell.id,
        "arms": [{name: arm.get(name) for name in _ARM} for arm in measured.summary.values()],
        "comparisons": [{name: row[name] for name in _COMPARISON} for row in numbers["comparisons"]],
        "blocks": [
            {**row, "latency_us": hdr_histograms.encode(measured.counts[row["arm"]][row["block"]])}
            for row in measured.rounds
            # without warm-up
            if row["block"] in measured.counts.get(row["arm"], {})
        ],
    }


def pool_runs(out: Path, run_id: str) -> dict[str, Any] | None:
    """Analyse all runs with the plan and the Kafka build of one run together; their blocks form one sample.

    Returns:
        None if there is no such run, or no other one of its plan. ``runs``: the pooled runs, with ``differences``
        between their conditions and those of the run. ``left_out``: runs of other builds or cells, likewise.
        ``cells``: the comparisons of each cell as in a result; each also has ``runs``, the ratio and verdict in each.

    Raises:
        RackgateError: the plan changed between runs, or ``runs.jsonl`` is damaged.
    """
    stored = stored_runs(out)
    own = next((run for run in stored if run["run_id"] == run_id), None)
    if own is None:
        return None
    plan = own["conditions"]["plan"]
    check_plan(out, plan)
    same = [run for run in stored if run["conditions"]["plan"]["name"] == plan["name"]]
    if len(same) < 2:
        return None
    compared = own["conditions"]["build"], _cell_ids(plan)
    pooled = [run for run in same if (run["conditions"]["build"], _cell_ids(run["conditions"]["plan"])) == compared]
    with files.evaluating(out / RUNS, f"runs of this version; {ADVICE}"):
        scenario = Scenario.from_json(plan)
        tables = compare([_pooled(cell, pooled) for cell in scenario.cells])
        return {
            "runs": [_run(run, own) for run in pooled],
            "left_out": [_run(run, own) for run in same if run not in pooled],
            "cells": [
                {
                    "cell": cell.id,
                    "judged": plan["cells"][number]["judged"],
                    "comparisons": [row | {"runs": [_verdict(run, row) for run in pooled]} for row in rows],
                }
                for number, (cell, rows) in enumerate(zip(scenario.cells, tables, strict=True))
            ],
        }


def _run(run: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    origin = {name: run[name] for name in ("run_id", "started", "command")}
    return origin | {"differences": run_conditions.differences(run["conditions"], own["conditions"])}


def _stored_cell(run: Mapping[str, Any], cell_id: str) -> Mapping[str, Any]:
    cells: list[Mapping[str, Any]] = run["cells"]
    return next(cell for cell in cells if cell["cell"] == cell_id)


def _verdict(run: Mapping[str, Any], pooled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ratio and verdict of one run for a pooled comparison."""
    rows = _stored_cell(run, pooled["cell"])["comparisons"]
    row = next(row for row in rows if (row["arm"], row["at"]) == (pooled["arm"], pooled["at"]))
    return {"run_id": run["run_id"], **{name: row[name] for name in ("ratio", "verdict", "reason")}}


def _pooled(cell: BenchCell, runs: Sequence[Mapping[str, Any]]) -> CellMeasurements:
    """Return the measurements of a cell in all runs as those of one run with all their blocks."""
    latency = cell.scenario.latency
    rounds: list[dict[str, Any]] = []
    counts: dict[str, dict[int, BinCounts]] = {}
    summary: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(runs):
        stored = _stored_cell(run, cell.id)
        for row in stored["blocks"]:
            block = number * latency.blocks + row["block"]
            rounds.append({**row, "block": block})
            counts.setdefault(row["arm"], {})[block] = hdr_histograms.decode(row["latency_us"])
        for arm in stored["arms"]:
            summary[arm["arm"]] = _sum_arms(summary.get(arm["arm"]), arm)
    every_block = dataclasses.replace(latency, blocks=latency.blocks * len(runs))
    scenario = dataclasses.replace(cell.scenario, latency=every_block)
    return CellMeasurements(dataclasses.replace(cell, scenario=scenario), rounds, summary, counts)


def _sum_arms(total: Mapping[str, Any] | None, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcomes of an arm in two runs; of the shares of the pacer's lateness the larger ones."""
    if total is None:
        return dict(other)
    shares = [arm["late_share"] for arm in (total, other) if arm["late_share"]]
    return {
        "arm": total["arm"],
        **{name: total[name] + other[name] for name in ("intended", "acked")},
        "rejected": total["rejected"] or other["rejected"],
        "late_share": {name: max(share[name] for share in shares) for name in shares[0]} if shares else None,
    }


def lines(pooled: Mapping[str, Any] | None) -> list[str]:
    """Return the line for a terminal about the pooled runs of a result; nothing without them."""
    if not pooled:
        return []
    left_out = f", {len(pooled['left_out'])} of other builds or cells left out" if pooled["left_out"] else ""
    return [f"runs of this plan in {RUNS}: {len(pooled['runs'])} pooled{left_out}; see the page"]
