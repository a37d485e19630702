"""What was seen of a cluster at one moment; ``None`` is what could not be observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhooks.lab.running_cluster import ProcessState

# A partition whose events name none: a client that was refused knows only the topic.
ANY_PARTITION = -1


@dataclass(frozen=True)
class BrokerSeen:
    """One broker.

    Attributes:
        broker: its id.
        rack: ``broker.rack``, empty without one, None if it was never seen.
        listed: the metadata lists it, so it is registered and not fenced.
        process: of a lab's broker, seen from outside the network.
        answers: over the clients' network, just now.
    """

    broker: int
    rack: str | None
    listed: bool | None = None
    process: ProcessState | None = None
    answers: bool | None = None


@dataclass(frozen=True)
class PartitionSeen:
    """One partition.

    Attributes:
        topic: its topic.
        partition: its number.
        replicas: broker ids in the order of the assignment; the latest that is known.
        leader: broker id, -1 without a leader.
        isr: broker ids.
        high_watermark: the offset up to which consumers may read.
        asked_ns: when the high watermark was asked, monotonic.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...] | None
    high_watermark: int | None = None
    asked_ns: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Topic and number."""
        return self.topic, self.partition


@dataclass(frozen=True)
class Rules:
    """What a topic requires of its ISR, as its brokers say.

    Attributes:
        min_replicas: ``min.insync.replicas``.
        min_racks: ``min.insync.racks``, or None if the brokers don't know it.
    """

    min_replicas: int
    min_racks: int | None


@dataclass(frozen=True)
class Produced:
    """How many produce attempts ended how, since the history began.

    Attributes:
        ok: acknowledged.
        refused: surely refused.
        unknown: neither.
    """

    ok: int = 0
    refused: int = 0
    unknown: int = 0

    def __add__(self, other: Produced) -> Produced:
        return Produced(self.ok + other.ok, self.refused + other.refused, self.unknown + other.unknown)


@dataclass(frozen=True)
class BrokerMetrics:
    """What one node's MBeans say.

    Attributes:
        asked_ns: when, monotonic.
        values: of the whole node by name.
        topics: (topic, name) to value.
        partitions: (topic, partition) to values by name.
    """

    asked_ns: int
    values: Mapping[str, float]
    topics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    partitions: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class FaultSeen:
    """The latest event of one fault.

    Attributes:
        op: such as ``kill-rack``.
        rack: where.
        target: what in it, such as a broker, or empty for all of it.
        step: ``before``, ``inject``, ``proved``, ``held``, ``heal`` or ``healed``.
        proved: the step's probes gave what they should; None if the step has none.
        injected_ns: when it began, monotonic.
        step_ns: when the step was, monotonic.
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
    """All that was seen at one moment.

    Attributes:
        mono_ns: the moment, monotonic.
        wall_ms: the moment, milliseconds since the epoch.
        cluster: its name for people.
        brokers: by id.
        partitions: in any order.
        rules: by topic; a topic that is missing is not known.
        racks_enforced: an R above 1 is in force, by the finalized features; None if not known.
        metrics: by node id; a node that is missing is not known.
        produced: by topic and partition (or ``ANY_PARTITION``); None without a history.
        produced_ns: up to when the history was read, monotonic.
        faults: of the history.
        problems: what could not be observed, in words.
    """

    mono_ns: int
    wall_ms: int
    cluster: str
    brokers: tuple[BrokerSeen, ...] = ()
    partitions: tuple[PartitionSeen, ...] = ()
    rules: Mapping[str, Rules] = field(default_factory=dict)
    racks_enforced: bool | None = None
    metrics: Mapping[int, BrokerMetrics] = field(default_factory=dict)
    produced: Mapping[tuple[str, int], Produced] | None = None
    produced_ns: int = 0
    faults: tuple[FaultSeen, ...] = ()
    problems: tuple[str, ...] = ()
