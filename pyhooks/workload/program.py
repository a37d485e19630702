"""Common parts of the workload programs: options, clean shutdown on a signal, and one-line error messages."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyhooks.core.errors import RackgateError


def topics_parser(name: str, description: str, more: str = "") -> argparse.ArgumentParser:
    """Create the argument parser with the options shared by all programs that work on topics.

    Args:
        name: name of the program's module in this package.
        description: description for --help.
        more: further arguments of the usage example.
    """
    module = f"python -m pyhooks.workload.{name}"
    example = f"Example: {module} --bootstrap $RACKGATE_BOOTSTRAP --topics aab,abc --history history.jsonl"
    parser = argparse.ArgumentParser(prog=module, description=description, epilog=f"{example} {more}".strip())
    parser.add_argument("--bootstrap", required=True, help="brokers, host:port,…")
    parser.add_argument("--topics", required=True, help="names, separated by commas")
    parser.add_argument("--history", required=True, type=Path, help="the file to which events are appended")
    return parser


class StopEvent(threading.Event):
    """Event that is set when a program must end, together with the stop events of its current work."""

    def __init__(self) -> None:
        super().__init__()
        self._stops: list[threading.Event] = []

    def set(self) -> None:
        """Set this event and all linked stop events."""
        super().set()
        for stop in self._stops:
            stop.set()

    @contextmanager
    def linked(self, *stops: threading.Event) -> Iterator[None]:
        """Link stop events to this one for the duration of the block; they are set at once if it is set already."""
        self._stops.extend(stops)
        try:
            if self.is_set():
                self.set()
            yield
        finally:
            for stop in stops:
                self._stops.remove(stop)


def stop_on_signals() -> StopEvent:
    """Return an event that SIGTERM and SIGINT set instead of ending the program; main thread only."""
    ended = StopEvent()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended


def run(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, StopEvent], object],
    arguments: Sequence[str] | None,
    *others: type[Exception],
) -> int:
    """Run a program until its work is done and return its exit status; SIGTERM and SIGINT set the stop event.

    Args:
        parser: parser of the program's arguments.
        work: called with the parsed arguments and the stop event.
        arguments: command-line arguments; by default those of this process.
        others: see ``run_reporting_errors``.
    """
    options = parser.parse_args(arguments)
    ended = stop_on_signals()
    return run_reporting_errors(lambda: work(options, ended), *others)


def run_reporting_errors(work: Callable[[], object], *others: type[Exception]) -> int:
    """Run a program and return its exit status: 0, or that of an error, which is printed as one line.

    Args:
        work: the program.
        others: further errors to report like ``RackgateError``; their status is 2 unless they define one.
    """
    expected: tuple[type[Exception], ...] = (RackgateError, *others)
    try:
        work()
    except expected as error:
        sys.stderr.write(f"error: {error}\n")
        return int(getattr(error, "exit_status", 2))
    return 0
