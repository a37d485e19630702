"""Runner of Kafka's own tests with Maven Surefire, on the overlay or on the published jars.

Test classes come from the published ``-test`` jars. Test sources that the series changes are compiled from the
patched tree and precede them on the class path.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import git, maven, recipe, series, source_tree
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.overlay import nest
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import Selection
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace, home

TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class KafkaTestRun:
    """Result of a test run.

    Attributes:
        tests: number of tests, including skipped ones.
        failed: number of failures and errors.
        skipped: number of skipped tests.
        failures: ``class.method: message`` of each failed test.
        reports: folder with the JUnit XML.
        seconds: duration of the run.
        error: why the run itself failed, or empty.
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
        """Whether at least one test ran and none failed."""
        return self.tests > self.skipped and not self.failed and not self.error

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain JSON."""
        return {**asdict(self), "reports": str(self.reports), "passed": self.passed}


def run_tests(
    distribution: Distribution,
    classes: Sequence[str],
    *,
    stock: bool = False,
    quiet: bool = False,
    reports: Path | None = None,
) -> KafkaTestRun:
    """Run test classes of Kafka.

    Args:
        distribution: the build under test; without ``stock``, it must be of the current series.
        classes: full names, such as ``kafka.cluster.PartitionTest``.
        stock: run without the overlay and without test sources changed by the series.
        quiet: show no progress.
        reports: folder for the JUnit XML, by default ``out/upstream``.

    Raises:
        RackgateError: an unknown class, a test source that does not compile, a build of another series, or a run
            that failed without a failed test.
    """
    started = time.monotonic()
    plan = recipe.load()
    patches = series.load(plan.path.parent, Selection(opt_ins=distribution.opt_ins))
    if not stock and distribution.manifest["patch_hash"] != series.series_hash(patches):
        raise RackgateError("the built overlay is not of the present series; run `rackgate build` first")
    space = Workspace.of(plan)
    target = reports or paths.OUT / "upstream"
    stages = Stages(3, space.root / "timings-test.json", quiet=quiet)
    work = space.test_work()
    try:
        with stages.stage("fetch and verify"), space.lock(stages.say):
            # The sources are needed to compile the test sources that the series changes.
            wanted = [
                *plan.with_role("sources"),
                *plan.with_role("test-sources"),
                *plan.with_role("test"),
                *plan.with_role("testrun"),
                *plan.with_role("runtime"),
            ]
            space.store.fetch(plan, wanted, work)
            sources = space.sources(plan, work)
        with stages.stage("lay out the tests"):
            changed = {} if stock else changed_tests(plan, sources, patches, work)
            test_classes = work / "test-classes"
            test_classes.mkdir(parents=True)
            _unpack(plan, space, classes, changed, test_classes)
        stem = hashlib.sha256(" ".join(sorted(classes)).encode()).hexdigest()[:8]
        raw = work / "reports"
        pom = _write_poms(
            plan, space, distribution, changed, work,
            classes=classes, stock=stock, output=test_classes, reports=raw,
        )  # fmt: skip
        log = target / f"maven-{stem}.log"
        target.mkdir(parents=True, exist_ok=True)
        error = ""
        with stages.stage("compile and run the tests"):
            try:
                space.repository.maven(pom, ["test"], what="Kafka's tests", log=log, timeout_s=TIMEOUT_S)
            except RackgateError as failure:
                if not list(raw.glob("TEST-*.xml")):
                    raise located(failure, work) from None
                error = str(failure)
        stages.remember()
        for file in raw.glob("TEST-*.xml"):
            shutil.copyfile(file, target / file.name)
        outcome = read_reports(raw, target, time.monotonic() - started)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if error and not outcome.failed:
        raise RackgateError(f"Kafka's tests: {error}")
    return outcome


def read_reports(folder: Path, shown: Path, seconds: float) -> KafkaTestRun:
    """Summarize the JUnit XML in ``folder``.

    Args:
        folder: contains ``TEST-*.xml`` files.
        shown: the value of ``KafkaTestRun.reports``.
        seconds: duration of the run.

    Raises:
        RackgateError: no report, or one that can't be parsed.
    """
    tests = failed = skipped = 0
    failures = []
    files = sorted(folder.glob("TEST-*.xml"))
    if not files:
        raise RackgateError(f"Kafka's tests: no test ran; no report in {folder}")
    for file in files:
        try:
            cases = ElementTree.parse(file).getroot().findall("testcase")  # noqa: S314 - written by Surefire just now
        except ElementTree.ParseError as error:
            raise RackgateError(f"{file}: {error}") from error
        for case in cases:
            tests += 1
            skipped += case.find("skipped") is not None
            fault = next((node for kind in ("failure", "error") if (node := case.find(kind)) is not None), None)
            if fault is not None:
                failed += 1
                message = (fault.get("message") or fault.get("type") or "").splitlines()
                failures.append(f"{case.get('classname')}.{case.get('name')}: {message[0] if message else ''}")
    return KafkaTestRun(tests, failed, skipped, tuple(failures), shown, seconds)


def changed_tests(plan: Recipe, sources: Path, patches: tuple[series.Patch, ...], work: Path) -> dict[str, list[Path]]:
    """Copy test sources that the series changes, or whose parents it changes, to ``work/sources``; group by module."""
    tree = work / "tree"
    source_tree.clone(sources, tree)
    head = series.apply(tree, patches)
    changed: dict[str, list[Path]] = {}
    files = [file for file in git.changed_files(tree, source_tree.BASELINE, head) if (tree / file).exists()]
    for file in [*files, *_heirs(tree, files)]:
        module = home(plan, file)
        source = tree / file
        if module is None or not file.startswith(f"{module.path}/src/test/"):
            continue
        kind, _, name = file.removeprefix(f"{module.path}/src/test/").partition("/")
        target = work / "sources" / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        changed.setdefault(module.name, []).append(target)
    return changed


def _heirs(tree: Path, files: Sequence[str]) -> list[str]:
    """Return unchanged test sources that extend a changed abstract test class in the same folder."""
    found: set[str] = set()
    for file in files:
        parent = Path(file)
        if "/src/test/" not in file or not parent.stem.startswith("Abstract") or not is_code(parent):
            continue
        child = re.compile(rf"\bextends\s+{parent.stem}\b")
        for source in (tree / parent).parent.glob(f"*{parent.suffix}"):
            if child.search(source.read_text(encoding="utf-8")):
                found.add(str(source.relative_to(tree)))
    return sorted(found.difference(files))


def _unpack(
    plan: Recipe, space: Workspace, classes: Sequence[str], changed: dict[str, list[Path]], target: Path
) -> None:
    """Unpack the published tests of the modules that have the classes, except classes compiled from changed sources."""
    stale = {nest(f"{_package(file)}/{file.stem}") for files in changed.values() for file in files if is_code(file)}
    found: set[str] = set()
    for module in (m for m in plan.modules if m.tests):
        jar = space.store.path(plan.find(module.artifact, "test"))
        with zipfile.ZipFile(jar) as archive:
            names = set(archive.namelist())
            owned = [name for name in classes if f"{name.replace('.', '/')}.class" in names]
            owned += [name for name in classes if _defines(changed.get(module.name, []), name)]
            if not owned:
                continue
            found.update(owned)
            kept = [n for n in names if not n.endswith("/") and not (n.endswith(".class") and nest(n) in stale)]
            archive.extractall(target, kept)
    missing = sorted(set(classes) - found)
    if missing:
        raise RackgateError(f"{missing[0]}: no such test class in the published tests or in the series")


def located(failure: RackgateError, work: Path) -> RackgateError:
    """Return the failure with paths as in Kafka's repository, relative to the module's folder."""
    words, detail = (text.replace(f"{work}/sources/", "src/test/") for text in (str(failure), failure.detail))
    return RackgateError(words, detail=detail)


def is_code(file: Path) -> bool:
    """Return whether a test file is a source to compile, not a resource."""
    return file.suffix in {".java", ".scala"}


def class_of(source: Path) -> str:
    """Return the full name of the class after which a source file is named."""
    package = _package(source)
    return f"{package}/{source.stem}".strip("/").replace("/", ".")


def _package(file: Path) -> str:
    """Return the package that a source file declares, as a path."""
    for line in file.read_text(encoding="utf-8").splitlines():
        words = line.strip().rstrip(";").split()
        if len(words) == 2 and words[0] == "package":
            return words[1].replace(".", "/")
    return ""


def _defines(files: Sequence[Path], name: str) -> bool:
    return any(is_code(f) and class_of(f) == name for f in files)


def _write_poms(
    plan: Recipe, space: Workspace, distribution: Distribution, changed: dict[str, list[Path]], work: Path, *,
    classes: Sequence[str], stock: bool, output: Path, reports: Path,
) -> Path:  # fmt: skip
    """Render a reactor of up to two modules: one compiles the changed tests, if any; one runs the requested tests."""
    overlay = [] if stock else sorted((distribution.root / "overlay").glob("*.jar"))
    libraries = sorted((distribution.root / "libs").glob("*.jar"))
    # Test jars of all modules, since tests use helpers of other modules. The unpacked classes to run precede them.
    tests = [space.store.path(plan.find(module.artifact, "test")) for module in plan.modules if module.tests]
    running = [(artifact, space.store.path(artifact)) for artifact in plan.with_role("testrun")]
    paths_of = {"run": [*overlay, *libraries, *tests]}
    if any(changed.values()):
        # The Scala plugin does not preserve the order of its class path, so no class may be on it twice.
        paths_of = {"compile": [*merged(plan, distribution, work / "merged"), *tests], **paths_of}
    for name, path in paths_of.items():
        maven.render(
            "jvmtest.xml.j2", work / name / "pom.xml",
            recipe=plan, name=name, classpath=path, running=running, classes=classes, output=output,
            sources=work / "sources", reports=reports,
            scala=any(f.suffix == ".scala" for files in changed.values() for f in files),
        )  # fmt: skip
    return maven.render("reactor.xml.j2", work / "pom.xml", names=list(paths_of))


def merged(plan: Recipe, distribution: Distribution, folder: Path) -> list[Path]:
    """Return the jars of ``libs``; those that the overlay changes are copied to ``folder`` with its files merged in."""
    patched = {
        plan.find(plan.module(jar["module"]).artifact, "runtime").file_name: jar["jar"]
        for jar in distribution.manifest["overlay"]
    }
    jars = []
    for jar in sorted((distribution.root / "libs").glob("*.jar")):
        if jar.name in patched:
            files = {**read_jar(jar), **read_jar(distribution.root / "overlay" / patched[jar.name])}
            write_jar(folder / jar.name, files)
            jars.append(folder / jar.name)
        else:
            jars.append(jar)
    return jars
