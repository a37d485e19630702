"""Snapshots from successive observations: states, rates, and motion of high watermarks. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyhooks.kafka import gate
from pyhooks.watch.observation import (
    ANY_PARTITION,
    BrokerMetrics,
    BrokerObservation,
    FaultObservation,
    Observation,
    PartitionObservation,
    ProduceCounts,
    TopicRequirements,
)
from pyhooks.watch.partition_status import Motion, PartitionFacts, judge
from pyhooks.watch.states import (
    LEVELS,
    BrokerStatus,
    BrokerSummary,
    FaultDisplay,
    FaultState,
    GateTotals,
    OutcomeRates,
    PartitionSummary,
    PreviousCounters,
    Snapshot,
)

PRODUCE_ERRORS = "ErrorsPerSec.Produce."
RACK_FAILURES = "RackCheckFailureRate.Count"
MESSAGES_IN = "MessagesInPerSec.Count"
FAILED_PRODUCE = "FailedProduceRequestsPerSec.Count"
# A healed fault is shown for so many seconds.
HEALED_SHOWN_S = 10.0
# A fault whose heal never ends (its run failed) is shown for so many seconds.
HEALING_SHOWN_S = 180.0
# Metadata and metrics are sampled at different times, so they differ while the ISR changes; only this many
# successive differences count.
MISMATCHES_MIN = 3


def take_snapshot(now: Observation, before: Snapshot | None = None) -> Snapshot:
    """Return the snapshot of an observation, with rates since the previous snapshot."""
    old = _previous_counters(now, before)
    racks = {seen.broker: seen.rack for seen in now.brokers}
    brokers = tuple(
        _broker(seen, now, old) for seen in sorted(now.brokers, key=lambda one: (one.rack or "~", one.broker))
    )
    states = {one.broker: one.state for one in brokers}
    sizes = Counter(seen.topic for seen in now.partitions)
    history = {state.observed.key: state for state in before.partitions} if before is not None else {}
    partitions = [
        _partition(seen, now, old, history.get(seen.key), racks, states, single=sizes[seen.topic] == 1)
        for seen in now.partitions
    ]
    partitions.sort(key=lambda one: (LEVELS.index(one.level), one.observed.topic.startswith("__"), one.observed.key))
    return Snapshot(
        observation=now,
        interval_s=(now.mono_ns - before.observation.mono_ns) / 1e9 if before is not None else None,
        racks=tuple(sorted({rack for rack in racks.values() if rack is not None})),
        brokers=brokers,
        partitions=tuple(partitions),
        faults=tuple(_faults(now)),
        gate=_gate(now, brokers),
        earlier=old,
    )


def _previous_counters(now: Observation, before: Snapshot | None) -> PreviousCounters:
    if before is None:
        return PreviousCounters()
    last = before.observation
    metrics: dict[int, BrokerMetrics] = {}
    for broker, new in now.metrics.items():
        known = last.metrics.get(broker)
        if known is not None and known.requested_ns >= new.requested_ns:
            known = before.earlier.metrics.get(broker)
        if known is not None:
            metrics[broker] = known
    if now.produced_ns > last.produced_ns:
        return PreviousCounters(metrics, last.produced, last.produced_ns)
    return PreviousCounters(metrics, before.earlier.produced, before.earlier.produced_ns)


def _state(seen: BrokerObservation) -> BrokerStatus:
    if seen.process in ("down", "paused"):
        return seen.process
    if seen.listed is None:
        return "unknown"
    if not seen.listed:
        return "fenced" if seen.process == "up" else "gone"
    return "mute" if seen.responds is False else "up"


def _rate(new: float | None, old: float | None, seconds: float) -> float | None:
    """Return the increase of a counter per second; None if it is unknown or was reset."""
    if new is None or old is None or seconds <= 0 or new < old:
        return None
    return (new - old) / seconds


def _metric_rate(name: str, new: BrokerMetrics | None, old: BrokerMetrics | None) -> float | None:
    if new is None or old is None:
        return None
    return _rate(new.values.get(name), old.values.get(name), (new.requested_ns - old.requested_ns) / 1e9)


def _as_int(value: float | None) -> int | None:
    return int(value) if value is not None else None


def _broker(seen: BrokerObservation, now: Observation, old: PreviousCounters) -> BrokerSummary:
    metrics = now.metrics.get(seen.broker)
    earlier = old.metrics.get(seen.broker)
    known = [one for one in now.partitions if one.leader is not None]
    values: Mapping[str, float] = metrics.values if metrics is not None else {}
    return BrokerSummary(
        broker=seen.broker,
        rack=seen.rack,
        state=_state(seen),
        leads=sum(one.leader == seen.broker for one in known) if known or not now.partitions else None,
        messages_in_per_s=_metric_rate(MESSAGES_IN, metrics, earlier),
        rack_failures=_as_int(values.get(RACK_FAILURES)),
        rack_failures_per_s=_metric_rate(RACK_FAILURES, metrics, earlier),
        under_min_racks=_as_int(values.get("UnderMinRackIsrPartitionCount")),
        at_min_racks=_as_int(values.get("AtMinRackIsrPartitionCount")),
        under_replicated=_as_int(values.get("UnderReplicatedPartitions")),
        produce_errors_per_s=_errors(metrics, earlier),
    )


def _errors(new: BrokerMetrics | None, old: BrokerMetrics | None) -> Mapping[str, float]:
    """Return produce errors per second by Kafka's error code, without those that are 0."""
    if new is None or old is None:
        return {}
    found = {}
    for name, value in new.values.items():
        if name.startswith(PRODUCE_ERRORS) and not name.startswith(f"{PRODUCE_ERRORS}NONE."):
            # the broker creates an error's meter at its first occurrence
            rate = _rate(value, old.values.get(name, 0), (new.requested_ns - old.requested_ns) / 1e9)
            if rate:
                found[name.removeprefix(PRODUCE_ERRORS).removesuffix(".Count")] = rate
    return found


