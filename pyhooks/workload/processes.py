"""End of child programs: cleanly after a block, at once if it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class ChildProgram(Protocol):
    """A program that runs beside this one."""

    @property
    def runs(self) -> bool:
        """Whether it is still running."""

    def stop(self) -> None:
        """Terminate it and wait for a clean end."""

    def kill(self) -> None:
        """Kill it at once."""


R = TypeVar("R", bound=ChildProgram)


@contextmanager
def stopped_after(begun: Iterable[R]) -> Iterator[list[R]]:
    """Stop programs cleanly after the block; if the block or the start of a program fails, kill the running ones.

    Args:
        begun: iterator that starts a program at each step.
    """
    started: list[R] = []
    try:
        for program in begun:
            started.append(program)  # noqa: PERF402 - those before one that fails must be known
        yield started
        for program in started:
            program.stop()
    finally:
        for program in started:
            if program.runs:
                program.kill()
