"""Report of outages, rendered from ``results.json`` alone, so that it can be rendered again without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bench.analysis.availability import UNKNOWN
from bench.outages import outage_results
from bench.plan.outage_plan import FAULT_LABELS
from bench.report import figures, run_page
from bench.report.run_page import CAPTIONS, NONE, PNG_DPI, inline_svg, round_trip_rows
from pyhooks.core.files import evaluating, write
from pyhooks.report import pages, plots

EXPECTED = "a result of this version of 'rackgate bench outages'"
CAPTION = CAPTIONS["timeline"]


def render(result: Mapping[str, Any], out: Path) -> Path:
    """Write ``index.html``, the figures as PNG and SVG, and ``table.md``; return the path of the page.

    Args:
        result: result of ``bench.outages.outage_results.result``.
        out: folder for the files.

    Raises:
        RackgateError: the result is malformed; or the files can't be written, and an earlier report is unchanged.
    """
    with evaluating(out / "results.json", EXPECTED):
        contents = _contents(result, out)
    write(contents)
    return out / "index.html"


def _contents(result: Mapping[str, Any], out: Path) -> dict[Path, str | bytes]:
    contents: dict[Path, str | bytes] = {}
    drawn: dict[str, dict[str, Markup]] = {}
    for name, one in timelines(result):
        light = figures.timeline(one, figures.FigureStyle(plots.LIGHT))
        contents |= plots.images(light, out / name, dpi=PNG_DPI)
        drawn[name] = {
            width: inline_svg(figures.timeline(one, look), f"{name}-{width}", CAPTION)
            for width, look in (
                ("wide", figures.FigureStyle(figures.MARKED)),
                ("narrow", figures.FigureStyle(figures.MARKED, narrow=True)),
            )
        }
    return {**contents, out / "table.md": markdown(result), out / "index.html": html(result, drawn)}


def timelines(result: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each state the figure's name and contents: its first outage with a proved fault, if there is one."""
    labs = {lab["topology"]: lab for lab in result["labs"]}
    for number, state in enumerate(result["states"], 1):
        own = {tuple(state["replicas"])}
        for outage in labs[state["topology"]]["outages"]:
            numbers = outage["numbers"]
            if outage["fault"] != state["fault"] or not numbers["proved"]:
                continue
            topics = [topic for topic in numbers["topics"] if tuple(topic["replicas"]) in own]
            # refused records are acknowledged when the rack is back, possibly after the last record is sent
            acks_s = [point["s"] + 1 for topic in topics for point in topic["series"] if point["acked"]]
            length_s = max([numbers["length_s"], *acks_s])
            yield (
                f"timeline-{number}",
                {
                    "cells": [],
                    "outage": {**numbers, "topics": topics, "length_s": length_s, "number": outage["number"]},
                },
            )
            break


def html(result: Mapping[str, Any], drawn: Mapping[str, Mapping[str, Markup]]) -> str:
    """Return the page."""
    first = next((one for _, one in timelines(result)), None)
    tint = figures.colours(first, plots.LIGHT) if first else {}
    by_colour = {colour: name for name, colour in plots.LIGHT.names().items()}
    values = {
        "r": result,
        "head": HEAD,
        "tables": [rows(state) for state in result["states"]],
        "pictures": drawn,
        "drawn": {name: one["outage"]["number"] for name, one in timelines(result)},
        "caption": CAPTION,
        "series": {arm: by_colour[colour] for arm, colour in tint.items()},
        "faults": FAULT_LABELS,
        "trips": [(lab["topology"], round_trip_rows({"idle": lab["round_trips"]})) for lab in result["labs"]],
        "none_": NONE,
    }
    filters = {
        "count": lambda value: f"{value:,}",
        "ms": lambda value: figures.milliseconds(value) if value else "0",
        "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
    }
    return pages.render(Path(run_page.__file__).with_name("outages.html.j2"), values, filters)


HEAD = (
    "arm",
    "outages",
    "behaviour",
    "acked before the heal, of those intended in the outage",
    "the same in the settled outage",
    "fault to first refusal, probe",
    "fault to first refusal, broker metric",
    "heal to first ack",
    "longest time without an ack",
    "racks in its ISR",
)


def rows(state: Mapping[str, Any]) -> list[list[str]]:
    """Return one row for each arm of a state, in the columns of ``HEAD``."""
    return [
        [
            arm["label"],
            f"{arm['outages']}" + ("" if arm["proved"] == arm["outages"] else f", {arm['proved']} proved"),
            ", ".join(word if len(arm["did"]) == 1 else f"{word} ({times})" for word, times in arm["did"].items()),
            _or_none(arm["fault_share"], outage_results.percent_text),
            _or_none(arm["settled_share"], outage_results.percent_text),
            _refusal(arm, "first_refusal_probe_s"),
            _refusal(arm, "first_refusal_meter_s"),
            _again(arm),
            _or_none(arm["longest_silence_s"], outage_results.seconds_text),
            NONE if arm["fewest_racks"] is None else f"{arm['fewest_racks']}",
        ]
        for arm in state["arms"]
    ]


def _or_none(value: Mapping[str, Any] | None, words: Any) -> str:
    return NONE if value is None else str(words(value))


def _again(arm: Mapping[str, Any]) -> str:
    """Return the time from heal to first ack, and the number of outages with refusals in which there was none."""
    text = _or_none(arm["first_ack_after_heal_s"], outage_results.seconds_text)
    if never := arm.get("no_ack_after_heal"):
        return f"none in {never}" if arm["first_ack_after_heal_s"] is None else f"{text}, none in {never}"
    return text


def _refusal(arm: Mapping[str, Any], name: str) -> str:
    """Return the time to the first refusal; without one, whether that is known."""
    value = arm[name]
    if value is not None:
        missed = arm["proved"] - value["outages"]
        return outage_results.seconds_text(value) + (f", none in {missed}" if missed else "")
    if not arm["proved"] or (name == "first_refusal_meter_s" and arm["meter_unknown"]):
        return UNKNOWN
    return "no refusal"


def markdown(result: Mapping[str, Any]) -> str:
    """Return the tables, with the text that explains them, as Markdown."""
    manifest = result["manifest"]
    lines = [
        f"Rack outages with `min.insync.racks`, Kafka {manifest['versions']['kafka']}, run {manifest['run_id']}:"
        f" `{manifest['command']}`. {intervals(result)}",
        "",
        "| state | " + " | ".join(HEAD) + " |",
        "|" + "---|" * (len(HEAD) + 1),
    ]
    for state in result["states"]:
        lines += [f"| {state['text']} | " + " | ".join(row) + " |" for row in rows(state)]
    if result["destructions"]:
        lines += ["", "| a rack destroyed | arm | acknowledged | read back | lost |", "|---|---|---|---|---|"]
    for one in result["destructions"]:
        where = f"{one['placement']}: {one['destroyed']} destroyed while {one['away']} was {FAULT_LABELS[one['way']]}"
        lines += [
            f"| {where} | {row['label']} | {_count(row['acked'])} | {_count(row['read'])} |"
            f" {UNKNOWN if row['lost'] is None else _count(row['lost'])} |"
            for row in one["topics"]
        ]
    return "\n".join([*lines, ""])


def intervals(result: Mapping[str, Any]) -> str:
    """Return the explanation of the intervals."""
    return (
        f"In brackets {result['confidence']:.0%} intervals (Student's t) over outages, each counted as one value;"
        " there is none for a single outage, or for equal values (in 3 of 3)."
    )


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"
