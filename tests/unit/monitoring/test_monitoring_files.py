"""Files for Prometheus and Grafana: names agree with each other, with Kafka's MBeans and with the document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporter_agent import EXPORTER_AGENT
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.lab.mbeans import BEANS
from pyhooks.monitoring import export
from pyhooks.monitoring.alerts import ALERTS, RECORDING_RULES
from pyhooks.monitoring.dashboard import GRAPHS, NUMBERS, dashboard
from pyhooks.monitoring.exported_metrics import METRICS, exporter_configuration
from pyhooks.monitoring.yaml_text import yaml_text

NAMES = {metric.name for metric in METRICS}
DOCUMENT = paths.REPO / "kip" / "monitoring.md"
# of Prometheus itself
OWN = {"up", "scrape_duration_seconds"}
# Metrics of the document that are not exported, because there is one for each partition.
BY_PARTITION = {"IsrRackCount"}
_FUNCTIONS = {
    "and", "by", "absent", "increase", "max", "on", "or", "quantile_over_time", "rate", "sum", "topk", "unless",
}  # fmt: skip
_LABELS = {"instance", "job", "rack", "role", "topic"}


def names_in(expr: str) -> set[str]:
    """Return the names of metrics in a PromQL expression."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", expr)
    return set(re.findall(r"[a-z][a-z0-9_:]*", bare)) - _FUNCTIONS - _LABELS


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["monitoring", "export", *arguments])


def test_names_are_unique_and_valid() -> None:
    assert len(NAMES) == len(METRICS)
    assert all(re.fullmatch(r"kafka_[a-z_]+", name) for name in NAMES)


def test_each_mbean_exists() -> None:
    known = {pattern.partition(",*")[0] for pattern, _ in BEANS}
    patches = "".join(path.read_text(encoding="utf-8") for path in paths.patch_folder().rglob("*.patch"))
    added = {metric.bean for metric in METRICS} - known
    assert {bean for bean in added if f'"{bean.rpartition("=")[2]}"' not in patches} == set()
    assert len(added) == 1, "the list of the lab's gauges has the others"


def document_rows() -> list[tuple[str, str, set[str]]]:
    """Return, for each row of the document's table, the alert or ``none``, when it alerts, and its MBeans' names."""
    alerts = DOCUMENT.read_text(encoding="utf-8").partition("\n## Alerts\n")[2]
    rows = [re.split(r" ?\| ?", line)[1:4] for line in alerts.splitlines() if re.match(r"\| (?:`Kafka|none )", line)]
    return [(alert.strip("`"), after, set(re.findall(r"name=(\w+)", metrics))) for alert, after, metrics in rows]


def test_the_documents_metrics_are_exported_except_those_of_partitions() -> None:
    exported = {metric.bean.rpartition("=")[2] for metric in METRICS}
    rows = document_rows()
    assert len(rows) > 10
    assert set().union(*(names for _, _, names in rows)) - exported == BY_PARTITION


def test_no_mbean_of_a_single_partition_is_queried() -> None:
    queried = exporter_configuration()["includeObjectNames"]
    assert not [name for name in queried if "kafka.cluster" in name or "partition=" in name]
    wildcards = {name for name in queried if "*" in name}
    assert all("RackCheckFailuresPerSec" in name for name in wildcards), "Kafka creates these with the first rejection"


def test_rules_match_exactly_their_mbean() -> None:
    for metric in METRICS:
        rule = metric.rule
        domain, _, properties = metric.bean.partition(":")
        attribute = "Count" if metric.kind == "counter" else "Value"
        own = f"{domain}<{', '.join(properties.split(','))}{', topic=orders' if metric.by_topic else ''}>"
        matching = [other.name for other in METRICS if re.search(other.rule["pattern"], f"{own}<>{attribute}: 1")]
        assert matching == [metric.name]
        assert not re.search(rule["pattern"], f"{own}<>OneMinuteRate: 1")


def test_alerts_use_only_exported_metrics() -> None:
    for expr in (*RECORDING_RULES.values(), *(alert.expr for alert in ALERTS)):
        used = names_in(expr)
        assert used
        assert used <= NAMES | OWN | RECORDING_RULES.keys(), expr


