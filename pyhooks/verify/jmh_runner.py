"""JMH runner: the JVMs to compare run at the same time on one core and alternate after each iteration."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import try_lock
from pyhooks.core.process import DIES_WITH_PARENT, end_until_done, exits_on_sigterm, run
from pyhooks.patchset import maven
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify.jmh_plan import OVERLAY, Effort, JmhCell
from pyhooks.verify.jmh_statistics import Fork

SOURCES = maven.JMH / "java"
# - Serial GC: it works on its own threads, not on the measured one.
# - Compilation in the foreground by C2 alone, with counters that do not decay: otherwise inlining, and so allocation,
#   depends on the load of the machine and on how long a JVM waits for its turn.
# - A young generation large enough for a benchmark's setup: a collection during setup could order objects differently
#   on the two sides.
# - Heap touched at start: otherwise the first pass through the young generation causes page faults, which are CPU time
#   of the thread. They made an update of the high watermark take 450 ns instead of 80 for up to 28 of 30 iterations.
STEADY = (
    "-Xms2g -Xmx2g -Xmn1600m -XX:+AlwaysPreTouch -XX:MetaspaceSize=256m "
    "-XX:+UseSerialGC -Xbatch -XX:-TieredCompilation -XX:-UseCounterDecay"
)
_MEASURED = 2 / 3  # minimum fraction of a fork's iterations with a complete slice
# Long enough for all compilation to happen in the first iteration: inlining depends on what was compiled before.
WARM_ITERATION_S = 1.0
_HEAT_TIMEOUT_S = 900.0
_SCRATCH = "rackgate-jmh-"
_SHM = Path("/dev/shm")  # noqa: S108 - for the log that is appended to; a folder of our own in it
_GO = b"\x01"


class Turns:
    """Ring of pipes, one for each JVM, through which a token passes the turn; see ``Turn.java``."""

    def __init__(self, folder: Path, count: int) -> None:
        self._pipes = [folder / f"turn-{place}" for place in range(count)]
        self._open: list[int] = []

    def __enter__(self) -> Turns:
        for pipe in self._pipes:
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
            # Open for reading and writing, so that a turn passed before the next JVM has started is not lost.
            self._open.append(os.open(pipe, os.O_RDWR | os.O_CLOEXEC))
        os.write(self._open[0], _GO)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            os.close(descriptor)

    def options(self, place: int) -> str:
        """Return the JVM options for the JVM in this place of the ring."""
        own, following = self._pipes[place], self._pipes[(place + 1) % len(self._pipes)]
        return f"-Drackgate.turn.own={own} -Drackgate.turn.next={following}"


@dataclass(frozen=True)
class JmhRunner:
    """Compiled benchmarks, ready to run.

    Attributes:
        scratch: folder in memory, for pipes and the logs to which benchmarks append.
    """

    classes: Path
    harness: tuple[Path, ...]
    distribution: Distribution
    work: Path
    scratch: Path
    out: Path

    def heat(self, cells: Sequence[JmhCell], number: int, effort: Effort) -> tuple[Fork, ...]:
        """Run one fork of each cell in round ``number``, all at the same time, with alternating iterations.

        Raises:
            RackgateError: a fork failed; its log is kept, and the other forks are killed.
        """
        jobs: dict[Future[Fork], int] = {}
        with Turns(self.scratch, len(cells)) as turns, ThreadPoolExecutor(len(cells)) as pool:
            try:
                for place, cell in enumerate(cells):
                    jobs[pool.submit(self._fork, cell, number, effort, place, turns.options(place))] = place
                for job in as_completed(jobs):
                    if error := job.exception():
                        # Report the first failure: the other JVMs wait for a turn that never comes.
                        raise self._with_log(error, cells[jobs[job]], self._log(jobs[job]))
                return tuple(job.result() for job in jobs)
            except BaseException:
                end_until_done(self.work, jobs)
                raise

    def _log(self, place: int) -> Path:
        return self.work / f"jmh-{place}.log"

    def _with_log(self, error: BaseException, cell: JmhCell, log: Path) -> BaseException:
        """Copy the log to ``out`` and return an error that names the copy."""
        if not isinstance(error, RackgateError) or not log.exists():
            return error
        kept = self.out / "failed.log"
        shutil.copyfile(log, kept)
        return RackgateError(f"benchmark {cell.name} failed, see {kept}", detail=error.detail)

    def _fork(self, cell: JmhCell, number: int, effort: Effort, place: int, turn: str) -> Fork:
        overlay = cell.side == OVERLAY
        classpath = ":".join([str(self.classes), *map(str, self.harness), self.distribution.classpath(overlay)])
        result = self.work / f"result-{place}.json"
        warm = max(1, round(effort.warm_s / WARM_ITERATION_S))
        options = f"{STEADY} -Drackgate.overlay={str(overlay).lower()} {turn}"
        options += f" -Drackgate.slice.calls={cell.slice_calls}"
        command = ["java", "-Xmx128m", "-Djmh.ignoreLock=true", "-cp", classpath, "org.openjdk.jmh.Main"]
        command += [f"rackgate.jmh.{cell.benchmark}$", "-f", "1", "-foe", "true", "-prof", "gc"]
        command += ["-jvm", str(self.work / "java")]
        command += ["-wi", str(warm), "-w", f"{WARM_ITERATION_S * 1000:.0f}ms", "-i", str(effort.iterations)]
        command += ["-r", f"{effort.iteration_s * 1000:.0f}ms", "-rf", "json", "-rff", str(result)]
        command += ["-jvmArgs", f"{options} -Djava.io.tmpdir={self.scratch}"]
        for name, value in cell.parameters:
            command += ["-p", f"{name}={value}"]
        result.unlink(missing_ok=True)
        run(command, task=f"benchmark {cell.name}", cwd=self.work, log=self._log(place), timeout_s=_HEAT_TIMEOUT_S)
        return read(result, cell, number)


def read(result: Path, cell: JmhCell, number: int) -> Fork:
    """Parse JMH's result of one fork; its CPU time is that of the fastest slice, beside that of the median slice.

    Disturbances only make slices slower and can affect nearly all of a fork, and so every quantile of its iterations.

    Raises:
        RackgateError: the file is not in the format of JMH 1.37, or too few iterations have a complete slice.
    """
    try:
        (entry,) = json.loads(result.read_text(encoding="utf-8"))
        second = entry["secondaryMetrics"]
        (fastest,) = second["fastestSliceNs"]["rawData"]
        (medians,) = second["medianSliceNs"]["rawData"]
        # Rolling a log file can take a whole iteration, which then has no complete slice.
        each = [ns / (cell.slice_calls * cell.operations) for ns in fastest if ns]
        if len(each) < _MEASURED * len(fastest):
            raise ValueError(
                f"{len(each)} of {len(fastest)} iterations have a complete slice of {cell.slice_calls} calls"
            )
        (bytes_,) = second["gc.alloc.rate.norm"]["rawData"]
        return Fork(
            cell=cell.name,
            round_=number,
            cpu_ns=min(each),
            median_ns=statistics.median(ns / (cell.slice_calls * cell.operations) for ns in medians if ns),
            wall_ns=float(entry["primaryMetric"]["score"]),
            bytes_=statistics.median(bytes_),
            load=os.getloadavg()[0],
            iterations_ns=tuple(each),
        )
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        raise RackgateError(f"benchmark {cell.name}: JMH's result {result} is malformed: {error!r}") from error


@contextmanager
def folders(space: Workspace) -> Iterator[tuple[Path, Path]]:
    """Create a work folder, and a scratch folder in memory if possible, so that no disk affects the measurement."""
    for old in _SHM.glob(f"{_SCRATCH}*"):
        # A folder whose lock is free was left by a killed run.
        if (lock := _locked(old)) is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(lock)
    with exits_on_sigterm(), space.test_work() as work:
        scratch, lock = _scratch(_SHM if os.access(_SHM, os.W_OK) else work)
        try:
            yield work, scratch
        finally:
            # A second SIGTERM must not interrupt the cleanup.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)


def _scratch(where: Path) -> tuple[Path, int]:
    """Return a new folder and its lock; retry if another run deleted the folder before it was locked."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=where))
        lock = _locked(made)
        if lock is not None and made.exists():
            return made, lock
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder until this process ends and return the descriptor, or None if another process has the lock."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # Deleted meanwhile, or of another user.
        return None
    if not try_lock(descriptor):
        os.close(descriptor)
        return None
    return descriptor


