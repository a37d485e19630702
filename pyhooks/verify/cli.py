"""The commands ``rackgate build`` and ``rackgate patch …``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import builder, git, recipe, series, series_lint
from pyhooks.patchset.archive import make_archive
from pyhooks.patchset.artifacts import read_pins, write_pins
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.pinning import MAVEN, record
from pyhooks.patchset.pinning import pin as pin_artifacts
from pyhooks.patchset.series import Selection
from pyhooks.patchset.series_facts import facts
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutants, mutation
from pyhooks.verify.cpu_contention import ContentionRule
from pyhooks.verify.jmh import format_pace, measure
from pyhooks.verify.jmh_plan import FULL, QUICK
from pyhooks.verify.kafka_tests import run_tests
from pyhooks.verify.reproducibility import check_reproducible
from pyhooks.verify.series_check import series_check
from pyhooks.verify.upstream import JOBS as UPSTREAM_JOBS
from pyhooks.verify.upstream import upstream

build_app = typer.Typer()
patch_app = typer.Typer(
    name="patch",
    help="The patch series: lay out its tree, write it back, check it, test it, pin what it is built from.",
    no_args_is_help=True,
)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="Build the opt-in fixes of this name in, such as raft; may be repeated."),
]


def say(text: str = "") -> None:
    """Print a line of the result."""
    Console(soft_wrap=True, markup=False, highlight=False).print(text)


@build_app.command("build")
def build_command(
    patches: Annotated[
        int | None, typer.Option("--patches", min=0, help="Apply only the first N patches, into a folder of their own.")
    ] = None,
    part: Annotated[
        str, typer.Option("--part", help="Apply only the parts up to this one, into a folder of their own.")
    ] = "",
    with_: With = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    archive: Annotated[
        bool, typer.Option("--archive", help="Pack the overlay with an install note and checksums, too.")
    ] = False,
    json_: Json = False,
) -> None:
    """Builds the patched Kafka: stock jars untouched, and small overlay jars that go before them.

    Examples:
      rackgate build
      rackgate build --patches 2
      rackgate build --part fixes
      rackgate build --with raft --with clients
      rackgate build --archive
      export CLASSPATH=$(rackgate build --json | jq -r .classpath)
    """
    selection = Selection(frozenset(with_ or ()), part, patches)
    made = builder.build(selection=selection, force=force, quiet=json_)
    manifest = made.distribution.manifest
    packed = make_archive(made.distribution, _beside(made, selection)) if archive else None
    if json_:
        summary: dict[str, Any] = {
            "root": str(made.distribution.root),
            "classpath": made.distribution.overlay_classpath,
            "fresh": made.fresh,
            "seconds": round(made.seconds, 2),
            **{
                key: manifest[key]
                for key in ("kafka_version", "patch_hash", "opt_ins", "patches", "overlay", "tree_commit")
            },
        }
        if packed:
            summary["archive"] = {"path": str(packed.path), "sha256": packed.sha256}
        typer.echo(json.dumps(summary, indent=1))
        return
    classes = sum(len(jar["classes"]) for jar in manifest["overlay"])
    count = len(manifest["patches"])
    state = "built" if made.fresh else "up to date"
    names = f", opt-in fixes {', '.join(manifest['opt_ins'])}" if manifest["opt_ins"] else ""
    say(f"Kafka {manifest['kafka_version']} with {count} patches{names}: {state} in {made.seconds:.1f} s")
    say(f"  {made.distribution.root}")
    for jar in manifest["overlay"]:
        say(f"  overlay/{jar['jar']}: {len(jar['classes'])} classes, {len(jar['resources'])} other files")
    if not classes:
        say("  the overlay is empty: the series changes no class")
        return
    say("To use the overlay on a Kafka of your own of the same version, before its start scripts:")
    say(f"  export CLASSPATH={made.distribution.overlay_classpath}")
    if packed:
        say(f"{packed.path}: {len(packed.names)} files, {packed.size / 1024:.0f} KiB, sha256 {packed.sha256}")


def _beside(made: builder.Built, selection: Selection) -> Path | None:
    """Return the archive's folder for a selection other than the default, or None for the default folder."""
    return made.distribution.root.parent.parent / f"archive-{selection.label}" if selection.label else None


