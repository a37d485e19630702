"""Table of the cells of a result, for the report and as Markdown, and the number of cells with each verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.analysis import verdicts
from bench.analysis.verdicts import interval_text, ratio_text
from bench.plan.cell_setting import CLIENT_LABELS, SIZE_LABELS
from bench.plan.cluster_states import STATES
from bench.report import availability_table
from bench.report.availability_table import NONE

# Differences come first. "no latency" is for a cell in which an arm rejects.
NO_LATENCY = "no latency"
VERDICTS = ("slower", "faster", "equivalent", "undecided", NO_LATENCY)
DIFFERENT = ("slower", "faster")

HEAD = (
    "cell",
    "state",
    "link",
    "load, % of what a connection carries",
    "record, linger, client",
    "against M=3",
    "p50: ratio, verdict",
    "p99: ratio, verdict",
    "smallest detectable ratio, p50 / p99",
    "median pacer lateness",
)


def rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return one row for each cell and candidate, in the columns of ``HEAD``."""
    table = []
    for cell in result["cells"]:
        candidates = list(dict.fromkeys(row["arm"] for row in cell["comparisons"] if not row["is_control"]))
        labels = arm_labels(cell)
        for arm in candidates:
            by_name = {row["at"]: row for row in cell["comparisons"] if row["arm"] == arm}
            table.append(
                [
                    *_setting(cell),
                    labels.get(arm, arm) + _against(by_name["p50"], result, labels),
                    _verdict(by_name["p50"], cell),
                    _verdict(by_name["p99"], cell),
                    " / ".join(_detectable(by_name[name]) for name in ("p50", "p99")),
                    _late(cell, arm),
                ]
            )
    return table


