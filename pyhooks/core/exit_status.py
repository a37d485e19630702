"""How a command ends that an exception ends: one line and an exit status, and the traceback for who asks for it.

Python itself ends with 1 then, which says here that something was checked and found wrong.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import plain, visible

# Set by "rackgate --debug", so that it reaches what runs in a lab, too.
DEBUG_VARIABLE = "RACKGATE_DEBUG"
UNFORESEEN_STATUS = 2


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def tell(error: Exception, console: Console) -> int:
    """Tells in one line on standard error why a command ends; returns its exit status.

    Args:
        error: that ends it.
        console: for what there is beside the line, if it is one that was foreseen.
    """
    if debugging():
        traceback.print_exception(error)
    line = one_line(str(error) if isinstance(error, RackgateError) else unforeseen(error))
    ours = Console(stderr=True, soft_wrap=True, highlight=False)
    ours.print("[bold red]error:[/bold red]", end=" ")
    # one line, whatever is in the words of a broker or a file
    ours.print(plain(" ".join(line.split("\n"))))
    if not isinstance(error, RackgateError):
        return UNFORESEEN_STATUS
    if error.detail:
        console.print(Text("\n".join(visible(line) for line in error.detail.expandtabs().split("\n"))))
    return error.exit_status


def one_line(text: str) -> str:
    """Return a text in one line: control characters, which names of files may contain, are escaped."""
    return "".join(one if one.isprintable() else " " if one == "\n" else repr(one)[1:-1] for one in text)


def unforeseen(error: Exception) -> str:
    """An exception that nobody foresaw, in one line: its kind, its words, the place in our code, how to see more.

    Of an operating system error with a path: the path and the reason in place of kind and words.
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror} ({_place(error)}rackgate --debug shows the traceback)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[:1]
    # Spark and py4j tell what happened further down
    words += [line for line in lines[1:] if "Error: " in line or "Exception: " in line][:1]
    told = f"{type(error).__name__}: {' '.join(words)}" if words else type(error).__name__
    return f"{told} ({_place(error)}rackgate --debug shows the traceback)"


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    rooms = [paths.REPO / room for room in ("bench", "ducktape_tests", "pyhooks")]
    own = [one for one in frames if any(Path(one.filename).is_relative_to(room) for room in rooms)]
    if not (found := (own or frames)[-1:]):
        return ""
    (frame,) = found
    return f"{Path(frame.filename).name}:{frame.lineno}; "
