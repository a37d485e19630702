"""The verdict of a checker: valid, invalid, or unknown where the evidence is broken; broken evidence never passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Valid = Literal["true", "false", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """What a checker found.

    Attributes:
        checker: its name.
        valid: the verdict.
        because: what decided it, one line a reason; empty only when valid.
    """

    checker: str
    valid: Valid
    because: tuple[str, ...] = ()

    @staticmethod
    def of(checker: str, *, wrong: Iterable[str] = (), missing: Iterable[str] = ()) -> Verdict:
        """Invalid if anything is wrong, else unknown if evidence is missing, else valid."""
        against, gaps = tuple(wrong), tuple(missing)
        if against:
            return Verdict(checker, "false", against + gaps)
        return Verdict(checker, "unknown", gaps) if gaps else Verdict(checker, "true")


def join(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict of many: the worst of them, with all reasons; none at all is unknown."""
    found = tuple(verdicts)
    reasons = tuple(f"{verdict.checker}: {reason}" for verdict in found for reason in verdict.because)
    for valid in ("false", "unknown"):
        if any(verdict.valid == valid for verdict in found):
            return Verdict("all", valid, reasons)
    return Verdict("all", "true") if found else Verdict("all", "unknown", ("no checker ran",))
