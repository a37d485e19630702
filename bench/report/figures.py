"""Figures of a report, drawn from ``results.json`` alone, in two widths and in colours that a page can replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from bench.report.cell_table import rejecting_arms
from pyhooks.core.statistics import band_ends
from pyhooks.report.plots import RC, Palette, axes_style, rows, shade, spans

QUANTILE_TICKS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
# A burst above this multiple of the intended rate is cut off, and its size is written beside it.
BURST_CUT = 2.0
# Arms with a colour of their own in every result; others take the colours that are left.
ARMS = "ABCPDEF"
# Number of block labels that fit side by side.
MAX_TICKS = 25


# Colours that occur nowhere else, so that CSS variables can replace them in the SVG.
MARKED = Palette(
    ink="#010101",
    muted="#010102",
    grid="#010103",
    fault="#010104",
    band="#010105",
    rejection="#010106",
    series=("#010107", "#010108", "#010109", "#01010a", "#01010b", "#01010c", "#01010d"),
)


@dataclass(frozen=True)
class FigureStyle:
    """Colours and width of a figure; a narrow one is for phones."""

    palette: Palette
    narrow: bool = False

    def size(self, height: float) -> tuple[float, float]:
        """Return the figure size in inches."""
        return (4.3, height) if self.narrow else (8.6, height)


def colours(result: Mapping[str, Any], palette: Palette) -> dict[str, str]:
    """Return the colour of each arm, the same in every figure and result; the control is muted."""
    arms = [arm for cell in result["cells"] for arm in cell["arms"]]
    control = {arm["arm"] for arm in arms if arm["role"] == "control"}
    topics = result["outage"]["topics"] if result["outage"] else []
    order = dict.fromkeys(arm["arm"] for arm in [*arms, *topics] if arm["arm"] not in control)
    colour_of = {arm: palette.series[ARMS.index(arm)] for arm in order if arm in ARMS}
    left = [colour for colour in palette.series if colour not in colour_of.values()] or palette.series
    others = [arm for arm in order if arm not in colour_of]
    colour_of |= {arm: left[number % len(left)] for number, arm in enumerate(others)}
    return colour_of | dict.fromkeys(control, palette.muted)


def milliseconds(value: float, _: object = None) -> str:
    """Format a latency without needless digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2g}"


def _legend(figure: Figure, axes: Axes, palette: Palette, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, labelcolor=palette.ink, handlelength=1.6,
        columnspacing=1.4,
    )  # fmt: skip


