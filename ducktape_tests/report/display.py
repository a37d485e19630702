"""Terminal output of a run of system tests: a progress bar, or a line when a test starts and ends; a final table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ducktape_tests.plan import SuiteTest, estimate
from ducktape_tests.results import Outcome, Result
from pyhooks.core.terminal import plain, show_progress

COLOURS: Mapping[Outcome, str] = {"pass": "green", "fail": "bold red", "unknown": "yellow", "not run": "bold red"}
MAX_REASONS = 3


class Display:
    """Progress display of a run."""

    def __init__(self, console: Console, tests: Sequence[SuiteTest], jobs: int) -> None:
        self._console, self._jobs = console, jobs
        self._waiting, self._count = list(tests), len(tests)
        self._total = sum(test.minutes for test in tests)
        self._ended = 0

    @contextmanager
    def shown(self) -> Iterator[Display]:
        """Show the progress bar during the block, if there is a terminal."""
        with show_progress(self._console, self._done(), self._total, estimate=self._left({})) as self._update:
            yield self

    def test_started(self, test: SuiteTest) -> None:
        """Print a line, unless there is a progress bar."""
        self._waiting.remove(test)
        if not self._console.is_terminal:
            self._print(f"started {test.id} on {test.topology} (about {test.minutes:g} min)")

    def test_ended(self, test: SuiteTest, test_results: Sequence[Result]) -> None:
        """Print a line for each result."""
        self._ended += 1
        for result in test_results:
            took = "" if result.seconds is None else f" ({minutes(result.seconds)} min)"
            colour = COLOURS[result.outcome]
            self._console.print(
                f"[{colour}]{result.outcome:<7}[/] {escape(result.id)} on {test.topology}{took}",
                highlight=False,
                soft_wrap=True,
            )
            if result.outcome != "pass":
                for reason in result.reasons[:MAX_REASONS]:
                    self._print(f"        {reason}")

    def update(self, running: Mapping[SuiteTest, float]) -> None:
        """Advance the bar by planned time; a test that takes longer does not use the share of other tests."""
        if not self._console.is_terminal:
            return
        completed = self._total - sum(test.minutes for test in [*self._waiting, *running])
        completed += sum(min(test.minutes, seconds / 60) for test, seconds in running.items())
        self._update(completed=completed, description=self._done(), estimate=self._left(running))

    def _done(self) -> str:
        return f"{self._ended} of {self._count} tests"

    def _left(self, running: Mapping[SuiteTest, float]) -> str:
        remaining = {test: max(0.1, test.minutes - seconds / 60) for test, seconds in running.items()}
        names = ", ".join(test.id.partition("::")[2] for test in running)
        return f"about {estimate(self._waiting, self._jobs, remaining):.0f} min left  [dim]{names}[/dim]"

    def _print(self, text: str) -> None:
        for line in text.split("\n"):
            self._console.print(plain(line), soft_wrap=True)


def minutes(seconds: float | None) -> str:
    """Format seconds as minutes with one digit, or a dash."""
    return "\N{EN DASH}" if seconds is None else f"{seconds / 60:.1f}"


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of all results: test, topology, outcome, minutes."""
    grid = Table(box=None, pad_edge=False)
    for head in ("test", "topology", "outcome"):
        grid.add_column(head, overflow="fold")
    grid.add_column("minutes", justify="right")
    for result in results:
        colour = COLOURS[result["outcome"]]
        grid.add_row(
            escape(result["id"]), result["topology"], f"[{colour}]{result['outcome']}[/]", minutes(result["seconds"])
        )
    return grid
