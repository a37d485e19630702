"""Client programs as a ducktape service: one node from which they run, each to its end."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from ducktape.services.service import Service

from pyhooks.history import Event, History


class Clients(Service):
    """Runs workloads of ``pyhooks.workload`` on a node and brings their events into the test's history.

    Args:
        context: ducktape's test context.
        python: the interpreter on the node that has the project installed; the driver's own by default.
    """

    SCRATCH = "/tmp/rackgate-clients"  # noqa: S108 - a folder of the client's node, removed at the end

    def __init__(self, context: Any, python: str = sys.executable) -> None:
        super().__init__(context, num_nodes=1)
        self.python = python

    def start_node(self, node: Any, **_: Any) -> None:
        """Makes the scratch folder."""
        node.account.ssh(f"mkdir -p {self.SCRATCH}")

    def stop_node(self, node: Any, **_: Any) -> None:
        """Nothing runs on: every program is awaited."""

    def clean_node(self, node: Any, **_: Any) -> None:
        """Removes the scratch folder."""
        node.account.ssh(f"rm -rf {self.SCRATCH}")

    def run(self, workload: str, history: History, *arguments: str) -> tuple[Event, ...]:
        """Runs ``python -m pyhooks.workload.<workload>`` to its end and appends its events to ``history``.

        Returns:
            The events that it wrote.
        """
        account = self.nodes[0].account
        remote = f"{self.SCRATCH}/{workload}.jsonl"
        words = [self.python, "-m", f"pyhooks.workload.{workload}", "--history", remote, *arguments]
        account.ssh(f"rm -f {remote}")
        account.ssh(shlex.join(words))
        local = Path(str(history.path) + ".part")
        account.copy_from(remote, str(local))
        events = tuple(History(local).events())
        local.unlink()
        for event in events:
            history.append(event)
        return events
