"""Execution of cases, each in a bare lab of its own, some at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ducktape_tests.kafkatest.cases import Case
from ducktape_tests.kafkatest.nodes import Arm, mounts
from ducktape_tests.kafkatest.results import ArmResult, judge, result_path
from pyhooks.core import files, paths, process, run_folder
from pyhooks.lab.lab import LAB_VARIABLE, RUN_DIR_VARIABLE
from pyhooks.patchset.distribution import Distribution

CLUSTER = "ducktape_tests.cluster.NodesCluster"
DRIVER = "ducktape_tests.kafkatest.driver"
# for tests that do not say how many nodes they need
DEFAULT_NODES = 12
UPDATE_S = 0.25
# A case is ended after this multiple of its expected time plus these minutes.
LIMIT_FACTOR, LIMIT_EXTRA_MIN = 3.0, 5.0


@dataclass(frozen=True)
class Job:
    """A case to run in an arm; ``minutes`` is its expected time."""

    case: Case
    arm: Arm
    minutes: float

    @property
    def limit_s(self) -> float:
        """Time after which it is ended."""
        return 60 * (LIMIT_FACTOR * self.minutes + LIMIT_EXTRA_MIN)


@dataclass(frozen=True)
class Environment:
    """Environment in which cases run.

    Attributes:
        python: interpreter of the environment with ducktape.
        checkout: root of the checkout.
        fingerprint: of the checkout.
        variables: environment variables of the labs.
        trees: for each arm, the folder that ``nodes.write_tree`` wrote.
    """

    python: Path
    checkout: Path
    fingerprint: str
    kafka: Distribution
    run_dir: Path
    variables: Mapping[str, str] = field(repr=False)
    trees: Mapping[Arm, Path] = field(repr=False)

    def versions(self, arm: Arm) -> str:
        """Return what runs in an arm; a result of anything else is not used again."""
        version, series = self.kafka.manifest["kafka_version"], self.kafka.manifest["patch_hash"]
        return str(version) if arm == "stock" else f"{version} with {series}"

    def folder(self, job: Job) -> Path:
        """Return the folder of the job's lab."""
        return self.run_dir / job.arm / job.case.name

    def is_current(self, result: ArmResult) -> bool:
        """Return whether a stored result is of this checkout and this Kafka, and has a verdict."""
        same = (result.checkout, result.kafka) == (self.fingerprint, self.versions(result.arm))
        return same and result.verdict != "unknown"

    def command(self, job: Job, topology: Path) -> list[str]:
        """Return the command line that runs a job."""
        folder = self.folder(job)
        lab = [sys.executable, "-m", "pyhooks.cli", "lab", "run", "--bare", "--topology", str(topology)]
        sources = json.dumps(mounts(self.checkout, self.kafka, job.arm))
        driver = [str(self.python), "-m", DRIVER, str(self.trees[job.arm]), sources, str(folder)]
        ducktape = ["--results-root", str(folder / "results"), "--cluster", CLUSTER]
        ducktape += ["--test-runner-timeout", str(round(job.limit_s * 1000))]
        test = f"{self.checkout / 'tests' / 'kafkatest'}/{job.case.id}"
        return [*lab, "--run-dir", str(folder), "--", *driver, *ducktape, test]


def topology_text(nodes: int) -> str:
    """Return the topology of a lab with machines in one place; kafkatest decides what runs on each."""
    ids = ", ".join(map(str, range(1, nodes + 1)))
    return f'name = "kafkatest"\n\n[[site]]\nname = "lab"\ncombined = [{ids}]\nclient = true\n'


@dataclass
class _Running:
    job: Job
    child: subprocess.Popen[bytes]
    since: float


class Session:
    """Run of jobs, ``at_once`` of them at a time.

    Attributes:
        started, ended: called when a job starts, and with its result when it has ended; both get the remaining minutes.
    """

    def __init__(
        self,
        environment: Environment,
        jobs: Sequence[Job],
        at_once: int,
        started: Callable[[Job, float], None],
        ended: Callable[[Job, ArmResult, float], None],
    ) -> None:
        self._environment, self._at_once = environment, at_once
        self._started, self._ended = started, ended
        self._waiting, self._running = list(jobs), list[_Running]()

    def run(self) -> None:
        """Run all jobs; however it ends, no lab of it is left."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._at_once:
                    self._start(self._waiting.pop(0))
                time.sleep(UPDATE_S)
                for running in list(self._running):
                    if running.child.poll() is not None:
                        self._end(running, "")
                    elif time.monotonic() - running.since > running.job.limit_s:
                        _kill(running.child)
                        self._end(running, f"stopped after {running.job.limit_s / 60:.0f} minutes")
        finally:
            for running in self._running:
                _kill(running.child)

    def remaining_minutes(self) -> float:
        """Estimate the remaining time from the expected times of jobs."""
        now = time.monotonic()
        running = [max(0.1, each.job.minutes - (now - each.since) / 60) for each in self._running]
        total = sum(job.minutes for job in self._waiting) + sum(running)
        return max([total / self._at_once, *running])

    def _start(self, job: Job) -> None:
        folder = self._environment.folder(job)
        topology = folder.with_name(f"{job.case.name}.toml")
        files.write_text(topology, topology_text(job.case.nodes or DEFAULT_NODES))
        run_folder.remove(folder)
        # created here because it receives the log first; the lab then takes the folder over
        run_folder.claim(folder, run_folder.LAB)
        hidden = (LAB_VARIABLE, RUN_DIR_VARIABLE, "CLASSPATH")
        child = process.start(
            self._environment.command(job, topology),
            log=folder / "session.log",
            cwd=paths.REPO,
            env={key: value for key, value in self._environment.variables.items() if key not in hidden},
            # Ctrl-C must reach only this process: a lab is killed as a whole
            start_new_session=True,
        )
        self._running.append(_Running(job, child, time.monotonic()))
        self._started(job, self.remaining_minutes())

    def _end(self, running: _Running, stopped: str) -> None:
        self._running.remove(running)
        job, environment = running.job, self._environment
        verdict, reason = judge(environment.folder(job), job.arm, stopped)
        seconds = round(time.monotonic() - running.since, 1)
        result = ArmResult(
            case=job.case.id,
            arm=job.arm,
            verdict=verdict,
            seconds=seconds,
            reason=reason,
            checkout=environment.fingerprint,
            kafka=environment.versions(job.arm),
        )
        result.save(result_path(environment.run_dir, job.arm, job.case))
        self._ended(job, result, self.remaining_minutes())


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a lab: its first process is in the child's session, and takes everything in the lab along."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
