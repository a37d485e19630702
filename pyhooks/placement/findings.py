"""Findings about a cluster's placements, each with its meaning and remedy. Pure functions.

The severity decides the exit status of ``rackgate check``:

- ``error``: a fault, or a configuration that can't work. Writes are rejected, or a placement can't reach its R.
- ``unknown``: not determined, so it may be an error.
- ``risk``: no fault now. But one more fault (a broker, a rack) stops writes, or the loss of a rack loses acknowledged
  records, *and this cluster could avoid that* with another placement or once all replicas are in sync.
- ``notice``: like ``risk``, but the topic's settings require or allow it. Counted only with ``--strict``.

The settings decide between ``risk`` and ``notice``. If one rack can acknowledge alone, this is a risk if M is above 1
and the cluster has several racks: M requires copies that survive a failure, and they would not survive that of a rack.
With M=1, or with one replica, a single copy is what the topic requires. Both are the default of many topics, and users
would soon ignore a check that fails for all of them. If the loss of a rack stops writes, this is a risk if another
placement of as many replicas would survive it. If none would, as with R equal to the number of racks, it is a
consequence of the settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyhooks.kafka import gate
from pyhooks.kafka.features import UPGRADE
from pyhooks.kafka.gate import NO_RACK, Limits
from pyhooks.placement.gate_forecast import (
    CheckedTopic,
    ClusterSnapshot,
    IsrRequirements,
    PartitionForecast,
    RackSizes,
    ReportedPartition,
    forecast_partition,
    limits_of,
    rack_name,
)

Severity = Literal["error", "unknown", "risk", "notice"]
SEVERITIES: tuple[Severity, ...] = ("error", "unknown", "risk", "notice")
MANY = 8  # longer lists of names are shortened
_BACK = "bring {brokers} back in sync"
# Content of internal topics that other topics' records depend on, and the consequence of its loss.
COORDINATED = {
    "__transaction_state": ("the outcome of a transaction", "an acknowledged commit"),
    "__consumer_offsets": ("an offset commit", "an acknowledged offset"),
}


@dataclass(frozen=True)
class Finding:
    """Finding about a topic or the cluster."""

    severity: Severity
    code: str  # stable name of the kind of finding, for programs
    means: str  # its meaning, in a sentence
    remedy: str  # what to do about it
    topic: str = ""  # name of the topic; empty if it is about the cluster
    # numbers of the partitions, sorted; empty if it is about the whole topic or the cluster
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Note:
    """Finding about one partition; notes that differ only in names and brokers become one finding of the topic.

    ``{racks}``, ``{names}`` and ``{brokers}`` in ``means`` and ``remedy`` are filled in for that finding. These
    templates must not contain external names, which may have braces.
    """

    severity: Severity
    code: str
    means: str
    remedy: str
    noun: str = ""
    names: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Key by which notes are merged into one finding."""
        return self.severity, self.code, self.means, self.remedy, self.noun, self.racks


@dataclass(frozen=True)
class TopicReport:
    """Topic with the gate's decisions for its partitions."""

    topic: CheckedTopic
    forecasts: tuple[PartitionForecast, ...]  # one per partition; empty if no broker reported the topic's settings
    findings: tuple[Finding, ...]  # findings about it, worst first


def at_risk(findings: Iterable[Finding], *, strict: bool) -> bool:
    """Return whether the findings make the exit status 1; notices count only with ``strict``."""
    return any(strict or finding.severity != "notice" for finding in findings)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, worst first; the order of equal ones does not change."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def topic_reports(cluster: ClusterSnapshot, topics: Sequence[CheckedTopic]) -> tuple[TopicReport, ...]:
    """Return the reports of topics."""
    states, reports = _PartitionStates(cluster), []
    for topic in topics:
        evaluated = [found for partition in topic.partitions if (found := states.evaluate(partition, topic))]
        forecasts = tuple(forecast for forecast, _ in evaluated)
        findings = [*_unknown_findings(topic, forecasts), *_forecast_findings(topic, evaluated)]
        reports.append(TopicReport(topic, forecasts, worst_first(findings)))
    return tuple(reports)


