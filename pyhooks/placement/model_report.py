"""Results of the model as tables and sentences, and as JSON.

The JSON is one object. Keys are stable: later versions may add some. Probabilities are from 0 to 1.

- ``probabilities``: ``{broker_away, rack_away, broker_destroyed, rack_destroyed}``, as in
  ``pyhooks.placement.failure_rates``.
- ``evaluation`` (of ``rackgate model exact``): as in ``pyhooks.placement.exact_model.Evaluation``; ``refused``, ``usual``,
  ``worst`` and ``whole`` have a ``total`` in addition to their causes; a placement maps racks to numbers of replicas.
- ``choices`` (of ``rackgate plan``): a list of ``{placement, rf, min_replicas, min_racks, storage_factor,
  cross_rack_copies, dominated, weighed}``; ``min_racks`` is the list of all R with this effect.
- ``advice``: a list of ``{goal, choice, because}``; ``choice`` is an index into ``choices``, or null.
- ``defaults``: a list of ``{option, value, source}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain
from pyhooks.placement.choices import Advice, Choice, availability_text, durability_text
from pyhooks.placement.exact_model import Evaluation
from pyhooks.placement.failure_rates import DEFAULTS, FailureProbabilities
from pyhooks.placement.replica_placement import Placement

MINUTES_A_YEAR = 365.25 * 24 * 60


def exact_json(evaluation: Evaluation, probabilities: FailureProbabilities) -> str:
    """Return the JSON of ``rackgate model exact``; see the module's docstring."""
    return json.dumps(
        {"chances": asdict(probabilities), "weighed": _weighed(evaluation), "defaults": _defaults()}, indent=1
    )


def plan_json(found: Sequence[Choice], given: Sequence[Advice], probabilities: FailureProbabilities) -> str:
    """Return the JSON of ``rackgate plan``; see the module's docstring."""
    plan = {
        "chances": asdict(probabilities),
        "choices": [
            {
                "placement": _counts(one.placement),
                "rf": one.placement.replicas,
                "min_replicas": one.min_replicas,
                "min_racks": list(one.min_racks),
                "storage_factor": one.copies,
                "cross_rack_copies": one.cross_rack_copies,
                "dominated": one.dominated,
                "weighed": _weighed(one.evaluation),
            }
            for one in found
        ],
        "advice": [
            {
                "goal": one.goal,
                "choice": None if one.choice is None else found.index(one.choice),
                "because": one.because,
            }
            for one in given
        ],
        "defaults": _defaults(),
    }
    return json.dumps(plan, indent=1)


def _defaults() -> list[dict[str, str]]:
    return [asdict(one) for one in DEFAULTS]


def _counts(placement: Placement | None) -> dict[str, int] | None:
    return None if placement is None else dict(zip(placement.racks, placement.counts, strict=True))


def _weighed(evaluation: Evaluation) -> dict[str, Any]:
    found = asdict(evaluation)
    found["placement"] = _counts(evaluation.placement)
    found["worst_set"] = _counts(evaluation.worst_set)
    for name in ("refused", "usual", "worst", "whole"):
        found[name]["total"] = getattr(evaluation, name).total
    return found


def format_probability(probability: float) -> str:
    """Format a probability with two digits."""
    return "0" if probability == 0 else f"{probability:.2g}" if probability >= 0.001 else f"{probability:.1e}"


def format_year_share(probability: float) -> str:
    """Format a share of time as its duration in a year, with two digits."""
    minutes = probability * MINUTES_A_YEAR
    if minutes == 0:
        return "never"
    if probability == 1:
        return "always"
    for unit, size in (("d", 1440.0), ("h", 60.0), ("min", 1.0), ("s", 1 / 60), ("ms", 1 / 60000)):
        if minutes >= size:
            value = minutes / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return "<1 ms"


def settings(placement: Placement, min_replicas: int, min_racks: int) -> str:
    """Describe a choice in one line."""
    return f"RF {placement.replicas} on {placement}, M={min_replicas}, R={min_racks}"


def print_exact(console: Console, evaluation: Evaluation, probabilities: FailureProbabilities) -> None:
    """Print the evaluation of one placement with M and R."""
    limits = evaluation.limits
    console.print(Text(settings(evaluation.placement, limits.replicas, limits.racks), style="bold"))
    if not evaluation.writable:
        console.print(
            f"acks=all is always refused: the replicas are in {len(evaluation.placement.racks)} of {limits.racks} racks",
            style="bold red",
        )
        return
    console.print()
    console.print(_times(evaluation))
    console.print(_losses(evaluation))
    console.print("worst: the ISR most likely to be destroyed · usual: the ISR of a random moment", style="dim")
    console.print("whole: all replicas are in the ISR · lost: all of them are destroyed within the window", style="dim")
    console.print(_chances(probabilities), style="dim", soft_wrap=True)
    for one in (
        availability_text(evaluation.writes_without_racks, evaluation.writes_without_brokers),
        durability_text(evaluation.outlives_racks, evaluation.outlives_brokers),
    ):
        console.print(one, soft_wrap=True)


