"""Verdict of a checker: valid, invalid, or unknown if evidence is broken. Broken evidence never passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Valid = Literal["true", "false", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """Result of a checker."""

    checker: str
    valid: Valid
    because: tuple[str, ...] = ()  # reasons for the verdict, one line each; empty only if valid
    notes: tuple[str, ...] = ()  # observations that do not affect the verdict, such as allowed duplicates

    @staticmethod
    def of(
        checker: str, *, wrong: Iterable[str] = (), missing: Iterable[str] = (), notes: Iterable[str] = ()
    ) -> Verdict:
        """Return invalid if anything is wrong, else unknown if evidence is missing, else valid."""
        errors, gaps = tuple(wrong), tuple(missing)
        valid: Valid = "false" if errors else "unknown" if gaps else "true"
        return Verdict(checker, valid, errors + gaps, tuple(notes))


@dataclass
class Findings:
    """Reasons collected by a checker: ``wrong`` for invalid, ``missing`` for unknown, and notes."""

    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, *, certain: bool) -> None:
        """Add a reason to ``wrong`` if it is certain, else to ``missing``."""
        (self.wrong if certain else self.missing).append(reason)

    def verdict(self, checker: str, *, unique: bool = False) -> Verdict:
        """Return the verdict; with ``unique``, evidence missing for many records for one reason is reported once."""
        missing = dict.fromkeys(self.missing) if unique else self.missing
        return Verdict.of(checker, wrong=self.wrong, missing=missing, notes=self.notes)


def join(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of the verdicts with all reasons and notes; unknown if there is no verdict."""
    all_verdicts = tuple(verdicts)
    reasons = tuple(f"{verdict.checker}: {reason}" for verdict in all_verdicts for reason in verdict.because)
    notes = tuple(f"{verdict.checker}: {note}" for verdict in all_verdicts for note in verdict.notes)
    for valid in ("false", "unknown"):
        if any(verdict.valid == valid for verdict in all_verdicts):
            return Verdict("all", valid, reasons, notes)
    return Verdict("all", "true", (), notes) if all_verdicts else Verdict("all", "unknown", ("no checker ran",))
