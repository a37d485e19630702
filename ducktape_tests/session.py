"""Parallel execution of tests of the suite, each in its own lab, or one by one on the hosts of a cluster file.

A lab is a child process that ends with this one, even after kill -9, together with everything in it
(``pyhooks.lab.lab_processes``). The results of a test are derived afterwards from its files
(``ducktape_tests.results``).
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

import psutil

from ducktape_tests import results
from ducktape_tests.plan import SuiteTest, next_up
from pyhooks.core import files, paths, process, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import LAB_VARIABLE, RUN_DIR_VARIABLE

LAB_CLUSTER = "ducktape_tests.cluster.LabCluster"
HOSTS_CLUSTER = "ducktape.cluster.json.JsonCluster"
DRIVER = "ducktape_tests.driver"
UPDATE_S = 0.25
KILL_TIMEOUT_S = 30.0
UNCLEAN = "it did not stop cleanly, so its processes may still run on the hosts; the next test there ends them first"
# A test is ended after this multiple of its planned time plus these minutes.
LIMIT_FACTOR, LIMIT_EXTRA_MIN = 3.0, 5.0


@dataclass(frozen=True)
class RunEnvironment:
    """Environment in which tests run.

    Attributes:
        python: interpreter of the environment with ducktape.
        cluster_file: ducktape's cluster file for hosts; None for labs.
        stop_timeout_s: time for a test on hosts to stop cleanly: it heals its fault, and ends Kafka and clients by SSH.
    """

    python: Path
    cluster_file: Path | None
    run_dir: Path
    settings: Mapping[str, Any]
    stop_timeout_s: float = 120.0

    def folder(self, test: SuiteTest) -> Path:
        """Return the folder of a test."""
        return self.run_dir / "tests" / test.folder

    @property
    def on_hosts(self) -> bool:
        """Whether processes started by a test would outlive its local process."""
        return self.cluster_file is not None

    def limit_s(self, test: SuiteTest) -> float:
        """Return the time limit of a test in seconds."""
        return 60 * (LIMIT_FACTOR * test.minutes + LIMIT_EXTRA_MIN)

    def command(self, test: SuiteTest) -> list[str]:
        """Return the command line that runs a test."""
        folder = self.folder(test)
        driver = [str(self.python), "-m", DRIVER, str(folder), "--results-root", str(folder / "results")]
        driver += ["--globals", json.dumps({**test.settings, **self.settings})]
        driver += ["--test-runner-timeout", str(round(self.limit_s(test) * 1000))]
        test_id = f"ducktape_tests/{test.id}"
        if self.cluster_file is not None:
            return [*driver, "--cluster", HOSTS_CLUSTER, "--cluster-file", str(self.cluster_file), test_id]
        lab = [sys.executable, "-m", "pyhooks.cli", "lab", "run", "--bare", "--topology", test.topology]
        return [*lab, "--run-dir", str(folder), "--", *driver, "--cluster", LAB_CLUSTER, test_id]


class ProgressListener(Protocol):
    """Receiver of the progress of a run."""

    def test_started(self, test: SuiteTest) -> None:
        """Receive that a test has started."""

    def test_ended(self, test: SuiteTest, test_results: Sequence[results.Result]) -> None:
        """Receive the results of a test that has ended."""

    def update(self, running: Mapping[SuiteTest, float]) -> None:
        """Receive the running tests, with the seconds since each has started; called periodically."""


@dataclass(frozen=True)
class _RunningTest:
    """A running test.

    Attributes:
        child: its first process, the leader of its own session.
        handle: pidfd that becomes readable when the process ends.
    """

    test: SuiteTest
    child: subprocess.Popen[bytes]
    handle: int
    since: float


class SuiteSession:
    """A run of tests.

    Attributes:
        unclean: ids of tests that may have left processes on hosts.
    """

    def __init__(
        self, environment: RunEnvironment, tests: Sequence[SuiteTest], jobs: int, listener: ProgressListener
    ) -> None:
        self._environment, self._jobs, self._listener = environment, jobs, listener
        self._waiting = list(tests)
        self._running: list[_RunningTest] = []
        self.unclean: list[str] = []

    def run(self) -> None:
        """Run all tests; even after an error no process of theirs is left, except those of tests in ``unclean``.

        Raises:
            RackgateError: processes of a killed lab do not end in time.
        """
        try:
            while self._waiting or self._running:
                while test := next_up(self._waiting, [running.test for running in self._running], self._jobs):
                    self._start(test)
                self._wait()
        finally:
            for running in list(self._running):
                self._end(running, "interrupted")

    def _start(self, test: SuiteTest) -> None:
        folder = self._environment.folder(test)
        # Created here because it receives the log first; the test's lab then takes the folder over.
        run_folder.claim(folder, run_folder.LAB)
        # Use the code of this checkout instead of an installed version, and ignore a lab that this process runs in.
        env = {key: value for key, value in os.environ.items() if key not in (LAB_VARIABLE, RUN_DIR_VARIABLE)}
        env["PYTHONPATH"] = os.pathsep.join([str(paths.REPO), *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])])
        child = process.start(
            # A background job of a shell ignores SIGINT, and so would its children; tests on hosts stop by it.
            ["env", "--default-signal=INT", *self._environment.command(test)],
            log=folder / "session.log",
            cwd=paths.REPO,
            env=env,
            # Ctrl-C must reach only this process, because ducktape would take its time to stop cleanly.
            start_new_session=True,
        )
        self._waiting.remove(test)
        self._running.append(_RunningTest(test, child, os.pidfd_open(child.pid), time.monotonic()))
        self._listener.test_started(test)

    def _wait(self) -> None:
        """Wait briefly or until a test ends, then handle tests that ended or exceeded their time limit."""
        select.select([running.handle for running in self._running], [], [], UPDATE_S)
        for running in list(self._running):
            limit = self._environment.limit_s(running.test)
            if running.child.poll() is not None:
                self._end(running, "")
            elif time.monotonic() - running.since > limit:
                self._end(running, f"stopped after {limit / 60:.0f} minutes, expected were {running.test.minutes:g}")
        self._listener.update({running.test: time.monotonic() - running.since for running in self._running})

    def _end(self, running: _RunningTest, why: str) -> None:
        """Record how a test ended; if it still runs, end it first: cleanly if possible on hosts, at once in a lab."""
        interrupt: KeyboardInterrupt | None = None
        if why:
            clean = not self._environment.on_hosts
            try:
                clean = clean or _stop(running.child, self._environment.stop_timeout_s)
            except KeyboardInterrupt as error:
                # The user does not want to wait.
                interrupt = error
            if not clean:
                self.unclean.append(running.test.id)
                why = f"{why}; {UNCLEAN}"
            with suppress(ProcessLookupError):
                os.killpg(running.child.pid, signal.SIGKILL)
        status = running.child.wait()
        # The first process of a lab is in that session, and ends after all processes in the lab.
        wait_for(
            lambda: not _in_session(running.child.pid), goal=f"the end of all processes of {running.test.id}",
            timeout_s=KILL_TIMEOUT_S, interval_s=0.05,
        )  # fmt: skip
        os.close(running.handle)
        self._running.remove(running)
        end = {"status": status, "seconds": round(time.monotonic() - running.since, 1), "why": why}
        files.write_json(self._environment.folder(running.test) / results.ENDED, end)
        self._listener.test_ended(running.test, results.judge_one(self._environment.run_dir, planned(running.test)))
        if interrupt is not None:
            raise interrupt


def _stop(child: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Interrupt a test as Ctrl-C does, and return whether it ended in time."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)
    try:
        wait_for(lambda: child.poll() is not None and not _in_session(child.pid), goal="its end", timeout_s=timeout_s)
    except RackgateError:
        return False
    return True


def _in_session(leader: int) -> list[int]:
    """Return the running processes of a session; zombies are not counted."""
    pids = []
    for candidate in psutil.process_iter():
        # errors: it has ended meanwhile
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(candidate.pid) == leader and candidate.status() != psutil.STATUS_ZOMBIE:
                pids.append(candidate.pid)
    return pids


def planned(test: SuiteTest) -> results.PlannedTest:
    """Return a test in the format of ``run.json``."""
    return results.PlannedTest(test.id, test.topology, test.minutes, test.folder, test.finds)
