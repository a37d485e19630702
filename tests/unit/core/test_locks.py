"""Locks that allow one process at a time."""

from __future__ import annotations

import math
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import LockTakenError, hold_lock


def test_a_held_lock_is_rejected_until_it_is_released(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock"
    with (
        hold_lock(file, taken="already running"),
        pytest.raises(RackgateError, match=r"^already running$"),
        hold_lock(file, taken="already running"),
    ):
        pytest.fail("both hold the lock")
    with hold_lock(file, taken="still running"):
        assert file.exists()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "lock", taken="already running"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        # the child closes its copy when it executes the program
        with hold_lock(tmp_path / "lock", taken="held by the child", patience_s=20):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_waiting_process_calls_on_wait_once(tmp_path: Path) -> None:
    file, wait_calls = tmp_path / "lock", list[str]()
    with ExitStack() as holder:
        holder.enter_context(hold_lock(file, taken=""))

        def release() -> None:
            wait_calls.append("waiting")
            holder.close()

        with hold_lock(file, taken="", patience_s=math.inf, on_wait=release):
            assert wait_calls == ["waiting"]
    with hold_lock(file, taken=""), pytest.raises(LockTakenError, match=r"^taken$"):
        hold_lock(file, taken="taken", patience_s=0.1).__enter__()
