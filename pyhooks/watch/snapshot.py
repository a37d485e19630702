"""Snapshots from successive observations: states, rates, and motion of high watermarks. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

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
from pyhooks.watch.partition_status import VerdictInput, judge
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
    Watermark,
)

PRODUCE_ERRORS = "ErrorsPerSec.Produce."
RACK_FAILURES = "RackCheckFailureRate.Count"
MESSAGES_IN = "MessagesInPerSec.Count"
FAILED_PRODUCE = "FailedProduceRequestsPerSec.Count"
# A healed fault is shown for so many seconds.
HEALED_SHOWN_S = 10.0
# A fault whose heal never ends (its run failed) is shown for so many seconds.
HEALING_SHOWN_S = 180.0


def take_snapshot(now: Observation, before: Snapshot | None = None) -> Snapshot:
    """Return the snapshot of an observation, with rates since the previous snapshot."""
    earlier = _previous_counters(now, before)
    racks = {broker.broker: broker.rack for broker in now.brokers}
    ordered = sorted(now.brokers, key=lambda broker: (broker.rack or "~", broker.broker))
    brokers = tuple(_broker(broker, now, earlier) for broker in ordered)
    states = {broker.id: broker.state for broker in brokers}
    topic_sizes = Counter(partition.topic for partition in now.partitions)
    previous = {partition.observed.key: partition for partition in before.partitions} if before is not None else {}
    partitions = [
        _partition(
            observed, now, earlier, previous.get(observed.key), racks, states, single=topic_sizes[observed.topic] == 1
        )
        for observed in now.partitions
    ]
    partitions.sort(key=lambda row: (LEVELS.index(row.level), row.observed.topic.startswith("__"), row.observed.key))
    return Snapshot(
        observation=now,
        interval_s=(now.mono_ns - before.observation.mono_ns) / 1e9 if before is not None else None,
        racks=tuple(sorted({rack for rack in racks.values() if rack is not None})),
        brokers=brokers,
        partitions=tuple(partitions),
        faults=tuple(_faults(now)),
        gate=_gate(now, brokers),
        earlier=earlier,
    )


def _previous_counters(now: Observation, before: Snapshot | None) -> PreviousCounters:
    if before is None:
        return PreviousCounters()
    last = before.observation
    metrics: dict[int, BrokerMetrics] = {}
    for broker, current in now.metrics.items():
        previous = last.metrics.get(broker)
        if previous is not None and previous.requested_ns >= current.requested_ns:
            previous = before.earlier.metrics.get(broker)
        if previous is not None:
            metrics[broker] = previous
    if now.produced_ns > last.produced_ns:
        return PreviousCounters(metrics, last.produced, last.produced_ns)
    return PreviousCounters(metrics, before.earlier.produced, before.earlier.produced_ns)


def _state(broker: BrokerObservation) -> BrokerStatus:
    if broker.process in ("down", "paused"):
        return broker.process
    if broker.listed is None:
        return "unknown"
    if not broker.listed:
        return "fenced" if broker.process == "up" else "gone"
    return "mute" if broker.responds is False else "up"


def _rate(current: float | None, previous: float | None, seconds: float) -> float | None:
    """Return the increase of a counter per second; None if it is unknown or was reset."""
    if current is None or previous is None or seconds <= 0 or current < previous:
        return None
    return (current - previous) / seconds


def _as_int(value: float | None) -> int | None:
    return int(value) if value is not None else None


def _broker(broker: BrokerObservation, now: Observation, earlier: PreviousCounters) -> BrokerSummary:
    current, previous = now.metrics.get(broker.broker), earlier.metrics.get(broker.broker)
    with_leader = [partition for partition in now.partitions if partition.leader is not None]
    values: Mapping[str, float] = current.values if current is not None else {}

    def rate(name: str) -> float | None:
        if current is None or previous is None:
            return None
        seconds = (current.requested_ns - previous.requested_ns) / 1e9
        return _rate(values.get(name), previous.values.get(name), seconds)

    led = sum(partition.leader == broker.broker for partition in with_leader)
    return BrokerSummary(
        id=broker.broker,
        rack=broker.rack,
        state=_state(broker),
        leads=led if with_leader or not now.partitions else None,
        messages_in_per_s=rate(MESSAGES_IN),
        rack_check_failures=_as_int(values.get(RACK_FAILURES)),
        rack_check_failures_per_s=rate(RACK_FAILURES),
        under_min_rack_isr=_as_int(values.get("UnderMinRackIsrPartitionCount")),
        at_min_rack_isr=_as_int(values.get("AtMinRackIsrPartitionCount")),
        under_replicated=_as_int(values.get("UnderReplicatedPartitions")),
        produce_errors_per_s=_errors(current, previous),
    )


def _errors(current: BrokerMetrics | None, previous: BrokerMetrics | None) -> Mapping[str, float]:
    """Return produce errors per second by Kafka's error code, without those that are 0."""
    if current is None or previous is None:
        return {}
    rates = {}
    for name, value in current.values.items():
        if name.startswith(PRODUCE_ERRORS) and not name.startswith(f"{PRODUCE_ERRORS}NONE."):
            # the broker creates an error's meter at its first occurrence
            seconds = (current.requested_ns - previous.requested_ns) / 1e9
            if rate := _rate(value, previous.values.get(name, 0), seconds):
                rates[name.removeprefix(PRODUCE_ERRORS).removesuffix(".Count")] = rate
    return rates


