"""Runs Kafka's test classes in batches, one JVM a batch, and hands each class's result over as soon as it is there."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_object, write_json
from pyhooks.core.process import end_processes_in
from pyhooks.patchset import maven, series
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Artifact, Module, Recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import kafka_tests
from pyhooks.verify.upstream_cases import PATCHED, STOCK, UNLOADABLE, ClassResult, read_class

METHOD_TIMEOUT_S = 900
_CLASS_TIMEOUT_S = 1800.0
_POLL_S = 1.0
# one batch unpacks a module's classes, and others that run beside it use them
_UNPACKING = threading.Lock()
WORK = "work"  # below a bench's folder; what is in it when nothing runs there was left by a run that was killed
# What Surefire says when the tests' JVM, and not Maven, came to grief.
_CRASH = re.compile(
    r"forked VM terminated|There was a timeout|failed to discover tests|Error occurred in starting fork"
    r"|critical issue during test discovery"
)
# A class that cannot be loaded stops JUnit before any test; it is named.
_UNRESOLVED = re.compile(r"className = '([\w.$]+)'[^\n]* resolution failed")
_CRASH_LINE = re.compile(
    rf"({UNLOADABLE}: \S+|forked VM terminated[^.]*|There was a timeout[^.]*|failed to discover tests)"
)


@dataclass(frozen=True)
class _Crash:
    """How a JVM of tests came to grief.

    Attributes:
        why: in one line; empty if it did not.
        unloadable: the classes that stopped JUnit, as far as it names them.
    """

    why: str
    unloadable: tuple[str, ...] = ()


Wanted = Mapping[str, Sequence[str]]  # class to the methods to run, none for all


@dataclass(frozen=True)
class Bench:
    """What batches need.

    Attributes:
        plan: the recipe.
        space: where builds lie.
        distribution: the build under test.
        folder: for unpacked and compiled test classes, which are kept.
        reports: gets the JUnit XML, a folder an arm.
        last: artifacts at the end of the class path, which only some classes need.
        ended: set when no further JVM is to begin, and what those that end now come to tells nothing.
    """

    plan: Recipe
    space: Workspace
    distribution: Distribution
    folder: Path
    reports: Path
    last: tuple[Artifact, ...] = ()
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def series(self) -> str:
        """What the series' own tests are kept by."""
        return str(self.distribution.manifest["patch_hash"])[:16]

    @property
    def patched(self) -> Path:
        """The folder for the series' own test classes, which may change while the overlay does not."""
        return self.folder / f"patched-{self.series}"

    def classes(self, arm: str, module: Module) -> Path:
        """The folder with the module's test classes as the arm runs them; published ones are unpacked here."""
        if arm == PATCHED:
            return self.patched
        target = self.folder / "published" / module.name
        with _UNPACKING:
            if target.exists():
                return target
            fresh = Path(tempfile.mkdtemp(dir=self._made(self.folder / "published"), prefix="."))
            with zipfile.ZipFile(self._test_jar(module)) as archive:
                archive.extractall(fresh)
            fresh.replace(target)
        return target

    def classpath(self, arm: str, module: Module) -> list[Path]:
        """What the arm's JVM sees behind the folder of test classes."""
        root = self.distribution.root
        overlay = [] if arm == STOCK else sorted((root / "overlay").glob("*.jar"))
        others = [m for m in self.plan.modules if m.tests and m.name != module.name]
        # The module's own first, since each has a log4j2.yaml and some tests look at what is logged.
        tests = map(self._test_jar, [module, *others])
        last = map(self.space.store.path, self.last)
        return [*overlay, *sorted((root / "libs").glob("*.jar")), *tests, *last]

    @property
    def running(self) -> list[tuple[Artifact, Path]]:
        """What runs the tests, JUnit among it, and where its jars are."""
        return [(artifact, self.space.store.path(artifact)) for artifact in self.plan.with_role("testrun")]

    def _test_jar(self, module: Module) -> Path:
        return self.space.store.path(self.plan.find(module.artifact, "test"))

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def compile_changed(bench: Bench, patches: tuple[series.Patch, ...]) -> dict[str, tuple[str, ...]]:
    """Compiles the test sources that a series changes against its overlay, unless that was done.

    Args:
        bench: of the overlay of the same patches; its folder for the series' classes is filled.
        patches: the series.

    Returns:
        Module name to the classes that the changed sources are named after.

    Raises:
        RackgateError: a test source does not compile; file and line as in Kafka's repository.
    """
    plan, space, target = bench.plan, bench.space, bench.patched
    listing = target.with_suffix(".json")
    if listing.exists() and target.exists():
        found = read_object(listing, "it lists the series' test classes; delete it")
        with evaluating(listing, "a list of test classes, delete it"):
            return {name: tuple(classes) for name, classes in found.items()}
    with scratch(target.parent) as work:
        with space.lock(lambda _: None):
            sources = space.sources(plan, work)
        # Its parts are used, not repeated: which sources changed, and the jars with the overlay put in.
        changed = kafka_tests.changed_tests(plan, sources, patches, work)
        output = work / "classes"
        output.mkdir()
        files = [file for found in changed.values() for file in found]
        if any(map(kafka_tests.is_code, files)):
            tests = [space.store.path(plan.find(m.artifact, "test")) for m in plan.modules if m.tests]
            maven.render(
                "jvmtest.xml.j2", work / "compile" / "pom.xml",
                recipe=plan, name="compile", running=bench.running, output=output,
                classpath=[*kafka_tests.merged(plan, bench.distribution, work / "merged"), *tests],
                classes=(), reports=work, sources=work / "sources",
                scala=any(file.suffix == ".scala" for file in files),
            )  # fmt: skip
            pom = maven.render("reactor.xml.j2", work / "pom.xml", names=["compile"])
            try:
                space.repository.maven(
                    pom, ["test-compile"], what="compile the series' tests", log=work / "compile.log"
                )
            except RackgateError as error:
                raise kafka_tests.located(error, work) from None
        code = {name: [file for file in found if kafka_tests.is_code(file)] for name, found in changed.items()}
        answer = {name: sorted(map(kafka_tests.class_of, found)) for name, found in code.items() if found}
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        output.replace(target)
    write_json(listing, answer)
    return {name: tuple(classes) for name, classes in answer.items()}


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder for temporary files below ``folder``; it goes when the body ends, with any process that works in it."""
    base = folder / WORK
    base.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=base))
    try:
        yield work
    finally:
        end_processes_in(work)
        shutil.rmtree(work, ignore_errors=True)


def run_classes(bench: Bench, arm: str, module: Module, wanted: Wanted, tell: Callable[[ClassResult], None]) -> None:
    """Runs test classes, or some of their methods, and tells each class's result.

    A class that kills or blocks the JVM takes the rest of its batch with it: these are run again, each alone. One
    that then still has no result is told with an error.

    Args:
        bench: what is run on.
        arm: ``stock``, ``overlay`` or ``patched``.
        module: has the classes.
        wanted: the classes, each with the methods to run; no methods means all.
        tell: told each result once, from another thread.

    Raises:
        RackgateError: Maven could not run the tests at all, or all was ended meanwhile.
    """
    left = dict(wanted)
    crash = _batch(bench, arm, module, left, tell)
    if left and bench.ended.is_set():
        raise RackgateError(f"{len(left)} classes of {module.name} on {arm} were ended before they had a result")
    lost = list(left) if len(wanted) == 1 else [name for name in left if name in crash.unloadable]
    for name in lost:
        del left[name]
        tell(ClassResult(name, 0.0, (), crash.why or "has no test that could run"))
    if lost and left:
        run_classes(bench, arm, module, left, tell)
        return
    for name, methods in left.items():
        run_classes(bench, arm, module, {name: methods}, tell)


def _batch(
    bench: Bench, arm: str, module: Module, left: dict[str, Sequence[str]], tell: Callable[[ClassResult], None]
) -> _Crash:
    """Runs one JVM; takes the classes that came to a result out of ``left``; says why it crashed, if it did."""
    with scratch(bench.folder) as work:
        (work / "tmp").mkdir()
        raw = work / "reports"
        whole = not any(left.values())
        pom = maven.render(
            "upstream.xml.j2", work / "pom.xml",
            recipe=bench.plan, work=work, classes=bench.classes(arm, module), reports=raw,
            classpath=bench.classpath(arm, module), running=bench.running,
            wanted=list(left), methods=[] if whole else [_selector(*item) for item in left.items()],
            method_timeout_s=METHOD_TIMEOUT_S,
        )  # fmt: skip
        log = work / "maven.log"
        with _harvest(raw, left, bench.reports / arm if whole else None, tell):
            try:
                timeout_s = 300.0 + _CLASS_TIMEOUT_S * len(left)
                bench.space.repository.maven(pom, ["test"], what="Kafka's tests", log=log, timeout_s=timeout_s)
                return _Crash("")
            except RackgateError as error:
                text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
                if not (_CRASH.search(text) or "did not end within" in str(error)):
                    kept = bench.reports / f"maven-{arm}-{module.name}.log"
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(text, encoding="utf-8")
                    raise RackgateError(str(error).replace(str(log), str(kept)), detail=error.detail) from None
                found = _CRASH_LINE.search(text)
                return _Crash(found[0].strip() if found else str(error), tuple(_UNRESOLVED.findall(text)))


def _selector(name: str, methods: Sequence[str]) -> str:
    path = name.replace(".", "/")
    return f"{path}#{'+'.join(methods)}" if methods else path


@contextmanager
def _harvest(
    raw: Path, left: dict[str, Sequence[str]], keep: Path | None, tell: Callable[[ClassResult], None]
) -> Iterator[None]:
    """While the body runs, and once more after it, takes results out of ``raw`` and the classes out of ``left``.

    If the body is interrupted, the classes that had ended by then are taken.
    """
    done = threading.Event()

    def sweep(last: bool) -> None:
        reports = [(_class_of(file), file.stat().st_mtime_ns) for file in raw.glob("TEST-*.xml")]
        written = [*reports, *((_class_of(file), file.stat().st_mtime_ns) for file in raw.glob("*-output.txt"))]
        for name in list(left):
            own = [at for of, at in reports if of == name]
            # Until another class has written something this may still be written to, and a nested class may follow.
            if not own or not (last or any(at > max(own) for of, at in written if of != name)):
                continue
            result = read_class(name, raw)
            if keep:
                _keep(raw, name, keep, output=any(case.bad for case in result.cases))
            del left[name]
            tell(result)

    def watch() -> None:
        while not done.wait(_POLL_S):
            sweep(last=False)

    watcher = threading.Thread(target=watch, name="test reports", daemon=True)
    watcher.start()
    whole = False
    try:
        yield
        whole = True
    finally:
        done.set()
        watcher.join()
        sweep(last=whole)


def _class_of(file: Path) -> str:
    """The outermost class that a file of Surefire's is of."""
    return file.stem.removeprefix("TEST-").removesuffix("-output").split("$")[0]


def _keep(raw: Path, name: str, target: Path, *, output: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in (f"TEST-{name}.xml", f"TEST-{name}$*.xml", *([f"{name}-output.txt"] if output else [])):
        for file in raw.glob(pattern):
            shutil.copyfile(file, target / file.name)
