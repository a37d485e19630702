"""``rackgate model`` and ``rackgate plan``: guarantees and costs of RF, M, R and placements, and recommendations.

RF is the replication factor, M is ``min.insync.replicas``, R is ``min.insync.racks``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import track_progress
from pyhooks.placement import failure_rates as ch
from pyhooks.placement.exact_model import ELRS, Elr, evaluate
from pyhooks.placement.replica_placement import MAX_REPLICAS, Placement, parse, placement, shapes

WIDTH = 120  # columns, where there is no terminal
MAX_RACKS = 100

model_app = typer.Typer(
    name="model", no_args_is_help=True, help="What RF, M, R and a placement buy, in numbers; needs no cluster."
)
plan_app = typer.Typer()

EXACT_EPILOG = (
    "Examples: rackgate model exact --placement a,a,b --min-replicas 2 --min-racks 2 · rackgate model exact --placement"
    " a:2,b:2,c:1 --min-replicas 3 --broker-away 0.01 --rack-away 0.001 · rackgate model exact --placement a,a,b"
    " --min-replicas 2 --min-racks 2 --elr replicas --json"
)
PLAN_EPILOG = (
    "Examples: rackgate plan --racks a:2,b:2,c:1 · rackgate plan --racks a:3,b:3 --rf 4 --rack-away 2x1h · rackgate"
    " plan --racks a:2,b:2,c:1 --placement a,a,b --placement a,b,c --picture out/plan. To mend the placement of topics"
    " that exist: rackgate check --plan."
)


BrokerAway = Annotated[
    str,
    typer.Option(
        ch.BROKER_AWAY.option,
        help="How much a broker is out of the ISR: a probability, or 4x1h (4 times a year, 1 h each).",
    ),
]
RackAway = Annotated[str, typer.Option(ch.RACK_AWAY.option, help="How much a rack is away, in the same way.")]
BrokerDestroyed = Annotated[
    str,
    typer.Option(
        ch.BROKER_DESTROYED.option,
        help="How likely a replica is destroyed: a probability within the window, or 0.02/y (so often a year).",
    ),
]
RackDestroyed = Annotated[
    str, typer.Option(ch.RACK_DESTROYED.option, help="How likely all in a rack is destroyed, in the same way.")
]
Window = Annotated[
    str, typer.Option(ch.WINDOW.option, help="How long it takes until a lost copy is made again; at most a year.")
]
AsJson = Annotated[bool, typer.Option("--json", help="All that was found, for programs.")]


@model_app.callback()
def _model() -> None:
    """A group, also while it has one command."""


@model_app.command("exact", epilog=EXACT_EPILOG)
def exact_command(
    where: Annotated[
        str,
        typer.Option("--placement", help="Racks of the replicas: a,a,b or a:2,b.", metavar="RACKS", show_default=False),
    ],
    min_replicas: Annotated[int, typer.Option("--min-replicas", min=1, help="min.insync.replicas (M).")] = 1,
    min_racks: Annotated[int, typer.Option("--min-racks", min=1, help="min.insync.racks (R).")] = 1,
    broker_away: BrokerAway = ch.BROKER_AWAY.value,
    rack_away: RackAway = ch.RACK_AWAY.value,
    broker_destroyed: BrokerDestroyed = ch.BROKER_DESTROYED.value,
    rack_destroyed: RackDestroyed = ch.RACK_DESTROYED.value,
    window: Window = ch.WINDOW.value,
    elr: Annotated[
        str,
        typer.Option(
            help="Who is remembered as fit to lead: racks (the overlay), replicas (stock Kafka), off (no ELR)."
        ),
    ] = "racks",
    as_json: AsJson = False,
) -> None:
    """Weighs one placement: exact sums over all failures of its brokers and racks.

    How often acks=all is refused and why, how often one rack acknowledges alone, how likely acknowledged records are
    lost: if all that can lead are destroyed. At "worst" these are the likeliest to be destroyed that M, R and ELR
    allow, "usual" is by the ISR of a random moment, "whole" while all replicas are in it. What is modelled and what is
    left out: pyhooks/placement/exact_model.py.
    """
    numbers = ch.parse_probabilities(broker_away, rack_away, broker_destroyed, rack_destroyed, window)
    made = placement(where, "--placement")
    _fits(min_replicas, "--min-replicas", made)
    _fits(min_racks, "--min-racks", made)
    weighed = evaluate(made, min_replicas=min_replicas, min_racks=min_racks, chances=numbers, elr=_elr(elr))
    from pyhooks.placement import model_report

    if as_json:
        sys.stdout.write(model_report.exact_json(weighed, numbers) + "\n")
    else:
        model_report.print_exact(_console(), weighed, numbers)


@plan_app.command("plan", epilog=PLAN_EPILOG)
def plan_command(
    racks: Annotated[str, typer.Option(help="Brokers of each rack: a:2,b:2,c:1.", metavar="RACKS", show_default=False)],
    rf: Annotated[
        list[int] | None,
        typer.Option(min=1, max=MAX_REPLICAS, help="Only this replication factor; can be repeated [default: 1 to 5]."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--placement", help="Only this placement, such as a,a,b; can be repeated.", metavar="RACKS"),
    ] = None,
    broker_away: BrokerAway = ch.BROKER_AWAY.value,
    rack_away: RackAway = ch.RACK_AWAY.value,
    broker_destroyed: BrokerDestroyed = ch.BROKER_DESTROYED.value,
    rack_destroyed: RackDestroyed = ch.RACK_DESTROYED.value,
    window: Window = ch.WINDOW.value,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the frontier: FILE.png and FILE.svg are written, or replaced.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compares RF, M, R and placements for new topics of a cluster with these racks, and advises.

    A table of what can be had: refusals, acknowledged records lost (worst and usual, as in "rackgate model exact"),
    copies stored (RF) and copies that cross racks; what something else beats is grey. R 1-2 in a row means that both
    have the same effect there.
    """
    numbers = ch.parse_probabilities(broker_away, rack_away, broker_destroyed, rack_destroyed, window)
    room = parse(racks, "--racks")
    if len(room) > MAX_RACKS:
        raise RackgateError(f"--racks: {len(room)} racks: at most {MAX_RACKS}")
    from pyhooks.placement import model_report
    from pyhooks.placement.choices import advice, choices

    found = choices(
        track_progress(_placements(room, rf or [], where or []), Console(stderr=True), "weighing placements"),
        numbers,
    )
    given = advice(found)
    if picture is not None:
        from pyhooks.placement.plan_picture import write

        write(found, given, picture)
    if as_json:
        sys.stdout.write(model_report.plan_json(found, given, numbers) + "\n")
    else:
        model_report.print_plan(_console(), found, given, numbers)


def _placements(room: dict[str, int], rf: list[int], where: list[str]) -> list[Placement]:
    if where and rf:
        raise RackgateError("--rf and --placement: give one of them, a placement has its own replication factor")
    if where:
        return list(dict.fromkeys(placement(text, "--placement", room) for text in where))
    brokers = sum(room.values())
    for factor in rf:
        if factor > brokers:
            raise RackgateError(f"--rf {factor}: --racks has {brokers} brokers, and each takes one replica")
    return [made for factor in sorted(set(rf)) or range(1, min(5, brokers) + 1) for made in shapes(room, factor)]


def _fits(minimum: int, option: str, made: Placement) -> None:
    if minimum > made.replicas:
        raise RackgateError(
            f"{option} {minimum}: the placement has {made.replicas} replicas, and Kafka would count {made.replicas}"
        )


def _elr(text: str) -> Elr:
    for one in ELRS:
        if one == text:
            return one
    raise RackgateError(f"--elr {text}: expected one of {', '.join(ELRS)}")


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)
