"""Summary of the latency verdicts of a run with several cells: the number of cells with each verdict, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis import verdicts
from bench.report.cell_table import arm_labels, refusing_arms

# Differences come first. "no latency" is for a cell in which an arm refuses.
WORDS = ("slower", "faster", "equivalent", "undecided", "no latency")
NO_LATENCY = "no latency"
DIFFERENT = ("slower", "faster")


def count_verdicts(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the latency verdicts, counted over cells; nothing for a run of one cell, which has few verdicts.

    Returns:
        For each candidate, arm that it is compared with, and judged quantile: ``subject``, ``word`` such as "equivalent
        in 7 cells, undecided in 3", ``text`` with the names of the cells, and ``mark``: "slower" or "faster" if any
        cell has that verdict, else the verdict of all cells with a latency, or "mixed".
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
            one, other = (labels.get(row[key], row[key]) for key in ("arm", "against"))
            refusing = refusing_arms([labels.get(arm, arm) for arm in row["refused"]])
            word, why = (NO_LATENCY, refusing) if row["reason"] == "refused" else (row["word"], row["reason"])
            groups.setdefault((one, other, row["at"]), []).append((word, why, cell["cell"]))
    return [_count(key, members) for key, members in groups.items()]


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return all verdicts of a result for a terminal; with several cells also the counts of the latency verdicts."""
    return verdicts.lines([*result["verdicts"], *count_verdicts(result)])


def _count(key: tuple[str, str, str], members: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    one, other, at = key
    by_word = {word: [(why, cell) for own, why, cell in members if own == word] for word in WORDS}
    with_latency = [word for word in WORDS if by_word[word] and word != NO_LATENCY]
    # a difference in one cell must not be overlooked beside eleven cells without one
    different = next((word for word in with_latency if word in DIFFERENT), None)
    counts = [(word, len(found)) for word, found in by_word.items() if found]
    unit = "cell" if counts[0][1] == 1 else "cells"
    words = [f"{word} in {number}" + ("" if place else f" {unit}") for place, (word, number) in enumerate(counts)]
    return {
        "subject": f"{one} against {other}, {at}",
        "word": ", ".join(words),
        "text": " ".join(_where(word, found) for word, found in by_word.items() if found),
        "mark": different or (with_latency[0] if len(with_latency) == 1 else "mixed"),
    }


def _where(word: str, found: Sequence[tuple[str, str]]) -> str:
    if word in ("undecided", NO_LATENCY):
        why = dict.fromkeys(why for why, _ in found)
        parts = [f"{', '.join(cell for own, cell in found if own == reason)} ({reason})" for reason in why]
    else:
        parts = [cell for _, cell in found]
    return f"{word.capitalize()}: {', '.join(parts)}."
