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
    """What a figure may be at most, or must be at least.

    Attributes:
        name: what is measured.
        limit: the most that it may be, or the least.
        unit: of both.
        value: what was measured; None if it was not.
        others: CPUs that others had in use meanwhile, of those that the figure is about; they can but worsen it.
        at_least: whether the limit is the least.
        unjudged: why the value says nothing, if so.
    """

    name: str
    limit: float
    unit: str
    value: float | None
    others: float
    at_least: bool = False
    unjudged: str = ""

    @property
    def outcome(self) -> Outcome:
        """Met whatever else the machine did; missed only if it did nothing else."""
        if self.value is None or self.unjudged:
            return "unknown"
        if self.value >= self.limit if self.at_least else self.value <= self.limit:
            return "met"
        return "unknown" if self.others > MOST_OTHERS else "missed"

    @property
    def text(self) -> str:
        """For people."""
        value = "not measured" if self.value is None else f"{_figure(self.value)} {self.unit}"
        why = self.unjudged or f"others had {self.others:.2f} CPUs in use meanwhile"
        told = f"; {why}" if self.outcome == "unknown" and (self.unjudged or self.value is not None) else ""
        bound = "at least" if self.at_least else "at most"
        return f"{self.outcome.upper()}: {self.name}: {value}, {bound} {self.limit:,g} {self.unit}{told}"

    def as_json(self) -> dict[str, Any]:
        """As plain JSON, with the outcome."""
        return asdict(self) | {"outcome": self.outcome}


def _figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def status(bars: Sequence[Bar]) -> int:
    """The exit status of a command that has measured them: 1 if one was missed, 2 if one is unknown, else 0."""
    outcomes = {bar.outcome for bar in bars}
    return 1 if "missed" in outcomes else 2 if "unknown" in outcomes else 0


def of_run(minutes: float | None, took_s: float | None, *, whole: bool = True) -> dict[str, Any] | None:
    """What a run may take, what it took, and whether that is met; None if there is no bar.

    Args:
        minutes: the bar.
        took_s: from begin to end, in seconds; None if it is unknown.
        whole: it ran in one go; of one that was interrupted and went on nothing is known.

    Returns:
        ``minutes``, ``took_min``, and ``met``; None for what is unknown.
    """
    if minutes is None:
        return None
    if took_s is None:
        return {"minutes": minutes, "took_min": None, "met": None}
    took_min = took_s / 60
    return {"minutes": minutes, "took_min": round(took_min, 1), "met": took_min <= minutes if whole else None}


def of_run_text(bar: Mapping[str, Any]) -> str:
    """A bar of a run in words."""
    head = f"bar of {bar['minutes']:g} minutes"
    if bar["took_min"] is None:
        return f"{head}: unknown, since the clock was set back"
    if bar["met"] is None:
        return f"{head}: unknown, since the run was interrupted and went on"
    return f"{head}: {'met' if bar['met'] else 'missed'}, it took {bar['took_min']:.1f}"
