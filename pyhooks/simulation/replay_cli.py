"""``rackgate model replay``: recorded histories against the simulation's rule."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating
from pyhooks.core.terminal import plain
from pyhooks.history.event_log import History
from pyhooks.simulation.replay import AGREES, CONTRADICTS, UNKNOWN, Stretch, counts, replay

WIDTH = 120  # columns, where there is no terminal
REPLAY_EPILOG = (
    "Examples: "
    "rackgate model replay tests/support/lab_histories/lowered_during_the_outage.jsonl · rackgate model replay"
    " --json out/system/tests/*/results/*/*/*/*/history.jsonl"
)
replay_app = typer.Typer()


@replay_app.command("replay", epilog=REPLAY_EPILOG)
def replay_command(
    histories: Annotated[list[Path], typer.Argument(help="Histories of runs in a lab or elsewhere.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="Each stretch, for programs.")] = False,
) -> None:
    """Asks the simulation's rule what acks=all met in recorded runs, and compares what it did meet.

    A history is cut into stretches in which leader, ISR, M, R and who was there were the same. Of each the rule says
    whether acks=all is taken, by one rack alone or by more, refused for want of racks or replicas, or waits; producers
    tell what it was. Unknown is a stretch in which nothing was written that tells, or whose state is not known.

    Exit status: 0 no stretch contradicts and some agree, 1 one contradicts, 2 a file is no history, or nothing in them
    could be compared.
    """
    err = Console(stderr=True)
    files = list(dict.fromkeys(histories))
    told_of = track(files, description="replaying", console=err, transient=True, disable=not err.is_terminal)
    found = {path: _replayed(path) for path in told_of}
    everything = [one for own in found.values() for one in own]
    total = {verdict: sum(one.verdict == verdict for one in everything) for verdict in (AGREES, CONTRADICTS, UNKNOWN)}
    if as_json:
        told = {
            "stretches": total,
            "says": counts(everything),
            "histories": [
                {"file": str(path), "says": counts(own), "stretches": [asdict(one) for one in own]}
                for path, own in found.items()
            ],
        }
        sys.stdout.write(json.dumps(told, indent=1) + "\n")
    else:
        _show(found, total)
    if total[CONTRADICTS]:
        raise typer.Exit(1)
    if not total[AGREES]:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise RackgateError(
            f"{files[0]}{more}: nothing could be compared: no records within stretches whose state is known"
        )


def _replayed(path: Path) -> tuple[Stretch, ...]:
    if not path.is_file():
        raise RackgateError(f"{path}: no such file; a run of `rackgate system run` leaves a history.jsonl")
    events = list(History(path).events())
    try:
        with evaluating(path, "a history that can be replayed"):
            return replay(events)
    except RackgateError as error:
        if str(path) in str(error):
            raise
        raise RackgateError(f"{path}: {error}") from error


def _show(found: Mapping[Path, tuple[Stretch, ...]], total: Mapping[str, int]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("history", overflow="fold")
    table.add_column("acks=all, as the rule says")
    for verdict in (AGREES, CONTRADICTS, UNKNOWN):
        table.add_column(verdict, justify="right")
    for path, own in found.items():
        for number, (says, row) in enumerate(sorted(counts(own).items(), key=lambda pair: (not pair[0], pair[0]))):
            style = "bold red" if row[CONTRADICTS] else ""
            name = path.stem if not number else ""
            table.add_row(plain(name), plain(says or "(cannot say)"), *map(str, row.values()), style=style)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=WIDTH)
    console.print(table)
    for path, own in found.items():
        for one in own:
            if one.verdict == CONTRADICTS:
                where = f"{path.stem}: {one.topic}-{one.partition}, {one.from_s:.1f} to {one.to_s:.1f} s"
                console.print(plain(f"{where}: {one.says}, and {one.because}"), soft_wrap=True)
    words = f"{total[AGREES]} agree, {total[CONTRADICTS]} contradict, {total[UNKNOWN]} unknown"
    console.print(f"{sum(total.values())} stretches: {words}", soft_wrap=True)
