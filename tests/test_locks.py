"""One process at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import alone


def test_a_second_one_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock"
    with (
        alone(file, taken="it runs already"),
        pytest.raises(RackgateError, match=r"^it runs already$"),
        alone(file, taken="it runs already"),
    ):
        pytest.fail("both had it")
    with alone(file, taken="it still runs"):
        assert file.exists()


def test_a_child_that_outlives_it_does_not_keep_the_lock(tmp_path: Path) -> None:
    with alone(tmp_path / "lock", taken="it runs already"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with alone(tmp_path / "lock", taken="a child has it"):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
