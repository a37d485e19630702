"""Runner of mutants: the patched tree, its tests compiled once, a resident compiler, and one JVM for each test run."""

from __future__ import annotations

import base64
import filecmp
import os
import re
import select
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run, supervised
from pyhooks.patchset import class_file, git, maven, series, source_tree
from pyhooks.patchset.compilation import Compiler, Sources, read_jar
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.overlay import nest
from pyhooks.patchset.recipe import Module, Recipe
from pyhooks.patchset.workspace import Workspace, home
from pyhooks.verify.changed_tests import is_code, test_files
from pyhooks.verify.mutants import Mutant

JAVA = paths.REPO / "pyhooks" / "jvm" / "java"
COMPILE_TIMEOUT_S = 300.0
_ARG_LINE = re.compile(r"<argLine>(.*?)</argLine>", re.DOTALL)
# Surefire's JVM options that the code under test needs. Garbage collector and JIT are chosen for short runs instead.
_KEPT_OPTION = re.compile(r"--add-opens=\S+|-Xss\S+|-Xmx\S+|-XX:\+EnableDynamicAgentLoading")
_SHORT_RUN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SCALA_LANGUAGE = (
    "-nowarn", "-encoding", "utf8", "-language:postfixOps", "-language:implicitConversions", "-language:existentials",
)  # fmt: skip


class NotCompiledError(RackgateError):
    """Error of a mutant that no test can judge: it does not compile, or does not fit the classes that use it."""


@dataclass(frozen=True)
class FinishedTest:
    """One finished test.

    Attributes:
        status: ``passed``, ``failed``, ``broken`` (not caused by the code under test), ``aborted``, ``skipped``.
        place: ``class#method``, or empty.
        message: of the exception, or empty.
    """

    status: str
    id: str
    place: str
    message: str


@dataclass(frozen=True)
class JvmRun:
    """Result of one test JVM; ``fault`` is why the run did not complete, or empty."""

    lines: tuple[FinishedTest, ...]
    fault: str = ""


class CompileServer:
    """A resident javac and scalac; see ``CompileServer.java``.

    Args:
        hidden: folders that are removed from the paths in error messages.
    """

    def __init__(self, process: subprocess.Popen[str], work: Path, hidden: Sequence[Path] = ()) -> None:
        self._process = process
        self._hidden = hidden
        self._work = work
        self._count = 0

    def compile(self, tool: str, arguments: Sequence[str | Path]) -> None:
        """Run ``javac`` or ``scalac``.

        Raises:
            NotCompiledError: compilation failed; the message is the first error.
            RackgateError: the compiler's JVM has ended or does not respond.
        """
        self._count += 1
        file = self._work / f"compile-{self._count}.args"
        file.write_text("".join(f"{argument}\n" for argument in arguments), encoding="utf-8")
        requests, responses = self._process.stdin, self._process.stdout
        if requests is None or responses is None:
            raise ValueError("the compiler's JVM has no pipes")
        try:
            requests.write(f"{tool}\t{file}\n")
            requests.flush()
        except BrokenPipeError:
            raise RackgateError("the compiler's JVM has ended; run the command again") from None
        ready, _, _ = select.select([responses], [], [], COMPILE_TIMEOUT_S)
        response = responses.readline() if ready else ""
        if not response:
            raise RackgateError(f"{tool} did not respond within {COMPILE_TIMEOUT_S:.0f} s; run the command again")
        state, _, encoded = response.strip().partition("\t")
        if state != "ok":
            output = base64.b64decode(encoded).decode("utf-8", errors="replace")
            for folder in self._hidden:
                output = output.replace(f"{folder}/", "")
            first = next((line for line in output.splitlines() if "error:" in line), output.strip().split("\n")[0])
            raise NotCompiledError(f"{tool}: {first}", detail=output)

    def compile_sources(self, sources: Sequence[Path], *, release: int, classpath: str, target: Path) -> None:
        """Compile Scala and Java sources to ``target``, for a Java release.

        Scala is compiled first, as in the build: scalac can read Java sources, but javac needs the Scala classes.

        Raises:
            NotCompiledError: compilation failed; the message is the first error.
            RackgateError: the compiler's JVM has ended or does not respond.
        """
        scala, java = ([file for file in sources if file.suffix == suffix] for suffix in (".scala", ".java"))
        options: list[str | Path] = [str(release), "-cp", classpath, "-d", target]
        if scala:
            self.compile("scalac", [*_SCALA_LANGUAGE, "-release", *options, *scala, *java])
        if java:
            self.compile("javac", ["-nowarn", "-g", "-proc:none", "--release", *options, *java])


