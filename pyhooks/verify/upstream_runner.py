"""Runner of Kafka's test classes: one JVM for each batch, and each class's result as soon as it is available."""

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
from pyhooks.core.files import evaluating, put_in_place, read_object, write_json
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
# Parallel batches share a module's unpacked classes.
_UNPACKING = threading.Lock()
WORK = "work"  # below a bench's folder; its content is a leftover of a killed run when no run is active
# Surefire's messages when the test JVM failed, not Maven.
_CRASH = re.compile(
    r"forked VM terminated|There was a timeout|failed to discover tests|Error occurred in starting fork"
    r"|critical issue during test discovery"
)
# A class that can't be loaded stops JUnit before any test; the message names it.
_UNRESOLVED = re.compile(r"className = '([\w.$]+)'[^\n]* resolution failed")
_CRASH_LINE = re.compile(
    rf"({UNLOADABLE}: \S+|forked VM terminated[^.]*|There was a timeout[^.]*|failed to discover tests)"
)


@dataclass(frozen=True)
class _Crash:
    """Crash of a test JVM.

    Attributes:
        why: the reason in one line, or empty if it did not crash.
        unloadable: the classes that stopped JUnit, as far as its messages name them.
    """

    why: str
    unloadable: tuple[str, ...] = ()


Wanted = Mapping[str, Sequence[str]]  # methods to run by class; empty for all of them


@dataclass(frozen=True)
class KafkaTestRunner:
    """Inputs and folders that all batches share.

    Attributes:
        plan: the recipe.
        space: the workspace.
        distribution: the build under test.
        folder: folder for unpacked and compiled test classes, which are kept between runs.
        reports: folder for the JUnit XML, with a folder for each arm.
        last: artifacts at the end of the class path, which only some classes need.
        ended: set when no further JVM may start; missing results of running JVMs then mean nothing.
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
        """Abbreviated hash of the series, the key for results of its own tests."""
        return str(self.distribution.manifest["patch_hash"])[:16]

    @property
    def patched(self) -> Path:
        """Folder for the series' own test classes, which may change while the overlay does not."""
        return self.folder / f"patched-{self.series}"

    def classes(self, arm: str, module: Module) -> Path:
        """Return the folder with the module's test classes for an arm; unpack published ones if needed."""
        if arm == PATCHED:
            return self.patched
        target = self.folder / "published" / module.name
        with _UNPACKING:
            if target.exists():
                return target
            fresh = Path(tempfile.mkdtemp(dir=self._made(self.folder / "published"), prefix="."))
            with zipfile.ZipFile(self._test_jar(module)) as archive:
                archive.extractall(fresh)
            put_in_place(fresh, target)
        return target

    def classpath(self, arm: str, module: Module) -> list[Path]:
        """Return the class path of an arm's JVM, without the folder of test classes at its front."""
        root = self.distribution.root
        overlay = [] if arm == STOCK else sorted((root / "overlay").glob("*.jar"))
        others = [m for m in self.plan.modules if m.tests and m.name != module.name]
        # The module's own test jar first: each contains a log4j2.yaml, and some tests check what is logged.
        tests = map(self._test_jar, [module, *others])
        last = map(self.space.store.path, self.last)
        return [*overlay, *sorted((root / "libs").glob("*.jar")), *tests, *last]

    @property
    def running(self) -> list[tuple[Artifact, Path]]:
        """The artifacts that run the tests, such as JUnit, with the paths of their jars."""
        return [(artifact, self.space.store.path(artifact)) for artifact in self.plan.with_role("testrun")]

    def _test_jar(self, module: Module) -> Path:
        return self.space.store.path(self.plan.find(module.artifact, "test"))

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def compile_changed(bench: KafkaTestRunner, patches: tuple[series.Patch, ...]) -> dict[str, tuple[str, ...]]:
    """Compile the test sources that a series changes, against its overlay, unless they are compiled already.

    Args:
        bench: the bench with the overlay of the same patches; the classes are written to ``bench.patched``.
        patches: the series.

    Returns:
        By module name, the classes after which the changed sources are named.

    Raises:
        RackgateError: a test source does not compile; the message names file and line as in Kafka's repository.
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
        put_in_place(output, target)
    write_json(listing, answer)
    return {name: tuple(classes) for name, classes in answer.items()}


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Create a temporary folder below ``folder``; at the end, delete it and kill the processes working in it."""
    base = folder / WORK
    base.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=base))
    try:
        yield work
    finally:
        end_processes_in(work)
        shutil.rmtree(work, ignore_errors=True)


def run_classes(
    bench: KafkaTestRunner, arm: str, module: Module, wanted: Wanted, tell: Callable[[ClassResult], None]
) -> None:
    """Run test classes, or some of their methods, and report the result of each class.

    If a class kills or blocks the JVM, the remaining classes of the batch are run again, each in its own JVM. A class
    that still has no result is reported with an error.

    Args:
        bench: the bench.
        arm: ``stock``, ``overlay`` or ``patched``.
        module: the module of the classes.
        wanted: methods to run by class; no methods means all.
        tell: called once for each class with its result, possibly from another thread.

    Raises:
        RackgateError: Maven could not run the tests at all, or the run was interrupted.
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
    bench: KafkaTestRunner,
    arm: str,
    module: Module,
    left: dict[str, Sequence[str]],
    tell: Callable[[ClassResult], None],
) -> _Crash:
    """Run one JVM, remove the classes that have a result from ``left``, and return the crash, if any."""
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
    """Report results from ``raw`` while the body runs and at its end; remove their classes from ``left``.

    If the body fails, only classes that are known to be complete are reported.
    """
    done = threading.Event()

    def sweep(last: bool) -> None:
        reports = [(_class_of(file), file.stat().st_mtime_ns) for file in raw.glob("TEST-*.xml")]
        written = [*reports, *((_class_of(file), file.stat().st_mtime_ns) for file in raw.glob("*-output.txt"))]
        for name in list(left):
            own = [at for of, at in reports if of == name]
            # Until another class writes a file, this report may be incomplete, or a nested class's report may follow.
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
    """Return the top-level class of a Surefire report or output file."""
    return file.stem.removeprefix("TEST-").removesuffix("-output").split("$")[0]


def _keep(raw: Path, name: str, target: Path, *, output: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in (f"TEST-{name}.xml", f"TEST-{name}$*.xml", *([f"{name}-output.txt"] if output else [])):
        for file in raw.glob(pattern):
            shutil.copyfile(file, target / file.name)
