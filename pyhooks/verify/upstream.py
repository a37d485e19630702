"""``rackgate patch upstream``: Kafka's own tests on the published jars and on the overlay, compared case by case.

Three arms: ``stock`` (published tests, published jars), ``overlay`` (the same tests, overlay first) and ``patched``
(test classes that the series adds or changes, on the overlay). Batches of the arms alternate, several in parallel, so
that machine load affects all arms alike. Failed cases are repeated afterwards. An interrupted run is resumed. Stock
results are reused for other series.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.core.locks import hold_lock
from pyhooks.core.process import end_processes_in, end_until_done, exits_on_sigterm
from pyhooks.patchset import maven, recipe, series
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import TEST_ALL, Module
from pyhooks.patchset.stages import durations
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import upstream_suite
from pyhooks.verify.changed_tests import compile_changed
from pyhooks.verify.check_result import CheckResult
from pyhooks.verify.upstream_cases import ARMS, OVERLAY, PATCHED, STOCK, ClassResult, Runs, judge, method_of, totals
from pyhooks.verify.upstream_progress import UpstreamProgress
from pyhooks.verify.upstream_runner import WORK, KafkaTestRunner, run_classes, scratch
from pyhooks.verify.upstream_suite import Suite

REPEATS = 5
_FORMAT = 2
_BATCH = 20
_KEPT_STATES = 4
_START_S = 8.0
_UNKNOWN_CLASS_S = 4.0
# Test JVMs in parallel: many tests wait for most of their time.
JOBS = 2


@dataclass(frozen=True)
class Batch:
    """One batch: classes of one module on one arm. ``serial``: no other batch may run at the same time."""

    arm: str
    module: Module
    classes: tuple[str, ...]
    serial: bool = False


def upstream(
    *,
    every: bool = False,
    fresh: bool = False,
    quiet: bool = False,
    modules: Sequence[str] = (),
    only: Sequence[str] = (),
    jobs: int = JOBS,
) -> CheckResult:
    """Run the listed test classes, or all classes of the touched modules, on every arm, and compare the results.

    Args:
        every: run all test classes of the modules that the series touches, instead of the list.
        fresh: discard results of earlier runs. After a finished run of the list, its results are always discarded.
        quiet: show no progress.
        modules: names of the modules to run; all if empty.
        only: run only classes whose full name contains one of these texts; all if empty.
        jobs: number of JVMs in parallel.

    Raises:
        RackgateError: no build of the current series, no class matches ``only``, or the tests could not be run.
    """
    plan = recipe.load()
    patches = series.load(plan.path.parent)
    distribution = Distribution.load()
    series.check_build(distribution.manifest, patches)
    space = Workspace.of(plan)
    screen = Console(stderr=True, quiet=quiet)
    report = paths.OUT / ("upstream-all" if every else "upstream")
    base = space.root / "upstream" / _key(plan, distribution)[:16]
    for name in modules:
        plan.module(name)
    taken = f"another run of Kafka's tests uses {base}; wait for it"
    # SIGTERM is handled like an interruption, so that test JVMs end, too: they are Maven's children, not ours.
    with hold_lock(base.with_suffix(".lock"), taken=taken), exits_on_sigterm():
        # Leftovers of a run that was killed.
        end_processes_in(base / WORK)
        shutil.rmtree(base / WORK, ignore_errors=True)
        with scratch(base) as work, space.lock(lambda text: screen.print(text, highlight=False)):
            roles = ("sources", "test-sources", "test", "testrun", "runtime", *([TEST_ALL] if every else []))
            space.store.fetch(plan, plan.with_role(*roles), work)
        suite = upstream_suite.load(plan)
        if every:
            touched = upstream_suite.touched(plan, distribution.manifest["changed_files"])
            suite = upstream_suite.everything(plan, space.store, touched, suite)
        folder = base / suite.name
        last = plan.only_for(TEST_ALL) if every else ()
        runner = KafkaTestRunner(plan, space, distribution, base, report, last)
        finished = folder / f"finished-{runner.series}"
        stock = space.root / "upstream" / f"stock-{suite.name}-{_key(plan)[:16]}.jsonl"
        progress = UpstreamProgress(folder, stock, folder / f"patched-{runner.series}.jsonl")
        if fresh or (finished.exists() and not every):
            for old in (folder, *(report / arm for arm in ARMS)):
                shutil.rmtree(old, ignore_errors=True)
            progress.stock.unlink(missing_ok=True)
        progress.load()
        if progress.done:
            screen.print(f"resuming: {len(progress.done)} results exist", highlight=False)
        screen.print("compiling the test sources of the series", highlight=False)
        changed = compile_changed(runner, patches)
        own_tests = series_tests(changed, runner)
        units = narrowed(
            [u for u in plan_units(plan, suite, own_tests) if not modules or u.module.name in modules], only
        )
        _run_units(runner, progress, units, screen, ClassDurations(space.root / "timings-upstream.json"), jobs)
        _repeat(runner, progress, suite, own_tests, screen)
        if not modules and not only:
            finished.touch()
    _prune(base)
    summary = summarise(progress, suite, units, distribution)
    path = report / "summary.json"
    write_json(path, summary)
    return CheckResult(summary, path, met=not summary["missed"])


def _key(plan: recipe.Recipe, distribution: Distribution | None = None) -> str:
    """Return a hash of all inputs of published test results; without a distribution, of those on the published jars.

    Of the overlay, the hash covers the entries of its jars except manifests: if a series changes only its own tests,
    the published tests are not run again. Artifacts of the role ``testall`` are left out. They are last on the class
    path, so they do not affect classes that run without them.
    """
    parts = [
        _FORMAT, [[a.id, a.sha256] for a in plan.without(TEST_ALL)], maven.javac_version(),
        (maven.TEMPLATES / "upstream.xml.j2").read_text(encoding="utf-8"),
    ]  # fmt: skip
    if distribution:
        parts += [_classes_of(distribution.root / "overlay")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _classes_of(folder: Path) -> list[list[str]]:
    """Return jar, name and hash of each entry except manifests, which contain the hash of the series."""
    rows = []
    for jar in sorted(folder.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            names = sorted(name for name in archive.namelist() if name != "META-INF/MANIFEST.MF")
            rows += [[jar.name, name, hashlib.sha256(archive.read(name)).hexdigest()] for name in names]
    return rows


def _prune(folder: Path) -> None:
    states = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
    for old in sorted(states, key=lambda path: path.stat().st_mtime_ns, reverse=True)[_KEPT_STATES:]:
        shutil.rmtree(old)


def plan_units(
    plan: recipe.Recipe, suite: Suite, own_tests: Mapping[str, tuple[str, ...]], batch: int = _BATCH
) -> list[Batch]:
    """Return the batches in order: by module, then by group of classes, alternating between stock and overlay.

    ``own_tests`` has the series' test classes by module, the third arm. A JVM runs at most ``batch`` classes.
    """
    units: list[Batch] = []
    for module in plan.modules:
        published = suite.classes.get(module.name, ())
        shared = [name for name in published if name not in suite.alone | suite.apart]
        chunks = [tuple(shared[start : start + batch]) for start in range(0, len(shared), batch)]
        chunks += [(name,) for name in published if name in suite.apart - suite.alone]
        units += [Batch(arm, module, chunk) for chunk in chunks for arm in (STOCK, OVERLAY)]
        serial = [name for name in published if name in suite.alone]
        units += [Batch(arm, module, (name,), serial=True) for name in serial for arm in (STOCK, OVERLAY)]
        if own_tests.get(module.name):
            units.append(Batch(PATCHED, module, own_tests[module.name]))
    return units


def narrowed(units: Sequence[Batch], only: Sequence[str]) -> list[Batch]:
    """Return the batches reduced to classes whose full name contains a text of ``only``; all if it is empty.

    Raises:
        RackgateError: a text of ``only`` matches no class.
    """
    names = {name for unit in units for name in unit.classes}
    unmatched = [text for text in only if not any(text in name for name in names)]
    if unmatched:
        raise RackgateError(
            f"no test class of these modules has {unmatched[0]!r} in its name; --all includes the most classes"
        )
    chosen = {name for name in names if not only or any(text in name for text in only)}
    cut = [replace(unit, classes=tuple(name for name in unit.classes if name in chosen)) for unit in units]
    return [unit for unit in cut if unit.classes]


def series_tests(changed: Mapping[str, tuple[str, ...]], runner: KafkaTestRunner) -> dict[str, tuple[str, ...]]:
    """Return the test classes among the series' compiled test sources, without helpers, by module.

    A source may define test classes that are not named after it. Such a class is assigned to the module of another
    class in its package. The module only affects the order of the class path.

    Raises:
        RackgateError: test sources changed, but no compiled classes exist.
    """
    folder = runner.classes(PATCHED, runner.plan.modules[0])
    parsed = [upstream_suite.parse_class(path.read_bytes()) for path in folder.rglob("*.class")]
    if changed and not parsed:
        raise RackgateError(f"{folder}: no compiled tests, though the series changes {sum(map(len, changed.values()))}")
    known = {}
    for module in (m for m in runner.plan.modules if m.tests):
        known.update(upstream_suite.read_classes(runner.space.store.path(runner.plan.find(module.artifact, "test"))))
    known.update({entry.name: entry for entry in parsed})
    return by_module(changed, upstream_suite.test_classes([entry.name for entry in parsed], known))


def by_module(changed: Mapping[str, Sequence[str]], tests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Group the test classes of changed sources by module; ``changed`` has the classes the sources are named after."""
    own = {test: name for name, classes in changed.items() for test in classes}
    near = {test.rpartition(".")[0]: name for test, name in own.items()}
    tests_of: dict[str, list[str]] = {name: [] for name in changed}
    for test in tests:
        tests_of[own[test] if test in own else near[test.rpartition(".")[0]]].append(test)
    return {name: tuple(sorted(classes)) for name, classes in tests_of.items()}


