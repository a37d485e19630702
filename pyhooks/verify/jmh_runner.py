"""Runs JMH: what is compared runs at the same time on one core, its JVMs an iteration each in turn."""

from __future__ import annotations

import fcntl
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
from pyhooks.core.process import DIES_WITH_PARENT, end_until_done, exits_on_sigterm, run
from pyhooks.patchset import maven
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify.jmh_plan import OVERLAY, Cell, Effort
from pyhooks.verify.jmh_statistics import Fork

SOURCES = maven.JMH / "java"
# Serial: its work is on threads of its own and not in the one whose time is taken. Compiled in the foreground and by
# C2 alone, with counters that do not decay: else what is inlined, and with it what is allocated, depends on how busy
# the machine is, on either side, and on how long a JVM waits for its turn. What a benchmark sets up fits into the young
# generation: a collection while it does so would leave objects in another order on one side than on the other. All of
# the heap is touched beforehand: the first pass through the young generation is one of page faults, which are CPU time
# of the thread, and made an update of the high watermark take 450 ns in place of 80 for up to 28 of 30 iterations.
STEADY = (
    "-Xms2g -Xmx2g -Xmn1600m -XX:+AlwaysPreTouch -XX:MetaspaceSize=256m "
    "-XX:+UseSerialGC -Xbatch -XX:-TieredCompilation -XX:-UseCounterDecay"
)
_MEASURED = 2 / 3  # of a fork's iterations have to have a whole slice
# Long enough that the first has all compiled that is to be: what is inlined depends on what was compiled before.
WARM_ITERATION_S = 1.0
_HEAT_TIMEOUT_S = 900.0
_SCRATCH = "rackgate-jmh-"
_SHM = Path("/dev/shm")  # noqa: S108 - for the log that is appended to; a folder of our own in it
_GO = b"\x01"


