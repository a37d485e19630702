"""Report of a run, rendered from ``results.json`` alone, so that it can be rendered again without a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from bench import run_conditions
from bench.analysis import verdicts
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.report import availability_table, cell_table, figures
from bench.report.availability_table import NONE
from bench.report.figures import FigureStyle
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_json, write
from pyhooks.report import pages, plots

PNG_DPI = 200
# Results of it were judged by earlier rules, and keep their verdicts.
OLDEST_SCHEMA = 4
EXPECTED = "a result of this version of 'rackgate bench run'"
# Printed under each figure, and read by screen readers in its place.
CAPTIONS = {
    "answer": (
        "Median produce latency of each arm: the range that each hypothesis predicts, and the measurement (dot: median "
        "of the blocks, line: lowest to highest block). A prediction is the median with acks=1 plus one to two round "
        "trips to the slowest follower that the leader would wait for."
    ),
    "percentiles": (
        "Produce latency by percentile, counted from the intended send time. Shaded: the interval from resampled "
        "blocks. Curves end where too few observations lie beyond."
    ),
    "blocks": (
        "Latency of each arm divided by the baseline's of the same block. The control compares two topics with the "
        "same settings, so it shows the noise. Triangles lie outside the axes."
    ),
    "overview": (
        "Latency of each arm divided by the baseline's, cell by cell, with its interval; behind it the equivalence"
        " band. "
        "Hollow: a quantile that the plan does not judge in this cell. Squares: the control, two equal arms."
    ),
    "timeline": (
        "Acknowledgements per second. Grey: the rack is unavailable. Dashed: the intended rate. Crosses: rejections of "
        "the probe without retries. Below each: racks of the topic's ISR."
    ),
}


def load(path: Path) -> dict[str, Any]:
    """Read a stored result, given the path of ``results.json`` or of its folder.

    Raises:
        RackgateError: the file is missing, or is not a result of this version.
    """
    file = path / "results.json" if path.is_dir() else path
    result = read_json(file, "run 'rackgate bench run' first")
    schema = result.get("schema") if isinstance(result, dict) else None
    if type(schema) is not int or not isinstance(result.get("cells"), list):
        raise RackgateError(f"{file}: not a result of the benchmark")
    if not OLDEST_SCHEMA <= schema <= SCHEMA_VERSION:
        age = "an earlier" if schema < OLDEST_SCHEMA else "a later"
        raise RackgateError(
            f"{file}: has {age} schema, {schema}; this version reads {OLDEST_SCHEMA} to {SCHEMA_VERSION}: measure again"
            " with 'rackgate bench run', or use the version that wrote it"
        )
    return dict(result)


def render(result: Mapping[str, Any], out: Path, *, source: Path | None = None) -> Path:
    """Write ``index.html``, the figures (PNG and SVG) and ``table.md``; return the path of the page.

    Errors name ``source``, the path of the result.

    Raises:
        RackgateError: the result is malformed; or the files can't be written, and an earlier report is unchanged.
    """
    with evaluating(source or out / "results.json", EXPECTED):
        files, inline = draw(figures.pictures(result), out)
        texts = {out / "table.md": cell_table.markdown(result), out / "index.html": html(result, inline)}
    write({**files, **texts})
    return out / "index.html"


def draw(
    pictures: Mapping[str, Callable[[FigureStyle], Figure]], out: Path
) -> tuple[dict[Path, bytes], dict[str, dict[str, Markup]]]:
    """Draw figures; return their PNG and SVG files in ``out``, and each as inline SVG in two widths.

    The part of a figure's name before the first dash is the key of its caption.
    """
    files: dict[Path, bytes] = {}
    inline: dict[str, dict[str, Markup]] = {}
    styles = {"wide": FigureStyle(figures.MARKED), "narrow": FigureStyle(figures.MARKED, narrow=True)}
    for name, picture in pictures.items():
        files |= plots.images(picture(FigureStyle(plots.LIGHT)), out / name, dpi=PNG_DPI)
        caption = CAPTIONS[name.split("-", 1)[0]]
        inline[name] = {
            width: inline_svg(picture(style), f"{name}-{width}", caption) for width, style in styles.items()
        }
    return files, inline


def inline_svg(figure: Any, name: str, caption: str) -> Markup:
    """Return a figure as SVG for use inside a page: its colours are CSS variables, its ids start with ``name``."""
    text = plots.svg(figure, transparent=True)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for variable, colour in figures.MARKED.names().items():
        text = re.sub(f"{colour}\\b", f"var(--{variable})", text)
    # The figures of a page share one namespace of ids.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    text = re.sub("'?DejaVu Sans'?", "system-ui, sans-serif", text)
    label = caption.replace('"', "")
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704 - drawn by us


def html(result: Mapping[str, Any], inline: Mapping[str, Mapping[str, Markup]]) -> str:
    """Return the page."""
    values = {
        "r": result,
        "pictures": inline,
        "captions": CAPTIONS,
        "many": len(result["cells"]) > 1,
        "overview": cell_table.rows(result),
        "summary": cell_table.count_verdicts(result),
        "head": cell_table.HEAD,
        **pooled_table(result),
        "outcomes": availability_table.arm_availabilities(result),
        "outcomes_head": availability_table.HEAD,
        "series": series_names(result),
        "instruments": instrument_rows(result),
        "usage": usage_rows(result["usage"]),
        "round_trips": round_trip_rows(result["manifest"]["round_trips"]),
        "none_": NONE,
    }
    return pages.render(Path(__file__).with_name("run.html.j2"), values, FILTERS)


def pooled_table(result: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return head and rows of the table of pooled runs: each run's ratio and the pooled one; empty without them."""
    pooled = result.get("pooled")
    if not pooled:
        return {"pooled_head": [], "pooled_rows": []}
    ids = [run["run_id"] for run in pooled["runs"]]
    rows = [
        [
            cell["cell"],
            row["arm"] + {"control": " (control)", "positive": " (positive control)"}.get(row["role"], ""),
            row["at"],
            *(cell_table.verdict_text(single) for single in row["runs"]),
            cell_table.verdict_text(row),
            str(row["blocks"]),
        ]
        for cell in pooled["cells"]
        for row in cell["comparisons"]
    ]
    return {"pooled_head": ["cell", "arm", "at", *ids, "pooled", "blocks"], "pooled_rows": rows}