def below_expected_findings(topics: Iterable[CheckedTopic], expected: int) -> tuple[Finding, ...]:
    """Return findings about topics whose R is below an expected value, for example lowered in an outage and not reset.

    R is capped by the number of replicas, and the expected value with it.
    """
    findings = []
    for topic in topics:
        replicas = max((len(partition.target) for partition in topic.partitions), default=0)
        expected_racks = gate.capped(expected, replicas)
        if topic.requirements is None or topic.requirements.min_racks >= expected_racks:
            continue
        source = topic.requirements.racks.source if topic.requirements.racks else "unknown to the brokers"
        means = f"requires racks: {topic.requirements.min_racks} ({source}), expected: {expected_racks}"
        scope = "on the topic" if source == "topic" else "on the topic or for the cluster"
        remedy = f"set min.insync.racks={expected_racks} {scope}, once its in-sync replicas are in so many racks"
        findings.append(Finding("risk", "racks-below-expected", means, remedy, topic.name))
    return tuple(findings)


def cluster_findings(cluster: ClusterSnapshot, default: IsrRequirements | None) -> tuple[Finding, ...]:
    """Return findings about racks, brokers and controllers.

    ``default`` are the requirements of topics without settings of their own, None if no broker reported them.
    """
    findings = list(_unanswered_findings(cluster))
    racks = {broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK}
    without_rack = sorted(broker.broker_id for broker in cluster.brokers.values() if broker.rack == NO_RACK)
    if without_rack:
        required = max([default.min_racks if default else 1, *map(effective_racks, cluster.topics)])
        means = f"{brokers_text(without_rack)} without a rack: they count for no rack"
        if required > 1:
            means += f", while min.insync.racks is up to {required}; a raise of it is rejected"
        findings.append(
            Finding(
                "error" if required > 1 else "risk" if racks else "notice",
                "brokers-without-rack",
                means,
                "set broker.rack on them and restart them one after another",
            )
        )
    if len(racks) == 1 and not without_rack:
        means = f"all brokers are in rack {min(racks)}, so no placement survives its loss"
        findings.append(Finding("notice", "one-rack", means, "add brokers in another rack"))
    for similar in similar_racks(racks):
        names = names_text(map(repr, similar))
        means = f"racks {names} differ only in case or spaces, and count as different"
        findings.append(Finding("notice", "similar-racks", means, "set the same broker.rack on all brokers of a rack"))
    if default is not None and default.min_racks > max(1, len(racks)):
        condition = "" if cluster.enforced else " as soon as min.insync.racks is enforced"
        findings.append(
            Finding(
                "error",
                "default-above-racks",
                f"brokers require {default.min_racks} racks by default, and there are {len(racks)}: a new topic with"
                f" that many replicas would reject every write with acks=all{condition}",
                "add brokers in other racks, or lower min.insync.racks of the cluster",
            )
        )
    return (*findings, *_quorum_findings(cluster, len(racks)))


def effective_racks(topic: CheckedTopic) -> int:
    """Return the effective R of the topic's partition with the most replicas; 1 if it is unknown."""
    replicas = max((len(partition.target) for partition in topic.partitions), default=0)
    return 1 if topic.requirements is None else gate.capped(topic.requirements.min_racks, replicas)


