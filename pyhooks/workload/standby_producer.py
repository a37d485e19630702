"""Standby producer: one process that executes requested producer plans, one after the other.

Loading Python, Java and a client's classes takes seconds of CPU time, which a suite with very short phases would
spend for each phase. Plans are executed as in ``pyhooks.workload.producer``; each plan has its own client.

The process's folder has two pipes. A line of ``requests`` is a number and the arguments of a producer, in shell syntax.
When the plan has ended, a line of ``responses`` has the same number, the exit status and, if it is not 0, the error.
"""

from __future__ import annotations

import argparse
import os
import select
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.java_exception import JavaError
from pyhooks.workload import program
from pyhooks.workload.producer import run_plan
from pyhooks.workload.program import StopEvent

REQUESTS, RESPONSES = "requests", "responses"
SELECT_S = 0.2


def read_lines(pipe: int, ended: threading.Event) -> Iterator[str]:
    """Yield the lines that arrive through a pipe, until ``ended`` is set."""
    rest = b""
    while not ended.is_set():
        if not select.select([pipe], [], [], SELECT_S)[0]:
            continue
        *lines, rest = (rest + os.read(pipe, 65536)).split(b"\n")
        yield from (line.decode() for line in lines)


def execute(line: str, ended: StopEvent) -> str:
    """Execute the plan requested by a line; return the response line."""
    number, _, arguments = line.partition(" ")
    try:
        run_plan(shlex.split(arguments), ended)
    except (RackgateError, JavaError) as error:
        return f"{number} 2 {' '.join(str(error).split())}"
    except SystemExit as error:
        # invalid arguments, which argparse has reported in the log
        return f"{number} {error.code} see its log"
    return f"{number} 0"


def serve(folder: Path) -> None:
    """Execute plans until SIGTERM or SIGINT, which also ends the current plan cleanly.

    Args:
        folder: folder of the pipes.
    """
    ended = program.stop_on_signals()
    with ExitStack() as stack:
        # Opened read-write, the pipes neither block nor reach end of file, whoever opens or closes the other ends.
        requests, responses = (os.open(folder / name, os.O_RDWR) for name in (REQUESTS, RESPONSES))
        stack.callback(os.close, requests)
        stack.callback(os.close, responses)
        for line in read_lines(requests, ended):
            os.write(responses, f"{execute(line, ended)}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the standby producer as a process."""
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.standby_producer",
        description="Execute requested plans of pyhooks.workload.producer.",
        epilog="Example: python -m pyhooks.workload.standby_producer --folder FOLDER",
    )
    parser.add_argument("--folder", required=True, type=Path, help="where the pipes are")
    options = parser.parse_args(arguments)
    return program.run_reporting_errors(lambda: serve(options.folder), OSError)


if __name__ == "__main__":
    sys.exit(main())
