"""Alert rules for Prometheus, in the order of the table "Alerts" in ``kip/monitoring.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

JOB = "kafka"
_BROKERS = f'job="{JOB}",role="broker"'
_UNDER = "kafka_server_replicamanager_underminrackisrpartitioncount"
_AT = "kafka_server_replicamanager_atminrackisrpartitioncount"
_TOO_FEW_RACKS = "kafka_controller_kafkacontroller_partitionsintoofewrackscount"
_FENCED = "max(kafka_controller_kafkacontroller_fencedbrokercount)"
# Partitions that leave the first count for the second one in an outage would hide others that come down to the minimum.
AT_OR_UNDER = "kafka:at_or_under_min_rack_isr_partitions:sum"
RECORDING_RULES = {AT_OR_UNDER: f"sum({_AT}) + sum({_UNDER})"}


@dataclass(frozen=True)
class Alert:
    """Alert rule.

    Attributes:
        expr: PromQL expression; the alert is active for each of its results.
        lasts: how long it must be active before it fires, such as ``30s``; empty for at once.
        summary: meaning, with ``$value`` where it helps.
        action: what to do first.
    """

    name: str
    severity: Literal["page", "ticket"]
    expr: str
    lasts: str
    summary: str
    action: str

    @property
    def rule(self) -> dict[str, Any]:
        """Rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": self.lasts} if self.lasts else {}),
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.action},
        }


# The first six fire in this order when a rack is lost, those without a time in the same moment.
ALERTS: tuple[Alert, ...] = (
    Alert(
        "KafkaRackCheckFailures",
        "page",
        f"sum(increase(kafka_server_replicamanager_rackcheckfailure_total[1m])) > 0 and sum({_UNDER}) > 0",
        "",
        "Producers are rejected because of missing racks: {{ $value | humanize }} rejections in a minute, with retries",
        "Find the topics on the dashboard (rejections by topic). The runbook, Assess, describes when to wait, to move "
        "a replica or to lower R.",
    ),
    Alert(
        "KafkaFencedBrokers",
        "ticket",
        f"{_FENCED} > 0",
        "",
        "{{ $value }} brokers are fenced",
        "Find them with rackgate check or by their state on the dashboard, and start them.",
    ),
    Alert(
        "KafkaRackUnavailable",
        "page",
        f"(sum by (rack) (up{{{_BROKERS}}}) == 0) and on () ({_FENCED} > 0)",
        "",
        "Rack {{ $labels.rack }}: no broker responds, and brokers are fenced",
        "Decide by the runbook, Assess: wait, move replicas, or lower R.",
    ),
    Alert(
        "KafkaUnderMinRackIsr",
        "page",
        f"sum({_UNDER}) > 0",
        "30s",
        "{{ $value }} partitions reject acks=all because their ISRs span too few racks",
        "List them with kafka-topics.sh --describe --under-min-rack-isr-partitions; see which rack is missing. "
        "Then the runbook, Assess.",
    ),
    Alert(
        "KafkaNotScraped",
        "ticket",
        f'up{{job="{JOB}"}} == 0',
        "5m",
        "{{ $labels.instance }} is not scraped, so its metrics are unknown",
        "Check whether the process runs and its exporter's port is reachable.",
    ),
    Alert(
        "KafkaAtMinRackIsr",
        "ticket",
        f"{AT_OR_UNDER} > quantile_over_time(0.5, {AT_OR_UNDER}[1d])",
        "5m",
        "{{ $value }} partitions are at or under min.insync.racks, more than usual; the loss of a rack stops them",
        "List them with kafka-topics.sh --describe --at-min-rack-isr-partitions; bring the missing replicas back.",
    ),
    Alert(
        "KafkaUnderMinIsr",
        "page",
        "sum(kafka_server_replicamanager_underminisrpartitioncount) > 0",
        "",
        "{{ $value }} partitions reject acks=all because their ISRs have too few replicas",
        "Bring brokers back: kafka-topics.sh --describe --under-min-isr-partitions names the replicas.",
    ),
    Alert(
        "KafkaOfflinePartitions",
        "page",
        "max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "",
        "{{ $value }} partitions have no leader",
        "kafka-topics.sh --describe --unavailable-partitions names the brokers to start. The runbook: a partition that "
        "waits for a replica.",
    ),
    Alert(
        "KafkaPartitionsAwaitingLastKnownElr",
        "page",
        "max(kafka_controller_kafkacontroller_partitionsawaitinglastknownelrcount) > 0",
        "5m",
        "{{ $value }} offline partitions can be led only by a replica with an unclean shutdown",
        "Start the first registered broker under LastKnownElr of kafka-topics.sh --describe --unavailable-partitions.",
    ),
    Alert(
        "KafkaBrokersWithoutRack",
        "ticket",
        "max(kafka_controller_kafkacontroller_brokerswithoutrackcount) > 0",
        "",
        "{{ $value }} brokers without broker.rack count for no rack, while min.insync.racks is above 1",
        "Set broker.rack on them and restart them; rackgate check names them.",
    ),
    Alert(
        "KafkaPartitionsInTooFewRacks",
        "ticket",
        f"max({_TOO_FEW_RACKS}) > 0",
        "",
        "{{ $value }} partitions have replicas in too few racks: they reject acks=all even when all brokers are up",
        "rackgate check --plan plans the moves.",
    ),
    Alert(
        "KafkaReassignmentsAwaitingRacks",
        "ticket",
        "max(kafka_controller_kafkacontroller_reassignmentsawaitingrackscount) > 0",
        "30m",
        "{{ $value }} reassignments wait for in-sync replicas in more racks",
        "The controllers' logs name the replicas. Bring them back, or submit another reassignment.",
    ),
    Alert(
        "KafkaMinInSyncRacksExceedsMetadata",
        "ticket",
        "max by (instance) (kafka_server_kafkaserver_mininsyncracksexceedsmetadata) > 0",
        "",
        "{{ $labels.instance }}: min.insync.racks of its properties is higher than the cluster's and is ignored",
        "Set min.insync.racks on topics or as the default of the cluster, and remove it from the properties.",
    ),
    Alert(
        "KafkaRackMetricsMissing",
        "ticket",
        f"((up{{{_BROKERS}}} == 1) unless on (instance) {_UNDER}) or absent({_TOO_FEW_RACKS})",
        "5m",
        "{{ or $labels.instance `controllers` }}: no metrics about racks, so the other alerts can't fire",
        "Check that the overlay runs there, with the exporter and jmx-exporter.yml.",
    ),
)


def alert_rules() -> dict[str, Any]:
    """Return the rule file for Prometheus."""
    recorded = [{"record": name, "expr": expr} for name, expr in RECORDING_RULES.items()]
    return {"groups": [{"name": "kafka-rackgate", "rules": [*recorded, *(alert.rule for alert in ALERTS)]}]}
