"""Whether brokers may be restarted now: each partition must accept acks=all without them. Pure functions.

A partition is judged by its current ISR without these brokers, which must pass the gate of ``pyhooks.kafka.gate``. If
that fails, the finding is one of two: it ends when all replicas are in sync (wait), or the placement never survives
this restart, as with one replica or with a single replica in one of R racks (waiting does not help).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.placement.enforcement import Enforcement
from pyhooks.placement.findings import brokers_text, names_text
from pyhooks.placement.gate_forecast import (
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
    limits_of,
)
from pyhooks.placement.readiness import CommandWriter, ReadinessFinding, ReadinessSeverity, obstacles_first

PARTITIONS_SHOWN = 6


@dataclass(frozen=True)
class _StoppedPartition:
    """Partition that would reject acks=all without the brokers."""

    number: int
    code: str
    text: str
    waiting_for: tuple[int, ...] = ()  # replicas out of sync


def restart_findings(
    cluster: ClusterSnapshot,
    enforcement: Enforcement,
    topics: Sequence[CheckedTopic],
    brokers: Collection[int],
    commands: CommandWriter,
    *,
    accept_unavoidable: bool = False,
) -> tuple[ReadinessFinding, ...]:
    """Return the reasons against a restart of brokers now, worst first; empty if they may be restarted.

    With ``accept_unavoidable`` it is a notice what waiting can't change.
    """
    # brokers may know different levels, so R counts as soon as one of them enforces it
    enforced = any(response.level >= 1 for response in enforcement.responses.values())
    fenced = {broker.broker_id for broker in cluster.brokers.values() if broker.fenced}
    stopping = frozenset(brokers) - fenced
    findings = [*_missing_responses(enforcement, fenced, brokers, commands)]
    for topic in topics:
        findings += _topic_findings(cluster, topic, stopping, commands, enforced, accept_unavoidable=accept_unavoidable)
    findings += _quorum_findings(cluster, frozenset(brokers), commands, accept_unavoidable=accept_unavoidable)
    return obstacles_first(findings)


def _missing_responses(
    enforcement: Enforcement, fenced: Collection[int], brokers: Collection[int], commands: CommandWriter
) -> Iterable[ReadinessFinding]:
    for broker, reason in sorted(enforcement.unresponsive.items()):
        # A fenced broker is in no ISR. One that does not respond still is for a while, as if it were in sync.
        if broker not in fenced and broker not in brokers:
            text = f"it did not respond, so it may be in sync in name only: {reason}"
            remedy = f"# make sure that broker {broker} runs and can be reached from here\n{commands.rackgate('check')}"
            yield ReadinessFinding("broker-silent", "unknown", f"broker {broker}", text, remedy)
    if enforcement.outdated:
        # any broker may have reported the partitions, one of these as well
        text = "its metadata is behind: if it is cut off from the controllers, the reported ISR may be an old one"
        remedy = f"# wait, then check again; see the logs of {brokers_text(enforcement.outdated)}"
        yield ReadinessFinding("broker-behind", "unknown", brokers_text(enforcement.outdated), text, remedy)


def _topic_findings(
    cluster: ClusterSnapshot,
    topic: CheckedTopic,
    brokers: frozenset[int],
    commands: CommandWriter,
    enforced: bool,
    *,
    accept_unavoidable: bool,
) -> Iterable[ReadinessFinding]:
    if topic.unanswered:
        text = f"its partitions are unknown: {topic.unanswered}"
        remedy = "# let the principal of --command-config describe the topic"
        yield ReadinessFinding("topic-unanswered", "unknown", topic.name, text, remedy)
        return
    concerned = [partition for partition in topic.partitions if brokers & set(partition.replicas)]
    if not concerned:
        return
    requirements = strictest_requirements(topic)
    if requirements is None:
        text = f"no broker reported its {MIN_INSYNC_REPLICAS}"
        remedy = "# let the principal of --command-config describe configs of topics"
        yield ReadinessFinding("settings-unknown", "unknown", topic.name, text, remedy)
        return
    by_kind: dict[tuple[str, str], list[_StoppedPartition]] = {}
    racks = cluster.racks
    for partition in concerned:
        stopped = _stopped_partition(racks, partition, requirements, brokers, enforced=enforced)
        if stopped is not None:
            by_kind.setdefault((stopped.code, stopped.text), []).append(stopped)
    for (code, text), partitions in sorted(by_kind.items()):
        severity: ReadinessSeverity = "notice" if accept_unavoidable and code == "restart-always-stops" else "obstacle"
        subject = f"{topic.name}{_numbers([partition.number for partition in partitions])}"
        waiting_for = {broker for partition in partitions for broker in partition.waiting_for}
        yield ReadinessFinding(code, severity, subject, text, _remedy(code, topic.name, waiting_for, commands))


def strictest_requirements(topic: CheckedTopic) -> IsrRequirements | None:
    """Return the highest M and the highest R that any broker reported for a topic; None if no broker did."""
    reported = [*topic.by_broker.values(), *filter(None, [topic.requirements])]
    if not reported:
        return None
    replicas = max((one.replicas for one in reported), key=lambda setting: setting.value)
    racks = max((one.racks for one in reported if one.racks), key=lambda setting: setting.value, default=None)
    return IsrRequirements(replicas, racks or ConfigValue(1, "default"))


def _stopped_partition(
    racks: Mapping[int, str],
    partition: ReportedPartition,
    requirements: IsrRequirements,
    brokers: frozenset[int],
    *,
    enforced: bool,
) -> _StoppedPartition | None:
    """Return a partition that the restart stops, or None if it accepts acks=all without the brokers."""
    if partition.leader < 0:
        away = tuple(replica for replica in partition.elr or partition.isr or partition.replicas)
        return _StoppedPartition(partition.number, "partition-offline", "it has no leader already", away)
    adding = len(partition.adding)
    decision = limits_of(requirements, len(partition.replicas), enforced=enforced, adding=adding).decide(
        set(partition.isr) - brokers, racks
    )
    if decision.passes:
        return None
    missing = []
    if not decision.enough_replicas:
        missing.append(f"{decision.replicas} in sync, {MIN_INSYNC_REPLICAS} requires {decision.need_replicas}")
    if not decision.enough_racks:
        racks_text = f"{len(decision.racks)} rack{'s' * (len(decision.racks) != 1)}"
        missing.append(f"in sync in {racks_text}, {MIN_INSYNC_RACKS} requires {decision.need_racks}")
    text = f"acks=all would be rejected: {' and '.join(missing)}"
    target = partition.target
    when_whole = limits_of(requirements, len(target), enforced=enforced).decide(set(target) - brokers, racks)
    out_of_sync = tuple(replica for replica in target if replica not in partition.isr and replica not in brokers)
    if when_whole.passes:
        return _StoppedPartition(partition.number, "restart-stops-now", text, out_of_sync)
    return _StoppedPartition(partition.number, "restart-always-stops", f"{text}, even with all replicas in sync")


def _remedy(code: str, topic: str, waiting_for: Collection[int], commands: CommandWriter) -> str:
    describe = commands.kafka("topics", "--describe", "--topic", topic)
    if code == "partition-offline":
        return f"# start one of {brokers_text(waiting_for)}\n{describe}"
    if code == "restart-stops-now":
        event = f"{brokers_text(waiting_for)} in sync" if waiting_for else "the reassignment completed"
        return f"# wait, then check again: {event}\n{describe}"
    return f"# move or add a replica, restart fewer brokers at once, or accept it with --accept-unavoidable\n{describe}"


def _quorum_findings(
    cluster: ClusterSnapshot, brokers: frozenset[int], commands: CommandWriter, *, accept_unavoidable: bool
) -> Iterable[ReadinessFinding]:
    status = commands.kafka("metadata-quorum", "describe", "--replication")
    if because := cluster.unanswered.get("quorum"):
        text = f"it is unknown whether these nodes are controllers: {because}"
        yield ReadinessFinding("quorum-unanswered", "unknown", "controllers", text, status)
        return
    voters = frozenset(cluster.voters or ())
    if not voters & brokers:
        return
    running = voters - brokers - frozenset(cluster.late_voters)
    if 2 * len(running) > len(voters):
        return
    subject = f"controllers {names_text(sorted(voters & brokers))}"
    text = f"{len(running)} of {len(voters)} controllers would be left, which is no majority"
    if 2 * len(voters - brokers) > len(voters):
        late = names_text(sorted(frozenset(cluster.late_voters) - brokers))
        remedy = f"# wait until controllers {late} have caught up\n{status}"
        yield ReadinessFinding("restart-stops-controllers-now", "obstacle", subject, text, remedy)
        return
    severity: ReadinessSeverity = "notice" if accept_unavoidable else "obstacle"
    remedy = f"# restart fewer of them at once, or accept it with --accept-unavoidable\n{status}"
    yield ReadinessFinding("restart-always-stops-controllers", severity, subject, text, remedy)


def _numbers(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:PARTITIONS_SHOWN]))
    more = f" and {len(partitions) - PARTITIONS_SHOWN} more" if len(partitions) > PARTITIONS_SHOWN else ""
    return f", partition{'s' * (len(partitions) > 1)} {shown}{more}"
