"""``rackgate bench``: commands that run the benchmark and render its report again from a stored result."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bench.analysis.exit_reasons import EXIT_STATUS
from bench.load import pacer_accuracy
from bench.outages import cli as outages_cli
from bench.plan import scenarios
from bench.plan.scenario import Scenario
from bench.report import result_comparison
from bench.run import overlay_cost
from bench.run.run_store import RunStore, begin_run, locked_run_folder
from pyhooks.core import paths, run_folder, spark, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, write_json
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.lab import memory
from pyhooks.patchset.distribution import Distribution

if TYPE_CHECKING:
    from bench.run.existing_cluster import ExistingClusterRequest


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
    help="Measure produce latency with and without the gate, and availability in rack outages.",
    epilog="Examples: rackgate bench run · rackgate bench --bootstrap kafka1:9092 --master spark://host:7077",
)

DEFAULT_OUT, EXISTING_OUT = paths.OUT / "bench", paths.OUT / "bench-existing"
DEFAULT_SCENARIO, EXISTING_SCENARIO = "question", "existing"
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
        str | None, typer.Option(help="Table of bench/scenarios.toml (default: question; with --bootstrap: existing).")
    ] = None,
    scenario_file: Annotated[Path, typer.Option(help="Another file with scenarios.")] = scenarios.SHIPPED,
    master: Annotated[str, typer.Option(help="Spark master, such as local[2] or spark://host:7077.")] = "local[2]",
    topology: Annotated[str | None, typer.Option(help="Topology in place of the scenario's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report and results (default: out/bench or out/bench-existing).")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the measurements of an interrupted run.")] = False,
    bootstrap: Annotated[
        str, typer.Option(help="Brokers of an existing cluster, host:port,host:port.", metavar="ADDR")
    ] = "",
    command_config: Annotated[
        Path | None, typer.Option(help="With --bootstrap: security settings, in the format of Kafka's tools.")
    ] = None,
    replicas: Annotated[
        str, typer.Option(help="With --bootstrap: replicas of every topic, leader first (default: from all racks).")
    ] = "",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Number of Spark tasks that send the load (default: the scenario's).")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Records/s of every cell, in place of its own rate or percentage.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of the topics of every cell; all replicas lead some (default: 1).")
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="With --bootstrap: executors share --out at the same path, and write observations there."
        ),
    ] = False,
    environment: Annotated[
        Path | None,
        typer.Option(help="With --bootstrap: packed Python environment (.tar.gz) for executors without one."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="With --bootstrap: Spark setting, key=value; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario against the patched Kafka and write index.html and results.json.

    Outside a lab this builds what is missing and starts labs; inside a lab it uses that lab. With --bootstrap it uses
    an existing cluster and the executors of the Spark cluster as load hosts. It injects no faults there, and deletes
    its topics at the end. An interrupted run continues with its finished blocks.
    """
    existing_options = {
        "--command-config": command_config,
        "--replicas": replicas,
        "--environment": environment,
        "--conf": conf,
        "--shared": shared,
    }
    if not bootstrap and (given := [name for name, value in existing_options.items() if value]):
        raise RackgateError(f"{', '.join(given)}: requires --bootstrap with the addresses of an existing cluster")
    if bootstrap and topology:
        raise RackgateError("--topology is for labs: it can't be combined with --bootstrap")
    scenario = scenario or (EXISTING_SCENARIO if bootstrap else DEFAULT_SCENARIO)
    options = {
        "--scenario": scenario,
        "--bootstrap": bootstrap,
        "--master": master,
        "--topology": topology,
        "--scenario-file": scenario_file if scenario_file != scenarios.SHIPPED else None,
        "--command-config": command_config,
        "--replicas": replicas,
        "--tasks": tasks,
        "--rate": rate,
        "--partitions": partitions,
        "--environment": environment,
    }
    # only the names of settings, because the values may be secret
    settings = [argument for setting in conf or [] for argument in ("--conf", f"{setting.split('=', 1)[0]}=…")]
    settings += ["--shared"] if shared else []
    command = shlex.join(["rackgate", "bench", "run", *_arguments(options), *settings])
    if not bootstrap:
        plan = scenarios.load(scenario, scenario_file, topology, tasks, rate_per_s=rate, partitions=partitions)
        arguments = ["--scenario", plan.name, "--scenarios", str(scenario_file.resolve()), "--master", master]
        arguments += _arguments({"--topology": topology, "--tasks": tasks, "--rate": rate, "--partitions": partitions})
        arguments += ["--command", command, *(["--json"] if as_json else [])]
        _run_in_labs(plan, arguments, out or DEFAULT_OUT, fresh=fresh, master=master, as_json=as_json)
        return
    from bench.run.existing_cluster import ExistingClusterRequest

    request = ExistingClusterRequest(
        bootstrap=bootstrap,
        command_config=command_config,
        scenario=scenario,
        scenario_file=scenario_file,
        master=master,
        out=out or EXISTING_OUT,
        fresh=fresh,
        replicas=_broker_ids(replicas),
        tasks=tasks,
        environment=environment,
        conf=_settings(conf or []),
        command=command,
        rate_per_s=rate,
        partitions=partitions,
        shared=shared,
    )
    _run_on_existing_cluster(request, as_json=as_json)


