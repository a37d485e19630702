"""``rackgate patch mutate``: mutation tests, which remove one piece of the series at a time and require a failed test.

A mutant is *killed* only if a test that passes without it fails with it. It is *unknown* if the tests can't judge it:
it does not compile, its classes do not fit the others, the JVM ended early, or a test did not run.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, put_in_place, read_object, write_json
from pyhooks.core.locks import hold_lock
from pyhooks.patchset import builder, compilation, maven, recipe, series
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import DEFAULT, Patch, Selection
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutant_runner
from pyhooks.verify.mutant_runner import CompileServer, JvmRun, MutantRunner, NotCompiledError
from pyhooks.verify.mutants import Mutant, Selector, choose, load

LIST = "mutants.toml"
# Increase it when stored results of earlier versions are no longer valid.
FORMAT = 1
_BASE_TIMEOUT_S = 900.0
_LEAST_TIMEOUT_S = 180.0
# A test with a mutant may wait in vain for a condition. It may take this many times its duration without the mutant.
_SLOWER = 6.0
STATUSES = KILLED, SURVIVED, UNKNOWN = "killed", "survived", "unknown"
NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Baseline:
    """Baseline: the results of a selector's tests without a mutant.

    Attributes:
        passed: unique ids of the tests that passed.
        fault: why they can't judge a mutant, or empty.
        seconds: duration of the JVM that ran them, possibly with other tests of the class.
    """

    selector: str
    passed: tuple[str, ...]
    fault: str
    seconds: float


@dataclass(frozen=True)
class MutantVerdict:
    """Verdict on one mutant.

    Attributes:
        by: ``class#method`` of the failed test, or empty.
        message: message of the failed test, or the reason for another status.
        key: hash of all inputs, see ``Mutant.key``.
    """

    name: str
    status: str
    by: str
    message: str
    seconds: float
    key: str


@dataclass(frozen=True)
class MutationSummary:
    """Summary of all verdicts; ``reused`` is the number of selected mutants with a stored verdict."""

    verdicts: tuple[MutantVerdict, ...]
    chosen: tuple[str, ...]
    reused: int
    file: Path
    seconds: float

    def count(self, status: str) -> int:
        """Count the selected mutants with this status."""
        return sum(v.status == status for v in self.verdicts if v.name in self.chosen)

    @property
    def passed(self) -> bool:
        """Whether every selected mutant was killed, and at least one was selected."""
        return self.count(KILLED) == len(self.chosen) > 0


class MutantTester(Protocol):
    """Interface that compiles mutants and runs tests: ``JvmMutantTester``, or a fake in tests."""

    def compile(self, mutant: Mutant) -> Path:
        """Compile a mutant; return the folder of its classes."""

    def run(self, class_name: str, methods: Sequence[str], mutated: Path | None, timeout_s: float) -> JvmRun:
        """Run methods of a test class, or all of them; with a mutant, stop at the first failure."""


@dataclass(frozen=True)
class JvmMutantTester:
    """``MutantTester`` that compiles and runs on a bench.

    Attributes:
        logs: folder for the output of each class's last test run.
    """

    bench: MutantRunner
    compiler: CompileServer
    logs: Path

    def compile(self, mutant: Mutant) -> Path:
        """Compile a mutant in a folder that is cleared before the next one."""
        shutil.rmtree(self.bench.work / "mutant", ignore_errors=True)
        return self.bench.compile_mutant(self.compiler, mutant, self.bench.work / "mutant")

    def run(self, class_name: str, methods: Sequence[str], mutated: Path | None, timeout_s: float) -> JvmRun:
        """Run tests in a new JVM."""
        log = self.logs / f"{class_name}.log"
        return self.bench.run_tests(class_name, methods, mutated, log=log, timeout_s=timeout_s)


def listed() -> tuple[Mutant, ...]:
    """Return the mutants listed in ``patch/``.

    Raises:
        RackgateError: the list is missing or invalid.
    """
    plan = recipe.load()
    return load(plan.path.parent / LIST, plan)


def mutate(
    distribution: Distribution, only: Iterable[str] = (), *, fresh: bool = False, quiet: bool = False,
    out: Path | None = None,
) -> MutationSummary:  # fmt: skip
    """Run the selected mutants that have no stored verdict.

    A mutant of opt-in fixes is run on a build with these fixes, which is built if needed.

    Raises:
        RackgateError: the list is invalid, the build is of another series, or tests do not compile.
    """
    started = time.monotonic()
    plan = recipe.load()
    every_patch = series.load_all(plan.path.parent)
    series.check_build(distribution.manifest, DEFAULT.choose(every_patch))
    everything = load(plan.path.parent / LIST, plan)
    chosen = choose(everything, only)
    target = out or paths.OUT / "mutate"
    patches = {
        names: Selection(names).choose(every_patch) for names in {frozenset[str](), *(m.opt_ins for m in everything)}
    }
    contexts = {names: _context(plan, some) for names, some in patches.items()}
    space = Workspace.of(plan)
    taken = f"another run tests mutants in {target}; wait for it or stop it"
    with hold_lock(target / "lock", taken=taken):
        results = MutantResults(target, everything, contexts, fresh=fresh)
        todo = [mutant for mutant in chosen if not results.known(mutant)]
        wanted = {mutant.opt_ins for mutant in todo}
        built = {
            names: builder.build(selection=Selection(names), quiet=quiet).distribution if names else distribution
            for names in _sorted(wanted)
        }
        stages = Stages(3 * len(wanted), space.root / "timings-mutate.json", quiet=quiet)

        def prepare(names: frozenset[str], work: Path) -> MutantRunner:
            return _prepare(plan, patches[names], space, built[names], contexts, work, stages)

        _try_all(todo, results, stages, prepare, space)
    names = tuple(mutant.name for mutant in chosen)
    return MutationSummary(results.verdicts(), names, len(chosen) - len(todo), results.file, time.monotonic() - started)


def _sorted(groups: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Return the distinct sets of opt-in fixes in a fixed order, the empty set first."""
    return sorted(set(groups), key=sorted)