def _partition(
    observed: PartitionObservation,
    now: Observation,
    old: PreviousCounters,
    before: PartitionSummary | None,
    racks: Mapping[int, str | None],
    states: Mapping[int, BrokerStatus],
    *,
    single: bool,
) -> PartitionSummary:
    requirements, copies = now.requirements.get(observed.topic), len(observed.replicas)
    limits = _in_force(requirements, now.racks_enforced, copies)
    required_racks = (
        gate.capped(requirements.min_racks, copies)
        if requirements is not None and requirements.min_racks is not None
        else None
    )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    isr_decision = limits.decide(observed.isr, known) if limits is not None and observed.isr is not None else None
    replicas_decision = (
        limits.decide(observed.replicas, known)
        if limits is not None and known.keys() >= set(observed.replicas)
        else None
    )
    leader_metrics = None if observed.leader is None else now.metrics.get(observed.leader)
    gauges = leader_metrics.partitions.get(observed.key, {}) if leader_metrics is not None else {}
    log_end, leader_racks = _as_int(gauges.get("LogEndOffset")), _as_int(gauges.get("IsrRackCount"))
    isr_racks = _count(observed.isr, known)
    short = isr_decision is not None and (
        not isr_decision.enough_replicas or (isr_racks is not None and not isr_decision.enough_racks)
    )
    short_observations = (before.short_observations if before is not None else 0) + 1 if short else 0
    odd = leader_racks is not None and isr_racks is not None and leader_racks != isr_racks
    mismatches = (before.mismatches if before is not None else 0) + 1 if odd else 0
    motion, per_s, still_s, last_hw, last_requested_ns, moved_ns = _watermark_motion(
        observed, before, log_end, short=short
    )
    outcomes = _outcomes(observed, now, old, single=single)
    facts = PartitionFacts(
        leader=observed.leader,
        leader_state=states.get(observed.leader, "gone") if observed.leader is not None else "unknown",
        isr=observed.isr,
        replicas=observed.replicas,
        isr_racks=isr_racks,
        placed_racks=_count(observed.replicas, known),
        isr_rack_names=tuple(sorted(gate.racks_of(observed.isr or (), known))),
        isr_decision=isr_decision,
        replicas_decision=replicas_decision,
        racks_enforced=now.racks_enforced,
        ignored_racks=required_racks
        if limits is not None and required_racks is not None and required_racks > limits.racks
        else None,
        motion=motion,
        still_s=still_s,
        waiting_records=log_end - observed.high_watermark
        if log_end is not None and observed.high_watermark is not None
        else None,
        acked_while_short=short_observations > 2
        and before is not None
        and bool(before.outcomes and before.outcomes.ok_per_s),
        leader_racks=leader_racks if mismatches >= MISMATCHES_MIN else None,
    )
    level, verdict = judge(facts)
    return PartitionSummary(
        observed=observed,
        isr_racks=isr_racks,
        min_racks=limits.racks if limits is not None and required_racks is not None else None,
        min_replicas=limits.replicas if limits is not None else None,
        short_observations=short_observations,
        mismatches=mismatches,
        motion=motion,
        hw_per_s=per_s,
        still_s=still_s,
        last_hw=last_hw,
        last_requested_ns=last_requested_ns,
        moved_ns=moved_ns,
        log_end=log_end,
        leader_racks=leader_racks,
        outcomes=outcomes,
        failed_per_s=_failed(observed.topic, now, old),
        level=level,
        verdict=verdict,
    )


def _in_force(requirements: TopicRequirements | None, enforced: bool | None, copies: int) -> gate.Limits | None:
    """Return the effective M and R, None if unknown; if it is unknown whether R is enforced, assume that it is."""
    if requirements is None:
        return None
    min_racks = 1 if requirements.min_racks is None or enforced is False else requirements.min_racks
    return gate.limits(requirements.min_replicas, min_racks, copies)


def _count(brokers: Iterable[int] | None, racks: Mapping[int, str]) -> int | None:
    """Return the number of racks of brokers as the gate counts them; None if a broker's rack is unknown."""
    if brokers is None or not racks.keys() >= set(brokers):
        return None
    return len(gate.racks_of(brokers, racks))


WatermarkMotion = tuple[Motion, float | None, float | None, int | None, int, int]


