"""Producers as child processes, on this host or in the network of a lab's node. They end with this process."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import start
from pyhooks.history.event_log import History
from pyhooks.history.events import KilledDetails
from pyhooks.workload.processes import stopped_after

GRACE_S = 60.0


class ProducerProcess:
    """A running producer process, ``python -m pyhooks.workload.producer``.

    Args:
        arguments: arguments of the program, without ``--history`` and ``--run``.
        history: history to append to.
        log: file for its standard output and standard error.
        node_pid: PID of the first process of a lab's node, whose network the producer joins; None for this
            process's network. The producer keeps this host's files and processes, not the node's.

    Raises:
        RackgateError: it cannot be started.
    """

    def __init__(self, arguments: Sequence[str], history: History, *, log: Path, node_pid: int | None = None) -> None:
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self.log = log
        self._history = history
        inside = [] if node_pid is None else ["nsenter", f"--target={node_pid}", "--net", "--uts", "--"]
        argv = [*inside, sys.executable, "-m", "pyhooks.workload.producer", *arguments]
        argv += ["--history", str(history.path), "--run", self.run_id]
        self._process = start(argv, task="start a producer", log=log, start_new_session=True)

    @property
    def pid(self) -> int:
        """Process id of the producer."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Terminate it and wait until it has reported every attempt. Does nothing if it was killed.

        Raises:
            RackgateError: it failed, or did not end within ``grace_s`` seconds and was killed.
        """
        if self.runs:
            self._process.terminate()
        try:
            status = self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"the producer {self.run_id} did not end within {grace_s:.0f} s, see {self.log}"
            raise RackgateError(message) from None
        if status not in (0, -signal.SIGKILL):
            log = self.log.read_text(encoding="utf-8", errors="replace")
            raise RackgateError(f"the producer {self.run_id} ended with status {status}, see {self.log}", detail=log)

    def kill(self) -> None:
        """Kill it, as a power failure does, and record this, so that checkers expect no further events."""
        self._process.kill()
        self._process.wait()
        self._history.add(KilledDetails(run=self.run_id), process="workload")


@contextmanager
def running_producers(
    many: Sequence[Sequence[str]], history: History, *, logs: Path, node_pid: int | None = None
) -> Iterator[list[ProducerProcess]]:
    """Run producers during the block and stop them cleanly afterwards. If the block fails, they are killed.

    Args:
        many: arguments of each producer.
        history: history to append to.
        logs: folder for their log files.
        node_pid: see ``ProducerProcess``.

    Raises:
        RackgateError: a producer cannot be started, failed, or did not end in time.
    """
    begun = (
        ProducerProcess(arguments, history, log=logs / f"producer-{number}.log", node_pid=node_pid)
        for number, arguments in enumerate(many)
    )
    with stopped_after(begun) as started:
        yield started
