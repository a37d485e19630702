"""``rackgate bench``: commands that run the benchmark and render its report again from a stored result."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bench.analysis.exit_reasons import EXIT_STATUS
from bench.load import pacer_accuracy
from bench.outages import cli
from bench.plan import scenarios
from bench.plan.scenario import Scenario
from bench.report import result_comparison
from bench.run.run_store import Store, begin, owned
from pyhooks.core import paths, run_folder, spark, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.lab import memory
from pyhooks.patchset.distribution import Distribution


class RunByDefault(TyperGroup):
    """Make ``run`` the default: ``rackgate bench --bootstrap …`` is ``rackgate bench run --bootstrap …``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Prepend ``run`` if the first argument is an option other than help."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    cls=RunByDefault,
    help="Measure what the gate costs and what it buys.",
    epilog="Examples: rackgate bench run · rackgate bench --bootstrap kafka1:9092 --master spark://host:7077",
)

DEFAULT_OUT, EXISTING_OUT = paths.OUT / "bench", paths.OUT / "bench-existing"
DEFAULT_SCENARIO, EXISTING_SCENARIO = "quick", "existing"
SPEED_OUT = paths.OUT / "bench-speed"

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON; progress goes to standard error.")]


@bench_app.command(
    "run",
    epilog="Examples: rackgate bench run · rackgate bench run --scenario full --out out/bench-full ·"
    " rackgate bench run --master 'local[4]' --out out/bench-4 · rackgate bench run --bootstrap kafka1:9092"
    f" --command-config client.properties --master spark://host:7077. {EXIT_STATUS}",
)
def run_command(
    scenario: Annotated[
        str | None, typer.Option(help="A table of bench/scenarios.toml [default: quick; existing with --bootstrap].")
    ] = None,
    scenario_file: Annotated[Path, typer.Option(help="Another file with plans.")] = scenarios.SHIPPED,
    master: Annotated[str, typer.Option(help="Spark's master: local[2], spark://host:7077 and so on.")] = "local[2]",
    topology: Annotated[str | None, typer.Option(help="A topology other than the scenario's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report and results [default: out/bench, out/bench-existing].")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an interrupted run has measured.")] = False,
    bootstrap: Annotated[
        str, typer.Option(help="Brokers of a cluster that is there already, host:port,host:port.", metavar="ADDR")
    ] = "",
    command_config: Annotated[
        Path | None, typer.Option(help="With --bootstrap: security, as for Kafka's own tools.")
    ] = None,
    replicas: Annotated[
        str, typer.Option(help="With --bootstrap: broker ids of every topic, the leader first [default: by racks].")
    ] = "",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Spark tasks that carry the load [default: the plan's].")
    ] = None,
    environment: Annotated[
        Path | None,
        typer.Option(help="With --bootstrap: a packed Python environment (.tar.gz) for executors without one."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="With --bootstrap: a setting of Spark, key=value; can be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Drives a scenario against the patched Kafka and writes index.html and results.json.

    Outside of a lab this builds what is missing and starts labs of its own; inside one it uses that. With --bootstrap
    it drives a cluster that is there already, breaks nothing in it and deletes its topics at the end; executors of the
    Spark cluster are the load hosts. A run that was interrupted goes on where it was: finished blocks are kept.
    """
    only_existing = {
        "--command-config": command_config,
        "--replicas": replicas,
        "--environment": environment,
        "--conf": conf,
    }
    if bootstrap:
        if topology:
            raise RackgateError("--topology is of a lab: leave it out with --bootstrap")
        _existing(
            scenario or EXISTING_SCENARIO,
            scenario_file,
            out or EXISTING_OUT,
            fresh=fresh,
            master=master,
            bootstrap=bootstrap,
            command_config=command_config,
            replicas=replicas,
            tasks=tasks,
            environment=environment,
            conf=conf or [],
            as_json=as_json,
        )
        return
    if given := [name for name, value in only_existing.items() if value]:
        raise RackgateError(f"{', '.join(given)}: only with --bootstrap, which says on which cluster")
    _lab(
        scenario or DEFAULT_SCENARIO,
        scenario_file,
        out or DEFAULT_OUT,
        fresh=fresh,
        master=master,
        topology=topology,
        tasks=tasks,
        as_json=as_json,
    )


def _existing(
    scenario: str,
    scenario_file: Path,
    out: Path,
    *,
    fresh: bool,
    master: str,
    bootstrap: str,
    command_config: Path | None,
    replicas: str,
    tasks: int | None,
    environment: Path | None,
    conf: list[str],
    as_json: bool,
) -> None:
    """Run a scenario on an existing cluster and exit with the status of the result."""
    from rich.console import Console

    from bench.run import existing_cluster
    from bench.run.lab_run import tell

    try:
        ids = tuple(int(one) for one in replicas.split(",")) if replicas else ()
    except ValueError as error:
        raise RackgateError(f"--replicas {replicas}: ids of brokers with commas between them, such as 1,3,5") from error
    if odd := [one for one in conf if "=" not in one]:
        raise RackgateError(f"--conf {odd[0]}: key=value is asked for")
    memory.require_memory(memory.SPARK_MB, f"Spark's driver of --master {master}", "run it on another host")
    if environment is not None and not environment.is_file():
        raise RackgateError(f"--environment {environment}: there is no such file")
    command = ["rackgate", "bench", "run", "--scenario", scenario, "--bootstrap", bootstrap, "--master", master]
    command += ["--scenario-file", str(scenario_file)] if scenario_file != scenarios.SHIPPED else []
    command += ["--command-config", str(command_config)] if command_config else []
    command += ["--replicas", replicas] if replicas else []
    command += ["--tasks", str(tasks)] if tasks else []
    command += ["--environment", str(environment)] if environment else []
    # only the names, because the values may be secret
    command += [word for one in conf for word in ("--conf", f"{one.split('=', 1)[0]}=…")]
    asked = existing_cluster.Asked(
        bootstrap=bootstrap,
        command_config=command_config,
        scenario=scenario,
        scenario_file=scenario_file,
        master=master,
        out=out,
        fresh=fresh,
        replicas=ids,
        tasks=tasks,
        environment=environment,
        conf=dict(one.split("=", 1) for one in conf),
        command=shlex.join(command),
    )
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    try:
        result = existing_cluster.measure(asked, console)
    except KeyboardInterrupt:
        console.print("interrupted: the run's topics are deleted; the same command goes on with the finished blocks")
        raise
    tell(result, out.resolve(), console, as_json=as_json)
    raise typer.Exit(result["exit_status"])


def _lab(
    scenario: str,
    scenario_file: Path,
    out: Path,
    *,
    fresh: bool,
    master: str,
    topology: str | None,
    tasks: int | None,
    as_json: bool,
) -> None:
    """Run a scenario in labs, or in the current lab if this process runs inside one."""
    from bench.plan.lab_topology import check_machine
    from bench.progress import clock
    from bench.run.lab_run import estimate_s

    plan = scenarios.load(scenario, scenario_file, topology, tasks)
    if (cores := spark.slots(master)) is not None and plan.tasks > cores:
        raise RackgateError(
            f"--master {master}: runs {cores} task{'s' if cores > 1 else ''} at a time, and the load has {plan.tasks}:"
            f" take 'local[{plan.tasks}]', or fewer --tasks"
        )
    if not os.environ.get("RACKGATE_LAB"):
        check_machine(sorted({name for name, _ in plan.places}), master)
    command = ["rackgate", "bench", "run", "--scenario", scenario, "--master", master]
    command += ["--topology", topology] if topology else []
    command += ["--tasks", str(tasks)] if tasks else []
    command += ["--scenario-file", str(scenario_file)] if scenario_file != scenarios.SHIPPED else []
    words = [
        sys.executable,
        "-m",
        "bench.run.lab_run",
        "--scenario",
        scenario,
        "--scenarios",
        str(scenario_file.resolve()),
    ]
    words += ["--topology", topology] if topology else []
    words += ["--tasks", str(tasks)] if tasks else []
    words += ["--master", master, "--out", str(out.resolve()), "--command", shlex.join(command)]
    words += ["--json"] if as_json else []
    inside = bool(os.environ.get("RACKGATE_LAB"))
    given = {"master": master}
    with owned(out) as folder:
        if not inside:
            from pyhooks.patchset import builder

            made = builder.build(force=False, quiet=as_json)
            about = f"Kafka {made.distribution.manifest['kafka_version']} with the series"
            typer.echo(f"{about}: ready in {made.seconds:.1f} s", err=as_json)
        build = str(Distribution.load().manifest.get("patch_hash", ""))
        store, goes_on = begin(folder, plan, started=datetime.now(UTC), build=build, given=given, fresh=fresh)
        blocks = sum(cell.scenario.latency.blocks for cell in plan.cells)
        left = sum(len(store.missing(cell)) for cell in plan.cells)
        told = f"goes on: {blocks - left} of {blocks} blocks are kept" if goes_on else f"{blocks} blocks"
        typer.echo(f"{scenario}: {told}; about {clock(estimate_s(store, plan))} to the report", err=as_json)
        sys.stdout.flush()
        sys.stderr.flush()
        if inside:
            words += ["--session", str(store.next_session())]
            # in a child process, because this process holds the lock of the folder
            raise typer.Exit(subprocess.run([*DIES_WITH_PARENT, *words], check=False).returncode)
        _in_labs(store, plan, words)


def _in_labs(store: Store, plan: Scenario, words: list[str]) -> None:
    """Start one lab after the other until nothing is missing; the last one writes the report."""
    from bench.plan import lab_topology
    from pyhooks.lab.cli import run_in_lab

    while missing := store.places(plan):
        place, number = missing[0], store.next_session()
        file = lab_topology.write(*place, store.folder / "topologies")
        own = [*words, "--place", "/".join(place), "--session", str(number)]
        status = run_in_lab(str(file), store.lab(number), own, bare=False, stock=False)
        if status:
            raise typer.Exit(status)
        if store.places(plan)[:1] == [place]:
            raise RackgateError(f"{store.lab(number)}: the lab ended without having measured all of {'/'.join(place)}")
    if not store.run.get("done"):
        # an earlier run measured everything, but was interrupted before the report
        raise typer.Exit(subprocess.run([*DIES_WITH_PARENT, *words, "--finish"], check=False).returncode)


bench_app.command("outages", epilog=cli.EPILOG)(cli.outages_command)
bench_app.command("pacer", epilog=pacer_accuracy.EPILOG)(pacer_accuracy.pacer_command)
bench_app.command("compare", epilog=result_comparison.EPILOG)(result_comparison.compare_command)


@bench_app.command(
    "report",
    epilog="Examples: rackgate bench report out/bench · rackgate bench report out/bench --json. Exit status as of the"
    " run.",
)
def report_command(
    result: Annotated[Path, typer.Argument(help="results.json, or the folder that holds it.")] = DEFAULT_OUT,
    out: Annotated[Path | None, typer.Option(help="Folder for the report [default: where the result is].")] = None,
    as_json: JsonOption = False,
) -> None:
    """Makes page and pictures again from a stored result; needs no cluster."""
    from rich.console import Console

    from bench.analysis import exit_reasons, verdicts
    from bench.report import run_page, verdict_counts

    stored = run_page.load(result)
    with evaluating(result, run_page.EXPECTED):
        # results of earlier versions have no exit status
        stored |= exit_reasons.conclude(exit_reasons.of_run(stored), verdicts.sentences(stored))
        lines = verdict_counts.lines(stored)
    folder = out or (result if result.is_dir() else result.parent)
    with run_folder.held(folder, run_folder.BENCH):
        page = run_page.render(stored, folder, source=result)
    if as_json:
        typer.echo(json.dumps(stored, indent=1, allow_nan=False))
        raise typer.Exit(stored["exit_status"])
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(line, markup=False)
    console.print(f"report: {page}", markup=False)
    if stored.get("bar") is not None:
        console.print(targets.of_run_text(stored["bar"]), markup=False)
    raise typer.Exit(stored["exit_status"])


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
    from bench.analysis import analysis_speed

    sizes = sorted(observations or analysis_speed.SIZES)
    with run_folder.held(out, run_folder.SPEED) as folder:
        work = folder / "work"
        run_folder.empty(work, run_folder.SPEED_WORK)
        result = analysis_speed.measure(sizes, work, master=master, tell=lambda line: typer.echo(line, err=as_json))
        held = analysis_speed.bars_of(result)
        file = analysis_speed.write(result | {"bars": [bar.as_json() for bar in held]}, out)
    if as_json:
        typer.echo(file.read_text(encoding="utf-8").rstrip())
        raise typer.Exit(targets.status(held))
    grown = analysis_speed.growth(result)
    typer.echo(f"greatest memory: {result['rows'][-1]['peak_gib_so_far']:.1f} GiB, Python and Spark together")
    if grown is not None:
        typer.echo(f"{sizes[-1] / sizes[0]:.3g} times the observations took {grown:.1f} times as long")
    typer.echo(f"figures: {file}")
    for bar in held:
        typer.echo(bar.text)
    if not held:
        typer.echo("no bar is for these numbers of observations")
    raise typer.Exit(targets.status(held))
