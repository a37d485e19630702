"""Findings about a cluster's placements, each with its meaning and remedy. Pure functions.

The severity decides the exit status of ``rackgate check``:

- ``error``: a fault, or a configuration that can't work. Writes are refused, or a placement can't reach its R.
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
from dataclasses import dataclass
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
    forecast_topic,
    limits_of,
    rack_name,
)

Severity = Literal["error", "unknown", "risk", "notice"]
SEVERITIES: tuple[Severity, ...] = ("error", "unknown", "risk", "notice")
MANY = 8  # longer lists of names are shortened
_BACK = "bring {brokers} back in sync"
# Content of internal topics that other topics' records depend on, and the consequence of its loss.
_COORDINATED = {
    "__transaction_state": ("the outcome of a transaction", "an acknowledged commit"),
    "__consumer_offsets": ("an offset commit", "an acknowledged offset"),
}


@dataclass(frozen=True)
class Finding:
    """Finding about a topic or the cluster.

    Attributes:
        severity: its severity.
        code: stable name of the kind of finding, for programs.
        means: its meaning, in a sentence.
        remedy: what to do about it.
        topic: name of the topic; empty if it is about the cluster.
        partitions: numbers of the partitions, sorted; empty if it is about the whole topic or the cluster.
    """

    severity: Severity
    code: str
    means: str
    remedy: str
    topic: str = ""
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
    thing: str = ""
    names: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[object, ...]:
        """Key by which notes are merged into one finding."""
        return self.severity, self.code, self.means, self.remedy, self.thing, self.racks


@dataclass(frozen=True)
class TopicReport:
    """Topic with the gate's decisions for its partitions.

    Attributes:
        topic: the topic.
        forecasts: one per partition; empty if no broker reported the topic's settings.
        findings: findings about it, worst first.
    """

    topic: CheckedTopic
    forecasts: tuple[PartitionForecast, ...]
    findings: tuple[Finding, ...]


def at_risk(findings: Iterable[Finding], *, strict: bool) -> bool:
    """Return whether the findings make the exit status 1; notices count only with ``strict``."""
    return any(strict or finding.severity != "notice" for finding in findings)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, worst first; the order of equal ones does not change."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def topic_reports(cluster: ClusterSnapshot, topics: Sequence[CheckedTopic]) -> tuple[TopicReport, ...]:
    """Return the reports of topics."""
    racks, room = cluster.racks, RackSizes.of(cluster)
    reports = []
    for topic in topics:
        states = forecast_topic(topic, cluster, racks)
        found = [*_unknown_findings(topic, states), *_forecast_findings(topic, states, cluster, room)]
        reports.append(TopicReport(topic, states, worst_first(found)))
    return tuple(reports)


def below_expected_findings(topics: Iterable[CheckedTopic], expected: int) -> tuple[Finding, ...]:
    """Return findings about topics whose R is below an expected value, for example lowered in an outage and not reset.

    R is capped by the number of replicas, and the expected value with it.

    Args:
        topics: topics to check; ``topic_reports`` reports topics whose settings are unknown.
        expected: lowest R without a finding; 1 gives no findings.
    """
    found = []
    for topic in topics:
        most = max((len(partition.target) for partition in topic.partitions), default=0)
        wanted = gate.capped(expected, most)
        if topic.requirements is None or topic.requirements.min_racks >= wanted:
            continue
        source = topic.requirements.racks.source if topic.requirements.racks else "unknown to the brokers"
        means = f"requires racks: {topic.requirements.min_racks} ({source}), expected: {wanted}"
        where = "on the topic" if source == "topic" else "on the topic or for the cluster"
        remedy = f"set min.insync.racks={wanted} {where}, once its in-sync replicas are in so many racks"
        found.append(Finding("risk", "racks-below-expected", means, remedy, topic.name))
    return tuple(found)


def cluster_findings(cluster: ClusterSnapshot, default: IsrRequirements | None) -> tuple[Finding, ...]:
    """Return findings about racks, brokers and controllers.

    Args:
        cluster: the observed cluster.
        default: requirements for topics without settings of their own; None if no broker reported them.
    """
    found = list(_unanswered(cluster))
    named = {broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK}
    without = sorted(broker.broker_id for broker in cluster.brokers.values() if broker.rack == NO_RACK)
    if without:
        required = max([default.min_racks if default else 1, *map(effective_racks, cluster.topics)])
        means = f"{brokers_text(without)} without a rack: they count for no rack"
        if required > 1:
            means += f", while min.insync.racks is up to {required}; a raise of it is refused"
        found.append(
            Finding(
                "error" if required > 1 else "risk" if named else "notice",
                "brokers-without-rack",
                means,
                "set broker.rack on them and restart them one after another",
            )
        )
    if len(named) == 1 and not without:
        means = f"all brokers are in rack {min(named)}, so no placement survives its loss"
        found.append(Finding("notice", "one-rack", means, "add brokers in another rack"))
    for alike in _similar(named):
        means = (
            f"racks {names_text([repr(rack) for rack in alike])} differ only in case or spaces, and count as different"
        )
        found.append(Finding("notice", "similar-racks", means, "set the same broker.rack on all brokers of a rack"))
    if default is not None and default.min_racks > max(1, len(named)):
        when = "" if cluster.enforced else " as soon as min.insync.racks is enforced"
        found.append(
            Finding(
                "error",
                "default-above-racks",
                f"brokers require {default.min_racks} racks by default, and there are {len(named)}: a new topic with"
                f" that many replicas would refuse every write with acks=all{when}",
                "add brokers in other racks, or lower min.insync.racks of the cluster",
            )
        )
    return (*found, *_quorum(cluster, len(named)))


def effective_racks(topic: CheckedTopic) -> int:
    """Return the effective R of the topic's partition with the most replicas; 1 if it is unknown."""
    most = max((len(partition.target) for partition in topic.partitions), default=0)
    return 1 if topic.requirements is None else gate.capped(topic.requirements.min_racks, most)