def internal_topic_findings(cluster: ClusterSnapshot, topics: Iterable[CheckedTopic]) -> Iterable[Finding]:
    """Yield findings about internal topics that require fewer racks than topics whose records depend on them."""
    required = {topic.name: effective_racks(topic) for topic in topics if not topic.internal}
    for name, (content, loss) in COORDINATED.items():
        internal = next((topic for topic in cluster.topics if topic.name == name), None)
        if internal is None or internal.requirements is None or not internal.partitions:
            continue
        fewest = min(
            gate.capped(internal.requirements.min_racks, len(partition.target)) for partition in internal.partitions
        )
        dependents = sorted(topic for topic, racks in required.items() if racks > fewest)
        if dependents:
            needed = max(required[topic] for topic in dependents)
            means = (
                f"requires racks: {fewest}, and {names_text(dependents)} up to {needed}: {loss} can be lost with"
                f" {fewest} rack{'s' * (fewest > 1)}, though the records are not"
            )
            remedy = f"set min.insync.racks={needed} on it: {content} is only as safe as this topic"
            yield Finding("risk", "internal-topic-requires-fewer-racks", means, remedy, name)


def _unanswered_findings(cluster: ClusterSnapshot) -> Iterable[Finding]:
    remedy = (
        "make sure brokers can be reached from here, and let the principal of --command-config describe the cluster"
    )
    if because := cluster.unanswered.get("quorum"):
        means = f"the controllers are unknown, and whether they survive the loss of a rack: {because}"
        yield Finding("unknown", "quorum-unanswered", means, remedy)
    if because := cluster.unanswered.get("reassignments"):
        means = f"unknown which partitions are being reassigned: {because}"
        yield Finding("unknown", "reassignments-unanswered", means, remedy)


def similar_racks(racks: Collection[str]) -> Sequence[list[str]]:
    """Return groups of racks whose names differ only in case or white space."""
    by_normalized_name: dict[str, list[str]] = {}
    for rack in sorted(racks):
        by_normalized_name.setdefault("".join(rack.split()).casefold(), []).append(rack)
    return [group for group in by_normalized_name.values() if len(group) > 1]


def _quorum_findings(cluster: ClusterSnapshot, rack_count: int) -> Iterable[Finding]:
    """Yield findings about the controllers' racks; Kafka knows a controller's rack only if it is also a broker."""
    if "quorum" in cluster.unanswered:
        return
    if cluster.voters is None:
        means = "the cluster does not report its controllers, so it is unknown whether they survive the loss of a rack"
        yield Finding("notice", "quorum-unknown", means, "make sure that no rack has half of the controllers or more")
        return
    not_brokers = [voter for voter in cluster.voters if voter not in cluster.brokers]
    if not_brokers:
        means = f"controllers {names_text(not_brokers)} are not brokers: Kafka does not know their racks"
        yield Finding(
            "notice", "quorum-racks-unknown", means, "make sure that no rack has half of the controllers or more"
        )
    voters_by_rack = Counter(cluster.brokers[voter].rack for voter in cluster.voters if voter in cluster.brokers)
    total = len(cluster.voters)
    stopping = sorted(
        rack for rack, number in voters_by_rack.items() if rack != NO_RACK and 2 * (total - number) <= total
    )
    if stopping:
        means = (
            f"the loss of {_any_of('rack', stopping)} leaves no majority of the {total} controllers: no leader is"
            " elected and no ISR shrinks any more, so writes with acks=all wait wherever a replica is lost"
            if total > 1
            else f"there is one controller, in rack {stopping[0]}: without it no leader is elected and no ISR shrinks"
        )
        # with one or two controllers, or two racks, no placement would survive: it is a choice
        severity: Severity = "risk" if total > 2 and rack_count > 2 else "notice"
        yield Finding(severity, "quorum-loss", means, "place controllers in three racks, or outside of them")


def _unknown_findings(topic: CheckedTopic, forecasts: Sequence[PartitionForecast]) -> Iterable[Finding]:
    if topic.unanswered:
        remedy = "let the principal of --command-config describe the topic, check again"
        means = f"its partitions are unknown: {topic.unanswered}"
        yield Finding("unknown", "topic-unanswered", means, remedy, topic.name)
    elif len(forecasts) < len(topic.partitions):
        remedy = "let the principal of --command-config describe configs of topics, or start its brokers"
        means = "no broker reported min.insync.replicas of this topic"
        yield Finding("unknown", "settings-unknown", means, remedy, topic.name)


