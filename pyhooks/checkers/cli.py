"""``rackgate judge``: run the checkers on a stored history, without a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pyhooks.checkers import verdict
from pyhooks.checkers.judgement import BrokenEventError, judge, measured
from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.settling_times import SETTLE_S, Settling
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating
from pyhooks.core.terminal import plain
from pyhooks.history.event_log import History

STATUS = {"true": 0, "false": 1, "unknown": 2}
COLOURS = {"true": "green", "false": "bold red", "unknown": "yellow"}
# Most reasons printed per checker: a broken run can have one per record.
REASONS = 20

JUDGE_EPILOG = (
    "Examples: rackgate judge out/lab/20260101-120000/history.jsonl · rackgate judge h.jsonl --checker"
    " promise --checker delivery --json · rackgate judge h.jsonl --settle 500ms. Exit status: 0 all hold, 1 something"
    " is wrong, 2 something is unknown."
    f" Checkers: {', '.join(f'{name} ({one.subject})' for name, one in CHECKERS.items())}."
)
judge_app = typer.Typer()


@judge_app.command("judge", epilog=JUDGE_EPILOG)
def judge_command(
    history: Annotated[Path, typer.Argument(help="A history, such as history.jsonl in the folder of a run.")],
    checker: Annotated[
        list[str] | None, typer.Option("--checker", help="Only this one; can be repeated (default: all that apply).")
    ] = None,
    settle: Annotated[
        str, typer.Option("--settle", help="What a change of ISR, leader or settings may take to have its effect.")
    ] = f"{SETTLE_S:g}s",
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON, with all reasons.")] = False,
) -> None:
    """Runs the checkers over a stored HISTORY, without a cluster.

    While a change of ISR, leader or settings takes effect, outcomes are not judged. What that may take is given by
    --settle; what it took is measured where the history allows it, and told beside.
    """
    settle_s = seconds(settle, "--settle")
    if not history.is_file():
        raise RackgateError(f"{history}: no such history")
    events = tuple(History(history).events())
    with evaluating(history, "a history that the checkers can read"):
        try:
            found, left_out = judge(events, checker or (), settle_s=settle_s)
            took = measured(events, [one.checker for one in found], settle_s=settle_s)
        except BrokenEventError as error:
            raise RackgateError(f"{history}: {error}") from error
    whole = verdict.join(found)
    if as_json:
        told = {"history": str(history), "events": len(events), "valid": whole.valid}
        told |= {"settle_s": settle_s, "measured_settle_s": took.measured_s if took else None}
        told |= {"measured_changes": took.changes if took else 0, "measured_told_s": took.told_s if took else None}
        told |= {"verdicts": [asdict(one) for one in found], "left_out": left_out}
        sys.stdout.write(json.dumps(told, indent=1) + "\n")
    else:
        # Checkers that --checker does not select are not left out.
        _print(found, [] if checker else left_out, len(events), took)
    raise typer.Exit(STATUS[whole.valid])


def _print(found: list[verdict.Verdict], left_out: list[str], events: int, took: Settling | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for head in ("checker", "valid", "about"):
        table.add_column(head)
    for one in found:
        table.add_row(one.checker, f"[{COLOURS[one.valid]}]{one.valid}[/]", CHECKERS[one.checker].subject)
    console.print(table)
    for one in found:
        for mark, reasons in (("", one.because), ("note: ", one.notes)):
            for reason in reasons[:REASONS]:
                console.print(plain(f"{one.checker}: {mark}{reason}"))
            if len(reasons) > REASONS:
                console.print(
                    f"{one.checker}: {mark}and {len(reasons) - REASONS} more (--json shows all)", markup=False
                )
    if took is not None:
        console.print(took.text, markup=False)
    if left_out:
        console.print(f"{events} events; nothing in them for: {', '.join(left_out)}", markup=False)
