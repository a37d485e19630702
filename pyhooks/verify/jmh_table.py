"""Table of the JMH comparison in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HEAD = ("comparison", "rounds", "ratio of fastest slices", "ratio of median slices", "ns", "bytes", "verdict")


def render(summary: Mapping[str, Any]) -> str:
    """Return a row for each comparison of a summary: estimates with their intervals, and the verdict."""
    rows = [HEAD, ("---",) * len(HEAD), *_rows(summary)]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{text}\nIntervals: {summary['intervals']}.\n"


def _rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for result in summary["comparisons"]:
        verdict = "control" if result["control"] else result["verdict"]
        if not result["targets"]:
            yield result["name"], str(result["forks"]), "", "", "", "", verdict
            continue
        measured = {target["name"]: target["measured"] for target in result["targets"]}
        yield (
            result["name"],
            str(result["forks"]),
            _cell(result["ratio"], 4),
            _cell(result["median_slice"]["ratio"], 4),
            _cell(measured["ns"], 2),
            _cell(measured["bytes"], 2),
            verdict,
        )


def _cell(interval: Mapping[str, float], digits: int) -> str:
    estimate, low, high = (f"{interval[key]:.{digits}f}" for key in ("estimate", "low", "high"))
    return f"{estimate} ({low} to {high})"