@patch_app.command("pin")
def pin_command(
    role: Annotated[list[str] | None, typer.Option("--role", help="Only this role; may be repeated.")] = None,
) -> None:
    """Resolves every artifact through Maven and writes the list with SHA-256 into kafka.toml.

    What Maven itself runs, its plugins and everything that they load, goes into maven.sha256; its role is "maven".

    To move to another Kafka: change the versions at the top of kafka.toml, run this, look at the difference.

    Examples:
      rackgate patch pin
      rackgate patch pin --role testall
      rackgate patch pin --role maven
    """
    path = paths.PATCH / "kafka.toml"
    before = recipe.load(path)
    space = Workspace.of(before)
    stages = Stages(2, space.root / "timings-pin.json")
    roles = [name for name in role or () if name != MAVEN]
    with space.lock(stages.say):
        work = space.clear_work()
        if roles or not role:
            with stages.stage("resolve"):
                artifacts = pin_artifacts(path, work, roles)
            _report(path, *({a.id: a.sha256 for a in some} for some in (before.artifacts, artifacts)))
        if not role or MAVEN in role:
            with stages.stage("record what Maven runs"):
                pins = record(recipe.load(path), space.root / "artifacts", work)
            manifest = space.manifest
            old = read_pins(manifest) if manifest.exists() else {}
            write_pins(manifest, pins)
            _report(manifest, old, pins)
        shutil.rmtree(space.work, ignore_errors=True)
    stages.remember()


