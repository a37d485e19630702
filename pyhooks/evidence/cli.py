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
from pyhooks.evidence import artifacts, page, run_table, runs
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
        bool, typer.Option("--judge", help="Run nothing; judge the artifacts, write claims.json, page and table.")
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

    Only runs without a current artifact are run. Artifacts are written to kip/evidence and the table of runs to
    kip/results.md, to be committed; the page is out/evidence/index.html.
    """
    claims = load()
    selected = choose(claims, names or [])
    if sum((list_, judge, check)) > 1:
        raise RackgateError("--list, --judge and --check are mutually exclusive")
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
            message = "another `rackgate evidence` runs in this checkout; wait for it"
            stack.enter_context(hold_lock(runs.OUT / ".lock", taken=message))
        results = artifacts.read_results(claims)
        selected_runs = [
            name for name in _selected_runs(claims, names or []) if not costs or claims.runs[name].cost in costs
        ]
        failed: list[str] = []
        if not (list_ or judge):
            runs_to_execute = [
                claims.runs[name]
                for name in selected_runs
                if fresh or name not in results.hashes or name in results.stale
            ]
            failed = _execute_runs(claims, runs_to_execute, quiet=as_json)
            results = artifacts.read_results(claims)
        if not list_:
            artifacts.write_index(claims, results)
            page.write(claims, results, PAGE)
            run_table.write(claims, results)
    # skip claims that also need a run that was not selected and has no current artifact
    available = {*selected_runs, *(results.hashes.keys() - results.stale.keys())}
    if costs or names:
        selected = [name for name in selected if name in (names or []) or set(claims.claims[name].runs) <= available]
    _print_results(claims, results, selected, as_json=as_json, page_path=None if list_ else PAGE)
    if failed:
        raise RackgateError(f"{len(failed)} runs failed: {', '.join(failed)}")
    if not list_ and not all(results.judged[name].state == claims.claims[name].verdict for name in selected):
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
    claim_ids = [name for name in names if name in claims.claims] if names else list(claims.claims)
    run_ids = {*names, *_runs(claims, claim_ids)}
    return [name for name in claims.runs if name in run_ids]


def _runs(claims: Claims, claim_ids: Sequence[str]) -> list[str]:
    run_ids = {run for name in claim_ids for run in claims.claims[name].runs}
    return [name for name in claims.runs if name in run_ids]


def _execute_runs(claims: Claims, selected: Sequence[ClaimRun], *, quiet: bool) -> list[str]:
    stages = Stages(len(selected), runs.OUT / "timings.json", quiet=quiet)
    if selected:
        stages.print_line(
            f"{len(selected)} runs, about {sum(run.minutes for run in selected):.0f} min according to kip/claims.toml"
        )
    failed = []
    for run in selected:
        try:
            with stages.stage(run.id):
                runs.execute_run(claims, run)
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
    results = artifacts.read_results(claims)
    faults = artifacts.faults(claims, results)
    missing = artifacts.missing(results) if strict else []
    console = Console(soft_wrap=True, markup=False, highlight=False)
    for fault in (*faults, *missing):
        console.print(f"error: {fault}")
    missing_text = f", {len(missing)} without a current result" if strict else ""
    console.print(f"{len(claims.claims)} claims: {_format_counts(results)}; {len(faults)} contradictions{missing_text}")
    return 1 if faults or missing else 0


def _format_counts(results: EvidenceResults) -> str:
    return ", ".join(f"{count} {state}" for state, count in page.counts(results).items() if count)


def _print_results(
    claims: Claims, results: EvidenceResults, selected: Sequence[str], *, as_json: bool, page_path: Path | None
) -> None:
    rows = [page.row(claims.claims[name], claims, results) for name in selected]
    if as_json:
        document = {"counts": page.counts(results), "claims": rows, "page": str(page_path) if page_path else ""}
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
    missing = [
        claims.runs[name] for name in _runs(claims, selected) if name not in results.hashes or name in results.stale
    ]
    for cost in COSTS:
        if runs_of_cost := [run for run in missing if run.cost == cost]:
            console.print(f"to run ({cost}, about {sum(run.minutes for run in runs_of_cost):.0f} min):", soft_wrap=True)
            for run in runs_of_cost:
                console.print(f"  rackgate evidence {run.id}: needs {run.needs}", soft_wrap=True)
    console.print(f"{len(claims.claims)} claims: {_format_counts(results)}", soft_wrap=True)
    if page_path:
        console.print(str(page_path), soft_wrap=True)
