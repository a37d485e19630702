"""From what happens to brokers to what happens to partitions: scripts, each once, with the partitions that play it.

An *episode* of a partition reaches from the moment at which one of its replicas is disturbed to the one at which all
are in the ISR again. Partitions whose replicas are in the same racks and are disturbed by exactly the same live the
same, so that is played once for all of them.

What disturbs the cluster falls apart into *clumps*, which do not overlap in time. Where a clump is one disturbance of
one broker, or of one rack, the partitions that play the same are known beforehand (``layout.Groups``). In the other
clumps each partition is looked at by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyhooks.simulation.machine_script import Floats, Ints, Scripts, Timing
from pyhooks.simulation.outage_history import History, apart
from pyhooks.simulation.partition_layout import Layout

Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Clumps:
    """Disturbances that overlap, or whose consequences do as far as can be told before they are played.

    Attributes:
        of: the clump of each interval; clumps are numbered by time.
        from_s: when each begins.
        lone: whether it is one disturbance of one broker or rack.
        example: one interval of each.
    """

    of: Ints
    from_s: Floats
    lone: Bools
    example: Ints


def ends(history: History, timing: Timing) -> Floats:
    """When replicas have caught up after each interval, if there is a leader all the time."""
    away = history.to_s - history.from_s
    return history.to_s + np.where(history.copies, timing.copy_s, timing.catch_up * away)


def clumps(history: History, timing: Timing, slack_s: float) -> Clumps:
    """Those of a history.

    Args:
        history: what happens.
        timing: how long things take.
        slack_s: how much later than ``ends`` the consequences of a disturbance can usually be felt.
    """
    order = np.lexsort((history.broker, history.from_s))
    sorted_ends = (ends(history, timing) + slack_s)[order]
    new = apart(np.zeros(history.number, dtype=np.int64), history.from_s[order], sorted_ends)
    number = np.cumsum(new) - 1
    of = np.empty(history.number, dtype=np.int64)
    of[order] = number
    first = order[new]
    different = np.zeros(len(first), dtype=bool)
    np.logical_or.at(different, of, history.name != history.name[first][of])
    return Clumps(of, history.from_s[first], ~different, first)


def lone_scripts(clumped: Clumps, which: Ints, history: History, layout: Layout) -> tuple[Scripts, Ints, Ints]:
    """What is played in clumps that are one disturbance.

    Args:
        clumped: of which there are.
        which: those, as indices.
        history: with the events.
        layout: with the groups.

    Returns:
        The scripts, and for each its group and its clump.
    """
    example = clumped.example[which]
    owner = history.owner[example]
    groups = layout.groups.first[owner + 1] - layout.groups.first[owner]
    group = _ranges(layout.groups.first[owner], groups)
    interval = np.repeat(example, groups)
    events = history.first_event[interval + 1] - history.first_event[interval]
    event = _ranges(history.first_event[interval], events)
    first = np.concatenate([[0], np.cumsum(events)]).astype(np.int64)
    sets = np.repeat(layout.groups.replicas[group], events)
    found = Scripts(first, history.event_s[event], history.event_code[event], sets, layout.groups.pattern[group])
    return found, group, np.repeat(which, groups)


@dataclass(frozen=True)
class Entries:
    """Each replica of each partition with each interval that disturbs it, by partition and then by time.

    Attributes:
        partition: whose.
        slot: which of its replicas.
        interval: an index into the history.
    """

    partition: Ints
    slot: Ints
    interval: Ints


def entries(layout: Layout, history: History, which: Ints) -> Entries:
    """Those of some intervals.

    Args:
        layout: of the partitions.
        history: of all intervals.
        which: those, as indices.
    """
    by_time = which[np.lexsort((history.broker[which], history.from_s[which]))]
    # each interval of a broker, by time, for each of its replicas
    brokers = history.broker[by_time]
    order = np.argsort(brokers, kind="stable")
    number = np.bincount(brokers, minlength=int(layout.replicas.max()) + 1)
    first = np.concatenate([[0], np.cumsum(number)])
    replicas = layout.replicas.ravel()
    counts = number[replicas]
    rank = order[_ranges(first[replicas], counts)]
    replica = np.repeat(np.arange(len(replicas)), counts)
    # by partition, time and replica: as one number, which sorts fast
    factor = layout.factor
    partition = replica // factor
    packed = (partition * len(which) + rank) * factor + (replica - partition * factor)
    packed.sort()
    rest = packed // factor
    partition = rest // len(which)
    return Entries(partition, packed - rest * factor, by_time[rest - partition * len(which)])


@dataclass(frozen=True)
class Episodes:
    """Episodes, by partition and then by time.

    Attributes:
        first: the first entry of each, and at the end how many entries there are.
        partition: whose.
        from_s: when it begins.
    """

    first: Ints
    partition: Ints
    from_s: Floats

    @property
    def number(self) -> int:
        """How many."""
        return len(self.partition)

    def overtaken(self, ended_s: Floats) -> Bools:
        """Which have not ended when the next of the same partition begins."""
        found = np.zeros(self.number, dtype=bool)
        same = self.partition[1:] == self.partition[:-1]
        found[:-1] = same & (ended_s[:-1] >= self.from_s[1:])
        return found

    def joined(self, with_next: Bools) -> tuple[Episodes, Bools]:
        """Those that are marked become one with the one after them; also which are left."""
        kept = np.ones(self.number, dtype=bool)
        kept[1:] = ~with_next[:-1]
        firsts = np.append(self.first[:-1][kept], self.first[-1])
        return Episodes(firsts, self.partition[kept], self.from_s[kept]), kept


def episodes(found: Entries, history: History, timing: Timing) -> Episodes:
    """As far as can be told before they are played; see ``Episodes.overtaken``."""
    begins = history.from_s[found.interval]
    first = np.flatnonzero(apart(found.partition, begins, ends(history, timing)[found.interval]))
    return Episodes(np.append(first, len(found.partition)), found.partition[first], begins[first])


def alike(chosen: Episodes, which: Ints, found: Entries, history: History, layout: Layout) -> tuple[Ints, Ints]:
    """Which of some episodes are played the same.

    Those of several intervals are told by a hash of 64 bits: with a million of them, two that are not the same would be
    taken for it in one of 10^7 replications.

    Args:
        chosen: of which there are.
        which: those, as indices.
        found: their entries.
        history: of the intervals.
        layout: of the partitions.

    Returns:
        For each kind of episode one of it, as an index into ``chosen``; and for each of ``which`` its kind.
    """
    kind = np.empty(len(which), dtype=np.int64)
    one = chosen.first[which + 1] - chosen.first[which] == 1
    single, several = which[one], which[~one]
    entry = chosen.first[single]
    number = history.name[found.interval[entry]] * layout.factor + found.slot[entry]
    number = number * len(layout.patterns) + layout.pattern[chosen.partition[single]]
    some = np.full(int(number.max(initial=-1)) + 1, -1, dtype=np.int64)
    some[number] = single
    used = some >= 0
    kind[one] = (np.cumsum(used) - 1)[number]
    words = _words(chosen, several, found, history, layout)
    _, example, inverse = np.unique(words, return_index=True, return_inverse=True)
    kind[~one] = int(used.sum()) + inverse
    return np.concatenate([some[used], several[example]]), kind


def _words(chosen: Episodes, which: Ints, found: Entries, history: History, layout: Layout) -> Words:
    if not len(which):
        return np.zeros(0, dtype=np.uint64)
    sizes = chosen.first[which + 1] - chosen.first[which]
    entry = _ranges(chosen.first[which], sizes)
    each = _mixed(history.name[found.interval[entry]] * layout.factor + found.slot[entry] + (1 << 32))
    sums = np.add.reduceat(each, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    return sums + _mixed(layout.pattern[chosen.partition[which]])


def _mixed(numbers: Ints) -> Words:
    """Well-mixed 64 bits of each number (the finaliser of splitmix64)."""
    bits = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def scripts(chosen: Episodes, which: Ints, found: Entries, history: History, layout: Layout) -> Scripts:
    """What happens in some episodes; arguments are those of ``alike``."""
    sizes = chosen.first[which + 1] - chosen.first[which]
    entry = _ranges(chosen.first[which], sizes)
    script = np.repeat(np.arange(len(which)), sizes)
    interval = found.interval[entry]
    events = history.first_event[interval + 1] - history.first_event[interval]
    event = _ranges(history.first_event[interval], events)
    script, bit = np.repeat(script, events), np.repeat(np.left_shift(1, found.slot[entry]), events)
    at, code = history.event_s[event], history.event_code[event]
    order = np.lexsort((code, at, script))
    script, at, code, bit = script[order], at[order], code[order], bit[order]
    # what befalls several replicas at the same moment is one event
    new = np.ones(len(script), dtype=bool)
    new[1:] = (script[1:] != script[:-1]) | (at[1:] != at[:-1]) | (code[1:] != code[:-1])
    first = np.flatnonzero(new)
    sets = np.bitwise_or.reduceat(bit, first) if len(first) else bit
    number = np.bincount(script[first], minlength=len(which))
    firsts = np.concatenate([[0], np.cumsum(number)]).astype(np.int64)
    return Scripts(firsts, at[first], code[first], sets, layout.pattern[chosen.partition[which]])


def _ranges(first: Ints, sizes: Ints) -> Ints:
    """``first[0], first[0] + 1, …`` so many, then those of the next."""
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    begins = np.cumsum(sizes) - sizes
    return np.repeat(first - begins, sizes) + np.arange(int(sizes.sum()))
