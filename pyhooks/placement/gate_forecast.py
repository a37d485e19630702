"""Gate's decision for each partition: now, after a loss, and with the worst shrink of the ISR. Pure functions.

The gate is ``pyhooks.kafka.gate`` (kip/KIP-1290.md). This module adds two conditions:

- R above 1 is in force only while min.insync.racks.version and eligible.leader.replicas.version are at level 1.
- A partition without a leader accepts no writes.

A loss is evaluated right after it: the lost replicas have left the ISR, and no replica has joined. So replicas out of
sync do not count, and neither do eligible leader replicas: while there are any, the ISR has too few replicas or racks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pyhooks.kafka import gate
from pyhooks.kafka.gate import NO_RACK, Limits


@dataclass(frozen=True)
class Broker:
    """Registered broker."""

    broker_id: int
    rack: str  # value of ``broker.rack``, ``NO_RACK`` if it has none
    fenced: bool = False  # whether the controller has fenced it; a fenced broker leads no partition
    address: str = ""  # ``host:port`` of the client listener

    def __post_init__(self) -> None:
        """Treat a blank rack as no rack, as the gate does."""
        if not self.rack.strip():
            object.__setattr__(self, "rack", NO_RACK)


@dataclass(frozen=True)
class ConfigValue:
    """Configuration value, not capped, and its source."""

    value: int
    source: str  # topic, cluster, broker (set for one broker), file (its properties) or default


@dataclass(frozen=True)
class IsrRequirements:
    """Requirements of a topic for its ISR, as one broker reports them."""

    replicas: ConfigValue  # ``min.insync.replicas``
    racks: ConfigValue | None  # ``min.insync.racks``; None if the broker does not know this config
    observed: ConfigValue | None = None  # ``min.insync.racks.observe``, which is never enforced; None if it is not set

    @property
    def min_racks(self) -> int:
        """Configured R; 1 if the broker does not know the config."""
        return 1 if self.racks is None else self.racks.value


@dataclass(frozen=True)
class ReportedPartition:
    """Partition as the cluster reports it."""

    topic: str  # name of its topic
    number: int
    leader: int  # broker id, or -1
    replicas: tuple[int, ...]  # broker ids in the order of the assignment
    isr: tuple[int, ...]  # broker ids of the in-sync replicas
    elr: tuple[int, ...] = ()  # broker ids of the eligible leader replicas
    adding: tuple[int, ...] = ()  # replicas that a reassignment adds
    removing: tuple[int, ...] = ()  # replicas that a reassignment removes

    @property
    def state(self) -> tuple[object, ...]:
        """Everything but the topic, the number and which broker leads."""
        return self.leader >= 0, self.replicas, self.isr, self.elr, self.adding, self.removing

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the end of the current reassignment, if there is one."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True)
class CheckedTopic:
    """Topic with its partitions and requirements."""

    name: str
    internal: bool  # whether it is one of Kafka's internal topics
    partitions: tuple[ReportedPartition, ...]  # sorted by number
    # its requirements; if brokers differ, those with the highest R; None if no broker reported them
    requirements: IsrRequirements | None
    # requirements reported by each broker; the leader's are those in force
    by_broker: Mapping[int, IsrRequirements] = field(default_factory=dict)
    unanswered: str = ""  # reason why its partitions are unknown, or empty

    def requirements_of(self, partition: ReportedPartition) -> IsrRequirements | None:
        """Return the requirements known to a partition's leader; the topic's if there is no leader or no report."""
        return self.by_broker.get(partition.leader, self.requirements)


@dataclass(frozen=True)
class ClusterSnapshot:
    """Observed state of a cluster."""

    cluster_id: str  # Kafka's cluster id
    brokers: Mapping[int, Broker]  # by id, including fenced ones if the cluster reports them
    topics: tuple[CheckedTopic, ...]  # sorted by name
    enforced: bool  # whether an R above 1 is in force
    voters: tuple[int, ...] | None = None  # ids of the voting controllers; None if the cluster did not report them
    # reasons why no broker answered a request: under ``quorum`` for the voters, under ``reassignments`` for the current
    # reassignments
    unanswered: Mapping[str, str] = field(default_factory=dict)
    late_voters: tuple[int, ...] = ()  # voters that do not keep up with the metadata log: they may not be running

    @property
    def racks(self) -> Mapping[int, str]:
        """Rack of each broker, by id."""
        return {broker.broker_id: broker.rack for broker in self.brokers.values()}


@dataclass(frozen=True)
class StoppingLosses:
    """Single brokers and racks, sorted, after whose loss the gate rejects the remaining ISR."""

    brokers: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartitionForecast:
    """Gate's decisions for one partition. Its placement is that after the current reassignment, if there is one."""

    partition: ReportedPartition
    decision: gate.GateDecision  # decision for the current ISR with the requirements that its leader enforces
    racks: tuple[str, ...]  # racks of the placement, sorted
    writable: bool  # whether it accepts writes with acks=all now
    stopped_by: StoppingLosses  # losses that would stop these writes with the current ISR; empty if it is not writable
    stopped_when_whole: StoppingLosses  # losses that would stop them even if all replicas of the placement were in sync
    # racks with enough replicas of the placement to acknowledge alone after all others left the ISR. ``NO_RACK`` stands
    # for the brokers without a rack, which may all be in the same rack
    lone_racks: tuple[str, ...]
    reachable: bool  # whether the placement has at least ``min(R, replicas)`` racks, even if R is not in force
    unknown_brokers: tuple[int, ...]  # replicas on brokers that the cluster does not know

    @property
    def isr_racks(self) -> tuple[str, ...]:
        """Sorted racks of the current ISR."""
        return tuple(sorted(self.decision.racks))

    @property
    def lone_now(self) -> bool:
        """Whether it is writable and all known racks of its ISR are the same one."""
        return self.writable and len(self.isr_racks) <= 1


