"""What programs beside a run have in common: they end in good order when told to, and say in a line what is wrong."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pyhooks.errors import RackgateError


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


def told_to_end(then: Callable[[], None] | None = None) -> threading.Event:
    """Is set when a SIGTERM or SIGINT comes, which then end the program no more; for the main thread.

    Args:
        then: what is done beside that.
    """
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()
        if then is not None:
            then()

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
