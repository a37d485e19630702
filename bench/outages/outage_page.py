"""Report of outages, rendered from ``results.json`` alone, so that it can be rendered again without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bench.analysis.availability import UNKNOWN
from bench.outages import outage_results
from bench.plan.outage_plan import FAULT_LABELS
from bench.report import figures, run_page
from bench.report.availability_table import NONE
from bench.report.cell_table import markdown_table
from bench.report.run_page import round_trip_rows
from pyhooks.core.files import evaluating, write
from pyhooks.report import pages

EXPECTED = "a result of this version of 'rackgate bench outages'"


def render(result: Mapping[str, Any], out: Path) -> Path:
    """Write ``index.html``, the figures as PNG and SVG, and ``table.md``; return the path of the page."""
    with evaluating(out / "results.json", EXPECTED):
        pictures = {name: partial(figures.timeline, outage) for name, outage in timelines(result).items()}
        files, inline = run_page.draw(pictures, out)
        texts = {out / "table.md": markdown(result), out / "index.html": html(result, inline)}
    write({**files, **texts})
    return out / "index.html"


def timelines(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the contents of a figure for each state, by its name: the first outage with a proved fault, if any."""
    pictures: dict[str, dict[str, Any]] = {}
    labs = {lab["name"]: lab for lab in result["labs"]}
    for number, state in enumerate(result["states"], 1):
        for outage in labs[state["lab"]]["outages"]:
            numbers = outage["numbers"]
            if outage["fault"] != state["fault"] or not numbers["proved"]:
                continue
            topics = [topic for topic in numbers["topics"] if topic["replicas"] == state["replicas"]]
            # rejected records are acknowledged when the rack is back, possibly after the last record is sent
            acks_s = [point["s"] + 1 for topic in topics for point in topic["series"] if point["acked"]]
            length_s = max([numbers["length_s"], *acks_s])
            shown = {**numbers, "topics": topics, "length_s": length_s, "number": outage["number"]}
            pictures[f"timeline-{number}"] = {"cells": [], "outage": shown}
            break
    return pictures


def html(result: Mapping[str, Any], inline: Mapping[str, Mapping[str, Markup]]) -> str:
    """Return the page."""
    shown = timelines(result)
    values = {
        "r": result,
        "head": HEAD,
        "tables": [rows(state) for state in result["states"]],
        "pictures": inline,
        "drawn": {name: timeline["outage"]["number"] for name, timeline in shown.items()},
        "caption": run_page.CAPTIONS["timeline"],
        "series": run_page.series_names(next(iter(shown.values()))) if shown else {},
        "faults": FAULT_LABELS,
        "trips": [(lab["name"], round_trip_rows({"idle": lab["round_trips"]})) for lab in result["labs"]],
        "none_": NONE,
    }
    return pages.render(Path(run_page.__file__).with_name("outages.html.j2"), values, run_page.FILTERS)


HEAD = (
    "arm",
    "outages",
    "behaviour",
    "acked before the heal, of those intended in the outage",
    "the same in the settled outage",
    "fault to first rejection, probe",
    "fault to first rejection, broker metric",
    "heal to first ack",
    "probe before the fault: median, longest",
    "probe while the returned rack catches up: median, longest",
    "longest time without an ack",
    "racks in its ISR",
)


def rows(state: Mapping[str, Any]) -> list[list[str]]:
    """Return one row for each arm of a state, in the columns of ``HEAD``."""
    return [
        [
            arm["label"],
            f"{arm['outages']}" + ("" if arm["proved"] == arm["outages"] else f", {arm['proved']} proved"),
            ", ".join(did if len(arm["did"]) == 1 else f"{did} ({times})" for did, times in arm["did"].items()),
            _text(arm["fault_share"], outage_results.percent_text),
            _text(arm["settled_share"], outage_results.percent_text),
            _rejection(arm, "first_rejection_probe_s"),
            _rejection(arm, "first_rejection_meter_s"),
            _first_ack(arm),
            _pair(arm["before_p50_ms"], arm["before_max_ms"]),
            _pair(arm["catch_up_p50_ms"], arm["catch_up_max_ms"]),
            _text(arm["longest_silence_s"], outage_results.seconds_text),
            NONE if arm["fewest_racks"] is None else f"{arm['fewest_racks']}",
        ]
        for arm in state["arms"]
    ]


def _text(value: Mapping[str, Any] | None, format_value: Callable[[Mapping[str, Any]], str]) -> str:
    return NONE if value is None else format_value(value)


def _pair(median_ms: Mapping[str, Any] | None, longest_ms: Mapping[str, Any] | None) -> str:
    return "; ".join(_text(value, outage_results.ms_text) for value in (median_ms, longest_ms))


def _first_ack(arm: Mapping[str, Any]) -> str:
    """Return the time from heal to first ack, and the number of outages with rejections in which there was none."""
    text = _text(arm["first_ack_after_heal_s"], outage_results.seconds_text)
    if never := arm.get("no_ack_after_heal"):
        return f"none in {never}" if arm["first_ack_after_heal_s"] is None else f"{text}, none in {never}"
    return text


def _rejection(arm: Mapping[str, Any], name: str) -> str:
    """Return the time to the first rejection; without one, whether that is known."""
    value = arm[name]
    if value is not None:
        missed = arm["proved"] - value["outages"]
        return outage_results.seconds_text(value) + (f", none in {missed}" if missed else "")
    if not arm["proved"] or (name == "first_rejection_meter_s" and arm["meter_unknown"]):
        return UNKNOWN
    return "no rejection"


def markdown(result: Mapping[str, Any]) -> str:
    """Return the tables, with the text that explains them, as Markdown."""
    manifest = result["manifest"]
    lines = [
        f"Rack outages with `min.insync.racks`, Kafka {manifest['versions']['kafka']}, run {manifest['run_id']}:"
        f" `{manifest['command']}`. Each outage is one value. Fewer than five are counted (in 3 of 3), with the"
        f" smallest and the largest value; in brackets {result['confidence']:.0%} intervals (Student's t) over more.",
        "",
        *markdown_table(("state", *HEAD), ([state["text"], *row] for state in result["states"] for row in rows(state))),
    ]
    if result["destructions"]:
        head = ("a rack destroyed", "arm", "acknowledged", "read back", "lost")
        body = [_destruction_row(each, topic) for each in result["destructions"] for topic in each["topics"]]
        lines += ["", *markdown_table(head, body)]
    return "\n".join([*lines, ""])


def _destruction_row(destruction: Mapping[str, Any], topic: Mapping[str, Any]) -> list[str]:
    how = FAULT_LABELS[destruction["fault"]]
    racks = f"{destruction['destroyed']} destroyed while {destruction['unavailable_rack']} was {how}"
    lost = UNKNOWN if topic["lost"] is None else _count(topic["lost"])
    return [f"{destruction['placement']}: {racks}", topic["label"], _count(topic["acked"]), _count(topic["read"]), lost]


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"
