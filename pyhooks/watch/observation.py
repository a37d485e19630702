"""Data classes of an observation: raw values of a cluster at one moment; ``None`` means not observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhooks.lab.cluster_control import ProcessState

# Partition of events that name none: the client of a refused record knows only its topic.
ANY_PARTITION = -1


@dataclass(frozen=True)
class BrokerObservation:
    """Observation of one broker.

    Attributes:
        broker: its id.
        rack: ``broker.rack``; empty if it has none, None if it was never observed.
        listed: whether the metadata lists it, so that it is registered and not fenced.
        process: process state of a lab's broker, observed without the network.
        responds: whether it responds to clients.
    """

    broker: int
    rack: str | None
    listed: bool | None = None
    process: ProcessState | None = None
    responds: bool | None = None


@dataclass(frozen=True)
class PartitionObservation:
    """Observation of one partition.

    Attributes:
        topic: its topic.
        partition: its number.
        replicas: broker ids in the order of the latest known assignment.
        leader: broker id, -1 without a leader.
        isr: broker ids.
        high_watermark: offset up to which consumers may read.
        requested_ns: monotonic time of the request for the high watermark.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...] | None
    high_watermark: int | None = None
    requested_ns: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition number."""
        return self.topic, self.partition


@dataclass(frozen=True)
class TopicRequirements:
    """Requirements of a topic for its ISR, as its brokers report them.

    Attributes:
        min_replicas: ``min.insync.replicas``.
        min_racks: ``min.insync.racks``, or None if the brokers don't know it.
    """

    min_replicas: int
    min_racks: int | None


@dataclass(frozen=True)
class ProduceCounts:
    """Produce attempts by outcome, since the start of the history.

    Attributes:
        ok: acknowledged.
        refused: refused for certain.
        unknown: neither.
    """

    ok: int = 0
    refused: int = 0
    unknown: int = 0

    def __add__(self, other: ProduceCounts) -> ProduceCounts:
        return ProduceCounts(self.ok + other.ok, self.refused + other.refused, self.unknown + other.unknown)


@dataclass(frozen=True)
class BrokerMetrics:
    """MBean values of one node.

    Attributes:
        requested_ns: monotonic time of the poll.
        values: values of the whole node by name.
        topics: value by (topic, name).
        partitions: values by name, by (topic, partition).
    """

    requested_ns: int
    values: Mapping[str, float]
    topics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class FaultObservation:
    """Latest event of one fault.

    Attributes:
        op: kind of the fault, such as ``kill-rack``.
        rack: rack of the fault.
        target: target in the rack, such as a broker, or empty for the whole rack.
        step: ``before``, ``inject``, ``proved``, ``held``, ``heal`` or ``healed``.
        proved: whether the step's probes had the expected result; None if the step has none.
        injected_ns: monotonic time of the injection.
        step_ns: monotonic time of the step.
    """

    op: str
    rack: str
    target: str
    step: str
    proved: bool | None
    injected_ns: int
    step_ns: int


@dataclass(frozen=True)
class Observation:
    """Observation of a cluster at one moment.

    Attributes:
        mono_ns: monotonic time.
        wall_ms: wall-clock time, milliseconds since the epoch.
        cluster: display name of the cluster.
        brokers: by id.
        partitions: in any order.
        requirements: requirements by topic; missing topics are unknown.
        racks_enforced: whether an R above 1 is in force, by the finalized features; None if unknown.
        metrics: by node id; missing nodes are unknown.
        produced: by topic and partition (or ``ANY_PARTITION``); None without a history.
        produced_ns: monotonic time up to which the history was read.
        faults: faults of the history.
        problems: descriptions of what could not be observed.
    """

    mono_ns: int
    wall_ms: int
    cluster: str
    brokers: tuple[BrokerObservation, ...] = ()
    partitions: tuple[PartitionObservation, ...] = ()
    requirements: Mapping[str, TopicRequirements] = field(default_factory=dict)
    racks_enforced: bool | None = None
    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)
    produced: Mapping[tuple[str, int], ProduceCounts] | None = None
    produced_ns: int = 0
    faults: tuple[FaultObservation, ...] = ()
    problems: tuple[str, ...] = ()
