"""The benchmark on a cluster that does not respond."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loopback_brokers import closed_port
from pyhooks.core import paths


def test_an_unreachable_cluster_is_a_one_line_error(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    with closed_port() as port:
        command = [str(Path(sys.executable).with_name("rackgate")), "bench", "--bootstrap", f"127.0.0.1:{port}"]
        command += ["--out", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: cluster 127.0.0.1:{port}: ")
    assert "Connection refused" in line
    assert "--bootstrap" in line
    assert not (tmp_path / "out").exists()