def _arguments(options: Mapping[str, object]) -> list[str]:
    """Return the options that have a value as command-line arguments."""
    return [argument for name, value in options.items() if value for argument in (name, str(value))]


def _broker_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(broker) for broker in text.split(",")) if text else ()
    except ValueError as error:
        raise RackgateError(f"--replicas {text}: must be broker ids separated by commas, such as 1,3,5") from error


def _settings(conf: list[str]) -> dict[str, str]:
    if malformed := [setting for setting in conf if "=" not in setting]:
        raise RackgateError(f"--conf {malformed[0]}: must be key=value")
    return dict(setting.split("=", 1) for setting in conf)


def _run_on_existing_cluster(request: ExistingClusterRequest, *, as_json: bool) -> None:
    """Run a scenario on an existing cluster and exit with the status of the result."""
    from rich.console import Console

    from bench.run import existing_cluster
    from bench.run.lab_run import print_result

    memory.require_memory(memory.SPARK_MB, f"Spark's driver of --master {request.master}", "run it on another host")
    if request.environment is not None and not request.environment.is_file():
        raise RackgateError(f"--environment {request.environment}: no such file")
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    try:
        result = existing_cluster.measure(request, console)
    except KeyboardInterrupt:
        console.print("interrupted: the topics of the run are deleted; the same command continues the run")
        raise
    print_result(result, request.out.resolve(), console, as_json=as_json)
    raise typer.Exit(result["exit_status"])


def _run_in_labs(plan: Scenario, arguments: list[str], out: Path, *, fresh: bool, master: str, as_json: bool) -> None:
    """Run a scenario in labs, or in the current lab, with these arguments of ``bench.run.lab_run``."""
    from bench.plan.lab_topology import check_machine
    from bench.progress import clock_text
    from bench.run.lab_run import estimate_s

    if (cores := spark.slots(master)) is not None and plan.tasks > cores:
        raise RackgateError(
            f"--master {master}: runs {cores} task{'s' if cores > 1 else ''} at a time, and the load has {plan.tasks}:"
            f" use 'local[{plan.tasks}]' or a lower --tasks"
        )
    if slow := [cell.id for cell in plan.cells if cell.setting.partitions > 1 and cell.reached.slow]:
        raise RackgateError(f"--partitions: the slow followers of cell {slow[0]} would lead some of several partitions")
    inside = bool(os.environ.get("RACKGATE_LAB"))
    if not inside:
        check_machine(sorted({name for name, _ in plan.places}), master)
    command = [sys.executable, "-m", "bench.run.lab_run", *arguments, "--out", str(out.resolve())]
    with locked_run_folder(out) as folder:
        if not inside:
            from pyhooks.patchset import builder

            build = builder.build(force=False, quiet=as_json)
            version = build.distribution.manifest["kafka_version"]
            typer.echo(f"Kafka {version} with the patch series: ready in {build.seconds:.1f} s", err=as_json)
        patch_hash = str(Distribution.load().manifest.get("patch_hash", ""))
        started, given = datetime.now(UTC), {"master": master}
        store, continues = begin_run(folder, plan, started=started, build=patch_hash, given=given, fresh=fresh)
        progress = (
            f"{store.progress(plan, continues=continues)}; about {clock_text(estimate_s(store, plan))} to the report"
        )
        typer.echo(f"{plan.name}: {progress}", err=as_json)
        sys.stdout.flush()
        sys.stderr.flush()
        if inside:
            command += ["--session", str(store.next_session())]
            # in a child process, because this process holds the lock of the folder
            raise typer.Exit(subprocess.run([*DIES_WITH_PARENT, *command], check=False).returncode)
        _in_labs(store, plan, command)


