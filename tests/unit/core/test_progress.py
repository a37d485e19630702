"""Progress bars on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pyhooks.core.terminal import show_progress, track_progress


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_on_a_terminal(terminal: bool) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=100)
    with show_progress(console, "compile", 4, estimate="of about 30 s") as update:
        update(completed=1, description="compile: core", estimate="of about 40 s")
    for part in ("compile: core", "of about 40 s"):
        assert (part in output.getvalue()) == terminal
    assert list(track_progress([3, 1, 2], console, "weigh")) == [3, 1, 2]
    assert ("weigh" in output.getvalue()) == terminal


def test_quiet_progress_shows_nothing() -> None:
    output = io.StringIO()
    with show_progress(Console(file=output, force_terminal=True, quiet=True), "compile") as update:
        update(description="compile: core")
    assert output.getvalue() == ""
