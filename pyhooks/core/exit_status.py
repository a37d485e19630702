"""Map exceptions to a one-line error message and an exit status; with ``--debug`` also print the traceback.

Python's own status for an uncaught exception is 1, which means a failed check here.
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

# Set by "rackgate --debug"; as an environment variable it also reaches processes within a lab.
DEBUG_VARIABLE = "RACKGATE_DEBUG"
UNFORESEEN_STATUS = 2


def debugging() -> bool:
    """Return whether tracebacks are to be printed."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def tell(error: Exception, console: Console) -> int:
    """Print an error in one line on standard error and return the exit status of the command.

    Args:
        error: the exception that ended the command.
        console: where to print the ``detail`` of a RackgateError.
    """
    if debugging():
        traceback.print_exception(error)
    line = one_line(str(error) if isinstance(error, RackgateError) else unforeseen(error))
    ours = Console(stderr=True, soft_wrap=True, highlight=False)
    ours.print("[bold red]error:[/bold red]", end=" ")
    # messages may contain text of a broker or file, with any characters
    ours.print(plain(" ".join(line.split("\n"))))
    if not isinstance(error, RackgateError):
        return UNFORESEEN_STATUS
    if error.detail:
        console.print(Text("\n".join(visible(line) for line in error.detail.expandtabs().split("\n"))))
    return error.exit_status


def one_line(text: str) -> str:
    """Return a text in one line, with control characters escaped; file names may contain them."""
    return "".join(one if one.isprintable() else " " if one == "\n" else repr(one)[1:-1] for one in text)


def unforeseen(error: Exception) -> str:
    """Describe an unexpected exception in one line: class, message, place in our code, and how to get the traceback.

    An operating system error with a path is described by path and reason instead of class and message.
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror} ({_place(error)}rackgate --debug shows the traceback)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    parts = lines[:1]
    # Spark and py4j report the cause in later lines of the message
    parts += [line for line in lines[1:] if "Error: " in line or "Exception: " in line][:1]
    message = f"{type(error).__name__}: {' '.join(parts)}" if parts else type(error).__name__
    return f"{message} ({_place(error)}rackgate --debug shows the traceback)"


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    rooms = [paths.REPO / room for room in ("bench", "ducktape_tests", "pyhooks")]
    own = [one for one in frames if any(Path(one.filename).is_relative_to(room) for room in rooms)]
    if not (found := (own or frames)[-1:]):
        return ""
    (frame,) = found
    return f"{Path(frame.filename).name}:{frame.lineno}; "
