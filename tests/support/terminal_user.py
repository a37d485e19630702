"""User at a terminal, who runs ``rackgate`` with labs isolated from those of other users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.process import DIES_WITH_PARENT

RACKGATE = Path(sys.executable).with_name("rackgate")
# timeout of any command, including a lab with Kafka on a busy machine
PATIENCE_S = 300.0
TAKES_DOWN = 'echo here; read -r _; told=$("$0" lab down --all 2>&1); status=$?; echo "$told"; exit $status'


class Person:
    """User who runs commands.

    Attributes:
        folder: state of this user's labs; tests may put results there, too.
        env: environment of the commands; its PATH includes ``rackgate``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{RACKGATE.parent}:{os.environ['PATH']}"
        self.env = os.environ | {"RACKGATE_STATE": str(folder), "XDG_STATE_HOME": str(folder / "home"), "PATH": path}

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
        """Start a command; if ``session``, in a new session, so that its process group can be signalled."""
        return subprocess.Popen(
            [str(RACKGATE), *arguments],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=session,
        )


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command, which must have succeeded."""
    assert done.returncode == 0, (done.args, done.stdout + done.stderr)
    return done.stdout


@contextmanager
def visiting(folder: Path) -> Iterator[Person]:
    """Yield a user whose labs are taken down at the end of the block or of this process, however it ends."""
    folder.mkdir(exist_ok=True)
    person = Person(folder)
    # The guard takes the labs down at the end of its input, which also comes when this process is killed.
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
        # Wait until the guard has started: before, it lacks the mark in its environment and would count as a leftover.
        assert guard.stdout is not None
        assert guard.stdout.readline() == "here\n"
        yield person
    finally:
        output, _ = guard.communicate(timeout=PATIENCE_S)
        assert guard.returncode == 0, output
