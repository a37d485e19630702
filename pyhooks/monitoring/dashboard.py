"""Dashboard for Grafana 10 or later with Prometheus as data source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyhooks.monitoring.alerts import JOB

UID = "kafka-rackgate"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_MANAGER = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_TOPICS = "kafka_server_brokertopicmetrics"
# Controllers have these meters, too.
_OF_BROKERS = '{role="broker"}'
# columns of Grafana's grid
_WIDTH = 24
_STAT_HEIGHT, _GRAPH_HEIGHT = 4, 8


@dataclass(frozen=True)
class Query:
    """Query of a panel, and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """Panel of the dashboard.

    Attributes:
        unit: Grafana's name of the unit.
        red_from: for a single number, the value from which it is red; None for a graph.
    """

    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str = "short"
    red_from: float | None = None


NUMBERS = (
    Panel(
        "Partitions that reject writes: racks",
        (Query(f"sum({_MANAGER}_underminrackisrpartitioncount)", "under min.insync.racks"),),
        "Partitions whose ISR spans fewer racks than min.insync.racks.",
        red_from=1,
    ),
    Panel(
        "Partitions that reject writes: replicas",
        (Query(f"sum({_MANAGER}_underminisrpartitioncount)", "under min.insync.replicas"),),
        "Partitions whose ISR has fewer replicas than min.insync.replicas.",
        red_from=1,
    ),
    Panel(
        "Partitions without a leader",
        (Query(f"max({_CONTROLLER}_offlinepartitionscount)", "offline"),),
        "The two numbers to the left do not count these.",
        red_from=1,
    ),
    Panel(
        "Fenced brokers",
        (Query(f"max({_CONTROLLER}_fencedbrokercount)", "fenced"),),
        "Registered brokers that are fenced.",
        red_from=1,
    ),
)
GRAPHS = (
    Panel(
        "Partitions and min.insync.racks",
        (
            Query(f"sum({_MANAGER}_underminrackisrpartitioncount)", "under: reject"),
            Query(f"sum({_MANAGER}_atminrackisrpartitioncount)", "at the minimum"),
        ),
        "At the minimum: one more rack lost, and they reject writes. Replicas in exactly that many racks always count.",
    ),
    Panel(
        "Rejections because of missing racks",
        (Query(f"sum by (rack, instance) (rate({_MANAGER}_rackcheckfailure_total[1m]))", "{{rack}} {{instance}}"),),
        "Rejected appends by broker; retries count again.",
        "ops",
    ),
    Panel(
        "Rejections by topic",
        (Query(f"topk(10, sum by (topic) (rate({_TOPICS}_rackcheckfailures_by_topic_total[1m])))", "{{topic}}"),),
        "The ten topics with most rejected appends. Empty until the first rejection.",
        "ops",
    ),
    Panel(
        "Partitions and replicas in sync",
        (
            Query(f"sum({_MANAGER}_underminisrpartitioncount)", "under min.insync.replicas: reject"),
            Query(f"sum({_MANAGER}_atminisrpartitioncount)", "at min.insync.replicas"),
            Query(f"sum({_MANAGER}_underreplicatedpartitions)", "replicas out of sync"),
        ),
        "The same for min.insync.replicas.",
    ),
    Panel(
        "Leaders by rack",
        (Query(f"sum by (rack) ({_MANAGER}_leadercount)", "{{rack}}"),),
        "A rack without leaders is unavailable or not preferred.",
    ),
    Panel(
        "Offline partitions",
        (
            Query(f"max({_CONTROLLER}_offlinepartitionscount)", "without a leader"),
            Query(
                f"max({_CONTROLLER}_partitionsawaitinglastknownelrcount)",
                "that wait for a replica",
            ),
        ),
        "According to the controllers.",
    ),
    Panel(
        "Brokers",
        (
            Query(f"max({_CONTROLLER}_activebrokercount)", "active"),
            Query(f"max({_CONTROLLER}_fencedbrokercount)", "fenced"),
            Query(f"max({_CONTROLLER}_brokerswithoutrackcount)", "without broker.rack"),
            Query(f"sum({_CONTROLLER}_activecontrollercount)", "active controllers"),
        ),
        "According to the controllers. Brokers without a rack count only while racks are required.",
    ),
    Panel(
        "Placement",
        (
            Query(f"max({_CONTROLLER}_partitionsintoofewrackscount)", "partitions in too few racks"),
            Query(f"max({_CONTROLLER}_reassignmentsawaitingrackscount)", "reassignments that wait for racks"),
            Query("sum(kafka_server_kafkaserver_mininsyncracksexceedsmetadata)", "brokers with an ignored property"),
        ),
        "Conditions that rackgate check explains.",
    ),
    Panel(
        "What min.insync.racks.observe would reject",
        (
            Query(f"sum({_MANAGER}_underobservedminrackisrpartitioncount)", "partitions"),
            Query(f"sum(rate({_TOPICS}_observedrackcheckfailures_total[1m]))", "appends a second"),
        ),
        "Before min.insync.racks is raised.",
    ),
    Panel(
        "Records from producers",
        (Query(f"sum by (rack) (rate({_TOPICS}_messagesin_total{_OF_BROKERS}[1m]))", "{{rack}}"),),
        "Records a second, by rack of the leader.",
        "ops",
    ),
    Panel(
        "Failed appends",
        (Query(f"sum by (rack) (rate({_TOPICS}_failedproducerequests_total{_OF_BROKERS}[1m]))", "{{rack}}"),),
        "Appends that failed for any reason.",
        "ops",
    ),
    Panel(
        "Changes of ISRs",
        (
            Query(f"sum(rate({_MANAGER}_isrshrinks_total[1m]))", "shrinks"),
            Query(f"sum(rate({_MANAGER}_isrexpands_total[1m]))", "expansions"),
        ),
        "Changes a second.",
        "ops",
    ),
    Panel(
        "Duration of scrapes",
        (Query(f'max by (rack) (scrape_duration_seconds{{job="{JOB}"}})', "{{rack}}"),),
        "The slowest node of each rack; controllers have no rack.",
        "s",
    ),
    Panel(
        "Nodes that are scraped",
        (Query(f'sum by (rack, role) (up{{job="{JOB}"}})', "{{rack}} {{role}}"),),
        "What is not scraped is unknown.",
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    width = _WIDTH // len(NUMBERS)
    for index, panel in enumerate(NUMBERS):
        panels.append(_panel(panel, len(panels) + 1, _place(index * width, 0, width, _STAT_HEIGHT)))
    half = _WIDTH // 2
    for index, panel in enumerate(GRAPHS):
        top = _STAT_HEIGHT + index // 2 * _GRAPH_HEIGHT
        panels.append(_panel(panel, len(panels) + 1, _place(index % 2 * half, top, half, _GRAPH_HEIGHT)))
    return {
        "uid": UID,
        "title": "Kafka: min.insync.racks",
        "tags": ["kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    single = panel.red_from is not None
    targets = [
        {
            "datasource": _SOURCE,
            "refId": chr(ord("A") + index),
            "expr": query.expr,
            "legendFormat": query.legend,
            **({"instant": True} if single else {"range": True}),
        }
        for index, query in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}}
    if single:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.red_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {
            "colorMode": "background",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "id": number,
        "type": "stat" if single else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }
