"""What programs beside a run have in common: they end in good order when told to, and say in a line what is wrong."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyhooks.core.errors import RackgateError


def on_topics(name: str, description: str, more: str = "") -> argparse.ArgumentParser:
    """The options that a program on topics of a cluster has at least.

    Args:
        name: of its module in this package.
        description: what it does.
        more: further words of the example of its use.
    """
    module = f"python -m pyhooks.workload.{name}"
    example = f"Example: {module} --bootstrap $RACKGATE_BOOTSTRAP --topics aab,abc --history history.jsonl"
    parser = argparse.ArgumentParser(prog=module, description=description, epilog=f"{example} {more}".strip())
    parser.add_argument("--bootstrap", required=True, help="brokers, host:port,…")
    parser.add_argument("--topics", required=True, help="names, separated by commas")
    parser.add_argument("--history", required=True, type=Path, help="the file to which events are appended")
    return parser


class Ended(threading.Event):
    """Is set when a program is told to end, and so are the events that end what it is at then."""

    def __init__(self) -> None:
        super().__init__()
        self._stops: list[threading.Event] = []

    def set(self) -> None:
        """Sets it and what goes with it."""
        super().set()
        for stop in self._stops:
            stop.set()

    @contextmanager
    def sets(self, *stops: threading.Event) -> Iterator[None]:
        """Sets these as well for as long as this lasts, at once if it is set already."""
        self._stops.extend(stops)
        try:
            if self.is_set():
                self.set()
            yield
        finally:
            for stop in stops:
                self._stops.remove(stop)


def told_to_end() -> Ended:
    """Is set when a SIGTERM or SIGINT comes, which then end the program no more; for the main thread."""
    ended = Ended()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended


def status_of(work: Callable[[], object], *others: type[Exception]) -> int:
    """Works, and returns the exit status: 0, or that of the error, which is told in a line.

    Args:
        work: what the program does.
        others: errors that are told like our own; their status is 2 unless they have one.
    """
    told: tuple[type[Exception], ...] = (RackgateError, *others)
    try:
        work()
    except told as error:
        sys.stderr.write(f"error: {error}\n")
        return int(getattr(error, "exit_status", 2))
    return 0
