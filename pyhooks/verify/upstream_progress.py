"""Progress of a run of Kafka's tests: one line for each finished class, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyhooks.core.files import complete_lines, evaluating, parse_json, read_text, write_text, writing
from pyhooks.verify.upstream_cases import PATCHED, STOCK, ClassResult, Runs


@dataclass
class UpstreamProgress:
    """Results obtained so far.

    Results are stored in three files. First runs on the published jars do not depend on the series, so other series
    reuse them. The series' own tests may change while the overlay does not. All other results are in ``lines``.

    Attributes:
        stock: file with the first runs on the published jars.
        patched: file with the runs of the series' own tests.
        done: arm, class and repetition of each result; repetition 0 is the first run.
    """

    folder: Path
    stock: Path
    patched: Path
    runs: Runs = field(default_factory=Runs)
    done: set[tuple[str, str, int]] = field(default_factory=set)
    _spent_s: float = 0.0
    _sessions: set[str] = field(default_factory=set)
    _session: str = field(default_factory=lambda: str(time.time_ns()))
    _last: float = field(default_factory=time.monotonic)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lines(self) -> Path:
        """The file of all other results, one JSON object a line."""
        return self.folder / "classes.jsonl"

    @property
    def sessions(self) -> int:
        """Number of sessions of the run, including this one."""
        return len(self._sessions | {self._session})

    def load(self) -> None:
        """Read the results of earlier sessions; remove an incomplete last line, left by a kill.

        A class that could not be loaded does not count as done: the class path may be complete now.
        """
        for path in filter(Path.exists, (self.stock, self.lines, self.patched)):
            text = read_text(path, "it stores results")
            lines = complete_lines(text)
            if not text.endswith("\n"):
                write_text(path, "".join(f"{line}\n" for line in lines))
            with evaluating(path, "results of test classes; delete it"):
                for line in lines:
                    self._take(parse_json(line))

    def add(self, arm: str, result: ClassResult, repeat: int = 0) -> None:
        """Add a result and append it to its file."""
        with self._guard:
            now = time.monotonic()
            row = {
                "session": self._session, "spent_s": round(now - self._last, 2), "arm": arm, "repeat": repeat,
                **result.as_dict(),
            }  # fmt: skip
            self._last = now
            path = self.stock if arm == STOCK and repeat == 0 else self.patched if arm == PATCHED else self.lines
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        result = ClassResult.parse(row)
        self._sessions.add(row["session"])
        self._spent_s += row["spent_s"]
        if result.unloadable and row["session"] != self._session:
            return
        self.done.add((row["arm"], result.name, row["repeat"]))
        self.runs.add(row["arm"], result)

    def seconds(self) -> float:
        """Return the total duration of all sessions in seconds, including reused results on the published jars."""
        return self._spent_s + time.monotonic() - self._last
