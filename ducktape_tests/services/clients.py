"""Client programs as a ducktape service: one node from which they run, to their ends or beside a test."""

from __future__ import annotations

import shlex
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ducktape.services.service import Service

from ducktape_tests.cluster import LabAccount
from ducktape_tests.services.clock import Clock, compare
from ducktape_tests.services.host_folder import CLIENTS, DELETE, PIDS, HostFolder, host_root
from ducktape_tests.services.hosts import run_command
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.workload.processes import ending
from pyhooks.workload.standby_producer import ASKED, TOLD

GRACE_S = 90.0
# A plan that is asked for has its own bounds, far below.
PLAN_S = 600
PIECE_BYTES = 8_000_000


@dataclass(frozen=True)
class Place:
    """A host on which client programs run.

    Attributes:
        account: ducktape's, of the host.
        scratch: the project's folder there (``host_folder``), for what programs write.
        python: the interpreter there that has the project installed.
    """

    account: Any
    scratch: str
    python: str = sys.executable

    @cached_property
    def clock(self) -> Clock:
        """That of the host, compared at first use."""
        words = [self.python, "-c", "import time; print(time.monotonic_ns())"]
        return compare(lambda: int(self.account.ssh_output(shlex.join(words))))


class Process:
    """A client program on a host.

    Args:
        place: where.
        words: what runs.
        log: the file on the node for what it writes.
        before: a shell command on the node before it.
    """

    def __init__(self, place: Place, words: Sequence[str], log: str, before: str) -> None:
        self._place, self._log = place, shlex.quote(log)
        # the next run goes by its id if this one is killed
        known = f"echo $! >> {shlex.quote(f'{place.scratch}/{PIDS}')}; echo $!"
        command = f"{before}; setsid nohup {shlex.join(words)} > {self._log} 2>&1 < /dev/null & {known}"
        self.pid = int(place.account.ssh_output(command).decode().strip())

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        check = f"test -e /proc/{self.pid} && ! grep -q '^State:.Z' /proc/{self.pid}/status"
        return bool(self._place.account.ssh(check, allow_fail=True) == 0)

    @property
    def said(self) -> str:
        """The end of its log."""
        return str(self._place.account.ssh_output(f"tail -n 40 {self._log}").decode(errors="replace"))

    def kill(self) -> None:
        """Ends it as a power failure does."""
        self._place.account.signal(self.pid, signal.SIGKILL, allow_fail=True)
        wait_for(lambda: not self.runs, what=f"the end of process {self.pid}", timeout_s=GRACE_S)


class Program(Process):
    """A running ``pyhooks.workload.<workload>`` on a host, whose events come here as it writes them.

    Args:
        place: where.
        workload: name of the module; a SIGTERM ends it in good order.
        arguments: of the program, without ``--history`` and ``--run``.
        history: where its events go.
    """

    def __init__(self, place: Place, workload: str, arguments: Sequence[str], history: History) -> None:
        self.workload = workload
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self._history = history
        file = f"{place.scratch}/{self.run_id}.jsonl"
        self._file = shlex.quote(file)
        self._read, self._half = 0, b""
        words = [place.python, "-m", f"pyhooks.workload.{workload}", *arguments]
        words += ["--history", file, "--run", self.run_id]
        super().__init__(place, words, f"{place.scratch}/{self.run_id}.log", f"touch {self._file}")

    def fetch(self) -> list[Event]:
        """Brings what it has written since, and returns it."""
        found: list[Event] = []
        while True:
            command = f"tail -c +{self._read + 1} {self._file} | head -c {PIECE_BYTES}"
            piece: bytes = self._place.account.ssh_output(command, combine_stderr=False)
            self._read += len(piece)
            *lines, self._half = (self._half + piece).split(b"\n")
            events = [self._place.clock.here(Event.parse(line.decode())) for line in lines if line]
            self._history.extend(events)
            found += events
            if len(piece) < PIECE_BYTES:
                return found

    def stop(self) -> None:
        """Ends it in good order, waits until it has told of every attempt and brings that.

        Raises:
            RackgateError: it had ended before, did not end in time, or left half a line.
        """
        if not self.runs:
            self.fetch()
            raise RackgateError(f"{self.workload} {self.run_id} ended by itself", detail=self.said)
        self._place.account.signal(self.pid, signal.SIGTERM)
        wait_for(lambda: not self.runs, what=f"the end of {self.workload} {self.run_id}", timeout_s=GRACE_S)
        self.fetch()
        if self._half:
            raise RackgateError(f"{self.workload} {self.run_id} ended within a line of its events")

    def kill(self) -> None:
        """Ends it as a power failure does, and notes that, so that checkers know why it tells no more."""
        super().kill()
        self.fetch()
        if self._half:
            self._history.note("workload", "torn", "unknown", run=self.run_id)
        self._history.note("workload", "killed", "info", run=self.run_id)


