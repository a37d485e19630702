"""Findings about topics that ``rackgate lower`` lowered and that were not restored. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyhooks.audit.audit_record import time_text
from pyhooks.audit.journal import AuditContents
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.findings import Finding
from pyhooks.placement.gate_forecast import CheckedTopic
from pyhooks.placement.topic_observation import lowering_status, observe_topic


def missed_restore_findings(
    contents: AuditContents, observation: ClusterObservation, topics: Sequence[CheckedTopic], at: datetime
) -> tuple[Finding, ...]:
    """Return findings about missed restorations, and about an audit that is not known."""
    findings = [
        Finding("unknown", "audit-unknown", reason, "see rackgate audit --help, and check again")
        for reason in contents.unknown
    ]
    for topic in topics:
        open_ = contents.open_lowerings(topic.name)
        observed = observe_topic(topic, observation) if open_ else None
        for one in open_:
            status, means = lowering_status(one, open_, observed, at)
            if status in ("due", "waiting", "unfinished"):
                terms = one.terms
                who = f"{terms.lowered_by} lowered min.insync.racks from {terms.old_racks} to {terms.new}"
                text = f"{who} at {time_text(terms.began)} ({terms.reason}): {means}"
                findings.append(Finding("risk", "restore-missed", text, "restore it: rackgate restore", topic.name))
    return tuple(findings)
