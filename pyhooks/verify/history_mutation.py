"""Mutation test of the checkers: plant violations in recorded histories, and require that checkers find each of them.

A history is the ``history.jsonl`` of a system test, with its ``verdicts.json`` beside it. Each violation of
``pyhooks.verify.history_violations`` is planted in each history to which it applies. It is *found* if at least one
checker returns false, and none whose claim it contradicts returns true. A history that a checker refutes as it was
recorded, such as that of a control, is not mutated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.registry import CHECKERS
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_json
from pyhooks.history.event_log import Event, History
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory, Violation

FILE = "history.jsonl"
VERDICTS = "verdicts.json"
FOUND, MISSED, TRUSTED = "found", "missed", "wrongly true"
# Verdicts by checker.
Verdicts = Mapping[str, str]


@dataclass(frozen=True)
class Planting:
    """A violation planted in a history."""

    history: str
    violation: str
    round: int  # number of the round, each of which draws other victims
    verdicts: Verdicts  # of the checkers that did not refute the history without it
    trusted: tuple[str, ...]  # checkers whose claim it contradicts, and that return true all the same

    @property
    def status(self) -> str:
        """Result: found, missed, or wrongly true."""
        if self.trusted:
            return TRUSTED
        return FOUND if "false" in self.verdicts.values() else MISSED


@dataclass(frozen=True)
class JudgedHistory:
    """A history as it was recorded."""

    name: str
    events: int  # number of events
    verdicts: Verdicts
    stored: Verdicts  # verdicts that its test stored; empty if it stored none

    @property
    def differing(self) -> tuple[str, ...]:
        """Checkers that now return another verdict than was stored."""
        return tuple(name for name, valid in sorted(self.stored.items()) if self.verdicts.get(name, valid) != valid)

    @property
    def refuted(self) -> tuple[str, ...]:
        """Checkers that return false."""
        return tuple(sorted(name for name, valid in self.verdicts.items() if valid == "false"))


@dataclass
class MutationMatrix:
    """Results of all violations in all histories."""

    seed: int
    rounds: int
    violations: Sequence[Violation]
    histories: list[JudgedHistory] = field(default_factory=list)
    plantings: list[Planting] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether something was planted, all of it was found, and all histories kept their stored verdicts."""
        kept = not any(history.differing for history in self.histories)
        return bool(self.plantings) and kept and all(one.status == FOUND for one in self.plantings)

    def of(self, violation: str) -> list[Planting]:
        """Return the plantings of a violation."""
        return [one for one in self.plantings if one.violation == violation]

    def cells(self, violation: str) -> dict[str, dict[str, int]]:
        """Return how often each checker returned each verdict with a violation."""
        found: dict[str, dict[str, int]] = {}
        for planting in self.of(violation):
            for checker, valid in planting.verdicts.items():
                counts = found.setdefault(checker, {})
                counts[valid] = counts.get(valid, 0) + 1
        return {name: found[name] for name in CHECKERS if name in found}

    def summary(self) -> dict[str, Any]:
        """Return all results, for JSON."""
        planted = {one.violation for one in self.plantings}
        finding = {checker for one in self.plantings for checker, valid in one.verdicts.items() if valid == "false"}
        return {
            "passed": self.passed,
            "seed": self.seed,
            "rounds": self.rounds,
            "planted": len(self.plantings),
            "found": sum(one.status == FOUND for one in self.plantings),
            "histories": {history.name: self._history_summary(history) for history in self.histories},
            "matrix": {violation.name: self._row(violation) for violation in self.violations},
            # violations that apply to no history, checkers that found none, and checkers that no violation concerns
            "not_applicable": [one.name for one in self.violations if one.name not in planted],
            "finding_nothing": [name for name in CHECKERS if name not in finding],
            "without_violation": [
                name for name in CHECKERS if not any(name in violation.breaks for violation in VIOLATIONS)
            ],
        }

    def _history_summary(self, history: JudgedHistory) -> dict[str, Any]:
        plantings = [one for one in self.plantings if one.history == history.name]
        return {
            "events": history.events,
            "violations": len({one.violation for one in plantings}),
            "refuted": list(history.refuted),
            "unknown": sorted(name for name, valid in history.verdicts.items() if valid == "unknown"),
            "differing": list(history.differing),
        }

    def _row(self, violation: Violation) -> dict[str, Any]:
        """Return the row of a violation: how often it was planted and found, and each checker's verdicts but true."""
        plantings = self.of(violation.name)
        cells = {
            valid: {checker: counts[valid] for checker, counts in self.cells(violation.name).items() if valid in counts}
            for valid in ("false", "unknown")
        }
        not_found = {
            status.replace(" ", "_"): names
            for status in (MISSED, TRUSTED)
            if (names := sorted({one.history for one in plantings if one.status == status}))
        }
        return {
            "about": violation.about,
            **({"anomaly": violation.anomaly} if violation.anomaly else {}),
            "breaks": sorted(violation.breaks),
            "planted": len(plantings),
            "found": sum(one.status == FOUND for one in plantings),
            **cells,
            **not_found,
        }


