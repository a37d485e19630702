"""``rackgate patch jmh``: what the gate costs, stock against overlay, fork by fork in turn, with JMH."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pyhooks import paths
from pyhooks.build import maven, recipe
from pyhooks.build.distribution import Distribution
from pyhooks.build.jmhstats import FEWEST_FORKS, Comparison, Fork, compare, worst
from pyhooks.build.pace import Heat, Heats, Pacer, Rule, Yardstick, identity
from pyhooks.build.recipe import Recipe
from pyhooks.build.workspace import Workspace
from pyhooks.errors import RackgateError
from pyhooks.process import DIES_WITH_PARENT, run

SOURCES = maven.JMH / "java"
STOCK, OVERLAY, CONTROL = "stock", "overlay", "control"
SCANNED = {
    "UnderMinIsrPartitionCount": "UnderMinRackIsrPartitionCount",
    "AtMinIsrPartitionCount": "AtMinRackIsrPartitionCount",
}
_SCALE = "append to a log file, ISR of 3, stock against itself"
_OPERATIONS_PER_SCAN = 10_000
_FORK_TIMEOUT_S = 600.0
_START_S = 3.0  # of JMH, the JVM and the benchmark, and the yardstick; for the first estimate alone
# Serial: its work is on threads of its own and not in the one whose time is taken. Compiled in the foreground and by
# C2 alone: else what is inlined, and with it what is allocated, depends on how busy the machine is, on either side.
_STEADY = "-XX:+UseSerialGC -Xbatch -XX:-TieredCompilation"
_SCRATCH = "rackgate-jmh-"
_STALE_S = 86_400.0
_SHM = Path("/dev/shm")  # noqa: S108 - for the log that is appended to; a folder of our own in it


@dataclass(frozen=True)
class Effort:
    """How hard is measured.

    Attributes:
        forks: JVMs for each benchmark and side.
        warm_s: warm-up before each measurement, in seconds.
        iterations: measured iterations in a fork.
        iteration_s: length of one, in seconds.
    """

    forks: int
    warm_s: float
    iterations: int
    iteration_s: float


QUICK = Effort(forks=5, warm_s=1.5, iterations=5, iteration_s=0.2)
FULL = Effort(forks=30, warm_s=4.0, iterations=10, iteration_s=0.3)


@dataclass(frozen=True)
class Cell:
    """One benchmark with its parameters on one side.

    Attributes:
        side: ``stock``, ``overlay``, or ``control``, which is stock once more.
        benchmark: class and method.
        parameters: of JMH.
        operations: how many operations one call is.
    """

    side: str
    benchmark: str
    parameters: tuple[tuple[str, str], ...]
    operations: int = 1

    @property
    def name(self) -> str:
        """Unique, and readable."""
        return f"{self.side} {self.benchmark} {' '.join(f'{key}={value}' for key, value in self.parameters)}"


def plan(only: str = "") -> tuple[tuple[Cell, ...], tuple[Comparison, ...]]:
    """All cells, and what is compared with what.

    Args:
        only: take the comparisons alone whose name has this in it.

    Raises:
        RackgateError: no name has it.
    """
    cells: list[Cell] = []
    comparisons: list[Comparison] = []

    def group(title: str, benchmark: str, fixed: dict[str, str], gauge: str = "", operations: int = 1) -> None:
        def cell(side: str, racks: int, **more: str) -> Cell:
            return Cell(side, benchmark, tuple({**fixed, "racks": str(racks), **more}.items()), operations)

        base = {"gauge": gauge} if gauge else {}
        ours = {"gauge": SCANNED[gauge]} if gauge else {}
        stock, control = cell(STOCK, 1, **base), cell(CONTROL, 1, **base)
        first, second = cell(OVERLAY, 1, **ours), cell(OVERLAY, 2, **ours)
        cells.extend([stock, first, second])
        comparisons.append(Comparison(f"{title}, R=1", stock.name, first.name))
        comparisons.append(Comparison(f"{title}, R=2", stock.name, second.name))
        if fixed.get("isr", "3") == "3" and gauge != "AtMinIsrPartitionCount":
            cells.append(control)
            comparisons.append(Comparison(f"{title}, stock against itself", stock.name, control.name, control=True))

    for isr in ("3", "5", "7"):
        group(f"append gate, ISR of {isr}", "AppendBenchmark.append", {"isr": isr, "log": "stub"})
    # How long an append takes that stores something, for scale. Its forks differ by a third: no bar could be settled
    # on it.
    on_file = (("isr", "3"), ("log", "file"), ("racks", "1"))
    stock, control = (Cell(side, "AppendBenchmark.append", on_file) for side in (STOCK, CONTROL))
    cells.extend([stock, control])
    comparisons.append(Comparison(_SCALE, stock.name, control.name, control=True))
    for isr in ("3", "5", "7"):
        group(f"high watermark, ISR of {isr}", "HighWatermarkBenchmark.update", {"isr": isr})
    for gauge in SCANNED:
        group(f"scan for {SCANNED[gauge]}, a partition", "MetricScanBenchmark.scan", {}, gauge, _OPERATIONS_PER_SCAN)
    wanted = tuple(comparison for comparison in comparisons if only in comparison.name)
    if not wanted:
        names = ", ".join(comparison.name for comparison in comparisons)
        raise RackgateError(f"no comparison has {only!r} in its name; there are: {names}")
    used = {name for comparison in wanted for name in (comparison.stock, comparison.other)}
    return tuple(cell for cell in cells if cell.name in used), wanted


def measure(
    distribution: Distribution,
    effort: Effort,
    rule: Rule,
    *,
    only: str = "",
    more: bool = False,
    quiet: bool = False,
    out: Path | None = None,
) -> dict[str, Any]:
    """Runs all benchmarks on both sides and writes ``forks.jsonl`` and ``summary.json``.

    Can be interrupted at any time: what was measured is kept, and ``more`` goes on from there.

    Args:
        distribution: the build that is measured.
        effort: how hard.
        rule: when forks count.
        only: run the comparisons alone whose name has this in it.
        more: keep the forks of earlier runs of the same build, and add these.
        quiet: show no progress.
        out: where to write, by default ``out/jmh``.

    Returns:
        The summary.

    Raises:
        RackgateError: the benchmarks do not compile or do not run, or there are forks to keep that must not be counted
            together with these.
    """
    console = Console(stderr=True, quiet=quiet, highlight=False)
    out = out or paths.OUT / "jmh"
    out.mkdir(parents=True, exist_ok=True)
    space = Workspace.of(recipe.load())
    key, path = _key(distribution, effort, rule), out / "forks.jsonl"
    cells, _ = plan(only)
    heats = Heats(rule, _kept(path, key) if more else ())
    with _work(space) as (work, scratch):
        bench = _compile(recipe.load(), space, distribution, console, work=work, scratch=scratch, out=out)
        _replace(path, "".join(_line(key, heat) for heat in heats.tries))
        with path.open("a", encoding="utf-8") as stream, console.status("") as status:

            def keep(heat: Heat) -> None:
                stream.write(_line(key, heat))
                stream.flush()

            def fork(name: str, number: int) -> Fork:
                status.update(f"round {number}: {name}")
                return bench.fork(by_name[name], number, effort)

            by_name = {cell.name: cell for cell in plan()[0]}
            pacer = Pacer(heats, measure=Yardstick().measure, fork=fork, keep=keep)
            console.print(_beforehand(cells, heats, effort), soft_wrap=True)
            for words in _rounds(pacer, heats, cells, effort):
                console.print(words, soft_wrap=True)
                summary = summarise(distribution, effort, heats)
                _replace(out / "summary.json", json.dumps(summary, indent=1) + "\n")
    return summary


def _rounds(pacer: Pacer, heats: Heats, cells: Sequence[Cell], effort: Effort) -> Iterator[str]:
    """Runs all rounds, and makes heats again until none is left to; after each round says how far it is.

    A heat that has to be made again gets one more try after each round: by then a slow spell may be over.
    """
    first = max((heat.round_ for heat in heats.tries), default=0) + 1
    started, tries_before = time.monotonic(), len(heats.tries)
    names = frozenset(cell.name for cell in cells)
    for done in range(1, effort.forks + 1):
        ordered = _in_turn(cells, first + done - 1)
        for members in ordered:
            pacer.run(first + done - 1, [cell.name for cell in members])
        pacer.again(names)
        spent_s = time.monotonic() - started
        left_s = spent_s / done * (effort.forks - done)
        left_s += spent_s / (len(heats.tries) - tries_before) * len(pacer.open(names))
        yield (
            f"round {done}/{effort.forks}: {len(cells)} forks, {spent_s / done:.0f} s a round, about "
            f"{left_s / 60:.0f} min left, load {os.getloadavg()[0]:.1f}; {pace_words(heats.told())}"
        )
    while waiting := pacer.open(names):
        pacer.again(names)
        yield f"after the last round, heats made again: {len(waiting)}; {pace_words(heats.told())}"


def _beforehand(cells: Sequence[Cell], heats: Heats, effort: Effort) -> str:
    """What is to come, before anything is known of how long it takes here."""
    fork_s = _START_S + effort.warm_s + effort.iterations * effort.iteration_s
    kept = f"{len(heats.kept())} heats kept, {len(heats.to_make_again())} to make again; " if heats.tries else ""
    return (
        f"{kept}{effort.forks} rounds of {len(cells)} forks in {len(_in_turn(cells, 1))} heats, about "
        f"{math.ceil(fork_s * len(cells) * effort.forks / 60)} min if none has to be made again"
    )


def pace_words(told: Mapping[str, Any]) -> str:
    """What came of the rule, in one line."""
    slower, open_ = told["slower_by_percent"], told["heats_to_make_again"]
    return (
        f"{told['forks_made_again']} forks made again, {told['forks_disturbed']} of {told['forks_kept']} disturbed, "
        + (f"{open_} heats to make again, " if open_ else "")
        + f"yardstick {told['fastest_ms']:.0f} ms (median +{slower['median']:.1f} %, "
        f"9 of 10 within +{slower['p90']:.1f} %, all within +{slower['most']:.1f} %)"
    )


def summarise(distribution: Distribution, effort: Effort, heats: Heats) -> dict[str, Any]:
    """All comparisons with their bars, and one verdict over those that are no controls."""
    forks = [fork for heat in heats.kept() for fork in heat.forks]
    disturbed = heats.disturbed()
    results = [
        {
            **compare(comparison, forks),
            "forks_disturbed": sum({comparison.stock, comparison.other} <= set(heat.cells) for heat in disturbed),
        }
        for comparison in plan()[1]
    ]
    append = next((r.get("stock_ns") for r in results if r["name"] == _SCALE), None)
    for result in results:
        if append and result["name"].startswith("append gate") and result["bars"]:
            # the same added code, held against an append that stores something
            ns = next(bar["measured"] for bar in result["bars"] if bar["name"] == "ns")
            result["percent_of_append_to_file"] = {key: round(value / append * 100, 4) for key, value in ns.items()}
    real = [r for r in results if not r["control"]]
    loads = [fork.load for fork in forks]
    return {
        "kafka_version": distribution.manifest["kafka_version"],
        "patch_hash": distribution.manifest["patch_hash"],
        "time": "CPU time of the measuring thread",
        "intervals": "95 %, by bootstrap across forks, paired by round, of a mean without the highest and lowest fifth",
        "effort": asdict(effort),
        "jvm": _STEADY,
        "pace": heats.told(),
        "forks": min((r["forks"] for r in real), default=0),
        "forks_needed": max(max((bar["forks_needed"] for bar in r["bars"]), default=FEWEST_FORKS) for r in real),
        "cores": os.cpu_count(),
        "load": {"lowest": min(loads, default=0.0), "highest": max(loads, default=0.0)},
        "verdict": worst([r["verdict"] for r in real]),
        "bars": {v: sum(bar["verdict"] == v for r in real for bar in r["bars"]) for v in ("met", "not met", "unknown")},
        "comparisons": results,
    }


def _in_turn(cells: Sequence[Cell], number: int) -> list[list[Cell]]:
    """One round: groups as planned, and within each the sides in turn.

    Over as many rounds as a group has sides each side has each place once, and in the next as many in reverse. So what
    comes with a place, such as a machine that gets slower or faster, falls on all sides alike.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        fixed = dict(cell.parameters)
        place = fixed.get("isr", "") + fixed.get("log", "") + fixed.get("gauge", "").replace("Rack", "")
        groups.setdefault((cell.benchmark, place), []).append(cell)
    ordered = []
    for members in groups.values():
        turns, first = divmod(number - 1, len(members))
        turned = members[first:] + members[:first]
        ordered.append(turned[::-1] if turns % 2 else turned)
    return ordered


