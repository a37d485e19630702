"""Command line of ``rackgate system``: run system tests in labs or on hosts, and render the page of their results."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ducktape_tests import plan, results
from ducktape_tests.report.display import Display, table
from ducktape_tests.services import host_folder
from ducktape_tests.session import UNCLEAN, RunEnvironment, SuiteSession, planned
from pyhooks import __version__
from pyhooks.core import files, paths, process, run_folder, targets
from pyhooks.core.errors import RackgateError
from pyhooks.lab import lab_processes, memory, topology
from pyhooks.lab.cli import check_programs
from pyhooks.lab.lab import in_lab
from pyhooks.patchset import client_classpaths
from pyhooks.patchset.distribution import Distribution
from pyhooks.verify import history_mutation, second_opinion

system_app = typer.Typer(name="system", no_args_is_help=True, help="System tests: outages of racks under ducktape.")

DEFAULT_OUT = paths.OUT / "system"
PYTHON = paths.REPO / ".venv-ducktape" / "bin" / "python"
SEEDS = 2**31
FILE_WIDTH = 160

TestsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Selections (smoke, system, long, load, soak, soak-long), files, file.py::Class, or file.py::Class.test.",
        metavar="[SELECTION|TEST]…",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@system_app.command(
    "run",
    epilog="Examples: rackgate system run smoke · rackgate system run --seed 7 --jobs 1"
    " kip_test.py::KipTest.test_a_whole_rack_shut_down · rackgate system run system --cluster-file hosts.json."
    " Exit status: 0 all passed, 1 a test failed or is unknown, or none ran, 2 the run could not start.",
)
def run_command(
    tests: TestsArgument = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed of the tests (default: from the clock).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of labs at a time.")] = 2,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=JSON", help="Setting for the tests (ducktape's globals); repeatable."),
    ] = None,
    run_dir: Annotated[
        Path, typer.Option(help="Folder for results and page; those of an earlier run are deleted.")
    ] = DEFAULT_OUT,
    cluster_file: Annotated[
        Path | None,
        typer.Option(help="ducktape's cluster file: run on these hosts by SSH instead of in labs, one test at a time."),
    ] = None,
    host_root: Annotated[
        str | None,
        typer.Option(
            help=f"With --cluster-file: existing folder on each host. Tests write and delete only in its subfolder"
            f" {run_folder.PROJECT} (default {host_folder.DEFAULT_ROOT})."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run system tests, each in its own lab, and write index.html and results.json.

    Without names it runs the selection 'system'. It prints the seed; the same seed repeats the random choices.

    ducktape_tests/README.md lists the requirements and effects of a run on hosts (--cluster-file).
    """
    selections = list(tests or ["system"])
    chosen = plan.select(plan.load(), selections)
    options = _repeat_options(assignments or [], cluster_file, host_root)
    _require(cluster_file)
    # A lab has no access to registries.
    if jars := sorted({jar for test in chosen for jar in test.jars}):
        client_classpaths.fetch_jars(jars)
    if cluster_file is None:
        topologies = [topology.load(topology.find(test.topology)) for test in chosen]
        concurrent = f"{min(jobs, len(chosen))} of these tests at a time"
        memory.require_memory(memory.concurrent_labs_memory_mb(topologies, jobs), concurrent, "give fewer --jobs")
    settings = _settings(assignments or [])
    for name, option in (("seed", "--seed"), (host_folder.HOST_ROOT, host_folder.KIND.option)):
        if name in settings:
            raise RackgateError(f"--set {name}: use {option}")
    if seed is None:
        seed = time.time_ns() // 1_000_000 % SEEDS
    jobs = 1 if cluster_file is not None else jobs
    console = _console(stderr=as_json)
    all_settings = {**settings, "seed": seed}
    if host_root is not None:
        all_settings[host_folder.HOST_ROOT] = host_folder.checked_root(host_root)
    python = PYTHON.absolute()
    environment = RunEnvironment(python, cluster_file and cluster_file.resolve(), run_dir.resolve(), all_settings)
    repeat = shlex.join(["--seed", str(seed), *options])
    run = {
        "schema": results.SCHEMA,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "selections": selections,
        "seed": seed,
        "jobs": jobs,
        "settings": settings,
        "command": f"rackgate system run {shlex.join(selections)} {repeat}{'' if cluster_file else f' --jobs {jobs}'}",
        "options": repeat,
        "cluster_file": str(cluster_file) if cluster_file else "",
        "versions": _versions(python),
        "machine": {"kernel": platform.release(), "cpus": len(os.sched_getaffinity(0))},
        "duration_s": None,
        "target_min": None if cluster_file is not None else plan.target_min(selections, jobs),
        "tests": [asdict(planned(test)) for test in chosen],
    }
    with run_folder.held(run_dir, run_folder.SYSTEM) as folder:
        run_folder.empty(folder, run_folder.SYSTEM, keep=(run_folder.LOCK,))
        files.write_json(run_dir / results.RUN, run)
        expected = plan.estimate(chosen, jobs)
        console.print(f"{len(chosen)} tests, {jobs} at a time, about {expected:.0f} min; seed {seed}", markup=False)
        start = time.monotonic()
        display = Display(console, chosen, jobs)
        session = SuiteSession(environment, chosen, jobs, display)
        try:
            with display.shown():
                session.run()
        except KeyboardInterrupt:
            rest = f"{', '.join(session.unclean)}: {UNCLEAN}" if session.unclean else "no process is left"
            console.print(f"interrupted; {rest}. 'rackgate system page' shows the results so far", markup=False)
            raise
        files.write_json(run_dir / results.RUN, {**run, "duration_s": round(time.monotonic() - start, 1)})
        document = _render(run_dir, console)
    _print_results(document, run_dir, console, as_json=as_json)
    raise typer.Exit(document["exit_status"])


