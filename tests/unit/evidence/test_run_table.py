"""Table of the runs in ``kip/results.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.evidence import artifacts, run_table
from pyhooks.evidence.claims import load

STATES = ("current", "stale", "not run yet")


def table_of(text: str) -> list[tuple[str, ...]]:
    lines = text.partition(run_table.BEGIN)[2].partition(run_table.END)[0].strip().splitlines()
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def test_the_table_equals_the_evidence() -> None:
    heading, _, *stored = table_of(run_table.RESULTS.read_text(encoding="utf-8"))
    claims = load()
    expected = run_table.rows(claims, artifacts.read_results(claims))
    assert heading == run_table.COLUMNS
    assert {cells[-1] for cells in stored} <= set(STATES)
    # the state changes with every change of a dependency, so only the other columns are compared
    assert [cells[:-1] for cells in stored] == [cells[:-1] for cells in expected], "run `make results`"
    # a run without an artifact has no result, whatever its dependencies are
    assert [cells[-1] == "not run yet" for cells in stored] == [cells[-1] == "not run yet" for cells in expected]


def test_only_the_table_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text(f"before\n{run_table.BEGIN}old\n{run_table.END}after\n", encoding="utf-8")
    claims = load()
    results = artifacts.read_results(claims)
    run_table.write(claims, results, document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{run_table.BEGIN}\n| run |")
    assert text.endswith(f"|\n\n{run_table.END}after\n")
    run_table.write(claims, results, document)
    assert document.read_text(encoding="utf-8") == text


def test_a_document_without_the_comments_stays_unchanged(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text(run_table.BEGIN, encoding="utf-8")
    claims = load()
    results = artifacts.read_results(claims)
    with pytest.raises(RackgateError, match="comments around the table are missing"):
        run_table.write(claims, results, document)
    assert document.read_text(encoding="utf-8") == run_table.BEGIN
