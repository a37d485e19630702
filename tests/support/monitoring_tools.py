"""Prometheus, promtool and Grafana's model of dashboards; tests that need them are skipped where they can't be had."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyhooks.core import paths

TIMEOUT_S = 240.0


@dataclass(frozen=True)
class MonitoringTools:
    """Programs below one folder."""

    folder: Path

    @property
    def prometheus(self) -> Path:
        """The server."""
        return self.folder / "prometheus" / "prometheus"

    @property
    def promtool(self) -> Path:
        """The checker of configurations and rules."""
        return self.folder / "prometheus" / "promtool"

    @property
    def python(self) -> Path:
        """Python with Grafana's model of dashboards and a YAML parser."""
        return self.folder / "venv" / "bin" / "python"


def monitoring_tools() -> MonitoringTools:
    """Return the tools, fetched once; skip the test, with the reason, if they can't be fetched."""
    folder = paths.BUILD / "monitoring"
    done = subprocess.run(
        [str(paths.REPO / "setup" / "monitoring.sh"), str(folder)],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        pytest.skip(f"unknown: Prometheus and Grafana's model can't be fetched: {reason}")
    return MonitoringTools(folder)
