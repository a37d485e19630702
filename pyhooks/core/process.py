"""Child processes that end with this one; their failures become one-line errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyhooks.core.errors import RackgateError

if TYPE_CHECKING:
    import psutil

SignalHandler = Callable[[int, FrameType | None], object] | signal.Handlers
_POLL_S = 0.1
# The kernel kills the child when this process dies, even by SIGKILL; the setting survives exec.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


@contextmanager
def handling_signals(handlers: Mapping[signal.Signals, SignalHandler]) -> Iterator[None]:
    """Handle signals by these handlers within the block; main thread only."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Exit with status 143 on SIGTERM within the block, so that ``finally`` clauses clean up; main thread only."""
    with handling_signals({signal.SIGTERM: lambda number, _: sys.exit(128 + number)}):
        yield


def stat_fields(entry: Path) -> list[str]:
    """Return the fields of a process's ``stat`` file, from the state letter (proc(5)'s third field) on.

    ``entry`` is the process's folder below /proc. The result is empty if there is no such process.
    """
    try:
        text = (entry / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return parse_stat(text)


def parse_stat(text: str) -> list[str]:
    """Return the fields of the text of ``stat`` from the state letter on; see ``stat_fields``."""
    # the second field is the program's name in parentheses, which may contain any character
    return text.rpartition(")")[2].split()


def start(
    argv: Sequence[str | Path],
    *,
    task: str = "",
    log: Path | None = None,
    append: bool = False,
    outlives: bool = False,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a program; it ends with the thread that starts it, however that ends.

    Args:
        argv: program and arguments; no shell is involved.
        task: description of the work for the error message; by default the program's name.
        log: if given, standard output and error go to this file; with ``append``, behind what is in it.
        append: see ``log``.
        outlives: whether the program may outlive this process.
        **options: further arguments of ``subprocess.Popen``; without ``stdin`` standard input is /dev/null.

    Raises:
        RackgateError: the program is missing.
    """
    command = [*(() if outlives else DIES_WITH_PARENT), *map(str, argv)]
    options = {"stdin": subprocess.DEVNULL, **options}
    with log.open("ab" if append else "wb") if log is not None else nullcontext() as out:
        if out is not None:
            options |= {"stdout": out, "stderr": subprocess.STDOUT}
        try:
            return subprocess.Popen(command, **options)
        except FileNotFoundError as error:
            work = task or f"start {Path(argv[0]).name}"
            raise RackgateError(f"{work}: program {error.filename!r} is not installed") from error


def end(child: subprocess.Popen[Any], *, grace_s: float = 0.0, first: signal.Signals | None = None) -> int:
    """End a child process, which may have ended already, close its pipes and return its status.

    Args:
        child: the process.
        grace_s: how long it may take to end before it and its descendants are killed.
        first: signal that asks it to end; None for a program that ends when its standard input is closed.
    """
    if first is not None:
        child.send_signal(first)
    try:
        with suppress(subprocess.TimeoutExpired):
            # closes standard input, and reads the output that the program may still write while it ends
            child.communicate(timeout=grace_s)
    finally:
        _kill(child)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
    return child.returncode


def _kill(child: subprocess.Popen[Any]) -> None:
    if child.poll() is None:
        import psutil  # late: executors of Spark import this module, and need not have psutil

        below = descendants(child.pid)
        child.kill()
        for descendant in below:
            with suppress(psutil.Error):
                descendant.kill()
    child.wait()


@contextmanager
def supervised(
    argv: Sequence[str | Path], *, grace_s: float = 0.0, first: signal.Signals | None = None, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a program as ``start`` does, and end it as ``end`` does when the block ends."""
    child = start(argv, **options)
    try:
        yield child
    finally:
        end(child, grace_s=grace_s, first=first)


def run(
    argv: Sequence[str | Path],
    *,
    task: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    timeout_s: float = 600.0,
    tail_lines: int = 40,
) -> str:
    """Run a program to its end and return its standard output as text.

    Args:
        argv: program and arguments; no shell is involved.
        task: description of the work for the error message, such as "compile core".
        cwd: folder to run in.
        env: the whole environment, or None for that of this process.
        log: if given, standard output and error go to this file and the return value is empty.
        stdin: text for standard input; without it standard input is /dev/null.
        timeout_s: timeout in seconds.
        tail_lines: how many of the last lines of output the error's detail shows.

    Raises:
        RackgateError: the program is missing, did not end in time or ended with a status other than 0.
    """
    pipes: dict[str, Any] = {} if log is not None else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with supervised(argv, task=task, log=log, cwd=cwd, env=env, text=True, stdin=source, **pipes) as child:
        try:
            out, errors = child.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RackgateError(f"{task}: {argv[0]} did not end within {timeout_s:.0f} s") from error
    if child.returncode != 0:
        text = log.read_text(encoding="utf-8", errors="replace") if log else f"{out}{errors}"
        where = f", see {log}" if log else ""
        raise RackgateError(
            f"{task}: {Path(argv[0]).name} ended with status {child.returncode}{where}",
            detail="\n".join(text.splitlines()[-tail_lines:]),
        )
    return out or ""


def children(pid: int) -> list[int]:
    """Return the child processes that the first thread of a process has started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()))


def descendants(pid: int) -> list[psutil.Process]:
    """Return the children of a process, their children and so on.

    ``psutil.Process.children`` fails where /proc hides the processes of other users.
    """
    import psutil

    parents = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            parents[process] = process.ppid()
    below: list[psutil.Process] = []
    generation = {pid}
    while generation:
        next_generation = [process for process, parent in parents.items() if parent in generation]
        below += next_generation
        generation = {process.pid for process in next_generation}
    return below


def end_processes_in(folder: Path) -> int:
    """Kill all processes whose working directory is ``folder`` or below it, even orphaned ones; return their number."""
    import psutil

    ended = 0
    for process in psutil.process_iter():
        # errors: it has ended meanwhile, or belongs to another user
        with suppress(psutil.Error):
            if process.pid != os.getpid() and Path(process.cwd()).is_relative_to(folder):
                process.kill()
                ended += 1
    return ended


def end_until_done(folder: Path, jobs: Collection[Future[Any]]) -> None:
    """Kill processes below ``folder``, also those that start late, until the jobs that wait for them are done."""
    while running := [job for job in jobs if not job.done()]:
        end_processes_in(folder)
        wait(running, _POLL_S)
