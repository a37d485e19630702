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
    """Registered broker.

    Attributes:
        broker_id: its id.
        rack: value of ``broker.rack``, ``NO_RACK`` if it has none.
        fenced: whether the controller has fenced it; a fenced broker leads no partition.
        address: ``host:port`` of the client listener.
    """

    broker_id: int
    rack: str
    fenced: bool = False
    address: str = ""

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
    """Requirements of a topic for its ISR, as one broker reports them.

    Attributes:
        replicas: ``min.insync.replicas``.
        racks: ``min.insync.racks``; None if the broker does not know this config.
        observed: ``min.insync.racks.observe``, which is never enforced; None if it is not set.
    """

    replicas: ConfigValue
    racks: ConfigValue | None
    observed: ConfigValue | None = None

    @property
    def min_racks(self) -> int:
        """Configured R; 1 if the broker does not know the config."""
        return 1 if self.racks is None else self.racks.value


@dataclass(frozen=True)
class ReportedPartition:
    """Partition as the cluster reports it.

    Attributes:
        topic: name of its topic.
        number: its number.
        leader: broker id, or -1.
        replicas: broker ids in the order of the assignment.
        isr: broker ids of the in-sync replicas.
        elr: broker ids of the eligible leader replicas.
        adding: replicas that a reassignment adds.
        removing: replicas that a reassignment removes.
    """

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the end of the current reassignment, if there is one."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True)
class CheckedTopic:
    """Topic with its partitions and requirements.

    Attributes:
        name: its name.
        internal: whether it is one of Kafka's internal topics.
        partitions: sorted by number.
        requirements: its requirements; if brokers differ, those with the highest R; None if no broker reported them.
        by_broker: requirements reported by each broker; the leader's are those in force.
        unanswered: reason why its partitions are unknown, or empty.
    """

    name: str
    internal: bool
    partitions: tuple[ReportedPartition, ...]
    requirements: IsrRequirements | None
    by_broker: Mapping[int, IsrRequirements] = field(default_factory=dict)
    unanswered: str = ""

    def requirements_of(self, partition: ReportedPartition) -> IsrRequirements | None:
        """Return the requirements known to a partition's leader; the topic's if there is no leader or no report."""
        return self.by_broker.get(partition.leader, self.requirements)


@dataclass(frozen=True)
class ClusterSnapshot:
    """Observed state of a cluster.

    Attributes:
        cluster_id: Kafka's cluster id.
        brokers: by id, including fenced ones if the cluster reports them.
        topics: sorted by name.
        enforced: whether an R above 1 is in force.
        voters: ids of the voting controllers; None if the cluster did not report them.
        unanswered: reasons why no broker answered a request: under ``quorum`` for the voters, under ``reassignments``
            for the current reassignments.
    """

    cluster_id: str
    brokers: Mapping[int, Broker]
    topics: tuple[CheckedTopic, ...]
    enforced: bool
    voters: tuple[int, ...] | None = None
    unanswered: Mapping[str, str] = field(default_factory=dict)

    @property
    def racks(self) -> Mapping[int, str]:
        """Rack of each broker, by id."""
        return {broker.broker_id: broker.rack for broker in self.brokers.values()}


