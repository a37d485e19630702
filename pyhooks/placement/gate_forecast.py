"""What the gate says of each partition: now, after a loss, and in the worst shrink of the ISR. Pure functions.

The gate is ``pyhooks.kafka.gate`` (kip/KIP-1290.md). Here is what it does not decide:

- R above 1 is in force only while min.insync.racks.version and eligible.leader.replicas.version are at level 1.
- A partition without a leader takes nothing.

A loss is looked at the moment after it: who is lost has left the ISR, nobody has joined it. So a replica that is not in
sync does not count, nor does one that is only eligible to lead: while there is such a one the ISR is short of M or R.
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
    """A registered broker.

    Attributes:
        broker_id: its id.
        rack: value of ``broker.rack``, ``NO_RACK`` if it has none.
        fenced: the controller does not hear of it, so it leads nothing.
        address: ``host:port`` of the listener that clients use.
    """

    broker_id: int
    rack: str
    fenced: bool = False
    address: str = ""

    def __post_init__(self) -> None:
        """Treat a blank rack as none, as the gate does."""
        if not self.rack.strip():
            object.__setattr__(self, "rack", NO_RACK)


@dataclass(frozen=True)
class Setting:
    """A configuration value and where it comes from.

    Attributes:
        value: as configured, not capped.
        source: ``topic``, ``cluster``, ``broker`` (set for one broker), ``file`` (its properties), ``default``.
    """

    value: int
    source: str


@dataclass(frozen=True)
class Need:
    """What a broker says that a topic asks of its ISR.

    Attributes:
        replicas: ``min.insync.replicas``.
        racks: ``min.insync.racks``; None if the broker does not know this config.
        observed: ``min.insync.racks.observe``, which is never enforced; None if it is not set.
    """

    replicas: Setting
    racks: Setting | None
    observed: Setting | None = None

    @property
    def min_racks(self) -> int:
        """R as configured; 1 where nobody knows of it."""
        return 1 if self.racks is None else self.racks.value


@dataclass(frozen=True)
class Partition:
    """A partition as the cluster tells it.

    Attributes:
        topic: name of its topic.
        number: its number.
        leader: broker id, or -1.
        replicas: broker ids in the order of the assignment.
        isr: broker ids.
        elr: ids of the eligible leader replicas.
        adding: replicas that a reassignment adds.
        removing: replicas that a reassignment takes away.
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
        """The replicas when a reassignment that is under way has ended."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True)
class Topic:
    """A topic.

    Attributes:
        name: its name.
        internal: it is one of Kafka's own.
        partitions: sorted by number.
        need: what it asks; of several answers the one with the highest R; None if no broker told.
        by_broker: what each broker says, where it was asked; the leader's word is what is done.
        unanswered: why its partitions are not known, or empty.
    """

    name: str
    internal: bool
    partitions: tuple[Partition, ...]
    need: Need | None
    by_broker: Mapping[int, Need] = field(default_factory=dict)
    unanswered: str = ""

    def need_of(self, partition: Partition) -> Need | None:
        """What the leader of a partition goes by; the topic's need if it has none or did not tell."""
        return self.by_broker.get(partition.leader, self.need)


@dataclass(frozen=True)
class Cluster:
    """All that was seen of a cluster.

    Attributes:
        cluster_id: as Kafka tells it.
        brokers: by id, fenced ones included where the cluster tells of them.
        topics: sorted by name.
        enforced: an R above 1 is in force.
        voters: ids of the controllers that vote; None if not told.
        unanswered: why no broker answered a question about the cluster, by what was asked: ``quorum`` for the voters,
            ``reassignments`` for those under way.
    """

    cluster_id: str
    brokers: Mapping[int, Broker]
    topics: tuple[Topic, ...]
    enforced: bool
    voters: tuple[int, ...] | None = None
    unanswered: Mapping[str, str] = field(default_factory=dict)

    @property
    def racks(self) -> Mapping[int, str]:
        """Rack of each broker, by id."""
        return {broker.broker_id: broker.rack for broker in self.brokers.values()}