def usage_rows(usage: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row per kind of process, with its usage in each phase, or None where it did not run."""
    by_phase = [{row["kind"]: row for row in rows} for rows in usage.values()]
    kinds = sorted({kind for rows in by_phase for kind in rows}, key=lambda kind: (kind == "machine", kind))
    return [
        {
            "kind": kind,
            "processes": max(rows[kind]["processes"] for rows in by_phase if kind in rows),
            "phases": [rows.get(kind) for rows in by_phase],
        }
        for kind in kinds
    ]


def instrument_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per cell, instrument and arm, with the load's own median beside that of the perf test."""
    rows = []
    for cell in result["cells"]:
        arms = {arm["arm"]: arm for arm in cell["arms"]}
        for arm, measured in cell["findings"].get("instruments", {}).items():
            for instrument, numbers in measured.items():
                client = arms[arm]["client_percentiles_ms"]["p50"] if instrument == "producer-perf-test" else None
                label = arms[arm]["label"]
                # earlier results have a single run
                p50_ms = [run["p50_ms"] for run in numbers.get("runs", [])]
                extent = f" ({FILTERS['ms'](min(p50_ms))} to {FILTERS['ms'](max(p50_ms))})" if len(p50_ms) > 1 else ""
                rows.append(
                    {"cell": cell["cell"], "arm": arm, "label": label, "instrument": instrument, **numbers}
                    | {"client_p50_ms": client, "p50_range": extent}
                )
    return sorted(rows, key=lambda row: (row["cell"], row["instrument"]))


def round_trip_rows(round_trips: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row per pair of places, with the measurement in each state, or None."""
    by_state = [{(row["source"], row["target"]): row for row in rows} for rows in round_trips.values()]
    pairs = dict.fromkeys(pair for rows in by_state for pair in rows)
    return [{"source": pair[0], "target": pair[1], "states": [rows.get(pair) for rows in by_state]} for pair in pairs]


FILTERS: Mapping[str, Callable[[Any], str]] = {
    "ms": lambda value: NONE if value is None else figures.milliseconds(value) if value else "0",
    "ratio": verdicts.ratio_text,
    "difference": lambda interval: NONE if interval is None else verdicts.difference_text(interval),
    "differences": run_conditions.differences_text,
    "count": lambda value: f"{value:,}",
    "seconds": lambda value: NONE if value is None else f"{value:.1f} s",
    "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
}


def series_names(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the CSS variable of each arm's colour."""
    by_colour = {colour: name for name, colour in plots.LIGHT.names().items()}
    return {arm: by_colour[colour] for arm, colour in figures.colours(result, plots.LIGHT).items()}