@dataclass(frozen=True)
class MutantRunner:
    """Inputs and folders that all mutants share.

    Attributes:
        tests: compiled test classes of the series.
        helpers: the compiled test runner and compile server.
    """

    plan: Recipe
    space: Workspace
    distribution: Distribution
    tree: Path
    tests: Path
    helpers: Path
    scala: tuple[Path, ...]
    work: Path

    @property
    def main_path(self) -> list[Path]:
        """The overlay jars, then the published jars."""
        return [jar for part in ("overlay", "libs") for jar in sorted((self.distribution.root / part).glob("*.jar"))]

    @contextmanager
    def compiler(self) -> Iterator[CompileServer]:
        """Start the resident compiler; kill it at the end."""
        command: list[str | Path] = [
            maven.java_home() / "bin" / "java", "-Xss4m", "-Xmx2g", "-XX:+UseSerialGC",
            "-cp", _joined([self.helpers, *self.scala]), "rackgate.CompileServer",
        ]  # fmt: skip
        log = self.work / "compiler.log"
        pipe = subprocess.PIPE
        with (
            log.open("w", encoding="utf-8") as errors,
            supervised(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
        ):
            yield CompileServer(process, self.work, hidden=(self.tree, self.work))

    def compile_tests(self, compiler: CompileServer, files: Sequence[Path], target: Path) -> None:
        """Compile test sources of the series against the patched classes and the published tests."""
        target.mkdir(parents=True, exist_ok=True)
        path = _joined([target, *self.main_path, *self.space.store.test_jars(self.plan), *self._running()])
        compiler.compile_sources(files, release=17, classpath=path, target=target)

    def compile_mutant(self, compiler: CompileServer, mutant: Mutant, folder: Path) -> Path:
        """Compile the mutated file and those in ``recompile`` against the patched classes; return the output folder.

        Classes that depend on the mutated ones are not compiled again. This is correct only if the part that they were
        compiled against is unchanged, which is checked.

        Raises:
            NotCompiledError: the old text is not in the file exactly once, the mutant does not compile or changes no
                message class, or other classes would have to be compiled again.
            RackgateError: the file does not exist, or a JSON file is not a message definition of its module.
        """
        target = folder / "classes"
        target.mkdir(parents=True)
        file = self.tree / mutant.file
        if not file.is_file():
            raise RackgateError(f"mutant {mutant.name}: {mutant.file} is not in the patched tree")
        module = _main_module(self.plan, mutant.file)
        try:
            text = mutant.apply(file.read_text(encoding="utf-8"))
        except RackgateError as error:
            # A change of the series may make one mutant obsolete; the others must still run.
            raise NotCompiledError(str(error)) from None
        if mutant.file.endswith(".json"):
            sources = self._generated(mutant, module, text, folder)
        else:
            changed = folder / "sources" / file.name
            changed.parent.mkdir(parents=True)
            changed.write_text(text, encoding="utf-8")
            sources = [changed]
        sources += [self.tree / other for other in mutant.recompile]
        path = _joined([target, *self.main_path])
        compiler.compile_sources(sources, release=module.release, classpath=path, target=target)
        if not mutant.recompile:
            self._check_surface(mutant, module, target)
        return target

    def run_tests(
        self, class_name: str, methods: Sequence[str], mutated: Path | None, *, log: Path, timeout_s: float
    ) -> JvmRun:
        """Run a test class, or the given methods of it, in a new JVM whose output goes to ``log``.

        With a folder of mutated classes, these precede all others, and the run ends at the first failure.
        """
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        lines = folder / "lines"
        tests = self.space.store.test_jars(self.plan, _module_of_test(self.plan, self.tree, class_name))
        first = [*filter(None, [mutated]), self.tests, *tests[:1]]
        path = [*first, *self.main_path, *tests[1:], *self._running(), self.helpers]
        command: list[str | Path] = [
            maven.java_home() / "bin" / "java", *_test_options(), *_SHORT_RUN, f"-Djava.io.tmpdir={folder / 'tmp'}",
            "-cp", _joined(path), "rackgate.TestRunner", lines, "first" if mutated else "all", class_name, *methods,
        ]  # fmt: skip
        log.parent.mkdir(parents=True, exist_ok=True)
        fault = ""
        try:
            run(command, task=f"run {class_name}", cwd=folder, log=log, timeout_s=timeout_s)
        except RackgateError as error:
            fault = str(error)
        return parse_run(lines.read_text(encoding="utf-8") if lines.exists() else "", fault)

    def _generated(self, mutant: Mutant, module: Module, text: str, folder: Path) -> list[Path]:
        """Generate message classes from a mutated definition; return the sources that differ."""
        messages = module.messages
        definitions = f"{module.path}/src/main/resources/{messages.path if messages else '?'}/"
        if not mutant.file.startswith(definitions):
            raise RackgateError(f"mutant {mutant.name}: {mutant.file} is not a message definition of {module.name}")
        tree = folder / "tree"
        shutil.copytree(self.tree / definitions, tree / definitions)
        (tree / mutant.file).write_text(text, encoding="utf-8")
        builder = Compiler(self.plan, self.space.store, self.space.cache)
        before = self.work / "patched-messages" / module.name
        if not before.exists():
            made = builder.generate_messages(Sources("patched", self.tree, ""), module, self.work / "patched")
            before.parent.mkdir(parents=True, exist_ok=True)
            made.replace(before)
        after = builder.generate_messages(Sources(mutant.name, tree, ""), module, folder)
        changed = [
            path for path in sorted(after.rglob("*.java"))
            if not (old := before / path.relative_to(after)).exists() or not filecmp.cmp(old, path, shallow=False)
        ]  # fmt: skip
        if not changed:
            raise NotCompiledError(f"mutant {mutant.name} changes no message class")
        return changed

    def _check_surface(self, mutant: Mutant, module: Module, target: Path) -> None:
        overlay = self.distribution.root / "overlay" / f"{module.name}-rackgate.jar"
        stock = self.distribution.root / "libs" / self.plan.find(module.artifact, "runtime").file_name
        patched = read_jar(overlay) if overlay.exists() else {}
        changed_nests = {nest(name) for name in patched if name.endswith(".class")}
        published: dict[str, bytes] = {}
        for path in sorted(target.rglob("*.class")):
            name = str(path.relative_to(target))
            if nest(name) not in changed_nests and not published:
                published = read_jar(stock)
            before = (patched if nest(name) in changed_nests else published).get(name)
            if before is None:
                continue  # a new nested class: only its own nest, which is compiled here, can refer to it
            old, new = class_file.surface(before), class_file.surface(path.read_bytes())
            if old != new:
                raise NotCompiledError(
                    f"mutant {mutant.name} changes what other classes were compiled against "
                    f"({name.removesuffix('.class')}: {min(old ^ new)}); list the files that use it under `recompile`"
                )

    def _running(self) -> list[Path]:
        return [self.space.store.path(artifact) for artifact in self.plan.with_role("testrun")]


def parse_run(text: str, fault: str = "") -> JvmRun:
    """Parse the output of ``TestRunner.java``; ``fault`` is why the JVM failed, if known."""
    lines = []
    ended = False
    for line in text.splitlines():
        command = line.split("\t")
        if command == ["end"]:
            ended = True
        elif len(command) >= 3:
            lines.append(FinishedTest(command[0], command[1], command[2], command[3] if len(command) > 3 else ""))
    return JvmRun(tuple(lines), "" if ended else fault or "the JVM ended before its tests did")


def prepare(
    plan: Recipe, space: Workspace, patches: Sequence[series.Patch], runner: MutantRunner, sources: Path
) -> None:
    """Fill ``runner.tree``, ``runner.helpers`` and ``runner.tests``, which must not exist.

    ``sources`` is the git repository of the published sources.
    """
    source_tree.clone(sources, runner.tree)
    head = series.apply(runner.tree, patches)
    runner.helpers.mkdir(parents=True)
    launcher = _joined(space.store.path(artifact) for artifact in plan.with_role("testrun"))
    run(
        [
            maven.java_home() / "bin" / "javac", "-nowarn", "--release", "17", "-cp", launcher, "-d", runner.helpers,
            *sorted(JAVA.glob("*.java")),
        ],
        task="compile the test runner",
    )  # fmt: skip
    code: list[Path] = []
    runner.tests.mkdir(parents=True)
    for module, kind, name in test_files(plan, runner.tree, git.changed_files(runner.tree, source_tree.BASELINE, head)):
        source = runner.tree / module.path / "src/test" / kind / name
        if is_code(source):
            code.append(source)
        else:
            (runner.tests / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, runner.tests / name)
    with runner.compiler() as compiler:
        runner.compile_tests(compiler, code, runner.tests)


def _main_module(plan: Recipe, file: str) -> Module:
    module = home(plan, file)
    if module is None:
        raise RackgateError(f"{file} is in src/main of no [[module]] in {plan.path.name}")
    return module


def _module_of_test(plan: Recipe, tree: Path, class_name: str) -> Module | None:
    """Return the module that contains the test class's source, or None."""
    place = class_name.split("$")[0].replace(".", "/")
    for module in plan.modules:
        for kind in ("java", "scala", "scala/unit", "scala/integration"):
            for suffix in (".java", ".scala"):
                if (tree / module.path / "src/test" / kind / f"{place}{suffix}").exists():
                    return module
    return None


def _test_options() -> list[str]:
    template = (maven.TEMPLATES / "jvmtest.xml.j2").read_text(encoding="utf-8")
    match = _ARG_LINE.search(template)
    if not match:
        raise RackgateError("jvmtest.xml.j2 has no <argLine>; the options of test runs come from there")
    return _KEPT_OPTION.findall(match[1])


def _joined(path: Iterable[Path]) -> str:
    return os.pathsep.join(str(entry) for entry in path)