def internal_topic_findings(cluster: ClusterSnapshot, topics: Iterable[CheckedTopic]) -> Iterable[Finding]:
    """Yield findings about internal topics that require fewer racks than topics whose records depend on them.

    Args:
        cluster: the observed cluster.
        topics: topics to report on.
    """
    required = {topic.name: effective_racks(topic) for topic in topics if not topic.internal}
    for name, (what, lost) in _COORDINATED.items():
        internal = next((topic for topic in cluster.topics if topic.name == name), None)
        if internal is None or internal.requirements is None or not internal.partitions:
            continue
        fewest = min(
            gate.capped(internal.requirements.min_racks, len(partition.target)) for partition in internal.partitions
        )
        above = sorted(topic for topic, racks in required.items() if racks > fewest)
        if above:
            wanted = max(required[topic] for topic in above)
            means = (
                f"requires racks: {fewest}, and {names_text(above)} up to {wanted}: {lost} can be lost with {fewest}"
                f" rack{'s' * (fewest > 1)}, though the records are not"
            )
            remedy = f"set min.insync.racks={wanted} on it: {what} is only as safe as this topic"
            yield Finding("risk", "internal-topic-requires-fewer-racks", means, remedy, name)


def _unanswered(cluster: ClusterSnapshot) -> Iterable[Finding]:
    remedy = (
        "make sure brokers can be reached from here, and let the principal of --command-config describe the cluster"
    )
    if because := cluster.unanswered.get("quorum"):
        means = f"the controllers are unknown, and whether they survive the loss of a rack: {because}"
        yield Finding("unknown", "quorum-unanswered", means, remedy)
    if because := cluster.unanswered.get("reassignments"):
        means = f"unknown which partitions are being reassigned: {because}"
        yield Finding("unknown", "reassignments-unanswered", means, remedy)


def _similar(racks: Collection[str]) -> Iterable[list[str]]:
    """Return groups of racks whose names differ only in case or white space."""
    alike: dict[str, list[str]] = {}
    for rack in sorted(racks):
        alike.setdefault("".join(rack.split()).casefold(), []).append(rack)
    return [group for group in alike.values() if len(group) > 1]


