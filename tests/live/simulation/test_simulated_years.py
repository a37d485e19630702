"""The table of simulated years in kip/model.md is the output of the command (minutes, ``pytest -m slow``)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.placement.failure_rates import YEAR_S

ROW = re.compile(r"^\| ([abc, ]+) \| (\d) \| ([^|]+) \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
R_AND_MORE = {"1": ("1",), "2": ("2",), "1 or 2": ("1", "2"), "2, lowered after 30 min": ("2,lower=30m",)}
UNIT_S = {"min": 60.0, "h": 3600.0}


def rows() -> list[tuple[str, ...]]:
    """Parse each row of the table: racks, M, R, rejected and lost."""
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8")
    return ROW.findall(text.partition("\n### Results with the defaults\n")[2].partition("\n### ")[0])


def as_told(stated: str, figure: dict[str, Any], unit: float) -> bool:
    """Return whether a cell's numbers equal a figure, at the cell's precision; a 0 alone has no interval."""
    cells = re.findall(r"\d+(?:\.\d+)?", stated.replace("1,000", ""))
    digits = [len(cell.partition(".")[2]) for cell in cells]
    found = (figure[key] / unit for key in ("value", "low", "high")[: len(cells)])
    return [f"{each:.{count}f}" for each, count in zip(found, digits, strict=True)] == cells


def test_every_row_can_be_run() -> None:
    found = rows()
    assert len(found) >= 12
    assert {r for _, _, r, _, _ in found} <= set(R_AND_MORE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", sorted({row[0] for row in rows()}))
def test_table_equals_the_output(where: str) -> None:
    letters = where.split(", ")
    mine = [row for row in rows() if row[0] == where]
    settings = [f"{m},{one}" for _, m, r, _, _ in mine for one in R_AND_MORE[r]]
    racks = "a:34,b:33,c:33" if "c" in letters else "a:50,b:50"
    arguments = ["--racks", racks, "--rf", str(len(letters)), "--partitions", "10000", "--years", "1000"]
    arguments += [word for setting in settings for word in ("--setting", setting)]
    done = CliRunner().invoke(
        app, ["model", "simulate", *arguments, "--master", "none", "--json"], catch_exceptions=False
    )
    judged = iter(json.loads(done.stdout)["settings"])
    for _, _, r, rejected, lost in mine:
        for _ in R_AND_MORE[r]:
            one = next(judged)
            unit = UNIT_S[rejected.split()[1]] / YEAR_S
            assert as_told(rejected, one["rejected"], unit), (where, r, rejected, one["rejected"])
            partitions, _, events = lost.partition("; ")
            assert as_told(partitions, one["lost"], 1.0), (where, r, lost, one["lost"])
            assert int(events.split()[0]) == one["lost"]["number"]
            assert ("(" in partitions) == (one["lost"]["low"] is not None)
