"""Timeline picture of a test: shaded faults, acknowledgements and rejections per topic, and racks of the ISRs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ducktape_tests.report.timeline import REJECTED, FaultSpan, IsrState, Timeline, TopicTimeline, fewest
from pyhooks.report import plots
from pyhooks.report.plots import LIGHT, PAPER, RC, Span, axes_style, rows, shade, spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LEFT, RIGHT = 11.0, 1.15, 0.15
ACKS, ROW, GAP, HEAD, FOOT = 1.15, 0.17, 0.34, 0.75, 0.2
# Rows of partitions below a topic; all further partitions share one row.
PARTITIONS = 6
MARKERS = "xv^sDP*1"
# These kinds of rejections have the same marker and colour in every picture.
FIRST = ("NotEnoughRacks", "NotEnoughReplicas", "Timeout")
COLOURS = (LIGHT.rejection, LIGHT.series[1], LIGHT.series[2], LIGHT.ink, LIGHT.series[3], LIGHT.muted)
# A burst above this multiple of the median is cut off and labelled with its height.
BURST = 4.0
# up to this many values that are cut off are listed one by one
FEW = 2
# Width of a letter in a fault's name, in inches.
LETTER = 0.068
# The same for smaller labels.
SMALL = 0.058
LINES = 3
# A fault that occurs more often than this is named only where it occurred first.
OFTEN = 5


def svg(timeline: Timeline, title: str) -> str:
    """Return the picture as SVG; the same history gives the same text."""
    return plots.svg(draw(timeline, title))


def draw(timeline: Timeline, title: str) -> Figure:
    """Draw the picture."""
    below = [_rows(topic, timeline) for topic in timeline.topics]
    lines = [max(1, len(own)) for own in below]
    named, lanes = _names(timeline.faults, timeline.length_s)
    head = HEAD + 0.17 * lanes
    height = head + FOOT + sum(ACKS + GAP + ROW * count for count in lines) + (0 if lines else ACKS)
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, height))
        figure.text(LEFT / WIDTH, 1 - 0.12 / height, title, va="top", fontsize=12, color=LIGHT.ink, fontweight="bold")
        kinds = _kinds(timeline.topics)
        _legend(figure, timeline, kinds, height)
        top = head
        last: Axes | None = None
        for number, (topic, own) in enumerate(zip(timeline.topics, below, strict=True)):
            upper = _axes(figure, timeline, height, top, ACKS)
            top += ACKS + 0.04
            lower = last = _axes(figure, timeline, height, top, ROW * lines[number])
            top += ROW * lines[number] + GAP - 0.04
            _acks(upper, topic, kinds, timeline)
            _isr(lower, topic, own, timeline)
            upper.tick_params(labelbottom=False)
            lower.tick_params(labelbottom=number == len(lines) - 1)
            if number == 0:
                _label_faults(upper, named)
        if last is None:
            last = _axes(figure, timeline, height, top, ACKS)
            last.set_yticks([])
            last.set_ylabel("no records were sent", rotation=0, ha="left", va="center", labelpad=-40)
            _label_faults(last, named)
        last.set_xlabel("seconds since the start", color=LIGHT.ink)
    return figure


def _axes(figure: Figure, timeline: Timeline, height: float, top: float, tall: float) -> Axes:
    axes = figure.add_axes((LEFT / WIDTH, 1 - (top + tall) / height, (WIDTH - LEFT - RIGHT) / WIDTH, tall / height))
    axes_style(axes, LIGHT)
    axes.set_xlim(0, max(1.0, timeline.length_s))
    axes.xaxis.set_major_locator(MaxNLocator(12))
    for fault in timeline.faults:
        shade(axes, fault.from_s, fault.to_s, LIGHT)
    return axes


def _kinds(topics: Sequence[TopicTimeline]) -> dict[str, tuple[str, str, int]]:
    """Return marker, colour and count of each kind of rejection: the fixed kinds first, then the most frequent."""
    counts: Counter[str] = Counter()
    for topic in topics:
        for kind, seconds in topic.rejected.items():
            counts[kind] += seconds.total()
    others = sorted(set(counts) - set(FIRST), key=lambda kind: (-counts[kind], kind))
    styles = {
        kind: (MARKERS[place % len(MARKERS)], COLOURS[place % len(COLOURS)])
        for place, kind in enumerate([*FIRST, *others])
    }
    return {kind: (*styles[kind], counts[kind]) for kind in [*FIRST, *others] if kind in counts}


def _legend(figure: Figure, timeline: Timeline, kinds: dict[str, tuple[str, str, int]], height: float) -> None:
    handles: list[Line2D | Patch] = [Patch(color=LIGHT.series[0], alpha=0.85, label="acknowledged per second")]
    handles += [
        Line2D([], [], linestyle="none", marker=marker, color=colour, label=f"{kind} ({count:,})")
        for kind, (marker, colour, count) in kinds.items()
    ]
    if any(not state.leader for topic in timeline.topics for own in topic.partitions.values() for state in own):
        handles.append(Patch(color=LIGHT.rejection, alpha=0.8, label="no leader"))
    if timeline.faults:
        handles.append(Patch(color=LIGHT.fault, alpha=0.35, label=f"fault ({len(timeline.faults)})"))
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=((LEFT - 0.08) / WIDTH, 1 - 0.3 / height), ncols=7,
        labelcolor=LIGHT.ink, fontsize=8.5, handlelength=1.3, columnspacing=1.3, borderpad=0,
    )  # fmt: skip


def _acks(axes: Axes, topic: TopicTimeline, kinds: dict[str, tuple[str, str, int]], timeline: Timeline) -> None:
    end = int(timeline.length_s) + 1
    values = [topic.acked[second] for second in range(end)]
    usual = sorted(value for value in values if value)
    cut = min(max([*values, 1]), BURST * max(1, usual[len(usual) // 2])) if usual else 1
    axes.stairs([min(value, cut) for value in values], range(end + 1), fill=True, color=LIGHT.series[0], alpha=0.85)
    for at_s, text in bursts(values, cut, timeline.length_s):
        axes.annotate(f" {text}", (at_s, cut), va="top", fontsize=8, color=LIGHT.ink)
    top = cut * 1.12
    own = [kind for kind in kinds if kind in topic.rejected]
    # One lane per kind above the acknowledgements, which the markers would hide.
    for lane, kind in enumerate(own):
        marker, colour, _ = kinds[kind]
        seconds = sorted(topic.rejected[kind])
        at = top * (1 + 0.14 * (lane + 0.5))
        axes.plot(
            [second + 0.5 for second in seconds], [at] * len(seconds), linestyle="none", marker=marker, color=colour,
            markersize=4, markeredgewidth=1.1, clip_on=False,
        )  # fmt: skip
    axes.set_ylim(0, top * (1 + 0.14 * len(own)))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set_ylabel("acks/s", fontsize=8.5)
    for at_s, text in topic.changes:
        in_vain = text.endswith(REJECTED)
        axes.axvline(at_s, color=LIGHT.muted if in_vain else LIGHT.ink, linewidth=1.2, linestyle=(0, (4, 2)))
    for at_s, line, text, side in _labels(topic.changes, timeline.length_s):
        axes.annotate(
            text, (at_s, 0.7 - 0.22 * line), xycoords=("data", "axes fraction"), va="top", ha=side,
            xytext=(4 if side == "left" else -4, 0), textcoords="offset points", fontsize=7.5, color=LIGHT.ink,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip
    rejected = sum(seconds.total() for seconds in topic.rejected.values())
    requirement = topic.requirement and f" ({topic.requirement})"
    axes.set_title(
        f"{topic.name}{requirement}: {topic.acked.total():,} acknowledged, {rejected:,} not",
        color=LIGHT.ink,
        fontsize=9.5,
        pad=3,
    )


def _rows(topic: TopicTimeline, timeline: Timeline) -> dict[str, list[Span]]:
    """Return the rows below a topic: of a single partition one per rack, else one per partition, without spans."""
    if not topic.partitions:
        return {}
    end_s = timeline.observed_s
    if len(topic.partitions) == 1:
        (states,) = topic.partitions.values()
        seen = [(state.at_s, state.racks) for state in states]
        return {rack: spans(seen, rack, end_s) for rack in sorted({rack for _, racks in seen for rack in racks})}
    return {name: [] for name in _places(topic)}


def _places(topic: TopicTimeline) -> dict[str, list[IsrState]]:
    """Return the states of the first partitions by number, and all others merged to those with the fewest racks."""
    ordered = sorted(topic.partitions)
    shown = {str(number): topic.partitions[number] for number in ordered[:PARTITIONS]}
    if others := [topic.partitions[number] for number in ordered[PARTITIONS:]]:
        shown[f"fewest of {len(others)}"] = fewest(others)
    return shown


def _isr(axes: Axes, topic: TopicTimeline, own: dict[str, list[Span]], timeline: Timeline) -> None:
    if not own:
        axes.set_yticks([])
        # Inside the axes: beside them, two lines would overlap the axes above.
        axes.text(0.005, 0.5, "the ISR was not observed", transform=axes.transAxes, fontsize=8, va="center")
        return
    rows(axes, own, LIGHT.series[0])
    end_s = timeline.observed_s
    if len(topic.partitions) == 1:
        (states,) = topic.partitions.values()
        axes.broken_barh(_leaderless(states, end_s), (0, len(own)), facecolors=LIGHT.rejection, alpha=0.8, linewidth=0)
        axes.set_ylabel("ISR in\nracks", fontsize=8, rotation=0, ha="right", va="center", labelpad=4)
        return
    # Several partitions: the darker, the more racks.
    most = max(len(state.racks) for states in topic.partitions.values() for state in states) or 1
    for row, states in enumerate(_places(topic).values()):
        low = len(own) - 1 - row + 0.15
        for count in range(most + 1):
            seen = [(state.at_s, ("x",) if len(state.racks) == count and state.leader else ()) for state in states]
            axes.broken_barh(
                spans(seen, "x", end_s), (low, 0.7 * max(count, 0.3) / most), facecolors=LIGHT.series[0], alpha=0.6,
                linewidth=0,
            )  # fmt: skip
        axes.broken_barh(_leaderless(states, end_s), (low, 0.7), facecolors=LIGHT.rejection, alpha=0.8, linewidth=0)
    axes.set_ylabel(f"racks of\npartition\n(of {most})", fontsize=7.5, rotation=0, ha="right", va="center", labelpad=6)


def _leaderless(states: Sequence[IsrState], end_s: float) -> list[Span]:
    return spans([(state.at_s, () if state.leader else ("x",)) for state in states], "x", end_s)


def _names(faults: Sequence[FaultSpan], length_s: float) -> tuple[list[tuple[float, int, str]], int]:
    """Return time, line and text of the names of faults without overlap, and the number of lines.

    A frequent fault is named once.
    """
    per_s = (WIDTH - LEFT - RIGHT) / max(1.0, length_s)
    free = [0.0] * LINES
    placed: list[tuple[float, int, str]] = []
    counts = Counter(fault.name for fault in faults)
    named: set[str] = set()
    for fault in faults:
        name = (
            fault.name if counts[fault.name] <= OFTEN else f"{fault.name} \N{MULTIPLICATION SIGN}{counts[fault.name]}"
        )
        if counts[fault.name] > OFTEN and fault.name in named:
            continue
        named.add(fault.name)
        at = fault.from_s * per_s
        line = next((number for number, until in enumerate(free) if at >= until), None)
        if line is not None:
            placed.append((fault.from_s, line, name))
            free[line] = at + LETTER * (len(name) + 2)
    return placed, 1 + max((line for _, line, _ in placed), default=0)


def bursts(values: Sequence[int], cut: float, length_s: float) -> list[tuple[float, str]]:
    """Return position and text of the values that are cut off; neighbours share a text, and texts do not overlap."""
    a_letter_s = max(1.0, length_s) * SMALL / (WIDTH - LEFT - RIGHT)
    groups: list[tuple[int, list[int]]] = []
    free_s = 0.0
    for second, value in enumerate(values):
        if value <= cut:
            continue
        high = [*(groups.pop()[1] if groups and second <= free_s else []), value]
        groups.append((second + 1, high))
        free_s = second + 1 + (len(_burst(high)) + 2) * a_letter_s
    return [(end, _burst(high)) for end, high in groups]


def _burst(high: Sequence[int]) -> str:
    if len(high) <= FEW:
        return ", ".join(f"{value:,}" for value in high)
    return f"{min(high):,} to {max(high):,} in {len(high)} s"


def _labels(changes: Sequence[tuple[float, str]], length_s: float) -> list[tuple[float, int, str, str]]:
    """Return the labels of a topic's settings: time, line, text, and the side of the text at that time.

    If no line is free, the previous label is extended.
    """
    width, length_s = WIDTH - LEFT - RIGHT, max(1.0, length_s)
    free = [0.0] * LINES
    placed: list[tuple[float, int, str, str]] = []
    for at_s, text in changes:
        at, text_width = at_s / length_s * width, SMALL * (len(text) + 2)
        # At the right edge the text is to the left of its time.
        side, start = ("left", at) if at + text_width <= width else ("right", at - text_width)
        line = next((number for number, until in enumerate(free) if start >= until), None)
        if line is None and placed:
            first_s, line, before, side = placed.pop()
            placed.append((first_s, line, f"{before}, then {text}", side))
            free[line] += text_width + SMALL * len(", then ")
        else:
            line = line or 0
            placed.append((at_s, line, text, side))
            free[line] = start + text_width
    return placed


def _label_faults(axes: Axes, named: Sequence[tuple[float, int, str]]) -> None:
    for at_s, line, name in named:
        axes.annotate(
            f"▾{name}", (at_s, 1.0), xycoords=("data", "axes fraction"), xytext=(-2, 17 + 12 * line),
            textcoords="offset points", fontsize=8.5, color=LIGHT.ink, annotation_clip=False,
        )  # fmt: skip
