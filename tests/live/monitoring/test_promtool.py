"""Files for Prometheus and Grafana, checked by promtool, by a YAML parser, and by Grafana's model of dashboards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monitoring_tools import MonitoringTools, monitoring_tools
from pyhooks.monitoring.alerts import ALERTS
from pyhooks.monitoring.dashboard import dashboard
from pyhooks.monitoring.export import ALERT_RULES, DASHBOARD, EXPORTER, SCRAPING, export_files

STEP_S = 15
# steps before the condition, and after it
BEFORE, AFTER = 40, 40
MANAGER = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
UP = 'up{job="kafka",role="broker",rack="b",instance="3"}'
# Compares the parsed file with the round trip through Grafana's model, which drops what it does not know.
ROUND_TRIP = """
import json, sys
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
plugins.register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    print(JSONEncoder().encode(Dashboard.from_json(json.load(file))))
"""


@pytest.fixture(scope="module")
def tools() -> MonitoringTools:
    return monitoring_tools()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_files(tmp_path)
    return tmp_path


def output(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Case:
    """Condition that lasts for some steps, and the alert that it causes.

    Attributes:
        series: values before, during and after the condition, in promtool's notation without the counts of steps.
        lasts_s: how long it must last before the alert fires.
        value: value of the alert, in its summary.
        labels: labels of the alert beside its severity.
    """

    name: str
    series: Mapping[str, tuple[str, str, str]]
    lasts_s: int = 0
    value: str = "1"
    labels: Mapping[str, str] = field(default_factory=dict)

    def test(self) -> dict[str, Any]:
        """Return promtool's test: silent before, silent until ``lasts_s``, firing, silent after."""
        during = self.lasts_s // STEP_S + 10
        begin_s, end_s = BEFORE * STEP_S, (BEFORE + during) * STEP_S
        counts = (BEFORE, during, AFTER)
        series = [
            {"series": name, "values": " ".join(f"{v}x{n - 1}" for v, n in zip(values, counts, strict=True))}
            for name, values in self.series.items()
        ]
        times = {begin_s - STEP_S: False, begin_s + self.lasts_s + 2 * STEP_S: True, end_s + 5 * STEP_S: False}
        if self.lasts_s:
            times[begin_s + self.lasts_s - STEP_S] = False
        tests = [
            {"eval_time": f"{at}s", "alertname": self.name, "exp_alerts": [self.expected()] if fires else []}
            for at, fires in sorted(times.items())
        ]
        return {"interval": f"{STEP_S}s", "input_series": series, "alert_rule_test": tests}

    def expected(self) -> dict[str, Any]:
        (alert,) = [alert for alert in ALERTS if alert.name == self.name]
        summary = alert.summary
        for template in ("{{ $value }}", "{{ $value | humanize }}"):
            summary = summary.replace(template, self.value)
        for label, value in self.labels.items():
            summary = summary.replace("{{ $labels." + label + " }}", value)
            summary = summary.replace("{{ or $labels." + label + " `controllers` }}", value)
        return {
            "exp_labels": {"severity": alert.severity, **self.labels},
            "exp_annotations": {"summary": summary, "description": alert.action},
        }


def gauge(name: str, *values: int) -> dict[str, tuple[str, str, str]]:
    before, during = values
    return {name: (f"{before}", f"{during}", f"{before}")}


