"""Results of Kafka's tests by test case, and their comparison between arms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.junit import JUnitCase, read_report

PASSED, FAILED, ERROR, SKIPPED = "passed", "failed", "error", "skipped"
STOCK, OVERLAY, PATCHED = "stock", "overlay", "patched"
ARMS = (STOCK, OVERLAY, PATCHED)
# Address in an object's default toString. Names of parameterized tests may contain it, and it differs between runs.
_ADDRESS = re.compile(r"@[0-9a-f]{4,}\b")
_METHOD = re.compile(r"[A-Za-z_$][\w$]*")
_MESSAGE_CHARACTERS = 300
UNLOADABLE = "NoClassDefFoundError"


@dataclass(frozen=True)
class CaseResult:
    """One test case of a run: ``class.method``, with the parameters if it has any, and its status."""

    name: str
    status: str
    seconds: float
    message: str = ""

    @property
    def bad(self) -> bool:
        """Whether its status is failed or error."""
        return self.status in (FAILED, ERROR)


@dataclass(frozen=True)
class ClassResult:
    """One test class of a run.

    Attributes:
        cases: its test cases, including those of nested classes.
        error: why the class did not complete (a crash, a timeout), or empty.
    """

    name: str
    seconds: float
    cases: tuple[CaseResult, ...]
    error: str = ""

    @property
    def unloadable(self) -> bool:
        """Whether a class that it depends on is missing from the class path."""
        return self.error.startswith(UNLOADABLE)

    def count(self, *statuses: str) -> int:
        """Count the cases that have one of ``statuses``."""
        return sum(case.status in statuses for case in self.cases)

    def figures(self) -> dict[str, Any]:
        """Return the class's counts and duration as plain JSON."""
        row: dict[str, Any] = {
            "tests": len(self.cases),
            "failures": self.count(FAILED),
            "errors": self.count(ERROR),
            "skipped": self.count(SKIPPED),
            "seconds": round(self.seconds, 2),
        }
        return {**row, "did_not_run": self.error} if self.error else row

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON for ``parse``."""
        cases = [[case.name, case.status, round(case.seconds, 3), case.message] for case in self.cases]
        return {"class": self.name, "seconds": round(self.seconds, 3), "error": self.error, "cases": cases}

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> ClassResult:
        """Parse the output of ``as_dict``."""
        return ClassResult(
            raw["class"], raw["seconds"], tuple(CaseResult(*case) for case in raw["cases"]), raw["error"]
        )


def read_class(name: str, reports: Path) -> ClassResult:
    """Parse the JUnit XML of a class and its nested classes in the folder ``reports``.

    Raises:
        RackgateError: no report, or one that is incomplete.
    """
    files = [reports / f"TEST-{name}.xml", *sorted(reports.glob(f"TEST-{name}$*.xml"))]
    files = [file for file in files if file.exists()]
    if not files:
        raise RackgateError(f"{name}: no report in {reports}")
    cases: list[CaseResult] = []
    seconds = 0.0
    seen: Counter[str] = Counter()
    for file in files:
        report = read_report(file)
        seconds += report.seconds
        cases.extend(_case(case, name, seen) for case in report.cases)
    return ClassResult(name, seconds, tuple(cases))


def _case(case: JUnitCase, owner: str, seen: Counter[str]) -> CaseResult:
    # A failure before any test (in @BeforeAll) has no name.
    name = _ADDRESS.sub("@", f"{case.owner or owner}.{case.name or '(class)'}")
    seen[name] += 1
    if seen[name] > 1:  # parameters with the same text
        name = f"{name} #{seen[name]}"
    return CaseResult(name, case.status, case.seconds, case.message[:_MESSAGE_CHARACTERS])


def method_of(case: str, owner: str) -> str | None:
    """Return the method of a case of class ``owner``, or None if only the whole class can be run again."""
    rest = case.removeprefix(f"{owner}.")
    method = _METHOD.match(rest)
    return method[0] if rest != case and method else None


def plain(case: str) -> str:
    """Return the case's name without parameters: ``class.method``."""
    return re.split(r"[(\[{ ]", case, maxsplit=1)[0]


@dataclass(frozen=True)
class Tally:
    """Number of runs of a case on one arm, and how many of them passed."""

    runs: int
    passed: int

    def __str__(self) -> str:
        return f"{self.passed} of {self.runs} passed"


class Runs:
    """All results of all arms: the first run of each class, and the repetitions of failed cases.

    ``first`` has only a class's first result; tallies count every result.
    """

    def __init__(self) -> None:
        self.first: dict[str, dict[str, ClassResult]] = {arm: {} for arm in ARMS}
        self._statuses: dict[str, dict[str, list[str]]] = {arm: {} for arm in ARMS}
        self._messages: dict[str, dict[str, str]] = {arm: {} for arm in ARMS}

    def add(self, arm: str, result: ClassResult) -> None:
        """Add a result; a class's first run must precede its repetitions."""
        self.first[arm].setdefault(result.name, result)
        for case in result.cases:
            self._statuses[arm].setdefault(case.name, []).append(case.status)
            if case.bad:
                self._messages[arm].setdefault(case.name, case.message)

    def tally(self, arm: str, case: str) -> Tally:
        """Count how often ``case`` ran and passed on ``arm``; skipped runs are ignored."""
        statuses = [status for status in self._statuses[arm].get(case, ()) if status != SKIPPED]
        return Tally(len(statuses), statuses.count(PASSED))

    def has(self, arm: str, case: str) -> bool:
        """Return whether the case exists on the arm."""
        return case in self._statuses[arm]

    def message(self, arm: str, case: str) -> str:
        """Return the message of the case's first failure on the arm."""
        return self._messages[arm].get(case, "")

    def bad(self) -> dict[str, tuple[str, ...]]:
        """Return, by class name, the cases that failed in the first run on any arm."""
        failed: dict[str, dict[str, None]] = {}
        for arm in ARMS:
            for name, result in self.first[arm].items():
                for case in result.cases:
                    if case.bad:
                        failed.setdefault(name, {})[case.name] = None
        return {name: tuple(cases) for name, cases in failed.items()}

    def never(self, arm: str, case: str) -> bool:
        """Return whether the case ran on the arm and never passed."""
        tally = self.tally(arm, case)
        return tally.runs > 0 and tally.passed == 0

    def ever(self, arm: str, case: str) -> bool:
        """Return whether the case passed on the arm at least once."""
        return self.tally(arm, case).passed > 0

    def flaky(self, arm: str, case: str) -> bool:
        """Return whether the case both passed and failed on the arm."""
        tally = self.tally(arm, case)
        return 0 < tally.passed < tally.runs