class _PartitionStates:
    """Forecasts of a cluster's partitions and notes on them.

    A large cluster has few different states of partitions, so each is evaluated once.
    """

    def __init__(self, cluster: ClusterSnapshot) -> None:
        self._cluster = cluster
        self._racks, self._rack_sizes = cluster.racks, RackSizes.of(cluster)
        self._known: dict[tuple[object, ...], tuple[PartitionForecast, tuple[_Note, ...]]] = {}

    def evaluate(
        self, partition: ReportedPartition, topic: CheckedTopic
    ) -> tuple[PartitionForecast, tuple[_Note, ...]] | None:
        """Return forecast and notes; None if no broker reported the topic's requirements."""
        in_force, required = topic.requirements_of(partition), topic.requirements
        if in_force is None or required is None:
            return None
        key = (partition.state, in_force, required)
        if key not in self._known:
            forecast = forecast_partition(partition, in_force, required.min_racks, self._cluster, self._racks)
            self._known[key] = (forecast, tuple(_partition_notes(forecast, required, self._cluster, self._rack_sizes)))
        forecast, notes = self._known[key]
        return replace(forecast, partition=partition), notes


def _forecast_findings(
    topic: CheckedTopic, evaluated: Iterable[tuple[PartitionForecast, tuple[_Note, ...]]]
) -> Iterable[Finding]:
    if topic.requirements is None:
        return
    notes_by_kind: dict[tuple[object, ...], list[tuple[int, _Note]]] = {}
    for forecast, partition_notes in evaluated:
        for note in partition_notes:
            notes_by_kind.setdefault(note.key, []).append((forecast.partition.number, note))
    for notes in notes_by_kind.values():
        first = notes[0][1]
        values = {
            "racks": names_text(map(rack_name, first.racks)) or "none",
            "names": _any_of(first.noun, {name for _, note in notes for name in note.names}),
            "brokers": brokers_text({broker for _, note in notes for broker in note.brokers}),
        }
        means, remedy = first.means.format_map(values), first.remedy.format_map(values)
        yield Finding(first.severity, first.code, means, remedy, topic.name, tuple(number for number, _ in notes))
    yield from _capped_findings(topic, topic.requirements)


def _capped_findings(topic: CheckedTopic, requirements: IsrRequirements) -> Iterable[Finding]:
    fewest = min((len(partition.target) for partition in topic.partitions), default=0)
    has_several = fewest > 1
    if has_several and requirements.min_racks > fewest:
        means = f"min.insync.racks={requirements.min_racks} is above the number of replicas and counts as {fewest}"
        yield Finding("notice", "racks-capped", means, f"set it to {fewest}, or add replicas", topic.name)
    if has_several and requirements.replicas.value > fewest:
        means = (
            f"min.insync.replicas={requirements.replicas.value} is above the number of replicas: Kafka 3.7 and later"
            f" treat it as {fewest}, earlier ones reject every write with acks=all"
        )
        yield Finding("notice", "replicas-capped", means, f"set it to {fewest}, or add replicas", topic.name)


def _partition_notes(
    forecast: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, rack_sizes: RackSizes
) -> Iterable[_Note]:
    yield from _current_notes(forecast)
    yield from _reach_notes(forecast, requirements, cluster, rack_sizes)
    if forecast.reachable or not cluster.enforced:
        # if R is in force and the placement can't reach it, only that matters until it is fixed
        yield from _loss_notes(forecast, requirements, cluster, rack_sizes)
        yield from _alone_notes(forecast, requirements, cluster, rack_sizes)
    if forecast.partition.adding or forecast.partition.removing:
        means = (
            "a reassignment is in progress; until it ends, min.insync.racks is capped without the replicas that it adds"
        )
        yield _Note("notice", "reassigning", means, "check again when it has ended")


