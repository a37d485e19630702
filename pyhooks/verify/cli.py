"""Commands ``rackgate build`` and ``rackgate patch``."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object
from pyhooks.patchset import builder, git, porting, recipe, series, series_lint
from pyhooks.patchset.archive import make_archive
from pyhooks.patchset.artifacts import read_pins, write_pins
from pyhooks.patchset.checkout import try_series
from pyhooks.patchset.class_comparison import compare_classes, touched_classes
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.pinning import MAVEN, draft, module_jars, record, unpublished
from pyhooks.patchset.pinning import pin as pin_artifacts
from pyhooks.patchset.series import Selection
from pyhooks.patchset.series_facts import facts
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutants, mutation
from pyhooks.verify.cpu_contention import ContentionRule
from pyhooks.verify.jmh import format_pace, measure
from pyhooks.verify.jmh_plan import FULL, QUICK
from pyhooks.verify.jmh_stopping import LOOKS
from pyhooks.verify.kafka_tests import run_tests
from pyhooks.verify.reproducibility import check_reproducible
from pyhooks.verify.series_check import series_check
from pyhooks.verify.upstream import JOBS as UPSTREAM_JOBS
from pyhooks.verify.upstream import upstream

build_app = typer.Typer()
patch_app = typer.Typer(
    name="patch",
    help="Edit, check and test the patch series, and pin the artifacts that it is built from.",
    no_args_is_help=True,
)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, without progress.")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="Include the opt-in fixes of this name, such as raft; can be repeated."),
]


def print_line(text: str) -> None:
    """Print a line of the result."""
    Console(soft_wrap=True, markup=False, highlight=False).print(text)


def print_result(summary: Mapping[str, Any], lines: Iterable[str], *, as_json: bool, passed: bool = True) -> None:
    """Print a result as JSON or as lines; exit with status 1 if a check did not pass."""
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    else:
        for line in lines:
            print_line(line)
    if not passed:
        raise typer.Exit(1)


@build_app.command("build")
def build_command(
    patches: Annotated[
        int | None,
        typer.Option("--patches", min=0, help="Apply only the first N patches; the build has its own folder."),
    ] = None,
    part: Annotated[
        str, typer.Option("--part", help="Apply only the parts up to this one; the build has its own folder.")
    ] = "",
    with_: With = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    archive: Annotated[
        bool, typer.Option("--archive", help="Also pack the overlay with instructions and checksums.")
    ] = False,
    json_: Json = False,
) -> None:
    """Build the patched Kafka: unmodified stock jars, and small overlay jars that precede them.

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
    keys = ("kafka_version", "revision", "patch_hash", "opt_ins", "patches", "overlay", "tree_commit")
    summary: dict[str, Any] = {
        "root": str(made.distribution.root),
        "classpath": made.distribution.overlay_classpath,
        "fresh": made.fresh,
        "seconds": round(made.seconds, 2),
        **{key: manifest[key] for key in keys},
    }
    state = "built" if made.fresh else "up to date"
    names = f", opt-in fixes {', '.join(manifest['opt_ins'])}" if manifest["opt_ins"] else ""
    title = f"Kafka {manifest['kafka_version']} with {manifest['revision']}, {len(manifest['patches'])} patches"
    lines = [f"{title}{names}: {state} in {made.seconds:.1f} s", f"  {made.distribution.root}"]
    lines += [
        f"  overlay/{jar['jar']}: {len(jar['classes'])} classes, {len(jar['resources'])} other files"
        for jar in manifest["overlay"]
    ]
    if any(jar["classes"] for jar in manifest["overlay"]):
        lines.append(
            "To use the overlay on another installation of the same Kafka version, set before its start scripts:"
        )
        lines.append(f"  export CLASSPATH={made.distribution.overlay_classpath}")
    else:
        lines.append("  the overlay is empty: the series changes no class")
    if packed:
        summary["archive"] = {"path": str(packed.path), "sha256": packed.sha256}
        lines.append(f"{packed.path}: {len(packed.names)} files, {packed.size / 1024:.0f} KiB, sha256 {packed.sha256}")
    print_result(summary, lines, as_json=json_)


def _beside(made: builder.Built, selection: Selection) -> Path | None:
    """Return the archive's folder for a selection other than the default, or None for the default folder."""
    return made.distribution.root.parent.parent / f"archive-{selection.label}" if selection.label else None


