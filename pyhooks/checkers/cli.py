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
from pyhooks.checkers.judgement import BrokenEventError, judge, measure_settling
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
    " promise --checker delivery --json · rackgate judge h.jsonl --settle 500ms. Exit status: 0 all valid, 1 a checker"
    " found the history invalid, 2 a result is unknown."
    f" Checkers: {', '.join(f'{name} ({checker.subject})' for name, checker in CHECKERS.items())}."
)
judge_app = typer.Typer()


@judge_app.command("judge", epilog=JUDGE_EPILOG)
def judge_command(
    history: Annotated[Path, typer.Argument(help="A history, such as history.jsonl in the folder of a run.")],
    checker: Annotated[
        list[str] | None, typer.Option("--checker", help="Only this one; can be repeated (default: all that apply).")
    ] = None,
    settle: Annotated[
        str, typer.Option("--settle", help="How long a change of ISR, leader or settings may take to take effect.")
    ] = f"{SETTLE_S:g}s",
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON, with all reasons.")] = False,
) -> None:
    """Run the checkers on a stored HISTORY, without a cluster.

    While a change of ISR, leader or settings takes effect, for up to --settle, outcomes are not judged. How long
    changes took is measured where the history allows it, and printed.
    """
    settle_s = seconds(settle, "--settle")
    if not history.is_file():
        raise RackgateError(f"{history}: no such history")
    events = tuple(History(history).events())
    with evaluating(history, "a history that the checkers can read"):
        try:
            verdicts, left_out = judge(events, checker or (), settle_s=settle_s)
            settling = measure_settling(events, [result.checker for result in verdicts], settle_s=settle_s)
        except BrokenEventError as error:
            raise RackgateError(f"{history}: {error}") from error
    overall = verdict.join(verdicts)
    if as_json:
        document = {
            "history": str(history),
            "events": len(events),
            "valid": overall.valid,
            "settle_s": settle_s,
            "measured_settle_s": settling.measured_s if settling else None,
            "measured_changes": settling.changes if settling else 0,
            "measured_reported_s": settling.reported_s if settling else None,
            "verdicts": [asdict(result) for result in verdicts],
            "left_out": left_out,
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        # Checkers that --checker does not select are not left out.
        _print(verdicts, [] if checker else left_out, len(events), settling)
    raise typer.Exit(STATUS[overall.valid])


def _print(verdicts: list[verdict.Verdict], left_out: list[str], events: int, settling: Settling | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for head in ("checker", "valid", "about"):
        table.add_column(head)
    for result in verdicts:
        colour, subject = COLOURS[result.valid], CHECKERS[result.checker].subject
        table.add_row(result.checker, f"[{colour}]{result.valid}[/]", subject)
    console.print(table)
    for result in verdicts:
        for prefix, lines in ((result.checker, result.because), (f"{result.checker}: note", result.notes)):
            for line in lines[:REASONS]:
                console.print(plain(f"{prefix}: {line}"))
            if len(lines) > REASONS:
                console.print(f"{prefix}: and {len(lines) - REASONS} more (--json shows all)", markup=False)
    if settling is not None:
        console.print(settling.text, markup=False)
    if left_out:
        console.print(f"{events} events; not applicable: {', '.join(left_out)}", markup=False)
