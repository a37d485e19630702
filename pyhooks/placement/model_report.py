"""Results of the model as tables and sentences, and as JSON.

The JSON is one object. Keys are stable: later versions may add some. Probabilities are from 0 to 1.

- ``chances``: ``{broker_away, rack_away, broker_destroyed, rack_destroyed}``, as in
  ``pyhooks.placement.failure_rates``.
- ``weighed`` (of ``rackgate model exact``): as in ``pyhooks.placement.exact_model.Evaluation``; ``rejected``,
  ``usual``, ``worst`` and ``whole`` have a ``total`` in addition to their causes; a placement maps racks to numbers of
  replicas.
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
from pyhooks.placement.choices import Choice, Recommendation, guarantees
from pyhooks.placement.exact_model import Evaluation
from pyhooks.placement.failure_rates import DEFAULTS, FailureProbabilities
from pyhooks.placement.replica_placement import Placement

MINUTES_A_YEAR = 365.25 * 24 * 60


def exact_json(evaluation: Evaluation, probabilities: FailureProbabilities) -> str:
    """Return the JSON of ``rackgate model exact``; see the module's docstring."""
    return json.dumps(
        {"chances": asdict(probabilities), "weighed": _evaluation_json(evaluation), "defaults": _defaults()}, indent=1
    )


def plan_json(
    choices: Sequence[Choice], recommendations: Sequence[Recommendation], probabilities: FailureProbabilities
) -> str:
    """Return the JSON of ``rackgate plan``; see the module's docstring."""
    plan = {
        "chances": asdict(probabilities),
        "choices": [
            {
                "placement": _placement_json(choice.placement),
                "rf": choice.placement.replicas,
                "min_replicas": choice.min_replicas,
                "min_racks": list(choice.min_racks),
                "storage_factor": choice.copies,
                "cross_rack_copies": choice.cross_rack_copies,
                "dominated": choice.dominated,
                "weighed": _evaluation_json(choice.evaluation),
            }
            for choice in choices
        ],
        "advice": [
            {
                "goal": recommendation.goal,
                "choice": None if recommendation.choice is None else choices.index(recommendation.choice),
                "because": recommendation.because,
            }
            for recommendation in recommendations
        ],
        "defaults": _defaults(),
    }
    return json.dumps(plan, indent=1)


def _defaults() -> list[dict[str, str]]:
    return [asdict(default) for default in DEFAULTS]


def _placement_json(placement: Placement | None) -> dict[str, int] | None:
    return None if placement is None else dict(zip(placement.racks, placement.counts, strict=True))


def _evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    evaluation_json = asdict(evaluation)
    evaluation_json["placement"] = _placement_json(evaluation.placement)
    evaluation_json["worst_set"] = _placement_json(evaluation.worst_set)
    for name in ("rejected", "usual", "worst", "whole"):
        evaluation_json[name]["total"] = getattr(evaluation, name).total
    return evaluation_json


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


def choice_text(placement: Placement, min_replicas: int, min_racks: int) -> str:
    """Describe a choice in one line."""
    return f"RF {placement.replicas} on {placement}, M={min_replicas}, R={min_racks}"


def print_exact(console: Console, evaluation: Evaluation, probabilities: FailureProbabilities) -> None:
    """Print the evaluation of one placement with M and R."""
    limits = evaluation.limits
    console.print(Text(choice_text(evaluation.placement, limits.replicas, limits.racks), style="bold"))
    if not evaluation.writable:
        console.print(
            f"acks=all is always rejected: replicas in {len(evaluation.placement.racks)} of {limits.racks} racks",
            style="bold red",
        )
        return
    console.print()
    console.print(_rejection_table(evaluation))
    console.print(_loss_table(evaluation))
    console.print("worst: the ISR most likely to be destroyed · usual: the ISR of a random moment", style="dim")
    console.print("whole: all replicas are in the ISR · lost: all of them are destroyed within the window", style="dim")
    console.print(_probabilities_text(probabilities), style="dim", soft_wrap=True)
    console.print("\n".join(guarantees(evaluation)), soft_wrap=True)