def _quorum(cluster: ClusterSnapshot, racks: int) -> Iterable[Finding]:
    """Yield findings about the controllers' racks; Kafka knows a controller's rack only if it is also a broker."""
    if "quorum" in cluster.unanswered:
        return
    if cluster.voters is None:
        means = "the cluster does not report its controllers, so it is unknown whether they survive the loss of a rack"
        yield Finding("notice", "quorum-unknown", means, "make sure that no rack has half of the controllers or more")
        return
    elsewhere = [voter for voter in cluster.voters if voter not in cluster.brokers]
    if elsewhere:
        means = f"controllers {names_text(list(map(str, elsewhere)))} are not brokers: Kafka does not know their racks"
        yield Finding(
            "notice", "quorum-racks-unknown", means, "make sure that no rack has half of the controllers or more"
        )
    placed = Counter(cluster.brokers[voter].rack for voter in cluster.voters if voter in cluster.brokers)
    total = len(cluster.voters)
    stops = sorted(rack for rack, number in placed.items() if rack != NO_RACK and 2 * (total - number) <= total)
    if stops:
        means = (
            f"the loss of {_any_of('rack', stops)} leaves no majority of the {total} controllers: no leader is elected"
            " and no ISR shrinks any more, so writes with acks=all wait wherever a replica is lost"
            if total > 1
            else f"there is one controller, in rack {stops[0]}: without it no leader is elected and no ISR shrinks"
        )
        # with one or two controllers, or two racks, no placement would survive: it is a choice
        severity: Severity = "risk" if total > 2 and racks > 2 else "notice"
        yield Finding(severity, "quorum-loss", means, "place controllers in three racks, or outside of them")


def _unknown_findings(topic: CheckedTopic, states: Sequence[PartitionForecast]) -> Iterable[Finding]:
    if topic.unanswered:
        yield Finding(
            "unknown",
            "topic-unanswered",
            f"its partitions are unknown: {topic.unanswered}",
            "let the principal of --command-config describe the topic, check again",
            topic.name,
        )
        return
    if len(states) < len(topic.partitions):
        yield Finding(
            "unknown",
            "settings-unknown",
            "no broker reported min.insync.replicas of this topic",
            "let the principal of --command-config describe configs of topics, or start its brokers",
            topic.name,
        )


def _forecast_findings(
    topic: CheckedTopic, states: Sequence[PartitionForecast], cluster: ClusterSnapshot, room: RackSizes
) -> Iterable[Finding]:
    if topic.requirements is None:
        return
    alike: dict[tuple[object, ...], list[tuple[int, _Note]]] = {}
    for state in states:
        for note in _partition_notes(state, topic.requirements, cluster, room):
            alike.setdefault(note.kind, []).append((state.partition.number, note))
    for found in alike.values():
        kind = found[0][1]
        filled = {
            "racks": names_text(list(map(rack_name, kind.racks))) or "none",
            "names": _any_of(kind.thing, {name for _, note in found for name in note.names}),
            "brokers": brokers_text({broker for _, note in found for broker in note.brokers}),
        }
        means, remedy = kind.means.format_map(filled), kind.remedy.format_map(filled)
        yield Finding(kind.severity, kind.code, means, remedy, topic.name, tuple(number for number, _ in found))
    yield from _capped(topic, topic.requirements)


def _capped(topic: CheckedTopic, requirements: IsrRequirements) -> Iterable[Finding]:
    fewest = min((len(partition.target) for partition in topic.partitions), default=0)
    several = fewest > 1
    if several and requirements.min_racks > fewest:
        means = f"min.insync.racks={requirements.min_racks} is above the number of replicas and counts as {fewest}"
        yield Finding("notice", "racks-capped", means, f"set it to {fewest}, or add replicas", topic.name)
    if several and requirements.replicas.value > fewest:
        means = (
            f"min.insync.replicas={requirements.replicas.value} is above the number of replicas: Kafka 3.7 and later treat it"
            f" as {fewest}, earlier ones refuse every write with acks=all"
        )
        yield Finding("notice", "replicas-capped", means, f"set it to {fewest}, or add replicas", topic.name)