def _current_notes(forecast: PartitionForecast) -> Iterable[_Note]:
    partition, decision = forecast.partition, forecast.decision
    if partition.leader < 0:
        candidates = partition.elr or partition.isr or partition.replicas
        yield _Note("error", "offline", "no leader: no writes or reads", "start {brokers}", brokers=candidates)
        return
    out_of_sync = _out_of_sync(forecast)
    if not decision.enough_replicas:
        means = (
            f"rejects acks=all now: {decision.replicas} in sync, min.insync.replicas requires {decision.need_replicas}"
        )
        yield _Note("error", "too-few-replicas", means, _BACK, brokers=out_of_sync)
    if not decision.enough_racks and forecast.reachable:
        means = f"rejects acks=all now: in sync in rack {{racks}}, min.insync.racks requires {decision.need_racks}"
        yield _Note("error", "too-few-racks", means, _BACK, brokers=out_of_sync, racks=forecast.isr_racks)


def _reach_notes(
    forecast: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, rack_sizes: RackSizes
) -> Iterable[_Note]:
    if forecast.unknown_brokers:
        means = "has replicas on {brokers}, which the cluster does not know: their racks are unknown"
        remedy = "start {brokers}, or reassign the partitions"
        yield _Note("unknown", "unknown-brokers", means, remedy, brokers=forecast.unknown_brokers)
    needed = gate.capped(requirements.min_racks, len(forecast.partition.target))
    rack_count = len(rack_sizes.sizes)
    if not forecast.reachable:
        without_rack = tuple(
            replica
            for replica in forecast.partition.target
            if replica in cluster.brokers and cluster.brokers[replica].rack == NO_RACK
        )
        if not cluster.enforced:
            effect = "would reject acks=all as soon as min.insync.racks is enforced"
        elif forecast.writable:
            effect = "rejects acks=all as soon as its reassignment has ended"
        else:
            effect = "never accepts a write with acks=all"
        means = f"{effect}: replicas in rack {{racks}}, min.insync.racks requires {needed}"
        remedy = "move replicas: rackgate check --plan lists them"
        if without_rack:
            remedy = "set broker.rack on {brokers}, which count for no rack, restart them, then check again"
        elif rack_count < needed:
            remedy = f"the cluster has {rack_count} racks: add brokers in another one, or lower min.insync.racks"
        yield _Note("error", "racks-out-of-reach", means, remedy, brokers=without_rack, racks=forecast.racks)


def _loss_notes(
    forecast: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, rack_sizes: RackSizes
) -> Iterable[_Note]:
    current, in_full_sync = forecast.stopped_by, forecast.stopped_when_whole
    replicas = len(forecast.partition.target)
    limits = limits_of(requirements, replicas, enforced=cluster.enforced)
    brokers_now, brokers_always = tuple(map(str, current.brokers)), tuple(map(str, in_full_sync.brokers))
    losses = (
        ("rack", current.racks, in_full_sync.racks, rack_sizes.survives_a_rack(replicas, limits)),
        ("broker", brokers_now, brokers_always, rack_sizes.survives_a_broker(replicas, limits)),
    )
    for kind, stopping_now, stopping_always, avoidable in losses:
        if temporary := tuple(name for name in stopping_now if name not in stopping_always):
            means = "the loss of {names} stops acks=all until all replicas are in sync"
            yield _Note("risk", f"{kind}-loss-stops-now", means, _BACK, kind, temporary, _out_of_sync(forecast))
        if not stopping_always:
            continue
        means = "the loss of {names} stops acks=all"
        if avoidable:
            remedy = f"spread the {replicas} replicas more evenly over the racks: another placement would survive it"
            yield _Note("risk", f"{kind}-loss-stops", means, remedy, kind, stopping_always)
        else:
            remedy = f"no placement of {replicas} here would survive it: {_limits_text(limits)} requires it"
            yield _Note("notice", f"{kind}-loss-stops-by-choice", means, remedy, kind, stopping_always)


