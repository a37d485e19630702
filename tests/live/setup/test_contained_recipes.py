"""setup/contained.sh: no process of a recipe outlives make, however make ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.wait import wait_for

MAKEFILE = f"""
SHELL := {paths.REPO}/setup/contained.sh
.ONESHELL:
fine:
	@echo fine
bad:
	@exit 7
long:
	@sleep {{mark}} &
	sleep {{mark}}
"""
# this test may itself run contained; recipes then get no namespace of their own
OWN = {name: value for name, value in os.environ.items() if name != "RACKGATE_CONTAINED"}


def makefile(folder: Path, mark: str) -> Path:
    file = folder / "Makefile"
    file.write_text(MAKEFILE.format(mark=mark), encoding="utf-8")
    return file


def sleepers(mark: str) -> list[str]:
    """Return the processes that a recipe started, in any namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if arguments[:2] == [b"sleep", mark.encode()]:
                found.append(entry.name)
    return found


@pytest.mark.parametrize(("target", "status", "error"), [("fine", 0, "fine"), ("bad", 2, "Error 7")])
def test_the_status_of_a_recipe_is_that_of_make(tmp_path: Path, target: str, status: int, error: str) -> None:
    command = ["make", "-s", "-f", str(makefile(tmp_path, "1")), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=OWN)
    assert done.returncode == status
    assert error in done.stdout + done.stderr


@pytest.mark.parametrize("sent_signal", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_a_recipe_end_with_make(tmp_path: Path, sent_signal: signal.Signals) -> None:
    # a unique number of seconds, which identifies the process
    mark = f"3{sent_signal.value:02d}.{abs(hash(tmp_path)) % 1000:03d}"
    command = ["make", "-s", "-f", str(makefile(tmp_path, mark)), "long"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=OWN) as make:
        try:
            wait_for(lambda: len(sleepers(mark)) == 2, goal="both that the recipe begins", timeout_s=20)
            make.send_signal(sent_signal)
            make.wait(timeout=20)
            wait_for(lambda: not sleepers(mark), goal="the end of what the recipe began", timeout_s=10)
        finally:
            make.kill()