def _partition_notes(
    state: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, room: RackSizes
) -> Iterable[_Note]:
    yield from _current_notes(state)
    yield from _reach_notes(state, requirements, cluster, room)
    if state.reachable or not cluster.enforced:
        # if R is in force and the placement can't reach it, only that matters until it is fixed
        yield from _loss_notes(state, requirements, cluster, room)
        yield from _alone_notes(state, requirements, cluster, room)
    if state.partition.adding or state.partition.removing:
        means = (
            "a reassignment is in progress; until it ends, min.insync.racks is capped without the replicas that it adds"
        )
        yield _Note("notice", "reassigning", means, "check again when it has ended")


def _current_notes(state: PartitionForecast) -> Iterable[_Note]:
    partition, now = state.partition, state.decision
    if partition.leader < 0:
        candidates = partition.elr or partition.isr or partition.replicas
        yield _Note("error", "offline", "no leader: no writes or reads", "start {brokers}", brokers=candidates)
        return
    behind = _out_of_sync(state)
    if not now.enough_replicas:
        means = f"refuses acks=all now: {now.replicas} in sync, min.insync.replicas requires {now.need_replicas}"
        yield _Note("error", "too-few-replicas", means, _BACK, brokers=behind)
    if not now.enough_racks and state.reachable:
        means = f"refuses acks=all now: in sync in rack {{racks}}, min.insync.racks requires {now.need_racks}"
        yield _Note("error", "too-few-racks", means, _BACK, brokers=behind, racks=state.isr_racks)


def _reach_notes(
    state: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, room: RackSizes
) -> Iterable[_Note]:
    if state.unknown_brokers:
        means = "has replicas on {brokers}, which the cluster does not know: their racks are unknown"
        remedy = "start {brokers}, or reassign the partitions"
        yield _Note("unknown", "unknown-brokers", means, remedy, brokers=state.unknown_brokers)
    needed = gate.capped(requirements.min_racks, len(state.partition.target))
    named = len(room.sizes)
    if not state.reachable:
        without = tuple(
            replica
            for replica in state.partition.target
            if replica in cluster.brokers and cluster.brokers[replica].rack == NO_RACK
        )
        if not cluster.enforced:
            effect = "would refuse acks=all as soon as min.insync.racks is enforced"
        elif state.writable:
            effect = "refuses acks=all as soon as its reassignment has ended"
        else:
            effect = "never accepts a write with acks=all"
        means = f"{effect}: replicas in rack {{racks}}, min.insync.racks requires {needed}"
        remedy = "move replicas: rackgate check --plan lists them"
        if without:
            remedy = "set broker.rack on {brokers}, which count for no rack, restart them, then check again"
        elif named < needed:
            remedy = f"the cluster has {named} racks: add brokers in another one, or lower min.insync.racks"
        yield _Note("error", "racks-out-of-reach", means, remedy, brokers=without, racks=state.racks)


def _loss_notes(
    state: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, room: RackSizes
) -> Iterable[_Note]:
    now, whole = state.stopped_by, state.stopped_when_whole
    replicas = len(state.partition.target)
    limits = limits_of(requirements, replicas, enforced=cluster.enforced)
    broker_now, broker_whole = tuple(map(str, now.brokers)), tuple(map(str, whole.brokers))
    kinds = (
        ("rack", now.racks, whole.racks, room.survives_a_rack(replicas, limits)),
        ("broker", broker_now, broker_whole, room.survives_a_broker(replicas, limits)),
    )
    for kind, stops_now, stops_whole, better in kinds:
        if extra := tuple(name for name in stops_now if name not in stops_whole):
            means = "the loss of {names} stops acks=all until all replicas are in sync"
            yield _Note("risk", f"{kind}-loss-stops-now", means, _BACK, kind, extra, _out_of_sync(state))
        if not stops_whole:
            continue
        means = "the loss of {names} stops acks=all"
        if better:
            remedy = f"spread the {replicas} replicas more evenly over the racks: another placement would survive it"
            yield _Note("risk", f"{kind}-loss-stops", means, remedy, kind, stops_whole)
        else:
            remedy = f"no placement of {replicas} here would survive it: {_limits_text(limits)} requires it"
            yield _Note("notice", f"{kind}-loss-stops-by-choice", means, remedy, kind, stops_whole)


