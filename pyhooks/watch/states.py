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
    """State of one broker."""

    id: int  # broker id
    rack: str | None  # its rack; empty if it has none
    # ``up``; ``mute``: listed in the metadata, but does not respond to clients; ``fenced``: its process runs, but it is
    # not listed; ``gone``: not listed, and its process is unknown (fenced or dead); ``paused`` or ``down``: its process
    # is
    state: BrokerStatus
    leads: int | None  # number of partitions that it leads according to the metadata
    messages_in_per_s: float | None = None  # records appended per second
    # count of RackCheckFailureRate since the broker's start, and its increase per second
    rack_check_failures: int | None = None
    rack_check_failures_per_s: float | None = None
    under_min_rack_isr: int | None = None  # number of led partitions whose ISR spans too few racks
    at_min_rack_isr: int | None = None  # number of led partitions whose ISR spans exactly as many racks as required
    under_replicated: int | None = None  # number of led partitions with replicas out of sync
    # by Kafka's error code, without those that are 0
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OutcomeRates:
    """Produce attempts per second as seen by clients."""

    ok_per_s: float  # acknowledged
    rejected_per_s: float  # rejected for certain
    unknown_per_s: float  # neither
    # whether attempts of unknown partition are included, which count for the whole topic: clients do not know the
    # partition of a rejected record
    whole_topic: bool = False


@dataclass(frozen=True)
class Watermark:
    """Motion of a high watermark."""

    # ``moving``, ``back``; ``frozen``: it stays behind the log end, or the ISR is too small; ``still``: there is
    # nothing to commit
    motion: Motion = "unknown"
    per_s: float | None = None  # offsets per second between the two latest responses
    still_s: float | None = None  # seconds since it last moved
    offset: int | None = None  # the latest known high watermark
    requested_ns: int = 0  # time of the request that returned it
    moved_ns: int = 0  # time of the first request that returned this value


@dataclass(frozen=True)
class PartitionSummary:
    """State of one partition."""

    observed: PartitionObservation  # the latest observation
    isr_racks: int | None  # number of racks in the ISR; brokers without a rack count for none
    leader_isr_racks: int | None  # the same according to the leader's own metric
    min_racks: int | None  # effective R, 1 if it is not in force; None also if the brokers do not support it
    min_replicas: int | None  # effective M
    watermark: Watermark  # motion of the high watermark
    log_end: int | None  # log end offset of the leader
    produce: OutcomeRates | None  # outcomes seen by clients; None without a history
    failed_produce_per_s: float | None  # failed produce requests of its topic on all brokers, by their metrics
    short_observations: int  # number of successive observations with too small an ISR
    mismatches: int  # number of successive observations in which leader and metadata differed in the racks of the ISR
    level: Level = "unknown"  # severity
    verdict: str = ""  # reason of this level, in a few words


@dataclass(frozen=True)
class FaultDisplay:
    """Fault that is active, or was healed a few seconds ago."""

    op: str  # kind of the fault, such as ``kill-rack``
    rack: str  # rack of the fault
    target: str  # target in the rack, or empty
    state: FaultState  # ``active`` once its probes have proved it, ``unproved`` if they failed to
    for_s: float  # seconds since it was injected; for a healed fault, since it was healed


@dataclass(frozen=True)
class GateTotals:
    """Gate metrics summed over all brokers that responded."""

    brokers_known: int  # number of brokers whose metrics are known
    rack_check_failures_per_s: float | None  # RackCheckFailureRate
    under_min_rack_isr: int | None  # UnderMinRackIsrPartitionCount
    at_min_rack_isr: int | None  # AtMinRackIsrPartitionCount
    under_min_isr: int | None  # UnderMinIsrPartitionCount
    under_replicated: int | None  # UnderReplicatedPartitions
    offline: int | None  # OfflinePartitionsCount of the active controller
    # by Kafka's error code, without those that are 0
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PreviousCounters:
    """Responses before the latest ones, from which rates are computed.

    These are not always those of the previous observation, which may have the same responses as the current one:
    responses do not arrive at the pace of observations.
    """

    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)  # by node id
    produced: Mapping[tuple[str, int], ProduceCounts] | None = None  # counts of the history
    produced_ns: int = 0  # time up to which the history was read


@dataclass(frozen=True)
class Snapshot:
    """State of a cluster at one moment, as it is shown."""

    observation: Observation  # the observation that it was derived from
    interval_s: float | None  # seconds since the previous observation; None for the first
    racks: tuple[str, ...]  # sorted rack names; the empty name stands for brokers without a rack
    brokers: tuple[BrokerSummary, ...]  # by rack and id
    partitions: tuple[PartitionSummary, ...]  # worst first
    faults: tuple[FaultDisplay, ...]  # current and just healed faults
    gate: GateTotals  # gate metrics
    earlier: PreviousCounters  # earlier responses, from which rates were computed

    def count(self, level: Level) -> int:
        """Return the number of partitions of a level."""
        return sum(partition.level == level for partition in self.partitions)
