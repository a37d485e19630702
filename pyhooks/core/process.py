"""Child processes that end with this one; their failures become one-line errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError

_LOOK_S = 0.1
# The kernel kills the child when this process dies, even by SIGKILL; the setting survives exec.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Exit with status 143 on SIGTERM within the block, so that ``finally`` clauses clean up; main thread only."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stat_fields(entry: Path) -> list[str]:
    """Return the fields of a process's ``stat`` file, from the state letter (proc(5)'s third field) on.

    Args:
        entry: folder of the process below /proc.

    Returns:
        The fields; empty if there is no such process.
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


def run(
    argv: Sequence[str | Path],
    *,
    what: str,
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
        what: description of the work for the error message, such as "compile core".
        cwd: folder to run in.
        env: the whole environment, or None for that of this process.
        log: if given, standard output and error go to this file and the return value is empty.
        stdin: text for standard input; without it standard input is /dev/null.
        timeout_s: timeout in seconds.
        tail_lines: how many of the last lines of output the error's detail shows.

    Raises:
        RackgateError: the program is missing, did not end in time or ended with a status other than 0.
    """
    words = [*DIES_WITH_PARENT, *map(str, argv)]
    out = log.open("w", encoding="utf-8") if log is not None else subprocess.PIPE
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdout=out,
            stderr=subprocess.STDOUT if log is not None else subprocess.PIPE,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise RackgateError(f"{what}: program {error.filename!r} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise RackgateError(f"{what}: {argv[0]} did not end within {timeout_s:.0f} s") from error
    finally:
        if log is not None and not isinstance(out, int):
            out.close()
    if done.returncode != 0:
        text = log.read_text(encoding="utf-8", errors="replace") if log else f"{done.stdout}{done.stderr}"
        where = f", see {log}" if log else ""
        raise RackgateError(
            f"{what}: {Path(str(argv[0])).name} ended with status {done.returncode}{where}",
            detail="\n".join(text.splitlines()[-tail_lines:]),
        )
    return done.stdout or ""


def close_input_and_wait(child: subprocess.Popen[Any], timeout_s: float) -> None:
    """Close a child's standard input, on which it exits, and wait for its end; kill it after ``timeout_s`` seconds."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def end_processes_in(folder: Path) -> int:
    """Kill all processes whose working directory is ``folder`` or below it, including orphaned ones.

    Returns:
        The number of processes killed.
    """
    ended = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "cwd").readlink().is_relative_to(folder):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
        except OSError:
            continue  # it has ended meanwhile, or belongs to another user
    return ended


def end_until_done(folder: Path, jobs: Collection[Future[Any]]) -> None:
    """Kill processes below ``folder`` until the jobs that wait for them are done.

    The loop also finds processes that a job starts late.
    """
    while running := [job for job in jobs if not job.done()]:
        end_processes_in(folder)
        wait(running, _LOOK_S)
