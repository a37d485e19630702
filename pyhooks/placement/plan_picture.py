"""Plot of a plan: refused writes against possible loss for each choice, with the Pareto frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from pyhooks.placement.choices import Advice, Choice
from pyhooks.placement.model_report import MINUTES_A_YEAR
from pyhooks.report import plots
from pyhooks.report.plots import LIGHT, PAPER, RC, axes_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PNG_DPI = 160
PANEL = (3.9, 3.3)
COLUMNS = 3
MARKERS = "os^DvPX"
# tick labels of the time axis, in minutes of a year
TIMES = {"1 ms": 1 / 60000, "1 s": 1 / 60, "1 min": 1.0, "1 h": 60.0, "1 d": 1440.0, "a year": MINUTES_A_YEAR}


def write(found: Sequence[Choice], given: Sequence[Advice], stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.svg``; the same numbers give the same files.

    Raises:
        RackgateError: they can't be written.
    """
    return plots.write(draw(found, given), stem, dpi=PNG_DPI)


def draw(found: Sequence[Choice], given: Sequence[Advice]) -> Figure:
    """Draw a panel for each RF: refusals against the worst loss on logarithmic axes, and the Pareto frontier."""
    shown = [one for one in found if min(_point(one)) > 0]
    factors = sorted({one.copies for one in shown})
    columns = max(1, min(COLUMNS, len(factors)))
    rows = max(1, -(-len(factors) // columns))
    advised = {one.choice for one in given if one.choice is not None}
    with mpl.rc_context(RC):
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes, factor in zip(panels, factors, strict=False):
            _panel(axes, [one for one in shown if one.copies == factor], advised)
            axes.set_title(f"RF {factor}")
        for axes in panels[len(factors) :]:
            axes.set_visible(False)
        if shown:
            _scales(panels[0], [_point(one) for one in shown])
        for place, axes in enumerate(panels[: len(factors)]):
            # label the axis only where no panel is below
            axes.tick_params(labelbottom=place + columns >= len(factors))
        figure.supxlabel("share of a year in which acks=all is refused", fontsize=10, color=LIGHT.ink)
        figure.supylabel("acknowledged records lost, at worst", fontsize=10, color=LIGHT.ink)
    return figure


def _point(choice: Choice) -> tuple[float, float]:
    return choice.evaluation.refused.total, choice.evaluation.worst.total


def _panel(axes: Axes, shown: Sequence[Choice], advised: set[Choice]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    placements = list(dict.fromkeys(one.placement for one in shown))
    for number, placement in enumerate(placements):
        colour = LIGHT.series[number % len(LIGHT.series)]
        marker = MARKERS[number % len(MARKERS)]
        for beaten in (True, False):
            own = [_point(one) for one in shown if one.placement == placement and one.dominated is beaten]
            axes.plot(
                [x for x, _ in own], [y for _, y in own], marker=marker, linestyle="", markeredgecolor=PAPER,
                color=LIGHT.fault if beaten else colour, markersize=5.5 if beaten else 8, zorder=2 if beaten else 3,
                label="_" if beaten else str(placement),
            )  # fmt: skip
    best = _frontier([_point(one) for one in shown])
    axes.step(*zip(*best, strict=True), where="post", color=LIGHT.muted, linewidth=1, alpha=0.6, zorder=1)
    for one in shown:
        # more labels would overlap; the table lists all choices
        if _point(one) in best or one in advised:
            axes.annotate(
                f"M={one.min_replicas} R={one.min_racks[-1]}", _point(one), xytext=(4, 4), textcoords="offset points",
                fontsize=8, color=LIGHT.ink, fontweight="bold" if one in advised else "normal",
            )  # fmt: skip
    axes_style(axes, LIGHT)
    # no choice is in this corner: few refusals and little loss exclude each other
    axes.legend(loc="lower left", labelcolor=LIGHT.ink, fontsize=9, handletextpad=0.2, borderaxespad=0.2)


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point dominates, from the left."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points):
        # sums of floats that should be equal differ in the last digits
        if not best or y * (1 + 1e-9) < best[-1][1]:
            best.append((x, y))
    return best


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