def prepare(
    plan: Recipe,
    space: Workspace,
    distribution: Distribution,
    console: Console,
    *,
    work: Path,
    scratch: Path,
    out: Path,
) -> JmhRunner:
    """Compile the benchmarks against the published jars.

    Raises:
        RackgateError: they do not compile.
    """
    started = time.monotonic()
    harness = plan.with_role("jmh")
    with space.lock(console.print):
        space.store.fetch(plan, harness, work)
    jars = tuple(space.store.path(artifact) for artifact in harness)
    classes = work / "classes"
    stock = {path.name: path for path in (distribution.root / "libs").glob("*.jar")}
    pom = maven.render(
        "jmh.xml.j2", work / "pom.xml", recipe=plan, sources=SOURCES, output=classes,
        classpath=[*stock.values(), *(jar for jar in jars if jar.name not in stock)],
    )  # fmt: skip
    space.repository.maven(pom, ["compile"], task="compile the benchmarks", log=work / "compile.log")
    console.print(f"benchmarks compiled: {time.monotonic() - started:.0f} s")
    # JMH starts its forks with this script, so that they end with JMH's process, which ends with this one.
    java = work / "java"
    java.write_text(f'#!/bin/sh\nexec {" ".join(DIES_WITH_PARENT)} java "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    return JmhRunner(classes, jars, distribution, work, scratch, out)
