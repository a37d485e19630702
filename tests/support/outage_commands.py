"""Run ``rackgate lower``, ``restore`` and ``audit`` as an operator does; kill ``lower`` at a chosen step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_server import command_server
from pyhooks.core import paths
from pyhooks.core.process import DIES_WITH_PARENT

COMMAND_S = 120.0
# Runs the command line with one method replaced, so that the process is killed at a step.
KILLED_AT = """
import importlib, os, signal, sys
module, name, method, number, after = sys.argv[1:6]
owner = getattr(importlib.import_module(module), name)
original, calls = getattr(owner, method), [0]

def killed(*arguments, **options):
    calls[0] += 1
    last = calls[0] == int(number)
    if last and after == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*arguments, **options)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, method, killed)
from pyhooks.cli import main
main(sys.argv[6:])
"""


class OutageOperator:
    """Operator on one host.

    Args:
        bootstrap: addresses of brokers.
        file: audit file of the host.
    """

    def __init__(self, bootstrap: str, file: Path) -> None:
        self.file = file
        self._common = ("--bootstrap", bootstrap, "--audit-file", str(file), "--timeout", "20")
        self._env = {**os.environ, "PYTHONPATH": str(paths.REPO), "NO_COLOR": "1"}

    def run(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return command_server(NO_COLOR="1").run(verb, *arguments, *self._common, timeout_s=COMMAND_S)

    def run_killed(self, step: tuple[str, str, str, int, str], verb: str, *arguments: str) -> None:
        """Run a command that is killed before or after a call of a method.

        Args:
            step: module, class and method, number of the call, and ``before`` or ``after``.
            verb: the command.
            arguments: its arguments.
        """
        words = [*map(str, step), verb, *arguments, *self._common]
        done = subprocess.run(
            [sys.executable, "-c", KILLED_AT, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
            env=self._env,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == -9, (done.returncode, done.stdout, done.stderr)

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [*DIES_WITH_PARENT, sys.executable, "-m", "pyhooks.cli", verb, *arguments, *self._common],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
        )

    def lower(self, *arguments: str, topic: str = "gated") -> subprocess.CompletedProcess[str]:
        """Lower a topic to R=1 without waiting for its restoration."""
        return self.run("lower", topic, *LOWER, *arguments)

    def audit(self) -> tuple[int, list[tuple[str, str]], dict[str, Any]]:
        """Return exit status, topic and status of each lowering, and the whole JSON of ``rackgate audit``."""
        done = self.run("audit", "--json")
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, [(one["topic"], one["status"]) for one in report["lowerings"]], report


LOWER = ("--to", "1", "--reason", "rack b lost power", "--yes", "--no-wait")
