"""The set-up of virtual environments: one at a time, complete or not ready, and every package by its hash."""

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
from pyhooks.core.wait import wait_for

# A Python that makes "environments" of one program, itself, and whose pip waits for a file "go".
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
# what runs here may be contained itself: then recipes have no namespace of their own
OWN = {name: value for name, value in os.environ.items() if name not in {"RACKGATE_CONTAINED", "MAKEFLAGS"}}


@dataclass
class Clone:
    """A copy of the files that the set-up consists of."""

    root: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def made(self) -> list[str]:
        """The environments in the order in which their set-up began."""
        return [line.split()[1] for line in self.log if line.startswith("venv ")]

    def make(self, target: str = ".venv/ready") -> subprocess.Popen[bytes]:
        output = (self.root / f"output-{len(self.running)}").open("wb")
        command = ["make", "-s", f"PYTHON={self.root / 'python'}", target]
        # a group of its own, as in a terminal of its own
        process = subprocess.Popen(
            command, cwd=self.root, env=OWN, stdout=output, stderr=output, start_new_session=True
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
    made = Clone(tmp_path / "clone")
    (made.root / "requirements").mkdir(parents=True)
    shutil.copytree(paths.REPO / "setup", made.root / "setup")
    shutil.copyfile(paths.REPO / "Makefile", made.root / "Makefile")
    (made.root / "setup" / "system.sh").write_text("#!/bin/sh\n")
    for name in ("build", "main", "ducktape"):
        (made.root / "requirements" / f"{name}.lock").touch()
    python = made.root / "python"
    python.write_text(PYTHON.format(log=made.root / "log", go=made.root / "go"))
    python.chmod(0o755)
    yield made
    for process in made.running:
        process.kill()
        process.wait(timeout=20)


@pytest.mark.parametrize("other", [".venv/ready", ".venv-ducktape/ready"])
def test_a_second_make_waits_for_the_first(clone: Clone, other: str) -> None:
    first = clone.make()
    wait_for(lambda: any(line.startswith("pip") for line in clone.log), goal="the first set-up", timeout_s=20)
    second = clone.make(other)
    wait_for(lambda: "waiting" in clone.output(1), goal="the second make to wait", timeout_s=20)
    assert clone.made == [".venv"]
    assert not (clone.root / ".venv/ready").exists()
    clone.go()
    assert [process.wait(timeout=20) for process in (first, second)] == [0, 0]
    assert clone.made == list(dict.fromkeys([".venv", other.removesuffix("/ready")]))
    assert (clone.root / other).exists()
    assert "waiting" not in clone.output(0)
    assert "setting up .venv " in clone.output(0)
    assert ("setting up .venv-ducktape " in clone.output(1)) == (other != ".venv/ready")
    assert "setting up .venv " not in clone.output(1)


def test_a_killed_set_up_is_not_ready_and_is_made_again(clone: Clone) -> None:
    # it was ready for other lock files
    (clone.root / ".venv").mkdir()
    (clone.root / ".venv/ready").touch()
    os.utime(clone.root / ".venv/ready", (1, 1))
    first = clone.make()
    wait_for(lambda: any(line.startswith("pip") for line in clone.log), goal="the set-up", timeout_s=20)
    first.kill()
    assert first.wait(timeout=20) == -signal.SIGKILL
    assert not (clone.root / ".venv/ready").exists()
    clone.go()
    assert clone.make().wait(timeout=20) == 0
    assert clone.made == [".venv", ".venv"]
    assert (clone.root / ".venv/ready").exists()


def test_a_failed_set_up_is_not_ready(clone: Clone) -> None:
    python = clone.root / "python"
    python.write_text(python.read_text().replace('"-m pip")', '"-m pip")\n    exit 7'))
    assert clone.make().wait(timeout=20) == 2
    assert not (clone.root / ".venv/ready").exists()


def test_an_environment_is_made_again_only_for_other_lock_files(clone: Clone) -> None:
    clone.go()
    assert clone.make().wait(timeout=20) == 0
    assert clone.make().wait(timeout=20) == 0
    assert clone.made == [".venv"]
    later = time.time() + 10
    os.utime(clone.root / "requirements/main.lock", (later, later))
    assert clone.make().wait(timeout=20) == 0
    assert clone.made == [".venv", ".venv"]


def test_every_package_is_installed_by_its_hash() -> None:
    text = "\n".join(path.read_text() for path in [*(paths.REPO / "setup").glob("*.sh"), paths.REPO / "Makefile"])
    found = re.findall(r"^(?:install|.*pip install) (.*)$", text, re.MULTILINE)
    commands = [words for words in found if not words.endswith('"$@"')]
    assert len(commands) == 4
    # this project itself is no package from elsewhere
    own = [words for words in commands if words.endswith("--no-build-isolation --no-deps -e .")]
    assert [
        words for words in commands if "--require-hashes -r" not in words.replace("--no-build-isolation ", "")
    ] == own
    assert len(own) == 1
    for lock in (paths.REPO / "requirements").glob("*.lock"):
        pinned = re.findall(r"^\S+==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", lock.read_text(), re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^[a-z]", lock.read_text(), re.MULTILINE)) > 0
    assert "uv==" in (paths.REPO / "requirements/tools.lock").read_text()
