"""``rackgate bench``: build, start a lab and measure in it; make a report again from a stored result."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bench import outagescli, pace, scenarios, sidebyside
from bench.plan import Scenario
from bench.store import Store, begin
from pyhooks import bars, paths
from pyhooks.build.distribution import Distribution
from pyhooks.errors import RackgateError

bench_app = typer.Typer(no_args_is_help=True, help="Measure what the gate costs and what it buys.")
bench_app.command("outages", epilog=outagescli.EPILOG)(outagescli.outages_command)

DEFAULT_OUT = paths.OUT / "bench"
SPEED_OUT = paths.OUT / "bench-speed"


@bench_app.command(
    "run",
    epilog="Examples: rackgate bench run · rackgate bench run --scenario full --out out/bench-full ·"
    " rackgate bench run --master 'local[4]' --out out/bench-4",
)
def run_command(
    scenario: Annotated[str, typer.Option(help="A table of bench/scenarios.toml.")] = "quick",
    scenario_file: Annotated[Path, typer.Option(help="Another file with plans.")] = scenarios.SHIPPED,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    topology: Annotated[str | None, typer.Option(help="A topology other than the scenario's.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for report and results.")] = DEFAULT_OUT,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an interrupted run has measured.")] = False,
) -> None:
    """Drives a scenario against the patched Kafka and writes index.html and results.json.

    Outside of a lab this builds what is missing and starts labs of its own; inside one it uses that. A run that was
    interrupted goes on where it was: finished blocks are kept.
    """
    from bench.progress import clock
    from bench.run import estimate_s

    plan = scenarios.load(scenario, scenario_file, topology)
    command = ["rackgate", "bench", "run", "--scenario", scenario, "--master", master]
    command += ["--topology", topology] if topology else []
    command += ["--scenario-file", str(scenario_file)] if scenario_file != scenarios.SHIPPED else []
    words = [sys.executable, "-m", "bench.run", "--scenario", scenario, "--scenarios", str(scenario_file.resolve())]
    words += ["--topology", topology] if topology else []
    words += ["--master", master, "--out", str(out.resolve()), "--command", shlex.join(command)]
    inside = bool(os.environ.get("RACKGATE_LAB"))
    if not inside:
        from pyhooks.build import builder

        made = builder.build(first=None, force=False, quiet=False)
        about = f"Kafka {made.distribution.manifest['kafka_version']} with the series"
        typer.echo(f"{about}: ready in {made.seconds:.1f} s")
    build = str(Distribution.load().manifest.get("patch_hash", ""))
    store, goes_on = begin(out.resolve() / "run", plan, started=datetime.now(UTC), build=build, fresh=fresh)
    blocks = sum(cell.scenario.latency.blocks for cell in plan.cells)
    left = sum(len(store.missing(cell)) for cell in plan.cells)
    told = f"goes on: {blocks - left} of {blocks} blocks are kept" if goes_on else f"{blocks} blocks"
    typer.echo(f"{scenario}: {told}; about {clock(estimate_s(store, plan))} to the report")
    sys.stdout.flush()
    sys.stderr.flush()
    if inside:
        words += ["--session", str(store.next_session())]
        os.execv(words[0], words)  # noqa: S606 - no shell is wanted
    _in_labs(store, plan, words)


def _in_labs(store: Store, plan: Scenario, words: list[str]) -> None:
    """Starts one lab after the other, until nothing is missing; the last one writes the report."""
    from bench import places
    from pyhooks.cluster.cli import within
    from pyhooks.process import DIES_WITH_PARENT

    while missing := store.places(plan):
        place, number = missing[0], store.next_session()
        file = places.write(*place, store.folder / "topologies")
        own = [*words, "--place", "/".join(place), "--session", str(number)]
        status = within(str(file), store.lab(number), own, bare=False, stock=False)
        if status:
            raise typer.Exit(status)
        if store.places(plan)[:1] == [place]:
            raise RackgateError(f"{store.lab(number)}: the lab ended without having measured all of {'/'.join(place)}")
    if not store.run.get("done"):
        # it was interrupted when all was measured
        raise typer.Exit(subprocess.run([*DIES_WITH_PARENT, *words, "--finish"], check=False).returncode)


bench_app.command("pacer", epilog=pace.EPILOG)(pace.pacer_command)
bench_app.command("compare", epilog=sidebyside.EPILOG)(sidebyside.compare_command)


@bench_app.command("report", epilog="Example: rackgate bench report out/bench")
def report_command(
    result: Annotated[Path, typer.Argument(help="results.json, or the folder that holds it.")] = DEFAULT_OUT,
    out: Annotated[Path | None, typer.Option(help="Folder for the report [default: where the result is].")] = None,
) -> None:
    """Makes page and pictures again from a stored result; needs no cluster."""
    from rich.console import Console

    from bench import report, verdict

    stored = report.load(result)
    page = report.render(stored, out or (result if result.is_dir() else result.parent))
    console = Console(soft_wrap=True, highlight=False)
    for line in verdict.lines(stored["verdicts"]):
        console.print(line, markup=False)
    console.print(f"report: {page}", markup=False)


@bench_app.command(
    "speed",
    epilog="Examples: rackgate bench speed · rackgate bench speed --observations 1000000 --json",
)
def speed_command(
    observations: Annotated[
        list[int] | None, typer.Option(min=1, help="How many; can be given several times [default: 5 and 50 million].")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    out: Annotated[Path, typer.Option(help="Folder for speed.json and, meanwhile, the observations.")] = SPEED_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Makes up observations of 12 cells, 4 arms and 20 blocks and measures their analysis; needs no cluster.

    50 million observations are some 2 GB of Parquet while it runs. Bars, for the default numbers: 90 s and 4 GiB for
    50 million, and at most 11 times the time of 5 million; the command ends with 1 if one is missed, and with 2 if
    that can't be told since others used the machine.
    """
    from bench import speed

    sizes = sorted(observations or speed.SIZES)
    result = speed.measure(
        sizes, out.resolve() / "work", master=master, tell=lambda line: typer.echo(line, err=as_json)
    )
    held = speed.bars_of(result)
    file = speed.write(result | {"bars": [bar.as_json() for bar in held]}, out)
    if as_json:
        typer.echo(file.read_text(encoding="utf-8").rstrip())
        raise typer.Exit(bars.status(held))
    grown = speed.growth(result)
    typer.echo(f"greatest memory: {result['rows'][-1]['peak_gib_so_far']:.1f} GiB, Python and Spark together")
    if grown is not None:
        typer.echo(f"{sizes[-1] / sizes[0]:.3g} times the observations took {grown:.1f} times as long")
    typer.echo(f"figures: {file}")
    for bar in held:
        typer.echo(bar.text)
    if not held:
        typer.echo("no bar is for these numbers of observations")
    raise typer.Exit(bars.status(held))
