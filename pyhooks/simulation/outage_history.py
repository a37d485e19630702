"""What happens to a cluster in one replication, drawn at random: outages and slow spells of its brokers.

All settings are judged on the same history. It begins ``warm_s`` before the time that counts, with everything there, so
that what counts is a random stretch of the cluster's life.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.bursts import Law
from pyhooks.simulation.failures import Faults, Spells
from pyhooks.simulation.machine_script import Code, Floats, Ints

Draw = np.random.Generator
# means of an exponential distribution after which next to nothing of it is left
_WARM_MEANS = 8.0
_LEAST_WARM_S = 3600.0


@dataclass(frozen=True)
class Cluster:
    """The brokers, numbered rack by rack.

    Attributes:
        rack: of each broker, as an index.
        racks: how many there are.
    """

    rack: Ints
    racks: int

    @staticmethod
    def of(sizes: list[int]) -> Cluster:
        """With so many brokers in each rack, numbered rack by rack."""
        return Cluster(np.repeat(np.arange(len(sizes)), sizes), len(sizes))

    @property
    def brokers(self) -> int:
        """How many."""
        return len(self.rack)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many are in each rack."""
        return tuple(np.bincount(self.rack, minlength=self.racks).tolist())

    def members(self, rack: int) -> Ints:
        """The brokers of a rack."""
        return np.flatnonzero(self.rack == rack)


@dataclass(frozen=True)
class Stretch:
    """The time of a replication.

    Attributes:
        warm_s: before what counts.
        counts_s: the length of what counts, from 0 on.
    """

    warm_s: float
    counts_s: float

    @property
    def total_s(self) -> float:
        """Both."""
        return self.warm_s + self.counts_s


def warm_up_s(faults: Faults, copy_s: float) -> float:
    """How long it takes until what was at the beginning is forgotten."""
    every = (faults.broker, faults.stop, faults.lag, faults.disk, faults.rack, faults.rack_disks)
    longest = max([one.mean_s for one in every if one.per_year > 0], default=0.0)
    return max(_LEAST_WARM_S, _WARM_MEANS * longest + copy_s)


@dataclass(frozen=True)
class Arrivals:
    """When something began that is drawn at a higher rate than it has, of each broker or rack; for rare events.

    Attributes:
        of: the broker or rack of each.
        at_s: ascending.
    """

    of: Ints
    at_s: Floats


@dataclass(frozen=True)
class Biased:
    """How many times as often things are drawn as they happen; see ``pyhooks.simulation.rare_losses``.

    Attributes:
        broker: single failures of brokers, not those in bursts.
        disk: losses of disks.
        rack: outages of racks.
        rack_disks: racks that are destroyed.
        burst: bursts of failures of brokers.
    """

    broker: float = 1.0
    disk: float = 1.0
    rack: float = 1.0
    rack_disks: float = 1.0
    burst: float = 1.0


# what comes to single brokers, or racks
KINDS = ("broker", "disk", "rack", "rack_disks")


@dataclass(frozen=True)
class Burst:
    """Failures that came together.

    Attributes:
        at_s: when it began; its failures may come somewhat later.
        brokers: that it took.
    """

    at_s: float
    brokers: Ints


@dataclass(frozen=True)
class History:
    """Intervals in which brokers are disturbed, those of a broker apart from each other.

    Those that are slow are intervals of their own and may overlap with others.

    Attributes:
        broker: of each interval.
        from_s: its beginning.
        to_s: its end, without what it takes to catch up.
        copies: whether it ends with a copy of everything.
        name: equal for brokers that were disturbed by exactly the same, which then are all of a rack.
        owner: of the name: a broker, or a rack, as the number of brokers and its index.
        first_event: where the events of each begin, and at the end how many there are.
        event_s: when.
        event_code: see ``Code``.
        arrivals: by the names in ``KINDS``.
        bursts: all.
    """

    broker: Ints
    from_s: Floats
    to_s: Floats
    copies: npt.NDArray[np.bool_]
    name: Ints
    owner: Ints
    first_event: Ints
    event_s: Floats
    event_code: Ints
    arrivals: dict[str, Arrivals]
    bursts: list[Burst]

    @property
    def number(self) -> int:
        """Of intervals."""
        return len(self.broker)


