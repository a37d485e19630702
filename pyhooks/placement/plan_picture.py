"""Plot of a plan: rejected writes against possible loss for each choice, with the Pareto frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from pyhooks.placement.choices import Choice, Recommendation
from pyhooks.placement.model_report import MINUTES_A_YEAR
from pyhooks.report import plots
from pyhooks.report.plots import LIGHT, PAPER, RC, axes_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PNG_DPI = 160
PANEL = (3.9, 3.3)
COLUMNS = 2
MARKERS = "os^DvPX"
# tick labels of the time axis, in minutes of a year
TIMES = {"1 ms": 1 / 60000, "1 s": 1 / 60, "1 min": 1.0, "1 h": 60.0, "1 d": 1440.0, "a year": MINUTES_A_YEAR}


def write(choices: Sequence[Choice], recommendations: Sequence[Recommendation], stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``; the same numbers give the same files.

    Raises:
        RackgateError: they can't be written.
    """
    return plots.write(draw(choices, recommendations), stem, dpi=PNG_DPI)


def draw(choices: Sequence[Choice], recommendations: Sequence[Recommendation]) -> Figure:
    """Draw a panel for each RF: rejections against the worst loss on logarithmic axes, and the Pareto frontier."""
    shown = [choice for choice in choices if min(_point(choice)) > 0]
    factors = sorted({choice.copies for choice in shown})
    columns = max(1, min(COLUMNS, len(factors)))
    rows = max(1, -(-len(factors) // columns))
    advised = {choice.choice for choice in recommendations if choice.choice is not None}
    with mpl.rc_context(RC):
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes, factor in zip(panels, factors, strict=False):
            _panel(axes, [choice for choice in shown if choice.copies == factor], advised)
            axes.set_title(f"RF {factor}")
        for axes in panels[len(factors) :]:
            axes.set_visible(False)
        if shown:
            _scales(panels[0], [_point(choice) for choice in shown])
        for index, axes in enumerate(panels[: len(factors)]):
            # label the axis only where no panel is below
            axes.tick_params(labelbottom=index + columns >= len(factors))
        figure.supxlabel("time of a year in which acks=all is rejected", fontsize=10, color=LIGHT.ink)
        figure.supylabel("probability of losing an acknowledged record, at worst", fontsize=10, color=LIGHT.ink)
    return figure


def _point(choice: Choice) -> tuple[float, float]:
    return choice.evaluation.rejected.total, choice.evaluation.worst.total


def _panel(axes: Axes, shown: Sequence[Choice], advised: set[Choice]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    placements = list(dict.fromkeys(choice.placement for choice in shown))
    for number, placement in enumerate(placements):
        marker = MARKERS[number % len(MARKERS)]
        for dominated in (True, False):
            points = [
                _point(choice) for choice in shown if choice.placement == placement and choice.dominated is dominated
            ]
            axes.plot(
                [x for x, _ in points], [y for _, y in points], marker=marker, linestyle="", markeredgecolor=PAPER,
                color=LIGHT.fault if dominated else LIGHT.ink, markersize=5.5 if dominated else 8,
                zorder=2 if dominated else 3, label="_" if dominated else str(placement),
            )  # fmt: skip
    frontier = _frontier([_point(choice) for choice in shown])
    axes.step(*zip(*frontier, strict=True), where="post", color=LIGHT.muted, linewidth=1, alpha=0.6, zorder=1)
    for choice in shown:
        # more labels would overlap; the table lists all choices
        if _point(choice) in frontier or choice in advised:
            axes.annotate(
                f"M={choice.min_replicas} R={choice.min_racks[-1]}", _point(choice), xytext=(4, 4),
                textcoords="offset points", fontsize=8, color=LIGHT.ink,
                fontweight="bold" if choice in advised else "normal",
            )  # fmt: skip
    axes_style(axes, LIGHT)
    # no choice is in this corner: few rejections and little loss exclude each other
    axes.legend(loc="lower left", labelcolor=LIGHT.ink, fontsize=9, handletextpad=0.2, borderaxespad=0.2)


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point dominates, from the left."""
    points_left: list[tuple[float, float]] = []
    for x, y in sorted(points):
        # sums of floats that should be equal differ in the last digits
        if not points_left or y * (1 + 1e-9) < points_left[-1][1]:
            points_left.append((x, y))
    return points_left


def _scales(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Set axis limits with room for labels on both sides, and ticks at common units of time."""
    low, high = min(x for x, _ in points) / 300, max(x for x, _ in points) * 300
    axes.set_xlim(low, high)
    axes.set_ylim(min(y for _, y in points) / 8, max(y for _, y in points) * 8)
    ticks = {
        minutes / MINUTES_A_YEAR: name for name, minutes in TIMES.items() if low <= minutes / MINUTES_A_YEAR <= high
    }
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
    axes.xaxis.set_minor_locator(NullLocator())