def judge(runs: Runs, allowed: Mapping[str, str]) -> dict[str, Any]:
    """Compare the arms case by case.

    Args:
        runs: the results, with failed cases repeated on every arm that has them.
        allowed: reason by ``class.method``, for published tests that may fail on the overlay.

    Returns:
        Plain JSON: ``missed`` (regressions; empty if the target is met), ``allowed``, ``stale_allowed``, ``flakes``,
        ``fails_everywhere``, ``only_on_stock``, ``only_on_overlay``, ``new_in_series``, ``gone_in_series``,
        ``did_not_run``.
    """
    missed: list[dict[str, str]] = []
    excused: list[dict[str, str]] = []
    for case in _cases(runs, STOCK, OVERLAY):
        if not runs.ever(STOCK, case) or not runs.has(OVERLAY, case) or runs.ever(OVERLAY, case):
            continue
        row = {
            "test": case, "stock": str(runs.tally(STOCK, case)), "overlay": str(runs.tally(OVERLAY, case)),
            "message": runs.message(OVERLAY, case),
        }  # fmt: skip
        reason = allowed.get(plain(case))
        if reason is None:
            missed.append({**row, "why": "passes on stock, not on the overlay"})
        elif not runs.ever(PATCHED, case) or runs.flaky(PATCHED, case):
            missed.append({**row, "why": "is allowed to fail, but the version in the series does not pass"})
        else:
            excused.append({**row, "reason": reason})
    for case in _cases(runs, PATCHED):
        if runs.never(PATCHED, case) and (runs.ever(STOCK, case) or not runs.has(STOCK, case)):
            row = {"test": case, "patched": str(runs.tally(PATCHED, case)), "message": runs.message(PATCHED, case)}
            missed.append({**row, "why": "the version in the series fails"})
    silent = _did_not_run(runs)
    missed += [{**row, "why": f"ran on {STOCK} but not here"} for row in silent if row["ran_on_stock"] == "yes"]
    missed += [{**row, "why": "a test class of the series did not run"} for row in silent if row["ran_on_stock"] == "-"]
    used = {plain(row["test"]) for row in excused}
    never_passed = [
        {"test": case, "message": runs.message(STOCK, case)}
        for case in _cases(runs, STOCK)
        if runs.never(STOCK, case) and not any(runs.ever(arm, case) for arm in (OVERLAY, PATCHED))
    ]
    flakes = [
        {"test": case, **{arm: str(runs.tally(arm, case)) for arm in ARMS if runs.has(arm, case)}}
        for case in _cases(runs, *ARMS)
        if any(runs.flaky(arm, case) for arm in ARMS)
        or (runs.never(STOCK, case) and any(runs.ever(arm, case) for arm in (OVERLAY, PATCHED)))
    ]
    return {
        "missed": missed,
        "allowed": excused,
        "stale_allowed": sorted(
            name for name in allowed if name not in used and any(plain(c) == name for c in _cases(runs, OVERLAY))
        ),
        "flakes": flakes,
        "fails_everywhere": never_passed,
        "only_on_stock": [c for c in _cases(runs, STOCK) if not runs.has(OVERLAY, c) and _ran(runs, OVERLAY, c)],
        "only_on_overlay": [c for c in _cases(runs, OVERLAY) if not runs.has(STOCK, c) and _ran(runs, STOCK, c)],
        "new_in_series": [c for c in _cases(runs, PATCHED) if not runs.has(STOCK, c)],
        "gone_in_series": [c for c in _cases(runs, STOCK) if not runs.has(PATCHED, c) and _ran(runs, PATCHED, c)],
        "did_not_run": silent,
    }


def _cases(runs: Runs, *arms: str) -> list[str]:
    names = {case.name for arm in arms for result in runs.first[arm].values() for case in result.cases}
    return sorted(names)


def _ran(runs: Runs, arm: str, case: str) -> bool:
    """Return whether the case's class completed on the arm."""
    result = runs.first[arm].get(_owner(case))
    return result is not None and not result.error


def _owner(case: str) -> str:
    return plain(case).rpartition(".")[0].split("$")[0]


def _did_not_run(runs: Runs) -> list[dict[str, str]]:
    rows = []
    for arm in ARMS:
        for name, result in sorted(runs.first[arm].items()):
            if result.error:
                stock = runs.first[STOCK].get(name)
                ran = "-" if stock is None else "no" if stock.error else "yes"
                rows.append({"test": name, "arm": arm, "message": result.error, "ran_on_stock": ran})
    return rows


def totals(results: Iterable[ClassResult]) -> dict[str, Any]:
    """Return the sums of the classes' counts and durations."""
    rows: Sequence[dict[str, Any]] = [result.figures() for result in results]
    keys = ("tests", "failures", "errors", "skipped", "seconds")
    return {"classes": len(rows), **{key: round(sum(row[key] for row in rows), 2) for key in keys}}