def _alone_notes(
    state: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot, room: RackSizes
) -> Iterable[_Note]:
    if not state.lone_racks or len(state.partition.target) < 2 or len(room.sizes) + room.without < 2:
        # with one replica or one rack no placement survives a rack loss; see also the finding one-rack
        return
    needed, names = state.decision.need_replicas, tuple(rack_name(rack) for rack in state.lone_racks)
    require = _require(state, requirements, cluster)
    remedy = f"{require}, or place fewer than {needed} replicas in a rack"
    known = [cluster.brokers[replica] for replica in state.partition.target if replica in cluster.brokers]
    if len({broker.rack for broker in known}) == 1:
        means = "all replicas are in {names}: acknowledged records are lost with it"
        severity: Severity = "risk" if needed > 1 else "notice"
        yield _Note(severity, "all-in-one-rack", means, "place replicas in other racks too", "rack", names)
    elif needed == 1:
        means = "a single replica can acknowledge, as min.insync.replicas=1 allows"
        yield _Note("notice", "one-replica-acknowledges", means, f"set min.insync.replicas=2; {require}")
    elif state.lone_now:
        means = "{names} alone acknowledges now: acknowledged records are lost with it"
        alone = tuple(map(rack_name, state.isr_racks or (NO_RACK,)))
        yield _Note("risk", "one-rack-acknowledges-now", means, remedy, "rack", alone)
    else:
        means = f"{{names}} can acknowledge alone, since {needed} replicas are enough"
        yield _Note("risk", "one-rack-can-acknowledge", means, remedy, "rack", names)


def _require(state: PartitionForecast, requirements: IsrRequirements, cluster: ClusterSnapshot) -> str:
    """Return the remedy that makes the topic require racks."""
    if requirements.racks is None:
        # no broker knows min.insync.racks, so it can't be set yet
        return "put the overlay first on the classpath and require racks"
    if cluster.enforced or requirements.min_racks <= 1:
        return "require racks (min.insync.racks=2)"
    # R is set but not enforced; if the placement can't reach it, enforcing it would stop all writes
    first = "" if state.reachable else "move replicas (rackgate check --plan) and then "
    return f"{first}enforce min.insync.racks={requirements.min_racks} ({UPGRADE})"


def _out_of_sync(state: PartitionForecast) -> tuple[int, ...]:
    return tuple(replica for replica in state.partition.replicas if replica not in state.partition.isr)


def _limits_text(limits: Limits) -> str:
    return f"M={limits.replicas}" + (f" and R={limits.racks}" if limits.racks > 1 else "")


def _any_of(thing: str, names: Collection[str]) -> str:
    if len(names) <= 1:
        return f"{thing} {''.join(names)}"
    first, *rest = sorted(names, key=lambda name: (len(name), name))
    if len(rest) >= MANY:
        return f"{thing} {first}, {', '.join(rest[: MANY - 1])} or one of {len(rest) - MANY + 1} more"
    return f"{thing} {', '.join([first, *rest[:-1]])} or {rest[-1]}"


def brokers_text(brokers: Collection[int]) -> str:
    """Format broker ids for a sentence, shortened if there are many."""
    return f"broker{'s' * (len(brokers) > 1)} {names_text(list(map(str, sorted(brokers))))}"


def names_text(names: Sequence[str]) -> str:
    """Format names for a sentence, shortened if there are many."""
    more = len(names) - MANY
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:MANY])} and {more} more"