def _times(evaluation: Evaluation) -> RenderableType:
    refused = evaluation.refused
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (("share of time", "left"), ("", "right"), ("a year", "right"), ("", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name, value, note in (
        ("writes refused", refused.total, ""),
        ("  too few racks", refused.racks, "NotEnoughRacksException"),
        ("  too few replicas", refused.replicas, "NotEnoughReplicasException"),
        ("  no leader", refused.no_leader, "no replica is available; waits after it not counted"),
        ("one rack acknowledges alone", evaluation.one_rack_alone, ""),
    ):
        table.add_row(name, format_probability(value), format_year_share(value), note)
    return table


def _losses(evaluation: Evaluation) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("acknowledged records lost", no_wrap=True)
    for name in ("", "by brokers", "one rack", "more racks"):
        table.add_column(name, justify="right", no_wrap=True)
    held = f"  worst, ISR {evaluation.worst_set}"
    for name, lost in ((held, evaluation.worst), ("  usual", evaluation.usual), ("  whole", evaluation.whole)):
        table.add_row(name, *map(format_probability, (lost.total, lost.brokers, lost.one_rack, lost.more_racks)))
    return table


def _chances(probabilities: FailureProbabilities) -> str:
    return (
        f"unavailable, of a year: a broker {format_year_share(probabilities.broker_away)}, a rack {format_year_share(probabilities.rack_away)};"
        f" destroyed within the window: a broker {format_probability(probabilities.broker_destroyed)}, a rack"
        f" {format_probability(probabilities.rack_destroyed)}"
    )


def print_plan(
    console: Console, found: Sequence[Choice], given: Sequence[Advice], probabilities: FailureProbabilities
) -> None:
    """Print the table of all choices and the recommendations."""
    console.print(_table(found))
    for legend in (
        "racks, brokers: how many, whichever, may be unavailable while writes continue, or destroyed without loss",
        "grey: another choice is as good in refusals, worst loss, copies and copies across racks, and better in one",
    ):
        console.print(legend, style="dim", soft_wrap=True)
    console.print(_chances(probabilities), style="dim", soft_wrap=True)
    for one in sentences(given):
        console.print(one, soft_wrap=True)


def sentences(given: Iterable[Advice]) -> list[Text]:
    """Return one sentence with the recommendation for each goal."""
    lines = []
    for one in given:
        lines.append(Text(f"{one.goal[0].upper()}{one.goal[1:]}: "))
        if one.choice is None:
            lines[-1].append(one.because)
            continue
        choice, refused = one.choice, one.choice.evaluation.refused.total
        lines[-1].append(settings(choice.placement, choice.min_replicas, choice.min_racks[-1]), style="bold")
        lines[-1].append(f" ({one.because}; refused {format_year_share(refused)} a year)")
    return lines


def _table(found: Sequence[Choice]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("RF", justify="right")
    table.add_column("placement", overflow="fold")
    table.add_column("M", justify="right")
    table.add_column("R", justify="right", no_wrap=True)
    for name in ("refused\na year", "one\nrack\nalone", "lost\nworst", "lost\nusual"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("racks,\nbrokers\ndown", "racks,\nbrokers\nlost"):
        table.add_column(name, justify="center", no_wrap=True)
    table.add_column("across\nracks", justify="right", no_wrap=True)
    for one in found:
        evaluation = one.evaluation
        table.add_row(
            str(one.copies),
            plain(str(one.placement)),
            str(one.min_replicas),
            _span(one.min_racks),
            format_year_share(evaluation.refused.total),
            format_year_share(evaluation.one_rack_alone),
            format_probability(evaluation.worst.total),
            format_probability(evaluation.usual.total),
            _tolerates(evaluation.writes_without_racks, evaluation.writes_without_brokers),
            _tolerates(evaluation.outlives_racks, evaluation.outlives_brokers),
            f"{one.cross_rack_copies:.2g}",
            style="bright_black" if one.dominated else "",
        )
    return table


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _tolerates(racks: int, brokers: int) -> str:
    return f"{max(0, racks)}, {max(0, brokers)}"