def test_the_documents_alerts_use_its_metrics() -> None:
    beans = {metric.name: metric.bean.rpartition("=")[2] for metric in METRICS}
    used: dict[str, set[str]] = {}
    for alert in ALERTS:
        expr = alert.expr
        for name, recorded in RECORDING_RULES.items():
            expr = expr.replace(name, recorded)
        used[alert.name] = {beans[name] for name in names_in(expr) - OWN}
    rows = document_rows()
    assert [title for title, _, _ in rows if title != "none"] == list(used)
    named: set[str] = set()
    for title, after, names in rows:
        assert (title == "none") == ("dashboards" in after)
        if title == "none":
            assert not names & set().union(*used.values())
        else:
            assert names <= used[title]
            assert names or used[title] <= named, "a row without an MBean refers to earlier rows"
            named |= names


def test_the_document_has_each_alert_and_file_and_the_agent_that_is_tested() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Kafka\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    lasts = [alert.lasts.replace("s", " s").replace("m", " min") for alert in ALERTS]
    assert listed == [
        (alert.name, ", ".join(filter(None, (alert.severity, after))))
        for alert, after in zip(ALERTS, lasts, strict=True)
    ]
    assert all(f"`{file.name}`" in text for file in export.monitoring_files())
    assert EXPORTER_AGENT.id in text
    assert EXPORTER_AGENT.sha256 in text
    assert f"={export.PORT}:" in text
    assert len(re.findall(r"\S*\w\S*", text)) <= 500


def test_dashboard_queries_only_exported_metrics_and_shows_all_but_a_few() -> None:
    found = set()
    for panel in (*NUMBERS, *GRAPHS):
        for query in panel.queries:
            used = names_in(query.expr)
            assert used <= NAMES | OWN, query.expr
            found |= used
    assert {name.rpartition("_")[2] for name in NAMES - found} <= {"brokerstate", "partitioncount", "total"}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_yaml_has_quotes_where_they_are_needed() -> None:
    value = {"a": ["x", {"b": "it's", "c": ["w", "no"]}], "d": {}, "e": True, "f.g": "1", "h": 15, "i": ""}
    assert yaml_text(value, "one\n\ntwo") == (
        "# one\n#\n# two\n"
        "a:\n  - x\n  - b: 'it''s'\n    c:\n      - w\n      - 'no'\nd: {}\ne: true\nf.g: '1'\nh: 15\ni: ''\n"
    )
    with pytest.raises(ValueError, match="line break"):
        yaml_text("a\nb")


def test_export_writes_all_files_and_replaces_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "monitoring"
    done = run(str(folder), "--json")
    assert done.exit_code == 0, done.output
    listed = [Path(row["path"]) for row in json.loads(done.stdout)["files"]]
    assert [path.name for path in listed] == [file.name for file in export.monitoring_files()]
    assert all(path.read_text(encoding="utf-8") for path in listed)
    # an earlier version of this project wrote other content
    (folder / export.ALERT_RULES).write_text("groups: []\n", encoding="utf-8")
    manifest = json.loads((folder / export.MANIFEST).read_text(encoding="utf-8"))
    manifest[export.ALERT_RULES] = export._sha256(b"groups: []\n")
    (folder / export.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    done = run(str(folder))
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == len(listed)
    assert "KafkaUnderMinRackIsr" in (folder / export.ALERT_RULES).read_text(encoding="utf-8")


def test_export_rejects_to_replace_other_files(tmp_path: Path) -> None:
    own = tmp_path / export.DASHBOARD
    own.write_text("{}", encoding="utf-8")
    done = run(str(tmp_path))
    assert "was not written by this command" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == [export.DASHBOARD]
    own.unlink()
    run(str(tmp_path))
    own.write_text(own.read_text(encoding="utf-8").replace("30s", "10s"), encoding="utf-8")
    done = run(str(tmp_path))
    assert "was changed since" in str(done.exception)
    assert '"10s"' in own.read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["no JSON", "[]"])
def test_a_damaged_manifest_is_an_error_of_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / export.MANIFEST).write_text(content, encoding="utf-8")
    done = run(str(tmp_path))
    assert export.MANIFEST in str(done.exception)
    assert "\n" not in str(done.exception)


def test_export_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / export.DASHBOARD).symlink_to(tmp_path / "elsewhere.json")
    done = run(str(tmp_path))
    assert export.DASHBOARD in str(done.exception)
    assert not (tmp_path / "elsewhere.json").exists()
