"""Machine made of Linux namespaces; commands run inside them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import process


@dataclass(frozen=True)
class NamespaceMachine:
    """A network, mount, PID and UTS namespace, entered by the PID of its first process.

    Attributes:
        name: its host name.
        pid: PID of the first process, as seen in the lab's PID namespace.
    """

    name: str
    pid: int

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` inside the namespaces."""
        return [
            "nsenter",
            f"--target={self.pid}",
            "--net",
            "--mount",
            "--pid",
            "--uts",
            "--wdns=/",
            "--",
            *argv,
        ]

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str | None = None) -> str:
        """Run a program to its end and return its output; see ``pyhooks.lab.node.Machine.run``."""
        return process.run(self.enter(argv), task=f"{self.name}: {argv[0]}", timeout_s=timeout_s, stdin=stdin)

    def popen(
        self, argv: Sequence[str], *, log: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program that outlives the call; see ``pyhooks.lab.node.Machine.popen``."""
        # Ctrl-C must end only the command that runs in the lab, not programs on its machines.
        return process.start(
            self.enter(argv), log=log or Path(os.devnull), append=True, outlives=True, env=env, start_new_session=True
        )
