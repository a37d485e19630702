"""Execution of one command of a model in a headless Alloy process."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyhooks.core import files, paths, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.formal.model_source import AlloyCommand
from pyhooks.patchset import maven, recipe
from pyhooks.patchset.artifacts import ArtifactStore
from pyhooks.patchset.workspace import Workspace

PIN = paths.REPO / "kip" / "formal" / "alloy.toml"
# Alloy includes Glucose for Linux and macOS; sat4j is written in Java and runs everywhere, several times slower.
SOLVERS = ("glucose", "minisat", "sat4j")
_HEAP = "-Xmx2g"
# Alloy's message, with exit status 1, if the result of a command differs from its "expect".
_UNEXPECTED = "against expectation"


@dataclass(frozen=True)
class CommandOutcome:
    """Result of a command."""

    command: AlloyCommand
    found: bool | None  # whether it found an instance; None if it did not complete
    seconds: float
    instance: Path | None = None
    problem: str = ""  # reason why it did not complete, or empty

    @property
    def as_expected(self) -> bool:
        """Whether it found an instance if one was expected, and none otherwise."""
        return self.found is self.command.expected

    def summary(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "name": self.command.name,
            "kind": self.command.kind,
            "what": self.command.purpose,
            "bounds": self.command.bounds,
            "expected": self.command.expected,
            "found": self.found,
            "as_expected": self.as_expected,
            "seconds": round(self.seconds, 1),
            "trouble": self.problem,
        }


def read_pin(path: Path = PIN) -> recipe.Artifact:
    """Return which Alloy jar is run.

    Raises:
        RackgateError: the file can't be read or is invalid.
    """
    document = toml_config.Table(toml_config.read(path, "it says which Alloy is run"), path)
    artifact = document.table("alloy").into(recipe.Artifact, roles=("alloy",))
    document.done()
    return artifact


def fetch(pin: Path = PIN) -> Path:
    """Return the path of the pinned Alloy jar, downloaded with Maven if it is missing, and verified.

    Raises:
        RackgateError: the pin is invalid, or the jar can't be downloaded or has another SHA-256.
    """
    artifact = read_pin(pin)
    plan = recipe.load()
    workspace = Workspace.of(plan)
    store = ArtifactStore(paths.BUILD / "alloy", workspace.repository)
    with workspace.lock(lambda _: None), tempfile.TemporaryDirectory(prefix="rackgate-alloy-") as work:
        store.fetch(replace(plan, path=pin), [artifact], Path(work))
    return store.path(artifact)


def execute(
    jar: Path, model: Path, command: AlloyCommand, folder: Path, *, solver: str, limit_s: float
) -> CommandOutcome:
    """Run a command to its end; if it did not complete, the outcome has the reason."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    java = maven.java_home() / "bin" / "java"
    # serial garbage collection, since several commands run in parallel
    argv: list[str | Path] = [
        java,
        _HEAP,
        "-XX:+UseSerialGC",
        "-Djava.awt.headless=true",
        "-jar",
        jar,
        "exec",
        "--force",
        "--quiet",
    ]
    argv += ["--solver", solver, "--type", "xml", "--command", command.name, "--output", folder, model]
    try:
        run(argv, task=f"run {command.name}", log=log, timeout_s=limit_s)
    except RackgateError as error:
        if not log.exists() or _UNEXPECTED not in log.read_text(encoding="utf-8", errors="replace"):
            return CommandOutcome(command, None, time.monotonic() - started, problem=str(error))
    try:
        instance = find_instance(folder, command)
    except RackgateError as error:
        return CommandOutcome(command, None, time.monotonic() - started, problem=str(error))
    return CommandOutcome(command, instance is not None, time.monotonic() - started, instance)


def find_instance(folder: Path, command: AlloyCommand) -> Path | None:
    """Return the file of the instance that Alloy's receipt reports, or None if it reports that there is none.

    Raises:
        RackgateError: there is no valid receipt, it does not contain the command, or the instance's file is missing.
    """
    receipt = folder / "receipt.json"
    try:
        receipts = files.read_json(receipt, "Alloy writes it")["commands"]
        receipt_entry = receipts.get(command.name)
        has_solution = receipt_entry is not None and receipt_entry.get("solution")
    except (RackgateError, *files.MALFORMED) as error:
        raise RackgateError(f"run {command.name}: Alloy left no receipt in {folder}") from error
    if receipt_entry is None:
        raise RackgateError(f"run {command.name}: Alloy's receipt in {folder} does not contain it")
    if not has_solution:
        return None
    instance = folder / f"{command.name}-solution-0.xml"
    if not instance.exists():
        raise RackgateError(f"run {command.name}: Alloy found an instance and did not write it to {instance}")
    return instance