@dataclass(frozen=True)
class _Bench:
    """Compiled benchmarks that can be run."""

    classes: Path
    harness: tuple[Path, ...]
    distribution: Distribution
    work: Path
    scratch: Path
    out: Path

    def fork(self, cell: Cell, number: int, effort: Effort) -> Fork:
        """Runs one cell in one fork."""
        overlay = cell.side == OVERLAY
        classpath = ":".join([str(self.classes), *map(str, self.harness), self.distribution.classpath(overlay)])
        result = self.work / "result.json"
        warm = max(1, round(effort.warm_s / 0.5))
        options = f"-Xms1g -Xmx1g {_STEADY} -Drackgate.overlay={str(overlay).lower()}"
        words = ["java", "-Xmx128m", "-Djmh.ignoreLock=true", "-cp", classpath, "org.openjdk.jmh.Main"]
        words += [
            f"rackgate.jmh.{cell.benchmark}$",
            "-f",
            "1",
            "-foe",
            "true",
            "-prof",
            "gc",
            "-jvm",
            str(self._java()),
        ]
        words += ["-wi", str(warm), "-w", "500ms", "-i", str(effort.iterations)]
        words += ["-r", f"{effort.iteration_s * 1000:.0f}ms", "-rf", "json", "-rff", str(result)]
        words += ["-jvmArgs", f"{options} -Djava.io.tmpdir={self.scratch}"]
        for name, value in cell.parameters:
            words += ["-p", f"{name}={value}"]
        result.unlink(missing_ok=True)
        log = self.work / "jmh.log"
        try:
            run(words, what=f"benchmark {cell.name}", log=log, timeout_s=_FORK_TIMEOUT_S)
        except RackgateError as error:
            kept = self.out / "failed.log"
            shutil.copyfile(log, kept)
            raise RackgateError(f"benchmark {cell.name} failed, see {kept}", detail=error.detail) from None
        return read(result, cell, number)

    def _java(self) -> Path:
        """A java that ends with JMH's own process, which starts it and ends with us."""
        script = self.work / "java"
        if not script.exists():
            script.write_text(f'#!/bin/sh\nexec {" ".join(DIES_WITH_PARENT)} java "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        return script


def read(result: Path, cell: Cell, number: int) -> Fork:
    """What JMH wrote about one fork.

    Raises:
        RackgateError: it has not the form of JMH 1.37, or nothing was measured.
    """
    try:
        (entry,) = json.loads(result.read_text(encoding="utf-8"))
        second = entry["secondaryMetrics"]
        (cpu,), (calls,) = second["cpuNs"]["rawData"], second["calls"]["rawData"]
        each = [ns / (count * cell.operations) for ns, count in zip(cpu, calls, strict=True)]
        (bytes_,) = second["gc.alloc.rate.norm"]["rawData"]
        return Fork(
            cell=cell.name,
            round_=number,
            cpu_ns=statistics.median(each),
            wall_ns=float(entry["primaryMetric"]["score"]),
            bytes_=statistics.median(bytes_),
            load=os.getloadavg()[0],
        )
    except (OSError, ValueError, KeyError, ZeroDivisionError, statistics.StatisticsError) as error:
        raise RackgateError(f"benchmark {cell.name}: JMH's result {result} is not understood: {error!r}") from error


@contextmanager
def _work(space: Workspace) -> Iterator[tuple[Path, Path]]:
    """A folder to work in, and one in memory if there is a file system for it: a disk is not what is measured."""
    work = space.test_work()
    for old in _SHM.glob(f"{_SCRATCH}*"):
        # left by a run that was killed
        if time.time() - old.stat().st_mtime > _STALE_S:
            shutil.rmtree(old, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=_SHM if os.access(_SHM, os.W_OK) else work))
    try:
        yield work, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)


