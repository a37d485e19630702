"""Results of the simulation as a table, and as JSON.

The JSON is one object. Keys are stable: later versions may add some.

- ``plan``: ``{racks, rf, partitions, topics, placements, years, replications, seed}``; ``placements`` maps racks of
  replicas, the leader's first, to the number of partitions.
- ``faults``: values of the options, with their defaults and the sources of these.
- ``settings``: a list of ``{min_replicas, min_racks, elr, lower_s, rejected, by_status, alone, lowered, lost, by_cause,
  events, tail_s, rejected_less, lost_less}``, see ``pyhooks.simulation.summary``; each figure is ``{value, low, high,
  number}``, where ``low`` and ``high`` are null without an interval, and ``number`` without events.
- ``duration_s``: wall time, and ``cpu_s``: CPU time of the simulation without Spark's own.
"""

from __future__ import annotations

import json
import math
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.placement.model_report import format_probability, format_year_share
from pyhooks.simulation.failures import DEFAULTS
from pyhooks.simulation.partition_machine import Cause, GateSetting, Status
from pyhooks.simulation.replication import SimulationPlan, replica_layout
from pyhooks.simulation.summary import REJECTED, Figure, SettingSummary

CAUSES = {
    Cause.BROKERS: "individual disks destroyed",
    Cause.ONE_RACK: "a rack destroyed",
    Cause.MORE_RACKS: "several racks destroyed",
    Cause.UNFLUSHED: "not flushed when power failed",
    Cause.FORGOTTEN: "a replica has them, another was elected",
}
STATUSES = {
    Status.WAITS: "waits for a broker that is not fenced yet",
    Status.UNAVAILABLE: "no replica is available",
    Status.NO_CANDIDATE: "enough are available, none may lead",
    Status.REPLICAS: "too few replicas",
    Status.RACKS: "too few racks",
}

# keys that differ from the names of the members
JSON_KEYS = {Status.UNAVAILABLE.name: "nobody", Status.NO_CANDIDATE.name: "holder"}


@dataclass(frozen=True)
class SimulationWork:
    """Replications, wall time with the start of Spark, and CPU time of the simulation itself."""

    replications: int
    wall_s: float
    cpu_s: float


def simulation_json(
    summaries: Sequence[SettingSummary],
    plan: SimulationPlan,
    names: Sequence[str],
    options: Mapping[str, str],
    work: SimulationWork,
) -> str:
    """Return the JSON; see the module's docstring."""
    document = {
        "plan": {
            "racks": dict(zip(names, plan.racks, strict=True)),
            "rf": plan.replication_factor,
            "partitions": plan.partitions,
            "topics": plan.topics,
            "placements": _placements(plan),
            "years": work.replications * plan.counted_s / YEAR_S,
            "replications": work.replications,
            "seed": plan.seed,
        },
        "faults": [
            {
                "option": default.option,
                "value": options[default.option],
                "default": default.value,
                "source": default.source,
            }
            for default in DEFAULTS
        ],
        "settings": [_summary_dict(summary) for summary in summaries],
        "duration_s": work.wall_s,
        "cpu_s": work.cpu_s,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _placements(plan: SimulationPlan) -> dict[str, int]:
    layout = replica_layout(plan)
    partition_counts = Counter(layout.pattern.tolist())
    letters = string.ascii_lowercase
    return {
        " ".join(letters[rack] for rack in racks): partition_counts[index]
        for index, racks in enumerate(layout.patterns)
    }


def _summary_dict(summary: SettingSummary) -> dict[str, Any]:
    document = asdict(summary.setting)
    document["lower_s"] = None if math.isinf(summary.setting.lower_s) else summary.setting.lower_s
    for setting_title, value in vars(summary).items():
        if isinstance(value, Figure):
            document[setting_title] = _figure_dict(value)
        elif isinstance(value, dict):
            document[setting_title] = {
                JSON_KEYS.get(key.name, key.name.lower()): _figure_dict(figure) for key, figure in value.items()
            }
    return document | {"tail_s": summary.tail_s}


def _figure_dict(figure: Figure) -> dict[str, float | None]:
    low, high = (figure.interval.low, figure.interval.high) if figure.interval else (None, None)
    return {"value": figure.value, "low": low, "high": high, "number": figure.number}


def setting_title(setting: GateSetting) -> str:
    """Return a setting as a column title."""
    text = f"M={setting.min_replicas} R={setting.min_racks}"
    if not math.isinf(setting.lower_s):
        text += f" lowered after {setting.lower_s / 60:g} min"
    return text if setting.elr == "racks" else f"{text} elr={setting.elr}"


def print_simulation(
    console: Console, summaries: Sequence[SettingSummary], plan: SimulationPlan, work: SimulationWork
) -> None:
    """Print all figures, a column for each setting."""
    years = work.replications * plan.counted_s / YEAR_S
    console.print(
        f"{sum(plan.racks)} brokers, {plan.partitions} partitions, RF {plan.replication_factor}, {years:,.4g}"
        f" cluster-years in {work.replications} replications, seed {plan.seed}; {work.wall_s:.0f} s,"
        f" {work.cpu_s:.0f} s of CPU",
        style="bold",
        soft_wrap=True,
    )
    placements = ", ".join(f"{racks} ({number})" for racks, number in _placements(plan).items())
    console.print(plain(f"racks of replicas, the leader's first: {placements}", "dim", length_max=200), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for summary in summaries:
        table.add_column(setting_title(summary.setting), justify="right")

    def row(title: str, figures: list[Figure], text: Callable[[float], str]) -> None:
        table.add_row(title, *(_cell(figure, text) for figure in figures))

    row("acks=all is rejected or waits", [summary.rejected for summary in summaries], format_year_share)
    for status in REJECTED:
        row(f"  {STATUSES[status]}", [summary.by_status[status] for summary in summaries], format_year_share)
    row("one rack acknowledges alone", [summary.alone for summary in summaries], format_year_share)
    if any(not math.isinf(summary.setting.lower_s) for summary in summaries):
        row("R is lowered", [summary.lowered for summary in summaries], format_year_share)
    if len(summaries) > 1:
        row("rejected less than with the first setting", [summary.rejected_less for summary in summaries], _signed_time)
    row("partitions that lose records, in a year", [summary.lost for summary in summaries], _count)
    for cause, text in CAUSES.items():
        if any(summary.by_cause[cause].value for summary in summaries):
            row(f"  {text}", [summary.by_cause[cause] for summary in summaries], _count)
    row("losses of any partitions, in a year", [summary.events for summary in summaries], _count)
    console.print(table)
    console.print("below each: its interval of 95 % · times: in a year of a partition", style="dim")


def _cell(figure: Figure, format_value: Callable[[float], str]) -> Text:
    cell = format_value(figure.value)
    if figure.number is not None:
        cell += f" ({figure.number:.0f} event{'' if figure.number == 1 else 's'})" if figure.number else " (none seen)"
    if figure.interval is not None:
        cell += f"\n{format_value(figure.interval.low)} to {format_value(figure.interval.high)}"
    elif figure.too_few:
        cell += "\ntoo few for an interval"
    return Text(cell)


def _count(value: float) -> str:
    return (
        f"{value:.0f}"
        if value >= 100
        else format_probability(value)
        if value >= 0
        else f"-{format_probability(-value)}"
    )


def _signed_time(value: float) -> str:
    return f"-{format_year_share(-value)}" if value < 0 else format_year_share(value) if value else "0"