def _alone_notes(
    forecast: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, rack_sizes: RackSizes
) -> Iterable[_Note]:
    if (
        not forecast.lone_racks
        or len(forecast.partition.target) < 2
        or len(rack_sizes.sizes) + rack_sizes.has_rackless_brokers < 2
    ):
        # with one replica or one rack no placement survives a rack loss; see also the finding one-rack
        return
    needed, names = forecast.decision.need_replicas, tuple(rack_name(rack) for rack in forecast.lone_racks)
    require_racks = _require(forecast, requirements, cluster)
    remedy = f"{require_racks}, or place fewer than {needed} replicas in a rack"
    brokers = [cluster.brokers[replica] for replica in forecast.partition.target if replica in cluster.brokers]
    if len({broker.rack for broker in brokers}) == 1:
        means = "all replicas are in {names}: acknowledged records are lost with it"
        severity: Severity = "risk" if needed > 1 else "notice"
        yield _Note(severity, "all-in-one-rack", means, "place replicas in other racks too", "rack", names)
    elif needed == 1:
        means = "a single replica can acknowledge, as min.insync.replicas=1 allows"
        yield _Note("notice", "one-replica-acknowledges", means, f"set min.insync.replicas=2; {require_racks}")
    elif forecast.lone_now:
        means = "{names} alone acknowledges now: acknowledged records are lost with it"
        isr_racks = tuple(map(rack_name, forecast.isr_racks or (NO_RACK,)))
        yield _Note("risk", "one-rack-acknowledges-now", means, remedy, "rack", isr_racks)
    else:
        means = f"{{names}} can acknowledge alone, since {needed} replicas are enough"
        yield _Note("risk", "one-rack-can-acknowledge", means, remedy, "rack", names)


def _require(forecast: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot) -> str:
    """Return the remedy that makes the topic require racks."""
    if requirements.racks is None:
        # no broker knows min.insync.racks, so it can't be set yet
        return "put the overlay first on the classpath and require racks"
    if cluster.enforced or requirements.min_racks <= 1:
        return "require racks (min.insync.racks=2)"
    # R is set but not enforced; if the placement can't reach it, enforcing it would stop all writes
    first = "" if forecast.reachable else "move replicas (rackgate check --plan) and then "
    return f"{first}enforce min.insync.racks={requirements.min_racks} ({UPGRADE})"


def _out_of_sync(forecast: PartitionForecast) -> tuple[int, ...]:
    return tuple(replica for replica in forecast.partition.replicas if replica not in forecast.partition.isr)


def _limits_text(limits: Limits) -> str:
    return f"M={limits.replicas}" + (f" and R={limits.racks}" if limits.racks > 1 else "")


def _any_of(noun: str, names: Collection[str]) -> str:
    if len(names) <= 1:
        return f"{noun} {''.join(names)}"
    first, *rest = sorted(names, key=lambda name: (len(name), name))
    if len(rest) >= MANY:
        return f"{noun} {first}, {', '.join(rest[: MANY - 1])} or one of {len(rest) - MANY + 1} more"
    return f"{noun} {', '.join([first, *rest[:-1]])} or {rest[-1]}"


def brokers_text(brokers: Collection[int]) -> str:
    """Format broker ids for a sentence, shortened if there are many."""
    return f"broker{'s' * (len(brokers) > 1)} {names_text(sorted(brokers))}"


def names_text(names: Iterable[object]) -> str:
    """Format names or ids for a sentence, shortened if there are many."""
    texts = list(map(str, names))
    more = len(texts) - MANY
    return ", ".join(texts) if more <= 1 else f"{', '.join(texts[:MANY])} and {more} more"
