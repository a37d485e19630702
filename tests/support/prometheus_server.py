"""Prometheus server in a lab that scrapes all nodes, and its HTTP interface."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core.process import DIES_WITH_PARENT, end
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import Lab
from pyhooks.monitoring.alerts import JOB
from pyhooks.monitoring.export import ALERT_RULES, PORT

# only in the lab's namespace
ADDRESS = "127.0.0.1:9090"
SCRAPE_S, EVALUATE_S = 4, 2


@dataclass(frozen=True)
class PrometheusServer:
    """A running server."""

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{ADDRESS}/api/v1/{path}?{query}", timeout=30) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def query_range(self, expr: str, begin_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of a range query, in seconds since the epoch."""
        bounds = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        found: list[dict[str, Any]] = self.get("query_range", query=expr, **bounds)["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self.get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def scaled(rules: str, scale: float) -> str:
    """Return alert rules whose times before firing are multiplied by ``scale``."""

    def shorten(match: re.Match[str]) -> str:
        seconds = int(match[1]) * {"s": 1, "m": 60}[match[2]]
        return f"for: '{max(1, round(seconds * scale))}s'"

    return re.sub(r"for: '(\d+)([sm])'", shorten, rules)


def configuration(lab: Lab) -> dict[str, Any]:
    """Return a configuration that scrapes all nodes of a lab, as JSON, which is YAML."""
    targets = [
        {
            "targets": [f"{node.ip}:{PORT}"],
            "labels": {"role": "broker", "rack": node.site} if node.is_broker else {"role": "controller"},
        }
        for node in lab.nodes
    ]
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            "scrape_timeout": f"{SCRAPE_S}s",
            "evaluation_interval": f"{EVALUATE_S}s",
        },
        "rule_files": [ALERT_RULES],
        "scrape_configs": [{"job_name": JOB, "static_configs": targets}],
    }


@contextmanager
def prometheus(program: Path, lab: Lab, folder: Path, rules: str) -> Iterator[PrometheusServer]:
    """Run a server in the namespace of this process until the end of the block.

    Args:
        program: the server.
        lab: its nodes are scraped.
        folder: folder for its data.
        rules: content of the file of alert rules.
    """
    folder.mkdir(parents=True)
    (folder / ALERT_RULES).write_text(rules, encoding="utf-8")
    (folder / "prometheus.json").write_text(json.dumps(configuration(lab)), encoding="utf-8")
    command = [
        *DIES_WITH_PARENT,
        str(program),
        "--config.file=prometheus.json",
        "--storage.tsdb.path=data",
        f"--web.listen-address={ADDRESS}",
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: answers(server, folder), goal="an answer of Prometheus", timeout_s=60)
        yield PrometheusServer()
    finally:
        end(server, grace_s=10, first=signal.SIGTERM)


def answers(server: subprocess.Popen[bytes], folder: Path) -> bool:
    """Return whether the server is ready."""
    assert server.poll() is None, (folder / "log").read_text(encoding="utf-8")[-2000:]
    try:
        return bool(PrometheusServer().get("status/buildinfo"))
    except OSError:
        time.sleep(0.2)
        return False