@dataclass
class ClassDurations:
    """Previous durations in seconds of test classes, by arm and class, for estimates."""

    memory: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seconds |= durations(self.memory)

    def of(self, unit: Batch) -> float:
        """Estimate the duration of a unit's JVM in seconds."""
        known = [self.seconds.get(f"{unit.arm} {n}", self.seconds.get(f"{STOCK} {n}")) for n in unit.classes]
        return _START_S + sum(_UNKNOWN_CLASS_S if seconds is None else seconds for seconds in known)

    def keep(self) -> None:
        """Write the durations to the file."""
        write_json(self.memory, self.seconds)


def _lead(todo: Sequence[Batch], usual_durations: ClassDurations) -> list[Batch]:
    """Split the first unit, so that its fastest class is a unit of its own at the start."""
    if not todo or len(todo[0].classes) == 1:
        return list(todo)
    parts = [replace(todo[0], classes=(name,)) for name in todo[0].classes]
    first = min(parts, key=usual_durations.of)
    return [first, replace(todo[0], classes=tuple(c for c in todo[0].classes if c not in first.classes)), *todo[1:]]


def _run_units(
    runner: KafkaTestRunner,
    progress: UpstreamProgress,
    units: Sequence[Batch],
    screen: Console,
    usual_durations: ClassDurations,
    jobs: int = JOBS,
    run: Callable[..., None] = run_classes,
) -> None:
    """Run the classes without a result, ``jobs`` units in parallel; run ``serial`` units at the end, serially.

    A fast class runs first, with no other in parallel: it lets Maven complete its local repository, which two
    processes must not do at the same time. If a unit can't be run, no further unit starts; running ones complete.
    """
    rest = [replace(u, classes=tuple(c for c in u.classes if (u.arm, c, 0) not in progress.done)) for u in units]
    todo = _lead([unit for unit in rest if unit.classes], usual_durations)
    guard = threading.Lock()
    waiting = dict(enumerate(todo))

    def work(number: int) -> None:
        unit = todo[number]
        with guard:
            left_s = sum(map(usual_durations.of, waiting.values())) / jobs
        head = f"{number + 1}/{len(todo)} {unit.module.name} on {unit.arm}"
        about = f"about {max(left_s / 60, 1):.0f} min left in total"
        screen.print(f"{head}: {len(unit.classes)} classes; {about}", highlight=False)
        started = time.monotonic()
        count = 0

        def report(result: ClassResult) -> None:
            nonlocal count
            count += 1
            progress.add(unit.arm, result)
            bad = sum(case.bad for case in result.cases)
            if screen.is_terminal or bad or result.error:
                outcome = result.error or f"{len(result.cases)} tests, {bad} failed, {result.seconds:.1f} s"
                screen.print(f"  {result.name} on {unit.arm}: {outcome}", highlight=False)
            with guard:
                usual_durations.seconds[f"{unit.arm} {result.name}"] = round(result.seconds, 2)

        run(runner, unit.arm, unit.module, dict.fromkeys(unit.classes, ()), report)
        screen.print(f"{head}: {count} classes in {time.monotonic() - started:.1f} s", highlight=False)
        with guard:
            del waiting[number]
            usual_durations.keep()

    if todo:
        work(0)
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, number) for number in range(1, len(todo)) if not todo[number].serial]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException as error:
            runner.ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):
                # Interrupted: kill running JVMs, and those that a running Maven is about to start.
                end_until_done(runner.folder / WORK, futures)
            raise
    for number in range(1, len(todo)):
        if todo[number].serial:
            work(number)