@dataclass(frozen=True)
class StoppingLosses:
    """Single brokers and racks, sorted, after whose loss the gate refuses the remaining ISR."""

    brokers: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartitionForecast:
    """Gate's decisions for one partition. Its placement is that after the current reassignment, if there is one.

    Attributes:
        partition: the partition.
        decision: decision for the current ISR with the requirements that its leader enforces.
        racks: racks of the placement, sorted.
        writable: whether it accepts writes with acks=all now.
        stopped_by: losses that would stop these writes with the current ISR; empty if it is not writable.
        stopped_when_whole: losses that would stop them even if all replicas of the placement were in sync.
        lone_racks: racks with enough replicas of the placement to acknowledge alone after all others left the ISR.
            ``NO_RACK`` stands for the brokers without a rack, which may all be in the same rack.
        reachable: whether the placement has at least ``min(R, replicas)`` racks, even if R is not in force.
        unknown_brokers: replicas on brokers that the cluster does not know.
    """

    partition: ReportedPartition
    decision: gate.GateDecision
    racks: tuple[str, ...]
    writable: bool
    stopped_by: StoppingLosses
    stopped_when_whole: StoppingLosses
    lone_racks: tuple[str, ...]
    reachable: bool
    unknown_brokers: tuple[int, ...]

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

    Args:
        requirements: requirements of its topic.
        replicas: its current number of replicas.
        enforced: whether an R above 1 is in force.
        adding: how many of them a reassignment adds.
    """
    return gate.limits(requirements.replicas.value, requirements.min_racks if enforced else 1, replicas, adding)


def reaches(placement: Sequence[int], min_racks: int, racks: Mapping[int, str]) -> bool:
    """Return whether a placement has enough racks for R, even if R is not in force."""
    return _reaches(_places(placement, racks), min_racks)


def stopped_by(isr: Iterable[int], limits: Limits, racks: Mapping[int, str]) -> StoppingLosses:
    """Return the brokers and named racks that an ISR can't lose; empty if it does not pass the gate now."""
    return _losses(isr, _places(isr, racks), limits)


def lone_racks(placement: Sequence[int], limits: Limits, racks: Mapping[int, str]) -> tuple[str, ...]:
    """Return the racks with enough replicas to pass the gate after all others left the ISR."""
    return _lone_racks(_places(placement, racks), limits)


# The gate's decision depends only on the brokers' racks. A cluster has many placements but few combinations of racks,
# so decisions are cached by racks. Brokers are numbered by position; None is a broker that the cluster does not know.
Places = tuple[str | None, ...]


def _places(brokers: Iterable[int], racks: Mapping[int, str]) -> Places:
    return tuple(map(racks.get, sorted(set(brokers))))


def _known(places: Places) -> dict[int, str]:
    return {position: rack for position, rack in enumerate(places) if rack is not None}


@lru_cache(maxsize=16384)
def _decision(places: Places, limits: Limits) -> gate.GateDecision:
    return limits.decide(range(len(places)), _known(places))


@lru_cache(maxsize=16384)
def _reaches(places: Places, min_racks: int) -> bool:
    return _decision(places, gate.limits(1, min_racks, len(places))).enough_racks


def _losses(brokers: Iterable[int], places: Places, limits: Limits) -> StoppingLosses:
    lost = _stopped_by(places, limits)
    if not lost.brokers:
        return lost
    members = sorted(set(brokers))
    return StoppingLosses(tuple(members[position] for position in lost.brokers), lost.racks)


@lru_cache(maxsize=16384)
def _racks(places: Places) -> tuple[str, ...]:
    return tuple(sorted(gate.racks_of(range(len(places)), _known(places))))


@lru_cache(maxsize=16384)
def _stopped_by(places: Places, limits: Limits) -> StoppingLosses:
    """Return the result of ``stopped_by`` with positions as brokers."""
    members, racks = frozenset(range(len(places))), _known(places)
    if not limits.decide(members, racks).passes:
        return StoppingLosses()
    in_rack = _by_rack(members, racks)
    return StoppingLosses(
        brokers=tuple(one for one in sorted(members) if not limits.decide(members - {one}, racks).passes),
        racks=tuple(
            rack
            for rack, lost in sorted(in_rack.items())
            if rack != NO_RACK and not limits.decide(members - lost, racks).passes
        ),
    )


@lru_cache(maxsize=16384)
def _lone_racks(places: Places, limits: Limits) -> tuple[str, ...]:
    racks = _known(places)
    return tuple(
        rack for rack, members in sorted(_by_rack(racks, racks).items()) if limits.decide(members, racks).passes
    )


def _by_rack(brokers: Iterable[int], racks: Mapping[int, str]) -> dict[str, frozenset[int]]:
    """Group brokers by rack; brokers without a rack are under ``NO_RACK``, and unknown brokers are left out."""
    found: dict[str, set[int]] = {}
    for broker in brokers:
        if broker in racks:
            found.setdefault(racks[broker] if racks[broker].strip() else NO_RACK, set()).add(broker)
    return {rack: frozenset(members) for rack, members in found.items()}


