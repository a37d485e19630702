"""Init process of a lab: creates the lab, then runs one command or serves until it is terminated.

It runs as the first process of new user, network, mount and PID namespaces. When it ends, however it ends, the kernel
removes every process, interface and mount of the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from rich.console import Console

from pyhooks.core import exit_status, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import step_line
from pyhooks.lab import bootstrap
from pyhooks.lab.lab import Lab

# Heals faults whose command has died. Faults are a layer above the lab, so their module is imported by name.
HEALER = "pyhooks.faults.orphan_healer"
# Time a command has to end after Ctrl-C before it is killed.
GRACE_S = 20.0
ROUND_S = 0.5


class TerminalProgress:
    """Terminal of the user who runs a command in a lab."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def step(self, text: str, seconds: float) -> None:
        """Print the step in one line."""
        self._console.print(step_line(text, seconds))

    def failed(self, error: Exception) -> int:
        """Print the error with its detail, and return the exit status."""
        return exit_status.report_error(error, self._console)


class PipeProgress:
    """Pipe to the ``rackgate lab up`` that started this process; the lab ends if that ends before the lab is ready."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._log = Console(stderr=True, highlight=False, soft_wrap=True)
        self._released = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, 0)
        # The write end of a pipe can only report an error: the reader has closed its end.
        poll.poll()
        if not self._released.is_set():
            os._exit(1)

    def _send(self, **message: object) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")

    def step(self, text: str, seconds: float) -> None:
        """Send the step to the reader."""
        self._send(step=text, seconds=seconds)

    def failed(self, error: Exception) -> int:
        """Log the error, send it to the reader unless the lab was ready before, and return the exit status."""
        status = exit_status.report_error(error, self._log)
        if not self._released.is_set():
            self._send(error=exit_status.describe(error), detail=getattr(error, "detail", ""), status=status)
        return status

    def ready(self) -> None:
        """Report that the lab is up; from now on it no longer depends on the reader."""
        self._released.set()
        self._send(ready=True)
        os.close(self._descriptor)


@contextmanager
def _step(progress: TerminalProgress | PipeProgress, text: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    progress.step(text, time.monotonic() - started)


def _run_command(command: Sequence[str], lab: Lab) -> int:
    """Run the command in the lab's own network and return its exit status."""
    if shutil.which(command[0]) is None:
        raise RackgateError(f"can't run {command[0]!r} in the lab: no such program")
    healer = import_module(HEALER).OrphanHealer(lab)
    child = process.start(command, env=os.environ | lab.variables, stdin=None)
    interrupted: list[float] = []

    def interrupt(*_: object) -> None:
        # The terminal has sent SIGINT to the command as well. It may take GRACE_S to end; a second Ctrl-C kills it.
        interrupted.append(time.monotonic())
        if len(interrupted) > 1:
            child.kill()

    signal.signal(signal.SIGINT, interrupt)

    def end(*_: object) -> None:
        # SIGTERM was sent to this process only
        interrupted.append(time.monotonic())
        child.terminate()

    signal.signal(signal.SIGTERM, end)
    while True:
        try:
            status = child.wait(timeout=ROUND_S)
        except subprocess.TimeoutExpired:
            healer.check()
            if interrupted and time.monotonic() - interrupted[0] > GRACE_S:
                child.kill()
            continue
        return status if status >= 0 else 128 - status


def _collect() -> frozenset[int]:
    """Reap ended child processes, including adopted orphans of the lab, and return their PIDs."""
    ended = set()
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    except ChildProcessError:
        pass
    return frozenset(ended)


def _serve(lab: Lab, processes: dict[str, subprocess.Popen[bytes]], lock: int) -> None:
    """Run the lab until SIGTERM, and heal faults whose command has died."""
    terminated = threading.Event()
    healer = import_module(HEALER).OrphanHealer(lab)
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not terminated.wait(ROUND_S):
        if damage := bootstrap.find_damage(processes, _collect()):
            raise RackgateError(f"lab {lab.name}: {damage}; all of it was taken down, since its results would be void")
        if os.fstat(lock).st_nlink == 0:
            raise RackgateError(
                f"lab {lab.name}: its lock file was deleted, as a logout does with the user's runtime folder, so no"
                " command could find it any more; all of it was taken down"
            )
        healer.check()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rackgate-lab")
    parser.add_argument("--name", required=True)
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--classpath", required=True)
    parser.add_argument("--agent", required=True)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument(
        "--serve", type=int, metavar="FD", help="pipe to the process that started the lab; no command is run"
    )
    parser.add_argument("--lock", type=int, metavar="FD", help="with --serve: the lock of the lab's name")
    parser.add_argument("command", nargs="*")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the lab's init process; ``pyhooks.lab.lab_processes`` passes the arguments."""
    args = _arguments(argv)
    pipe = PipeProgress(args.serve) if args.serve is not None else None
    progress = pipe or TerminalProgress()
    try:
        with _step(progress, f"lab {args.name}: nodes and network"):
            lab, processes = bootstrap.create_lab(
                args.name, args.topology, args.run_dir, classpath=args.classpath, agent=args.agent, archive=args.archive
            )
        if not args.bare:
            count = f"{len(lab.topology.controllers)} controllers, {len(lab.topology.brokers)} brokers"
            with _step(progress, f"lab {args.name}: {count} registered and unfenced"):
                bootstrap.start_cluster(lab)
        if pipe is not None:
            pipe.ready()
            _serve(lab, processes, args.lock)
            return 0
        status = _run_command(args.command, lab)
        if damage := bootstrap.find_damage(processes, frozenset()):
            raise RackgateError(f"lab {args.name}: {damage} before the command did; its results are void")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that something was found wrong
        return progress.failed(error)
    return status


if __name__ == "__main__":
    sys.exit(main())
