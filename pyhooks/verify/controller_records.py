"""The same script of events through two controllers, and the bytes of their records.

One controller has the whole overlay, the other only the fixes that are built into it. The script is ``patch/records``,
one Java source that is compiled once, against the published classes and tests, and runs on either side.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.jvm.in_process import LOG4J
from pyhooks.patchset import builder, maven, recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.series import FIXES, Selection
from pyhooks.patchset.workspace import Workspace

SOURCE = maven.JMH.parent / "records" / "java" / "org" / "apache" / "kafka" / "controller" / "ControllerScript.java"
MAIN = "org.apache.kafka.controller.ControllerScript"
# whose tests it uses: request contexts and the replay of records, a clock that stands still
_TESTS = ("kafka-metadata", "kafka-clients", "kafka-server-common")
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Record:
    """A record that a controller wrote.

    Attributes:
        data: its bytes as they stand in the log, as hexadecimal digits.
        text: the same for a person.
    """

    data: str
    text: str

    @property
    def kind(self) -> str:
        """The record's class."""
        return self.text.partition("(")[0]


@dataclass(frozen=True)
class Step:
    """An event and what came of it.

    Attributes:
        seed: of the script.
        number: of the event in the script, from 0.
        name: the event in words.
        records: what the controller wrote.
        refused: the class of the exception with which it refused, or empty.
    """

    seed: int
    number: int
    name: str
    records: tuple[Record, ...]
    refused: str


@dataclass(frozen=True)
class Arm:
    """A controller that gets the script.

    Attributes:
        overlay: whether it has the whole overlay, and not the fixes alone.
        racks_level: level of ``min.insync.racks.version``, or None where there is no such feature.
        elr_level: level of ``eligible.leader.replicas.version`` to begin with; the script changes it.
        min_insync_racks: of all topics; it is not set where it is 1.
    """

    overlay: bool
    racks_level: int | None
    elr_level: int = 1
    min_insync_racks: int = 1


@dataclass(frozen=True)
class ScriptBench:
    """The compiled script, ready to run.

    Attributes:
        classes: its classes.
        harness: published tests that it uses.
        distribution: the build of the series.
        fixes: the build of the fixes alone.
        work: folder of its output.
    """

    classes: Path
    harness: tuple[Path, ...]
    distribution: Distribution
    fixes: Distribution
    work: Path

    def run(self, arm: Arm, *, first_seed: int, seeds: int, steps: int) -> tuple[Step, ...]:
        """Runs scripts.

        Args:
            arm: the controller.
            first_seed: of the first script.
            seeds: how many scripts, one a seed.
            steps: length of each; a step is one or several events.

        Raises:
            RackgateError: it did not come to its end.
        """
        output = self.work / "records"
        output.unlink(missing_ok=True)
        level = "-" if arm.racks_level is None else str(arm.racks_level)
        kafka = self.distribution if arm.overlay else self.fixes
        path = os.pathsep.join([str(self.classes), kafka.classpath(), *map(str, self.harness)])
        words: list[str | Path] = [maven.java_home() / "bin" / "java"]
        words += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # the controller tells of every record, and expects to be asked for what is not there
        words += [f"-Dlog4j2.configurationFile={LOG4J}", "-Drackgate.log.level=OFF", "-cp", path, MAIN]
        words += [output, level, str(arm.elr_level), str(arm.min_insync_racks), str(first_seed), str(seeds), str(steps)]
        run(words, what=f"run the controller's script from seed {first_seed} on", timeout_s=_TIMEOUT_S)
        return parse(output.read_text(encoding="utf-8"))


@contextmanager
def bench(distribution: Distribution) -> Iterator[ScriptBench]:
    """Compiles the script against the published classes, and takes all away in the end.

    The build of the fixes alone is made if need be. Without any fix it has an empty overlay.

    Raises:
        RackgateError: it does not compile.
    """
    plan = recipe.load()
    fixes = builder.build(selection=Selection(distribution.opt_ins, last_part=FIXES), quiet=True).distribution
    space = Workspace.of(plan)
    work = space.test_work()
    try:
        wanted = [*(plan.find(name, "test") for name in _TESTS), *plan.with_role("testrun")]
        with space.lock(lambda _: None):
            space.store.fetch(plan, wanted, work)
        harness = tuple(space.store.path(artifact) for artifact in wanted)
        classes = work / "classes"
        path = os.pathsep.join([distribution.classpath(overlay=False), *map(str, harness)])
        words: list[str | Path] = [maven.java_home() / "bin" / "javac"]
        words += ["-nowarn", "-proc:none", "--release", "17", "-cp", path]
        run([*words, "-d", classes, SOURCE], what="compile the controller's script")
        yield ScriptBench(classes, harness, distribution, fixes, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def parse(text: str) -> tuple[Step, ...]:
    """Reads what ``ControllerScript.java`` wrote.

    Raises:
        RackgateError: it is not whole.
    """
    steps: list[Step] = []
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise RackgateError("the controller's script did not come to its end")
    seed, number, name, refused = 0, -1, "", ""
    records: list[Record] = []
    for line in lines:
        kind, *words = line.split("\t")
        if kind == "record":
            records.append(Record(words[0], words[1]))
        elif kind == "refused":
            refused = words[0]
        else:
            if number >= 0:
                steps.append(Step(seed, number, name, tuple(records), refused))
            if kind == "event":
                seed, number, name, refused, records = int(words[0]), int(words[1]), words[2], "", []
    return tuple(steps)


def first_difference(one: Sequence[Step], other: Sequence[Step]) -> str:
    """Where two runs part, in words with the seed in them, or empty if they are the same, byte for byte."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            where = f"seed {left.seed}, event {left.number}, {left.name!r}"
            if (left.seed, left.number, left.name) != (right.seed, right.number, right.name):
                return f"{where}: the other has seed {right.seed}, event {right.number}, {right.name!r}"
            said = [[record.text for record in step.records] + [step.refused] for step in (left, right)]
            return f"{where}: {said[0]} against {said[1]}"
    return "" if len(one) == len(other) else f"{len(one)} events against {len(other)}"