def forecast_partition(
    partition: ReportedPartition,
    requirements: IsrRequirements,
    required_racks: int,
    cluster: ClusterSnapshot,
    racks: Mapping[int, str],
) -> PartitionForecast:
    """Return the gate's decisions for a partition.

    Args:
        partition: the partition.
        requirements: requirements that its leader knows.
        required_racks: R of its topic, which the leader may not know.
        cluster: its cluster.
        racks: ``cluster.racks``, computed once for many partitions.
    """
    adding = len(partition.adding)
    limits = limits_of(requirements, len(partition.replicas), enforced=cluster.enforced, adding=adding)
    target = partition.target
    # during a reassignment, the placement and the cap are those after its end
    settled = not adding and target == partition.replicas
    target_limits = limits if settled else limits_of(requirements, len(target), enforced=cluster.enforced)
    isr_places, places = _places(partition.isr, racks), _places(target, racks)
    decision = _decision(isr_places, limits)
    writable = partition.leader >= 0 and decision.passes
    return PartitionForecast(
        partition=partition,
        decision=decision,
        racks=_racks(places),
        writable=writable,
        stopped_by=_losses(partition.isr, isr_places, limits) if writable else StoppingLosses(),
        stopped_when_whole=_losses(target, places, target_limits),
        lone_racks=_lone_racks(places, target_limits),
        reachable=_reaches(places, required_racks),
        unknown_brokers=tuple(replica for replica in target if replica not in racks),
    )


def forecast_topic(
    topic: CheckedTopic, cluster: ClusterSnapshot, racks: Mapping[int, str]
) -> tuple[PartitionForecast, ...]:
    """Return the gate's decisions for the partitions of a topic; empty if no broker reported its requirements."""
    states = []
    for partition in topic.partitions:
        requirements = topic.requirements_of(partition)
        if requirements is not None and topic.requirements is not None:
            states.append(forecast_partition(partition, requirements, topic.requirements.min_racks, cluster, racks))
    return tuple(states)


@dataclass(frozen=True)
class RackSizes:
    """Number of brokers in each named rack, which limits possible placements.

    Racks are sorted by size, largest first. Fenced brokers count because they are expected to return.
    """

    sizes: tuple[int, ...]
    without: bool = False  # there are also brokers without a rack

    @staticmethod
    def of(cluster: ClusterSnapshot) -> RackSizes:
        """Count the brokers of a cluster by rack."""
        counted = Counter(broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK)
        without = any(broker.rack == NO_RACK for broker in cluster.brokers.values())
        return RackSizes(tuple(sorted(counted.values(), reverse=True)), without)

    def survives_a_rack(self, replicas: int, limits: Limits) -> bool:
        """Return whether some placement with all replicas in sync stays writable after the loss of any one rack."""
        return _survives(self.sizes, replicas, limits, whole_racks=True)

    def survives_a_broker(self, replicas: int, limits: Limits) -> bool:
        """Return whether some placement with all replicas in sync stays writable after the loss of any one broker."""
        return _survives(self.sizes, replicas, limits, whole_racks=False)


@lru_cache(maxsize=1024)
def _survives(sizes: tuple[int, ...], replicas: int, limits: Limits, *, whole_racks: bool) -> bool:
    """Return whether the most even placement stays writable after each loss of one rack, or of one broker."""
    places = [str(rack) for rack, number in enumerate(_even(sizes, replicas)) for _ in range(number)]
    racks = dict(enumerate(places))
    losses = stopped_by(racks, limits, racks)
    # with too few brokers the placement is empty, and an empty ISR never passes
    return limits.decide(racks, racks).passes and not (losses.racks if whole_racks else losses.brokers)


@lru_cache(maxsize=256)
def _even(sizes: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """Return the counts of replicas spread over racks as evenly as possible; empty if there are too few brokers.

    No placement uses more racks or has fewer replicas in its largest rack. Among those with as many racks, none has
    more replicas in its smallest.
    """
    if sum(sizes) < replicas:
        return ()
    spread = [0] * len(sizes)
    for _ in range(replicas):
        fewest = min((i for i in range(len(sizes)) if spread[i] < sizes[i]), key=lambda i: spread[i])
        spread[fewest] += 1
    return tuple(number for number in spread if number)