def _rejection_table(evaluation: Evaluation) -> RenderableType:
    rejected = evaluation.rejected
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (("share of time", "left"), ("", "right"), ("a year", "right"), ("", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name, value, note in (
        ("writes rejected", rejected.total, ""),
        ("  too few racks", rejected.racks, "NotEnoughRacksException"),
        ("  too few replicas", rejected.replicas, "NotEnoughReplicasException"),
        ("  no leader", rejected.no_leader, "no replica is available; waits after it not counted"),
        ("one rack acknowledges alone", evaluation.one_rack_alone, ""),
    ):
        table.add_row(name, format_probability(value), format_year_share(value), note)
    return table


def _loss_table(evaluation: Evaluation) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("acknowledged records lost", no_wrap=True)
    for name in ("", "by brokers", "one rack", "more racks"):
        table.add_column(name, justify="right", no_wrap=True)
    worst_title = f"  worst, ISR {evaluation.worst_set}"
    for name, lost in ((worst_title, evaluation.worst), ("  usual", evaluation.usual), ("  whole", evaluation.whole)):
        table.add_row(name, *map(format_probability, (lost.total, lost.brokers, lost.one_rack, lost.more_racks)))
    return table


def _probabilities_text(probabilities: FailureProbabilities) -> str:
    down = [format_year_share(share) for share in (probabilities.broker_away, probabilities.rack_away)]
    lost = [format_probability(share) for share in (probabilities.broker_destroyed, probabilities.rack_destroyed)]
    return (
        f"unavailable, of a year: a broker {down[0]}, a rack {down[1]};"
        f" destroyed within the window: a broker {lost[0]}, a rack {lost[1]}"
    )


def print_plan(
    console: Console,
    choices: Sequence[Choice],
    recommendations: Sequence[Recommendation],
    probabilities: FailureProbabilities,
) -> None:
    """Print the table of all choices and the recommendations."""
    console.print(_table(choices))
    for legend in (
        "racks, brokers: any so many may be unavailable while writes continue, or destroyed without loss",
        "grey: another choice is as good in rejections, worst loss, copies and copies across racks, and better in one",
    ):
        console.print(legend, style="dim", soft_wrap=True)
    console.print(_probabilities_text(probabilities), style="dim", soft_wrap=True)
    for line in recommendation_lines(recommendations):
        console.print(line, soft_wrap=True)


def recommendation_lines(recommendations: Iterable[Recommendation]) -> list[Text]:
    """Return one sentence with the recommendation for each goal."""
    lines = []
    for recommendation in recommendations:
        lines.append(Text(f"{recommendation.goal[0].upper()}{recommendation.goal[1:]}: "))
        if recommendation.choice is None:
            lines[-1].append(recommendation.because)
            continue
        choice, rejected = recommendation.choice, recommendation.choice.evaluation.rejected.total
        lines[-1].append(choice_text(choice.placement, choice.min_replicas, choice.min_racks[-1]), style="bold")
        lines[-1].append(f" ({recommendation.because}; rejected {format_year_share(rejected)} a year)")
    return lines


def _table(choices: Sequence[Choice]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("RF", justify="right")
    table.add_column("placement", overflow="fold")
    table.add_column("M", justify="right")
    table.add_column("R", justify="right", no_wrap=True)
    for name in ("rejected\na year", "one\nrack\nalone", "lost\nworst", "lost\nusual"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("racks,\nbrokers\ndown", "racks,\nbrokers\nlost"):
        table.add_column(name, justify="center", no_wrap=True)
    table.add_column("across\nracks", justify="right", no_wrap=True)
    for choice in choices:
        evaluation = choice.evaluation
        table.add_row(
            str(choice.copies),
            plain(str(choice.placement)),
            str(choice.min_replicas),
            "-".join(map(str, sorted({choice.min_racks[0], choice.min_racks[-1]}))),
            format_year_share(evaluation.rejected.total),
            format_year_share(evaluation.one_rack_alone),
            format_probability(evaluation.worst.total),
            format_probability(evaluation.usual.total),
            _tolerates(evaluation.writes_without_racks, evaluation.writes_without_brokers),
            _tolerates(evaluation.outlives_racks, evaluation.outlives_brokers),
            f"{choice.cross_rack_copies:.2g}",
            style="bright_black" if choice.dominated else "",
        )
    return table


def _tolerates(racks: int, brokers: int) -> str:
    return f"{max(0, racks)}, {max(0, brokers)}"
