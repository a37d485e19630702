"""A producer that stands by: one process that carries out the plans it is asked for, one after the other.

Python, Java and the classes of a client take seconds of a processor to load, and a suite whose phases are single
attempts would spend them for each phase. What runs is the same as in ``produce``: each plan has a client of its own.

In its folder are two pipes. A line of ``asked`` is a number and the arguments of ``produce``, as in a shell; when the
plan has ended, a line of ``told`` has the same number, the exit status, and what was wrong if that is not 0.
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
from pyhooks.workload.producer import carry_out
from pyhooks.workload.program import Ended

ASKED, TOLD = "asked", "told"
LOOK_S = 0.2


def lines(pipe: int, ended: threading.Event) -> Iterator[str]:
    """The lines that come through a pipe, until ``ended`` is set."""
    half = b""
    while not ended.is_set():
        if not select.select([pipe], [], [], LOOK_S)[0]:
            continue
        *whole, half = (half + os.read(pipe, 65536)).split(b"\n")
        yield from (line.decode() for line in whole)


def answered(line: str, ended: Ended) -> str:
    """Carries out what a line asks for; the line that tells of it."""
    number, _, words = line.partition(" ")
    try:
        carry_out(shlex.split(words), ended)
    except (RackgateError, JavaError) as error:
        return f"{number} 2 {' '.join(str(error).split())}"
    except SystemExit as error:
        # the words are no arguments, which argparse has told of
        return f"{number} {error.code} see its log"
    return f"{number} 0"


def stand_by(folder: Path) -> None:
    """Carries out plans until a SIGTERM or SIGINT comes, which ends the plan under way in good order.

    Args:
        folder: where the pipes are.
    """
    ended = program.told_to_end()
    with ExitStack() as stack:
        # Open for both, they never end and never make anyone wait, whoever comes and goes at their other ends.
        asked, told = (os.open(folder / name, os.O_RDWR) for name in (ASKED, TOLD))
        stack.callback(os.close, asked)
        stack.callback(os.close, told)
        for line in lines(asked, ended):
            os.write(told, f"{answered(line, ended)}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Stands by as a process."""
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.standby_producer",
        description="Carries out plans of pyhooks.workload.producer that it is asked for.",
        epilog="Example: python -m pyhooks.workload.standby_producer --folder FOLDER, with the pipes asked and told",
    )
    parser.add_argument("--folder", required=True, type=Path, help="where the pipes are")
    found = parser.parse_args(arguments)
    return program.status_of(lambda: stand_by(found.folder), OSError)


if __name__ == "__main__":
    sys.exit(main())