def select(names: Sequence[str]) -> tuple[Violation, ...]:
    """Return the violations with these names, or all of them.

    Raises:
        RackgateError: a name is unknown.
    """
    known = {violation.name: violation for violation in VIOLATIONS}
    if unknown := [name for name in names if name not in known]:
        raise RackgateError(f"--only {unknown[0]}: one of {', '.join(known)}")
    return tuple(violation for violation in VIOLATIONS if not names or violation.name in names)


def find_histories(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and the histories of system tests below the folders, in order.

    Raises:
        RackgateError: a path does not exist.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise RackgateError(f"{path}: no such file or folder")
        below = sorted(path.rglob(f"results/*/*/*/**/{FILE}"))
        # ducktape links its latest session
        found += [path] if path.is_file() else [one for one in below if not _is_linked(one)]
    return found


def _is_linked(path: Path) -> bool:
    """Return whether a history is below the link to a session."""
    return any(parent.parent.name == "results" and parent.is_symlink() for parent in path.parents)


def history_name(path: Path) -> str:
    """Return ``Class.test`` for the history of a system test, else its path."""
    parts = path.resolve().parts
    # results/SESSION/Class/test/1/history.jsonl, perhaps with parameters
    if "results" in parts:
        after = parts[len(parts) - parts[::-1].index("results") : -1]
        if len(after) > 2:
            return ".".join(after[1:3] if after[-1] == "1" else after[1:])
    return str(path)


def mutate(
    paths: Sequence[Path],
    *,
    seed: int,
    rounds: int = 1,
    violations: Sequence[Violation] = VIOLATIONS,
    progress: Callable[[str], None] = lambda _: None,
) -> MutationMatrix:
    """Plant violations in histories, each with ``rounds`` victims, and run the checkers that apply.

    ``seed`` is the random seed of the victims; ``progress`` is called with a line for each history.

    Raises:
        RackgateError: a history can't be read, or an event lacks the data its op requires.
    """
    matrix = MutationMatrix(seed, rounds, violations)
    for path in paths:
        events = tuple(History(path).events())
        recorded = JudgedHistory(history_name(path), len(events), _judged(events), _stored(path.with_name(VERDICTS)))
        matrix.histories.append(recorded)
        if recorded.refuted:
            progress(f"{recorded.name}: not mutated, refuted by {', '.join(recorded.refuted)}")
            continue
        planted = list(_plant_all(recorded, events, matrix))
        matrix.plantings += planted
        applied = len({one.violation for one in planted})
        progress(f"{recorded.name}: {applied} of {len(violations)} violations apply")
    return matrix


def _plant_all(recorded: JudgedHistory, events: Sequence[Event], matrix: MutationMatrix) -> Iterator[Planting]:
    history = StoredHistory(events)
    for violation, number in product(matrix.violations, range(matrix.rounds)):
        # a text as the seed: the same victims, whichever violations and rounds there are beside this one
        choice = random.Random(f"{matrix.seed} {number} {violation.name} {recorded.name}")  # noqa: S311 - no secret
        mutated = violation.plant(history, choice)
        if mutated is None:
            continue
        verdicts = _judged(mutated, recorded.verdicts)
        trusted = tuple(
            name
            for name in sorted(violation.breaks)
            if recorded.verdicts.get(name) == "true" and verdicts.get(name) == "true"
        )
        yield Planting(recorded.name, violation.name, number, verdicts, trusted)


def _judged(events: Sequence[Event], names: Verdicts | None = None) -> dict[str, str]:
    """Return the verdicts of all checkers that apply, or of those with a verdict in ``names``."""
    return {verdict.checker: verdict.valid for verdict in judge(events, tuple(names or ()))[0]}


def _stored(path: Path) -> dict[str, str]:
    """Return the verdicts that a test stored, or none.

    Raises:
        RackgateError: the file has no verdicts.
    """
    if not path.is_file():
        return {}
    document = read_json(path, "'rackgate system run' writes it")
    try:
        return {str(verdict["checker"]): str(verdict["valid"]) for verdict in document}
    except (TypeError, KeyError) as error:
        raise RackgateError(f"{path}: has no verdicts of a system test") from error
