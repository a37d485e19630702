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
from functools import partial
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import put_in_place, write_text
from pyhooks.core.process import end_processes_in
from pyhooks.core.repeated_calls import calling_every
from pyhooks.patchset import maven
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Artifact, Module, Recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify.upstream_cases import PATCHED, STOCK, UNLOADABLE, ClassResult, read_class

METHOD_TIMEOUT_S = 900
_CLASS_TIMEOUT_S = 1800.0
_POLL_S = 1.0
# Parallel batches share a module's unpacked classes.
_UNPACKING = threading.Lock()
WORK = "work"  # below a runner's folder; its content is a leftover of a killed run when no run is active
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
    """Crash of a test JVM, and the classes that stopped JUnit, as far as its messages name them."""

    why: str
    unloadable: tuple[str, ...] = ()


Wanted = Mapping[str, Sequence[str]]  # methods to run by class; empty for all of them


@dataclass(frozen=True)
class KafkaTestRunner:
    """Inputs and folders that all batches share.

    Attributes:
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
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))
            with zipfile.ZipFile(self.space.store.test_jars(self.plan, module)[0]) as archive:
                archive.extractall(fresh)
            put_in_place(fresh, target)
        return target

    def classpath(self, arm: str, module: Module) -> list[Path]:
        """Return the class path of an arm's JVM, without the folder of test classes at its front."""
        root = self.distribution.root
        overlay = [] if arm == STOCK else sorted((root / "overlay").glob("*.jar"))
        # The module's own test jar first: each contains a log4j2.yaml, and some tests check what is logged.
        tests = self.space.store.test_jars(self.plan, module)
        last = map(self.space.store.path, self.last)
        return [*overlay, *sorted((root / "libs").glob("*.jar")), *tests, *last]

    @property
    def running(self) -> list[tuple[Artifact, Path]]:
        """The artifacts that run the tests, such as JUnit, with the paths of their jars."""
        return [(artifact, self.space.store.path(artifact)) for artifact in self.plan.with_role("testrun")]


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
    runner: KafkaTestRunner, arm: str, module: Module, wanted: Wanted, report: Callable[[ClassResult], None]
) -> None:
    """Run test classes on an arm, or some of their methods, and report the result of each class.

    If a class kills or blocks the JVM, the remaining classes of the batch are run again, each in its own JVM. A class
    that still has no result is reported with an error. ``report`` is called once for each class, possibly from another
    thread.

    Raises:
        RackgateError: Maven could not run the tests at all, or the run was interrupted.
    """
    left = dict(wanted)
    crash = _batch(runner, arm, module, left, report)
    if left and runner.ended.is_set():
        raise RackgateError(f"{len(left)} classes of {module.name} on {arm} were stopped before they had a result")
    lost = list(left) if len(wanted) == 1 else [name for name in left if name in crash.unloadable]
    for name in lost:
        del left[name]
        report(ClassResult(name, 0.0, (), crash.why or "has no test that could run"))
    if lost and left:
        run_classes(runner, arm, module, left, report)
        return
    for name, methods in left.items():
        run_classes(runner, arm, module, {name: methods}, report)


def _batch(
    runner: KafkaTestRunner,
    arm: str,
    module: Module,
    left: dict[str, Sequence[str]],
    report: Callable[[ClassResult], None],
) -> _Crash:
    """Run one JVM, remove the classes that have a result from ``left``, and return the crash, if any."""
    with scratch(runner.folder) as work:
        (work / "tmp").mkdir()
        raw = work / "reports"
        all_methods = not any(left.values())
        pom = maven.render(
            "upstream.xml.j2", work / "pom.xml",
            recipe=runner.plan, work=work, classes=runner.classes(arm, module), reports=raw,
            classpath=runner.classpath(arm, module), running=runner.running,
            wanted=list(left), methods=[] if all_methods else [_selector(*item) for item in left.items()],
            method_timeout_s=METHOD_TIMEOUT_S,
        )  # fmt: skip
        log = work / "maven.log"
        with _harvest(raw, left, runner.reports / arm if all_methods else None, report):
            try:
                timeout_s = 300.0 + _CLASS_TIMEOUT_S * len(left)
                runner.space.repository.maven(pom, ["test"], task="Kafka's tests", log=log, timeout_s=timeout_s)
                return _Crash("")
            except RackgateError as error:
                text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
                kept = runner.reports / f"maven-{arm}-{module.name}.log"
                write_text(kept, text)
                if not (_CRASH.search(text) or "did not end within" in str(error)):
                    raise RackgateError(str(error).replace(str(log), str(kept)), detail=error.detail) from None
                crash = _CRASH_LINE.search(text)
                return _Crash(crash[0].strip() if crash else str(error), tuple(_UNRESOLVED.findall(text)))


def _selector(name: str, methods: Sequence[str]) -> str:
    path = name.replace(".", "/")
    return f"{path}#{'+'.join(methods)}" if methods else path


@contextmanager
def _harvest(
    raw: Path, left: dict[str, Sequence[str]], keep: Path | None, report: Callable[[ClassResult], None]
) -> Iterator[None]:
    """Report results from ``raw`` while the body runs and at its end; remove their classes from ``left``.

    If the body fails, only classes that are known to be complete are reported.
    """

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
            report(result)

    complete = False
    try:
        with calling_every(_POLL_S, partial(sweep, last=False), "test reports"):
            yield
        complete = True
    finally:
        sweep(last=complete)


def _class_of(file: Path) -> str:
    """Return the top-level class of a Surefire report or output file."""
    return file.stem.removeprefix("TEST-").removesuffix("-output").split("$")[0]


def _keep(raw: Path, name: str, target: Path, *, output: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in (f"TEST-{name}.xml", f"TEST-{name}$*.xml", *([f"{name}-output.txt"] if output else [])):
        for file in raw.glob(pattern):
            shutil.copyfile(file, target / file.name)
