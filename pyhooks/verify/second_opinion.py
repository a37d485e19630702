"""Second opinion on recorded histories: Porcupine checks them against an append-only log per partition.

The program in ``linearizability/`` is written in Go and shares no code with ``pyhooks.checkers``. It accepts a history
if all records and reads of each partition can be put in one order that is consistent with real time. Its result is
compared with the verdicts of the checkers on the history itself and with violations planted in it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.checkers.judgement import judge
from pyhooks.core import paths, process
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.verify.history_mutation import history_name
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory

SOURCE = Path(__file__).with_name("linearizability")
WORK = paths.OUT / "linearizability"
# Checkers whose claims the model contains, and violations that contradict it.
CHECKERS = ("delivery", "offsets", "realtime_order")
PLANTED = (
    "drop-record", "swap-in-reads", "rotate-record", "rotate-transaction", "share-offset", "acknowledge-rejection",
)  # fmt: skip
LINEARIZABLE, VIOLATED = "Ok", "Illegal"
BUILD_S = 300.0


@dataclass(frozen=True)
class Opinion:
    """Results of both on one history, as recorded or with a violation."""

    history: str
    violation: str  # planted violation, or empty
    partitions: int  # partitions with operations
    operations: int  # records and reads
    valid: str  # the model's result: true, false, or unknown if a search took too long or there is no operation
    checkers: str  # worst verdict of the checkers

    @property
    def agrees(self) -> bool:
        """Whether one does not accept what the other refutes."""
        return {self.valid, self.checkers} != {"true", "false"}


def build() -> Path:
    """Compile the program, which downloads Porcupine at the version and hash in ``go.sum``; return its path.

    Raises:
        RackgateError: Go is not installed, or the program can't be compiled.
    """
    if shutil.which("go") is None:
        raise RackgateError("Go is not installed: a second opinion needs the program 'go' (1.19 or later)")
    program = WORK / "linearizability"
    WORK.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOCACHE": str(WORK / "cache"), "GOFLAGS": "-mod=readonly"}
    command = ["go", "build", "-o", str(program), "."]
    process.run(command, task="compile the append-only log model", cwd=SOURCE, env=environment, timeout_s=BUILD_S)
    return program


def compare(
    histories: Sequence[Path],
    program: Path,
    *,
    seed: int,
    timeout_s: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Opinion]:
    """Judge histories, and each violation of ``PLANTED`` in them, with the model and with the checkers.

    ``seed`` is the random seed of the victims, ``timeout_s`` bounds the model's search in a partition, and ``progress``
    is called with a line for each history.

    Raises:
        RackgateError: a history can't be read, or the program fails.
    """
    found = []
    for path in histories:
        name = history_name(path)
        opinions = list(_opinions(name, path, program, seed, timeout_s))
        found += opinions
        progress(f"{name}: {len(opinions) - 1} violations, {opinions[0].operations} operations")
    return found


def _opinions(name: str, path: Path, program: Path, seed: int, timeout_s: float) -> Iterator[Opinion]:
    events = tuple(History(path).events())
    yield _opinion(name, "", path, program, timeout_s)
    history = StoredHistory(events)
    for violation in VIOLATIONS:
        if violation.name not in PLANTED:
            continue
        choice = random.Random(f"{seed} 0 {violation.name} {name}")  # noqa: S311 - the victims of history_mutation
        mutated = violation.plant(history, choice)
        if mutated is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "history.jsonl"
            History(file).extend(mutated)
            yield _opinion(name, violation.name, file, program, timeout_s)


def _opinion(name: str, violation: str, path: Path, program: Path, timeout_s: float) -> Opinion:
    output = process.run([program, "-timeout", f"{timeout_s:g}s", path], task=f"second opinion on {name}")
    rows = [json.loads(line) for line in output.splitlines()]
    results = {row["result"] for row in rows}
    valid = "false" if VIOLATED in results else "true" if results == {LINEARIZABLE} else "unknown"
    verdicts = {verdict.valid for verdict in judge(tuple(History(path).events()), CHECKERS)[0]}
    worst = next(word for word in ("false", "unknown", "true") if word in verdicts)
    return Opinion(name, violation, len(rows), sum(row["operations"] for row in rows), valid, worst)