def _in_labs(store: RunStore, plan: Scenario, command: list[str]) -> None:
    """Start one lab after the other until nothing is missing; the last one writes the report."""
    from bench.plan import lab_topology
    from pyhooks.lab.cli import run_in_lab

    while missing := store.places(plan):
        place, number = missing[0], store.next_session()
        file = lab_topology.write_topology(*place, store.folder / "topologies")
        lab_command = [*command, "--place", "/".join(place), "--session", str(number)]
        status = run_in_lab(str(file), store.lab(number), lab_command, bare=False, stock=False)
        if status:
            raise typer.Exit(status)
        if store.places(plan)[:1] == [place]:
            raise RackgateError(
                f"{store.lab(number)}: the lab ended before everything in {'/'.join(place)} was measured"
            )
    if not store.run.get("done"):
        # an earlier run measured everything, but was interrupted before the report
        raise typer.Exit(subprocess.run([*DIES_WITH_PARENT, *command, "--finish"], check=False).returncode)


bench_app.command("outages", epilog=outages_cli.EPILOG)(outages_cli.outages_command)
bench_app.command("overlay", epilog=overlay_cost.EPILOG)(overlay_cost.overlay_command)
bench_app.command("pacer", epilog=pacer_accuracy.EPILOG)(pacer_accuracy.pacer_command)
bench_app.command("compare", epilog=result_comparison.EPILOG)(result_comparison.compare_command)


@bench_app.command(
    "report",
    epilog="Examples: rackgate bench report out/bench · rackgate bench report out/bench --json. The exit status is that"
    " of the run.",
)
def report_command(
    result: Annotated[Path, typer.Argument(help="results.json or its folder.")] = DEFAULT_OUT,
    out: Annotated[Path | None, typer.Option(help="Folder for the report (default: that of the result).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Render page and pictures again from a stored result; needs no cluster.

    The runs of the plan in runs.jsonl beside the result are pooled again.
    """
    from rich.console import Console

    from bench.analysis import exit_reasons, pooled_runs, verdicts
    from bench.report import cell_table, run_page

    stored = run_page.load(result)
    source = result if result.is_dir() else result.parent
    with evaluating(result, run_page.EXPECTED):
        # results of earlier versions have no exit status
        stored |= exit_reasons.conclude(exit_reasons.run_reasons(stored), verdicts.sentences(stored))
        stored["pooled"] = pooled_runs.pool_runs(source, stored["manifest"]["run_id"]) or stored.get("pooled")
        lines = [*cell_table.verdict_lines(stored), *pooled_runs.lines(stored["pooled"])]
    folder = out or source
    with run_folder.held(folder, run_folder.BENCH):
        page = run_page.render(stored, folder, source=result)
    if as_json:
        typer.echo(json.dumps(stored, indent=1, allow_nan=False))
        raise typer.Exit(stored["exit_status"])
    console = Console(soft_wrap=True, highlight=False)
    target = [targets.of_run_text(stored["target"])] if stored.get("target") is not None else []
    for line in (*lines, f"report: {page}", *target):
        console.print(line, markup=False)
    raise typer.Exit(stored["exit_status"])


@bench_app.command(
    "speed",
    epilog="Examples: rackgate bench speed · rackgate bench speed --observations 1000000 --json",
)
def speed_command(
    observations: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Number of observations; may be repeated (default: 5 and 50 million)."),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    out: Annotated[Path, typer.Option(help="Folder for speed.json and, temporarily, the observations.")] = SPEED_OUT,
    as_json: JsonOption = False,
) -> None:
    """Measure the analysis of synthetic observations (12 cells, 4 arms, 20 blocks); needs no cluster.

    50 million observations need about 2 GB for Parquet files. Targets for the default numbers: at most 90 s and 4 GiB
    for 50 million, and at most 11 times the time of 5 million. Exit status: 1 if a target is missed, 2 if that is
    unknown because other processes used the machine.
    """
    from bench.analysis import analysis_speed

    sizes = sorted(observations or analysis_speed.SIZES)
    with run_folder.held(out, run_folder.SPEED) as folder:
        work = folder / "work"
        run_folder.empty(work, run_folder.SPEED_WORK)
        result = analysis_speed.measure(sizes, work, master=master, tell=lambda line: typer.echo(line, err=as_json))
        judged = analysis_speed.targets_of(result)
        file = out / "speed.json"
        write_json(file, result | {"targets": [target.as_json() for target in judged]})
    if as_json:
        typer.echo(file.read_text(encoding="utf-8").rstrip())
        raise typer.Exit(targets.status(judged))
    growth = analysis_speed.growth(result)
    typer.echo(f"peak memory: {result['rows'][-1]['peak_gib_so_far']:.1f} GiB, Python and Spark together")
    if growth is not None:
        typer.echo(f"{sizes[-1] / sizes[0]:.3g} times the observations took {growth:.1f} times as long")
    typer.echo(f"figures: {file}")
    for target in judged:
        typer.echo(target.text)
    if not judged:
        typer.echo("no target for these numbers of observations")
    raise typer.Exit(targets.status(judged))
