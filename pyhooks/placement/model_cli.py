"""``rackgate model`` and ``rackgate plan``: guarantees and costs of RF, M, R and placements, and recommendations.

RF is the replication factor, M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import track_progress, write_report
from pyhooks.placement import failure_rates
from pyhooks.placement.exact_model import ELRS, Elr, evaluate
from pyhooks.placement.replica_placement import (
    MAX_REPLICAS,
    Placement,
    distinct_placements,
    parse_placement,
    parse_racks,
)

WIDTH = 120  # columns, where there is no terminal
MAX_RACKS = 100

model_app = typer.Typer(
    name="model",
    no_args_is_help=True,
    help="Compute and simulate availability and losses of a placement; needs no cluster.",
)
plan_app = typer.Typer()

EXACT_EPILOG = (
    "Examples: rackgate model exact --placement a,a,b --min-replicas 2 --min-racks 2 · rackgate model exact --placement"
    " a:2,b:2,c:1 --min-replicas 3 --broker-away 0.01 --rack-away 0.001 · rackgate model exact --placement a,a,b"
    " --min-replicas 2 --min-racks 2 --elr replicas --json"
)
PLAN_EPILOG = (
    "Examples: rackgate plan --racks a:2,b:2,c:1 · rackgate plan --racks a:3,b:3 --rf 4 --rack-away 2x1h · rackgate"
    " plan --racks a:2,b:2,c:1 --placement a,a,b --placement a,b,c --picture out/plan. To fix the placement of"
    " existing topics: rackgate check --plan."
)


BrokerAway = Annotated[
    str,
    typer.Option(
        failure_rates.BROKER_AWAY.option,
        help="Share of time in which a broker is out of the ISR: 0.01, or 4x1h (4 times a year, 1 h each).",
    ),
]
RackAway = Annotated[
    str,
    typer.Option(
        failure_rates.RACK_AWAY.option, help="Share of time in which a rack is unavailable, in the same form."
    ),
]
BrokerDestroyed = Annotated[
    str,
    typer.Option(
        failure_rates.BROKER_DESTROYED.option,
        help="Probability that a replica is destroyed within the window, or a rate per year: 0.02/y.",
    ),
]
RackDestroyed = Annotated[
    str,
    typer.Option(
        failure_rates.RACK_DESTROYED.option,
        help="Probability that all replicas in a rack are destroyed, in the same form.",
    ),
]
Window = Annotated[
    str, typer.Option(failure_rates.WINDOW.option, help="Time until a lost copy is replaced; at most a year.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")]


@model_app.callback()
def _model() -> None:
    """Keep the command group if it has one command."""


@model_app.command("exact", epilog=EXACT_EPILOG)
def exact_command(
    placement_text: Annotated[
        str,
        typer.Option("--placement", help="Racks of the replicas: a,a,b or a:2,b.", metavar="RACKS", show_default=False),
    ],
    min_replicas: Annotated[int, typer.Option("--min-replicas", min=1, help="min.insync.replicas (M).")] = 1,
    min_racks: Annotated[int, typer.Option("--min-racks", min=1, help="min.insync.racks (R).")] = 1,
    broker_away: BrokerAway = failure_rates.BROKER_AWAY.value,
    rack_away: RackAway = failure_rates.RACK_AWAY.value,
    broker_destroyed: BrokerDestroyed = failure_rates.BROKER_DESTROYED.value,
    rack_destroyed: RackDestroyed = failure_rates.RACK_DESTROYED.value,
    window: Window = failure_rates.WINDOW.value,
    elr: Annotated[
        str,
        typer.Option(help="Sufficient ISR for the ELR: by racks (the overlay), replicas (stock Kafka), off (no ELR)."),
    ] = "racks",
    as_json: AsJson = False,
) -> None:
    """Evaluate one placement by exact sums over all failures of its brokers and racks.

    The report has how often acks=all is rejected and why, how often one rack acknowledges alone, and how likely
    acknowledged records are lost because all replicas that can lead are destroyed. "worst" is the ISR most likely to be
    destroyed that M, R and ELR allow, "usual" the ISR of a random moment, "whole" an ISR of all replicas. The model and
    its limits: pyhooks/placement/exact_model.py.
    """
    probabilities = failure_rates.parse_probabilities(broker_away, rack_away, broker_destroyed, rack_destroyed, window)
    placement = parse_placement(placement_text, "--placement")
    _check_minimum(min_replicas, "--min-replicas", placement)
    _check_minimum(min_racks, "--min-racks", placement)
    evaluation = evaluate(
        placement, min_replicas=min_replicas, min_racks=min_racks, probabilities=probabilities, elr=_parse_elr(elr)
    )
    from pyhooks.placement import model_report

    write_report(
        WIDTH,
        lambda console: model_report.print_exact(console, evaluation, probabilities),
        [model_report.exact_json(evaluation, probabilities)] if as_json else None,
    )


@plan_app.command("plan", epilog=PLAN_EPILOG)
def plan_command(
    racks: Annotated[str, typer.Option(help="Brokers of each rack: a:2,b:2,c:1.", metavar="RACKS", show_default=False)],
    rf: Annotated[
        list[int] | None,
        typer.Option(min=1, max=MAX_REPLICAS, help="Only this replication factor; can be repeated (default: 1 to 5)."),
    ] = None,
    placements: Annotated[
        list[str] | None,
        typer.Option("--placement", help="Only this placement, such as a,a,b; can be repeated.", metavar="RACKS"),
    ] = None,
    broker_away: BrokerAway = failure_rates.BROKER_AWAY.value,
    rack_away: RackAway = failure_rates.RACK_AWAY.value,
    broker_destroyed: BrokerDestroyed = failure_rates.BROKER_DESTROYED.value,
    rack_destroyed: RackDestroyed = failure_rates.RACK_DESTROYED.value,
    window: Window = failure_rates.WINDOW.value,
    picture: Annotated[
        Path | None,
        typer.Option(help="Write a plot with the Pareto frontier to FILE.png and FILE.svg.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare RF, M, R and placements for new topics of a cluster with these racks, and recommend some.

    The table has for each choice rejections, losses of acknowledged records (worst and usual, as in "rackgate model
    exact"), stored copies (RF) and copies that cross racks. A choice that another one dominates is grey. R 1-2 in a row
    means that both have the same effect.
    """
    probabilities = failure_rates.parse_probabilities(broker_away, rack_away, broker_destroyed, rack_destroyed, window)
    brokers_by_rack = parse_racks(racks, "--racks")
    if len(brokers_by_rack) > MAX_RACKS:
        raise RackgateError(f"--racks: {len(brokers_by_rack)} racks: at most {MAX_RACKS}")
    from pyhooks.placement import model_report
    from pyhooks.placement.choices import evaluate_choices, recommend

    choices = evaluate_choices(
        track_progress(
            _placements(brokers_by_rack, rf or [], placements or []), Console(stderr=True), "evaluating placements"
        ),
        probabilities,
    )
    recommendations = recommend(choices)
    if picture is not None:
        from pyhooks.placement.plan_picture import write

        write(choices, recommendations, picture)
    write_report(
        WIDTH,
        lambda console: model_report.print_plan(console, choices, recommendations, probabilities),
        [model_report.plan_json(choices, recommendations, probabilities)] if as_json else None,
    )


def _placements(brokers_by_rack: dict[str, int], factors: list[int], placement_texts: list[str]) -> list[Placement]:
    if placement_texts and factors:
        raise RackgateError("--rf and --placement: give one of them, a placement has its own replication factor")
    if placement_texts:
        return list(dict.fromkeys(parse_placement(text, "--placement", brokers_by_rack) for text in placement_texts))
    brokers = sum(brokers_by_rack.values())
    for factor in factors:
        if factor > brokers:
            raise RackgateError(f"--rf {factor}: --racks has {brokers} brokers, and each takes one replica")
    return [
        placement
        for factor in sorted(set(factors)) or range(1, min(5, brokers) + 1)
        for placement in distinct_placements(brokers_by_rack, factor)
    ]


def _check_minimum(minimum: int, option: str, placement: Placement) -> None:
    if minimum > placement.replicas:
        raise RackgateError(
            f"{option} {minimum}: the placement has {placement.replicas} replicas, and Kafka would cap it at that"
        )


def _parse_elr(text: str) -> Elr:
    for elr in ELRS:
        if elr == text:
            return elr
    raise RackgateError(f"--elr {text}: expected one of {', '.join(ELRS)}")