class _Outages:
    """Collects outages: broker, begin, end, code, the name by which equal ones are known, and whose that is."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, Floats, Floats, Ints, Ints, Ints]] = []
        self.names = 0

    def add(self, broker: Ints, from_s: Floats, to_s: Floats, code: Ints) -> None:
        """Of single brokers."""
        names = np.arange(self.names, self.names + len(broker))
        self.names += len(broker)
        self.parts.append((broker, from_s, to_s, code, names, broker))

    def add_racks(self, cluster: Cluster, rack: Ints, from_s: Floats, to_s: Floats, code: Ints) -> None:
        """An outage of a rack is one of each of its brokers, under one name."""
        members = [cluster.members(one) for one in range(cluster.racks)]
        sizes = np.array([len(one) for one in members], dtype=np.int64)[rack]
        brokers = np.concatenate([np.zeros(0, dtype=np.int64), *(members[one] for one in rack)])
        names = np.arange(self.names, self.names + len(rack))
        self.names += len(rack)
        begins, ends = np.repeat(from_s, sizes), np.repeat(to_s, sizes)
        codes, named, owners = (np.repeat(part, sizes) for part in (code, names, cluster.brokers + rack))
        self.parts.append((brokers, begins, ends, codes, named, owners))

    def all(self) -> tuple[Ints, Floats, Floats, Ints, Ints, Ints]:
        """By broker and then by beginning."""
        broker, from_s, to_s, code, name, owner = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        order = np.lexsort((code, from_s, broker))
        return broker[order], from_s[order], to_s[order], code[order], name[order], owner[order]


def draw(cluster: Cluster, faults: Faults, stretch: Stretch, random: Draw, biased: Biased | None = None) -> History:
    """A history.

    Args:
        cluster: of which.
        faults: what happens to it.
        stretch: how long.
        random: from it; the same gives the same.
        biased: what is drawn more often than it happens.
    """
    times = biased or Biased()
    found = _Outages()
    arrivals: dict[str, Arrivals] = {}
    single = Spells(faults.broker.per_year * (1 - faults.bursts.share), faults.broker.mean_s)

    def drawn(spell: Spells, things: int, factor: float = 1.0) -> tuple[Ints, Floats, Floats]:
        number = random.poisson(spell.per_year * factor * things * stretch.total_s / YEAR_S)
        at = np.sort(random.uniform(-stretch.warm_s, stretch.counts_s, number))
        return random.integers(0, things, number), at, at + random.exponential(spell.mean_s, number)

    def powered(number: int, otherwise: Code) -> Ints:
        return np.where(random.random(number) < faults.power, Code.POWER, otherwise).astype(np.int64)

    def fixed(number: int, code: Code) -> Ints:
        return np.full(number, code, dtype=np.int64)

    who, at, until = drawn(single, cluster.brokers, times.broker)
    arrivals["broker"] = Arrivals(who, at)
    found.add(who, at, until, powered(len(who), Code.CRASH))
    who, at, until = drawn(faults.stop, cluster.brokers)
    found.add(who, at, until, fixed(len(who), Code.STOP))
    who, at, until = drawn(faults.disk, cluster.brokers, times.disk)
    arrivals["disk"] = Arrivals(who, at)
    found.add(who, at, until, fixed(len(who), Code.DISK))
    for kind, spell, factor in (("rack", faults.rack, times.rack), ("rack_disks", faults.rack_disks, times.rack_disks)):
        which, at, until = drawn(spell, cluster.racks, factor)
        arrivals[kind] = Arrivals(which, at)
        codes = powered(len(which), Code.CUT) if kind == "rack" else fixed(len(which), Code.RACK_DISKS)
        found.add_racks(cluster, which, at, until, codes)
    bursts = _add_bursts(found, cluster, faults, stretch, random, times.burst)
    who, at, until = drawn(faults.lag, cluster.brokers)
    return _joined(found, (who, at, until), arrivals, bursts)


def _add_bursts(
    found: _Outages, cluster: Cluster, faults: Faults, stretch: Stretch, random: Draw, factor: float
) -> list[Burst]:
    law, bursts = Law.of(faults, cluster.sizes), []
    for _ in range(random.poisson(law.per_s * factor * stretch.total_s)):
        begins, who = random.uniform(-stretch.warm_s, stretch.counts_s), law.draw(random)
        at = begins + random.uniform(0, faults.bursts.spread_s, len(who))
        codes = np.where(random.random(len(who)) < faults.power, Code.POWER, Code.CRASH).astype(np.int64)
        found.add(who, at, at + random.exponential(faults.broker.mean_s, len(who)), codes)
        bursts.append(Burst(begins, who))
    return bursts


def _joined(
    found: _Outages, lag: tuple[Ints, Floats, Floats], arrivals: dict[str, Arrivals], bursts: list[Burst]
) -> History:
    """Outages of a broker that overlap become one interval, with an event for each of them and one at its end."""
    broker, from_s, to_s, code, name, owner = found.all()
    first, ends = _joint(broker, from_s, to_s)
    number = np.diff(np.append(first, len(broker)))
    # those that stand alone keep the name that they may share with other brokers
    names = np.where(number == 1, name[first], found.names + np.arange(len(first)))
    owners = np.where(number == 1, owner[first], broker[first])
    copies = np.logical_or.reduceat(code >= Code.DISK, first) if len(first) else np.zeros(0, dtype=bool)
    slow_order = np.lexsort((lag[1], lag[0]))
    slow_broker, slow_from, slow_to = lag[0][slow_order], lag[1][slow_order], lag[2][slow_order]
    slow_first, slow_ends = _joint(slow_broker, slow_from, slow_to)
    slow = len(slow_first)
    # one event for each outage and one at the end, and two for each spell
    interval = np.concatenate([np.repeat(np.arange(len(first)), number), np.arange(len(first) + slow)])
    interval = np.concatenate([interval, len(first) + np.arange(slow)])
    event_s = np.concatenate([from_s, ends, slow_from[slow_first], slow_ends])
    codes = [code, np.full(len(first), Code.BACK), np.full(slow, Code.SLOW), np.full(slow, Code.FAST)]
    event_code = np.concatenate(codes).astype(np.int64)
    order = np.lexsort((event_s, interval))
    counts = np.bincount(interval, minlength=len(first) + slow)
    return History(
        broker=np.concatenate([broker[first], slow_broker[slow_first]]),
        from_s=np.concatenate([from_s[first], slow_from[slow_first]]),
        to_s=np.concatenate([ends, slow_ends]),
        copies=np.concatenate([copies, np.zeros(slow, dtype=bool)]),
        name=np.concatenate([names, found.names + len(first) + np.arange(slow)]),
        owner=np.concatenate([owners, slow_broker[slow_first]]),
        first_event=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        event_s=event_s[order],
        event_code=event_code[order],
        arrivals=arrivals,
        bursts=bursts,
    )


def _joint(of: Ints, from_s: Floats, to_s: Floats) -> tuple[Ints, Floats]:
    """Of intervals that are sorted by whose they are and by beginning: the first of each union, and where it ends."""
    first = np.flatnonzero(apart(of, from_s, to_s))
    return first, np.maximum.reduceat(to_s, first) if len(first) else np.zeros(0)


def apart(of: Ints, from_s: Floats, to_s: Floats) -> npt.NDArray[np.bool_]:
    """Which of these intervals begin after all before them of the same owner have ended; sorted as in ``_joint``."""
    if not len(of):
        return np.zeros(0, dtype=bool)
    # far enough from each other that no end of one owner reaches into the next one's
    far = float(to_s.max() - from_s.min()) + 1.0
    ends = np.maximum.accumulate(to_s + of * far)
    new = np.ones(len(of), dtype=bool)
    new[1:] = from_s[1:] + of[1:] * far > ends[:-1]
    return new