def percentiles(result: Mapping[str, Any], cell: Mapping[str, Any], style: FigureStyle) -> Figure:
    """Plot a cell's latency against percentile, on scales that show the tail, with the interval of each curve."""
    palette = style.palette
    with mpl.rc_context(RC):
        figure = Figure(figsize=style.size(4.3 if style.narrow else 4.2), layout="constrained")
        axes = figure.subplots()
        tint = colours(result, palette)
        highest, values = 0.9, []
        for arm in cell["arms"]:
            curve = arm.get("curve")
            if not curve or not curve["quantiles"]:
                continue
            control = arm["role"] == "control"
            x = [1 - q for q in curve["quantiles"]]
            colour = tint[arm["arm"]]
            axes.fill_between(x, curve["low_ms"], curve["high_ms"], color=colour, alpha=0.16, linewidth=0)
            axes.plot(
                x, curve["latency_ms"], color=colour, label=f"{arm['arm']}: {arm['label']}",
                linewidth=1.6 if control else 2.2, linestyle=(0, (4, 2)) if control else "-",
            )  # fmt: skip
            highest = max(highest, curve["quantiles"][-1])
            values += [*curve["low_ms"], *curve["high_ms"]]
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(0.5, 0.9 * (1 - highest))
        ticks = [q for q in QUANTILE_TICKS if q <= highest + 1e-12]
        axes.xaxis.set_major_locator(FixedLocator([1 - q for q in ticks]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"p{(1 - x) * 100:.6g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        _log_ticks(axes, values)
        axes.set_xlabel("percentile")
        axes.set_ylabel("produce latency, ms")
        axes_style(axes, palette)
        _legend(figure, axes, palette, 1 if style.narrow else 3)
    return figure


def _log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Set ticks at 1, 2 and 5 of each decade that the data spans."""
    if not values:
        return
    axes.set_ylim(min(values) / 1.08, max(values) * 1.08)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=100))
    axes.yaxis.set_major_formatter(FuncFormatter(milliseconds))
    axes.yaxis.set_minor_locator(NullLocator())


def blocks(result: Mapping[str, Any], cell: Mapping[str, Any], style: FigureStyle) -> Figure:
    """Plot per block the ratio of each arm to the baseline, with the pooled interval and the equivalence band."""
    names = list(cell["bands"])
    with mpl.rc_context(RC):
        figure = Figure(figsize=style.size(6.4 if style.narrow else 6.0), layout="constrained")
        panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=True):
            _ratio_panel(result, cell, style, axes, name)
        panels[-1].set_xlabel("block, in the order of time (negative: warm-up rounds, discarded)")
        if style.narrow:
            panels[-1].set_xlabel("block (negative: warm-up, discarded)")
        _legend(figure, panels[0], style.palette, 1 if style.narrow else 3)
    return figure


def _ratio_panel(result: Mapping[str, Any], cell: Mapping[str, Any], style: FigureStyle, axes: Axes, name: str) -> None:
    palette, colour_of = style.palette, colours(result, style.palette)
    rows = [row for row in cell["comparisons"] if row["at"] == name]
    latency = {(row["block"], row["arm"]): row[f"{name}_ms"] for row in cell["rounds"]}
    order = sorted({row["block"] for row in cell["rounds"]})
    last = max(order, default=0)
    low, high = band_ends(cell["bands"][name])
    ratios = [_block_ratios(row, latency, order) for row in rows]
    limits = _ratio_limits(rows, ratios, high)
    axes.axhspan(low, high, color=palette.band, linewidth=0, label="equivalence band")
    axes.axhline(1, color=palette.muted, linewidth=1)
    # the control comes first
    ordered = sorted(zip(rows, ratios, strict=True), key=lambda pair: not pair[0]["is_control"])
    for number, (row, by_block) in enumerate(ordered):
        colour, marker = colour_of[row["arm"]], "s" if row["is_control"] else "o"
        x0 = (number - (len(rows) - 1) / 2) * 0.22
        for is_warm_up, label in ((False, _pair(cell, row)), (True, None)):
            face = "none" if is_warm_up else colour
            points = [(block + x0, ratio) for block, ratio in by_block.items() if (block < 0) is is_warm_up]
            inside = [(x, ratio) for x, ratio in points if limits[0] <= ratio <= limits[1]]
            axes.plot(
                [x for x, _ in inside], [ratio for _, ratio in inside], linestyle="none", color=colour, label=label,
                marker=marker, markersize=5.5, markeredgewidth=1.3, markerfacecolor=face,
            )  # fmt: skip
            outside = {
                "^": [x for x, ratio in points if ratio > limits[1]],
                "v": [x for x, ratio in points if ratio < limits[0]],
            }
            for triangle, xs in outside.items():
                # without points the layout would fail, because the line is not clipped
                if xs:
                    axes.plot(
                        xs, [limits[1] if triangle == "^" else limits[0]] * len(xs), linestyle="none", marker=triangle,
                        markersize=7, color=colour, clip_on=False, markerfacecolor=face,
                    )  # fmt: skip
        if row["ratio"]:
            axes.errorbar(
                [last + 1.6 + number * 0.7], [row["ratio"]["point"]], yerr=_reach(row), color=colour, linewidth=2.2,
                capsize=4, capthick=2, marker=marker, markersize=7,
            )  # fmt: skip
    if order and order[0] < 0:
        axes.axvspan(order[0] - 0.5, -0.5, color=palette.grid, alpha=0.6, linewidth=0, zorder=0)
    axes.axvline(last + 0.9, color=palette.grid, linewidth=1)
    axes.set_xlim((order[0] if order else 0) - 0.6, last + 1.4 + 0.9 * len(rows))
    step = 3 if style.narrow else 2 if len(order) > MAX_TICKS else 1
    axes.xaxis.set_major_locator(FixedLocator([block for block in order if block % step == 0]))
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    _ratio_axis(axes.yaxis, limits[1])
    axes.set_ylabel("latency ratio")
    title = f"{name}, band ±{cell['bands'][name]:.0%}" + ("" if name in cell["judged"] else ", not judged")
    right = "" if style.narrow else f"; at the right all blocks with the {cell['confidence']:.0%} interval"
    axes.set_title(title + right, color=palette.ink)
    axes_style(axes, palette)


def _block_ratios(
    row: Mapping[str, Any], latency: Mapping[tuple[int, str], float], order: Sequence[int]
) -> dict[int, float]:
    """Return the ratio of a comparison in each block that has all its arms."""
    baseline = row.get("baseline", [row["against"]])
    whole = [block for block in order if all((block, arm) in latency for arm in (row["arm"], *baseline))]
    return {
        block: latency[block, row["arm"]] / geometric_mean(latency[block, arm] for arm in baseline) for block in whole
    }


def _reach(row: Mapping[str, Any]) -> list[list[float]]:
    """Return the distances of an interval's ends from its ratio, as matplotlib's error bars need them."""
    ratio = row["ratio"]
    return [[ratio["point"] - ratio["low"]], [ratio["high"] - ratio["point"]]]


def _ratio_axis(axis: Axis, highest: float) -> None:
    """Set the ticks of a logarithmic axis of ratios."""
    axis.set_major_locator(FixedLocator(_ratio_ticks(highest)))
    axis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:.3g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def _pair(cell: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    labels = {arm["arm"]: arm["label"] for arm in cell["arms"]}
    if row["is_control"]:
        return f"{row['arm']} / {row['against']}: two equal arms"
    return f"{row['arm']} / {row['against']}: {labels[row['arm']]} against {labels[row['against']]}"


def _ratio_ticks(highest: float) -> list[float]:
    """Return ticks for a ratio axis from the reciprocal of ``highest`` to ``highest``, as many as fit."""
    for limit, above in ((3.0, (2, 4, 8)), (1.7, (1.5, 2, 3)), (1.25, (1.1, 1.25, 1.5)), (0.0, (1.05, 1.1, 1.2))):
        if highest >= limit:
            chosen = [mark for mark in above if mark <= highest * 1.001]
            return [*(1 / mark for mark in reversed(chosen)), 1.0, *chosen]
    raise AssertionError("the last limit is 0")


def _ratio_limits(
    rows: Sequence[Mapping[str, Any]], ratios: Sequence[Mapping[int, float]], band: float
) -> tuple[float, float]:
    """Return symmetric limits that show every measured block and every interval, up to a factor of 8."""
    measured = [ratio for by_block in ratios for block, ratio in by_block.items() if block >= 0]
    ends = [row["ratio"][end] for row in rows if row["ratio"] for end in ("low", "high")]
    span = min(8.0, max([band**1.6, *(max(ratio, 1 / ratio) * 1.06 for ratio in (*measured, *ends))]))
    return 1 / span, span


def timeline(result: Mapping[str, Any], style: FigureStyle) -> Figure:
    """Plot acks per second and the probe's rejections of each topic above the racks in its ISR; shade the fault."""
    outage, palette = result["outage"], style.palette
    topics = outage["topics"]
    # pages of outages have no manifest here; the heading above such a picture has the racks
    rack_of: Mapping[str, str] = result.get("manifest", {}).get("racks", {})
    with mpl.rc_context(RC):
        height = 1.95 * len(topics) + 0.9
        figure = Figure(figsize=style.size(height))
        left = 0.7 if style.narrow else 0.75
        grid = figure.add_gridspec(
            3 * len(topics), 1, height_ratios=[3.0, 0.9, 0.75] * len(topics), hspace=0.1,
            left=left / style.size(height)[0], right=0.985, top=1 - 0.42 / height, bottom=0.18 / height,
        )  # fmt: skip
        tint = colours(result, palette)
        for number, topic in enumerate(topics):
            upper = figure.add_subplot(grid[3 * number])
            lower = figure.add_subplot(grid[3 * number + 1])
            for axes in (upper, lower):
                axes_style(axes, palette)
                if outage["inject_s"] is not None and outage["heal_s"] is not None:
                    shade(axes, outage["inject_s"], outage["heal_s"], palette)
                axes.set_xlim(0, outage["length_s"])
                axes.xaxis.set_major_locator(MaxNLocator(5 if style.narrow else 9))
            _acks(outage, topic, upper, style, tint[topic["arm"]])
            racks = ", ".join(sorted(rack_of[str(broker)] for broker in topic["replicas"])) if rack_of else ""
            where = f", replicas in {racks}" if racks and not style.narrow else ""
            title = f"{topic['label']}{where}: {topic['behaviour']}"
            upper.set_title(title, fontweight="bold", color=palette.ink)
            _isr(outage, topic, lower, tint[topic["arm"]])
            last = number == len(topics) - 1
            upper.tick_params(labelbottom=False)
            lower.tick_params(labelbottom=last)
            if last:
                lower.set_xlabel("seconds from the start of the phase")
            if number == 0:
                _annotate_fault(outage, topic, upper, style)
    return figure


def _annotate_fault(outage: Mapping[str, Any], topic: Mapping[str, Any], axes: Axes, style: FigureStyle) -> None:
    """Annotate the shaded outage, and the gap in acks at its start."""
    if outage["inject_s"] is None or outage["heal_s"] is None:
        return
    ink, top = style.palette.ink, outage["rate_per_s"] * BURST_CUT
    middle = (outage["inject_s"] + (topic["left_after_s"] or 0.0) + outage["heal_s"]) / 2
    axes.annotate(
        f"rack {outage['rack']} unavailable", (middle, top * 0.93), ha="center", va="top", color=ink, fontsize=9.5
    )
    wait_s = topic["left_after_s"]
    if wait_s is not None and wait_s > outage["length_s"] / 12 and not style.narrow:
        axes.annotate(
            f"acks=all\nwaits for\nrack {outage['rack']}", (outage["inject_s"] + 0.5, top * 0.42),
            ha="left", va="top", color=ink, fontsize=8.5,
        )  # fmt: skip


def _acks(outage: Mapping[str, Any], topic: Mapping[str, Any], axes: Axes, style: FigureStyle, colour: str) -> None:
    palette, rate = style.palette, outage["rate_per_s"]
    top = rate * BURST_CUT
    seconds = np.array([point["s"] for point in topic["series"]], dtype=float)
    acked = np.array([point["acked"] for point in topic["series"]], dtype=float)
    axes.stairs(
        np.minimum(acked, top),
        [*seconds, seconds[-1] + 1] if len(seconds) else [0],
        fill=True,
        color=colour,
        alpha=0.85,
    )
    for first, last, total in _bursts(seconds.tolist(), acked.tolist(), top):
        late = last > 0.85 * outage["length_s"]
        text = f"{total:,.0f}" if first == last else f"{total:,.0f} in {last - first + 1:.0f} s"
        axes.annotate(
            text, (first - 0.4 if late else last + 1.4, top * 0.97), color=palette.ink, fontsize=8.5, va="top",
            ha="right" if late else "left",
        )  # fmt: skip
    axes.axhline(rate, color=palette.muted, linewidth=1, linestyle=(0, (3, 3)))
    rejections = topic["probe"]["rejected_at_s"]
    if rejections:
        axes.plot(
            rejections, [rate * 0.42] * len(rejections), linestyle="none", marker="x",
            markersize=4 if style.narrow else 5, markeredgewidth=1.3, color=palette.rejection,
        )  # fmt: skip
        axes.annotate(
            f"{len(rejections)} rejections of the probe", (np.mean(rejections), rate * 0.58), color=palette.rejection,
            fontsize=9.5, ha="center", va="bottom",
        )  # fmt: skip
    axes.set_ylim(0, top)
    axes.yaxis.set_major_locator(FixedLocator([0, rate]))
    axes.set_ylabel("acks/s")


def _bursts(seconds: Sequence[float], acked: Sequence[float], top: float) -> list[tuple[float, float, float]]:
    """Return runs of seconds with more than ``top`` acks, as (first second, last second, total acks)."""
    runs: list[tuple[float, float, float]] = []
    for second, value in zip(seconds, acked, strict=True):
        if value <= top:
            continue
        if runs and runs[-1][1] == second - 1:
            runs[-1] = (runs[-1][0], second, runs[-1][2] + value)
        else:
            runs.append((second, second, value))
    return runs


def _isr(outage: Mapping[str, Any], topic: Mapping[str, Any], axes: Axes, colour: str) -> None:
    states = [(max(0.0, state["at_s"]), state["racks"]) for state in topic["isr"]]
    end_s = min(outage["length_s"], topic["looked_until_s"] or 0.0)
    racks = sorted({rack for _, own in states for rack in own})
    rows(axes, {rack: spans(states, rack, end_s) for rack in racks}, colour)
    axes.set_ylabel("ISR in\nracks", fontsize=8, rotation=0, ha="right", va="center", labelpad=3)


def overview(result: Mapping[str, Any], style: FigureStyle) -> Figure:
    """Plot the ratio of each candidate and of the control to the baseline in every cell, with interval and band."""
    palette, tint, cells = style.palette, colours(result, style.palette), result["cells"]
    names = list(cells[0]["bands"])
    with mpl.rc_context(RC):
        columns = 1 if style.narrow else len(names)
        size = style.size((0.42 * len(cells) + 1.0) * (len(names) if style.narrow else 1))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(names) // columns, columns, sharey=not style.narrow, squeeze=False).ravel()
        for axes, name in zip(panels, names, strict=True):
            _overview_panel(cells, tint, style, axes, name)
        if not style.narrow:
            for axes in panels[1:]:
                axes.tick_params(labelleft=False)
        _legend(figure, panels[0], palette, 1 if style.narrow else 3)
    return figure


def _overview_panel(
    cells: Sequence[Mapping[str, Any]], tint: Mapping[str, str], style: FigureStyle, axes: Axes, name: str
) -> None:
    palette = style.palette
    low, high = band_ends(cells[0]["bands"][name])
    reached = [high**1.6]
    axes.axvspan(low, high, color=palette.band, linewidth=0)
    axes.axvline(1, color=palette.muted, linewidth=1)
    usual = cells[0]["comparisons"][0]["against"]
    measured = {at for at, cell in enumerate(cells) if any(row["ratio"] for row in cell["comparisons"])}
    labelled: set[str] = set()
    labels = {arm["arm"]: arm["label"].removesuffix(" (positive control)") for cell in cells for arm in cell["arms"]}
    for at, cell in enumerate(cells):
        rows = [row for row in cell["comparisons"] if row["at"] == name and row["ratio"]]
        # centre the ratios of a cell on its name, whatever the number of arms in other cells; the control comes first
        rows.sort(key=lambda row: not row["is_control"])
        for place, row in enumerate(rows):
            arm, ratio, y = row["arm"], row["ratio"], at + (place - (len(rows) - 1) / 2) * 0.22
            pair = "two equal arms" if row["is_control"] else f"{labels[arm]} / {labels[row['against']]}"
            label = None if arm in labelled or pair in labelled else pair
            labelled |= {arm, pair}
            axes.errorbar(
                [ratio["point"]], [y], xerr=_reach(row), color=tint[arm], linewidth=1.8, capsize=2.5, label=label,
                marker="s" if row["is_control"] else "o", markersize=5,
                markerfacecolor=tint[arm] if name in cell["judged"] else "none",
            )  # fmt: skip
            reached.append(max(ratio["high"], 1 / ratio["low"]) * 1.06)
    span = min(4.0, max(reached))
    for at, cell in enumerate(cells):
        rejecting = [labels[arm["arm"]] for arm in cell["arms"] if arm["rejected"] and arm["role"] != "control"]
        if rejecting:
            # beside the ratios of the arms that don't reject
            x, side = (span, "right") if at in measured else (1, "left")
            axes.annotate(
                f" {rejecting_arms(rejecting)}", (x, at), color=palette.rejection, fontsize=8.5, va="center", ha=side
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(1 / span, span)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.yaxis.set_major_locator(FixedLocator(range(len(cells))))
    named = [
        cell["cell"] if (own := cell["comparisons"][0]["against"]) == usual else f"{cell['cell']}\n(over {labels[own]})"
        for cell in cells
    ]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: named[round(y)] if y < len(named) else ""))
    _ratio_axis(axes.xaxis, span)
    axes.set_title(f"{name}, band ±{cells[0]['bands'][name]:.0%}", color=palette.ink)
    axes.set_xlabel(f"{name} of latency over that of {labels[usual]}\n(hollow: not judged)")
    axes_style(axes, palette)


def answer(result: Mapping[str, Any], cell: Mapping[str, Any], style: FigureStyle) -> Figure:
    """Plot the median that each hypothesis predicts for each arm, as a range, beside the measured one."""
    palette, question, tint = style.palette, cell["answer"], colours(result, style.palette)
    hypotheses, measured = question["hypotheses"], question["measured_ms"]
    arms = [arm for arm in cell["arms"] if arm["arm"] in measured and arm["role"] != "control"]
    shapes: tuple[dict[str, Any], ...] = (
        {"facecolor": "none", "edgecolor": palette.ink, "linestyle": (0, (4, 2)), "linewidth": 1.3},
        {"facecolor": palette.fault, "edgecolor": palette.fault, "linewidth": 1.3},
    )
    with mpl.rc_context(RC):
        figure = Figure(figsize=style.size(0.85 * len(arms) + 1.5), layout="constrained")
        axes = figure.subplots()
        for number, (hypothesis, shape) in enumerate(zip(hypotheses, shapes, strict=True)):
            label = f"{hypothesis['label']}{' (rejected)' if hypothesis['rejected'] else ''}: predicted"
            for at, arm in enumerate(arms):
                if ends := hypothesis["predicted_ms"].get(arm["arm"]):
                    spot = [(ends[0], max(ends[1] - ends[0], 0.2))]
                    axes.broken_barh(spot, (at - 0.34 + 0.22 * number, 0.18), label=label, **shape)
                    label = ""
        for at, arm in enumerate(arms):
            ms = measured[arm["arm"]]
            axes.errorbar(
                [ms["point"]], [at + 0.22], xerr=[[ms["point"] - ms["low"]], [ms["high"] - ms["point"]]], fmt="o",
                color=tint[arm["arm"]], markersize=8, linewidth=2, capsize=3,
            )  # fmt: skip
            axes.annotate(
                f"{milliseconds(ms['point'])} ms", (ms["high"], at + 0.22), xytext=(8, 0), textcoords="offset points",
                va="center", color=palette.ink, fontsize=9.5,
            )  # fmt: skip
        axes.plot([], [], "o-", color=palette.muted, label="measured: median and range of the blocks")
        axes.set_xlim(0, axes.get_xlim()[1] * 1.08)
        axes.set_ylim(len(arms) - 0.45, -0.55)
        axes.yaxis.set_major_locator(FixedLocator(range(len(arms))))
        labels = [arm["label"].replace(" (", "\n(") if style.narrow else arm["label"] for arm in arms]
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: labels[round(y)] if 0 <= y < len(labels) else ""))
        axes.set_xlabel("median produce latency, ms")
        axes_style(axes, palette)
        axes.grid(visible=False, axis="y")
        _legend(figure, axes, palette, 1 if style.narrow else 2)
    return figure


CELL_PICTURES = {"percentiles": percentiles, "blocks": blocks}


def pictures(result: Mapping[str, Any]) -> dict[str, Callable[[FigureStyle], Figure]]:
    """Return the drawing functions by figure name; with several cells, their figures' names end with the cell's."""
    pictures_by_name: dict[str, Callable[[FigureStyle], Figure]] = {}
    many = len(result["cells"]) > 1
    for cell in result["cells"]:
        if cell.get("answer"):
            pictures_by_name[f"answer-{cell['cell']}" if many else "answer"] = partial(answer, result, cell)
    if many:
        pictures_by_name["overview"] = partial(overview, result)
    if result["outage"]:
        pictures_by_name["timeline"] = partial(timeline, result)
    for cell in result["cells"]:
        for name, draw in CELL_PICTURES.items():
            pictures_by_name[f"{name}-{cell['cell']}" if many else name] = partial(draw, result, cell)
    return pictures_by_name
