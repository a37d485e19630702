"""Cluster of an adoption: queries and changes with Kafka's Java clients, metrics from JMX ports or a lab's sockets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jpype

from pyhooks.adoption.plan import Change, FeatureUpgrade, ObservedRejections, RejectionReport
from pyhooks.core.errors import RackgateError
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.change_error import change_error
from pyhooks.jvm.java_exception import JavaError
from pyhooks.lab.mbeans import OBSERVED_REJECTIONS, MetricsReading, SocketSource
from pyhooks.lab.metrics import metrics_of
from pyhooks.placement import cluster_query, preflight_query
from pyhooks.placement.preflight_judgement import PreflightFacts
from pyhooks.placement.readiness import CommandWriter

_PRODUCE_REQUESTS = "TotalProduceRequestsPerSec"
REJECTION_BEANS = tuple(
    (f"kafka.server:type=BrokerTopicMetrics,name={name},*", "Count")
    for name in (OBSERVED_REJECTIONS, _PRODUCE_REQUESTS)
)


@dataclass(frozen=True)
class JavaCluster:
    """Cluster of an operator."""

    bootstrap: str  # ``host:port,…``
    config: Mapping[str, str]  # further properties of Kafka's clients
    facts: Callable[[], PreflightFacts]  # returns the state of the whole cluster
    jmx: Sequence[str]  # addresses of JMX ports
    sources: Sequence[SocketSource]  # sockets with metrics of a lab's brokers
    timeout_s: float  # timeout of each query or change, in seconds

    def observe(self, topics: Collection[str]) -> PreflightFacts:
        """See ``run.AdoptingCluster.observe``."""
        observation = cluster_query.query_cluster(
            self.bootstrap, self.config, timeout_s=self.timeout_s, report_step=lambda _: None, only=topics
        )
        return PreflightFacts(observation.cluster, observation.enforcement)

    def rejections(self) -> RejectionReport:
        """See ``run.AdoptingCluster.rejections``."""
        found: dict[int, ObservedRejections] = {}
        unread: dict[str, str] = {}
        for source in self.sources:
            try:
                reading = source.query(REJECTION_BEANS, self.timeout_s)
                if reading.errors:
                    raise RackgateError(reading.errors[0])
                found[source.broker] = rejections_of(reading.rows)
            except (RackgateError, LookupError) as error:
                unread[source.name] = str(error)
        if self.jmx:
            reports, reasons = preflight_query.query_ports(self.jmx, _read_rejections, timeout_s=self.timeout_s)
            found |= reports
            unread |= reasons
        return RejectionReport(found, unread)

    def apply(self, change: Change) -> None:
        """See ``run.AdoptingCluster.apply``."""
        try:
            with Admin.responsive(self.bootstrap, timeout_s=self.timeout_s, config=self.config) as admin:
                if isinstance(change, FeatureUpgrade):
                    admin.upgrade_features(change.features)
                else:
                    admin.set_topic_config(change.topic, change.key, str(change.racks))
        except JavaError as error:
            raise change_error(change.command(CommandWriter()), error) from error


def rejections_of(rows: Iterable[tuple[str, str, str]]) -> ObservedRejections:
    """Return what a broker counted.

    Args:
        rows: object name, attribute and value as text of its beans.

    Raises:
        LookupError: it does not count rejections: it has no overlay.
    """
    counts: dict[str, dict[str | None, int]] = {OBSERVED_REJECTIONS: {}, _PRODUCE_REQUESTS: {}}
    for metric in metrics_of(MetricsReading(tuple(rows)), -1, 0, 0):
        name = metric.name.removesuffix(".Count")
        if name in counts and metric.value is not None:
            counts[name][metric.topic] = int(metric.value)
    if None not in counts[OBSERVED_REJECTIONS]:
        raise LookupError(f"it has no metric {OBSERVED_REJECTIONS}")
    total = counts[OBSERVED_REJECTIONS].pop(None)
    counts[_PRODUCE_REQUESTS].pop(None, None)
    return ObservedRejections(
        {name: count for name, count in counts[OBSERVED_REJECTIONS].items() if name is not None},
        total,
        {name: count for name, count in counts[_PRODUCE_REQUESTS].items() if name is not None},
    )


def _read_rejections(server: Any) -> ObservedRejections:
    pattern = jpype.JClass("javax.management.ObjectName")
    return rejections_of(
        (str(name), attribute, str(server.getAttribute(name, attribute)))
        for bean, attribute in REJECTION_BEANS
        for name in server.queryNames(pattern(bean), None)
    )