def _watermark_motion(
    observed: PartitionObservation, before: PartitionSummary | None, log_end: int | None, *, short: bool
) -> WatermarkMotion:
    """Return motion, offsets per second, seconds without motion, offset, its request time, and time of its change."""
    offset, requested_ns = observed.high_watermark, observed.requested_ns
    if offset is None:
        if before is None:
            return "unknown", None, None, None, 0, 0
        return "unknown", None, None, before.last_hw, before.last_requested_ns, before.moved_ns
    if before is None or before.last_hw is None:
        return "unknown", None, None, offset, requested_ns, requested_ns
    if requested_ns <= before.last_requested_ns and before.motion != "unknown":
        # no new response, so the previous values still apply
        return before.motion, before.hw_per_s, before.still_s, offset, before.last_requested_ns, before.moved_ns
    per_s = _rate(offset, before.last_hw, (requested_ns - before.last_requested_ns) / 1e9)
    if offset != before.last_hw:
        return "moving" if offset > before.last_hw else "back", per_s, 0.0, offset, requested_ns, requested_ns
    frozen = short or (log_end is not None and log_end > offset)
    still_s = (requested_ns - before.moved_ns) / 1e9
    return "frozen" if frozen else "still", per_s, still_s, offset, requested_ns, before.moved_ns


def _outcomes(
    observed: PartitionObservation, now: Observation, old: PreviousCounters, *, single: bool
) -> OutcomeRates | None:
    if now.produced is None or old.produced is None:
        return None
    seconds = (now.produced_ns - old.produced_ns) / 1e9
    any_key = (observed.topic, ANY_PARTITION)
    shared, shared_last = _produced(now.produced, any_key), _produced(old.produced, any_key)
    new = _produced(now.produced, observed.key) + shared
    last = _produced(old.produced, observed.key) + shared_last
    return OutcomeRates(
        ok_per_s=_rate(new.ok, last.ok, seconds) or 0.0,
        refused_per_s=_rate(new.refused, last.refused, seconds) or 0.0,
        unknown_per_s=_rate(new.unknown, last.unknown, seconds) or 0.0,
        whole_topic=not single and shared != shared_last,
    )


def _produced(counts: Mapping[tuple[str, int], ProduceCounts], key: tuple[str, int]) -> ProduceCounts:
    return counts.get(key, ProduceCounts())


def _failed(topic: str, now: Observation, old: PreviousCounters) -> float | None:
    """Return failed produce requests per second of a topic, summed over all brokers with two polls."""
    total = None
    for broker, metrics in now.metrics.items():
        earlier = old.metrics.get(broker)
        if earlier is None:
            continue
        key = (topic, FAILED_PRODUCE)
        # the broker creates the meter at the topic's first failure
        seconds = (metrics.requested_ns - earlier.requested_ns) / 1e9
        rate = _rate(metrics.topics.get(key, 0), earlier.topics.get(key, 0), seconds)
        if rate is not None:
            total = (total or 0.0) + rate
    return total


def _faults(now: Observation) -> Iterable[FaultDisplay]:
    for seen in now.faults:
        state = _fault_state(seen)
        step_s, for_s = (now.mono_ns - seen.step_ns) / 1e9, (now.mono_ns - seen.injected_ns) / 1e9
        if state == "before" or (state == "healing" and step_s > HEALING_SHOWN_S):
            continue
        if state == "healed":
            for_s = step_s
            if step_s > HEALED_SHOWN_S:
                continue
        yield FaultDisplay(seen.op, seen.rack, seen.target, state, for_s)


def _fault_state(seen: FaultObservation) -> FaultState:
    if seen.step in ("proved", "held"):
        return "active" if seen.proved else "unproved"
    if seen.step == "healed":
        return "healed" if seen.proved else "unproved"
    steps: dict[str, FaultState] = {"inject": "injecting", "heal": "healing"}
    return steps.get(seen.step, "before")


def _gate(now: Observation, brokers: tuple[BrokerSummary, ...]) -> GateTotals:
    known = [now.metrics[one.broker] for one in brokers if one.broker in now.metrics]

    def total(name: str) -> int | None:
        found = [metrics.values[name] for metrics in known if name in metrics.values]
        return int(sum(found)) if found else None

    rates = [one.rack_failures_per_s for one in brokers if one.rack_failures_per_s is not None]
    errors: dict[str, float] = {}
    for one in brokers:
        for name, rate in one.produce_errors_per_s.items():
            errors[name] = errors.get(name, 0.0) + rate
    active = [one for one in now.metrics.values() if one.values.get("ActiveControllerCount") == 1]
    return GateTotals(
        nodes_known=len(known),
        rack_failures_per_s=sum(rates) if rates else None,
        under_min_racks=total("UnderMinRackIsrPartitionCount"),
        at_min_racks=total("AtMinRackIsrPartitionCount"),
        under_min_replicas=total("UnderMinIsrPartitionCount"),
        under_replicated=total("UnderReplicatedPartitions"),
        offline=_as_int(active[0].values.get("OfflinePartitionsCount")) if len(active) == 1 else None,
        produce_errors_per_s=dict(sorted(errors.items())),
    )