@dataclass(frozen=True)
class Losses:
    """What, if it went away alone, would leave an ISR that the gate refuses.

    Attributes:
        brokers: ids, sorted.
        racks: names, sorted.
    """

    brokers: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """What the gate says of one partition.

    Attributes:
        partition: of which.
        now: what the gate says of the ISR by what is in force, as its leader goes by it.
        racks: racks of the placement, sorted; of a reassignment's result if one is under way.
        writable: it takes records with acks=all now.
        stopped_by: losses that would end that, given the ISR of now; none if it is not writable.
        stopped_when_whole: losses that would end it even if all replicas of the placement were in sync.
        lone_racks: racks with enough replicas of the placement to acknowledge alone, once the others have left the ISR.
            ``NO_RACK`` stands for the brokers without a rack, which may all be in the same one.
        reachable: the placement has at least ``min(R, replicas)`` racks, whether R is in force or not.
        strangers: replicas on brokers that the cluster does not know.
    """

    partition: Partition
    now: gate.Answer
    racks: tuple[str, ...]
    writable: bool
    stopped_by: Losses
    stopped_when_whole: Losses
    lone_racks: tuple[str, ...]
    reachable: bool
    strangers: tuple[int, ...]

    @property
    def isr_racks(self) -> tuple[str, ...]:
        """Racks of the ISR, sorted."""
        return tuple(sorted(self.now.racks))

    @property
    def lone_now(self) -> bool:
        """All that acknowledge now are in one rack, as far as racks are known."""
        return self.writable and len(self.isr_racks) <= 1


def rack_name(rack: str) -> str:
    """A rack in text."""
    return rack or "(no rack)"


def limits_of(need: Need, replicas: int, *, enforced: bool, adding: int = 0) -> Limits:
    """What the gate asks of a partition's ISR.

    Args:
        need: of its topic.
        replicas: how many replicas it has now.
        enforced: an R above 1 is in force.
        adding: how many of them a reassignment adds.
    """
    return gate.limits(need.replicas.value, need.min_racks if enforced else 1, replicas, adding)


def reaches(placement: Sequence[int], min_racks: int, racks: Mapping[int, str]) -> bool:
    """Whether replicas placed like this, all in sync, are in enough racks for R, in force or not."""
    return _reaches(_places(placement, racks), min_racks)


def stopped_by(isr: Iterable[int], limits: Limits, racks: Mapping[int, str]) -> Losses:
    """Which brokers and named racks an ISR that passes the gate can't lose; nothing if it does not pass now."""
    return _losses(isr, _places(isr, racks), limits)


def lone_racks(placement: Sequence[int], limits: Limits, racks: Mapping[int, str]) -> tuple[str, ...]:
    """Racks in which an ISR could come to stand alone that the gate would still let through."""
    return _lone_racks(_places(placement, racks), limits)


# What the gate answers depends on the racks of the brokers alone. A cluster has many placements and few combinations
# of racks, so these are computed once each. Brokers are numbered by their position; None: the cluster does not know it.
Places = tuple[str | None, ...]


def _places(brokers: Iterable[int], racks: Mapping[int, str]) -> Places:
    return tuple(map(racks.get, sorted(set(brokers))))


def _known(places: Places) -> dict[int, str]:
    return {position: rack for position, rack in enumerate(places) if rack is not None}


@lru_cache(maxsize=16384)
def _answer(places: Places, limits: Limits) -> gate.Answer:
    return limits.ask(range(len(places)), _known(places))


@lru_cache(maxsize=16384)
def _reaches(places: Places, min_racks: int) -> bool:
    return _answer(places, gate.limits(1, min_racks, len(places))).enough_racks


def _losses(brokers: Iterable[int], places: Places, limits: Limits) -> Losses:
    lost = _stopped_by(places, limits)
    if not lost.brokers:
        return lost
    members = sorted(set(brokers))
    return Losses(tuple(members[position] for position in lost.brokers), lost.racks)


@lru_cache(maxsize=16384)
def _racks(places: Places) -> tuple[str, ...]:
    return tuple(sorted(gate.racks_of(range(len(places)), _known(places))))


@lru_cache(maxsize=16384)
def _stopped_by(places: Places, limits: Limits) -> Losses:
    """The same as ``stopped_by``, with positions as brokers."""
    members, racks = frozenset(range(len(places))), _known(places)
    if not limits.ask(members, racks).passes:
        return Losses()
    in_rack = _by_rack(members, racks)
    return Losses(
        brokers=tuple(one for one in sorted(members) if not limits.ask(members - {one}, racks).passes),
        racks=tuple(
            rack
            for rack, lost in sorted(in_rack.items())
            if rack != NO_RACK and not limits.ask(members - lost, racks).passes
        ),
    )


@lru_cache(maxsize=16384)
def _lone_racks(places: Places, limits: Limits) -> tuple[str, ...]:
    racks = _known(places)
    return tuple(rack for rack, members in sorted(_by_rack(racks, racks).items()) if limits.ask(members, racks).passes)


