"""Summary of the latency verdicts of a run with several cells: the number of cells with each verdict, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis import verdicts
from bench.report.cell_table import arm_labels, refusing_arms

# Differences come first. "no latency" is for a cell in which an arm refuses.
NO_LATENCY = "no latency"
VERDICTS = ("slower", "faster", "equivalent", "undecided", NO_LATENCY)
DIFFERENT = ("slower", "faster")


def count_verdicts(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the latency verdicts, counted over cells; nothing for a run of one cell, which has few verdicts.

    Returns:
        For each candidate, arm that it is compared with, and judged quantile: ``subject``, ``verdict`` such as
        "equivalent in 7 cells, undecided in 3", ``text`` with the names of the cells, and ``mark``: "slower" or
        "faster" if any cell has that verdict, else the verdict of all cells with a latency, or "mixed".
    """
    cells = result["cells"]
    if len(cells) < 2:
        return []
    groups: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for cell in cells:
        labels = arm_labels(cell)
        for row in cell["comparisons"]:
            if row["is_control"] or row["at"] not in cell["judged"]:
                continue
            arm, against = (labels.get(row[key], row[key]) for key in ("arm", "against"))
            refusing = refusing_arms([labels.get(refused, refused) for refused in row["refused"]])
            verdict, reason = (NO_LATENCY, refusing) if row["reason"] == "refused" else (row["verdict"], row["reason"])
            groups.setdefault((arm, against, row["at"]), []).append((verdict, reason, cell["cell"]))
    return [_count(key, members) for key, members in groups.items()]


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return all verdicts of a result for a terminal; with several cells also the counts of the latency verdicts."""
    return verdicts.lines([*result["verdicts"], *count_verdicts(result)])


def _count(key: tuple[str, str, str], members: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    arm, against, at = key
    cells = {
        verdict: cases
        for verdict in VERDICTS
        if (cases := [(reason, cell) for member, reason, cell in members if member == verdict])
    }
    with_latency = [verdict for verdict in cells if verdict != NO_LATENCY]
    # a difference in one cell must not be overlooked beside eleven cells without one
    different = next((verdict for verdict in with_latency if verdict in DIFFERENT), None)
    first, *further = [f"{verdict} in {len(cases)}" for verdict, cases in cells.items()]
    unit = "cell" if len(next(iter(cells.values()))) == 1 else "cells"
    return {
        "subject": f"{arm} against {against}, {at}",
        "verdict": ", ".join([f"{first} {unit}", *further]),
        "text": " ".join(_cells_text(verdict, cases) for verdict, cases in cells.items()),
        "mark": different or (with_latency[0] if len(with_latency) == 1 else "mixed"),
    }


def _cells_text(verdict: str, cases: Sequence[tuple[str, str]]) -> str:
    names = [cell for _, cell in cases]
    if verdict in ("undecided", NO_LATENCY):
        by_reason: dict[str, list[str]] = {}
        for reason, cell in cases:
            by_reason.setdefault(reason, []).append(cell)
        names = [f"{', '.join(cells)} ({reason})" for reason, cells in by_reason.items()]
    return f"{verdict.capitalize()}: {', '.join(names)}."
