"""Picture of a trace: a column for each step, a row for each broker, with its log, high watermark and role."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from pyhooks.report import plots
from pyhooks.report.plots import LIGHT, PAPER, RC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from pyhooks.formal.trace import TraceReplica, TraceStep

# inches
CELL, ROW, LEFT, HEAD, FOOT, TEXT_HEIGHT = 1.32, 0.62, 1.05, 0.92, 0.82, 0.48
# colours of arms are those of the benchmark alone
MEMBER, RECORD, LOST = LIGHT.ink, LIGHT.ink, LIGHT.rejection
# minimum width for the legend, and line height and letter width of the title
WIDTH_MIN, LINE_HEIGHT, LETTER_WIDTH = 9.3, 0.23, 0.108
_PNG_DPI = 110


def write(trace: Sequence[TraceStep], title: str, folder: Path, name: str) -> tuple[Path, Path]:
    """Write the picture as SVG and PNG, and return their paths; the same trace gives the same files."""
    png, svg = plots.write(draw(trace, title), folder / name, dpi=_PNG_DPI)
    return svg, png


def draw(trace: Sequence[TraceStep], title: str) -> Figure:
    """Draw the picture."""
    brokers = len(trace[0].replicas)
    width = max(WIDTH_MIN, LEFT + CELL * len(trace) + 0.1)
    lines = textwrap.wrap(title, int((width - 0.2) / LETTER_WIDTH)) or [""]
    tall = TEXT_HEIGHT + ROW * brokers + FOOT
    height = HEAD + LINE_HEIGHT * (len(lines) - 1) + tall
    with mpl.rc_context(RC):
        figure = Figure(figsize=(width, height))
        figure.text(
            0.12 / width,
            1 - 0.1 / height,
            "\n".join(lines),
            va="top",
            fontsize=13,
            color=LIGHT.ink,
            fontweight="bold",
        )
        _draw_legend(figure, width, height, HEAD - 0.54 + LINE_HEIGHT * (len(lines) - 1))
        axes = figure.add_axes((0, 0, 1, tall / height))
        axes.set_xlim(0, width)
        axes.set_ylim(0, tall)
        axes.set_axis_off()
        _draw_rows(axes, trace[0], width)
        for number, step in enumerate(trace):
            _draw_step(axes, step, LEFT + CELL * number, number)
    return figure


def _draw_legend(figure: Figure, width: float, height: float, top: float) -> None:
    def marker(shape: str, colour: str, label: str) -> Line2D:
        return Line2D([], [], linestyle="none", marker=shape, color=colour, markersize=7, label=label)

    handles = [
        Patch(facecolor="none", edgecolor=MEMBER, linewidth=1.8, label="in the ISR"),
        Patch(facecolor="none", edgecolor=MEMBER, linewidth=1.8, linestyle="--", label="in the ELR"),
        marker("*", LIGHT.ink, "leads"),
        Line2D(
            [], [], linestyle="none", marker="*", color=LIGHT.ink, markerfacecolor="none", label="believes it leads"
        ),
        Patch(facecolor=RECORD, label="record below the high watermark"),
        Patch(facecolor="none", edgecolor=RECORD, label="record above it"),
        Patch(facecolor=LIGHT.fault, label="not running"),
        marker("x", LOST, "disk destroyed"),
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.05 / width, 1 - top / height), ncols=4,
        labelcolor=LIGHT.ink, fontsize=10, handlelength=1.2, columnspacing=1.0, handletextpad=0.4, borderpad=0,
    )  # fmt: skip


def _y(row: int, brokers: int) -> float:
    return FOOT + ROW * (brokers - 1 - row)


def _draw_rows(axes: Axes, first: TraceStep, width: float) -> None:
    brokers = len(first.replicas)
    letters = [replica.rack for replica in first.replicas]
    for letter in dict.fromkeys(letters):
        rows = [row for row, rack in enumerate(letters) if rack == letter]
        top, bottom = _y(rows[0], brokers) + ROW, _y(rows[-1], brokers)
        axes.text(0.12, (top + bottom) / 2, f"rack {letter}", va="center", fontsize=11, color=LIGHT.ink)
        axes.plot([0.1, width - 0.1], [top, top], color=LIGHT.grid, linewidth=1)
    for row, replica in enumerate(first.replicas):
        axes.text(
            LEFT - 0.14,
            _y(row, brokers) + ROW / 2,
            replica.name,
            va="center",
            ha="right",
            fontsize=11,
            color=LIGHT.ink,
        )
    axes.plot([0.1, width - 0.1], [FOOT, FOOT], color=LIGHT.grid, linewidth=1)


def _draw_step(axes: Axes, step: TraceStep, left: float, number: int) -> None:
    brokers = len(step.replicas)
    head = step.event or "at first"
    colour = LOST if step.kind in ("Destroy", "Kill") else LIGHT.ink
    axes.text(
        left + CELL / 2, FOOT + ROW * brokers + 0.1, f"{number}  {head}" if number else head, ha="center", va="bottom",
        fontsize=10, color=colour, linespacing=1.15,
    )  # fmt: skip
    for row, replica in enumerate(step.replicas):
        _draw_replica(axes, replica, left, _y(row, brokers), touched=replica.name in step.affected)
    _draw_summary(axes, step, left)


def _draw_replica(axes: Axes, replica: TraceReplica, left: float, bottom: float, *, touched: bool) -> None:
    box = (left + 0.07, bottom + 0.08)
    wide, tall = CELL - 0.14, ROW - 0.16
    edge, style, line = (
        (MEMBER, "-", 1.8) if replica.in_isr else (MEMBER, "--", 1.8) if replica.in_elr else (LIGHT.grid, "-", 1.0)
    )
    face = LIGHT.fault if not replica.up else "#eef3f8" if touched else PAPER
    axes.add_patch(
        FancyBboxPatch(
            box, wide, tall, boxstyle="round,pad=0,rounding_size=0.06", facecolor=face, edgecolor=edge, linestyle=style,
            linewidth=line, alpha=1.0,
        )
    )  # fmt: skip
    y = bottom + ROW / 2
    if replica.leads or replica.thinks_it_leads:
        axes.plot(
            [left + 0.24], [y], marker="*", markersize=11, color=LIGHT.ink,
            markerfacecolor=LIGHT.ink if replica.leads else "none",
        )  # fmt: skip
    for index, record in enumerate(replica.log):
        x = left + 0.46 + 0.27 * index
        committed = index < replica.hw
        axes.add_patch(
            Rectangle(
                (x, y - 0.11),
                0.22,
                0.22,
                facecolor=RECORD if committed else "none",
                edgecolor=RECORD,
            )
        )
        axes.text(
            x + 0.11,
            y - 0.005,
            f"{record}",
            ha="center",
            va="center",
            fontsize=8,
            color=PAPER if committed else RECORD,
        )
    if replica.lost:
        axes.plot([left + CELL - 0.3], [y], marker="x", markersize=9, markeredgewidth=2, color=LOST)


def _draw_summary(axes: Axes, step: TraceStep, left: float) -> None:
    isr = " ".join(replica.name for replica in step.replicas if replica.in_isr) or "none"
    elr = " ".join(replica.name for replica in step.replicas if replica.in_elr)
    last_known = " ".join(step.last_known)
    lines = [f"ISR {isr}", f"ELR {elr}" if elr else "", f"last known {last_known}" if last_known else ""]
    acked = [f"r{number}" for number in step.acked]
    shown = [f"r{number}" for number in step.seen if number not in step.acked]
    label = "  ".join(
        [*([f"{', '.join(acked)} acked"] if acked else []), *([f"{', '.join(shown)} visible"] if shown else [])]
    )
    axes.text(
        left + 0.09,
        FOOT - 0.08,
        "\n".join(filter(None, lines)),
        va="top",
        fontsize=9.5,
        color=LIGHT.ink,
        linespacing=1.25,
    )
    if step.missing:
        label = ", ".join(f"r{number}" for number in step.missing) + " is lost"
    axes.text(
        left + 0.09, 0.09, label, va="bottom", fontsize=10, color=LOST if step.missing else RECORD,
        fontweight="bold" if step.missing else "normal",
    )  # fmt: skip
