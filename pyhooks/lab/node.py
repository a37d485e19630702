"""Machine of a cluster that runs commands: here a set of namespaces, elsewhere a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.lab import namespace_holder

# A node sees its disk as /mnt; in the lab the same folder is <lab>/<node>.
NODE_DISK = Path("/mnt")


def create(name: str, disk: Path) -> tuple[NamespaceMachine, subprocess.Popen[bytes]]:
    """Create a machine with ``disk`` as its /mnt; it lasts until its init process or the caller ends.

    Its namespaces are children of the caller's (the lab's). ``disk`` is created if needed.

    Returns:
        The machine, and the process that holds its namespaces, which the caller must keep.

    Raises:
        RackgateError: the kernel refused to create the namespaces.
    """
    disk.mkdir(parents=True, exist_ok=True)
    command = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, "-I", "-S", namespace_holder.__file__]
    starter = process.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    if starter.stdout is None or starter.stderr is None:
        raise AssertionError("both are pipes")
    if starter.stdout.readline() != b"ready\n":
        raise RackgateError(f"{name}: no namespaces: {starter.stderr.read().decode().strip()}")
    starter.stdout.close()
    machine = NamespaceMachine(name, process.children(starter.pid)[0])
    machine.run(["hostname", name])
    machine.run(["mount", "--bind", str(disk), str(NODE_DISK)])
    machine.run(["ip", "link", "set", "lo", "up"])
    return machine, starter