def _report(path: Path, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Print the changes of the pins."""
    say(
        f"{path}: {len(after)} files, {len(after.keys() - before.keys())} new, {len(before.keys() - after.keys())} gone"
    )
    for name in sorted(name for name in before.keys() & after.keys() if before[name] != after[name]):
        say(f"  same coordinates, OTHER CONTENT than pinned before: {name}")


@patch_app.command("import")
def import_command(
    force: Annotated[bool, typer.Option("--force", help="Throw away what was not exported.")] = False,
) -> None:
    """Lays out Kafka's sources as a git repository with the series as commits on top, to work on.

    The branches fixes, gate, elr and observe are at the last commit of each part; observe is checked out. Opt-in fixes
    are included. `git rebase -i published` moves the branches along.

    Examples:
      rackgate patch import
      cd build/kafka-4.3.1/tree && git log --oneline
    """
    tree = builder.import_tree(force=force)
    log = git.git(tree, "log", "--oneline", "--decorate=short", what="list the commits")
    say(log)
    say(f"{tree}: change, commit, then `rackgate patch export`")


@patch_app.command("export")
def export_command(
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Name all files anew, numbered from 1 in each part.")
    ] = False,
) -> None:
    """Writes the tree's commits back to the series, each part from its branch.

    A patch keeps its file name as long as its subject and part stay.

    Examples:
      rackgate patch export && git diff patch/
      rackgate patch export --renumber
    """
    plan = recipe.load()
    space = Workspace.of(plan)
    if not space.tree.exists():
        raise RackgateError(f"{space.tree} is not there; run `rackgate patch import` first")
    with space.lock(say):
        names = series.export(space.tree, plan.path.parent, renumber=renumber)
        series.mark_saved(space.tree)
    say(f"{plan.path.parent}: {len(names)} patches")


@patch_app.command("check")
def check_command() -> None:
    """Checks the series: files, commit messages, trailers and sizes of the patches, and that they apply.

    They must apply without the opt-in fixes, with each and with all of them, and each fix alone on the published
    sources with the fixes that it depends on.
    """
    plan = recipe.load()
    folder = plan.path.parent
    faults = series_lint.lint(folder)
    applied: tuple[str, ...] | None = ()
    if not faults:
        patches = series.load_all(folder)
        applied = series_lint.lint_application(plan, folder)
        faults = (*series_lint.lint_patches(patches), *(applied or ()))
    for fault in faults:
        say(f"error: {fault}")
    if faults:
        raise typer.Exit(1)
    ending = "NOT TRIED whether they apply: no sources yet, run `rackgate build` once"
    say(f"{len(patches)} patches are in order, {'and they apply' if applied is not None else ending}")


@patch_app.command("facts")
def facts_command(json_: Json = False) -> None:
    """Reports the size of each part, and what the series touches: files, messages and versions, parents of the errors.

    Examples:
      rackgate patch facts
      rackgate patch facts --json | jq .requests
    """
    found = facts(Distribution.load(), series.load_all(recipe.load().path.parent))
    if json_:
        typer.echo(json.dumps(found, indent=1))
        return
    say(f"{'part':24} {'patches':>8} {'main added':>11} {'test added':>11}")
    for row in found["parts"]:
        name = f"{row['part']}, opt-in {row['opt_in']}" if row["opt_in"] else row["part"]
        say(f"{name:24} {row['patches']:8} {row['main_added']:11} {row['test_added']:11}")
    say(f"{found['patches']} patches: {found['main_files']} files of Kafka's code, {found['test_files']} of its tests")
    for module, files in found["main"].items():
        say(f"  {module}: {', '.join(files)}")
    for name, message in found["messages"].items():
        fields = "other fields" if message["fields_changed"] else "the same fields"
        say(f"{name}: versions {message['versions']}, before {message['was']}, {fields}")
    for side, parents in found["parents"].items():
        for name, above in parents.items():
            say(f"{name}, {side}: {' < '.join(above) if above else 'absent'}")
    say(f"{found['deprecations']} deprecations")


@patch_app.command("test")
def jvm_test_command(
    classes: Annotated[list[str], typer.Argument(help="Test classes, such as kafka.cluster.PartitionTest.")],
    stock: Annotated[bool, typer.Option("--stock", help="Run on the published jars, without the overlay.")] = False,
    with_: With = None,
    json_: Json = False,
) -> None:
    """Runs Kafka's own tests on the overlay; those that the series changes are compiled from it.

    Examples:
      rackgate patch test kafka.cluster.PartitionTest
      rackgate patch test --stock kafka.cluster.PartitionTest
      rackgate patch test --with raft org.apache.kafka.raft.KafkaRaftClientTest
    """
    chosen = Selection(frozenset(with_ or ()))
    built = builder.build(selection=chosen, quiet=json_).distribution if with_ else Distribution.load()
    outcome = run_tests(built, classes, stock=stock, quiet=json_)
    if json_:
        typer.echo(json.dumps(outcome.as_dict(), indent=1))
    else:
        for failure in outcome.failures:
            say(f"failed: {failure}")
        say(
            f"{outcome.tests} tests, {outcome.failed} failed, {outcome.skipped} skipped, in {outcome.seconds:.1f} s, "
            f"{'on the published jars' if stock else 'on the overlay'}; reports in {outcome.reports}"
        )
    if not outcome.passed:
        raise typer.Exit(1)


@patch_app.command("upstream")
def upstream_command(
    every: Annotated[
        bool, typer.Option("--all", help="Every test class of the touched modules, which takes hours; resumable.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on where an earlier run stopped.")] = False,
    module: Annotated[list[str] | None, typer.Option("--module", help="Only this module; may be repeated.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only classes whose full name has this in it; may be repeated."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="JVMs of tests at the same time.")] = UPSTREAM_JOBS,
    json_: Json = False,
) -> None:
    """Runs Kafka's published tests on the published jars and on the overlay, and compares them case by case.

    Examples:
      rackgate patch upstream
      rackgate patch upstream --all --module metadata
      rackgate patch upstream --all --jobs 4
      rackgate patch upstream --all --only MirrorConnectors --only StreamsGroup
    """
    verdict = upstream(every=every, fresh=fresh, quiet=json_, modules=module or (), only=only or (), jobs=jobs)
    summary = verdict.summary
    if json_:
        typer.echo(json.dumps(summary, indent=1))
    else:
        for arm, row in summary["totals"].items():
            say(
                f"{arm}: {row['classes']} classes, {row['tests']} tests, {row['failures']} failed, {row['errors']} "
                f"errors, {row['skipped']} skipped, {row['seconds']:.0f} s"
            )
        for kind in ("allowed", "flakes", "fails_everywhere", "did_not_run", "missed"):
            for row in summary[kind]:
                pace = ", ".join(f"{key} {value}" for key, value in row.items() if key != "test")
                say(f"{kind.replace('_', ' ')}: {row['test']}: {pace}")
        met = "met" if verdict.met else "MISSED"
        say(f"bar {met}, in {summary['seconds']:.0f} s and {summary['sessions']} session(s); see {verdict.path}")
    if not verdict.met:
        raise typer.Exit(1)


@patch_app.command("series-check")
def series_check_command(
    start: Annotated[
        int | None, typer.Option("--from", min=1, help="Begin with the prefix of so many patches.")
    ] = None,
    end: Annotated[int | None, typer.Option("--to", min=1, help="End with the prefix of so many patches.")] = None,
    all_tests: Annotated[
        bool,
        typer.Option("--all-tests", help="Run all tests of each prefix, and not only those of its last patch (hours)."),
    ] = False,
    fixes: Annotated[bool, typer.Option("--fixes", help="Check only the fixes alone and the opt-in fixes.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Check again what is known already.")] = False,
    json_: Json = False,
) -> None:
    """Checks that every prefix of the series, and each fix alone, compiles and passes the tests that it contains.

    Prefixes are those of the default series, without the opt-in fixes. Each fix is checked on the published sources
    with the fixes that it depends on, and the whole series with all opt-in fixes. --from or --to checks only prefixes.

    Examples:
      rackgate patch series-check
      rackgate patch series-check --all-tests
      rackgate patch series-check --from 8 --to 9
      rackgate patch series-check --fixes
    """
    verdict = series_check(start=start, end=end, fixes=fixes, all_tests=all_tests, fresh=fresh, quiet=json_)
    if json_:
        typer.echo(json.dumps(verdict.summary, indent=1))
    else:
        for row in (*verdict.summary["prefixes"], *verdict.summary["fixes"]):
            for failure in row["failures"]:
                say(f"{row['check']}: failed: {failure['test']}: {failure['message']}")
            if row["error"]:
                say(f"{row['check']}: {row['error']}")
        say(
            f"{verdict.summary['checked']} checks, {len(verdict.summary['failed'])} failed, "
            f"in {verdict.summary['seconds']:.0f} s; see {verdict.path}"
        )
    if not verdict.met:
        raise typer.Exit(1)


@patch_app.command("check-reproducible")
def check_reproducible_command(json_: Json = False) -> None:
    """Builds twice from nothing, in other folders, as other users, on other days, and compares the bytes.

    Exit status 1 if a file differs; out/reproducible/summary.json has the SHA-256 of each file and the conditions.

    Examples:
      rackgate patch check-reproducible
    """
    verdict = check_reproducible(quiet=json_)
    if json_:
        typer.echo(json.dumps(verdict.summary, indent=1))
    else:
        for difference in verdict.summary["differences"]:
            say(f"differs: {difference}")
        seconds = ", ".join(f"{build['seconds']:.0f} s" for build in verdict.summary["builds"])
        say(
            f"{len(verdict.summary['files'])} files of two builds ({seconds}): {verdict.summary['verdict']}; "
            f"see {verdict.path}"
        )
    if not verdict.met:
        raise typer.Exit(1)


@patch_app.command("jmh")
def jmh_command(
    full: Annotated[bool, typer.Option("--full", help="Forks enough to settle the bars on a quiet machine.")] = False,
    forks: Annotated[int | None, typer.Option("--forks", min=1, help="JVMs for each benchmark and side.")] = None,
    only: Annotated[str, typer.Option("--only", help="Comparisons alone whose name has this in it.")] = "",
    more: Annotated[
        bool, typer.Option("--more", help="Keep the forks of earlier runs of the same build, and make what is missing.")
    ] = False,
    within: Annotated[
        float, typer.Option("--within", min=1, help="Percent by which the yardstick around a heat may be slow.")
    ] = ContentionRule().within * 100,
    json_: Json = False,
) -> None:
    """Measures what the gate costs with JMH, stock against overlay, an iteration of each in turn; writes out/jmh.

    Forks count if a yardstick of fixed work, measured before and after them, is at most half slower than it ever was in
    this run; else they are made again, twice at most.

    Exit status 1 if a bar is not met, 2 if the intervals are too wide to tell.

    Examples:
      rackgate patch jmh
      rackgate patch jmh --full
      rackgate patch jmh --full --more
      rackgate patch jmh --more --forks 30
      rackgate patch jmh --forks 10 --only "append gate" --within 25
    """
    effort = FULL if full else QUICK
    summary = measure(
        Distribution.load(),
        replace(effort, forks=forks) if forks else effort,
        ContentionRule(within=within / 100),
        only=only,
        more=more,
        quiet=json_,
    )
    if json_:
        typer.echo(json.dumps(summary, indent=1))
    else:
        for result in summary["comparisons"]:
            say(_line(result))
        say(
            f"{summary['forks']} forks a side, load {summary['load']['lowest']:.1f} to {summary['load']['highest']:.1f}"
        )
        say(format_pace(summary["pace"]))
    if summary["verdict"] == "unknown":
        open_ = [r for r in summary["comparisons"] if r["verdict"] == "unknown" and not r["control"]]
        absent = sum(not result["forks"] for result in open_)
        if cold := sum(result["cold"] for result in open_):
            raise RackgateError(
                f"{cold} of {len(open_)} comparisons that are not settled were measured before their JVMs were warm, "
                "which more forks do not mend: see iterations_ns in out/jmh/forks.jsonl"
            )
        words = f"rackgate patch jmh{' --full' if full else ''}"
        if within != ContentionRule().within * 100:
            words += f" --within {within:g}"
        raise RackgateError(
            f"{len(open_)} comparisons are not settled, {absent} of them not measured at all; about "
            f"{summary['forks_needed']} forks of each side would do, with a machine as busy as now: "
            f"`{words} --more --forks N`"
        )
    if summary["verdict"] == "not met":
        raise typer.Exit(1)


def _line(result: dict[str, Any]) -> str:
    """Format a comparison in one line: differences with their intervals and verdicts."""
    if not result["bars"]:
        return f"{result['name']}: {result['forks']} forks are too few"
    units = {"bytes": "B", "ns": "ns", "percent": "%"}
    parts = [
        f"{bar['measured']['estimate']:+.2f} [{bar['measured']['low']:+.2f}, {bar['measured']['high']:+.2f}] "
        f"{units[bar['name']]} {'' if result['control'] else bar['verdict']}".rstrip()
        for bar in result["bars"]
    ]
    if any(result["warming"].values()):
        side = max(result["warming"], key=result["warming"].__getitem__)
        parts.append(f"{result['warming'][side]:.0%} of a side's forks got faster while they were measured")
    if result["forks_disturbed"]:
        parts.append(f"{result['forks_disturbed']} of {result['forks']} forks disturbed")
    return f"{result['name']}: stock {result['stock_ns']:.1f} ns; " + "; ".join(parts)


@patch_app.command("mutate")
def mutate_command(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only the mutant of this name; may be repeated.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the mutants and run nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results.")] = False,
    json_: Json = False,
) -> None:
    """Takes one piece of the series out after another; each time a test must fail.

    Goes on where an interrupted run stopped. Status 1 if a mutant survived or could not be judged.

    Examples:
      rackgate patch mutate
      rackgate patch mutate --list
      rackgate patch mutate --only append-gate-missing --fresh
    """
    if list_:
        for mutant in mutants.choose(mutation.listed(), only or ()):
            if json_:
                typer.echo(json.dumps({"name": mutant.name, "what": mutant.what, "stands_for": mutant.stands_for}))
            else:
                say(f"{mutant.name}: {mutant.what} [{mutant.stands_for}]")
        return
    summary = mutation.mutate(Distribution.load(), only or (), fresh=fresh, quiet=json_)
    if json_:
        typer.echo(summary.file.read_text(encoding="utf-8"), nl=False)
    else:
        for verdict in summary.verdicts:
            if verdict.name in summary.chosen and verdict.status != mutation.KILLED:
                say(f"{verdict.status}: {verdict.name}: {verdict.said}")
        say(
            f"{len(summary.chosen)} mutants: {summary.count(mutation.KILLED)} killed, "
            f"{summary.count(mutation.SURVIVED)} survived, {summary.count(mutation.UNKNOWN)} unknown; "
            f"{summary.reused} known from before; {summary.seconds:.1f} s; {summary.file}"
        )
    if not summary.passed:
        raise typer.Exit(1)