def _repeat(
    runner: KafkaTestRunner,
    progress: UpstreamProgress,
    suite: Suite,
    own_tests: Mapping[str, tuple[str, ...]],
    screen: Console,
) -> None:
    """Repeat every case that failed on any arm ``REPEATS`` times on all arms that have it."""
    bad = progress.runs.bad()
    if not bad:
        return
    where = {name: module for group in (own_tests, suite.classes) for module, names in group.items() for name in names}
    modules = sorted({where[name] for name in bad})
    screen.print(
        f"{sum(map(len, bad.values()))} cases failed; {REPEATS} repetitions on every arm that has them", highlight=False
    )
    for repeat in range(1, REPEATS + 1):
        for module in modules:
            for arm in ARMS:
                wanted = {
                    name: methods_of(name, progress.runs, arm, cases)
                    for name, cases in bad.items()
                    if where[name] == module
                    and (arm, name, repeat) not in progress.done
                    and any(progress.runs.has(arm, case) for case in cases)
                }
                if not wanted:
                    continue
                started = time.monotonic()

                report = partial(progress.add, arm, repeat=repeat)
                run_classes(runner, arm, runner.plan.module(module), wanted, report)
                duration_s = time.monotonic() - started
                screen.print(f"  repetition {repeat}, {module} on {arm}: {duration_s:.1f} s", highlight=False)