class Clients(Service):
    """Runs workloads of ``pyhooks.workload`` on a node and brings their events into the test's history.

    Args:
        context: ducktape's test context.
        python: the interpreter on the node that has the project installed; the driver's own by default.
    """

    def __init__(self, context: Any, python: str = sys.executable) -> None:
        super().__init__(context, num_nodes=1)
        account = self.nodes[0].account
        root = str(paths.LAB_HOME) if isinstance(account, LabAccount) else host_root(context.globals)
        self._folder = HostFolder(root, CLIENTS)
        self.place = Place(account, self._folder.path, python)
        self._begun: list[Process] = []
        self._standing: Process | None = None
        self._plans = 0

    def start_node(self, node: Any, **_: Any) -> None:
        """Creates the folder anew; what a run that was killed has left in it is ended and deleted before."""
        # ducktape goes on if clean_node fails before this
        self.clean_node(node)
        self._run_in_folder(node, ":")

    def stop_node(self, node: Any, **_: Any) -> None:  # noqa: ARG002 - there is one
        """Ends what a failed test has left running."""
        for one in self._begun:
            if one.runs:
                one.kill()

    def clean_node(self, node: Any, **_: Any) -> None:
        """Deletes the folder."""
        self._run_in_folder(node, DELETE)

    def _run_in_folder(self, node: Any, script: str) -> None:
        run_command(node.account, str(node.account.hostname), self._folder.command(script))

    def produce(self, history: History, *arguments: str) -> tuple[Event, ...]:
        """Carries out a plan of ``pyhooks.workload.producer`` and appends its events to ``history``.

        One process does that for all plans of a test, see ``pyhooks.workload.standby_producer``.

        Args:
            history: where the events go.
            arguments: of the program, without ``--history``.

        Returns:
            The events that it wrote.

        Raises:
            RackgateError: the plan failed.
        """
        standing = self._standing = self._standing or self._stand_by()
        if not standing.runs:
            raise RackgateError("the producer that stands by ended by itself", detail=standing.said)
        self._plans += 1
        remote = f"{self.place.scratch}/plan-{self._plans}.jsonl"
        line = f"{self._plans} {shlex.join([*arguments, '--history', remote])}"
        request, response = (shlex.quote(f"{self.place.scratch}/{name}") for name in (ASKED, TOLD))
        pipes = f"printf '%s\\n' {shlex.quote(line)} > {request} && head -n 1 {response}"
        told = self.place.account.ssh_output(f"timeout {PLAN_S} sh -c {shlex.quote(pipes)}", allow_fail=True).decode()
        if told.split() != [str(self._plans), "0"]:
            what = told.strip() or f"no answer, or none within {PLAN_S} s"
            raise RackgateError(f"plan {self._plans} failed: {what}", detail=standing.said)
        local = Path(str(history.path) + ".part")
        self.place.account.copy_from(remote, str(local))
        events = tuple(self.place.clock.here(event) for event in History(local).events())
        local.unlink()
        history.extend(events)
        return events

    def _stand_by(self) -> Process:
        scratch = self.place.scratch
        words = [self.place.python, "-m", "pyhooks.workload.standby_producer", "--folder", scratch]
        pipes = shlex.join(["mkfifo", f"{scratch}/{ASKED}", f"{scratch}/{TOLD}"])
        self._begun.append(Process(self.place, words, f"{scratch}/standing.log", pipes))
        return self._begun[-1]

    @contextmanager
    def running(
        self, workload: str, many: Sequence[Sequence[str]], history: History, places: Sequence[Place] = ()
    ) -> Iterator[list[Program]]:
        """Programs run within the block, and end in good order after it; if it fails they are killed.

        Args:
            workload: name of a module of ``pyhooks.workload``.
            many: the arguments of each.
            history: where their events go.
            places: the host of each; the clients' node by default.

        Raises:
            RackgateError: one ended by itself, or did not end in time.
        """
        pairs = zip(places or [self.place] * len(many), many, strict=True)
        with ending(self._begin(place, workload, arguments, history) for place, arguments in pairs) as started:
            yield started

    def _begin(self, place: Place, workload: str, arguments: Sequence[str], history: History) -> Program:
        started = Program(place, workload, arguments, history)
        self._begun.append(started)
        return started
