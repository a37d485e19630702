"""Command line of ``rackgate kafkatest``: Kafka's own system tests on stock Kafka, with the overlay, and with R=2."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from ducktape_tests.kafkatest import nodes, results
from ducktape_tests.kafkatest.cases import Case, KafkaSuite, select
from ducktape_tests.kafkatest.checkout import Checkout
from ducktape_tests.kafkatest.nodes import Arm
from ducktape_tests.kafkatest.results import COLOURS, ArmResult, short
from ducktape_tests.kafkatest.session import DEFAULT_NODES, Environment, Job, Session
from pyhooks.core import files, paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import plain
from pyhooks.lab import lab_processes, memory
from pyhooks.lab.cli import check_programs
from pyhooks.lab.lab import in_lab
from pyhooks.patchset import series
from pyhooks.patchset.distribution import Distribution

kafkatest_app = typer.Typer()

DEFAULT_OUT = paths.OUT / "kafkatest"
PYTHON = paths.REPO / ".venv-ducktape" / "bin" / "python"
FILE_WIDTH = 200
JDK_PROGRAMS, JDK = ("jps", "jcmd", "keytool"), "openjdk-17-jdk-headless"
# resident memory of a node with a Kafka process, at most
NODE_MB = 400


@kafkatest_app.command(
    "kafkatest",
    epilog="Examples: rackgate kafkatest --checkout ../kafka · rackgate kafkatest --checkout ../kafka --arm overlay"
    " get_offset_shell_test.py · rackgate kafkatest --checkout ../kafka --patched · rackgate kafkatest --checkout"
    " ../kafka --suite all --list. Exit status: 0 no case that passes on stock fails on the overlay, cases of --patched"
    " fail on stock and pass on the overlay, and gate is as predicted; 1 otherwise; 2 a case has no verdict.",
)
def kafkatest_command(
    checkout: Annotated[Path, typer.Option(help="Root of a checkout of apache/kafka; it is not changed.")],
    tests: Annotated[
        list[str] | None,
        typer.Argument(help="Files, file.py::Class, file.py::Class.test, or ids of cases.", metavar="[TEST]…"),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="stock, overlay, or gate (overlay with R=2 for every topic, racks a, b, c); repeatable."),
    ] = None,
    suite_name: Annotated[
        Literal["short", "all"],
        typer.Option("--suite", help="Without TEST: the cases with predictions, or all that can run here."),
    ] = "short",
    patched: Annotated[
        bool,
        typer.Option("--patched", help="Add this project's own tests (patch/checkout); without TEST run only these."),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of labs at a time.")] = 2,
    run_dir: Annotated[Path, typer.Option(help="Folder for results; a later run continues there.")] = DEFAULT_OUT,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run the cases again whose results are stored.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the cases with predictions; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run Kafka's own system tests in labs and compare their verdicts.

    Arms are by default stock, overlay and gate; for --suite all and --patched they are stock and overlay. Stored
    results of the same checkout and the same build are used again, except unknown ones.
    """
    opened = Checkout.open(checkout)
    suite = KafkaSuite.read()
    if not PYTHON.exists():
        raise RackgateError(f"{PYTHON}: no virtual environment for ducktape; 'make system-smoke' creates it")
    everything = suite_name == "all"
    arms = _arms(arm or (("stock", "overlay") if patched or (everything and not tests) else nodes.ARMS))
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    with ExitStack() as stack:
        if patched:
            opened = stack.enter_context(opened.patched(series.load_checkout()))
        chosen = select(opened.cases(PYTHON), suite, tests or (), everything=everything, patched=patched)
        if list_only:
            _list(chosen, suite, console, as_json=as_json)
            return
        document = _run(opened, suite, chosen, arms, console, jobs, run_dir, fresh=fresh)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        console.print(results.table(document))
        console.print(f"results: {run_dir / 'results.json'}", markup=False)
    raise typer.Exit(document["exit_status"])