def rack_name(rack: str) -> str:
    """Return the name of a rack for text."""
    return rack or "(no rack)"


def limits_of(requirements: IsrRequirements, replicas: int, *, enforced: bool, adding: int = 0) -> Limits:
    """Return the effective M and R of a partition.

    R counts only if it is ``enforced``. A reassignment adds ``adding`` of the ``replicas``.
    """
    return gate.limits(requirements.replicas.value, requirements.min_racks if enforced else 1, replicas, adding)


def reaches(placement: Sequence[int], min_racks: int, racks: Mapping[int, str]) -> bool:
    """Return whether a placement has enough racks for R, even if R is not in force."""
    return _enough_racks(_known_racks(placement, racks), min_racks)


def stopped_by(isr: Iterable[int], limits: Limits, racks: Mapping[int, str]) -> StoppingLosses:
    """Return the brokers and named racks that an ISR can't lose; empty if it does not pass the gate now."""
    members = sorted(set(isr))
    losses = _gate_outcome(_known_racks(members, racks), limits).stopped_by
    return StoppingLosses(tuple(members[index] for index in losses.brokers), losses.racks)


# The gate's decision depends only on the brokers' racks. A cluster has many placements but few combinations of racks,
# so outcomes are cached by the racks of the brokers in ascending order; None is a broker unknown to the cluster.
RackSequence = tuple[str | None, ...]


@dataclass(frozen=True)
class _GateOutcome:
    """Gate's decision for replicas in some racks, before and after losses; brokers are indexes into the racks."""

    decision: gate.GateDecision
    stopped_by: StoppingLosses
    lone_racks: tuple[str, ...]


def _known_racks(brokers: Iterable[int], racks: Mapping[int, str]) -> RackSequence:
    return tuple(map(racks.get, sorted(set(brokers))))


def _enough_racks(racks: RackSequence, min_racks: int) -> bool:
    return _gate_outcome(racks, gate.limits(1, min_racks, len(racks))).decision.enough_racks


@lru_cache(maxsize=32768)
def _gate_outcome(racks: RackSequence, limits: Limits) -> _GateOutcome:
    members, known = frozenset(range(len(racks))), dict(enumerate(racks))
    # brokers without a rack are under ``NO_RACK``, and unknown brokers are in no rack
    by_rack: dict[str, set[int]] = {}
    for index, rack in known.items():
        if rack is not None:
            by_rack.setdefault(rack if rack.strip() else NO_RACK, set()).add(index)

    def passes(remaining: Iterable[int]) -> bool:
        return limits.decide(remaining, known).passes

    stopping = StoppingLosses()
    if passes(members):
        stopping = StoppingLosses(
            tuple(index for index in sorted(members) if not passes(members - {index})),
            tuple(rack for rack, lost in sorted(by_rack.items()) if rack != NO_RACK and not passes(members - lost)),
        )
    lone_racks = tuple(rack for rack, remaining in sorted(by_rack.items()) if passes(remaining))
    return _GateOutcome(limits.decide(members, known), stopping, lone_racks)


