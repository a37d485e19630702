"""``rackgate formal``: check the model of ISR, ELR, high watermark and election with Alloy, and draw the instances."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pyhooks.core import paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import MALFORMED, json_text, read_json, write_json
from pyhooks.core.terminal import report_console, show_progress
from pyhooks.formal import alloy
from pyhooks.formal.alloy import CommandOutcome
from pyhooks.formal.model_source import MODEL, AlloyCommand, parse_commands, select_commands

WIDTH = 120  # columns, where there is no terminal
TARGET_S = 600.0  # of a run of all commands
FORMAL_EPILOG = (
    "Examples: rackgate formal · rackgate formal --list · rackgate formal --only Step --jobs 1 ·"
    " rackgate formal --only NoRackAwareElr --pictures out/pictures · rackgate formal --json >formal.json"
)
formal_app = typer.Typer()


@formal_app.command("formal", epilog=FORMAL_EPILOG)
def formal_command(
    only: Annotated[
        list[str] | None, typer.Option(help="Only the command of this name; can be given more than once.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the commands without running them.")] = False,
    model: Annotated[Path, typer.Option(help="The Alloy model.", metavar="FILE")] = MODEL,
    jobs: Annotated[
        int, typer.Option(help="Number of commands to run in parallel; each takes a core.", min=1, max=64)
    ] = 2,
    limit: Annotated[float, typer.Option(help="Timeout of each command in seconds.", min=1.0)] = 900.0,
    solver: Annotated[str, typer.Option(help=f"Solver: {', '.join(alloy.SOLVERS)}.")] = alloy.SOLVERS[0],
    run_dir: Annotated[Path | None, typer.Option(help="Folder for results, by default out/formal.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder for pictures of instances, by default the folder of the results.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")] = False,
) -> None:
    """Check the formal model in kip/formal, each command within its own bounds, and draw the instances.

    A "check" must find no counter-example. A "run" must find an instance: a counter-example without a part of the
    patch, or a state that the promise is about. Alloy is pinned by SHA-256 and downloaded by Maven. Results are in
    out/formal/summary.json, instances and pictures beside it. A run of all commands also reports whether it met its
    target of ten minutes, which does not affect the exit status.

    Exit status: 0 all outcomes are as expected, 1 some are not, 2 a command did not complete.
    """
    if solver not in alloy.SOLVERS:
        raise RackgateError(f"--solver {solver}: there are {', '.join(alloy.SOLVERS)}")
    commands = parse_commands(model)
    selected = select_commands(commands, only or [])
    if list_:
        _show_commands(selected)
        return
    folder = run_dir or paths.OUT / "formal"
    with ExitStack() as stack:
        stack.enter_context(run_folder.held(folder, run_folder.FORMAL))
        if pictures is not None and pictures.resolve() != folder.resolve():
            stack.enter_context(run_folder.held(pictures, run_folder.FORMAL_PICTURES))
        started = time.monotonic()
        outcomes = run_all(selected, model, folder, jobs=jobs, limit_s=limit, solver=solver, quiet=json_)
        pictures_written = draw_instances(outcomes, pictures or folder)
        seconds = time.monotonic() - started
        summary = {
            "model": model.name,
            "solver": solver,
            "seconds": round(seconds, 1),
            "target_s": TARGET_S,
            "target": judge_duration(outcomes, commands, seconds),
            "as_expected": all(outcome.as_expected for outcome in outcomes),
            "commands": [outcome.summary() for outcome in outcomes],
            "pictures": [str(path) for path in pictures_written],
        }
        write_json(folder / "summary.json", summary)
    if json_:
        typer.echo(json_text(summary), nl=False)
    else:
        _show(outcomes, seconds, str(summary["target"]), folder)
    raise typer.Exit(exit_status(outcomes))


def run_all(
    selected: Sequence[AlloyCommand], model: Path, folder: Path, *, jobs: int, limit_s: float, solver: str, quiet: bool
) -> tuple[CommandOutcome, ...]:
    """Run commands in parallel; return their outcomes in the same order.

    Raises:
        RackgateError: Alloy can't be downloaded, or an earlier result can't be removed.
    """
    earlier_s = _earlier_seconds(folder)
    jar = alloy.fetch()
    outcomes: dict[str, CommandOutcome] = {}
    console = Console(stderr=True, quiet=quiet, highlight=False)
    estimate_s = sum(earlier_s.get(command.name, 0.0) for command in selected) / jobs
    estimate = f"of about {estimate_s:.0f} s" if estimate_s else ""
    with show_progress(console, "Alloy", len(selected), estimate=estimate) as update, ThreadPoolExecutor(jobs) as pool:
        # longest first, so that the shorter ones run in parallel with it
        order = sorted(selected, key=lambda command: (command.kind != "check", -earlier_s.get(command.name, 0.0)))
        futures = []
        for command in order:
            command_folder = folder / command.name
            run_folder.remove(command_folder)
            futures.append(
                pool.submit(alloy.execute, jar, model, command, command_folder, solver=solver, limit_s=limit_s)
            )
        for future in as_completed(futures):
            outcome = future.result()
            outcomes[outcome.command.name] = outcome
            update(completed=len(outcomes), description=f"Alloy: {len(outcomes)} of {len(selected)} commands")
            console.print(f"{outcome.command.name}: {_result_text(outcome)}, {outcome.seconds:.1f} s", markup=False)
    return tuple(outcomes[command.name] for command in selected)


def draw_instances(outcomes: Sequence[CommandOutcome], folder: Path) -> tuple[Path, ...]:
    """Draw the instances that commands found, and return the written files."""
    # imported late because matplotlib takes a second
    from pyhooks.formal import instance, trace, trace_picture

    paths: list[Path] = []
    for outcome in outcomes:
        if outcome.instance is not None:
            steps = trace.steps(instance.read(outcome.instance))
            paths.extend(trace_picture.write(steps, outcome.command.purpose, folder, outcome.command.name))
    return tuple(paths)


def exit_status(outcomes: Sequence[CommandOutcome]) -> int:
    """Return 2 if a command did not complete, 0 if all outcomes are as expected, else 1."""
    if any(outcome.found is None for outcome in outcomes):
        return 2
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def judge_duration(outcomes: Sequence[CommandOutcome], commands: Sequence[AlloyCommand], seconds: float) -> str:
    """Return ``met``, ``missed``, or ``unknown`` if the run was fast enough but not all commands completed."""
    completed = {outcome.command.name for outcome in outcomes if outcome.found is not None}
    if seconds > TARGET_S:
        return "missed"
    return "met" if completed == {command.name for command in commands} else "unknown"


def _earlier_seconds(folder: Path) -> dict[str, float]:
    try:
        entries = read_json(folder / "summary.json", "it is of an earlier run")["commands"]
        return {str(entry["name"]): float(entry["seconds"]) for entry in entries}
    except (RackgateError, *MALFORMED):
        return {}  # without an earlier run there is no estimate


def _result_text(outcome: CommandOutcome) -> str:
    if outcome.found is None:
        return f"UNKNOWN ({outcome.problem})"
    texts = {
        ("check", False): "no counter-example",
        ("check", True): "COUNTER-EXAMPLE",
        ("run", True): "found",
        ("run", False): "NOT FOUND",
    }
    return texts[outcome.command.kind, outcome.found]


def _show(outcomes: Sequence[CommandOutcome], seconds: float, target_outcome: str, folder: Path) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("command", "what it shows", "bounds", "outcome"):
        table.add_column(title, overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for outcome in outcomes:
        style = "" if outcome.as_expected else "bold red"
        command = outcome.command
        table.add_row(
            command.name, command.purpose, command.bounds, _result_text(outcome), f"{outcome.seconds:.1f}", style=style
        )
    console = report_console(WIDTH)
    console.print(table)
    unexpected = [outcome.command.name for outcome in outcomes if not outcome.as_expected]
    verdict = f"not as expected: {', '.join(unexpected)}" if unexpected else f"all {len(outcomes)} are as expected"
    target = f"target of {TARGET_S / 60:.0f} minutes for all: {target_outcome}"
    console.print(f"{verdict}; {seconds:.0f} s, {target}; {folder / 'summary.json'}", markup=False)


def _show_commands(selected: Sequence[AlloyCommand]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("command", "what it shows", "bounds", "must find"):
        table.add_column(title, overflow="fold")
    for command in selected:
        table.add_row(command.name, command.purpose, command.bounds, "something" if command.expected else "nothing")
    report_console(WIDTH).print(table)
