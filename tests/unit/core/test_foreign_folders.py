"""Commands leave output folders unchanged that are foreign, of another kind of run, or in use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.analysis import analysis_speed as bench_speed
from bench.report import document_pictures
from ducktape_tests import cli as system_cli
from ducktape_tests import sshhosts
from pyhooks import cli
from pyhooks.core import run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import hold_lock
from pyhooks.core.run_folder import LOCK, Kind
from pyhooks.formal import alloy
from pyhooks.lab.lab import Lab

THESIS = "years of work"


@dataclass(frozen=True)
class Command:
    """A command, and the folder that it empties or overwrites files in.

    Attributes:
        arguments: command line; ``OUT`` stands for the output folder.
        kind: kind of run that the folder belongs to.
        sub: subfolder of the output folder, or empty.
        outer: kind of the output folder if ``sub`` is given.
        locks: whether a second concurrent run is rejected.
        file: a file in the folder that the command would delete or overwrite.
        start: entry point; by default ``rackgate``.
        stops_with: error of the first step after the folder is claimed.
    """

    arguments: Sequence[str]
    kind: Kind
    sub: str = ""
    outer: Kind | None = None
    locks: bool = False
    file: str = "thesis.txt"
    start: Callable[[list[str]], int] | None = None
    stops_with: str = "error: started"

    def folder(self, out: Path) -> Path:
        """Return the folder; claim ``out`` first if the folder is in it."""
        if self.outer is not None:
            run_folder.claim(out, self.outer)
        return out / self.sub

    def run(self, out: Path) -> int:
        """Run the command with this output folder; return its exit status."""
        arguments = [argument.replace("OUT", str(out)) for argument in self.arguments]
        if self.start is not None:
            return self.start(arguments)
        with pytest.raises(SystemExit) as exit_info:
            cli.main(arguments)
        assert isinstance(exit_info.value.code, int)
        return exit_info.value.code


FORMAL_ARGUMENTS = ("formal", "--only", "Step", "--run-dir")
COMMANDS: Mapping[str, Command] = {
    "bench run": Command(
        ("bench", "run", "--out", "OUT", "--fresh"), run_folder.BENCH, locks=True, file="results.json"
    ),
    "bench run, its run": Command(
        ("bench", "run", "--out", "OUT", "--fresh"), run_folder.BENCH_RUN, "run", run_folder.BENCH
    ),
    "bench run --bootstrap": Command(
        ("bench", "run", "--bootstrap", "127.0.0.1:1", "--out", "OUT"), run_folder.BENCH, file="results.json"
    ),
    "bench report": Command(
        ("bench", "report", str(document_pictures.STORED), "--out", "OUT"),
        run_folder.BENCH,
        locks=True,
        file="index.html",
    ),
    "bench outages": Command(("bench", "outages", "--out", "OUT"), run_folder.OUTAGES, locks=True, file="results.json"),
    "bench outages, its run": Command(
        ("bench", "outages", "--out", "OUT"), run_folder.OUTAGES_RUN, "run", run_folder.OUTAGES
    ),
    "bench speed": Command(("bench", "speed", "--out", "OUT"), run_folder.SPEED, locks=True, file="speed.json"),
    "bench speed, its work": Command(
        ("bench", "speed", "--out", "OUT"), run_folder.SPEED_WORK, "work", run_folder.SPEED, file="raw/thesis.txt"
    ),
    "bench.report.document_pictures": Command(
        ("--result", str(document_pictures.STORED), "--out", "OUT"),
        run_folder.README_PICTURES,
        file="bench/results.json",
        start=document_pictures.main,
    ),
    "system run": Command(("system", "run", "smoke", "--run-dir", "OUT"), run_folder.SYSTEM, locks=True),
    # Only a benchmark's folder has a lock file.
    "system run, with a lock": Command(("system", "run", "smoke", "--run-dir", "OUT"), run_folder.SYSTEM, file=LOCK),
    "sshhosts": Command(
        ("hosts.json", "--", "true"),
        run_folder.SSH_HOSTS,
        "ssh",
        run_folder.LAB,
        start=sshhosts.main,
        stops_with="ssh-keygen ended with status 1",
    ),
    "formal": Command((*FORMAL_ARGUMENTS, "OUT"), run_folder.FORMAL, locks=True, file="Step/thesis.txt"),
    "formal --pictures": Command(
        (*FORMAL_ARGUMENTS, "OUT-run", "--pictures", "OUT"), run_folder.FORMAL_PICTURES, locks=True, file="Step.png"
    ),
    "lab run": Command(("lab", "run", "--bare", "--run-dir", "OUT", "--", "true"), run_folder.LAB),
    "lab up": Command(("lab", "up", "--bare", "--run-dir", "OUT"), run_folder.LAB),
}
RUN_KINDS = [value for value in vars(run_folder).values() if isinstance(value, Kind)]


@contextmanager
def _no_spark(*_: Any, **__: Any) -> Iterator[Any]:
    yield SimpleNamespace()


@pytest.fixture(autouse=True)
def _stub_first_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After claiming its folder, each command stops at its first step with the error "started"."""

    def raise_started(*_: Any, **__: Any) -> Any:
        raise RackgateError("started")

    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    monkeypatch.setattr("pyhooks.patchset.builder.build", raise_started)
    monkeypatch.setattr("pyhooks.placement.cluster_query.query_brokers", raise_started)
    monkeypatch.setattr("pyhooks.placement.cluster_query.disable_client_log", lambda: None)
    monkeypatch.setattr("pyhooks.lab.lab_processes.run", raise_started)
    monkeypatch.setattr("pyhooks.lab.lab_processes.up", raise_started)
    monkeypatch.setattr("bench.report.run_page.render", raise_started)
    monkeypatch.setattr("pyhooks.report.browser.open_browser", raise_started)
    monkeypatch.setattr(bench_speed, "spark_session", _no_spark)
    monkeypatch.setattr(bench_speed, "synthetic_observations", raise_started)
    monkeypatch.setattr(alloy, "fetch", lambda: Path("alloy.jar"))
    monkeypatch.setattr(alloy, "execute", raise_started)
    monkeypatch.setattr(system_cli, "_require", lambda _: None)
    monkeypatch.setattr(system_cli, "_versions", lambda _: {})
    monkeypatch.setattr(system_cli, "SuiteSession", raise_started)
    monkeypatch.setattr(sshhosts, "SSHD", sys.executable)
    keygen = tmp_path / "bin" / "ssh-keygen"
    keygen.parent.mkdir()
    keygen.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    keygen.chmod(0o755)
    monkeypatch.setenv("PATH", f"{keygen.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(Lab, "attach", lambda: SimpleNamespace(run_dir=tmp_path / "out"))


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_foreign_file_survives_and_the_error_names_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command, out = COMMANDS[name], tmp_path / "out"
    folder = command.folder(out)
    for file in {command.file, "thesis.txt"}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(THESIS, encoding="utf-8")
    before = file_contents(folder)
    assert command.run(out) == 2
    stderr = capsys.readouterr().err
    assert f"{folder}: has no marker {run_folder.MARKER}" in stderr
    assert command.kind.option in stderr
    assert file_contents(folder) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_of_another_kind_of_run_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command = COMMANDS[name]
    for other in RUN_KINDS:
        if other.name == command.kind.name:
            continue
        out = tmp_path / other.name / "out"
        monkeypatch.setattr(Lab, "attach", lambda out=out: SimpleNamespace(run_dir=out))
        folder = command.folder(out)
        run_folder.claim(folder, other)
        (folder / "part").write_text(THESIS, encoding="utf-8")
        before = file_contents(folder)
        assert command.run(out) == 2, other
        assert f"{folder}: belongs to a run of kind '{other.name}'" in capsys.readouterr().err
        assert file_contents(folder) == before


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.sub])
def test_a_link_in_place_of_a_subfolder_is_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command, out = COMMANDS[name], tmp_path / "out"
    target = tmp_path / "target"
    run_folder.claim(target, command.kind)
    (target / "part").write_text(THESIS, encoding="utf-8")
    folder = command.folder(out)
    folder.symlink_to(target, target_is_directory=True)
    assert command.run(out) == 2
    assert f"{folder}: is a symbolic link" in capsys.readouterr().err
    assert (target / "part").read_text(encoding="utf-8") == THESIS


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.locks])
def test_a_folder_in_use_by_another_run_is_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command, out = COMMANDS[name], tmp_path / "out"
    run_folder.claim(out, command.kind)
    (out / "part").write_text(THESIS, encoding="utf-8")
    with hold_lock(out / LOCK, taken=""):
        before = file_contents(out)
        assert command.run(out) == 2
        stderr = capsys.readouterr().err
        assert f"{out}: " in stderr
        assert "another run" in stderr
        assert file_contents(out) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_new_folders_and_folders_of_the_same_kind_are_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command, out = COMMANDS[name], tmp_path / "out"
    folder = command.folder(out)
    for _ in range(2):
        assert command.run(out) == 2
        assert capsys.readouterr().err.splitlines()[-1].endswith(command.stops_with)
    # This command queries the cluster before it creates the folder.
    if name != "bench run --bootstrap":
        assert (folder / run_folder.MARKER).read_text(encoding="utf-8") == command.kind.marker


def test_a_linked_subfolder_of_a_formal_run_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, out, target = COMMANDS["formal"], tmp_path / "out", tmp_path / "target"
    target.mkdir()
    (target / "thesis.txt").write_text(THESIS, encoding="utf-8")
    run_folder.claim(out, command.kind)
    (out / "Step").symlink_to(target, target_is_directory=True)
    assert command.run(out) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("error: started")
    assert not (out / "Step").exists()
    assert file_contents(target) == {"thesis.txt": THESIS.encode()}
