"""Data classes of an observation: raw values of a cluster at one moment; ``None`` means not observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhooks.lab.cluster_control import ProcessState

# Partition of events that name none: the client of a rejected record knows only its topic.
ANY_PARTITION = -1


@dataclass(frozen=True)
class BrokerObservation:
    """Observation of one broker."""

    broker: int
    rack: str | None  # ``broker.rack``; empty if it has none, None if it was never observed
    listed: bool | None = None  # whether the metadata lists it, so that it is registered and not fenced
    process: ProcessState | None = None  # process state of a lab's broker, observed without the network
    responds: bool | None = None  # whether it responds to clients


@dataclass(frozen=True)
class PartitionObservation:
    """Observation of one partition."""

    topic: str
    partition: int
    replicas: tuple[int, ...]  # broker ids in the order of the latest known assignment
    leader: int | None  # broker id, -1 without a leader
    isr: tuple[int, ...] | None  # broker ids
    high_watermark: int | None = None  # offset up to which consumers may read
    requested_ns: int = 0  # monotonic time of the request for the high watermark

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition number."""
        return self.topic, self.partition


@dataclass(frozen=True)
class TopicRequirements:
    """Requirements of a topic for its ISR, as its brokers report them."""

    min_replicas: int  # ``min.insync.replicas``
    min_racks: int | None  # ``min.insync.racks``, or None if the brokers don't know it


@dataclass(frozen=True)
class ProduceCounts:
    """Produce attempts by outcome, since the start of the history."""

    ok: int = 0  # acknowledged
    rejected: int = 0  # rejected for certain
    unknown: int = 0  # neither

    def __add__(self, other: ProduceCounts) -> ProduceCounts:
        return ProduceCounts(self.ok + other.ok, self.rejected + other.rejected, self.unknown + other.unknown)


@dataclass(frozen=True)
class BrokerMetrics:
    """MBean values of one node."""

    requested_ns: int  # monotonic time of the poll
    values: Mapping[str, float]  # values of the whole node by name
    topics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # values by name, by topic
    # values by name, by (topic, partition)
    partitions: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class FaultObservation:
    """Latest event of one fault."""

    op: str  # kind of the fault, such as ``kill-rack``
    rack: str  # rack of the fault
    target: str  # target in the rack, such as a broker, or empty for the whole rack
    step: str  # ``before``, ``inject``, ``proved``, ``held``, ``heal`` or ``healed``
    proved: bool | None  # whether the step's probes had the expected result; None if the step has none
    injected_ns: int  # monotonic time of the injection
    step_ns: int  # monotonic time of the step


@dataclass(frozen=True)
class Observation:
    """Observation of a cluster at one moment."""

    mono_ns: int  # monotonic time
    wall_ms: int  # wall-clock time, milliseconds since the epoch
    cluster: str  # display name of the cluster
    brokers: tuple[BrokerObservation, ...] = ()  # by id
    partitions: tuple[PartitionObservation, ...] = ()  # in any order
    # requirements by topic; missing topics are unknown
    requirements: Mapping[str, TopicRequirements] = field(default_factory=dict)
    racks_enforced: bool | None = None  # whether an R above 1 is in force, by the finalized features; None if unknown
    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)  # by node id; missing nodes are unknown
    # by topic and partition (or ``ANY_PARTITION``); None without a history
    produced: Mapping[tuple[str, int], ProduceCounts] | None = None
    produced_ns: int = 0  # monotonic time up to which the history was read
    faults: tuple[FaultObservation, ...] = ()  # faults of the history
    problems: tuple[str, ...] = ()  # descriptions of what could not be observed