@system_app.command(
    "page", epilog="Examples: rackgate system page · rackgate system page out/system --json. Exit status as of the run."
)
def page_command(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a run.")] = DEFAULT_OUT, as_json: JsonOption = False
) -> None:
    """Render page and pictures again from stored files, without a cluster."""
    console = _console(stderr=as_json)
    run_folder.check(run_dir.resolve(), run_folder.SYSTEM)
    document = _render(run_dir, console)
    with files.evaluating(run_dir / results.RUN, "a run of this version of 'rackgate system run'"):
        _print_results(document, run_dir, console, as_json=as_json)
    raise typer.Exit(document["exit_status"])


@system_app.command("list", epilog="Examples: rackgate system list · rackgate system list smoke --json")
def list_command(tests: TestsArgument = None, as_json: JsonOption = False) -> None:
    """List all or the given tests with their expected durations."""
    suite = plan.load()
    chosen = plan.select(suite, tests) if tests else suite
    if as_json:
        typer.echo(json.dumps([asdict(test) for test in chosen], indent=1))
        return
    console = _console()
    listing = Table(box=None, pad_edge=False)
    for head in ("test", "topology"):
        listing.add_column(head, no_wrap=True)
    listing.add_column("minutes", justify="right")
    for head in ("selections", ""):
        listing.add_column(head, no_wrap=True)
    for test in chosen:
        notes = ["serial"] if test.alone else []
        notes += [f"{name}={json.dumps(value)}" for name, value in test.settings.items()]
        listing.add_row(test.id, test.topology, f"{test.minutes:g}", " ".join(test.selections), ", ".join(notes))
    console.print(listing)
    for selection in plan.SELECTIONS:
        members = [test for test in chosen if selection in test.selections]
        if members:
            minutes = plan.estimate(members, plan.TARGET_JOBS)
            target = plan.TARGETS_MIN.get(selection) if not tests else None
            note = "" if target is None else f", target {target:g} min"
            console.print(
                f"{selection}: {len(members)} tests, about {minutes:.0f} min, two at a time{note}", markup=False
            )


