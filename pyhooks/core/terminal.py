"""Terminal output: progress, and external text such as rack, topic and host names or broker errors.

External text may contain rich markup, or control characters that move the cursor or change the colour or order of text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TypeVar

import typer
from rich.console import Console
from rich.text import Text

LENGTH_MAX = 2000
T = TypeVar("T")


def visible(text: str, *, length_max: int = LENGTH_MAX) -> str:
    """Return text on one line, with each non-printable character replaced by its Python escape.

    Newlines and directional marks count as non-printable. In text of more than ``length_max`` characters, ``…``
    replaces the middle.
    """
    if len(text) > length_max:
        half = (length_max - 1) // 2
        text = f"{text[: length_max - 1 - half]}…{text[len(text) - half :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def plain(text: str, style: str = "", *, length_max: int = LENGTH_MAX) -> Text:
    """Return text that rich prints literally: neither markup nor emoji codes nor control characters take effect."""
    return Text(visible(text, length_max=length_max), style=style)


def step_line(text: str, seconds: float) -> Text:
    """Return the output line of a finished step: its text and duration."""
    return Text.assemble("  ", plain(text), (f" {seconds:.1f} s", "dim"))


def report_console(width: int, *, stderr: bool = False) -> Console:
    """Return a console for tables: as wide as the terminal, or ``width`` columns without a terminal."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=width)


def confirm(question: str, option: str) -> bool:
    """Ask a yes-or-no question on standard error; without a terminal the answer is no, and ``option`` is named."""
    if not sys.stdin.isatty():
        typer.echo(f"{question} There is no terminal to ask: use {option}", err=True)
        return False
    try:
        return typer.confirm(question, default=False, err=True)
    except typer.Abort:
        return False


@contextmanager
def show_progress(
    console: Console, description: str, total: float | None = None, *, estimate: str | None = None
) -> Iterator[Callable[..., None]]:
    """Show a progress bar while the block runs; without a terminal nothing is shown.

    Args:
        console: console to show it on.
        description: what is being done.
        total: amount of work, or None if unknown.
        estimate: expected remaining or total time as text; None derives the remaining time from the speed so far.

    Yields:
        Function that updates ``completed``, ``description`` or ``estimate``, given by keyword.
    """
    # imported late because most commands show no progress
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = TimeRemainingColumn() if estimate is None else TextColumn("{task.fields[estimate]}")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), left)
    live = console.is_terminal and not console.quiet
    with Progress(*columns, console=console, transient=True, disable=not live) as progress:
        task = progress.add_task(description, total=total, estimate=estimate)
        yield partial(progress.update, task)


def track_progress(items: Sequence[T], console: Console, description: str) -> Iterator[T]:
    """Return an iterator over ``items`` that shows a progress bar on a terminal."""
    with show_progress(console, description, len(items)) as update:
        for number, item in enumerate(items, 1):
            yield item
            update(completed=number)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Write to standard output within the block; the block ends silently if the reader closes the pipe (``| head``)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # the interpreter must not flush the remaining buffer again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_report(width: int, tables: Callable[[Console], None], json_parts: Iterable[str] | None = None) -> None:
    """Write a report to standard output, where its reader may leave.

    Args:
        width: columns of the tables, where there is no terminal.
        tables: prints the report as tables.
        json_parts: the report as JSON, in parts, to be written instead.
    """
    with reader_may_leave():
        if json_parts is not None:
            sys.stdout.writelines(chain(json_parts, "\n"))
            return
        # rich would end the process with its own exit status if the reader closed the pipe
        console = report_console(width)
        with console.capture() as printed:
            tables(console)
        sys.stdout.write(printed.get())
