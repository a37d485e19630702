"""Observed topics and their findings about missed restorations: brokers that are cut off do not count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fake_outage import START, make_terms
from pyhooks.audit.audit_record import Event, make_record
from pyhooks.audit.audit_topic import AuditTopic
from pyhooks.audit.journal import AuditContents, ReadRecords
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.placement.check_cli import _missed_restores, make_report
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.enforcement import LAG_OFFSETS, BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)
from pyhooks.placement.topic_observation import missed_restore_findings, observe_topic

RACKS = {1: "a", 2: "a", 3: "b"}
LOWERED = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(1, "topic"))
OLD = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(2, "topic"))
INHERITED = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(2, "cluster"))


def observed(
    *, reports: dict[int, IsrRequirements] | None = None, epochs: tuple[int, ...] = (100, 100, 100)
) -> ClusterObservation:
    reports = dict.fromkeys(RACKS, LOWERED) if reports is None else reports
    default = IsrRequirements(ConfigValue(1, "default"), ConfigValue(2, "cluster"))
    responses = {
        broker: BrokerResponse(14, 1, {RACKS_FEATURE: 1, ELR_FEATURE: 1}, epoch, default)
        for broker, epoch in zip(RACKS, epochs, strict=True)
    }
    topic = CheckedTopic("orders", False, (ReportedPartition("orders", 0, 1, (1, 2, 3), (1, 2, 3)),), LOWERED, reports)
    brokers = {broker: Broker(broker, rack) for broker, rack in RACKS.items()}
    return ClusterObservation(ClusterSnapshot("id", brokers, (topic,), True), Enforcement(responses, {}))


def test_a_broker_with_old_metadata_does_not_count() -> None:
    observation = observed(reports={1: LOWERED, 2: LOWERED, 3: OLD}, epochs=(100, 98, 100 - LAG_OFFSETS - 1))
    topic = observe_topic(observation.cluster.topics[0], observation)
    assert topic.own_values == {1}
    assert topic.unverified == (3,)
    assert topic.waits_for(2) == ("orders-0: broker 3 does not respond, or with old metadata",)
    current = observed()
    assert observe_topic(current.cluster.topics[0], current).waits_for(2) == ()


def test_an_inherited_value_is_none() -> None:
    observation = observed(reports=dict.fromkeys(RACKS, INHERITED))
    topic = observe_topic(observation.cluster.topics[0], observation)
    assert topic.own_values == {None}
    assert topic.in_force(None) == 2


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ({}, "none of its brokers reports its configuration"),
        ({1: replace(LOWERED, racks=None)}, "a broker does not know min.insync.racks"),
    ],
)
def test_a_value_that_nobody_reports_is_unknown(reports: dict[int, IsrRequirements], why: str) -> None:
    observation = observed(reports=reports)
    assert observe_topic(observation.cluster.topics[0], observation).unknown == why


@pytest.mark.parametrize(
    ("events", "minutes", "missed"),
    [
        (("intended", "applied"), 29, False),
        (("intended", "applied"), 31, True),
        (("intended",), 1, True),
        (("intended", "applied", "restored"), 31, False),
    ],
)
def test_the_check_reports_missed_restorations(events: tuple[Event, ...], minutes: int, *, missed: bool) -> None:
    records = tuple(make_record(event, make_terms(), at=START, by="alice@one") for event in events)
    contents = AuditContents("id", ReadRecords(), ReadRecords(records))
    observation = observed()
    topics = observation.cluster.topics
    findings = missed_restore_findings(contents, observation, topics, START + timedelta(minutes=minutes))
    assert [(one.severity, one.code, one.topic) for one in findings] == [("risk", "restore-missed", "orders")] * missed
    for one in findings:
        assert one.means.startswith("alice@one lowered min.insync.racks from 2 to 1 at 2026-01-01T00:00:00Z (rack b): ")
    report = make_report(observation, topics, strict=False, expect_racks=2, expected=(), more=findings)
    assert ("restore-missed" in {one.code for one in report.findings}) == missed
    assert "racks-below-expected" not in {one.code for one in report.findings}, "no topic is expected to require racks"


def test_an_unread_audit_is_unknown() -> None:
    contents = AuditContents("id", ReadRecords(), ReadRecords(), "it has no leader")
    (finding,) = missed_restore_findings(contents, observed(), (), START)
    assert (finding.severity, finding.code) == ("unknown", "audit-unknown")


def test_a_hidden_audit_topic_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reject(_: AuditTopic) -> ReadRecords:
        raise RackgateError("topic rackgate-audit: TopicAuthorization")

    monkeypatch.setattr(AuditTopic, "read", reject)
    observation = observed()
    assert "rackgate-audit" not in {topic.name for topic in observation.cluster.topics}
    file, topics = tmp_path / "audit.jsonl", observation.cluster.topics
    (finding,) = _missed_restores(observation, topics, "k1:9092", None, file, "rackgate-audit", 2, 30.0)
    assert (finding.severity, finding.code) == ("unknown", "audit-unknown")
    assert _missed_restores(observation, topics, "k1:9092", None, file, "rackgate-audit", 1, 30.0) == ()
