"""User at a terminal: runs ``rackgate`` for tests, with labs of its own that are isolated from others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.process import DIES_WITH_PARENT

RACKGATE = Path(sys.executable).with_name("rackgate")
# the longest that any of the commands may take, a lab with Kafka on a busy machine included
PATIENCE_S = 300.0
TAKES_DOWN = 'echo here; read -r _; told=$("$0" lab down --all 2>&1); status=$?; echo "$told"; exit $status'


class Person:
    """Runs commands.

    Attributes:
        folder: what is known of this person's labs; results may go there, too.
        env: the environment of the commands; ``rackgate`` is found by its name in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{RACKGATE.parent}:{os.environ['PATH']}"
        self.env = os.environ | {"RACKGATE_STATE": str(folder), "PATH": path}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        return subprocess.run(
            [*DIES_WITH_PARENT, str(RACKGATE), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self.env,
            timeout=PATIENCE_S,
        )

    def check_output(self, *arguments: str) -> str:
        """Run a command that must succeed and return its output."""
        return output_of(self.run(*arguments))

    def start(self, *arguments: str, session: bool = False) -> subprocess.Popen[bytes]:
        """Start a command; ``session``: as the leader of a process group that can get signals."""
        return subprocess.Popen(
            [str(RACKGATE), *arguments],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=session,
        )


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Output of a command, which must have succeeded."""
    assert done.returncode == 0, (done.args, done.stdout + done.stderr)
    return done.stdout


@contextmanager
def visiting(folder: Path) -> Iterator[Person]:
    """A user whose labs end with the context and with the process, however it ends."""
    folder.mkdir(exist_ok=True)
    person = Person(folder)
    # It waits for the end of its input, which comes with the end of this process, too; then its output is lost.
    guard = subprocess.Popen(
        ["sh", "-c", TAKES_DOWN, str(RACKGATE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=person.env,
        start_new_session=True,
    )
    try:
        # A process that has only just begun is not yet known by its mark, and would be taken for a trace later.
        assert guard.stdout is not None
        assert guard.stdout.readline() == "here\n"
        yield person
    finally:
        output, _ = guard.communicate(timeout=PATIENCE_S)
        assert guard.returncode == 0, output
