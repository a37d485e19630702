"""Plot style and shared plot elements: fonts, colours, shaded faults, rows of bars over time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import FixedFormatter, FixedLocator

from pyhooks.core import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# start and length in seconds
Span = tuple[float, float]

PAPER = "#ffffff"
# Style of every figure; used while it is drawn and while it is rendered.
RC: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "rackgate",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


# The same for every figure, so that equal figures give equal files.
METADATA: Mapping[str, Mapping[str, None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def _rendered(figure: Figure, suffix: str, **options: Any) -> bytes:
    out = BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(out, format=suffix, metadata=METADATA[suffix], **options)
    return out.getvalue()


def svg(figure: Figure, *, transparent: bool = False) -> str:
    """Render a figure as SVG on white or transparent paper; equal figures give equal text."""
    return _rendered(figure, "svg", transparent=transparent, **({} if transparent else {"facecolor": PAPER})).decode()


def images(figure: Figure, stem: Path, *, dpi: int) -> dict[Path, bytes]:
    """Render a figure as ``stem.png`` and ``stem.svg``, in this order; equal figures give equal bytes.

    Args:
        figure: the figure.
        stem: path without suffix.
        dpi: resolution of the PNG.
    """
    return {
        stem.with_name(f"{stem.name}.{suffix}"): _rendered(figure, suffix, dpi=dpi, facecolor=PAPER)
        for suffix in METADATA
    }


def write(figure: Figure, stem: Path, *, dpi: int) -> tuple[Path, Path]:
    """Write the files of ``images`` and return the paths of the PNG and the SVG file.

    Raises:
        RackgateError: they can't be written.
    """
    rendered = images(figure, stem, dpi=dpi)
    files.write(rendered)
    png, vector = rendered
    return png, vector


@dataclass(frozen=True)
class Palette:
    """Colours by meaning, of light or dark pages.

    Attributes:
        ink: text and axes.
        muted: secondary text, the control.
        grid: lines behind the data.
        fault: shading of the outage.
        band: shading of the equivalence band.
        rejection: marks of rejected writes.
        series: one colour per arm except the control, in order; safe for colour-blind readers.
    """

    ink: str
    muted: str
    grid: str
    fault: str
    band: str
    rejection: str
    series: tuple[str, ...]

    def names(self) -> dict[str, str]:
        """Return the colours by CSS variable name."""
        flat = {key: getattr(self, key) for key in ("ink", "muted", "grid", "fault", "band", "rejection")}
        return flat | {f"series-{number}": colour for number, colour in enumerate(self.series)}


LIGHT = Palette(
    ink="#1b1f24",
    muted="#6a737d",
    grid="#e3e6ea",
    fault="#b9c0c8",
    band="#cfe3d4",
    rejection="#b3261e",
    series=("#0068a8", "#c85200", "#8a4fa3", "#00805c", "#8a6d00", "#c2397b", "#7a4a2b"),
)
DARK = Palette(
    ink="#e6e9ec",
    muted="#9aa4ae",
    grid="#30363d",
    fault="#59626c",
    band="#28503a",
    rejection="#ff8a80",
    series=("#5bb3f0", "#ff9d52", "#c99be0", "#4fd0a5", "#e0c64d", "#ff8fbf", "#d2a679"),
)


def axes_style(axes: Axes, palette: Palette) -> None:
    """Apply the colours of the palette to grid, ticks, texts and spines."""
    axes.grid(visible=True, color=palette.grid, linewidth=0.8)
    axes.tick_params(colors=palette.ink, which="both", length=3)
    axes.title.set_color(palette.ink)
    axes.xaxis.label.set_color(palette.ink)
    axes.yaxis.label.set_color(palette.ink)
    for spine in axes.spines.values():
        spine.set_color(palette.muted)


def shade(axes: Axes, from_s: float, to_s: float, palette: Palette) -> None:
    """Shade the time of a fault."""
    axes.axvspan(from_s, to_s, color=palette.fault, alpha=0.35, linewidth=0, zorder=0)


def rows(axes: Axes, bars: Mapping[str, Sequence[Span]], colour: str, alpha: float = 0.6) -> None:
    """Draw a row of bars for each label, from top to bottom."""
    for row, row_spans in enumerate(bars.values()):
        axes.broken_barh(row_spans, (len(bars) - 1 - row + 0.15, 0.7), facecolors=colour, alpha=alpha, linewidth=0)
    axes.grid(visible=False)
    axes.set_ylim(0, max(1, len(bars)))
    axes.yaxis.set_major_locator(FixedLocator([len(bars) - 0.5 - row for row in range(len(bars))]))
    axes.yaxis.set_major_formatter(FixedFormatter(list(bars)))
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.spines["left"].set_visible(False)


def spans(states: Sequence[tuple[float, Collection[str]]], name: str, end_s: float) -> list[Span]:
    """Return the time spans in which a set has a member.

    Args:
        states: start time in seconds and members of the set from then on, in order of time.
        name: the member.
        end_s: end of the last state in seconds.
    """
    bars: list[Span] = []
    ends = [*(start for start, _ in states[1:]), end_s]
    for (start, members), end in zip(states, (min(end_s, end) for end in ends), strict=False):
        if name not in members or end <= start:
            continue
        if bars and sum(bars[-1]) >= start - 1e-9:  # the set changed, but not this member
            bars[-1] = (bars[-1][0], end - bars[-1][0])
        else:
            bars.append((start, end - start))
    return bars
