"""HTML page of a run: a grid of tests and topologies, a timeline picture of each test, and reasons for failures.

The page is rendered from the files of the run alone, so it can be rendered again; see ``ducktape_tests.results``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ducktape_tests import results
from ducktape_tests.report import timeline, timeline_picture
from ducktape_tests.report.display import minutes
from ducktape_tests.results import Result
from pyhooks.core import files, targets
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.report import pages

PICTURES = "pictures"
MAX_FIGURES = 40
EXPECTED = "a run of this version of 'rackgate system run'"


def render(run_dir: Path) -> dict[str, Any]:
    """Judge a run, write ``results.json``, the pictures and ``index.html``, and return the content of the first.

    Raises:
        RackgateError: the folder has no run.
    """
    if not (run_dir / results.RUN).is_file():
        raise RackgateError(f"{run_dir}: contains no run of system tests; 'rackgate system run' writes one")
    file = run_dir / results.RUN
    run = results.read_json(file)
    if not isinstance(run, dict) or run.get("schema") != results.SCHEMA:
        raise RackgateError(f"{file}: not a run of this version")
    with files.evaluating(file, EXPECTED):
        judged = results.judge(run_dir, results.planned(run))
        document = results.document(run, judged)
    for result, entry in zip(judged, document["results"], strict=True):
        entry["picture"], entry["picture_problem"] = draw(run_dir, result)
    with files.evaluating(file, EXPECTED):
        page = html(document)
    files.write({run_dir / results.RESULTS: files.json_text(document), run_dir / "index.html": page})
    return document


def draw(run_dir: Path, result: Result) -> tuple[str, str]:
    """Draw the timeline of a test, unless a picture exists that is newer than its history and the drawing code.

    Returns:
        The picture's path relative to the run, or empty; and why there is no picture, or empty.
    """
    history = run_dir / result.folder / "history.jsonl"
    if not result.folder or not history.is_file():
        return "", "no history"
    picture = run_dir / PICTURES / f"{result.folder.replace('/', '.')}.svg"
    sources = (history, Path(timeline.__file__), Path(timeline_picture.__file__))
    if not picture.is_file() or picture.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        try:
            with files.evaluating(history, "a history that can be drawn"):
                content = timeline.read(History(history).events())
        except RackgateError as error:
            return "", f"invalid history: {error}"
        files.write_text(picture, timeline_picture.svg(content, result.id))
    return picture.relative_to(run_dir).as_posix(), ""


def html(document: Mapping[str, Any]) -> str:
    """Render the page."""
    rows, topologies = grid(document["results"])
    values = {
        "r": document,
        "rows": rows,
        "topologies": topologies,
        "outcomes": results.OUTCOMES,
        "target_text": targets.of_run_text,
        "figures": figure_rows,
        "repeat": lambda result: f"rackgate system run {shlex.quote(result['id'])} {document['options']}",
    }
    return pages.render(Path(__file__).with_name("page.html.j2"), values, {"minutes": minutes})


def grid(entries: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows and columns of the grid; tests with the same name on several topologies share a row.

    Returns:
        Rows and topologies. A row has its name, the file name if the row is the first of a file, and its cells: the
        numbers of results by topology.
    """
    topologies = sorted({str(result["topology"]) for result in entries})
    cells: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, result in enumerate(entries):
        cell = cells.setdefault(row_of(str(result["id"])), {name: [] for name in topologies})
        cell[str(result["topology"])].append(number)
    rows, previous = [], ""
    for (file, name), by_topology in cells.items():
        rows.append({"file": file if file != previous else "", "name": name, "cells": by_topology})
        previous = file
    return rows, topologies


def row_of(test_id: str) -> tuple[str, str]:
    """Return the file of a test, and the test's name in plain text."""
    name, _, parameters = test_id.partition("@")
    file, _, rest = name.partition("::")
    text = rest.rpartition(".")[2].removeprefix("test_").replace("_", " ")
    # The id of an unplanned test ends with its name in ducktape, after the parameters.
    with suppress(ValueError):
        text += " " + ", ".join(f"{key}={value(item)}" for key, item in json.loads(parameters).items())
    return file.removesuffix("_test.py"), text


def figure_rows(figures: Any, name: str = "") -> list[tuple[str, str]]:
    """Return names and values of measured figures as a flat list, truncated if there are many."""
    rows: list[tuple[str, str]] = []
    if isinstance(figures, Mapping):
        for key, item in figures.items():
            rows += figure_rows(item, f"{name}.{key}" if name else str(key))
    elif isinstance(figures, list) and any(isinstance(item, Mapping | list) for item in figures):
        for number, item in enumerate(figures):
            rows += figure_rows(item, f"{name}[{number}]")
    else:
        rows.append((name, ", ".join(map(value, figures)) if isinstance(figures, list) else value(figures)))
    if not name and len(rows) > MAX_FIGURES:
        return [*rows[:MAX_FIGURES], ("…", f"{len(rows) - MAX_FIGURES} more in results.json")]
    return rows


def value(figure: Any) -> str:
    """Format a number without needless digits, or any other value as text."""
    if figure is None:
        return "\N{EN DASH}"
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"
    return f"{figure:,}" if isinstance(figure, int) else str(figure)