class Turns:
    """A ring of pipes, one a JVM, through which a turn goes round; see ``Turn.java``.

    Args:
        folder: where they lie.
        count: of JVMs.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._pipes = [folder / f"turn-{place}" for place in range(count)]
        self._open: list[int] = []

    def __enter__(self) -> Turns:
        for pipe in self._pipes:
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
            # Held open both ways, so that a turn that is passed before the next JVM is there is not lost.
            self._open.append(os.open(pipe, os.O_RDWR | os.O_CLOEXEC))
        os.write(self._open[0], _GO)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            os.close(descriptor)

    def options(self, place: int) -> str:
        """What the JVM in this place is told."""
        own, following = self._pipes[place], self._pipes[(place + 1) % len(self._pipes)]
        return f"-Drackgate.turn.own={own} -Drackgate.turn.next={following}"


@dataclass(frozen=True)
class Bench:
    """Compiled benchmarks that can be run.

    Attributes:
        classes: of the benchmarks, compiled against the published jars.
        harness: JMH's jars.
        distribution: the build that is measured.
        work: folder for results and logs, which goes afterwards.
        scratch: folder in memory, for logs that are appended to and for pipes.
        out: gets the log of a benchmark that failed.
    """

    classes: Path
    harness: tuple[Path, ...]
    distribution: Distribution
    work: Path
    scratch: Path
    out: Path

    def heat(self, cells: Sequence[Cell], number: int, effort: Effort) -> tuple[Fork, ...]:
        """Runs one fork of each cell, all at the same time, one iteration of each in turn.

        Args:
            cells: in the order in which they take turns.
            number: of the round.
            effort: the same for all.

        Raises:
            RackgateError: one did not run, whereupon the others are ended; its log is kept.
        """
        jobs: dict[Future[Fork], int] = {}
        with Turns(self.scratch, len(cells)) as turns, ThreadPoolExecutor(len(cells)) as pool:
            try:
                for place, cell in enumerate(cells):
                    jobs[pool.submit(self._fork, cell, number, effort, place, turns.options(place))] = place
                for job in as_completed(jobs):
                    if error := job.exception():
                        # the first that failed: the others wait for a turn that never comes
                        raise self._told(error, cells[jobs[job]], self._log(jobs[job]))
                return tuple(job.result() for job in jobs)
            except BaseException:
                end_until_done(self.work, jobs)
                raise

    def _log(self, place: int) -> Path:
        return self.work / f"jmh-{place}.log"

    def _told(self, error: BaseException, cell: Cell, log: Path) -> BaseException:
        """The error with a log that stays."""
        if not isinstance(error, RackgateError) or not log.exists():
            return error
        kept = self.out / "failed.log"
        shutil.copyfile(log, kept)
        return RackgateError(f"benchmark {cell.name} failed, see {kept}", detail=error.detail)

    def _fork(self, cell: Cell, number: int, effort: Effort, place: int, turn: str) -> Fork:
        overlay = cell.side == OVERLAY
        classpath = ":".join([str(self.classes), *map(str, self.harness), self.distribution.classpath(overlay)])
        result = self.work / f"result-{place}.json"
        warm = max(1, round(effort.warm_s / WARM_ITERATION_S))
        options = f"{STEADY} -Drackgate.overlay={str(overlay).lower()} {turn}"
        options += f" -Drackgate.slice.calls={cell.slice_calls}"
        words = ["java", "-Xmx128m", "-Djmh.ignoreLock=true", "-cp", classpath, "org.openjdk.jmh.Main"]
        words += [f"rackgate.jmh.{cell.benchmark}$", "-f", "1", "-foe", "true", "-prof", "gc"]
        words += ["-jvm", str(self.work / "java")]
        words += ["-wi", str(warm), "-w", f"{WARM_ITERATION_S * 1000:.0f}ms", "-i", str(effort.iterations)]
        words += ["-r", f"{effort.iteration_s * 1000:.0f}ms", "-rf", "json", "-rff", str(result)]
        words += ["-jvmArgs", f"{options} -Djava.io.tmpdir={self.scratch}"]
        for name, value in cell.parameters:
            words += ["-p", f"{name}={value}"]
        result.unlink(missing_ok=True)
        run(words, what=f"benchmark {cell.name}", cwd=self.work, log=self._log(place), timeout_s=_HEAT_TIMEOUT_S)
        return read(result, cell, number)


def read(result: Path, cell: Cell, number: int) -> Fork:
    """What JMH wrote about one fork; its time is the fastest slice of all.

    What disturbs a slice makes it slower, and it can be there for nearly all of a fork: then no quantile of its
    iterations is left alone.

    Raises:
        RackgateError: it has not the form of JMH 1.37, or nothing was measured.
    """
    try:
        (entry,) = json.loads(result.read_text(encoding="utf-8"))
        second = entry["secondaryMetrics"]
        (fastest,) = second["fastestSliceNs"]["rawData"]
        # a log file that is rolled can take all of an iteration, which then says nothing of an append
        each = [ns / (cell.slice_calls * cell.operations) for ns in fastest if ns]
        if len(each) < _MEASURED * len(fastest):
            raise ValueError(f"{len(each)} of {len(fastest)} iterations have a whole slice of {cell.slice_calls} calls")
        (bytes_,) = second["gc.alloc.rate.norm"]["rawData"]
        return Fork(
            cell=cell.name,
            round_=number,
            cpu_ns=min(each),
            wall_ns=float(entry["primaryMetric"]["score"]),
            bytes_=statistics.median(bytes_),
            load=os.getloadavg()[0],
            iterations_ns=tuple(each),
        )
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        raise RackgateError(f"benchmark {cell.name}: JMH's result {result} is not understood: {error!r}") from error


@contextmanager
def folders(space: Workspace) -> Iterator[tuple[Path, Path]]:
    """A folder to work in, and one in memory if there is a file system for it: a disk is not what is measured."""
    work = space.test_work()
    for old in _SHM.glob(f"{_SCRATCH}*"):
        # left by a run that was killed: nobody holds its lock
        if (lock := _locked(old)) is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(lock)
    scratch, lock = _scratch(_SHM if os.access(_SHM, os.W_OK) else work)
    with exits_on_sigterm():
        try:
            yield work, scratch
        finally:
            # who is told twice takes it away all the same
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(work, ignore_errors=True)
            os.close(lock)


def _scratch(where: Path) -> tuple[Path, int]:
    """A new folder and its lock; made again if another run took it away before it was locked."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=where))
        lock = _locked(made)
        if lock is not None and made.exists():
            return made, lock
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """The descriptor of a folder that is locked with it, which ends with this process; None if somebody else has it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # gone, or none of ours
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
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
) -> Bench:
    """Compiles the benchmarks against the published jars.

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
    space.repository.maven(pom, ["compile"], what="compile the benchmarks", log=work / "compile.log")
    console.print(f"benchmarks compiled: {time.monotonic() - started:.0f} s")
    # ends with JMH's own process, which starts it and ends with us
    java = work / "java"
    java.write_text(f'#!/bin/sh\nexec {" ".join(DIES_WITH_PARENT)} java "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    return Bench(classes, jars, distribution, work, scratch, out)
