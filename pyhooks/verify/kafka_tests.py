"""``rackgate patch test``: run chosen test classes of Kafka on the overlay or on the published jars."""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import recipe, series
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Module
from pyhooks.patchset.series import Selection
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify.changed_tests import compile_changed
from pyhooks.verify.upstream_cases import OVERLAY, PATCHED, SKIPPED, STOCK, ClassResult
from pyhooks.verify.upstream_runner import KafkaTestRunner, run_classes


@dataclass(frozen=True)
class KafkaTestRun:
    """Result of a test run.

    Attributes:
        tests: number of tests, including skipped ones.
        failed: number of failures and errors.
        failures: ``class.method: message`` of each failed test.
        error: why a class did not complete, or empty.
    """

    tests: int
    failed: int
    skipped: int
    failures: tuple[str, ...]
    reports: Path
    seconds: float
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether at least one test ran, none failed, and every class completed."""
        return self.tests > self.skipped and not self.failed and not self.error

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {**asdict(self), "reports": str(self.reports), "passed": self.passed}


def run_tests(
    distribution: Distribution,
    classes: Sequence[str],
    *,
    stock: bool = False,
    quiet: bool = False,
    reports: Path | None = None,
) -> KafkaTestRun:
    """Run test classes of Kafka, by full name; those that the series changes are compiled from it.

    ``stock`` runs them without the overlay and without test sources changed by the series; otherwise the build must be
    of the current series. The JUnit XML goes to ``reports``, by default ``out/upstream``.

    Raises:
        RackgateError: an unknown class, a test source that does not compile, a build of another series, or a class did
            not complete and no test failed.
    """
    started = time.monotonic()
    plan = recipe.load()
    patches = series.load(plan.path.parent, Selection(opt_ins=distribution.opt_ins))
    if not stock:
        series.check_build(distribution.manifest, patches)
    space = Workspace.of(plan)
    target = reports or paths.OUT / "upstream"
    target.mkdir(parents=True, exist_ok=True)
    stages = Stages(3, space.root / "timings-test.json", quiet=quiet)
    results: list[ClassResult] = []
    with space.test_work() as work:
        runner = KafkaTestRunner(plan, space, distribution, work, work / "reports")
        with stages.stage("fetch and verify"), space.lock(stages.print_line):
            # The sources are needed to compile the test sources that the series changes.
            space.store.fetch(plan, plan.with_role("sources", "test-sources", "test", "testrun", "runtime"), work)
        with stages.stage("compile the tests of the series"):
            changed = {} if stock else compile_changed(runner, patches)
        try:
            with stages.stage("run the tests"):
                for (arm, module), names in _batches(runner, classes, changed, OVERLAY if not stock else STOCK).items():
                    run_classes(runner, arm, module, dict.fromkeys(names, ()), results.append)
        finally:
            for file in (path for path in (work / "reports").rglob("*") if path.is_file()):
                shutil.copyfile(file, target / file.name)
    stages.remember()
    run = summarise_results(results, target, time.monotonic() - started)
    if run.error and not run.failed:
        raise RackgateError(f"Kafka's tests: {run.error}")
    return run


def _batches(
    runner: KafkaTestRunner, classes: Sequence[str], changed: Mapping[str, Sequence[str]], published_arm: str
) -> dict[tuple[str, Module], list[str]]:
    """Group the classes by arm and module; each group runs in one JVM."""
    batches: dict[tuple[str, Module], list[str]] = {}
    places = {name: (PATCHED, module) for module, names in changed.items() for name in names}
    for module in (module for module in runner.plan.modules if module.tests):
        with zipfile.ZipFile(runner.space.store.test_jars(runner.plan, module)[0]) as archive:
            entries = set(archive.namelist())
        for name in classes:
            if f"{name.replace('.', '/')}.class" in entries:
                places.setdefault(name, (published_arm, module.name))
    for name in dict.fromkeys(classes):
        if name not in places:
            raise RackgateError(f"{name}: no such test class in the published tests or in the series")
        arm, module_name = places[name]
        batches.setdefault((arm, runner.plan.module(module_name)), []).append(name)
    return batches


def summarise_results(results: Sequence[ClassResult], reports: Path, seconds: float) -> KafkaTestRun:
    """Return the sums of the classes' results."""
    cases = [case for result in results for case in result.cases]
    failures = tuple(f"{case.name}: {case.message}" for case in cases if case.bad)
    skipped = sum(case.status == SKIPPED for case in cases)
    error = "; ".join(f"{result.name}: {result.error}" for result in results if result.error)
    return KafkaTestRun(len(cases), len(failures), skipped, failures, reports, seconds, error)
