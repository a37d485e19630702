"""Summary of a result with several cells: counts of verdicts, and the overview picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.analysis import verdicts
from bench.report import cell_table, figures, run_page
from bench_results import made_up
from blank_figures import save_blank_figures


@pytest.fixture
def result() -> dict[str, Any]:
    """Return a result of two cells; the arm with M=3 rejects records in the second one."""
    data: dict[str, Any] = json.loads(json.dumps(made_up()))
    data["verdicts"] = verdicts.sentences(data)
    return data


def test_each_verdict_is_counted_with_its_cells(result: dict[str, Any]) -> None:
    assert cell_table.count_verdicts(result) == [
        {
            "subject": "M=2, R=2 against M=3, p50",
            "verdict": "slower in 1 cell, no latency in 1",
            "text": "Slower: healthy. No latency: isr-2-in-2 (M=3 rejects).",
            "mark": "slower",
        },
        {
            "subject": "M=2 against M=3, p50",
            "verdict": "equivalent in 1 cell, no latency in 1",
            "text": "Equivalent: healthy. No latency: isr-2-in-2 (M=3 rejects).",
            "mark": "equivalent",
        },
        {
            "subject": "acks=1 (positive control) against M=3, p50",
            "verdict": "faster in 1 cell, no latency in 1",
            "text": "Faster: healthy. No latency: isr-2-in-2 (M=3 rejects).",
            "mark": "faster",
        },
    ]
    assert cell_table.verdict_lines(result)[-2] == (
        "M=2 against M=3, p50: EQUIVALENT IN 1 CELL, NO LATENCY IN 1."
        " Equivalent: healthy. No latency: isr-2-in-2 (M=3 rejects)."
    )
    assert cell_table.verdict_lines(result)[:-3] == verdicts.lines(result["verdicts"])


def test_undecided_verdicts_are_counted_with_their_reason(result: dict[str, Any]) -> None:
    for row in result["cells"][1]["comparisons"]:
        row["reason"], row["verdict"] = "noise", "undecided"
    first, second, _ = cell_table.count_verdicts(result)
    assert first["verdict"] == "slower in 1 cell, undecided in 1"
    assert first["text"] == "Slower: healthy. Undecided: isr-2-in-2 (noise)."
    assert first["mark"] == "slower", "a difference in any cell determines the mark"
    assert (second["verdict"], second["mark"]) == ("equivalent in 1 cell, undecided in 1", "mixed")


def test_verdicts_of_a_single_cell_are_not_counted(result: dict[str, Any]) -> None:
    single = {**result, "cells": result["cells"][:1]}
    assert cell_table.count_verdicts(single) == []
    assert cell_table.verdict_lines(single) == verdicts.lines(result["verdicts"])


def test_a_page_of_several_cells_begins_with_the_counts(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_blank_figures(monkeypatch)
    page = run_page.render(result, tmp_path).read_text(encoding="utf-8")
    summary = page[page.index('<ul class="verdicts">') : page.index("</ul>")]
    others = [row for row in result["verdicts"] if row["about"] != "latency"]
    assert summary.count("<li") == len(others) + 3
    assert '<li class="slower"><b class="verdict">slower in 1 cell, no latency in 1</b>' in summary
    rest = page[page.index("</ul>") :]
    subjects = [row["subject"] for row in result["verdicts"] if row["about"] == "latency"]
    assert len(subjects) == 6
    assert all(rest.count(f"<span>{subject}</span>") == 1 for subject in subjects)
    assert page.index('id="picture-overview"') < page.index("<span>healthy: ")


def test_arms_of_a_cell_are_drawn_around_its_label(result: dict[str, Any]) -> None:
    first = [row for row in result["cells"][0]["comparisons"] if row["at"] == "p50"]
    result["cells"][0]["comparisons"] = first[::-1]
    result["cells"][1]["comparisons"] = [row for row in first if row["arm"] == "B"]
    bars: Any = figures.overview(result, figures.FigureStyle(figures.MARKED)).axes[0].containers
    positions = [(str(bar.get_label()), float(bar.lines[0].get_ydata()[0])) for bar in bars]
    # Four arms of the first cell, the control first whatever the order of the input; one arm of the second cell.
    assert sorted(y for _, y in positions) == pytest.approx([-0.33, -0.11, 0.11, 0.33, 1])
    assert [row["is_control"] for row in result["cells"][0]["comparisons"]] == [False, False, False, True]
    assert min(positions, key=lambda row: row[1])[0] == "two equal arms"


@pytest.mark.parametrize(
    ("arms", "text"),
    [
        ([], "no arm rejects"),
        (["A"], "A rejects"),
        (["A", "B"], "A and B reject"),
        (["A", "A'", "B"], "A, A' and B reject"),
    ],
)
def test_rejecting_arms_are_listed(arms: list[str], text: str) -> None:
    assert cell_table.rejecting_arms(arms) == text
