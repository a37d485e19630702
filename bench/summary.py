"""Of a run with several cells: which words each comparison was given in how many of them, in a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench import verdict
from bench.table import labels_of, who_refuse

# What speaks against the settings being alike comes first. "no latency" is a cell in which an arm refuses.
WORDS = ("slower", "faster", "equivalent", "undecided", "no latency")
NO_LATENCY = "no latency"
DIFFERENT = ("slower", "faster")


def of(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """The words on latency, counted over cells; nothing of a run of one cell, whose words are few.

    Returns:
        For each candidate, what it is compared with, and quantile that is judged somewhere: ``subject``, ``word`` such
        as "equivalent in 7 cells, undecided in 3", ``text`` with the cells by name, and ``mark``: "slower" or "faster"
        if that is said of any cell, else the word of all cells with a latency, or "mixed".
    """
    cells = result["cells"]
    if len(cells) < 2:
        return []
    groups: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for cell in cells:
        labels = labels_of(cell)
        for row in cell["comparisons"]:
            if row["is_control"] or row["at"] not in cell["judged"]:
                continue
            one, other = (labels.get(row[key], row[key]) for key in ("arm", "against"))
            refusing = who_refuse([labels.get(arm, arm) for arm in row["refused"]])
            word, why = (NO_LATENCY, refusing) if row["reason"] == "refused" else (row["word"], row["reason"])
            groups.setdefault((one, other, row["at"]), []).append((word, why, cell["cell"]))
    return [_counted(key, told) for key, told in groups.items()]


def lines(result: Mapping[str, Any]) -> list[str]:
    """All verdicts of a result for a terminal, and in the end, of several cells, how often each word was given."""
    return verdict.lines([*result["verdicts"], *of(result)])


def _counted(key: tuple[str, str, str], told: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    one, other, at = key
    by_word = {word: [(why, cell) for said, why, cell in told if said == word] for word in WORDS}
    with_latency = [word for word in WORDS if by_word[word] and word != NO_LATENCY]
    # a difference in one cell is not to be overlooked beside eleven that are alike
    told_apart = next((word for word in with_latency if word in DIFFERENT), None)
    counts = [(word, len(found)) for word, found in by_word.items() if found]
    unit = "cell" if counts[0][1] == 1 else "cells"
    words = [f"{word} in {number}" + ("" if place else f" {unit}") for place, (word, number) in enumerate(counts)]
    return {
        "subject": f"{one} against {other}, {at}",
        "word": ", ".join(words),
        "text": " ".join(_where(word, found) for word, found in by_word.items() if found),
        "mark": told_apart or (with_latency[0] if len(with_latency) == 1 else "mixed"),
    }


def _where(word: str, found: Sequence[tuple[str, str]]) -> str:
    if word in ("undecided", NO_LATENCY):
        why = dict.fromkeys(why for why, _ in found)
        parts = [f"{', '.join(cell for own, cell in found if own == reason)} ({reason})" for reason in why]
    else:
        parts = [cell for _, cell in found]
    return f"{word.capitalize()}: {', '.join(parts)}."
