"""Locks that allow one process at a time."""

from __future__ import annotations

import math
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import LockTakenError, hold_lock


def test_a_second_process_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock"
    with (
        hold_lock(file, taken="it runs already"),
        pytest.raises(RackgateError, match=r"^it runs already$"),
        hold_lock(file, taken="it runs already"),
    ):
        pytest.fail("both had it")
    with hold_lock(file, taken="it still runs"):
        assert file.exists()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "lock", taken="it runs already"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with hold_lock(tmp_path / "lock", taken="a child has it"):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_waiting_process_reports_once(tmp_path: Path) -> None:
    file, waited = tmp_path / "lock", list[str]()
    with ExitStack() as holder:
        holder.enter_context(hold_lock(file, taken=""))

        def release() -> None:
            waited.append("waits")
            holder.close()

        with hold_lock(file, taken="", patience_s=math.inf, on_wait=release):
            assert waited == ["waits"]
    with hold_lock(file, taken=""), pytest.raises(LockTakenError, match=r"^taken$"):
        hold_lock(file, taken="taken", patience_s=0.1).__enter__()
