"""Setup of virtual environments: serialised by a lock, ready only when complete, packages pinned by hash."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.locks import hold_lock
from pyhooks.core.wait import wait_for

# Fake Python: `venv` creates an environment that contains only this script; `pip` waits for the file "go".
PYTHON = """#!/bin/sh
case "$1 $2" in
"-m venv")
    echo "venv $3" >>{log}
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python" ;;
"-m pip")
    echo "pip $*" >>{log}
    tries=0
    until [ -e {go} ] || [ $tries -ge 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done ;;
esac
"""
# Without the variables of an outer make: RACKGATE_CONTAINED would disable the namespaces of the recipes.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"RACKGATE_CONTAINED", "MAKEFLAGS"}}


@dataclass
class Clone:
    """Copy of the files that the setup uses."""

    root: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def environments(self) -> list[str]:
        """Environments in the order in which their setup started."""
        return [line.split()[1] for line in self.log if line.startswith("venv ")]

    def make(self, target: str = ".venv/ready") -> subprocess.Popen[bytes]:
        output = (self.root / f"output-{len(self.running)}").open("wb")
        command = ["make", "-s", f"PYTHON={self.root / 'python'}", target]
        # in its own session, like a make in another terminal
        process = subprocess.Popen(
            command, cwd=self.root, env=ENVIRONMENT, stdout=output, stderr=output, start_new_session=True
        )
        output.close()
        self.running.append(process)
        return process

    def output(self, number: int) -> str:
        return (self.root / f"output-{number}").read_text()

    def go(self) -> None:
        (self.root / "go").touch()


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    setup_clone = Clone(tmp_path / "clone")
    (setup_clone.root / "requirements").mkdir(parents=True)
    shutil.copytree(paths.REPO / "setup", setup_clone.root / "setup")
    shutil.copyfile(paths.REPO / "Makefile", setup_clone.root / "Makefile")
    (setup_clone.root / "setup" / "system.sh").write_text("#!/bin/sh\n")
    for name in ("build", "main", "ducktape"):
        (setup_clone.root / "requirements" / f"{name}.lock").touch()
    python = setup_clone.root / "python"
    python.write_text(PYTHON.format(log=setup_clone.root / "log", go=setup_clone.root / "go"))
    python.chmod(0o755)
    yield setup_clone
    for process in setup_clone.running:
        process.kill()
        process.wait(timeout=20)


@pytest.mark.parametrize("other", [".venv/ready", ".venv-ducktape/ready"])
def test_a_second_make_waits_for_the_first(clone: Clone, other: str) -> None:
    first = clone.make()
    wait_for(lambda: any(line.startswith("pip") for line in clone.log), goal="the first setup", timeout_s=20)
    second = clone.make(other)
    wait_for(lambda: "waiting" in clone.output(1), goal="the second make to wait", timeout_s=20)
    assert clone.environments == [".venv"]
    assert not (clone.root / ".venv/ready").exists()
    clone.go()
    assert [process.wait(timeout=20) for process in (first, second)] == [0, 0]
    assert clone.environments == list(dict.fromkeys([".venv", other.removesuffix("/ready")]))
    assert (clone.root / other).exists()
    assert "waiting" not in clone.output(0)
    assert "setting up .venv " in clone.output(0)
    assert ("setting up .venv-ducktape " in clone.output(1)) == (other != ".venv/ready")
    assert "setting up .venv " not in clone.output(1)


def test_a_killed_setup_is_not_ready_and_is_repeated(clone: Clone) -> None:
    # The environment is ready, but for older lock files.
    (clone.root / ".venv").mkdir()
    (clone.root / ".venv/ready").touch()
    os.utime(clone.root / ".venv/ready", (1, 1))
    first = clone.make()
    wait_for(lambda: any(line.startswith("pip") for line in clone.log), goal="the setup", timeout_s=20)
    first.kill()
    assert first.wait(timeout=20) == -signal.SIGKILL
    assert not (clone.root / ".venv/ready").exists()
    with hold_lock(clone.root / ".setup.lock", taken="the killed setup still runs", patience_s=20):
        clone.go()
    assert clone.make().wait(timeout=20) == 0
    assert clone.environments == [".venv", ".venv"]
    assert (clone.root / ".venv/ready").exists()


def test_a_failed_setup_is_not_ready(clone: Clone) -> None:
    python = clone.root / "python"
    python.write_text(python.read_text().replace('"-m pip")', '"-m pip")\n    exit 7'))
    assert clone.make().wait(timeout=20) == 2
    assert not (clone.root / ".venv/ready").exists()


def test_an_environment_is_set_up_again_only_for_changed_lock_files(clone: Clone) -> None:
    clone.go()
    assert clone.make().wait(timeout=20) == 0
    assert clone.make().wait(timeout=20) == 0
    assert clone.environments == [".venv"]
    later = time.time() + 10
    os.utime(clone.root / "requirements/main.lock", (later, later))
    assert clone.make().wait(timeout=20) == 0
    assert clone.environments == [".venv", ".venv"]


def test_every_package_is_pinned_by_its_hash() -> None:
    text = "\n".join(path.read_text() for path in [*(paths.REPO / "setup").glob("*.sh"), paths.REPO / "Makefile"])
    arguments = re.findall(r"^(?:install|.*pip install) (.*)$", text, re.MULTILINE)
    commands = [command for command in arguments if not command.endswith('"$@"')]
    assert len(commands) == 5
    # The project itself is installed from the worktree, without a hash.
    own_install = [command for command in commands if command.endswith("--no-build-isolation --no-deps -e .")]
    assert [
        command for command in commands if "--require-hashes -r" not in command.replace("--no-build-isolation ", "")
    ] == own_install
    assert len(own_install) == 1
    for lock in (paths.REPO / "requirements").glob("*.lock"):
        pinned = re.findall(r"^\S+==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", lock.read_text(), re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^[a-z]", lock.read_text(), re.MULTILINE)) > 0
    assert "uv==" in (paths.REPO / "requirements/tools.lock").read_text()