def _compile(
    plan_: Recipe,
    space: Workspace,
    distribution: Distribution,
    console: Console,
    *,
    work: Path,
    scratch: Path,
    out: Path,
) -> _Bench:
    started = time.monotonic()
    harness = plan_.with_role("jmh")
    with space.lock(console.print):
        space.store.fetch(plan_, harness, work)
    jars = tuple(space.store.path(artifact) for artifact in harness)
    classes = work / "classes"
    stock = {path.name: path for path in (distribution.root / "libs").glob("*.jar")}
    pom = maven.render(
        "jmh.xml.j2", work / "pom.xml", recipe=plan_, sources=SOURCES, output=classes,
        classpath=[*stock.values(), *(jar for jar in jars if jar.name not in stock)],
    )  # fmt: skip
    maven.maven(pom, ["compile"], what="compile the benchmarks", log=work / "compile.log")
    console.print(f"benchmarks compiled: {time.monotonic() - started:.0f} s")
    return _Bench(classes, jars, distribution, work, scratch, out)


def _key(distribution: Distribution, effort: Effort, rule: Rule) -> str:
    """What must be the same for forks to be counted together."""
    digest = hashlib.sha256(distribution.manifest["patch_hash"].encode())
    digest.update(json.dumps([_STEADY, effort.warm_s, effort.iterations, effort.iteration_s]).encode())
    digest.update(json.dumps([asdict(rule), identity()]).encode())
    for path in sorted(SOURCES.rglob("*.java")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _line(key: str, heat: Heat) -> str:
    return json.dumps({"key": key, **asdict(heat)}) + "\n"


def _kept(path: Path, key: str) -> list[Heat]:
    """All tries of earlier runs; one that a killed run was at is not among them.

    Raises:
        RackgateError: they are of another build, effort, rule or kind of machine.
    """
    if not path.exists():
        return []
    # A run that was killed may have left a half line at the end.
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    lines: list[Mapping[str, Any]] = [json.loads(line) for line in whole]
    if any(line["key"] != key for line in lines):
        raise RackgateError(
            f"{path} has forks of another build, effort (--full), rule (--within) or machine, and these must not be "
            "counted together: say the same as then, or leave --more away to begin anew"
        )
    return [Heat.of(line) for line in lines]


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
