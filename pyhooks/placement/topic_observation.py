"""Observed topic: R of its own and in force, what keeps a higher R from being restored, and missed restorations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyhooks.audit.audit_record import time_text
from pyhooks.audit.journal import AuditContents
from pyhooks.audit.replay import Lowering, Status, TopicPlan, plan_topic, status_of
from pyhooks.kafka import gate
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.findings import Finding
from pyhooks.placement.gate_forecast import CheckedTopic, ReportedPartition

WAITS_SHOWN = 5
NO_TOPIC = "there is no such topic, or this principal may not describe it"


@dataclass(frozen=True)
class ObservedTopic:
    """Topic as its brokers report it."""

    name: str
    own_values: frozenset[int | None]  # R on the topic as reported by its current brokers; None: it inherits
    inherited: int  # R of a topic without a value of its own
    min_replicas: int  # configured M
    partitions: tuple[ReportedPartition, ...]
    racks: Mapping[int, str]  # broker id to rack
    current: frozenset[int]  # brokers that responded, with recent metadata
    unknown: str = ""  # reason why its value is not known, or empty
    # the topic's brokers that did not report the value; those that are fenced apply a change before they lead again
    unverified: tuple[int, ...] = ()

    def in_force(self, own: int | None) -> int:
        """Return the R in force, not capped, if the topic's own value were this."""
        return self.inherited if own is None else own

    def offline(self) -> tuple[int, ...]:
        """Return the numbers of the partitions without a leader."""
        return tuple(partition.number for partition in self.partitions if partition.leader < 0)

    def unverified_leaders(self) -> frozenset[int]:
        """Return the leaders that did not report the value."""
        return frozenset(partition.leader for partition in self.partitions) & frozenset(self.unverified)

    def waits_for(self, min_racks: int) -> tuple[str, ...]:
        """Return what keeps R from being restored now, one text for each partition concerned; empty if nothing does.

        Each partition needs a leader, and an ISR of M members in R racks, whose brokers respond with recent metadata.
        Without the latter, a broker that is cut off could report the ISR of before the outage.
        """
        waits = [text for partition in self.partitions if (text := self._waits_for(partition, min_racks))]
        more = [f"and {len(waits) - WAITS_SHOWN} more partitions"] if len(waits) > WAITS_SHOWN else []
        return (*waits[:WAITS_SHOWN], *more)

    def _waits_for(self, partition: ReportedPartition, min_racks: int) -> str:
        name = f"{partition.topic}-{partition.number}"
        if partition.leader < 0:
            return f"{name} has no leader"
        decision = self._decide(partition, min_racks)
        if not decision.enough_racks:
            racks = ", ".join(sorted(decision.racks)) or "none"
            return f"{name} has in-sync replicas in {len(decision.racks)} of {decision.need_racks} racks ({racks})"
        if not decision.enough_replicas:
            return f"{name} has {decision.replicas} of {decision.need_replicas} in-sync replicas"
        if old := sorted(set(partition.isr) - self.current):
            return f"{name}: broker {', '.join(map(str, old))} does not respond, or with old metadata"
        return ""

    def _decide(self, partition: ReportedPartition, min_racks: int) -> gate.GateDecision:
        limits = gate.limits(self.min_replicas, min_racks, len(partition.replicas), len(partition.adding))
        return limits.decide(partition.isr, self.racks)

    def rejects(self, min_racks: int) -> tuple[ReportedPartition, ...]:
        """Return the partitions that have a leader and would reject acks=all with this R, by R or M."""
        return tuple(
            partition
            for partition in self.partitions
            if partition.leader >= 0 and not self._decide(partition, min_racks).passes
        )

    def in_one_rack(self) -> tuple[ReportedPartition, ...]:
        """Return the partitions with a leader whose in-sync replicas are in one known rack or none."""
        return tuple(
            partition
            for partition in self.partitions
            if partition.leader >= 0 and len(gate.racks_of(partition.isr, self.racks)) <= 1
        )


def observe_topic(topic: CheckedTopic, observation: ClusterObservation) -> ObservedTopic:
    """Return a topic as the current ones of its brokers report it."""
    cluster, responses = observation.cluster, observation.enforcement.responses
    current = responses.keys() - observation.enforcement.outdated
    reported = {broker: requirements for broker, requirements in topic.by_broker.items() if broker in current}
    hosts = {replica for partition in topic.partitions for replica in partition.replicas}
    unknown = topic.unanswered
    if not unknown and not reported:
        unknown = "none of its brokers reports its configuration"
    if not unknown and any(requirements.racks is None for requirements in reported.values()):
        unknown = "a broker does not know min.insync.racks"
    own_values = frozenset(
        requirements.racks.value if requirements.racks.source == "topic" else None
        for requirements in reported.values()
        if requirements.racks is not None
    )
    defaults = [
        response.default.min_racks for broker, response in responses.items() if broker in current and response.default
    ]
    return ObservedTopic(
        name=topic.name,
        own_values=own_values,
        inherited=max(defaults, default=1),
        min_replicas=max((requirements.replicas.value for requirements in reported.values()), default=1),
        partitions=topic.partitions,
        racks=cluster.racks,
        current=frozenset(current),
        unknown=unknown,
        unverified=tuple(sorted(hosts - reported.keys())),
    )


def restore_waits(plan: TopicPlan, observed: ObservedTopic) -> tuple[str, ...]:
    """Return what keeps a topic from being restored now; empty if nothing does."""
    return observed.waits_for(max(plan.racks, observed.in_force(plan.value)))


def lowering_status(
    lowering: Lowering, lowerings: Iterable[Lowering], observed: ObservedTopic | None, at: datetime
) -> tuple[Status, str]:
    """Return the status of a lowering with the topic's current value, and what it means, in a sentence.

    ``observed`` is None if the cluster does not report its topic.
    """
    if not lowering.open:
        return status_of(lowering, None, (), at)
    if observed is None:
        return "unknown", NO_TOPIC
    if observed.unknown or len(observed.own_values) != 1:
        return "unknown", f"its current value {describe(observed)}"
    (current,) = observed.own_values
    plan = plan_topic(observed.name, lowerings, current)
    return status_of(lowering, plan, restore_waits(plan, observed) if plan.lowered else (), at)


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


def value_text(value: int | None) -> str:
    """Return a topic's own value of R as text."""
    return "not set (the cluster's value)" if value is None else str(value)


def describe(observed: ObservedTopic) -> str:
    """Return what brokers report, as the end of a sentence that begins with the topic."""
    if observed.unknown:
        return f"is unknown: {observed.unknown}"
    values = sorted(observed.own_values, key=lambda value: value or 0)
    return f"is {' or '.join(map(value_text, values))}"
