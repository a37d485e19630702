"""Command line of ``rackgate system``: run system tests in labs or on hosts, and build the page of their results."""

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
from ducktape_tests.session import LEFT, RunEnvironment, SuiteSession, planned
from pyhooks import __version__
from pyhooks.core import files, paths, process, run_folder, targets
from pyhooks.core.errors import RackgateError
from pyhooks.lab import memory, running_labs, topology
from pyhooks.lab.cli import check_programs
from pyhooks.lab.lab import in_lab
from pyhooks.patchset.distribution import Distribution

system_app = typer.Typer(name="system", no_args_is_help=True, help="The system tests: outages of racks under ducktape.")

DEFAULT_OUT = paths.OUT / "system"
PYTHON = paths.REPO / ".venv-ducktape" / "bin" / "python"
SEEDS = 2**31
FILE_WIDTH = 160

TestsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Selections (smoke, system, long, load), files, file.py::Class, or file.py::Class.test.",
        metavar="[SELECTION|TEST]…",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@system_app.command(
    "run",
    epilog="Examples: rackgate system run smoke · rackgate system run --seed 7 --jobs 1"
    " kip_test.py::KipTest.test_a_whole_rack_shut_down · rackgate system run system --cluster-file hosts.json."
    " Exit status: 0 all passed, 1 something failed, is unknown, or nothing ran, 2 it could not be tried.",
)
def run_command(
    tests: TestsArgument = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of what tests draw [default: from the clock].")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many labs at a time.")] = 2,
    told: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=JSON", help="A setting that tests read (ducktape's globals); repeatable."),
    ] = None,
    run_dir: Annotated[Path, typer.Option(help="Folder for results and page; the run before goes.")] = DEFAULT_OUT,
    cluster_file: Annotated[
        Path | None,
        typer.Option(help="ducktape's cluster file: on those hosts by ssh instead of labs, one test at a time."),
    ] = None,
    host_root: Annotated[
        str | None,
        typer.Option(
            help="With --cluster-file: existing folder on each host; tests write and delete only in its folder"
            f" {run_folder.PROJECT} (default {host_folder.DEFAULT_ROOT})."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Runs system tests, each in a lab of its own, and writes index.html and results.json.

    Without names it runs the selection 'system'. The seed is printed; the same one repeats what tests drew.

    pyhooks/README.md lists what a run on hosts (--cluster-file) needs, creates, deletes and opens.
    """
    words = list(tests or ["system"])
    chosen = plan.select(plan.load(), words)
    root = _host_root(cluster_file, host_root)
    _check(cluster_file)
    if cluster_file is None:
        wanted = [topology.load(topology.find(one.topology)) for one in chosen]
        what = f"{min(jobs, len(chosen))} of these tests at a time"
        memory.require(memory.of_labs(wanted, jobs), what, "give fewer --jobs")
    drawn = time.time_ns() // 1_000_000 % SEEDS if seed is None else seed
    extra = _settings(told or [])
    for name, option in (("seed", "--seed"), (host_folder.HOST_ROOT, host_folder.KIND.option)):
        if name in extra:
            raise RackgateError(f"--set {name}: say it with {option}")
    jobs = 1 if cluster_file is not None else jobs
    console = _console(stderr=as_json)
    python = PYTHON.absolute()
    place = RunEnvironment(
        python, cluster_file and cluster_file.resolve(), run_dir.resolve(), {**extra, "seed": drawn, **root}
    )
    run = {
        "schema": results.SCHEMA,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "words": words,
        "seed": drawn,
        "jobs": jobs,
        "settings": extra,
        "command": _command(words, drawn, jobs, told or [], cluster_file, root),
        "options": _options(drawn, told or [], cluster_file, root),
        "cluster_file": str(cluster_file) if cluster_file else "",
        "versions": _versions(python),
        "machine": {"kernel": platform.release(), "cpus": len(os.sched_getaffinity(0))},
        "took_s": None,
        "bar_min": None if cluster_file is not None else plan.bar_min(words, jobs),
        "tests": [asdict(planned(one)) for one in chosen],
    }
    with run_folder.held(run_dir, run_folder.SYSTEM) as folder:
        # Delete old results, so that none is taken for a result of this run.
        run_folder.empty(folder, run_folder.SYSTEM, keep=(run_folder.LOCK,))
        files.write_json(run_dir / results.RUN, run)
        expected = plan.estimate(chosen, jobs)
        console.print(f"{len(chosen)} tests, {jobs} at a time, about {expected:.0f} min; seed {drawn}", markup=False)
        begun = time.monotonic()
        display = Display(console, chosen, jobs)
        session = SuiteSession(place, chosen, jobs, display)
        try:
            with display.shown():
                session.run()
        except KeyboardInterrupt:
            what = f"{', '.join(session.left)}: {LEFT}" if session.left else "nothing runs any more"
            console.print(f"interrupted; {what}. 'rackgate system page' shows what there is", markup=False)
            raise
        files.write_json(run_dir / results.RUN, {**run, "took_s": round(time.monotonic() - begun, 1)})
        document = _page(run_dir, console)
    _tell(document, run_dir, console, as_json=as_json)
    raise typer.Exit(document["exit_status"])


@system_app.command(
    "page", epilog="Examples: rackgate system page · rackgate system page out/system --json. Exit status as of the run."
)
def page_command(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a run.")] = DEFAULT_OUT, as_json: JsonOption = False
) -> None:
    """Makes page and pictures again from stored files; needs no cluster."""
    console = _console(stderr=as_json)
    run_folder.check(run_dir.resolve(), run_folder.SYSTEM)
    document = _page(run_dir, console)
    with files.evaluating(run_dir / results.RUN, "a run of this version of 'rackgate system run'"):
        _tell(document, run_dir, console, as_json=as_json)
    raise typer.Exit(document["exit_status"])


@system_app.command("list", epilog="Examples: rackgate system list · rackgate system list smoke --json")
def list_command(tests: TestsArgument = None, as_json: JsonOption = False) -> None:
    """Shows the tests, all or those that are named, with what they are expected to take."""
    suite = plan.load()
    chosen = plan.select(suite, tests) if tests else suite
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in chosen], indent=1))
        return
    console = _console()
    shown = Table(box=None, pad_edge=False)
    for head in ("test", "topology"):
        shown.add_column(head, no_wrap=True)
    shown.add_column("minutes", justify="right")
    for head in ("selections", ""):
        shown.add_column(head, no_wrap=True)
    for one in chosen:
        marks = ["alone"] if one.alone else []
        marks += [f"{name}={json.dumps(value)}" for name, value in one.settings.items()]
        shown.add_row(one.id, one.topology, f"{one.minutes:g}", " ".join(one.selections), ", ".join(marks))
    console.print(shown)
    for selection in plan.SELECTIONS:
        own = [one for one in chosen if selection in one.selections]
        if own:
            about = plan.estimate(own, plan.JOBS_OF_BARS)
            bar = f", the bar is {plan.BARS_MIN[selection]:g}" if selection in plan.BARS_MIN and not tests else ""
            console.print(f"{selection}: {len(own)} tests, about {about:.0f} min with two at a time{bar}", markup=False)


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        # Lines in a file need no wrapping at the width of a terminal.
        console.width = FILE_WIDTH
    return console


def _check(cluster_file: Path | None) -> None:
    """Check the preconditions of a run before anything is started.

    Raises:
        RackgateError: names what is missing.
    """
    if cluster_file is None and in_lab():
        raise RackgateError("this runs in a lab already, and each test makes its own: leave the lab first")
    if not PYTHON.exists():
        raise RackgateError(f"{PYTHON}: ducktape's environment is not there: 'make system-smoke' sets it up")
    Distribution.load()
    if cluster_file is None:
        check_programs()
        running_labs.way()
    elif not cluster_file.is_file():
        raise RackgateError(f"--cluster-file {cluster_file}: no such file")


def _settings(told: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in told:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RackgateError(f"--set {text}: must be NAME=JSON")
        try:
            found[name] = json.loads(value)
        except ValueError as error:
            raise RackgateError(f"--set {text}: what follows = is not JSON: {error}") from error
    return found


def _host_root(cluster_file: Path | None, root: str | None) -> dict[str, str]:
    """Return the setting with the root folder on hosts; empty without ``--host-root``.

    Raises:
        RackgateError: the root is invalid, or ``--cluster-file`` is missing.
    """
    if root is None:
        return {}
    if cluster_file is None:
        raise RackgateError(f"{host_folder.KIND.option}: has no effect without --cluster-file")
    return {host_folder.HOST_ROOT: host_folder.checked_root(root)}


def _options(seed: int, told: Sequence[str], cluster_file: Path | None, root: Mapping[str, str]) -> str:
    """Return the options that repeat a run with the same seed and settings."""
    words = ["--seed", str(seed), *(word for text in told for word in ("--set", text))]
    words += ["--cluster-file", str(cluster_file)] if cluster_file else []
    words += [word for value in root.values() for word in (host_folder.KIND.option, value)]
    return shlex.join(words)


def _command(
    words: Sequence[str],
    seed: int,
    jobs: int,
    told: Sequence[str],
    cluster_file: Path | None,
    root: Mapping[str, str],
) -> str:
    beside = "" if cluster_file else f" --jobs {jobs}"
    return f"rackgate system run {shlex.join(words)} {_options(seed, told, cluster_file, root)}{beside}"


def _versions(python: Path) -> dict[str, str]:
    built = Distribution.load().manifest
    asked = "from importlib.metadata import version; print(version('ducktape'))"
    try:
        commit = process.run(["git", "-C", str(paths.REPO), "rev-parse", "HEAD"], what="git").strip()
    except RackgateError:
        # Not a repository, or git is missing: the patch series below still identifies the Kafka build.
        commit = "unknown"
    return {
        "kafka-rackgate": __version__,
        "commit": commit,
        "kafka": str(built.get("kafka_version", "unknown")),
        "patch series": str(built.get("patch_hash", "unknown")),
        "ducktape": process.run([str(python), "-c", asked], what="ducktape's version").strip(),
        "python": platform.python_version(),
    }


def _page(run_dir: Path, console: Console) -> dict[str, Any]:
    # Imported here because the plotting libraries take a second to load.
    from ducktape_tests.report import page

    with console.status("page and pictures …"):
        return page.make(run_dir)


def _tell(document: Mapping[str, Any], run_dir: Path, console: Console, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    console.print(table(document["results"]))
    for one in document["results"]:
        if one["left_out"]:
            console.print(f"left out of {one['id']}, since it needs a lab: {', '.join(one['left_out'])}", markup=False)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in document["counts"].items() if count)
    console.print(f"{counts}; seed {document['seed']}; page: {run_dir / 'index.html'}", markup=False)
    if (bar := document["bar"]) is not None:
        console.print(f"{targets.of_run_text(bar)}, on {document['machine']['cpus']} CPUs", markup=False)