@system_app.command(
    "mutate",
    epilog="Examples: rackgate system mutate out/system-smoke · rackgate system mutate --only rotate-record --rounds 20"
    " · rackgate system mutate --out matrix.json. Exit status: 0 all found, 1 a violation was missed, a checker trusted"
    " it, or a verdict changed, 2 there is no history.",
)
def mutate_command(
    histories: Annotated[
        list[Path] | None,
        typer.Argument(help="Histories, or folders with results of system tests (default: out).", metavar="[PATH]…"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the victims.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Number of victims per violation and history.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Only this violation; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the result as JSON.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plant violations in recorded histories and require that the checkers find each of them.

    A violation is found if a checker returns false, and no checker whose claim it contradicts returns true. Without the
    violation, each checker must return the verdict that the test stored.
    """
    chosen = history_mutation.select(only or ())
    recorded = history_mutation.find_histories(histories or [path for path in (paths.OUT,) if path.exists()])
    if not recorded:
        raise RackgateError("no history of a system test; 'make system-smoke' records some")
    console = _console(stderr=as_json)
    matrix = history_mutation.mutate(
        recorded,
        seed=seed,
        rounds=rounds,
        violations=chosen,
        progress=lambda line: console.print(line, markup=False),
    )
    summary = matrix.summary()
    if out is not None:
        files.write_json(out, summary)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    else:
        _print_matrix(matrix, console)
    raise typer.Exit(0 if matrix.passed else 1)


@system_app.command(
    "second-opinion",
    epilog="Examples: rackgate system second-opinion out/system-smoke · rackgate system second-opinion --json."
    " Exit status: 0 model and checkers agree, 1 one accepts what the other refutes, or the model misses a violation, 2"
    " Go or a history is missing.",
)
def second_opinion_command(
    histories: Annotated[
        list[Path] | None,
        typer.Argument(help="Histories, or folders with results of system tests (default: out).", metavar="[PATH]…"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the victims of violations.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Check recorded histories with Porcupine, which shares no code with the checkers, and compare the results.

    The model is an append-only log per partition. It must accept each history that the checkers accept, and refute
    each violation that is planted in it. Needs Go.
    """
    recorded = history_mutation.find_histories(histories or [path for path in (paths.OUT,) if path.exists()])
    if not recorded:
        raise RackgateError("no history of a system test; 'make system-smoke' records some")
    console = _console(stderr=as_json)
    program = second_opinion.build()
    opinions = second_opinion.compare(
        recorded, program, seed=seed, progress=lambda line: console.print(line, markup=False)
    )
    missed = [opinion for opinion in opinions if not opinion.agrees or (opinion.violation and opinion.valid != "false")]
    if as_json:
        rows = [{**asdict(opinion), "agrees": opinion.agrees} for opinion in opinions]
        typer.echo(json.dumps({"passed": not missed, "opinions": rows}, indent=1))
    else:
        for opinion in missed:
            where = f"{opinion.violation} in {opinion.history}" if opinion.violation else opinion.history
            console.print(f"{where}: the model returns {opinion.valid}, the checkers {opinion.checkers}", markup=False)
        planted = sum(bool(opinion.violation) for opinion in opinions)
        console.print(
            f"{len(opinions) - planted} histories and {planted} planted violations: {len(missed)} disagreements",
            markup=False,
        )
    raise typer.Exit(1 if missed else 0)


def _print_matrix(matrix: history_mutation.MutationMatrix, console: Console) -> None:
    listing = Table(box=None, pad_edge=False)
    for head in ("violation", "planted", "found", "checkers that return false"):
        listing.add_column(head, no_wrap=True)
    for violation in matrix.violations:
        planted = matrix.of(violation.name)
        count = sum(each.status == history_mutation.FOUND for each in planted)
        finders = [
            f"{name} {counts['false']}" for name, counts in matrix.cells(violation.name).items() if "false" in counts
        ]
        listing.add_row(violation.name, str(len(planted)), str(count) if planted else "-", ", ".join(finders))
    console.print(listing)
    for planting in matrix.plantings:
        if planting.status != history_mutation.FOUND:
            checkers = f": {', '.join(planting.trusted)}" if planting.trusted else ""
            console.print(f"{planting.violation} in {planting.history}: {planting.status}{checkers}", markup=False)
    for history in matrix.histories:
        for name in history.differing:
            console.print(
                f"{history.name}: {name} is {history.verdicts[name]}, its test stored {history.stored[name]}",
                markup=False,
            )
    summary = matrix.summary()
    for title, names in (
        ("apply to no history", "not_applicable"),
        ("checkers that found nothing", "finding_nothing"),
        ("checkers without a violation", "without_violation"),
    ):
        if summary[names]:
            console.print(f"{title}: {', '.join(summary[names])}", markup=False)


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        # Lines in a file need no wrapping at the width of a terminal.
        console.width = FILE_WIDTH
    return console


def _require(cluster_file: Path | None) -> None:
    """Check the preconditions of a run before anything is started."""
    if cluster_file is None and in_lab():
        raise RackgateError("each test starts its own lab, which is not possible inside a lab: leave the lab first")
    if not PYTHON.exists():
        raise RackgateError(f"{PYTHON}: no virtual environment for ducktape; 'make system-smoke' creates it")
    Distribution.load()
    if cluster_file is None:
        check_programs()
        lab_processes.namespace_method()
    elif not cluster_file.is_file():
        raise RackgateError(f"--cluster-file {cluster_file}: no such file")


def _settings(assignments: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise RackgateError(f"--set {assignment}: must be NAME=JSON")
        try:
            settings[name] = json.loads(value)
        except ValueError as error:
            raise RackgateError(f"--set {assignment}: the value is not JSON: {error}") from error
    return settings


def _repeat_options(assignments: Sequence[str], cluster_file: Path | None, host_root: str | None) -> list[str]:
    """Return the options that repeat a run with the same settings, except the seed."""
    options = [text for assignment in assignments for text in ("--set", assignment)]
    if cluster_file is not None:
        options += ["--cluster-file", str(cluster_file)]
    if host_root is not None:
        if cluster_file is None:
            raise RackgateError(f"{host_folder.KIND.option}: has no effect without --cluster-file")
        options += [host_folder.KIND.option, host_folder.checked_root(host_root)]
    return options


def _versions(python: Path) -> dict[str, str]:
    manifest = Distribution.load().manifest
    script = "from importlib.metadata import version; print(version('ducktape'))"
    try:
        commit = process.run(["git", "-C", str(paths.REPO), "rev-parse", "HEAD"], task="git").strip()
    except RackgateError:
        # The patch series below still identifies the Kafka build.
        commit = "unknown"
    return {
        "kafka-rackgate": __version__,
        "commit": commit,
        "kafka": str(manifest.get("kafka_version", "unknown")),
        "patch series": str(manifest.get("patch_hash", "unknown")),
        "ducktape": process.run([str(python), "-c", script], task="ducktape's version").strip(),
        "python": platform.python_version(),
    }


def _render(run_dir: Path, console: Console) -> dict[str, Any]:
    # Imported here because the plotting libraries take a second to load.
    from ducktape_tests.report import page

    with console.status("page and pictures …"):
        return page.render(run_dir)


def _print_results(document: Mapping[str, Any], run_dir: Path, console: Console, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    console.print(table(document["results"]))
    for result in document["results"]:
        if result["left_out"]:
            console.print(f"skipped in {result['id']}, needs a lab: {', '.join(result['left_out'])}", markup=False)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in document["counts"].items() if count)
    console.print(f"{counts}; seed {document['seed']}; page: {run_dir / 'index.html'}", markup=False)
    if (target := document["target"]) is not None:
        console.print(f"{targets.of_run_text(target)}, on {document['machine']['cpus']} CPUs", markup=False)