def methods_of(name: str, runs: Runs, arm: str, cases: Sequence[str]) -> tuple[str, ...]:
    """Return the methods of class ``name`` that the arm's ``cases`` belong to; empty means the whole class."""
    methods = [method_of(case, name) for case in cases if runs.has(arm, case)]
    # None is a case of a nested class, or a failure outside of any method: then the whole class is run.
    return () if None in methods else tuple(sorted({method for method in methods if method}))


def summarise(
    progress: UpstreamProgress, suite: Suite, units: Sequence[Batch], distribution: Distribution
) -> dict[str, Any]:
    """Return the content of ``summary.json``."""
    runs = progress.runs
    rows: dict[str, dict[str, Any]] = {}
    for unit in units:
        for name in unit.classes:
            result = runs.first[unit.arm].get(name)
            if result:
                rows.setdefault(name, {"module": unit.module.name})[unit.arm] = result.figures()
    verdict = judge(runs, suite.allowed)
    return {
        "suite": suite.name,
        "modules": sorted({unit.module.name for unit in units}),
        "kafka_version": distribution.manifest["kafka_version"],
        "patch_hash": distribution.manifest["patch_hash"],
        "bar_met": not verdict["missed"],
        "seconds": round(progress.seconds(), 1),
        "sessions": progress.sessions,
        "totals": {arm: totals(runs.first[arm].values()) for arm in ARMS},
        **verdict,
        "classes": dict(sorted(rows.items())),
    }
