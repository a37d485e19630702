"""ducktape service that runs client programs on one node, either to completion or beside a test."""

from __future__ import annotations

import shlex
import signal
import sys
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ducktape.services.service import Service

from ducktape_tests.cluster import LabAccount
from ducktape_tests.services.clock import HostClock, clock_details, compare_clocks
from ducktape_tests.services.host_folder import CLIENTS, DELETE, PIDS, HostFolder, host_root
from ducktape_tests.services.hosts import run_command
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Details, Event, History
from pyhooks.history.events import IntendDetails, KilledDetails, TornDetails
from pyhooks.workload.processes import stopped_after
from pyhooks.workload.standby_producer import REQUESTS, RESPONSES

GRACE_S = 90.0
# Upper limit only: each plan has its own time limits, far below this one.
PLAN_S = 600
BLOCK_BYTES = 8_000_000

D = TypeVar("D", bound=Details)


@dataclass(frozen=True)
class ClientHost:
    """A host that runs client programs.

    Attributes:
        scratch: the project's folder on the host (``host_folder``), for files that programs write.
        python: the interpreter on the host that has the project installed.
    """

    account: Any
    scratch: str
    python: str = sys.executable

    @cached_property
    def clock(self) -> HostClock:
        """Clock of the host, compared with the local one at first use."""
        return self._compare_clocks()

    def _compare_clocks(self) -> HostClock:
        command = shlex.join([self.python, "-c", "import time; print(time.monotonic_ns())"])
        return compare_clocks(lambda: int(self.account.ssh_output(command)))

    def note_clock(self, history: History, run_ids: Iterable[str]) -> None:
        """Write the error of runs' converted times to a history, drift until now included; nothing for a local clock.

        Raises:
            RackgateError: no reading was fast enough.
        """
        clocks = clock_details(self.clock, self._compare_clocks, str(self.account.hostname), run_ids)
        history.extend([clock.event(process="workload") for clock in clocks])


