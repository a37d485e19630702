"""The example of the public interface that runs a lab."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyhooks.core import paths

EXAMPLES = paths.REPO / "pyhooks" / "examples"
REJECTED = "fail, org.apache.kafka.common.errors.NotEnoughRacksException"
CHECKED = ("faults", "delivery", "offsets", "rejections")


def run_example(name: str, *arguments: str, timeout_s: float = 350.0) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = os.environ | {"PYTHONPATH": str(paths.REPO)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_writes_are_rejected_while_a_rack_is_lost(tmp_path: Path) -> None:
    output = run_example("outage.py", str(tmp_path / "run"))
    counts = {result: int(count) for count, result in re.findall(r"(\d+) records: (.*)", output)}
    # 5 s at 2 records a second, before, in and after the outage
    assert counts == {"ok, acknowledged": 20, REJECTED: 10}
    assert all(f"{checker}: true\n" in output for checker in CHECKED), output
    history = tmp_path / "run" / "history.jsonl"
    assert "faults: true" in run_example("judge_history.py", str(history), *CHECKED)
