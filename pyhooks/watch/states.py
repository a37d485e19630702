"""What is shown of a cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyhooks.watch.observation import BrokerMetrics, Observation, PartitionSeen, Produced
from pyhooks.watch.partition_status import Level, Motion

State = Literal["up", "mute", "fenced", "paused", "down", "gone", "unknown"]
FaultState = Literal["before", "injecting", "unproved", "active", "healing", "healed"]
# The worst first.
LEVELS: tuple[Level, ...] = ("down", "unknown", "risk", "warn", "ok")


@dataclass(frozen=True)
class BrokerState:
    """One broker.

    Attributes:
        broker: its id.
        rack: its rack, empty without one, None if not known.
        state: ``up``; ``mute``: listed, but does not answer clients; ``fenced``: runs, but is not listed;
            ``gone``: not listed, fenced or dead; ``paused``, ``down``: its process is.
        leads: partitions that it leads by the metadata.
        messages_in_per_s: records appended.
        rack_failures: RackCheckFailureRate's count since its start.
        rack_failures_per_s: how fast it grows.
        under_min_racks: partitions that it leads and refuses for their racks.
        at_min_racks: partitions that it leads with no rack to spare.
        under_replicated: partitions that it leads with replicas out of sync.
        produce_errors_per_s: by Kafka's error code, without those that are 0.
    """

    broker: int
    rack: str | None
    state: State
    leads: int | None
    messages_in_per_s: float | None = None
    rack_failures: int | None = None
    rack_failures_per_s: float | None = None
    under_min_racks: int | None = None
    at_min_racks: int | None = None
    under_replicated: int | None = None
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcomes:
    """Produce attempts per second as clients see them.

    Attributes:
        ok_per_s: acknowledged.
        refused_per_s: surely refused.
        unknown_per_s: neither.
        whole_topic: they are the topic's: a refusal does not tell its partition.
    """

    ok_per_s: float
    refused_per_s: float
    unknown_per_s: float
    whole_topic: bool = False


@dataclass(frozen=True)
class PartitionState:
    """One partition.

    Attributes:
        seen: as observed.
        isr_racks: racks in the ISR; brokers without a rack count for none.
        min_racks: effective R, 1 where it is not in force; None if not known or not to be had.
        min_replicas: effective M.
        short_looks: at how many observations in a row the ISR was too small.
        odd_looks: at how many in a row the leader counted other racks in the ISR than the metadata.
        motion: of the high watermark: ``moving``, ``back``; ``frozen``: it stays behind the log's end, or writes are
            refused; ``still``: nothing is there to commit.
        hw_per_s: offsets per second between the two latest answers.
        still_s: for how long it has not moved.
        last_hw: the latest that is known.
        last_asked_ns: when that was asked.
        moved_ns: when it was first seen there.
        log_end: the leader's.
        leader_racks: racks in the ISR as the leader's own metric counts them.
        outcomes: of clients, or None without a history.
        failed_per_s: failed produce requests of its topic on all brokers, by their metrics.
        level: how bad it is.
        verdict: the same in words.
    """

    seen: PartitionSeen
    isr_racks: int | None
    min_racks: int | None
    min_replicas: int | None
    short_looks: int
    odd_looks: int
    motion: Motion
    hw_per_s: float | None
    still_s: float | None
    last_hw: int | None
    last_asked_ns: int
    moved_ns: int
    log_end: int | None
    leader_racks: int | None
    outcomes: Outcomes | None
    failed_per_s: float | None
    level: Level
    verdict: str


@dataclass(frozen=True)
class Fault:
    """A fault that is on, or was a moment ago.

    Attributes:
        op: such as ``kill-rack``.
        rack: where.
        target: what in it, or empty.
        state: ``active`` once its probes have said that it took hold, ``unproved`` if they say otherwise.
        for_s: since it was injected; of a healed one, since it was healed.
    """

    op: str
    rack: str
    target: str
    state: FaultState
    for_s: float


@dataclass(frozen=True)
class Gate:
    """The gate's metrics over all brokers that answered.

    Attributes:
        nodes_known: how many brokers' metrics are known.
        rack_failures_per_s: RackCheckFailureRate.
        under_min_racks: UnderMinRackIsrPartitionCount.
        at_min_racks: AtMinRackIsrPartitionCount.
        under_min_replicas: UnderMinIsrPartitionCount.
        under_replicated: UnderReplicatedPartitions.
        offline: OfflinePartitionsCount of the active controller.
        produce_errors_per_s: by Kafka's error code, without those that are 0.
    """

    nodes_known: int
    rack_failures_per_s: float | None
    under_min_racks: int | None
    at_min_racks: int | None
    under_min_replicas: int | None
    under_replicated: int | None
    offline: int | None
    produce_errors_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """The answers before the latest ones, to which rates refer.

    Not simply those of the observation before: it may hold the same answers, since they come at a pace of their own.

    Attributes:
        metrics: by node id.
        produced: counts of the history.
        produced_ns: up to when it was read.
    """

    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)
    produced: Mapping[tuple[str, int], Produced] | None = None
    produced_ns: int = 0


@dataclass(frozen=True)
class Snapshot:
    """What is shown of one moment.

    Attributes:
        observation: what it was made from.
        interval_s: since the observation before, or None for a first one.
        racks: names in order; empty for brokers without one.
        brokers: by id.
        partitions: the worst first.
        faults: now.
        gate: metrics.
        earlier: what rates refer to.
    """

    observation: Observation
    interval_s: float | None
    racks: tuple[str, ...]
    brokers: tuple[BrokerState, ...]
    partitions: tuple[PartitionState, ...]
    faults: tuple[Fault, ...]
    gate: Gate
    earlier: Earlier

    def count(self, level: Level) -> int:
        """How many partitions are as bad as ``level``."""
        return sum(partition.level == level for partition in self.partitions)
