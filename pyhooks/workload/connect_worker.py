"""Distributed Connect worker with two connectors: a source that writes numbers, and a sink that reads them.

The connectors are those of the Java helpers, ``CountSource`` and ``CountSink``. The worker runs in a JVM of its own and
is controlled by its REST interface on loopback. A failed task is restarted, as operators or their tools do. The events
have subclasses of ``ConnectDetails``. SIGTERM ends the worker.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.core.process import end, start
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import ConnectorStateDetails, SunkDetails
from pyhooks.jvm.client import LOG4J
from pyhooks.lab.kafka_process import render
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload import program

SOURCE, SINK = "source", "sink"
PORT = 8083
START_S, REQUEST_S, END_S = 90.0, 10.0, 20.0
STATE_S = 1.0
PAUSE_MS = 50
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class _WorkerIdentity(TypedDict):
    run: str
    group: str
    topic: str


def internal_topics(group: str) -> dict[str, str]:
    """Return the worker's property for each of its internal topics, with the topic's name."""
    return {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}


def worker_properties(bootstrap: str, group: str) -> dict[str, str]:
    """Return the configuration of the worker; its internal topics must exist."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        **internal_topics(group),
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.flush.interval.ms": "1000",
        "exactly.once.source.support": "enabled",
        "listeners": f"HTTP://127.0.0.1:{PORT}",
        "plugin.discovery": "only_scan",
    }


class ConnectRun:
    """A worker and its connectors.

    Args:
        options: arguments of the program.
        history: history to append to.
    """

    def __init__(self, options: Namespace, history: History) -> None:
        self._history, self._folder = history, Path(options.folder)
        self._self: _WorkerIdentity = {"run": options.run, "group": options.group, "topic": options.topics}
        self._bootstrap: str = options.bootstrap
        self._sunk = self._folder / "sunk"
        self._read_bytes, self._read_ns = 0, time.monotonic_ns()
        self._states: dict[str, str] = {}

    def run(self, ended: program.StopEvent) -> None:
        """Run the worker until ``ended`` is set.

        Raises:
            RackgateError: the worker ended, or did not start in time.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "worker.properties"
        write_text(file, render(worker_properties(self._bootstrap, self._self["group"])))
        built = Distribution.load()
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J}"]
        command += ["-cp", f"{built.classpath()}:{built.hooks}", "org.apache.kafka.connect.cli.ConnectDistributed"]
        worker = start([*command, file], task="start a Connect worker", log=self._folder / "worker.log")
        try:
            wait_for(lambda: self._query("/connectors") is not None, goal="a Connect worker", timeout_s=START_S)
            for name, config in self._connectors().items():
                wait_for(
                    lambda name=name, config=config: self._put(name, config),  # type: ignore[misc]
                    goal=f"connector {name}",
                    timeout_s=START_S,
                    interval_s=1.0,
                )
            while not ended.wait(STATE_S):
                if worker.poll() is not None:
                    raise RackgateError("the Connect worker ended unexpectedly")
                self._note_states()
                self._note_sunk()
        finally:
            end(worker, grace_s=END_S, first=signal.SIGTERM)
            self._note_sunk(last=True)

    def _connectors(self) -> dict[str, Mapping[str, str]]:
        package, topic = "rackgate.hooks", self._self["topic"]
        return {
            SOURCE: {
                "connector.class": f"{package}.CountSource", "tasks.max": "1", "topic": topic,
                "pause.ms": str(PAUSE_MS),
            },
            SINK: {
                "connector.class": f"{package}.CountSink", "tasks.max": "1", "topics": topic, "file": str(self._sunk),
                "consumer.override.isolation.level": "read_committed",
            },
        }  # fmt: skip

    def _note_states(self) -> None:
        """Record each task's state when it changes, and restart failed tasks."""
        for name in (SOURCE, SINK):
            found = self._query(f"/connectors/{name}/status")
            for task in found["tasks"] if found else ():
                state = str(task["state"])
                if state == self._states.get(name):
                    continue
                self._states[name] = state
                trace = str(task["trace"]).partition("\n")[0] if task.get("trace") else None
                self._history.add(ConnectorStateDetails(**self._self, connector=name, state=state, trace=trace))
                if state == "FAILED":
                    self._query(f"/connectors/{name}/tasks/{task['id']}/restart", "POST")
                    del self._states[name]

    def _note_sunk(self, *, last: bool = False) -> None:
        """Record the offsets that the sink has written to its file since the last call; the last time even if none."""
        begun_ns, self._read_ns = self._read_ns, time.monotonic_ns()
        lines: list[bytes] = []
        if self._sunk.exists():
            with self._sunk.open("rb") as file:
                file.seek(self._read_bytes)
                *lines, rest = file.read().split(b"\n")
                self._read_bytes = file.tell() - len(rest)
        runs: list[tuple[int, int]] = []
        for offset in map(int, lines):
            if runs and offset == sum(runs[-1]):
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((offset, 1))
        if runs or last:
            self._history.add(SunkDetails(**self._self, begun_ns=begun_ns, offsets=tuple(runs)))

    def _put(self, name: str, config: Mapping[str, str]) -> bool:
        return self._query(f"/connectors/{name}/config", "PUT", config) is not None

    def _query(self, path: str, method: str = "GET", body: Mapping[str, str] | None = None) -> Any | None:
        """Return the response of the REST interface; None if there is none, or an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as response:  # noqa: S310 - a fixed address
                return json.loads(response.read() or b"{}")
        except (OSError, urllib.error.URLError, ValueError):
            return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker as a process; SIGTERM or SIGINT ends it."""
    parser = program.topics_parser(
        "connect_worker", "Run a Connect worker with a source that writes numbers and a sink that reads them.",
        "--group connect --folder DIR --run connect-1",
    )  # fmt: skip
    parser.add_argument("--group", required=True, help="group id of the worker")
    parser.add_argument("--folder", required=True, help="folder for its files")
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        ConnectRun(options, History(options.history)).run(ended)

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
