"""Performance targets: each is met, missed, or unknown if other processes used the machine during the measurement.

A whole run has a target of its own, in minutes. It is reported but does not affect the exit status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["met", "missed", "unknown"]
# If others used more CPUs than this, a missed limit may be due to them.
MAX_OTHERS = 0.05


@dataclass(frozen=True)
class Target:
    """Target for a measured value: an upper limit, or a lower one with ``at_least``, in ``unit``.

    Attributes:
        value: measured value; None if it was not measured.
        others: mean number of the measured CPUs that other processes used; their load can only worsen the value.
        unjudged: why the value can't be compared with the limit; empty if it can.
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
        """Result of the comparison; a missed limit counts as missed only if others did not load the machine."""
        if self.value is None or self.unjudged:
            return "unknown"
        if self.value >= self.limit if self.at_least else self.value <= self.limit:
            return "met"
        return "unknown" if self.others > MAX_OTHERS else "missed"

    @property
    def text(self) -> str:
        """One line for the user: outcome, value, limit and the reason for an unknown outcome."""
        value = "not measured" if self.value is None else f"{_figure(self.value)} {self.unit}"
        why = self.unjudged or f"others had {self.others:.2f} CPUs in use meanwhile"
        reason = f"; {why}" if self.outcome == "unknown" and (self.unjudged or self.value is not None) else ""
        bound = "at least" if self.at_least else "at most"
        return f"{self.outcome.upper()}: {self.name}: {value}, {bound} {self.limit:,g} {self.unit}{reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the target as a JSON object, including the outcome."""
        return asdict(self) | {"outcome": self.outcome}


def _figure(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def status(targets: Sequence[Target]) -> int:
    """Return the exit status of a command with these targets: 1 if one is missed, else 2 if one is unknown, else 0."""
    outcomes = {target.outcome for target in targets}
    return 1 if "missed" in outcomes else 2 if "unknown" in outcomes else 0


def of_run(minutes: float | None, duration_s: float | None, *, uninterrupted: bool = True) -> dict[str, Any] | None:
    """Compare the duration of a run with its target in minutes; return None if it has no target.

    The duration from start to end is None if it is unknown. The outcome of a run that was interrupted is unknown.

    Returns:
        ``minutes``, ``duration_min`` and ``met``; unknown values are None.
    """
    if minutes is None:
        return None
    if duration_s is None:
        return {"minutes": minutes, "duration_min": None, "met": None}
    duration_min = duration_s / 60
    return {
        "minutes": minutes,
        "duration_min": round(duration_min, 1),
        "met": duration_min <= minutes if uninterrupted else None,
    }


def of_run_text(target: Mapping[str, Any]) -> str:
    """Describe the target of a run and its outcome in one line."""
    head = f"target of {target['minutes']:g} minutes"
    if target["duration_min"] is None:
        return f"{head}: unknown, since the clock was set back"
    if target["met"] is None:
        return f"{head}: unknown, since the run was interrupted and went on"
    return f"{head}: {'met' if target['met'] else 'missed'}, it took {target['duration_min']:.1f}"