def _run(
    opened: Checkout,
    suite: KafkaSuite,
    chosen: Sequence[Case],
    arms: Sequence[Arm],
    console: Console,
    jobs: int,
    run_dir: Path,
    *,
    fresh: bool,
) -> dict[str, Any]:
    """Run the cases without a stored result in each arm; return the comparison of all, which it also writes."""
    kafka = Distribution.load()
    _require(chosen, jobs)
    with run_folder.held(run_dir, run_folder.KAFKATEST) as folder:
        trees = _write_trees(folder, opened.root, kafka, arms)
        environment = Environment(
            PYTHON.absolute(), opened.root, opened.fingerprint(), kafka, folder, opened.environment(), trees
        )
        stored = {} if fresh else results.load_all(folder, chosen)
        todo = [
            Job(case, each, suite.minutes(case))
            for case in chosen
            for each in arms
            if (result := stored.get((case.id, each))) is None or not environment.is_current(result)
        ]
        ours = kafka.manifest["kafka_version"]
        console.print(
            f"{len(chosen)} cases of kafkatest {opened.version} on Kafka {ours}, arms {', '.join(arms)}; {len(todo)} of"
            f" {len(chosen) * len(arms)} runs to do, {jobs} at a time,"
            f" about {sum(job.minutes for job in todo) / jobs:.0f} min",
            markup=False,
        )
        progress = _Progress(console, len(todo))
        try:
            Session(environment, todo, jobs, progress.started, progress.ended).run()
        except KeyboardInterrupt:
            console.print("interrupted; the same command continues", markup=False)
            raise
        finally:
            document = results.compare(chosen, suite, results.load_all(folder, chosen), arms)
            document |= {"kafkatest": opened.version, "checkout": environment.fingerprint, "kafka": ours}
            files.write_json(folder / "results.json", document)
    return document


def _arms(names: Sequence[str]) -> tuple[Arm, ...]:
    """Return the named arms, each once, in the order of the table."""
    for name in names:
        if name not in nodes.ARMS:
            raise RackgateError(f"--arm {name}: must be one of {', '.join(nodes.ARMS)}")
    return tuple(arm for arm in nodes.ARMS if arm in names)


class _Progress:
    """Lines about jobs that start and end."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._done = console, total, 0

    def started(self, job: Job, left_min: float) -> None:
        """Print what starts."""
        self._print(f"started {job.arm} {short(job.case.id)} (about {job.minutes:g} min, all {left_min:.0f} min)")

    def ended(self, job: Job, result: ArmResult, left_min: float) -> None:
        """Print the verdict."""
        self._done += 1
        self._print(
            f"{result.verdict:<7} {job.arm} {short(job.case.id)} ({result.seconds / 60:.1f} min); {self._done} of"
            f" {self._total}, about {left_min:.0f} min left",
            COLOURS[result.verdict],
        )
        if result.reason:
            self._print(f"        {result.reason}")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(plain(text, style, length_max=1000), soft_wrap=True)


def _require(chosen: Sequence[Case], jobs: int) -> None:
    """Check the preconditions of a run before anything is started."""
    if in_lab():
        raise RackgateError("each case starts its own lab, which is not possible inside a lab: leave the lab first")
    check_programs()
    if missing := [program for program in ("jps", "jcmd", "keytool") if shutil.which(program) is None]:
        raise RackgateError(
            f"kafkatest needs {', '.join(missing)}: install with 'apt-get install openjdk-17-jdk-headless'"
        )
    lab_processes.namespace_method()
    counts = sorted((case.nodes or DEFAULT_NODES for case in chosen), reverse=True)
    memory.require_memory(sum(counts[:jobs]) * NODE_MB, f"{jobs} of these cases at a time", "give fewer --jobs")


def _write_trees(folder: Path, checkout: Path, kafka: Distribution, arms: Sequence[Arm]) -> dict[Arm, Path]:
    """Write what the nodes of each arm have in /opt/kafka-dev."""
    moved = nodes.moved_classes(checkout, kafka.root / "libs")
    trees: dict[Arm, Path] = {}
    for arm in arms:
        trees[arm] = folder / f"nodes-{arm}"
        run_folder.remove(trees[arm])
        nodes.write_tree(trees[arm], checkout, arm, moved)
    return trees


def _list(chosen: Sequence[Case], suite: KafkaSuite, console: Console, *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for case in chosen:
        entry = suite.planned(case)
        predicted = {"gate": entry.gate, "because": entry.because} if entry else {"gate": None, "because": ""}
        rows.append({"case": case.id, "nodes": case.nodes, "minutes": suite.minutes(case), **predicted})
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    grid = Table(box=None, pad_edge=False)
    for head in ("case", "nodes", "minutes", "gate", "because"):
        grid.add_column(head, overflow="fold")
    for row in rows:
        values = (short(row["case"]), row["nodes"], f"{row['minutes']:g}", row["gate"] or "", row["because"])
        grid.add_row(*(plain(str(value), length_max=1000) for value in values))
    console.print(grid)
    console.print(f"{len(rows)} cases, {sum(row['minutes'] for row in rows):.0f} lab minutes an arm", markup=False)
