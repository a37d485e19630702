"""Runs tests of the suite, some at a time, each in a lab of its own or all on the hosts of a cluster file.

A lab is a process of ours that ends with us, kill -9 included, and takes all that is in it along
(``pyhooks.lab.running_labs``). What a test leaves is judged afterwards, from its files (``ducktape_tests.results``).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ducktape_tests import results
from ducktape_tests.plan import Listed, next_up
from pyhooks.core import files, paths, process, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import LAB_VARIABLE, RUN_DIR_VARIABLE

LAB_CLUSTER = "ducktape_tests.cluster.LabCluster"
HOSTS_CLUSTER = "ducktape.cluster.json.JsonCluster"
DRIVER = "ducktape_tests.driver"
TICK_S = 0.25
GONE_S = 30.0
# Of a test on hosts that is to end in good order: it heals its fault, and ends Kafka and clients, by ssh.
ENDS_S = 120.0
LEFT = "it did not end in good order, so what it began may still run on the hosts; the next test there ends that first"
# What a test may take: so many times what was planned, and so many minutes more.
PATIENCE, GRACE_MIN = 3.0, 5.0


@dataclass(frozen=True)
class Place:
    """Where tests run.

    Attributes:
        python: of the environment that has ducktape.
        cluster_file: of ducktape, for hosts; None for labs.
        run_dir: folder of the run.
        settings: ducktape's globals for all tests.
    """

    python: Path
    cluster_file: Path | None
    run_dir: Path
    settings: Mapping[str, Any]

    def folder(self, test: Listed) -> Path:
        """Of a test."""
        return self.run_dir / "tests" / test.folder

    @property
    def on_hosts(self) -> bool:
        """Whether what a test begins would outlive its own process here."""
        return self.cluster_file is not None

    def words(self, test: Listed) -> list[str]:
        """The words that run a test."""
        folder = self.folder(test)
        told = json.dumps({**test.settings, **self.settings})
        words = [str(self.python), "-m", DRIVER, str(folder), "--results-root", str(folder / "results")]
        words += ["--globals", told, "--test-runner-timeout", str(round(limit_s(test) * 1000))]
        test_id = f"ducktape_tests/{test.id}"
        if self.cluster_file is not None:
            return [*words, "--cluster", HOSTS_CLUSTER, "--cluster-file", str(self.cluster_file), test_id]
        lab = [sys.executable, "-m", "pyhooks.cli", "lab", "run", "--bare", "--topology", test.topology]
        return [*lab, "--run-dir", str(folder), "--", *words, "--cluster", LAB_CLUSTER, test_id]


class Audience(Protocol):
    """Who hears how tests go."""

    def begun(self, test: Listed) -> None:
        """A test has begun."""

    def ended(self, test: Listed, found: Sequence[results.Result]) -> None:
        """A test has ended."""

    def tick(self, running: Mapping[Listed, float]) -> None:
        """Some time has gone by; the tests that run, with the seconds since each has begun."""


@dataclass(frozen=True)
class _Begun:
    """A test that runs.

    Attributes:
        test: which.
        child: its first process, the leader of a session of its own.
        handle: by which the kernel tells of its end.
        since: monotonic seconds.
    """

    test: Listed
    child: subprocess.Popen[bytes]
    handle: int
    since: float


def limit_s(test: Listed) -> float:
    """When a test is given up."""
    return 60 * (PATIENCE * test.minutes + GRACE_MIN)


class Session:
    """A run of tests.

    Args:
        place: where.
        tests: what.
        jobs: how many at a time.
        audience: who hears of it.

    Attributes:
        left: tests that may have left something running on hosts.
    """

    def __init__(self, place: Place, tests: Sequence[Listed], jobs: int, audience: Audience) -> None:
        self._place, self._jobs, self._audience = place, jobs, audience
        self._waiting = list(tests)
        self._running: list[_Begun] = []
        self.left: list[str] = []

    def run(self) -> None:
        """Runs all; however it ends, nothing of it is left behind, but for ``left``.

        Raises:
            RackgateError: a lab that was killed is not gone in time.
        """
        try:
            while self._waiting or self._running:
                while (test := next_up(self._waiting, [one.test for one in self._running], self._jobs)) is not None:
                    self._begin(test)
                self._look()
        finally:
            for one in list(self._running):
                self._end(one, "it was interrupted")

    def _begin(self, test: Listed) -> None:
        folder = self._place.folder(test)
        # the test's lab takes it over with the log that is put there first
        run_folder.claim(folder, run_folder.LAB)
        # the code of this checkout, whatever is installed; and not the lab in which somebody may have started us
        env = {key: value for key, value in os.environ.items() if key not in (LAB_VARIABLE, RUN_DIR_VARIABLE)}
        env["PYTHONPATH"] = os.pathsep.join([str(paths.REPO), *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])])
        with (folder / "session.log").open("wb") as log:
            child = subprocess.Popen(
                # who runs us in the background has us ignore what is to end a test on hosts, and it would, too
                [*process.DIES_WITH_PARENT, "env", "--default-signal=INT", *self._place.words(test)],
                cwd=paths.REPO,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us alone: ducktape would take it for a wish to end in good order, and take its time
                start_new_session=True,
            )
        self._waiting.remove(test)
        self._running.append(_Begun(test, child, os.pidfd_open(child.pid), time.monotonic()))
        self._audience.begun(test)

    def _look(self) -> None:
        """Waits a moment, or until a test ends."""
        select.select([one.handle for one in self._running], [], [], TICK_S)
        for one in list(self._running):
            late = time.monotonic() - one.since > limit_s(one.test)
            if one.child.poll() is not None:
                self._end(one, "")
            elif late:
                self._end(
                    one, f"given up after {limit_s(one.test) / 60:.0f} minutes, {one.test.minutes:g} were expected"
                )
        self._audience.tick({one.test: time.monotonic() - one.since for one in self._running})

    def _end(self, one: _Begun, why: str) -> None:
        """Notes how a test ended; if it has not, it is ended: on hosts in good order, if it can, else at once."""
        hurry: KeyboardInterrupt | None = None
        if why:
            ended = not self._place.on_hosts
            try:
                ended = ended or _ends(one.child)
            except KeyboardInterrupt as error:
                # a person who does not want to wait
                hurry = error
            if not ended:
                self.left.append(one.test.id)
                why = f"{why}; {LEFT}"
            with suppress(ProcessLookupError):
                os.killpg(one.child.pid, signal.SIGKILL)
        status = one.child.wait()
        # the first process of a lab is in that session, and goes when all that is in the lab has gone
        wait_for(
            lambda: not _in_session(one.child.pid), what=f"the end of all of {one.test.id}", timeout_s=GONE_S,
            interval_s=0.05,
        )  # fmt: skip
        os.close(one.handle)
        self._running.remove(one)
        told = {"status": status, "seconds": round(time.monotonic() - one.since, 1), "why": why}
        files.write_json(self._place.folder(one.test) / results.ENDED, told)
        self._audience.ended(one.test, results.judge_one(self._place.run_dir, planned(one.test)))
        if hurry is not None:
            raise hurry


def _ends(child: subprocess.Popen[bytes]) -> bool:
    """Asks a test to end in good order, as Ctrl-C does; tells whether it did in time."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
    try:
        wait_for(lambda: child.poll() is not None and not _in_session(child.pid), what="its end", timeout_s=ENDS_S)
    except RackgateError:
        return False
    return True


def _in_session(leader: int) -> list[int]:
    """The processes of a session that are not yet gone; a zombie of somebody else's is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = process.stat_fields(entry)
            # state, parent, process group, session
            if len(fields) > 3 and fields[0] != "Z" and int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


def planned(test: Listed) -> results.Planned:
    """A test as ``run.json`` has it."""
    return results.Planned(test.id, test.topology, test.minutes, test.folder, test.finds)