def _partition(
    observed: PartitionObservation,
    now: Observation,
    earlier: PreviousCounters,
    before: PartitionSummary | None,
    racks: Mapping[int, str | None],
    states: Mapping[int, BrokerStatus],
    *,
    single: bool,
) -> PartitionSummary:
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    requirements, replicas = now.requirements.get(observed.topic), len(observed.replicas)
    limits = required_racks = isr_decision = replicas_decision = None
    if requirements is not None:
        limits = _in_force(requirements, now.racks_enforced, replicas)
        if requirements.min_racks is not None:
            required_racks = gate.capped(requirements.min_racks, replicas)
        isr_decision = limits.decide(observed.isr, known) if observed.isr is not None else None
        replicas_decision = limits.decide(observed.replicas, known) if known.keys() >= {*observed.replicas} else None
    leader_metrics = None if observed.leader is None else now.metrics.get(observed.leader)
    gauges = leader_metrics.partitions.get(observed.key, {}) if leader_metrics is not None else {}
    log_end, leader_isr_racks = _as_int(gauges.get("LogEndOffset")), _as_int(gauges.get("IsrRackCount"))
    isr_racks = None
    if observed.isr is not None and known.keys() >= {*observed.isr}:
        isr_racks = len(gate.racks_of(observed.isr, known))
    short = isr_decision is not None and (
        not isr_decision.enough_replicas or (isr_racks is not None and not isr_decision.enough_racks)
    )
    mismatch = None not in (leader_isr_racks, isr_racks) and leader_isr_racks != isr_racks
    partition = PartitionSummary(
        observed=observed,
        isr_racks=isr_racks,
        leader_isr_racks=leader_isr_racks,
        min_racks=limits.racks if limits is not None and required_racks is not None else None,
        min_replicas=limits.replicas if limits is not None else None,
        watermark=_watermark(observed, before.watermark if before is not None else Watermark(), log_end, short=short),
        log_end=log_end,
        produce=_outcomes(observed, now, earlier, single=single),
        failed_produce_per_s=_failed(observed.topic, now, earlier),
        short_observations=(before.short_observations if before is not None else 0) + 1 if short else 0,
        mismatches=(before.mismatches if before is not None else 0) + 1 if mismatch else 0,
    )
    acked = before is not None and before.produce is not None and before.produce.ok_per_s > 0
    ignored = limits is not None and required_racks is not None and required_racks > limits.racks
    level, verdict = judge(
        VerdictInput(
            partition,
            leader_state=states.get(observed.leader, "gone") if observed.leader is not None else "unknown",
            isr_decision=isr_decision,
            replicas_decision=replicas_decision,
            racks_enforced=now.racks_enforced,
            ignored_racks=required_racks if ignored else None,
            acked_while_short=partition.short_observations > 2 and acked,
        )
    )
    return replace(partition, level=level, verdict=verdict)


def _in_force(requirements: TopicRequirements, enforced: bool | None, replicas: int) -> gate.Limits:
    """Return the effective M and R; if it is unknown whether R is enforced, assume that it is."""
    min_racks = 1 if requirements.min_racks is None or enforced is False else requirements.min_racks
    return gate.limits(requirements.min_replicas, min_racks, replicas)


