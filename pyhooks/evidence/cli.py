"""``rackgate evidence``: run the checks of claims, judge their results, and show the verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import hold_lock
from pyhooks.evidence import artifacts, page, runs
from pyhooks.evidence.artifacts import EvidenceResults
from pyhooks.evidence.claims import COSTS, ClaimRun, Claims, load
from pyhooks.patchset.stages import Stages

EVIDENCE_EPILOG = (
    "Examples: rackgate evidence --list · rackgate evidence --cost seconds · rackgate evidence parent-class ·"
    " rackgate evidence --fresh system · rackgate evidence --judge ·"
    " rackgate evidence --check --strict. Exit status: 0 all selected claims have the"
    " verdict expected in claims.toml, 1 one has another, is undecided, stale or not run, 2 a run failed."
)
PAGE = runs.OUT / "index.html"
evidence_app = typer.Typer()


@evidence_app.command("evidence", epilog=EVIDENCE_EPILOG)
def evidence_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Claims or runs of kip/claims.toml; all by default.", metavar="ID")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(help=f"Only runs of this cost ({', '.join(COSTS)}); can be repeated.", metavar="COST"),
    ] = None,
    cheap: Annotated[bool, typer.Option("--cheap", help="Only runs of seconds, as --cost seconds.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also run again what has a current artifact.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the current state; run and write nothing.")] = False,
    judge: Annotated[
        bool, typer.Option("--judge", help="Run nothing; judge the artifacts and write claims.json and the page.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only compare the stored files, as `make check`; exit status 1 on a contradiction."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --check: also fail for a claim that is stale or was not run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check the claims of KIP-1290 and its background documents: run the commands, judge the results, write a matrix.

    Only runs without a current artifact are run. Artifacts are written to kip/evidence, to be committed; the page is
    out/evidence/index.html.
    """
    claims = load()
    chosen = choose(claims, names or [])
    if sum((list_, judge, check)) > 1:
        raise RackgateError("--list, --judge and --check exclude each other")
    if strict and not check:
        raise RackgateError("--strict is an option of --check")
    if check:
        raise typer.Exit(_check(claims, strict=strict))
    costs = {"seconds"} if cheap else set()
    for name in cost or []:
        if name not in COSTS:
            raise RackgateError(f"--cost {name}: expected one of {', '.join(COSTS)}")
        costs.add(name)
    with ExitStack() as stack:
        if not list_:
            taken = "another `rackgate evidence` runs in this checkout; wait for it"
            stack.enter_context(hold_lock(runs.OUT / ".lock", taken=taken))
        book = artifacts.read_results(claims)
        wanted = [name for name in _selected_runs(claims, names or []) if not costs or claims.runs[name].cost in costs]
        failed: list[str] = []
        if not (list_ or judge):
            todo = [claims.runs[name] for name in wanted if fresh or name not in book.hashes or name in book.stale]
            failed = _carry_out(claims, todo, quiet=as_json)
            book = artifacts.read_results(claims)
        if not list_:
            artifacts.write_index(claims, book)
            page.write(claims, book, PAGE)
    # skip claims that also need a run that was not selected and has no current artifact
    present = {*wanted, *(book.hashes.keys() - book.stale.keys())}
    if costs or names:
        chosen = [name for name in chosen if name in (names or []) or set(claims.claims[name].runs) <= present]
    _print_results(claims, book, chosen, as_json=as_json, written=None if list_ else PAGE)
    if failed:
        raise RackgateError(f"{len(failed)} runs failed: {', '.join(failed)}")
    if not list_ and not all(book.judged[name].state == claims.claims[name].verdict for name in chosen):
        raise typer.Exit(1)


def choose(claims: Claims, names: Sequence[str]) -> list[str]:
    """Return the claims selected by names of claims or runs, in the order of the file; all if there are no names.

    Raises:
        RackgateError: a name is neither a claim nor a run.
    """
    for name in names:
        if name not in claims.claims and name not in claims.runs:
            raise RackgateError(f"{name}: no claim or run of kip/claims.toml; `rackgate evidence --list` lists them")
    wanted = set(names)
    return [claim.id for claim in claims.claims.values() if not wanted or wanted & {claim.id, *claim.runs}]


def _selected_runs(claims: Claims, names: Sequence[str]) -> list[str]:
    """Return the runs selected by names of runs or claims; all if there are no names."""
    own = [name for name in names if name in claims.claims] if names else list(claims.claims)
    used = {*names, *_runs(claims, own)}
    return [name for name in claims.runs if name in used]


def _runs(claims: Claims, chosen: Sequence[str]) -> list[str]:
    used = {run for name in chosen for run in claims.claims[name].runs}
    return [name for name in claims.runs if name in used]


def _carry_out(claims: Claims, todo: Sequence[ClaimRun], *, quiet: bool) -> list[str]:
    stages = Stages(len(todo), runs.OUT / "timings.json", quiet=quiet)
    if todo:
        stages.print_line(
            f"{len(todo)} runs, about {sum(run.minutes for run in todo):.0f} min according to kip/claims.toml"
        )
    failed = []
    for run in todo:
        try:
            with stages.stage(run.id):
                runs.carry_out(claims, run)
        except RackgateError as error:
            # the other runs may succeed, and their artifacts are kept
            failed.append(run.id)
            stages.print_line(f"{run.id}: {error}")
            if error.detail:
                stages.print_line(error.detail)
            if quiet:
                sys.stderr.write(f"{run.id}: {error}\n")
        else:
            stages.remember()
    return failed


def _check(claims: Claims, *, strict: bool) -> int:
    book = artifacts.read_results(claims)
    faults = artifacts.faults(claims, book)
    missing = artifacts.missing(book) if strict else []
    console = Console(soft_wrap=True, markup=False, highlight=False)
    for fault in (*faults, *missing):
        console.print(f"error: {fault}")
    without = f", {len(missing)} without a current result" if strict else ""
    console.print(f"{len(claims.claims)} claims: {_format_counts(book)}; {len(faults)} contradictions{without}")
    return 1 if faults or missing else 0


def _format_counts(book: EvidenceResults) -> str:
    return ", ".join(f"{count} {state}" for state, count in page.counts(book).items() if count)


def _print_results(
    claims: Claims, book: EvidenceResults, chosen: Sequence[str], *, as_json: bool, written: Path | None
) -> None:
    rows = [page.row(claims.claims[name], claims, book) for name in chosen]
    if as_json:
        document = {"counts": page.counts(book), "claims": rows, "page": str(written) if written else ""}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    table = Table(box=None, pad_edge=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict", min_width=12)
    table.add_column("by", max_width=24)
    table.add_column("says")
    for row in rows:
        verdict = f"{row['state']}, was {row['was']}" if row["was"] else row["state"]
        if row["agrees"] is False:
            verdict += f"; claims.toml expects {row['expected']}"
        table.add_row(row["id"], verdict, ", ".join(check["run"] for check in row["checks"]), row["says"])
    console.print(table)
    missing = [claims.runs[name] for name in _runs(claims, chosen) if name not in book.hashes or name in book.stale]
    for cost in COSTS:
        if own := [run for run in missing if run.cost == cost]:
            console.print(f"to run ({cost}, about {sum(run.minutes for run in own):.0f} min):", soft_wrap=True)
            for run in own:
                console.print(f"  rackgate evidence {run.id}: needs {run.needs}", soft_wrap=True)
    console.print(f"{len(claims.claims)} claims: {_format_counts(book)}", soft_wrap=True)
    if written:
        console.print(str(written), soft_wrap=True)
