"""Brokers with the JMX exporter: its metrics, and alerts of a Prometheus server that scrapes a lab."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from alert_scenario import RACK_LOSS
from exporter_agent import topology_with_exporter
from monitoring_tools import monitoring_tools
from pyhooks.core import paths
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.monitoring.alerts import ALERTS
from pyhooks.monitoring.export import ALERT_RULES, EXPORTER, PORT, export_files
from pyhooks.monitoring.exported_metrics import METRICS
from terminal_user import RACKGATE

SUPPORT = paths.REPO / "tests" / "support"
# Only in the unit tests of the rules: a lab's nodes all have the overlay and the exporter.
NOT_IN_LAB = {"KafkaRackMetricsMissing"}
# Times before an alert fires, relative to the shipped rules.
SCALE = 0.05
PARTITIONS = 10_000


def in_lab(tmp_path: Path, topology: str, *command: str | Path, timeout_s: float, heap_mb: int | None = None) -> str:
    """Run a command in a lab whose nodes have the exporter, and return its output."""
    export_files(tmp_path / "files")
    file = topology_with_exporter(topology, tmp_path / "files" / EXPORTER, tmp_path / "topology.toml", heap_mb=heap_mb)
    lab = [RACKGATE, "lab", "run", "--topology", file, "--run-dir", tmp_path / "lab", "--", *command]
    done = subprocess.run(
        [*DIES_WITH_PARENT, *map(str, lab)], capture_output=True, text=True, check=False, timeout=timeout_s
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_exporter_has_each_metric_and_few_series(tmp_path: Path) -> None:
    code = (
        "import urllib.request; from pyhooks.lab.lab import Lab; node = Lab.attach().nodes[0];"
        f" print(urllib.request.urlopen(f'http://{{node.ip}}:{PORT}/metrics', timeout=30).read().decode())"
    )
    text = in_lab(tmp_path, "single", sys.executable, "-c", code, timeout_s=200)
    found = [line for line in text.splitlines() if line.startswith("kafka_")]
    # topics have a series after their first rejection
    assert {line.split()[0] for line in found} == {metric.name for metric in METRICS if not metric.by_topic}
    assert "jmx_scrape_error 0.0" in text


# "make monitoring"; the rules are tested in "make test" by promtool
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_each_alert_fires_and_resolves(tmp_path: Path) -> None:
    tools = monitoring_tools()
    program: list[str | Path] = [
        sys.executable,
        SUPPORT / "alert_scenario.py",
        tools.prometheus,
        tmp_path / "files" / ALERT_RULES,
    ]
    in_lab(tmp_path, "az3-outside", *program, tmp_path / "out", str(SCALE), timeout_s=1400)
    changes = loaded(tmp_path / "out" / "alerts.json")
    fired = [change["alert"] for change in changes if change.get("fires")]
    resolved = [change["alert"] for change in changes if change.get("fires") is False]
    assert set(fired) == {alert.name for alert in ALERTS} - NOT_IN_LAB
    assert sorted(fired) == sorted(resolved)
    _check_order(changes)
    for panel in loaded(tmp_path / "out" / "panels.json"):
        assert all(query["series"] for query in panel["queries"]), panel["title"]
    names = set(loaded(tmp_path / "out" / "names.json"))
    assert {metric.name for metric in METRICS if "observed" not in metric.name} <= names
    shutil.copytree(tmp_path / "out", paths.OUT / "monitoring", dirs_exist_ok=True, ignore=lambda *_: ["prometheus"])


def _check_order(changes: list[dict[str, Any]]) -> None:
    """Check the alerts of the lost rack: which fire before which, and that they end after its return."""
    steps = [change["at_s"] for change in changes if "step" in change]
    _, killed_s, returned_s, next_s, *_ = steps
    of_loss = [change for change in changes if "alert" in change and killed_s <= change["at_s"] < next_s]
    fired = {change["alert"]: change["at_s"] for change in of_loss if change["fires"]}
    assert set(RACK_LOSS) <= set(fired)
    # alerts with equal times fire in no fixed order
    of_rack_loss = [alert for alert in ALERTS if alert.name in RACK_LOSS]
    groups = [[fired[alert.name] for alert in group] for _, group in groupby(of_rack_loss, lambda alert: alert.lasts)]
    assert len(groups) == 3
    assert all(max(earlier) <= min(later) for earlier, later in pairwise(groups))
    assert all(change["at_s"] > returned_s for change in of_loss if not change["fires"])


# "make monitoring"; a scrape is of one node, so one is enough
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_cost_of_a_scrape_with_many_partitions(tmp_path: Path) -> None:
    program: list[str | Path] = [
        sys.executable,
        SUPPORT / "scrape_cost.py",
        tmp_path / "files" / EXPORTER,
        str(PARTITIONS),
    ]
    in_lab(tmp_path, "single", *program, tmp_path, timeout_s=1400, heap_mb=1024)
    few, many, each = loaded(tmp_path / "cost.json")
    (paths.OUT / "monitoring").mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / "cost.json", paths.OUT / "monitoring")
    assert many["partitions_led"] >= PARTITIONS
    assert many["kafka_series"] == few["kafka_series"]
    assert each["kafka_series"] >= many["kafka_series"] + 3 * many["partitions_led"]