def _try_all(
    todo: Sequence[Mutant],
    results: MutantResults,
    stages: Stages,
    prepare: Callable[[frozenset[str], Path], MutantRunner],
    space: Workspace,
) -> None:
    for names in _sorted(mutant.opt_ins for mutant in todo):
        some = [mutant for mutant in todo if mutant.opt_ins == names]
        with space.test_work() as work:
            with stages.stage(" ".join(["prepare", *sorted(names)])):
                runner = prepare(names, work)
            with runner.compiler() as compiler:
                _run(some, JvmMutantTester(runner, compiler, results.file.parent / "logs"), results, stages)
        stages.remember()
    results.save()


def _run(todo: Sequence[Mutant], tester: MutantTester, results: MutantResults, stages: Stages) -> None:
    """Run mutants of one build."""
    context = results.contexts[todo[0].opt_ins]
    bases = results.bases[context]
    with stages.stage("run the tests without a mutant") as show:
        for class_name, methods in missing(todo, bases):
            show(class_name.rpartition(".")[2])
            results.add_bases(context, run_base(tester, class_name, methods))
    with stages.stage(f"{len(todo)} mutants") as show:
        began = time.monotonic()
        for done, mutant in enumerate(todo):
            left_s = (time.monotonic() - began) / done * (len(todo) - done) if done else 0.0
            estimate = f", about {left_s:.0f} s left" if done else ""
            show(f"{done + 1} of {len(todo)}, {mutant.name}{estimate}")
            verdict = judge(tester, mutant, bases, mutant.key(context))
            results.add(verdict)
            line = f"  {done + 1}/{len(todo)} {verdict.status} {verdict.name} ({verdict.seconds:.1f} s): "
            ending = verdict.by or verdict.message
            stages.print_line(f"{line}{ending}{estimate}")


