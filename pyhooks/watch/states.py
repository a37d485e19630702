"""Data classes of a snapshot: state of brokers, partitions and faults at one moment; ``None`` means unknown.

``rackgate watch --json`` prints their attributes under the same names, see ``pyhooks.watch.document``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyhooks.watch.observation import BrokerMetrics, Observation, PartitionObservation, ProduceCounts

Level = Literal["down", "unknown", "risk", "warn", "ok"]
Motion = Literal["moving", "back", "frozen", "still", "unknown"]
BrokerStatus = Literal["up", "mute", "fenced", "paused", "down", "gone", "unknown"]
FaultState = Literal["before", "injecting", "unproved", "active", "healing", "healed"]
# from worst to best
LEVELS: tuple[Level, ...] = ("down", "unknown", "risk", "warn", "ok")


@dataclass(frozen=True)
class BrokerSummary:
    """State of one broker.

    Attributes:
        id: broker id.
        rack: its rack; empty if it has none.
        state: ``up``; ``mute``: listed in the metadata, but does not respond to clients; ``fenced``: its process runs,
            but it is not listed; ``gone``: not listed, and its process is unknown (fenced or dead); ``paused`` or
            ``down``: its process is.
        leads: number of partitions that it leads according to the metadata.
        messages_in_per_s: records appended per second.
        rack_check_failures: count of RackCheckFailureRate since the broker's start, and its increase per second.
        under_min_rack_isr: number of led partitions whose ISR spans too few racks.
        at_min_rack_isr: number of led partitions whose ISR spans exactly as many racks as required.
        under_replicated: number of led partitions with replicas out of sync.
        produce_errors_per_s: by Kafka's error code, without those that are 0.
    """

    id: int
    rack: str | None
    state: BrokerStatus
    leads: int | None
    messages_in_per_s: float | None = None
    rack_check_failures: int | None = None
    rack_check_failures_per_s: float | None = None
    under_min_rack_isr: int | None = None
    at_min_rack_isr: int | None = None
    under_replicated: int | None = None
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OutcomeRates:
    """Produce attempts per second as seen by clients.

    Attributes:
        ok_per_s: acknowledged.
        refused_per_s: refused for certain.
        unknown_per_s: neither.
        whole_topic: whether attempts of unknown partition are included, which count for the whole topic: clients do not
            know the partition of a refused record.
    """

    ok_per_s: float
    refused_per_s: float
    unknown_per_s: float
    whole_topic: bool = False


@dataclass(frozen=True)
class Watermark:
    """Motion of a high watermark.

    Attributes:
        motion: ``moving``, ``back``; ``frozen``: it stays behind the log end, or the ISR is too small; ``still``: there
            is nothing to commit.
        per_s: offsets per second between the two latest responses.
        still_s: seconds since it last moved.
        offset: the latest known high watermark.
        requested_ns: time of the request that returned it.
        moved_ns: time of the first request that returned this value.
    """

    motion: Motion = "unknown"
    per_s: float | None = None
    still_s: float | None = None
    offset: int | None = None
    requested_ns: int = 0
    moved_ns: int = 0


@dataclass(frozen=True)
class PartitionSummary:
    """State of one partition.

    Attributes:
        observed: the latest observation.
        isr_racks: number of racks in the ISR; brokers without a rack count for none.
        leader_isr_racks: the same according to the leader's own metric.
        min_racks: effective R, 1 if it is not in force; None also if the brokers do not support it.
        min_replicas: effective M.
        watermark: motion of the high watermark.
        log_end: log end offset of the leader.
        produce: outcomes seen by clients; None without a history.
        failed_produce_per_s: failed produce requests of its topic on all brokers, by their metrics.
        short_observations: number of successive observations with too small an ISR.
        mismatches: number of successive observations in which leader and metadata differed in the racks of the ISR.
        level: severity.
        verdict: reason of this level, in a few words.
    """

    observed: PartitionObservation
    isr_racks: int | None
    leader_isr_racks: int | None
    min_racks: int | None
    min_replicas: int | None
    watermark: Watermark
    log_end: int | None
    produce: OutcomeRates | None
    failed_produce_per_s: float | None
    short_observations: int
    mismatches: int
    level: Level = "unknown"
    verdict: str = ""


@dataclass(frozen=True)
class FaultDisplay:
    """Fault that is active, or was healed a few seconds ago.

    Attributes:
        op: kind of the fault, such as ``kill-rack``.
        rack: rack of the fault.
        target: target in the rack, or empty.
        state: ``active`` once its probes have proved it, ``unproved`` if they failed to.
        for_s: seconds since it was injected; for a healed fault, since it was healed.
    """

    op: str
    rack: str
    target: str
    state: FaultState
    for_s: float


@dataclass(frozen=True)
class GateTotals:
    """Gate metrics summed over all brokers that responded.

    Attributes:
        brokers_known: number of brokers whose metrics are known.
        rack_check_failures_per_s: RackCheckFailureRate.
        under_min_rack_isr: UnderMinRackIsrPartitionCount.
        at_min_rack_isr: AtMinRackIsrPartitionCount.
        under_min_isr: UnderMinIsrPartitionCount.
        under_replicated: UnderReplicatedPartitions.
        offline: OfflinePartitionsCount of the active controller.
        produce_errors_per_s: by Kafka's error code, without those that are 0.
    """

    brokers_known: int
    rack_check_failures_per_s: float | None
    under_min_rack_isr: int | None
    at_min_rack_isr: int | None
    under_min_isr: int | None
    under_replicated: int | None
    offline: int | None
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PreviousCounters:
    """Responses before the latest ones, from which rates are computed.

    These are not always those of the previous observation, which may have the same responses as the current one:
    responses do not arrive at the pace of observations.

    Attributes:
        metrics: by node id.
        produced: counts of the history.
        produced_ns: time up to which the history was read.
    """

    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)
    produced: Mapping[tuple[str, int], ProduceCounts] | None = None
    produced_ns: int = 0


@dataclass(frozen=True)
class Snapshot:
    """State of a cluster at one moment, as it is shown.

    Attributes:
        observation: the observation that it was derived from.
        interval_s: seconds since the previous observation; None for the first.
        racks: sorted rack names; the empty name stands for brokers without a rack.
        brokers: by rack and id.
        partitions: worst first.
        faults: current and just healed faults.
        gate: gate metrics.
        earlier: earlier responses, from which rates were computed.
    """

    observation: Observation
    interval_s: float | None
    racks: tuple[str, ...]
    brokers: tuple[BrokerSummary, ...]
    partitions: tuple[PartitionSummary, ...]
    faults: tuple[FaultDisplay, ...]
    gate: GateTotals
    earlier: PreviousCounters

    def count(self, level: Level) -> int:
        """Return the number of partitions of a level."""
        return sum(partition.level == level for partition in self.partitions)
