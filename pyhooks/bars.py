"""Bars of speed: a figure against its limit is met, missed, or unknown if others used the machine meanwhile.

A whole run has a bar of its own, in minutes; it is told and decides no exit status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["met", "missed", "unknown"]
# CPUs in use by others from which on a figure above its limit may be theirs.
MOST_OTHERS = 0.05


@dataclass(frozen=True)
class Bar:
    """What a figure may be at most.

    Attributes:
        name: what is measured.
        limit: the most that it may be.
        unit: of both.
        value: what was measured; None if it was not.
        others: CPUs that others had in use meanwhile, of those that the figure is about.
    """

    name: str
    limit: float
    unit: str
    value: float | None
    others: float

    @property
    def outcome(self) -> Outcome:
        """Met whatever else the machine did; missed only if it did nothing else."""
        if self.value is None:
            return "unknown"
        if self.value <= self.limit:
            return "met"
        return "unknown" if self.others > MOST_OTHERS else "missed"

    @property
    def text(self) -> str:
        """For people."""
        value = "not measured" if self.value is None else f"{self.value:.3g} {self.unit}"
        why = f"; others had {self.others:.2f} CPUs in use meanwhile"
        told = why if self.outcome == "unknown" and self.value is not None else ""
        return f"{self.outcome.upper()}: {self.name}: {value}, at most {self.limit:g} {self.unit}{told}"

    def as_json(self) -> dict[str, Any]:
        """As plain JSON, with the outcome."""
        return asdict(self) | {"outcome": self.outcome}


def status(bars: Sequence[Bar]) -> int:
    """The exit status of a command that has measured them: 1 if one was missed, 2 if one is unknown, else 0."""
    outcomes = {bar.outcome for bar in bars}
    return 1 if "missed" in outcomes else 2 if "unknown" in outcomes else 0


def of_run(minutes: float | None, took_s: float, *, whole: bool = True) -> dict[str, Any] | None:
    """What a run may take, what it took, and whether that is met; None if there is no bar.

    Args:
        minutes: the bar.
        took_s: from begin to end, in seconds.
        whole: it ran in one go; of one that was interrupted and went on nothing is known.

    Returns:
        ``minutes``, ``took_min``, and ``met``, which is None if it is unknown.
    """
    if minutes is None:
        return None
    took_min = took_s / 60
    return {"minutes": minutes, "took_min": round(took_min, 1), "met": took_min <= minutes if whole else None}


def of_run_text(bar: Mapping[str, Any]) -> str:
    """A bar of a run in words."""
    head = f"bar of {bar['minutes']:g} minutes"
    if bar["met"] is None:
        return f"{head}: unknown, since the run was interrupted and went on"
    return f"{head}: {'met' if bar['met'] else 'missed'}, it took {bar['took_min']:.1f}"
