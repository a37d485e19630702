"""Linux namespaces of a lab's nodes: commands that run inside them, and sockets that are opened in their network."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import process
from pyhooks.core.errors import RackgateError

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class NamespaceMachine:
    """Network, mount, PID and UTS namespace; ``pid`` is its first process's, as seen in the lab's PID namespace."""

    name: str
    pid: int

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` inside the namespaces."""
        namespaces = ("--net", "--mount", "--pid", "--uts")
        return ["nsenter", f"--target={self.pid}", *namespaces, "--wdns=/", "--", *argv]

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str | None = None) -> str:
        """Run a program to completion and return its output.

        Raises:
            RackgateError: it timed out or ended with a nonzero status.
        """
        return process.run(self.enter(argv), task=f"{self.name}: {argv[0]}", timeout_s=timeout_s, stdin=stdin)

    def popen(
        self, argv: Sequence[str], *, log: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program that outlives the call; its output is written to ``log`` or discarded."""
        # Ctrl-C must end only the command that runs in the lab, not programs on its machines.
        return process.start(
            self.enter(argv), log=log or Path(os.devnull), append=True, outlives=True, env=env, start_new_session=True
        )


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Move the calling thread, but no other thread, into the network namespace of a process within the block.

    A socket stays in the namespace in which it was opened, so only opening it has to happen within the block. ``pid``
    is the process's PID as seen from our namespace.

    Raises:
        RackgateError: there is no such process, or this process may not enter its namespace.
    """
    try:
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RackgateError(f"network namespace of this thread: {error}") from error
    try:
        try:
            other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RackgateError(f"network namespace of process {pid}: {error.strerror}; does its node run?") from error
        try:
            _enter(other, f"network namespace of process {pid}")
        finally:
            os.close(other)
        try:
            yield
        finally:
            _enter(own, "back into the own network namespace")
    finally:
        os.close(own)


def _enter(descriptor: int, goal: str) -> None:
    # os.setns exists only since Python 3.12
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise RackgateError(f"{goal}: {os.strerror(code)}; only the lab that made a node may enter it")