@patch_app.command("pin")
def pin_command(
    version: Annotated[
        str,
        typer.Argument(metavar="[VERSION]", help="Version of Kafka; by default the chosen one.", show_default=False),
    ] = "",
    role: Annotated[list[str] | None, typer.Option("--role", help="Only this role; can be repeated.")] = None,
) -> None:
    """Resolve every artifact with Maven and write the list with SHA-256 to kafka.toml.

    Maven's own plugins and their dependencies are written to maven.sha256; their role is "maven".

    For a version without a folder, patch/VERSION/kafka.toml is made from that of the chosen version. If not all of
    Kafka's artifacts are published yet, one line says which are missing, and nothing is written; exit status 1.

    Examples:
      rackgate patch pin
      rackgate patch pin VERSION
      rackgate patch pin --role testall
      rackgate patch pin --role maven
    """
    path = (paths.patch_folder(version) if version else paths.patch_folder()) / "kafka.toml"
    if version and not path.exists():
        _start_recipe(path, version)
    before = recipe.load(path)
    space = Workspace.of(before)
    stages = Stages(2, space.root / "timings-pin.json")
    roles = [name for name in role or () if name != MAVEN]
    with space.lock(stages.print_line):
        work = space.clear_work()
        if roles or not role:
            with stages.stage("resolve"):
                artifacts = pin_artifacts(path, work, roles)
            _report(path, *({a.id: a.sha256 for a in some} for some in (before.artifacts, artifacts)))
        if not role or MAVEN in role:
            with stages.stage("record the files that Maven needs"):
                pins = record(recipe.load(path), space.root / "artifacts", work)
            manifest = space.manifest
            old = read_pins(manifest) if manifest.exists() else {}
            write_pins(manifest, pins)
            _report(manifest, old, pins)
        shutil.rmtree(space.work, ignore_errors=True)
    stages.remember()


