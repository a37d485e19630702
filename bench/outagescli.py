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

from bench import outageplan
from bench.judgement import EXIT_STATUS
from pyhooks.core import paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_object

DEFAULT_OUT = paths.OUT / "bench-outages"
EPILOG = (
    "Examples: rackgate bench outages · rackgate bench outages --plan quick --out out/bench-outages-quick ·"
    " rackgate bench outages --page-only. "
    f"{EXIT_STATUS} With --page-only that of the run."
)


def outages_command(
    plan: Annotated[str, typer.Option(help="A table of bench/outages.toml.")] = "full",
    plan_file: Annotated[Path, typer.Option(help="Another file with plans.")] = outageplan.SHIPPED,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    out: Annotated[Path, typer.Option(help="Folder for page and results.")] = DEFAULT_OUT,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Make the page again from results.json; needs no cluster.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Takes racks away again and again and counts what was acknowledged; writes index.html and results.json.

    For each arm and state: the share of the intended records that was acknowledged, the times from fault to first
    refusal and from heal to first acknowledgement; and what is lost when a rack is destroyed.
    """
    from bench import judgement, outagereport, outageresults

    if page_only:
        result = outageresults.load(out)
        with evaluating(out / "results.json", outagereport.EXPECTED):
            # results of earlier versions have no exit status
            result |= judgement.conclude(judgement.of_outages(result), outageresults.sentences(result))
        with run_folder.held(out, run_folder.OUTAGES):
            page = outagereport.render(result, out)
    else:
        wanted = outageplan.load(plan, plan_file)
        words = ["rackgate", "bench", "outages", "--plan", plan, "--master", master]
        words += ["--plan-file", str(plan_file)] if plan_file != outageplan.SHIPPED else []
        with run_folder.held(out, run_folder.OUTAGES) as folder:
            work = folder / "run"
            run_folder.claim(work, run_folder.OUTAGES_RUN)
            result = _measured(wanted, plan_file.resolve(), master, work, shlex.join(words), quiet=as_json)
            outageresults.write(result, out)
            page = outagereport.render(result, out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        raise typer.Exit(result["exit_status"])
    for row in result["verdicts"]:
        typer.echo(f"{row['subject']}: {row['word'].upper()}. {row['text']}")
    for note in result["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(f"report:  {page}")
    typer.echo(f"numbers: {out / 'results.json'}")
    raise typer.Exit(result["exit_status"])


def _measured(
    plan: outageplan.Plan, file: Path, master: str, work: Path, command: str, *, quiet: bool
) -> dict[str, Any]:
    """Run all outages of a plan, one lab after the other, in the emptied folder ``work``; return the result.

    Raises:
        RackgateError: this process runs inside a lab, or a lab could not be prepared or failed.
        typer.Exit: a lab ended with a status other than 0.
    """
    from bench import outageresults
    from bench.outages import estimate_s
    from bench.places import check_machine
    from bench.progress import clock
    from pyhooks.lab.cli import within
    from pyhooks.patchset import builder

    if os.environ.get("RACKGATE_LAB"):
        raise RackgateError("rackgate bench outages makes labs of its own: run it outside of a lab")
    check_machine([lab.topology for lab in plan.labs], master)
    made = builder.build(force=False, quiet=quiet)
    started, begun = datetime.now(UTC), time.monotonic()
    run_id = started.strftime("%Y%m%d-%H%M%S")
    many = sum(times for lab in plan.labs for times in lab.outages.values())
    told = f"{many} outages in {len(plan.labs)} lab{'s' if len(plan.labs) != 1 else ''}"
    typer.echo(f"{plan.name}: {told}; about {clock(estimate_s(plan, plan.labs))} to the page", err=quiet)
    # events and observations of an earlier run must not be mistaken for new ones
    run_folder.empty(work, run_folder.OUTAGES_RUN)
    found = []
    for lab in plan.labs:
        folder = work / lab.topology
        words = [sys.executable, "-m", "bench.outages", "--plan", plan.name, "--plans", str(file)]
        words += ["--lab", lab.topology, "--run-id", run_id, "--master", master]
        words += ["--on-stderr"] if quiet else []
        status = within(lab.topology, folder, words, bare=False, stock=False)
        if status:
            raise typer.Exit(status)
        found.append(read_object(folder / "found.json", "the lab's run writes it"))
    return outageresults.result(
        plan,
        found,
        run_id=run_id,
        started=started,
        command=command,
        master=master,
        distribution=made.distribution,
        took_s=time.monotonic() - begun,
    )