def missing(mutants: Iterable[Mutant], bases: Mapping[str, Baseline]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the test classes without a baseline, each with its methods; an empty name stands for the whole class."""
    wanted: dict[str, list[str]] = {}
    for test in (test for mutant in mutants for test in mutant.tests):
        if str(test) not in bases and test.method not in wanted.setdefault(test.class_name, []):
            wanted[test.class_name].append(test.method)
    return [(name, tuple(methods)) for name, methods in sorted(wanted.items()) if methods]


def run_base(tester: MutantTester, class_name: str, methods: Sequence[str]) -> list[Baseline]:
    """Run a class's tests without a mutant in one JVM; return a baseline for each method; an empty name means all."""
    started = time.monotonic()
    done = tester.run(class_name, () if "" in methods else methods, None, _BASE_TIMEOUT_S)
    seconds = time.monotonic() - started
    bases = []
    for method in methods:
        selector = Selector(class_name, method)
        lines = [line for line in done.lines if not method or line.place.endswith(f"#{method}") or not line.place]
        passed = tuple(line.id for line in lines if line.status == "passed")
        bad = next((line for line in lines if line.status in {"failed", "broken"}), None)
        fault = ""
        if bad:
            fault = f"fails without a mutant: {bad.place or bad.id}: {bad.message}"
        elif done.fault:
            fault = f"did not complete without a mutant: {done.fault}"
        elif not passed:
            fault = "no test ran without a mutant"
        bases.append(Baseline(str(selector), passed, fault, seconds))
    return bases


def judge(tester: MutantTester, mutant: Mutant, bases: Mapping[str, Baseline], key: str) -> MutantVerdict:
    """Run one mutant and return the verdict.

    ``bases`` are the baselines of its tests by selector; ``key`` is the hash of all inputs, stored in the verdict.
    """
    started = time.monotonic()
    status, by, message = _judge(tester, mutant, bases)
    return MutantVerdict(mutant.name, status, by, message, round(time.monotonic() - started, 2), key)


def _judge(tester: MutantTester, mutant: Mutant, bases: Mapping[str, Baseline]) -> tuple[str, str, str]:
    for test in mutant.tests:
        if fault := bases[str(test)].fault:
            return UNKNOWN, "", f"{test}: {fault}"
    try:
        classes = tester.compile(mutant)
    except NotCompiledError as error:
        return UNKNOWN, "", str(error)
    doubts = []
    for name in dict.fromkeys(test.class_name for test in mutant.tests):
        selectors = [test for test in mutant.tests if test.class_name == name]
        methods = [] if any(not test.method for test in selectors) else [test.method for test in selectors]
        expected = {id_ for test in selectors for id_ in bases[str(test)].passed}
        usual_s = max(bases[str(test)].seconds for test in selectors)
        done = tester.run(name, methods, classes, max(_LEAST_TIMEOUT_S, _SLOWER * usual_s))
        for line in done.lines:
            if line.status == "failed" and line.id in expected:
                return KILLED, line.place, line.message
        doubts += _doubts(name, done, expected)
    return (UNKNOWN, "", doubts[0]) if doubts else (SURVIVED, "", "all of its tests pass")


def _doubts(name: str, done: JvmRun, expected: set[str]) -> list[str]:
    """Return reasons why a run that did not kill the mutant does not show that all its tests pass."""
    if done.fault:
        return [f"{name}: {done.fault}"]
    other = next((line for line in done.lines if line.status in {"failed", "broken"}), None)
    if other:
        return [f"{name}: {other.place or other.id} does not judge the mutant: {other.message}"]
    left_out = expected - {line.id for line in done.lines if line.status == "passed"}
    return [f"{name}: {len(left_out)} of {len(expected)} tests did not run"] if left_out else []


class MutantResults:
    """Stored results in files, with which an interrupted run is resumed.

    Args:
        folder: folder for ``summary.json`` and ``base.json``; created if missing.
        mutants: the whole list.
        contexts: by set of opt-in fixes, a hash of the inputs that all results with these fixes share.
        fresh: discard earlier results.

    Attributes:
        bases: by context, the baselines by selector.
    """

    def __init__(
        self, folder: Path, mutants: Sequence[Mutant], contexts: Mapping[frozenset[str], str], *, fresh: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "summary.json"
        self.contexts = contexts
        self.bases: dict[str, dict[str, Baseline]] = {context: {} for context in contexts.values()}
        self._base_file = folder / "base.json"
        self._mutants = tuple(mutants)
        self._verdicts: dict[str, MutantVerdict] = {}
        if fresh:
            return
        with evaluating(self._base_file, "results of tests, delete it"):
            kept = _read(self._base_file).get("contexts", {})
            for context, bases in self.bases.items():
                stored = TypeAdapter(list[Baseline]).validate_python(kept.get(context, []))
                bases.update((base.selector, base) for base in stored if not base.fault)
        keys = {mutant.name: self._key(mutant) for mutant in mutants}
        with evaluating(self.file, "verdicts on mutants, delete it"):
            verdicts = TypeAdapter(list[MutantVerdict]).validate_python(_read(self.file).get("mutants", []))
            self._verdicts = {v.name: v for v in verdicts if v.key == keys.get(v.name)}

    def _key(self, mutant: Mutant) -> str:
        return mutant.key(self.contexts[mutant.opt_ins])

    def known(self, mutant: Mutant) -> bool:
        """Return whether there is a verdict other than unknown; unknown mutants are run again."""
        return mutant.name in self._verdicts and self._verdicts[mutant.name].status != UNKNOWN

    def add_bases(self, context: str, bases: Iterable[Baseline]) -> None:
        """Store baselines."""
        self.bases[context].update((base.selector, base) for base in bases)
        tests = {name: [asdict(base) for base in some.values()] for name, some in self.bases.items()}
        write_json(self._base_file, {"contexts": tests})

    def add(self, verdict: MutantVerdict) -> None:
        """Store a verdict."""
        self._verdicts[verdict.name] = verdict
        self.save()

    def verdicts(self) -> tuple[MutantVerdict, ...]:
        """Return one verdict for each mutant of the list; mutants that were not run are unknown."""
        return tuple(
            self._verdicts.get(m.name) or MutantVerdict(m.name, UNKNOWN, "", NOT_RUN, 0.0, self._key(m))
            for m in self._mutants
        )

    def save(self) -> None:
        """Write ``summary.json``."""
        verdicts = self.verdicts()
        texts = {mutant.name: mutant for mutant in self._mutants}
        counts = {status: sum(v.status == status for v in verdicts) for status in STATUSES}
        described = ("what", "stands_for", "file")
        rows = [asdict(v) | {key: getattr(texts[v.name], key) for key in described} for v in verdicts]
        head = {"context": self.contexts[frozenset()], "total": len(rows), **counts}
        write_json(self.file, {**head, "seconds": round(sum(v.seconds for v in verdicts), 1), "mutants": rows})


def _read(file: Path) -> dict[str, Any]:
    """Return the content of a stored file, or nothing if it is unreadable: everything is then run again."""
    try:
        return read_object(file, "it stores verdicts")
    except RackgateError:
        return {}


def _context(plan: Recipe, patches: tuple[Patch, ...]) -> str:
    digest = hashlib.sha256(f"{FORMAT} {series.series_hash(patches)} {maven.javac_version()}\n".encode())
    for file in (plan.path, *sorted(mutant_runner.JAVA.glob("*.java")), maven.TEMPLATES / "jvmtest.xml.j2"):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _prepare(
    plan: Recipe, patches: tuple[Patch, ...], space: Workspace, distribution: Distribution,
    contexts: Mapping[frozenset[str], str], work: Path, stages: Stages,
) -> MutantRunner:  # fmt: skip
    """Create the patched tree and compile its tests, unless an earlier run did.

    Files of other series are deleted; ``contexts`` are those of the current series.
    """
    kept = space.root / "mutate"
    final = kept / contexts[distribution.opt_ins][:16]

    def bench(root: Path) -> MutantRunner:
        return MutantRunner(
            plan=plan, space=space, distribution=distribution, tree=root / "tree", tests=root / "tests",
            helpers=root / "helpers", scala=scala, work=work,
        )  # fmt: skip

    with space.lock(stages.print_line):
        roles = ("sources", "test-sources", "test", "testrun", "runtime", "generator")
        space.store.fetch(plan, plan.with_role(*roles), work)
        scala = compilation.scala_compiler(plan, space.repository, work)
        if not final.exists():
            kept.mkdir(parents=True, exist_ok=True)
            for old in {path.name for path in kept.iterdir()} - {context[:16] for context in contexts.values()}:
                shutil.rmtree(kept / old, ignore_errors=True)
            fresh = Path(tempfile.mkdtemp(dir=work))
            mutant_runner.prepare(plan, space, patches, bench(fresh), space.sources(plan, work))
            put_in_place(fresh, final)
    return bench(final)
