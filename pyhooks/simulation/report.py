"""What the simulation found, for people and as JSON for programs.

The JSON is one object. Keys are stable: later versions may add some.

- ``plan``: ``{racks, rf, partitions, topics, placements, years, replications, seed, rare, drawn_more_often}``;
  ``placements`` maps racks of replicas, the leader's first, to how many partitions have them.
- ``faults``: the options as they were given or by default, with the source of each default.
- ``settings``: a list of ``{min_replicas, min_racks, elr, lower_s, refused, by_status, alone, lowered, lost, by_cause,
  events, tail_s, refused_less, lost_less}``; each figure is ``{value, low, high, number}``, an interval of 95 %, where
  ``low`` and ``high`` are null if nothing varied, or if ``number`` is below 20: of the events that ``lost`` and the
  like are told from, with ``--rare`` their effective sample size, null of others. ``refused`` and the like are
  fractions of partition-time, ``lost`` and the like partitions in a year of the cluster, ``events`` in the same. With
  ``--rare`` only ``lost`` and ``by_cause`` and ``lost_less`` are told, the others are null.
- ``took_s``: on the wall, and ``cpu_s``: CPU time of the simulation itself, without Spark's own.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.placement.model_report import chance, of_a_year
from pyhooks.simulation.failures import DEFAULTS
from pyhooks.simulation.machine_script import Cause, Setting, Status
from pyhooks.simulation.replication import Plan, layout
from pyhooks.simulation.summary import LEAST, REFUSED, Figure, Judged

CAUSES = {
    Cause.BROKERS: "disks one by one",
    Cause.ONE_RACK: "a rack destroyed",
    Cause.MORE_RACKS: "more racks destroyed",
    Cause.UNFLUSHED: "not flushed when power failed",
    Cause.FORGOTTEN: "a replica has them, another was elected",
}
STATUSES = {
    Status.WAITS: "waits for one that is not known to be away",
    Status.NOBODY: "no replica is there",
    Status.HOLDER: "enough are there, none that may lead",
    Status.REPLICAS: "too few replicas",
    Status.RACKS: "too few racks",
}
FEW_EFFECTIVE = (
    f"below an effective sample size of {LEAST} there is no interval, and what is told may be far too low; more --years"
    " give more"
)


@dataclass(frozen=True)
class Took:
    """What it took.

    Attributes:
        replications: how many.
        wall_s: on the wall, Spark's start included.
        cpu_s: CPU time of the simulation itself.
    """

    replications: int
    wall_s: float
    cpu_s: float


def simulated_json(
    judged: Sequence[Judged], plan: Plan, names: Sequence[str], given: Mapping[str, str], took: Took
) -> str:
    """See the module."""
    told = {
        "plan": {
            "racks": dict(zip(names, plan.racks, strict=True)),
            "rf": plan.factor,
            "partitions": plan.partitions,
            "topics": plan.topics,
            "placements": _placements(plan),
            "years": took.replications * plan.counts_s / YEAR_S,
            "replications": took.replications,
            "seed": plan.seed,
            "rare": plan.biased is not None,
            "drawn_more_often": None if plan.biased is None else asdict(plan.biased),
        },
        "faults": [
            {
                "option": one.option,
                "value": given.get(one.option, one.value),
                "default": one.value,
                "source": one.source,
            }
            for one in DEFAULTS
        ],
        "settings": [_judged(one, rare=plan.biased is not None) for one in judged],
        "took_s": took.wall_s,
        "cpu_s": took.cpu_s,
    }
    return json.dumps(told, indent=1, allow_nan=False)


def _placements(plan: Plan) -> dict[str, int]:
    found = layout(plan)[1]
    number = Counter(found.pattern.tolist())
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {" ".join(letters[rack] for rack in racks): number[one] for one, racks in enumerate(found.patterns)}


def _judged(one: Judged, *, rare: bool) -> dict[str, Any]:
    setting = one.setting
    told: dict[str, Any] = {
        "min_replicas": setting.min_replicas,
        "min_racks": setting.min_racks,
        "elr": setting.elr,
        "lower_s": None if math.isinf(setting.lower_s) else setting.lower_s,
    }
    for name in ("refused", "alone", "lowered", "events", "refused_less"):
        told[name] = None if rare else _figure(getattr(one, name))
    told["by_status"] = None if rare else {each.name.lower(): _figure(one.by_status[each]) for each in REFUSED}
    told["by_cause"] = {each.name.lower(): _figure(one.by_cause[each]) for each in Cause}
    told["lost"], told["lost_less"], told["tail_s"] = _figure(one.lost), _figure(one.lost_less), one.tail_s
    return told


def _figure(one: Figure | None) -> dict[str, float | None] | None:
    if one is None:
        return None
    low, high = (one.interval.low, one.interval.high) if one.interval else (None, None)
    return {"value": one.value, "low": low, "high": high, "number": one.number}


def name(setting: Setting) -> str:
    """A setting in words."""
    told = f"M={setting.min_replicas} R={setting.min_racks}"
    if not math.isinf(setting.lower_s):
        told += f" lowered after {setting.lower_s / 60:g} min"
    return told if setting.elr == "racks" else f"{told} elr={setting.elr}"


def print_simulated(console: Console, judged: Sequence[Judged], plan: Plan, took: Took) -> None:
    """All of it, a column for each setting."""
    years = took.replications * plan.counts_s / YEAR_S
    placements = ", ".join(f"{racks} ({number})" for racks, number in _placements(plan).items())
    console.print(
        Text(
            f"{sum(plan.racks)} brokers, {plan.partitions} partitions, RF {plan.factor}, {years:,.4g} cluster-years in"
            f" {took.replications} replications, seed {plan.seed}; {took.wall_s:.0f} s, {took.cpu_s:.0f} s of CPU",
            style="bold",
        ),
        soft_wrap=True,
    )
    console.print(plain(f"racks of replicas, the leader's first: {_cut(placements)}", "dim"), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for one in judged:
        table.add_column(name(one.setting), justify="right")
    if plan.biased is None:
        _shares(table, judged)
    else:
        _row(table, "partitions that lose records, in a year", [one.lost for one in judged], _number, rare=True)
    for cause, words in CAUSES.items():
        if any(one.by_cause[cause].value for one in judged):
            _row(table, f"  {words}", [one.by_cause[cause] for one in judged], _number, rare=plan.biased is not None)
    if plan.biased is None:
        _row(table, "times that any do, in a year", [one.events for one in judged], _number)
    console.print(table)
    console.print("below each: its interval of 95 % · shares of time: how long in a year of a partition", style="dim")
    if plan.biased is not None:
        drawn = ", ".join(f"{kind} {times:.3g}" for kind, times in asdict(plan.biased).items())
        console.print(f"drawn more often than they happen, by: {drawn}; each loss weighs less in return", style="dim")
        console.print(FEW_EFFECTIVE, style="dim")


def _shares(table: Table, judged: Sequence[Judged]) -> None:
    _row(table, "acks=all is not taken", [one.refused for one in judged], of_a_year)
    for status, words in STATUSES.items():
        _row(table, f"  {words}", [one.by_status[status] for one in judged], of_a_year)
    _row(table, "one rack acknowledges alone", [one.alone for one in judged], of_a_year)
    if any(not math.isinf(one.setting.lower_s) for one in judged):
        _row(table, "R is lowered", [one.lowered for one in judged], of_a_year)
    if len(judged) > 1:
        _row(table, "not taken, less than with the first", [one.refused_less for one in judged], _signed)
    _row(table, "partitions that lose records, in a year", [one.lost for one in judged], _number)


def _row(table: Table, words: str, figures: Sequence[Figure | None], text: Any, *, rare: bool = False) -> None:
    cells = []
    for one in figures:
        if one is None:
            cells.append("")
            continue
        cell = text(one.value) + _told_from(one, rare=rare)
        if one.interval is not None:
            cell += f"\n{text(one.interval.low)} to {text(one.interval.high)}"
        elif one.too_few:
            cell += "\ntoo few for an interval"
        cells.append(cell)
    table.add_row(words, *(Text(cell) for cell in cells))


def _told_from(one: Figure, *, rare: bool) -> str:
    if one.number is None:
        return ""
    if rare:
        return f" (effective sample size {one.number:.3g})" if one.number else " (none drawn, so nothing is told)"
    return f" ({one.number:.0f} event{'' if one.number == 1 else 's'})" if one.number else " (none seen)"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else chance(value) if value >= 0 else f"-{chance(-value)}"


def _signed(value: float) -> str:
    return "0" if value == 0 else of_a_year(value) if value > 0 else f"-{of_a_year(-value)}"


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 2]} …"