def _watermark(observed: PartitionObservation, before: Watermark, log_end: int | None, *, short: bool) -> Watermark:
    offset, requested_ns = observed.high_watermark, observed.requested_ns
    if offset is None:
        return replace(before, motion="unknown", per_s=None, still_s=None)
    if before.offset is None:
        return Watermark(offset=offset, requested_ns=requested_ns, moved_ns=requested_ns)
    if requested_ns <= before.requested_ns and before.motion != "unknown":
        # no new response, so the previous values still apply
        return replace(before, offset=offset)
    per_s = _rate(offset, before.offset, (requested_ns - before.requested_ns) / 1e9)
    if offset != before.offset:
        return Watermark("moving" if offset > before.offset else "back", per_s, 0.0, offset, requested_ns, requested_ns)
    frozen = short or (log_end is not None and log_end > offset)
    still_s = (requested_ns - before.moved_ns) / 1e9
    return Watermark("frozen" if frozen else "still", per_s, still_s, offset, requested_ns, before.moved_ns)


def _outcomes(
    observed: PartitionObservation, now: Observation, earlier: PreviousCounters, *, single: bool
) -> OutcomeRates | None:
    if now.produced is None or earlier.produced is None:
        return None
    seconds, none, any_key = (
        (now.produced_ns - earlier.produced_ns) / 1e9,
        ProduceCounts(),
        (observed.topic, ANY_PARTITION),
    )
    shared, shared_before = now.produced.get(any_key, none), earlier.produced.get(any_key, none)
    counts = now.produced.get(observed.key, none) + shared
    counts_before = earlier.produced.get(observed.key, none) + shared_before
    return OutcomeRates(
        ok_per_s=_rate(counts.ok, counts_before.ok, seconds) or 0.0,
        rejected_per_s=_rate(counts.rejected, counts_before.rejected, seconds) or 0.0,
        unknown_per_s=_rate(counts.unknown, counts_before.unknown, seconds) or 0.0,
        whole_topic=not single and shared != shared_before,
    )


def _failed(topic: str, now: Observation, earlier: PreviousCounters) -> float | None:
    """Return failed produce requests per second of a topic, summed over all brokers with two polls."""
    rates = []
    for broker, previous in earlier.metrics.items():
        if (current := now.metrics.get(broker)) is not None:
            # the broker creates the meter at the topic's first failure
            seconds = (current.requested_ns - previous.requested_ns) / 1e9
            count, before = (poll.topics.get(topic, {}).get(FAILED_PRODUCE, 0) for poll in (current, previous))
            rates.append(_rate(count, before, seconds))
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _faults(now: Observation) -> Iterable[FaultDisplay]:
    for fault in now.faults:
        state = _fault_state(fault)
        step_s, for_s = (now.mono_ns - fault.step_ns) / 1e9, (now.mono_ns - fault.injected_ns) / 1e9
        if state == "before" or step_s > {"healing": HEALING_SHOWN_S, "healed": HEALED_SHOWN_S}.get(state, math.inf):
            continue
        yield FaultDisplay(fault.op, fault.rack, fault.target, state, step_s if state == "healed" else for_s)


def _fault_state(fault: FaultObservation) -> FaultState:
    proved_states: dict[str, FaultState] = {"proved": "active", "held": "active", "healed": "healed"}
    if fault.step in proved_states:
        return proved_states[fault.step] if fault.proved else "unproved"
    states: dict[str, FaultState] = {"inject": "injecting", "heal": "healing"}
    return states.get(fault.step, "before")


def _gate(now: Observation, brokers: tuple[BrokerSummary, ...]) -> GateTotals:
    known = [now.metrics[broker.id] for broker in brokers if broker.id in now.metrics]

    def total(name: str) -> int | None:
        values = [metrics.values[name] for metrics in known if name in metrics.values]
        return int(sum(values)) if values else None

    rates = [broker.rack_check_failures_per_s for broker in brokers if broker.rack_check_failures_per_s is not None]
    errors: dict[str, float] = {}
    for broker in brokers:
        for name, rate in broker.produce_errors_per_s.items():
            errors[name] = errors.get(name, 0.0) + rate
    active = [metrics for metrics in now.metrics.values() if metrics.values.get("ActiveControllerCount") == 1]
    return GateTotals(
        brokers_known=len(known),
        rack_check_failures_per_s=sum(rates) if rates else None,
        under_min_rack_isr=total("UnderMinRackIsrPartitionCount"),
        at_min_rack_isr=total("AtMinRackIsrPartitionCount"),
        under_min_isr=total("UnderMinIsrPartitionCount"),
        under_replicated=total("UnderReplicatedPartitions"),
        offline=_as_int(active[0].values.get("OfflinePartitionsCount")) if len(active) == 1 else None,
        produce_errors_per_s=dict(sorted(errors.items())),
    )