def forecast_partition(
    partition: ReportedPartition,
    requirements: IsrRequirements,
    required_racks: int,
    cluster: ClusterSnapshot,
    racks: Mapping[int, str],
) -> PartitionForecast:
    """Return the gate's decisions for a partition.

    ``requirements`` are those that its leader knows, ``required_racks`` is R of its topic, and ``racks`` is
    ``cluster.racks``, computed once for many partitions.
    """
    adding = len(partition.adding)
    limits = limits_of(requirements, len(partition.replicas), enforced=cluster.enforced, adding=adding)
    target = partition.target
    # during a reassignment, the placement and the cap are those after its end
    settled = not adding and target == partition.replicas
    target_limits = limits if settled else limits_of(requirements, len(target), enforced=cluster.enforced)
    isr_outcome = _gate_outcome(_known_racks(partition.isr, racks), limits)
    target_racks = _known_racks(target, racks)
    writable = partition.leader >= 0 and isr_outcome.decision.passes
    return PartitionForecast(
        partition=partition,
        decision=isr_outcome.decision,
        racks=tuple(sorted(_gate_outcome(target_racks, target_limits).decision.racks)),
        writable=writable,
        stopped_by=stopped_by(partition.isr, limits, racks) if writable else StoppingLosses(),
        stopped_when_whole=stopped_by(target, target_limits, racks),
        lone_racks=_gate_outcome(target_racks, target_limits).lone_racks,
        reachable=_enough_racks(target_racks, required_racks),
        unknown_brokers=tuple(replica for replica in target if replica not in racks),
    )


@dataclass(frozen=True)
class RackSizes:
    """Number of brokers in each named rack, which limits possible placements.

    Racks are sorted by size, largest first. Fenced brokers count because they are expected to return.
    """

    sizes: tuple[int, ...]
    has_rackless_brokers: bool = False  # there are also brokers without a rack

    @staticmethod
    def of(cluster: ClusterSnapshot) -> RackSizes:
        """Count the brokers of a cluster by rack."""
        sizes = Counter(broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK)
        without_rack = any(broker.rack == NO_RACK for broker in cluster.brokers.values())
        return RackSizes(tuple(sorted(sizes.values(), reverse=True)), without_rack)

    def survives_a_rack(self, replicas: int, limits: Limits) -> bool:
        """Return whether some placement with all replicas in sync stays writable after the loss of any one rack."""
        return _survives(self.sizes, replicas, limits, of_rack=True)

    def survives_a_broker(self, replicas: int, limits: Limits) -> bool:
        """Return whether some placement with all replicas in sync stays writable after the loss of any one broker."""
        return _survives(self.sizes, replicas, limits, of_rack=False)


@lru_cache(maxsize=1024)
def _survives(sizes: tuple[int, ...], replicas: int, limits: Limits, *, of_rack: bool) -> bool:
    """Return whether the most even placement stays writable after each loss of one rack, or of one broker."""
    replica_racks = [str(rack) for rack, count in enumerate(_even(sizes, replicas)) for _ in range(count)]
    racks = dict(enumerate(replica_racks))
    losses = stopped_by(racks, limits, racks)
    # with too few brokers the placement is empty, and an empty ISR never passes
    return limits.decide(racks, racks).passes and not (losses.racks if of_rack else losses.brokers)


@lru_cache(maxsize=256)
def _even(sizes: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """Return the counts of replicas spread over racks as evenly as possible; empty if there are too few brokers.

    No placement uses more racks or has fewer replicas in its largest rack. Among those with as many racks, none has
    more replicas in its smallest.
    """
    if sum(sizes) < replicas:
        return ()
    counts = [0] * len(sizes)
    for _ in range(replicas):
        emptiest = min((i for i in range(len(sizes)) if counts[i] < sizes[i]), key=lambda i: counts[i])
        counts[emptiest] += 1
    return tuple(count for count in counts if count)
