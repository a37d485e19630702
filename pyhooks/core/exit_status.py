"""Map exceptions to a one-line error message and an exit status; with ``--debug`` also print the traceback.

Python's own status for an uncaught exception is 1, which means a failed check here.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import plain, visible

# Set by "rackgate --debug"; as an environment variable it also reaches processes within a lab.
DEBUG_VARIABLE = "RACKGATE_DEBUG"
UNEXPECTED_STATUS = 2
# Name of daemon threads that may still be in Java code when a command ends.
JAVA_THREAD = "rackgate-java"


def debugging() -> bool:
    """Return whether tracebacks are to be printed."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def end_command(status: int) -> NoReturn:
    """End a command after its output is written; at once if a thread is still in Java code.

    A thread that returns from Java while the interpreter ends can crash or hang the process, which loses the status.
    """
    _exit_if_in_java(status)
    raise typer.Exit(status)


def end_process(status: int) -> NoReturn:
    """End the process after an error, in the same way."""
    _exit_if_in_java(status)
    sys.exit(status)


def _exit_if_in_java(status: int) -> None:
    if any(thread.name == JAVA_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def report_error(error: Exception, console: Console) -> int:
    """Print an error in one line on standard error, its ``detail`` on the console; return the exit status."""
    if debugging():
        traceback.print_exception(error)
    line = Console(stderr=True, soft_wrap=True, highlight=False)
    line.print("[bold red]error:[/bold red]", end=" ")
    # messages may contain text of a broker or file, with any characters
    line.print(plain(describe(error).replace("\n", " ")))
    if not isinstance(error, RackgateError):
        return UNEXPECTED_STATUS
    if error.detail:
        console.print(Text("\n".join(visible(line) for line in error.detail.expandtabs().split("\n"))))
    return error.exit_status


def describe(error: Exception) -> str:
    """Return the message of a RackgateError; of another error class, message, place in our code and a hint to --debug.

    An operating system error with a path is described by path and reason instead of class and message.
    """
    if isinstance(error, RackgateError):
        return str(error)
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
    packages = [paths.REPO / package for package in ("bench", "ducktape_tests", "pyhooks")]
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(package) for package in packages)]
    last = (own or frames)[-1:]
    return "".join(f"{Path(frame.filename).name}:{frame.lineno}; " for frame in last)