def _against(row: Mapping[str, Any], result: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the arm that a comparison is against, if it differs from that of the first cell; else an empty text."""
    usual = result["cells"][0]["comparisons"][0]["against"]
    against = row["against"]
    return "" if against == usual else f" (to {labels.get(against, against)})"


def arm_labels(cell: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a cell's arms, by their ids."""
    return {arm["arm"]: arm["label"] for arm in cell["arms"]}


def rejecting_arms(arms: Sequence[str]) -> str:
    """Format rejecting arms, such as "A rejects" or "A, A' and B reject"; "no arm rejects" without any."""
    if len(arms) < 2:
        return f"{arms[0] if arms else 'no arm'} rejects"
    return f"{', '.join(arms[:-1])} and {arms[-1]} reject"


def _setting(cell: Mapping[str, Any]) -> list[str]:
    setting = cell["setting"]
    rate = cell.get("findings", {}).get("rate_per_s")
    load = f"{rate:,.0f}/s" if rate else ""
    if setting["load_percent"]:
        load = f"{setting['load_percent']} %" + (f" = {load}" if load else "")
    if partitions := setting.get("partitions"):
        load += f", {partitions} partitions"
    client = CLIENT_LABELS[setting["client"]]
    record = f"{SIZE_LABELS[setting['record_bytes']]}, {setting['linger_ms']} ms, {client}"
    return [cell["cell"], STATES[cell["state"]].text, setting["link"], load or NONE, record]


def _verdict(row: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    if row["rejected"]:
        labels = arm_labels(cell)
        return f"no latency: {rejecting_arms([labels.get(arm, arm) for arm in row['rejected']])}"
    return verdict_text(row)


def verdict_text(row: Mapping[str, Any]) -> str:
    """Format ratio and verdict of a comparison."""
    if row["ratio"] is None:
        return f"undecided ({row['reason']})"
    verdict = "not judged" if row["reason"] == "not judged" else row["verdict"]
    reason = f" ({row['reason']})" if verdict == "undecided" else ""
    return f"{interval_text(row['ratio'])}, {verdict}{reason}"


def _detectable(row: Mapping[str, Any]) -> str:
    return NONE if row["detectable_ratio"] is None else ratio_text(row["detectable_ratio"])


def _late(cell: Mapping[str, Any], arm: str) -> str:
    late = next((entry["pacer_late_ms"] for entry in cell["arms"] if entry["arm"] == arm), None)
    return NONE if late is None else f"{late['p50']:.2g} ms"


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table, with the text that explains it, as Markdown."""
    manifest = result["manifest"]
    lines = [
        f"Produce latency with `min.insync.racks`, Kafka {manifest['versions']['kafka']}, run {manifest['run_id']}:"
        f" `{manifest['command']}`.",
        "",
        *markdown_table(HEAD, rows(result)),
        "",
    ]
    first = result["cells"][0]
    margins_ms = first.get("margins_ms", {})
    bands = ", ".join(
        f"±{band:.0%}{f' and ±{margins_ms[name]:g} ms' if margins_ms else ''} at {name}"
        for name, band in first["bands"].items()
    )
    lines += [
        f"Ratios to M=3 with {first['confidence']:.0%} intervals over blocks; equivalent within {bands}. All verdicts"
        f" of the run are one family of {first['family']} comparisons. Where two equal arms, the control, are not shown"
        " to be equivalent, the verdict is undecided.",
        "",
        "Availability: records that were acknowledged before the client gave them up, however long they waited. The"
        " first rejection is that of a probe without retries, one for each topic.",
        "",
        *markdown_table(availability_table.HEAD, [arm.row for arm in availability_table.arm_availabilities(result)]),
        "",
    ]
    return "\n".join(lines)


def markdown_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body),
    ]


def count_verdicts(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the latency verdicts, counted over cells; nothing for a run of one cell, which has few verdicts.

    Returns:
        For each candidate, arm that it is compared with, and judged quantile: ``subject``, ``verdict`` such as
        "equivalent in 7 cells, undecided in 3", ``text`` with the names of the cells, and ``mark``: a difference in any
        cell, else the verdict of all cells with a latency, or "mixed".
    """
    cells = result["cells"]
    if len(cells) < 2:
        return []
    groups: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for cell in cells:
        labels = arm_labels(cell)
        for row in cell["comparisons"]:
            if row["is_control"] or row["at"] not in cell["judged"]:
                continue
            arm, against = (labels.get(row[key], row[key]) for key in ("arm", "against"))
            rejecting = rejecting_arms([labels.get(rejected, rejected) for rejected in row["rejected"]])
            verdict, reason = (
                (NO_LATENCY, rejecting) if row["reason"] == "rejected" else (row["verdict"], row["reason"])
            )
            groups.setdefault((arm, against, row["at"]), []).append((verdict, reason, cell["cell"]))
    return [_count(key, members) for key, members in groups.items()]


def verdict_lines(result: Mapping[str, Any]) -> list[str]:
    """Return all verdicts of a result for a terminal; with several cells also the counts of the latency verdicts."""
    return verdicts.lines([*result["verdicts"], *count_verdicts(result)])


def _count(key: tuple[str, str, str], members: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    arm, against, at = key
    cells = {
        verdict: cases
        for verdict in VERDICTS
        if (cases := [(reason, cell) for member, reason, cell in members if member == verdict])
    }
    with_latency = [verdict for verdict in cells if verdict != NO_LATENCY]
    # a difference in one cell must not be overlooked beside eleven cells without one
    different = next((verdict for verdict in with_latency if verdict in DIFFERENT), None)
    first, *further = [f"{verdict} in {len(cases)}" for verdict, cases in cells.items()]
    unit = "cell" if len(next(iter(cells.values()))) == 1 else "cells"
    return {
        "subject": f"{arm} against {against}, {at}",
        "verdict": ", ".join([f"{first} {unit}", *further]),
        "text": " ".join(_cells_text(verdict, cases) for verdict, cases in cells.items()),
        "mark": different or (with_latency[0] if len(with_latency) == 1 else "mixed"),
    }


def _cells_text(verdict: str, cases: Sequence[tuple[str, str]]) -> str:
    names = [cell for _, cell in cases]
    if verdict in ("undecided", NO_LATENCY):
        by_reason: dict[str, list[str]] = {}
        for reason, cell in cases:
            by_reason.setdefault(reason, []).append(cell)
        names = [f"{', '.join(cells)} ({reason})" for reason, cells in by_reason.items()]
    return f"{verdict.capitalize()}: {', '.join(names)}."
