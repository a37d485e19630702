"""Workloads as processes beside this one, here or in the network of a lab's node, that end with us."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.history.event_log import History

GRACE_S = 60.0


class Workload:
    """A running producer, ``python -m pyhooks.workload.producer``.

    Args:
        arguments: of the program, without ``--history`` and ``--run``.
        history: where its events go.
        log: the file for what it writes beside that.
        node_pid: PID of the first process of a lab's node, in whose network it shall be; None stands for this one. It
            sees our files and processes, and not the node's.

    Raises:
        RackgateError: it cannot be started.
    """

    def __init__(self, arguments: Sequence[str], history: History, *, log: Path, node_pid: int | None = None) -> None:
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self.log = log
        self._history = history
        inside = [] if node_pid is None else ["nsenter", f"--target={node_pid}", "--net", "--uts", "--"]
        words = [*DIES_WITH_PARENT, *inside, sys.executable, "-m", "pyhooks.workload.producer", *arguments]
        words += ["--history", str(history.path), "--run", self.run_id]
        with log.open("wb") as out:
            try:
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
                )
            except FileNotFoundError as error:
                raise RackgateError(f"start a producer: program {error.filename!r} is not installed") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Ends it in good order and waits until it has told of every attempt; does nothing if it was killed.

        Raises:
            RackgateError: it failed, or did not end within ``grace_s`` seconds and was killed.
        """
        if self.runs:
            self._process.terminate()
        try:
            status = self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            what = f"the producer {self.run_id} did not end within {grace_s:.0f} s, see {self.log}"
            raise RackgateError(what) from None
        if status not in (0, -signal.SIGKILL):
            said = self.log.read_text(encoding="utf-8", errors="replace")
            raise RackgateError(f"the producer {self.run_id} ended with status {status}, see {self.log}", detail=said)

    def kill(self) -> None:
        """Ends it as a power failure does, and notes that, so that checkers know why it tells no more."""
        self._process.kill()
        self._process.wait()
        self._history.note("workload", "killed", "info", run=self.run_id)


class Running(Protocol):
    """A program that runs beside this one."""

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""

    def stop(self) -> None:
        """Ends it in good order."""

    def kill(self) -> None:
        """Ends it at once."""


R = TypeVar("R", bound=Running)


@contextmanager
def ending(begun: Iterable[R]) -> Iterator[list[R]]:
    """Programs end in good order after the block; if it fails, or one cannot be begun, those that run are killed.

    Args:
        begun: begins each when it is asked for it.
    """
    started: list[R] = []
    try:
        for one in begun:
            started.append(one)  # noqa: PERF402 - those before one that fails must be known
        yield started
        for one in started:
            one.stop()
    finally:
        for one in started:
            if one.runs:
                one.kill()


@contextmanager
def producing(
    many: Sequence[Sequence[str]], history: History, *, logs: Path, node_pid: int | None = None
) -> Iterator[list[Workload]]:
    """Producers run within the block, and end in good order after it; if it fails they are killed.

    Args:
        many: the arguments of each.
        history: where their events go.
        logs: the folder for what they write beside that.
        node_pid: see ``Workload``.

    Raises:
        RackgateError: one cannot be started, failed, or did not end in time.
    """
    begun = (
        Workload(arguments, history, log=logs / f"producer-{number}.log", node_pid=node_pid)
        for number, arguments in enumerate(many)
    )
    with ending(begun) as started:
        yield started
