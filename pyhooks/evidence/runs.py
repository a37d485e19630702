"""Execution of the commands of ``claims.toml``; their results are written as artifacts."""

from __future__ import annotations

import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks import __version__
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import parse_json, read_text, write_text
from pyhooks.core.process import exits_on_sigterm, supervised
from pyhooks.evidence import artifacts, rules
from pyhooks.evidence.claims import OVERLAY, SERIES, ClaimRun, Claims
from pyhooks.patchset import recipe, series
from pyhooks.patchset.distribution import Distribution

OUT = paths.OUT / "evidence"
MODULES = {"rackgate": "pyhooks.cli", "pytest": "pytest"}
# timeout of a run as a multiple of its expected duration, for busy machines, and its minimum
_TIMEOUT_FACTOR, _TIMEOUT_MIN_S = 10.0, 900.0
_SHUTDOWN_S = 120.0


@dataclass(frozen=True)
class FinishedCommand:
    """Result of a finished command."""

    status: int
    output: str


Execute = Callable[[Sequence[str], Path, float], FinishedCommand]


def execute(command: Sequence[str], log: Path, timeout_s: float) -> FinishedCommand:
    """Run one command of ``rackgate`` or ``pytest`` in the root of the checkout, with the interpreter of this process.

    The command ends with this process. On a timeout or an interruption it gets SIGTERM first, so that it can clean up.
    Its standard error goes to ``log``.

    Raises:
        RackgateError: the command did not end in time and was terminated.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", MODULES[command[0]], *command[1:]]
    environment = {**os.environ, "PYTHONPATH": str(paths.REPO), "COLUMNS": "120"}
    with (
        exits_on_sigterm(),
        log.open("w", encoding="utf-8") as errors,
        # SIGTERM first: the command may have to shut down labs or brokers
        supervised(
            program, grace_s=_SHUTDOWN_S, first=signal.SIGTERM,
            cwd=paths.REPO, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
        ) as process,
    ):  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RackgateError(f"{shlex.join(command)}: did not end within {timeout_s:.0f} s; see {log}") from error
    return FinishedCommand(process.returncode, output)


def execute_run(
    claims: Claims,
    run: ClaimRun,
    *,
    folder: Path = artifacts.EVIDENCE,
    root: Path = paths.REPO,
    out: Path = OUT,
    execute: Execute = execute,
) -> dict[str, Any]:
    """Execute the commands of a run, and write and return its artifact.

    Raises:
        RackgateError: a command ended with an unexpected status or wrote no valid result, a dependency changed
            meanwhile, the built overlay does not match the current series, or the artifact is too large.
    """
    current = artifacts.fingerprints([run], root)[run.id]
    if {SERIES, OVERLAY} & set(run.depends):
        _check_build(root)
    started, clock = time.time(), time.monotonic()
    states_before = _file_states(run, root)
    results: dict[str, Any] = {}
    statuses: dict[str, int] = {}
    for number, (label, command) in enumerate(run.commands.items()):
        argv = shlex.split(command)
        log = out / f"{run.id}{f'-{number}' if number else ''}.log"
        finished = execute(argv, log, max(_TIMEOUT_MIN_S, run.minutes * 60 * _TIMEOUT_FACTOR))
        if finished.status not in run.statuses:
            tail = log.read_text(encoding="utf-8", errors="replace")[-1500:] if log.is_file() else ""
            output_tail = tail.strip() or finished.output[-1500:].strip()
            raise RackgateError(f"{command}: ended with status {finished.status}; see {log}", detail=output_tail)
        statuses[label], results[label] = finished.status, _result(claims, run, finished, root, states_before)
    seconds = time.monotonic() - clock
    if artifacts.fingerprints([run], root)[run.id] != current:
        raise RackgateError(f"run {run.id}: a dependency has changed meanwhile; run it again")
    artifact = {
        "schema": artifacts.SCHEMA,
        "run": run.id,
        "commands": dict(run.commands),
        "statuses": statuses,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(seconds, 1),
        "depends": dict(current.depends),
        "files": current.files,
        "versions": versions(),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load": round(os.getloadavg()[0], 1)},
        "result": results.get("", results),
    }
    text = artifacts.artifact_text(artifact).replace(f"{root}/", "")
    write_text(folder / f"{run.id}.json", text)
    return artifact


def versions() -> dict[str, str]:
    """Return the versions of Kafka, patch series, Python and this project, for an artifact."""
    plan = recipe.load()
    patches = len(series.load(plan.path.parent))
    return {
        "kafka": plan.version,
        "patches": str(patches),
        "python": platform.python_version(),
        "kafka-rackgate": __version__,
    }


def _check_build(root: Path) -> None:
    patches = series.load(root / paths.patch_folder().relative_to(paths.REPO))
    series.check_build(Distribution.load().manifest, patches)


def _file_states(run: ClaimRun, root: Path) -> dict[Path, tuple[int, ...]]:
    """Return the files that a run reads, with attributes that change when a file is written.

    They are compared for equality only: modification times can't be compared with the clock, which may be set back.
    """
    stats = {path: path.stat() for path in (root.glob(run.reads) if run.reads else ()) if path.is_file()}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items()}


def _result(
    claims: Claims, run: ClaimRun, finished: FinishedCommand, root: Path, states_before: Mapping[Path, tuple[int, ...]]
) -> Any:
    # ignore reports of earlier runs
    written = sorted(path for path, state in _file_states(run, root).items() if states_before.get(path) != state)
    if run.kind == "junit":
        return artifacts.junit_result(written, artifacts.required_tests(claims, run.id))
    if run.reads:
        path = root / run.reads
        if path not in written:
            raise RackgateError(f"run {run.id}: it did not write {run.reads}")
        text = read_text(path, "the command writes it")
    else:
        text = finished.output
    try:
        parsed = parse_json(text, constants=str)
    except ValueError as error:
        raise RackgateError(f"run {run.id}: its output is not JSON: {error}") from error
    if run.kind == "system":
        return artifacts.system_result(parsed)
    return _selected_values(parsed, run)


def _selected_values(parsed: Any, run: ClaimRun) -> Any:
    if not run.keep:
        return parsed
    try:
        return {name: rules.value_at(parsed, name if name.startswith("/") else f"/{name}") for name in run.keep}
    except rules.AbsentError as error:
        raise RackgateError(f"run {run.id}: `keep` in kip/claims.toml does not match its result: {error}") from error