class RemoteProcess:
    """A client program on a host.

    Args:
        before: shell command to run on the host first.
    """

    def __init__(self, host: ClientHost, command: Sequence[str], log: str, before: str) -> None:
        self._host, self._log = host, shlex.quote(log)
        # Record the PID: if this run is killed, the next run ends the process by it.
        record = f"echo $! >> {shlex.quote(f'{host.scratch}/{PIDS}')}; echo $!"
        script = f"{before}; setsid nohup {shlex.join(command)} > {self._log} 2>&1 < /dev/null & {record}"
        self.pid = int(host.account.ssh_output(script).decode().strip())

    @property
    def runs(self) -> bool:
        """Whether the process still runs."""
        check = f"test -e /proc/{self.pid} && ! grep -q '^State:.Z' /proc/{self.pid}/status"
        return bool(self._host.account.ssh(check, allow_fail=True) == 0)

    @property
    def output(self) -> str:
        """Last 40 lines of its log."""
        return str(self._host.account.ssh_output(f"tail -n 40 {self._log}").decode(errors="replace"))

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it has ended."""
        self._host.account.signal(self.pid, signal.SIGKILL, allow_fail=True)
        wait_for(lambda: not self.runs, goal=f"the end of process {self.pid}", timeout_s=GRACE_S)


class Program(RemoteProcess):
    """A running ``pyhooks.workload.<workload>`` on a host; ``fetch`` copies its events into the history.

    Args:
        workload: name of the module; SIGTERM stops it cleanly.
        arguments: of the program, without ``--history`` and ``--run``.
    """

    def __init__(self, host: ClientHost, workload: str, arguments: Sequence[str], history: History) -> None:
        self.workload = workload
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self._history = history
        file = f"{host.scratch}/{self.run_id}.jsonl"
        self._file = shlex.quote(file)
        self._offset, self._partial_line = 0, b""
        command = [host.python, "-m", f"pyhooks.workload.{workload}", *arguments]
        command += ["--history", file, "--run", self.run_id]
        super().__init__(host, command, f"{host.scratch}/{self.run_id}.log", f"touch {self._file}")

    def fetch(self) -> list[Event]:
        """Copy the events written since the last call into the history, and return them."""
        fetched: list[Event] = []
        while True:
            command = f"tail -c +{self._offset + 1} {self._file} | head -c {BLOCK_BYTES}"
            block: bytes = self._host.account.ssh_output(command, combine_stderr=False)
            self._offset += len(block)
            *lines, self._partial_line = (self._partial_line + block).split(b"\n")
            events = [self._host.clock.to_local(Event.parse(line.decode())) for line in lines if line]
            self._history.extend(events)
            fetched += events
            if len(block) < BLOCK_BYTES:
                return fetched

    def stop(self) -> None:
        """Stop it with SIGTERM, wait until it has reported every attempt, and fetch the remaining events.

        Raises:
            RackgateError: it had already ended, did not end in time, or left an incomplete line.
        """
        if not self.runs:
            self.fetch()
            raise RackgateError(f"{self.workload} {self.run_id} ended unexpectedly", detail=self.output)
        self._host.account.signal(self.pid, signal.SIGTERM)
        wait_for(lambda: not self.runs, goal=f"the end of {self.workload} {self.run_id}", timeout_s=GRACE_S)
        if output := self.output.strip():
            # for instance why a producer's run has no end, which checkers report as unknown
            self._host.account.logger.warning("output of %s %s: %s", self.workload, self.run_id, output)
        self.fetch()
        self._host.note_clock(self._history, [self.run_id])
        if self._partial_line:
            raise RackgateError(f"{self.workload} {self.run_id} ended with an incomplete line")

    def kill(self) -> None:
        """Kill it, and record that in the history, so that checkers know why its events stop."""
        super().kill()
        self.fetch()
        self._host.note_clock(self._history, [self.run_id])
        if self._partial_line:
            self._history.add(TornDetails(run=self.run_id), "unknown", process="workload")
        self._history.add(KilledDetails(run=self.run_id), process="workload")


def wait_events(
    programs: Sequence[Program],
    kind: type[D],
    key: Callable[[Program, Event, D], Hashable],
    pending: Iterable[Hashable],
    *,
    goal: str,
    timeout_s: float,
) -> None:
    """Wait until events of programs, from now on, have covered every key in ``pending``.

    Args:
        programs: the programs whose events are fetched.
        kind: details of the events to consider.
        key: returns the key that an event of a program covers, or any other value.
        pending: the keys.
        goal: description for the error.
        timeout_s: time limit in seconds.

    Raises:
        RackgateError: a key is not covered in time.
    """
    missing = set(pending)

    def covered() -> bool:
        for program in programs:
            missing.difference_update(key(program, event, details) for event, details in kind.each(program.fetch()))
        return not missing

    wait_for(covered, goal=goal, timeout_s=timeout_s, interval_s=0.5)


class Clients(Service):
    """ducktape service that runs workloads of ``pyhooks.workload`` on a node and collects their events in the history.

    Args:
        python: the interpreter on the node that has the project installed; the driver's own by default.
    """

    def __init__(self, context: Any, python: str = sys.executable) -> None:
        super().__init__(context, num_nodes=1)
        account = self.nodes[0].account
        root = str(paths.LAB_HOME) if isinstance(account, LabAccount) else host_root(context.globals)
        self._folder = HostFolder(root, CLIENTS)
        self.host = ClientHost(account, self._folder.path, python)
        self._started: list[RemoteProcess] = []
        self._producer: RemoteProcess | None = None
        self._plans = 0

    def start_node(self, node: Any, **_: Any) -> None:
        """Create an empty folder, after ending and deleting what a killed run left in it."""
        # ducktape continues if its own call of clean_node before this one fails.
        self.clean_node(node)
        self._run_in_folder(node, ":")

    def stop_node(self, node: Any, **_: Any) -> None:  # noqa: ARG002 - there is one
        """Kill the processes that a failed test left running."""
        for process in self._started:
            if process.runs:
                process.kill()

    def clean_node(self, node: Any, **_: Any) -> None:
        """Delete the folder."""
        self._run_in_folder(node, DELETE)

    def _run_in_folder(self, node: Any, script: str) -> None:
        run_command(node.account, str(node.account.hostname), self._folder.command(script))

    def produce(self, history: History, *arguments: str) -> tuple[Event, ...]:
        """Run a plan of ``pyhooks.workload.producer``, append its events to ``history`` and return them.

        One process runs all plans of a test; see ``pyhooks.workload.standby_producer``.

        Raises:
            RackgateError: the plan failed.
        """
        producer = self._producer = self._producer or self._start_producer()
        if not producer.runs:
            raise RackgateError("the standby producer ended unexpectedly", detail=producer.output)
        self._plans += 1
        remote = f"{self.host.scratch}/plan-{self._plans}.jsonl"
        line = f"{self._plans} {shlex.join([*arguments, '--history', remote])}"
        request, response = (shlex.quote(f"{self.host.scratch}/{name}") for name in (REQUESTS, RESPONSES))
        pipes = f"printf '%s\\n' {shlex.quote(line)} > {request} && head -n 1 {response}"
        reply = self.host.account.ssh_output(f"timeout {PLAN_S} sh -c {shlex.quote(pipes)}", allow_fail=True).decode()
        if reply.split() != [str(self._plans), "0"]:
            reason = reply.strip() or f"no response within {PLAN_S} s"
            raise RackgateError(f"plan {self._plans} failed: {reason}", detail=producer.output)
        local = Path(str(history.path) + ".part")
        self.host.account.copy_from(remote, str(local))
        events = tuple(self.host.clock.to_local(event) for event in History(local).events())
        local.unlink()
        history.extend(events)
        run_ids = dict.fromkeys(intend.run for _, intend in IntendDetails.each(events) if intend.run is not None)
        self.host.note_clock(history, run_ids)
        return events

    def _start_producer(self) -> RemoteProcess:
        scratch = self.host.scratch
        command = [self.host.python, "-m", "pyhooks.workload.standby_producer", "--folder", scratch]
        pipes = shlex.join(["mkfifo", f"{scratch}/{REQUESTS}", f"{scratch}/{RESPONSES}"])
        self._started.append(RemoteProcess(self.host, command, f"{scratch}/standby.log", pipes))
        return self._started[-1]

    @contextmanager
    def running(
        self, workload: str, argument_lists: Sequence[Sequence[str]], history: History, hosts: Sequence[ClientHost] = ()
    ) -> Iterator[list[Program]]:
        """Run a program for each element of ``argument_lists``; stop them cleanly after the block.

        If the block fails, the programs are killed. By default they run on the clients' node.
        """
        pairs = zip(hosts or [self.host] * len(argument_lists), argument_lists, strict=True)
        with stopped_after(self._start(host, workload, arguments, history) for host, arguments in pairs) as programs:
            yield programs

    def _start(self, host: ClientHost, workload: str, arguments: Sequence[str], history: History) -> Program:
        program = Program(host, workload, arguments, history)
        self._started.append(program)
        return program