def _by_rack(brokers: Iterable[int], racks: Mapping[int, str]) -> dict[str, frozenset[int]]:
    """Brokers by rack, those without one under ``NO_RACK``; those that the cluster does not know are left out."""
    found: dict[str, set[int]] = {}
    for broker in brokers:
        if broker in racks:
            found.setdefault(racks[broker] if racks[broker].strip() else NO_RACK, set()).add(broker)
    return {rack: frozenset(members) for rack, members in found.items()}


def state_of(partition: Partition, need: Need, asked: int, cluster: Cluster, racks: Mapping[int, str]) -> State:
    """What the gate says of a partition.

    Args:
        partition: which.
        need: what its leader goes by.
        asked: the R of its topic, which a leader may not know.
        cluster: where it is.
        racks: ``cluster.racks``, made once for many partitions.
    """
    adding = len(partition.adding)
    limits = limits_of(need, len(partition.replicas), enforced=cluster.enforced, adding=adding)
    target = partition.target
    # a reassignment under way is judged by what it ends in, and the cap with it
    ended = not adding and target == partition.replicas
    whole = limits if ended else limits_of(need, len(target), enforced=cluster.enforced)
    isr_places, places = _places(partition.isr, racks), _places(target, racks)
    now = _answer(isr_places, limits)
    writable = partition.leader >= 0 and now.passes
    return State(
        partition=partition,
        now=now,
        racks=_racks(places),
        writable=writable,
        stopped_by=_losses(partition.isr, isr_places, limits) if writable else Losses(),
        stopped_when_whole=_losses(target, places, whole),
        lone_racks=_lone_racks(places, whole),
        reachable=_reaches(places, asked),
        strangers=tuple(replica for replica in target if replica not in racks),
    )


def states_of(topic: Topic, cluster: Cluster, racks: Mapping[int, str]) -> tuple[State, ...]:
    """What the gate says of the partitions of a topic; of none where nobody told what it asks."""
    states = []
    for partition in topic.partitions:
        need = topic.need_of(partition)
        if need is not None and topic.need is not None:
            states.append(state_of(partition, need, topic.need.min_racks, cluster, racks))
    return tuple(states)


@dataclass(frozen=True)
class Room:
    """How many brokers each named rack has: what a placement could be, at best.

    Attributes:
        sizes: brokers of each rack, fenced ones too since they come back, largest first.
        without: there are brokers without a rack, too.
    """

    sizes: tuple[int, ...]
    without: bool = False

    @staticmethod
    def of(cluster: Cluster) -> Room:
        """The room of a cluster."""
        counted = Counter(broker.rack for broker in cluster.brokers.values() if broker.rack != NO_RACK)
        without = any(broker.rack == NO_RACK for broker in cluster.brokers.values())
        return Room(tuple(sorted(counted.values(), reverse=True)), without)

    def survives_a_rack(self, replicas: int, limits: Limits) -> bool:
        """Whether some placement, all in sync, would stay writable whichever rack is lost."""
        return _survives(self.sizes, replicas, limits, whole_racks=True)

    def survives_a_broker(self, replicas: int, limits: Limits) -> bool:
        """Whether some placement, all in sync, would stay writable whichever broker is lost."""
        return _survives(self.sizes, replicas, limits, whole_racks=False)


@lru_cache(maxsize=1024)
def _survives(sizes: tuple[int, ...], replicas: int, limits: Limits, *, whole_racks: bool) -> bool:
    """Whether the most even placement has enough left after each loss of a rack, or of a broker."""
    places = [str(rack) for rack, number in enumerate(_even(sizes, replicas)) for _ in range(number)]
    racks = dict(enumerate(places))
    losses = stopped_by(racks, limits, racks)
    # one rack has nothing left when it is lost; and where there is not enough room there is no placement at all
    return limits.ask(racks, racks).passes and not (losses.racks if whole_racks else losses.brokers)


@lru_cache(maxsize=256)
def _even(sizes: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """Replicas of each rack used when they are spread as evenly as there is room; empty if there is not enough.

    No placement uses more racks, has a smaller share in its largest or a larger one in its smallest of as many.
    """
    if sum(sizes) < replicas:
        return ()
    spread = [0] * len(sizes)
    for _ in range(replicas):
        fewest = min((i for i in range(len(sizes)) if spread[i] < sizes[i]), key=lambda i: spread[i])
        spread[fewest] += 1
    return tuple(number for number in spread if number)
