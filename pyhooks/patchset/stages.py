"""Progress display of a long command: the current stage, its elapsed time, and its duration in the previous run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object, write_json
from pyhooks.core.terminal import show_progress


class Stages:
    """Stages of one command, shown on standard error: live on a terminal, otherwise one line for each stage.

    The file ``memory`` stores the durations as estimates for the next run.
    """

    def __init__(self, count: int, memory: Path | None, *, quiet: bool = False) -> None:
        self._count = count
        self._memory = memory
        self._console = Console(stderr=True, quiet=quiet)
        self._number = 0
        self._before = durations(self._memory) if self._memory else {}
        self._now: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Run the body as the next stage; call the yielded function with the current activity to show it."""
        self._number += 1
        usual_s = self._before.get(name)
        estimate = f"of about {usual_s:.0f} s" if usual_s and usual_s > 2 else ""
        label = f"{self._number}/{self._count} {name}"
        started = time.monotonic()
        with show_progress(self._console, label, estimate=estimate) as update:
            yield lambda activity: update(description=f"{label}: {activity}")
        duration_s = time.monotonic() - started
        self._now[name] = duration_s
        self._console.print(f"{label}: {duration_s:.1f} s", highlight=False)

    def print_line(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def remember(self) -> None:
        """Store the durations of a successful command; the next run shows them as estimates."""
        if self._memory:
            write_json(self._memory, {**self._before, **self._now})


def durations(memory: Path) -> dict[str, float]:
    """Return the stored durations in seconds by name, or nothing if the file is unreadable: they are only estimates."""
    try:
        found = read_object(memory, "it stores durations")
    except RackgateError:
        return {}
    return {name: float(value) for name, value in found.items() if type(value) in (int, float)}
