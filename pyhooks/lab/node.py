"""A machine of the cluster as something that runs commands: here a set of namespaces, elsewhere a host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespace_machine import NamespaceMachine
from pyhooks.lab import namespace_holder

# What a node sees as /mnt is its own disk; from the lab the same folder is <lab>/<node>.
NODE_DISK = Path("/mnt")


class Machine(Protocol):
    """Where a command can be run; control does not go over the network under fault."""

    @property
    def name(self) -> str:
        """Name of the machine."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str | None = None) -> str:
        """Runs a program to its end and returns its output.

        Raises:
            RackgateError: it did not end in time or ended with a status other than 0.
        """

    def popen(
        self, argv: Sequence[str], *, log: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program that outlives the call; output goes to ``log`` or nowhere."""


def create(name: str, disk: Path) -> tuple[NamespaceMachine, subprocess.Popen[bytes]]:
    """Makes a machine with ``disk`` as its /mnt; it lives until its first process or the caller ends.

    The caller's namespaces (the lab's) are the parents. ``disk`` is made if need be.

    Returns:
        The machine, and the process that holds it, for the caller to keep.

    Raises:
        RackgateError: the kernel refused.
    """
    disk.mkdir(parents=True, exist_ok=True)
    words = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    words += [sys.executable, "-I", "-S", namespace_holder.__file__]
    starter = subprocess.Popen(
        [*process.DIES_WITH_PARENT, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    if starter.stdout is None or starter.stderr is None:
        raise AssertionError("both are pipes")
    if starter.stdout.readline() != b"ready\n":
        raise RackgateError(f"{name}: no namespaces: {starter.stderr.read().decode().strip()}")
    starter.stdout.close()
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text(encoding="ascii")
    machine = NamespaceMachine(name, int(children.split()[0]))
    machine.run(["hostname", name])
    machine.run(["mount", "--bind", str(disk), str(NODE_DISK)])
    machine.run(["ip", "link", "set", "lo", "up"])
    return machine, starter