def _start_recipe(path: Path, version: str) -> None:
    """Write the recipe of another version, without pins.

    Raises:
        RackgateError: not all of Kafka's artifacts are published.
    """
    base = recipe.load()
    text = draft(base, version)
    with tempfile.TemporaryDirectory(prefix="rackgate-pin-") as folder:
        work = Path(folder)
        (work / "kafka.toml").write_text(text, encoding="utf-8")
        if missing := unpublished(recipe.load(work / "kafka.toml"), work):
            raise RackgateError(missing, exit_status=1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    for name in ("mutants.toml", "upstream.toml"):
        shutil.copyfile(base.path.with_name(name), path.with_name(name))
    print_line(f"{path}: made from {base.path.parent.name}; review its versions of test libraries")


def _report(path: Path, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Print the changes of the pins."""
    new, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    print_line(f"{path}: {len(after)} files, {new} new, {removed} removed")
    for name in sorted(name for name in before.keys() & after.keys() if before[name] != after[name]):
        print_line(f"  same coordinates, DIFFERENT CONTENT than the previous pin: {name}")


@patch_app.command("import")
def import_command(
    force: Annotated[bool, typer.Option("--force", help="Discard changes that were not exported.")] = False,
) -> None:
    """Create a git repository with Kafka's sources and the series as commits on top, for editing.

    The branches fixes, gate, elr and observe are at the last commit of each part; observe is checked out. Opt-in fixes
    are included. `git rebase -i published` updates the branches.

    Examples:
      rackgate patch import
      cd build/kafka-VERSION/tree && git log --oneline
    """
    tree = builder.import_tree(force=force)
    log = git.git(tree, "log", "--oneline", "--decorate=short", task="list the commits")
    print_line(log)
    print_line(f"{tree}: edit and commit, then run `rackgate patch export`")


@patch_app.command("export")
def export_command(
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Rename all files, numbered from 1 in each part.")
    ] = False,
) -> None:
    """Write the tree's commits to the series, each part from its branch.

    A patch keeps its file name while its subject and part are unchanged.

    Examples:
      rackgate patch export && git diff patch/
      rackgate patch export --renumber
    """
    plan = recipe.load()
    space = Workspace.of(plan)
    if not space.tree.exists():
        raise RackgateError(f"{space.tree} is missing; run `rackgate patch import` first")
    with space.lock(print_line):
        names = series.export(space.tree, plan.path.parent, renumber=renumber)
        series.mark_saved(space.tree)
    print_line(f"{plan.path.parent}: {len(names)} patches")


@patch_app.command("port")
def port_command(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Version of Kafka whose series is ported.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Version to port it to; patch/TO has its kafka.toml.")],
    compare: Annotated[bool, typer.Option("--compare", help="Only renew the comparison of the two series.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start again; replace the series and the tree of TO.")] = False,
    json_: Json = False,
) -> None:
    """Port the series to another version of Kafka, with a three-way merge of each patch.

    The command stops at a conflict. Resolve it in the tree, run `git add`, then run the same command again. At the end
    it writes the series to patch/TO, with two files: range-diff.txt, and port.toml, which lists the patches that are
    changed or dropped; write the reason of each there. Exit status 1 at a conflict, and as long as a reason is missing.

    Examples:
      rackgate patch port FROM TO
      rackgate patch port FROM TO --compare
    """
    plans = porting.recipe_of(source), porting.recipe_of(target)
    result = porting.compare(*plans, quiet=json_) if compare else porting.port(*plans, force=force, quiet=json_)
    numbers = porting.counts(result.names, result.differences)
    lines = [f"no reason yet: {name}" for name in result.unexplained]
    lines.append(f"{result.folder}: {', '.join(f'{number} {state}' for state, number in numbers.items())}")
    differences = [asdict(difference) for difference in result.differences]
    summary = {"folder": str(result.folder), **numbers, "differences": differences}
    print_result(summary, lines, as_json=json_, passed=not result.unexplained)


@patch_app.command("compare-classes")
def compare_classes_command(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Version of Kafka that has a series.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Version to compare with; its jars are downloaded.")],
    json_: Json = False,
) -> None:
    """List what differs between two versions of Kafka where the series changes Kafka, as far as the jars show it.

    It lists classes that have another package or are missing, and declarations near the changes that differ (removed
    -, added +). It needs no sources of TO. Changes within methods are not seen.

    Examples:
      rackgate patch compare-classes FROM TO
    """
    plan = porting.recipe_of(source)
    touched = touched_classes(series.load_all(plan.path.parent))
    with tempfile.TemporaryDirectory(prefix="rackgate-compare-") as folder:
        work = Path(folder)
        (work / "kafka.toml").write_text(draft(plan, target), encoding="utf-8")
        after, missing = module_jars(recipe.load(work / "kafka.toml"), work)
        before, _ = module_jars(plan, work)
        # classes of a module that has no jar yet are unknown, not missing
        known = [jar for jar in before if jar.name.removesuffix(f"-{source}.jar") not in missing]
        differences = compare_classes(touched, known, after)
    if json_:
        typer.echo(json.dumps({"missing": missing, "classes": [asdict(one) for one in differences]}, indent=1))
        return
    for difference in differences:
        for line in difference.lines:
            print_line(line)
    lacking = f"; without {', '.join(missing)}, of which {target} has no jar yet" if missing else ""
    print_line(f"{len(differences)} differences near the changes of the series in {len(touched)} classes{lacking}")


@patch_app.command("am")
def am_command(
    checkout: Annotated[Path, typer.Option("--checkout", help="A clone of apache/kafka with the tag of the version.")],
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Leave the worktree in this new folder, to build and test it there.")
    ] = None,
    json_: Json = False,
) -> None:
    """Try the series on a checkout of apache/kafka with `git am`, and report each patch that does not apply and why.

    It works in a git worktree of its own at the tag of the version; branches and files of the checkout do not change.
    Opt-in fixes are included, and patches that apply only to a checkout. Exit status 1 if a patch does not apply.

    Examples:
      rackgate patch am --checkout ~/kafka
      rackgate patch am --checkout ~/kafka --keep ~/kafka-racks && cd ~/kafka-racks && ./gradlew :core:test
    """
    plan = recipe.load()
    patches = (*series.load_all(plan.path.parent), *series.load_checkout())
    outcomes = try_series(checkout, plan.version, patches, keep)
    failed = [outcome for outcome in outcomes if outcome.reason]
    lines = []
    for outcome in failed:
        after = f" (after {', '.join(outcome.after)}, with files in common)" if outcome.after else ""
        lines.append(f"does not apply: {outcome.patch}: {outcome.reason}{after}")
    lines.append(f"tag {plan.version}: {len(outcomes) - len(failed)} of {len(outcomes)} patches apply")
    if keep:
        lines.append(f"{keep}: a worktree with these patches as commits; `git worktree remove --force` deletes it")
    summary = {"tag": plan.version, "patches": [asdict(outcome) for outcome in outcomes]}
    print_result(summary, lines, as_json=json_, passed=not failed)


@patch_app.command("check")
def check_command() -> None:
    """Check the series: files, commit messages, trailers and sizes of the patches, and that they apply.

    They must apply without the opt-in fixes, with each and with all of them. Each fix must apply alone to the published
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
    faults = (*faults, *series_lint.lint_checkout(series.load_checkout()))
    for fault in faults:
        print_line(f"error: {fault}")
    if faults:
        raise typer.Exit(1)
    ending = "NOT CHECKED whether they apply: no sources yet, run `rackgate build` once"
    print_line(f"{len(patches)} patches are in order, {'and they apply' if applied is not None else ending}")


@patch_app.command("facts")
def facts_command(json_: Json = False) -> None:
    """Report the size of each part, and the files, messages, versions and error classes that the series changes.

    Examples:
      rackgate patch facts
      rackgate patch facts --json | jq .requests
    """
    numbers = facts(Distribution.load(), series.load_all(recipe.load().path.parent))
    lines = [f"{'part':24} {'patches':>8} {'main added':>11} {'test added':>11}"]
    for row in numbers["parts"]:
        name = f"{row['part']}, opt-in {row['opt_in']}" if row["opt_in"] else row["part"]
        lines.append(f"{name:24} {row['patches']:8} {row['main_added']:11} {row['test_added']:11}")
    changed = f"{numbers['main_files']} files of Kafka's code, {numbers['test_files']} of its tests"
    lines.append(f"{numbers['patches']} patches: {changed}")
    lines += [f"  {module}: {', '.join(files)}" for module, files in numbers["main"].items()]
    for name, message in numbers["messages"].items():
        fields = "other fields" if message["fields_changed"] else "the same fields"
        lines.append(f"{name}: versions {message['versions']}, previously {message['was']}, {fields}")
    for side, parents in numbers["parents"].items():
        lines += [f"{name}, {side}: {' < '.join(above) or 'absent'}" for name, above in parents.items()]
    print_result(numbers, [*lines, f"{numbers['deprecations']} deprecations"], as_json=json_)


@patch_app.command("test")
def jvm_test_command(
    classes: Annotated[list[str], typer.Argument(help="Test classes, such as kafka.cluster.PartitionTest.")],
    stock: Annotated[bool, typer.Option("--stock", help="Run on the published jars, without the overlay.")] = False,
    with_: With = None,
    json_: Json = False,
) -> None:
    """Run Kafka's own tests on the overlay; those that the series changes are compiled from it.

    Examples:
      rackgate patch test kafka.cluster.PartitionTest
      rackgate patch test --stock kafka.cluster.PartitionTest
      rackgate patch test --with raft org.apache.kafka.raft.KafkaRaftClientTest
    """
    chosen = Selection(frozenset(with_ or ()))
    built = builder.build(selection=chosen, quiet=json_).distribution if with_ else Distribution.load()
    outcome = run_tests(built, classes, stock=stock, quiet=json_)
    lines = [f"failed: {failure}" for failure in outcome.failures]
    lines.append(
        f"{outcome.tests} tests, {outcome.failed} failed, {outcome.skipped} skipped, in {outcome.seconds:.1f} s, "
        f"{'on the published jars' if stock else 'on the overlay'}; reports in {outcome.reports}"
    )
    print_result(outcome.as_dict(), lines, as_json=json_, passed=outcome.passed)


@patch_app.command("upstream")
def upstream_command(
    every: Annotated[
        bool, typer.Option("--all", help="Run every test class of the touched modules (hours; can be resumed).")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the results of an interrupted run.")] = False,
    module: Annotated[list[str] | None, typer.Option("--module", help="Only this module; can be repeated.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only classes whose full name contains this text; can be repeated."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of test JVMs in parallel.")] = UPSTREAM_JOBS,
    json_: Json = False,
) -> None:
    """Run Kafka's published tests on the published jars and on the overlay, and compare the results by test case.

    Examples:
      rackgate patch upstream
      rackgate patch upstream --all --module metadata
      rackgate patch upstream --all --jobs 4
      rackgate patch upstream --all --only MirrorConnectors --only StreamsGroup
    """
    result = upstream(every=every, fresh=fresh, quiet=json_, modules=module or (), only=only or (), jobs=jobs)
    summary = result.summary
    lines = [
        f"{arm}: {row['classes']} classes, {row['tests']} tests, {row['failures']} failed, {row['errors']} "
        f"errors, {row['skipped']} skipped, {row['seconds']:.0f} s"
        for arm, row in summary["totals"].items()
    ]
    for kind in ("allowed", "flakes", "fails_everywhere", "did_not_run", "missed"):
        for row in summary[kind]:
            details = ", ".join(f"{key} {value}" for key, value in row.items() if key != "test")
            lines.append(f"{kind.replace('_', ' ')}: {row['test']}: {details}")
    target, seconds = "met" if result.met else "MISSED", summary["seconds"]
    lines.append(f"target {target}, in {seconds:.0f} s and {summary['sessions']} session(s); see {result.path}")
    print_result(summary, lines, as_json=json_, passed=result.met)


@patch_app.command("series-check")
def series_check_command(
    start: Annotated[int | None, typer.Option("--from", min=1, help="Number of patches of the first prefix.")] = None,
    end: Annotated[int | None, typer.Option("--to", min=1, help="Number of patches of the last prefix.")] = None,
    all_tests: Annotated[
        bool,
        typer.Option("--all-tests", help="Run all tests of each prefix, not only those of its last patch (hours)."),
    ] = False,
    fixes: Annotated[bool, typer.Option("--fixes", help="Check only the fixes alone and the opt-in fixes.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore cached results.")] = False,
    json_: Json = False,
) -> None:
    """Check that every prefix of the series, and each fix alone, compiles and passes the tests that it contains.

    Prefixes are those of the default series, without the opt-in fixes. Each fix is checked on the published sources
    with the fixes that it depends on, and the whole series with all opt-in fixes. --from or --to checks only prefixes.

    Examples:
      rackgate patch series-check
      rackgate patch series-check --all-tests
      rackgate patch series-check --from 8 --to 9
      rackgate patch series-check --fixes
    """
    result = series_check(start=start, end=end, fixes=fixes, all_tests=all_tests, fresh=fresh, quiet=json_)
    summary = result.summary
    lines: list[str] = []
    for row in (*summary["prefixes"], *summary["fixes"]):
        lines += [f"{row['check']}: failed: {failure['test']}: {failure['message']}" for failure in row["failures"]]
        lines += [f"{row['check']}: {row['error']}"] if row["error"] else []
    failed, seconds = len(summary["failed"]), summary["seconds"]
    lines.append(f"{summary['checked']} checks, {failed} failed, in {seconds:.0f} s; see {result.path}")
    print_result(summary, lines, as_json=json_, passed=result.met)


@patch_app.command("check-reproducible")
def check_reproducible_command(json_: Json = False) -> None:
    """Build twice from scratch, in different folders, as different users, on different days, and compare the bytes.

    Exit status 1 if a file differs; out/reproducible/summary.json has the SHA-256 of each file and the conditions.

    Examples:
      rackgate patch check-reproducible
    """
    result = check_reproducible(quiet=json_)
    summary = result.summary
    seconds = ", ".join(f"{build['seconds']:.0f} s" for build in summary["builds"])
    lines = [f"differs: {difference}" for difference in summary["differences"]]
    lines.append(f"{len(summary['files'])} files of two builds ({seconds}): {summary['verdict']}; see {result.path}")
    print_result(summary, lines, as_json=json_, passed=result.met)


@patch_app.command("jmh")
def jmh_command(
    full: Annotated[bool, typer.Option("--full", help="Up to the last look of the stopping rule.")] = False,
    forks: Annotated[
        int | None,
        typer.Option("--forks", min=1, max=LOOKS[-1], help="Maximum number of JVMs for each benchmark and side."),
    ] = None,
    only: Annotated[str, typer.Option("--only", help="Only comparisons whose name contains this text.")] = "",
    more: Annotated[
        bool, typer.Option("--more", help="Keep the forks of earlier runs of the same build, and run the missing ones.")
    ] = False,
    within: Annotated[
        float, typer.Option("--within", min=1, help="Maximum slowdown of the yardstick around a heat, in percent.")
    ] = ContentionRule().within * 100,
    json_: Json = False,
) -> None:
    """Measure the cost of the gate with JMH, stock against overlay with alternating iterations; write out/jmh.

    Forks count if a calibration workload, the yardstick, is at most 50 % slower before and after them than at its
    fastest in this run. Otherwise they are repeated, at most twice.

    Comparisons are evaluated after 6, 12, 24 and 48 rounds, at a level that keeps wrong verdicts on a target to 5 %
    over all of these looks. Each ends at its first verdict, or at the last look. Without --full, there is only the
    first look.

    Exit status 1 if a target is missed, 2 if the intervals are too wide for a verdict.

    Examples:
      rackgate patch jmh
      rackgate patch jmh --full
      rackgate patch jmh --full --more
      rackgate patch jmh --full --more --forks 24
      rackgate patch jmh --forks 6 --only "append gate" --within 25
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
    lowest, highest = summary["load"]["lowest"], summary["load"]["highest"]
    lines = [f"{summary['forks']} forks a side, load {lowest:.1f} to {highest:.1f}", format_pace(summary["pace"])]
    passed = summary["verdict"] != "not met"
    print_result(summary, [*map(_line, summary["comparisons"]), *lines], as_json=json_, passed=passed)
    if summary["verdict"] == "unknown":
        unsettled = [r for r in summary["comparisons"] if r["verdict"] == "unknown" and not r["control"]]
        absent = sum(not result["forks"] for result in unsettled)
        if cold := sum(result["cold"] for result in unsettled):
            raise RackgateError(
                f"{cold} of {len(unsettled)} comparisons without a verdict were measured before their JVMs were warm, "
                "so more forks do not help: see iterations_ns in out/jmh/forks.jsonl"
            )
        if all(result["ended"] for result in unsettled):
            raise RackgateError(
                f"{len(unsettled)} comparisons have no verdict at the last look, after {LOOKS[-1]} rounds; further "
                "forks would void the error rate: measure again on an idle machine, without --more"
            )
        option = f" --within {within:g}" if within != ContentionRule().within * 100 else ""
        raise RackgateError(
            f"{len(unsettled)} comparisons have no verdict, {absent} of them no measurement; about "
            f"{summary['forks_needed']} forks of each side are needed at the current load, at most {LOOKS[-1]} are "
            f"run: `rackgate patch jmh --full{option} --more`"
        )


def _line(result: dict[str, Any]) -> str:
    """Format a comparison in one line: differences with their intervals and verdicts."""
    if not result["targets"]:
        return f"{result['name']}: {result['forks']} forks are too few"
    units = {"bytes": "B", "ns": "ns", "percent": "%"}
    parts = [
        f"{target['measured']['estimate']:+.2f} [{target['measured']['low']:+.2f}, {target['measured']['high']:+.2f}] "
        f"{units[target['name']]} {'' if result['control'] else target['verdict']}".rstrip()
        for target in result["targets"]
    ]
    for name, ratio in (("fastest", result["ratio"]), ("median", result["median_slice"]["ratio"])):
        parts.append(f"ratio of {name} slices {ratio['estimate']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}]")
    parts.append(f"look after {result['look']} rounds" if result["look"] else "before the first look")
    if any(result["warming"].values()):
        side = max(result["warming"], key=result["warming"].__getitem__)
        parts.append(f"{result['warming'][side]:.0%} of a side's forks became faster while they were measured")
    if result["forks_disturbed"]:
        parts.append(f"{result['forks_disturbed']} of {result['forks']} forks disturbed")
    return f"{result['name']}: stock {result['stock_ns']:.1f} ns; " + "; ".join(parts)


@patch_app.command("mutate")
def mutate_command(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only the mutant of this name; can be repeated.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the mutants and run nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier results.")] = False,
    json_: Json = False,
) -> None:
    """Remove one piece of the series at a time and check that a test fails.

    An interrupted run is resumed. Exit status 1 if a mutant survived or could not be judged.

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
                print_line(f"{mutant.name}: {mutant.what} [{mutant.stands_for}]")
        return
    summary = mutation.mutate(Distribution.load(), only or (), fresh=fresh, quiet=json_)
    lines = [
        f"{verdict.status}: {verdict.name}: {verdict.message}"
        for verdict in summary.verdicts
        if verdict.name in summary.chosen and verdict.status != mutation.KILLED
    ]
    counts = ", ".join(f"{summary.count(status)} {status}" for status in mutation.STATUSES)
    reused = f"{summary.reused} of earlier runs; {summary.seconds:.1f} s; {summary.file}"
    lines.append(f"{len(summary.chosen)} mutants: {counts}; {reused}")
    stored = read_object(summary.file, "this command writes it")
    print_result(stored, lines, as_json=json_, passed=summary.passed)
