"""Progress on the terminal: current step, share of the whole, and remaining time according to the plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

from pyhooks.core.repeated_calls import calling_every
from pyhooks.core.terminal import show_progress

TICK_S = 0.25
# Without a terminal, activities are printed at most this often.
PRINT_S = 60.0


class RunSteps:
    """Steps of a run in their order.

    ``planned_s`` has the expected duration of each step, ``later_s`` is that of what follows them, in seconds.
    """

    def __init__(self, planned_s: Mapping[str, float], console: Console, later_s: float = 0.0) -> None:
        self._planned = dict(planned_s)
        self._console = console
        self._total_s = sum(planned_s.values()) + later_s
        self._before_s = 0.0
        self._name = ""
        self._begun = self._printed = time.monotonic()
        self._share: float | None = None
        self.duration_s: dict[str, float] = {}

    @contextmanager
    def shown(self) -> Iterator[RunSteps]:
        """Show the progress bar while the block runs; without a terminal print one line per step."""
        with show_progress(self._console, "", self._total_s, estimate=_left(self._total_s)) as self._update:
            yield self

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run the block as the step ``name``."""
        planned_s, begun = self._planned[name], time.monotonic()
        self._name, self._begun, self._printed, self._share = name, begun, begun, None
        if not self._console.is_terminal:
            left = clock_text(self._total_s - self._before_s)
            self._console.print(f"{name} (about {planned_s:.0f} s; about {left} to the end)", highlight=False)
        self._update(description=name)
        try:
            with calling_every(TICK_S, lambda: self._show(self._before_s + self._done_s()), "progress"):
                yield
        finally:
            self.duration_s[name] = time.monotonic() - begun
            self._before_s += planned_s
            self._show(self._before_s)

    def tell(self, text: str, share: float | None = None) -> None:
        """Show the current activity of the step, and its completed share if that is known better than by time.

        Without a terminal an activity is printed at most once a minute.
        """
        self._share = share
        self._update(description=text)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed >= PRINT_S:
            self._printed = now
            left = clock_text(self._total_s - self._before_s - self._done_s())
            self._console.print(f"  {text} (about {left} to the end)", highlight=False)

    def _done_s(self) -> float:
        """Return the completed part of the step, in seconds of its plan."""
        planned_s = self._planned[self._name]
        if self._share is not None:
            return planned_s * self._share
        # A step that takes longer than planned does not use the share of the next one.
        return min(planned_s, time.monotonic() - self._begun)

    def _show(self, done_s: float) -> None:
        self._update(completed=done_s, estimate=_left(self._total_s - done_s))


def _left(seconds: float) -> str:
    return f"about {clock_text(seconds)} left"


def clock_text(seconds: float | None) -> str:
    """Format seconds as ``2:05``, and None as ``an unknown time``."""
    if seconds is None:
        return "an unknown time"
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
