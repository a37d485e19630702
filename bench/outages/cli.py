"""``rackgate bench outages``: repeated rack outages and rack destructions in labs, with a report."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.analysis.exit_reasons import EXIT_STATUS
from bench.plan import outage_plan
from pyhooks.core import paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_object, write_json

DEFAULT_OUT = paths.OUT / "bench-outages"
EPILOG = (
    "Examples: rackgate bench outages · rackgate bench outages --plan quick --out out/bench-outages-quick ·"
    " rackgate bench outages --page-only. "
    f"{EXIT_STATUS} With --page-only, that of the run."
)


def outages_command(
    plan: Annotated[str, typer.Option(help="Table of bench/outages.toml.")] = "full",
    plan_file: Annotated[Path, typer.Option(help="Another file with plans of outages.")] = outage_plan.SHIPPED,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    out: Annotated[Path, typer.Option(help="Folder for report and results.")] = DEFAULT_OUT,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Render the page again from results.json; needs no cluster.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Kill, cut off and destroy racks repeatedly, count acknowledged records, and write index.html and results.json.

    For each arm and state: the share of the intended records that was acknowledged, the times from fault to first
    rejection and from heal to first acknowledgement; and the records lost when a rack is destroyed.
    """
    from bench.analysis import exit_reasons, verdicts
    from bench.outages import outage_page, outage_results

    if page_only:
        result = outage_results.load(out)
        with evaluating(out / "results.json", outage_page.EXPECTED):
            # results of earlier versions have no exit status
            result |= exit_reasons.conclude(exit_reasons.outage_reasons(result), outage_results.sentences(result))
        with run_folder.held(out, run_folder.OUTAGES):
            page = outage_page.render(result, out)
    else:
        run_plan = outage_plan.load(plan, plan_file)
        command = ["rackgate", "bench", "outages", "--plan", plan, "--master", master]
        command += ["--plan-file", str(plan_file)] if plan_file != outage_plan.SHIPPED else []
        with run_folder.held(out, run_folder.OUTAGES) as folder:
            work = folder / "run"
            run_folder.claim(work, run_folder.OUTAGES_RUN)
            result = _measure(run_plan, plan_file.resolve(), master, work, shlex.join(command), quiet=as_json)
            write_json(out / "results.json", result)
            page = outage_page.render(result, out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        raise typer.Exit(result["exit_status"])
    for line in (*verdicts.lines(result["verdicts"]), *(f"note: {note}" for note in result["notes"])):
        typer.echo(line)
    typer.echo(f"report:  {page}")
    typer.echo(f"numbers: {out / 'results.json'}")
    raise typer.Exit(result["exit_status"])


def _measure(
    plan: outage_plan.OutageRunPlan, file: Path, master: str, work: Path, command: str, *, quiet: bool
) -> dict[str, Any]:
    """Run all outages of a plan, one lab after the other, in the emptied folder ``work``; return the result."""
    from bench.outages import outage_results
    from bench.outages.outage_run import estimate_s
    from bench.plan.lab_topology import check_machine
    from bench.progress import clock_text
    from pyhooks.lab.cli import run_in_lab
    from pyhooks.patchset import builder

    if os.environ.get("RACKGATE_LAB"):
        raise RackgateError("rackgate bench outages starts labs: run it outside a lab")
    check_machine([lab.topology for lab in plan.labs], master)
    distribution = builder.build(force=False, quiet=quiet).distribution
    started, begun = datetime.now(UTC), time.monotonic()
    run_id = started.strftime("%Y%m%d-%H%M%S")
    number = sum(times for lab in plan.labs for times in lab.outages.values())
    size = f"{number} outages in {len(plan.labs)} lab{'s' if len(plan.labs) != 1 else ''}"
    typer.echo(f"{plan.name}: {size}; about {clock_text(estimate_s(plan, plan.labs))} to the page", err=quiet)
    # events and observations of an earlier run must not be mistaken for new ones
    run_folder.empty(work, run_folder.OUTAGES_RUN)
    findings = []
    for lab in plan.labs:
        folder = work / lab.name
        lab_command = [sys.executable, "-m", "bench.outages.outage_run", "--plan", plan.name, "--plans", str(file)]
        lab_command += ["--lab", lab.name, "--run-id", run_id, "--master", master]
        lab_command += ["--on-stderr"] if quiet else []
        status = run_in_lab(lab.topology, folder, lab_command, bare=False, stock=lab.stock)
        if status:
            raise typer.Exit(status)
        findings.append(read_object(folder / "found.json", "the lab's run writes it"))
    return outage_results.result(
        plan,
        findings,
        run_id=run_id,
        started=started,
        command=command,
        master=master,
        distribution=distribution,
        duration_s=time.monotonic() - begun,
    )
