"""Run ``rackgate`` command lines one after another in one child process, which starts Python and Java only once.

A command has the standard output, standard error and exit status that it has in a process of its own, also if it ends
the process at once, as commands with a thread in Java do; the next command then gets a new process. For commands whose
subject is not the process: those that enter a lab or start Spark do not belong here.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.process import DIES_WITH_PARENT

# commands on standard input and their statuses on the descriptor named by the argument, one a line
_SERVER = """
import json, os, sys
from pyhooks.cli import main

replies = os.fdopen(int(sys.argv[1]), "w")
sys.argv[:] = ["rackgate"]
requests = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for line in requests:
    out, err, arguments = json.loads(line)
    for descriptor, file in ((1, out), (2, err)):
        opened = os.open(file, os.O_WRONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    try:
        main(arguments)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    print(status, file=replies, flush=True)
"""


class CommandServer:
    """Child process that runs commands.

    Args:
        environment: variables in addition to those of this process.
    """

    def __init__(self, **environment: str) -> None:
        self._env = {**os.environ, "PYTHONPATH": str(paths.REPO), **environment}
        self._process: subprocess.Popen[str] | None = None
        self._replies = -1
        atexit.register(self.close)

    def run(self, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        Raises:
            subprocess.TimeoutExpired: it did not end in time; its process is killed.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            out.touch()
            err.touch()
            process.stdin.write(json.dumps([str(out), str(err), arguments]) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([self._replies], [], [], timeout_s)
            reply = os.read(self._replies, 100) if ready else b""
            if reply:
                status = int(reply)
            else:
                status = process.wait() if ready else -1
                self.close()
            if not ready:
                raise subprocess.TimeoutExpired(arguments, timeout_s, out.read_bytes(), err.read_bytes())
            output, errors = (file.read_text(encoding="utf-8") for file in (out, err))
        return subprocess.CompletedProcess(arguments, status, output, errors)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        os.close(self._replies)
        self._process = None

    def _start(self) -> subprocess.Popen[str]:
        self._replies, theirs = os.pipe()
        command = [*DIES_WITH_PARENT, sys.executable, "-c", _SERVER, str(theirs)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._env,
            pass_fds=[theirs],
        )
        os.close(theirs)
        return self._process


@cache
def command_server(**environment: str) -> CommandServer:
    """Return this process's server of commands with additional variables."""
    return CommandServer(**environment)
