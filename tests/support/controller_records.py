"""Byte-for-byte comparison of the records that two controllers write for the same script of events.

One controller runs with the complete overlay, the other with only the part ``fixes``. The script is a Java source in
``patch/records``, compiled once against Kafka's published classes and tests, and run with both controllers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.jvm.client import LOG4J
from pyhooks.patchset import builder, maven, recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.series import FIXES, Selection
from pyhooks.patchset.workspace import Workspace

SOURCE = maven.JMH.parent / "records" / "java" / "org" / "apache" / "kafka" / "controller" / "ControllerScript.java"
# what differs between versions of Kafka, in the folder of the series
CALLS = Path("records", "ControllerCalls.java")
MAIN = "org.apache.kafka.controller.ControllerScript"
# Modules whose published test jars the script uses: request contexts, the replay of records, a mock clock.
_TESTS = ("kafka-metadata", "kafka-clients", "kafka-server-common")
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ControllerRecord:
    """A record that a controller wrote.

    Attributes:
        data: its bytes as in the log, in hexadecimal.
    """

    data: str
    text: str

    @property
    def kind(self) -> str:
        """The record's class."""
        return self.text.partition("(")[0]


@dataclass(frozen=True)
class ScriptEvent:
    """An event and its result.

    Attributes:
        rejected: the exception's class if the controller rejected the event, otherwise empty.
    """

    seed: int
    number: int
    name: str
    records: tuple[ControllerRecord, ...]
    rejected: str


@dataclass(frozen=True)
class ControllerConfig:
    """Configuration of a controller that runs the script.

    Attributes:
        overlay: whether it has the complete overlay; otherwise only the fixes.
        racks_level: level of ``min.insync.racks.version``, or None if the feature does not exist.
        elr_level: initial level of ``eligible.leader.replicas.version``; the script changes it.
    """

    overlay: bool
    racks_level: int | None
    elr_level: int = 1
    min_insync_racks: int = 1


@dataclass(frozen=True)
class ControllerScript:
    """The compiled script, ready to run.

    Attributes:
        distribution: the build of the series.
        fixes: the build of the fixes alone.
    """

    classes: Path
    harness: tuple[Path, ...]
    distribution: Distribution
    fixes: Distribution
    work: Path

    def run(self, arm: ControllerConfig, *, first_seed: int, seeds: int, steps: int) -> tuple[ScriptEvent, ...]:
        """Run ``seeds`` scripts, from ``first_seed`` on, of ``steps`` steps each; a step is one or more events."""
        output = self.work / "records"
        output.unlink(missing_ok=True)
        level = "-" if arm.racks_level is None else str(arm.racks_level)
        kafka = self.distribution if arm.overlay else self.fixes
        path = os.pathsep.join([str(self.classes), kafka.classpath(), *map(str, self.harness)])
        command: list[str | Path] = [maven.java_home() / "bin" / "java"]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # Logging off: the controller logs every record and every request for a missing object.
        command += [f"-Dlog4j2.configurationFile={LOG4J}", "-Drackgate.log.level=OFF", "-cp", path, MAIN]
        command += [
            output,
            level,
            str(arm.elr_level),
            str(arm.min_insync_racks),
            str(first_seed),
            str(seeds),
            str(steps),
        ]
        run(command, task=f"run the controller's script from seed {first_seed} on", timeout_s=_TIMEOUT_S)
        return parse(output.read_text(encoding="utf-8"))


@contextmanager
def compiled_script(distribution: Distribution) -> Iterator[ControllerScript]:
    """Compile the script against the published classes; delete all its files at the end.

    Builds the fixes alone if needed. If the series has no fix, that build has an empty overlay.
    """
    plan = recipe.load()
    fixes = builder.build(selection=Selection(distribution.opt_ins, last_part=FIXES), quiet=True).distribution
    space = Workspace.of(plan)
    with space.test_work() as work:
        wanted = [*(plan.find(name, "test") for name in _TESTS), *plan.with_role("testrun")]
        with space.lock(lambda _: None):
            space.store.fetch(plan, wanted, work)
        harness = tuple(space.store.path(artifact) for artifact in wanted)
        classes = work / "classes"
        path = os.pathsep.join([distribution.classpath(overlay=False), *map(str, harness)])
        command: list[str | Path] = [maven.java_home() / "bin" / "javac"]
        command += ["-nowarn", "-proc:none", "--release", "17", "-cp", path]
        run([*command, "-d", classes, SOURCE, plan.path.parent / CALLS], task="compile the controller's script")
        yield ControllerScript(classes, harness, distribution, fixes, work)


def parse(text: str) -> tuple[ScriptEvent, ...]:
    """Parse the output of ``ControllerScript.java``."""
    steps: list[ScriptEvent] = []
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise RackgateError("the controller's script did not complete")
    seed, number, name, rejected = 0, -1, "", ""
    records: list[ControllerRecord] = []
    for line in lines:
        kind, *command = line.split("\t")
        if kind == "record":
            records.append(ControllerRecord(command[0], command[1]))
        elif kind == "rejected":
            rejected = command[0]
        else:
            if number >= 0:
                steps.append(ScriptEvent(seed, number, name, tuple(records), rejected))
            if kind == "event":
                seed, number, name, rejected, records = int(command[0]), int(command[1]), command[2], "", []
    return tuple(steps)


def first_difference(one: Sequence[ScriptEvent], other: Sequence[ScriptEvent]) -> str:
    """Describe the first difference between two runs, with its seed; empty if they are identical byte for byte."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            where = f"seed {left.seed}, event {left.number}, {left.name!r}"
            if (left.seed, left.number, left.name) != (right.seed, right.number, right.name):
                return f"{where}: the other has seed {right.seed}, event {right.number}, {right.name!r}"
            results = [[record.text for record in step.records] + [step.rejected] for step in (left, right)]
            return f"{where}: {results[0]} against {results[1]}"
    return "" if len(one) == len(other) else f"{len(one)} events against {len(other)}"
