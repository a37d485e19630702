"""Runs other programs so that they end with us, and turns their failures into one clear line."""

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
# The kernel kills the child when we die, kill -9 included; it holds across exec.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """Has a SIGTERM exit with 143, like an interruption, so that what is to be taken away is; in the main thread."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stat_fields(entry: Path) -> list[str]:
    """What the kernel tells of a process in ``stat``, from its state letter (proc(5)'s third field) on.

    Args:
        entry: its folder below /proc.

    Returns:
        The fields, or none if there is no such process.
    """
    try:
        text = (entry / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return parse_stat(text)


def parse_stat(text: str) -> list[str]:
    """The fields of ``stat`` from the state letter on; see ``stat_fields``."""
    # the second field is the program's name in brackets, which may have anything in it
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
    """Runs a program to its end and returns its standard output as text.

    Args:
        argv: program and arguments; no shell is involved.
        what: the work in words, for the error message ("compile core").
        cwd: folder to run in.
        env: the whole environment, or None for ours.
        log: if given, standard output and error go to this file and the return value is empty.
        stdin: text for standard input; without it standard input is closed.
        timeout_s: bound in seconds.
        tail_lines: how many last lines of output the error's detail shows.

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
    """Close the standard input of a child that ends with it, and wait for its end; it is killed after ``timeout_s``."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def end_processes_in(folder: Path) -> int:
    """Ends processes whose working folder is below ``folder``, also one whose parent has ended before it.

    Returns:
        How many were ended.
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
            continue  # it has ended meanwhile, or is another user's
    return ended


def end_until_done(folder: Path, jobs: Collection[Future[Any]]) -> None:
    """Ends processes below ``folder`` until jobs that wait for them are done; one that began late is found, too."""
    while running := [job for job in jobs if not job.done()]:
        end_processes_in(folder)
        wait(running, _LOOK_S)