CASES = (
    Case(
        "KafkaRackCheckFailures",
        {
            f'{MANAGER}_rackcheckfailure_total{{instance="1"}}': ("0", "0+10", "200"),
            **gauge(f"{MANAGER}_underminrackisrpartitioncount", 0, 1),
        },
        value="20",
    ),
    Case("KafkaFencedBrokers", gauge(f"{CONTROLLER}_fencedbrokercount", 0, 2), value="2"),
    Case(
        "KafkaRackUnavailable",
        gauge(UP, 1, 0) | gauge(f"{CONTROLLER}_fencedbrokercount", 0, 1),
        labels={"rack": "b"},
    ),
    Case("KafkaUnderMinRackIsr", gauge(f"{MANAGER}_underminrackisrpartitioncount", 0, 3), 30, "3"),
    Case(
        "KafkaNotScraped",
        gauge(UP, 1, 0),
        300,
        labels={"job": "kafka", "role": "broker", "rack": "b", "instance": "3"},
    ),
    # two partitions reject and one comes down to the minimum: its metric falls
    Case(
        "KafkaAtMinRackIsr",
        gauge(f"{MANAGER}_atminrackisrpartitioncount", 2, 1) | gauge(f"{MANAGER}_underminrackisrpartitioncount", 0, 2),
        300,
        "3",
    ),
    Case("KafkaUnderMinIsr", gauge(f"{MANAGER}_underminisrpartitioncount", 0, 1)),
    Case("KafkaOfflinePartitions", gauge(f"{CONTROLLER}_offlinepartitionscount", 0, 1)),
    Case("KafkaPartitionsAwaitingLastKnownElr", gauge(f"{CONTROLLER}_partitionsawaitinglastknownelrcount", 0, 1), 300),
    Case("KafkaBrokersWithoutRack", gauge(f"{CONTROLLER}_brokerswithoutrackcount", 0, 1)),
    Case("KafkaPartitionsInTooFewRacks", gauge(f"{CONTROLLER}_partitionsintoofewrackscount", 0, 1)),
    Case("KafkaReassignmentsAwaitingRacks", gauge(f"{CONTROLLER}_reassignmentsawaitingrackscount", 0, 1), 1800),
    Case(
        "KafkaMinInSyncRacksExceedsMetadata",
        gauge('kafka_server_kafkaserver_mininsyncracksexceedsmetadata{instance="3"}', 0, 1),
        labels={"instance": "3"},
    ),
    Case(
        "KafkaRackMetricsMissing",
        {
            UP: ("1", "1", "1"),
            f'{MANAGER}_underminrackisrpartitioncount{{instance="3"}}': ("0", "stale _", "0"),
            f"{CONTROLLER}_partitionsintoofewrackscount": ("0", "0", "0"),
        },
        300,
        labels={"job": "kafka", "role": "broker", "rack": "b", "instance": "3"},
    ),
)


def test_there_is_a_case_for_each_alert() -> None:
    assert [case.name for case in CASES] == [alert.name for alert in ALERTS]


def test_configuration_and_rules_are_valid(tools: MonitoringTools, folder: Path) -> None:
    assert "SUCCESS: 1 rule files found" in output(tools.promtool, "check", "config", SCRAPING, cwd=folder)
    assert "SUCCESS" in output(tools.promtool, "check", "rules", "--lint=all", "--lint-fatal", ALERT_RULES, cwd=folder)


def test_each_alert_fires_in_time_and_resolves(tools: MonitoringTools, folder: Path) -> None:
    (folder / "tests.json").write_text(
        json.dumps(
            {
                "rule_files": [ALERT_RULES],
                "evaluation_interval": f"{STEP_S}s",
                "tests": [case.test() for case in CASES],
            }
        ),
        encoding="utf-8",
    )
    assert "SUCCESS" in output(tools.promtool, "test", "rules", "tests.json", cwd=folder)


def test_yaml_is_that_of_a_parser(tools: MonitoringTools, folder: Path) -> None:
    from pyhooks.monitoring.alerts import alert_rules
    from pyhooks.monitoring.exported_metrics import exporter_configuration

    code = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    for name, expected in ((ALERT_RULES, alert_rules()), (EXPORTER, exporter_configuration())):
        assert json.loads(output(tools.python, "-c", code, name, cwd=folder)) == expected


def lost(value: Any, after: Any, place: str = "") -> list[str]:
    """Return the places of ``value`` that are missing or different in ``after``."""
    if isinstance(value, dict) and isinstance(after, dict):
        return [one for key, item in value.items() for one in lost(item, after.get(key), f"{place}.{key}")]
    if isinstance(value, list) and isinstance(after, list) and len(value) == len(after):
        return [one for n, item in enumerate(value) for one in lost(item, after[n], f"{place}[{n}]")]
    return [] if value == after else [f"{place}: {value!r} became {after!r}"]


def test_grafanas_model_knows_all_of_the_dashboard(tools: MonitoringTools, folder: Path) -> None:
    after = json.loads(output(tools.python, "-c", ROUND_TRIP, DASHBOARD, cwd=folder))
    assert lost(dashboard(), after) == []
