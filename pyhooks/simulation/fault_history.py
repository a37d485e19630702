"""Random history of faults of a cluster in one replication: outages and slow spells of its brokers.

All settings are simulated on the same history. It begins ``warm_s`` before the simulated time with all brokers
available, so that the simulated time is a random part of the cluster's life.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.failures import BurstRates, FaultRates, SpellRate
from pyhooks.simulation.partition_machine import Bools, EventCode, Floats, Ints

# multiple of the mean of an exponential distribution beyond which almost nothing of it is left
_WARM_MEANS = 8.0
_MIN_WARM_S = 3600.0


@dataclass(frozen=True)
class FaultHistory:
    """Intervals in which brokers are disturbed; those of a broker do not overlap.

    Slow spells are intervals of their own and may overlap with others. Intervals with the same events, those of the
    brokers of a rack in an outage of the rack, have the same ``name``.
    """

    broker: Ints
    from_s: Floats
    to_s: Floats  # without catching up
    copies: Bools  # whether a disk has to be filled afterwards
    name: Ints
    first_event: Ints  # of each interval, then the number of events
    event_s: Floats
    event_code: Ints


def warm_up_s(faults: FaultRates, copy_s: float) -> float:
    """Return the time until the initial state no longer matters."""
    spells = (faults.broker, faults.stop, faults.lag, faults.disk, faults.rack, faults.rack_disks)
    longest = max([spell.mean_s for spell in spells if spell.per_year > 0], default=0.0)
    return max(_MIN_WARM_S, _WARM_MEANS * longest + copy_s)


def draw_history(
    racks: tuple[int, ...], faults: FaultRates, warm_s: float, counted_s: float, random: np.random.Generator
) -> FaultHistory:
    """Draw a history from ``-warm_s`` to ``counted_s`` of racks with these numbers of brokers."""
    sizes = np.array(racks, dtype=np.int64)
    outages: list[tuple[npt.NDArray[Any], ...]] = []
    name_count = 0

    def times(spell: SpellRate, things: int) -> tuple[Ints, Floats, Floats]:
        number = random.poisson(spell.per_year * things * (warm_s + counted_s) / YEAR_S)
        begins = np.sort(random.uniform(-warm_s, counted_s, number))
        return random.integers(0, things, number), begins, begins + random.exponential(spell.mean_s, number)

    def codes(number: int, code: EventCode, *, power: bool = False) -> Ints:
        if power:
            return np.where(random.random(number) < faults.power, EventCode.POWER, code).astype(np.int64)
        return np.full(number, code, dtype=np.int64)

    def add(broker: Ints, from_s: Floats, to_s: Floats, code: Ints) -> None:
        nonlocal name_count
        outages.append((broker, from_s, to_s, code, name_count + np.arange(len(broker))))
        name_count += len(broker)

    def add_racks(rack: Ints, from_s: Floats, to_s: Floats, code: Ints) -> None:
        nonlocal name_count
        columns = (from_s, to_s, code, name_count + np.arange(len(rack)))
        begins, ends, event_codes, outage_names = (np.repeat(part, sizes[rack]) for part in columns)
        members = ranges((np.cumsum(sizes) - sizes)[rack], sizes[rack])
        outages.append((members, begins, ends, event_codes, outage_names))
        name_count += len(rack)

    single = SpellRate(faults.broker.per_year * (1 - faults.bursts.share), faults.broker.mean_s)
    for spell, code, power in (
        (single, EventCode.CRASH, True), (faults.stop, EventCode.STOP, False), (faults.disk, EventCode.DISK, False)
    ):  # fmt: skip
        drawn = times(spell, sum(racks))
        add(*drawn, codes(len(drawn[0]), code, power=power))
    for spell, code, power in ((faults.rack, EventCode.CUT, True), (faults.rack_disks, EventCode.RACK_DISKS, False)):
        drawn = times(spell, len(racks))
        add_racks(*drawn, codes(len(drawn[0]), code, power=power))
    per_s, rack_probabilities = _burst_rates(faults, racks)
    for _ in range(random.poisson(per_s * (warm_s + counted_s))):
        burst_s = random.uniform(-warm_s, counted_s)
        brokers = _draw_burst(faults.bursts, racks, rack_probabilities, random)
        begins = burst_s + random.uniform(0, faults.bursts.spread_s, len(brokers))
        event_codes = codes(len(brokers), EventCode.CRASH, power=True)
        add(brokers, begins, begins + random.exponential(faults.broker.mean_s, len(brokers)), event_codes)
    columns = [np.concatenate(part) for part in zip(*outages, strict=True)]
    return _merge_outages(columns, name_count, times(faults.lag, sum(racks)))


def _merge_outages(outages: list[npt.NDArray[Any]], name_count: int, lag: tuple[Ints, Floats, Floats]) -> FaultHistory:
    """Merge overlapping outages of a broker to one interval with an event for each of them and one at its end."""
    order = np.lexsort((outages[3], outages[1], outages[0]))
    broker, from_s, to_s, code, name = (column[order] for column in outages)
    first, ends = _merge_intervals(broker, from_s, to_s)
    slow_order = np.lexsort((lag[1], lag[0]))
    slow_broker, slow_from, slow_to = lag[0][slow_order], lag[1][slow_order], lag[2][slow_order]
    slow_first, slow_ends = _merge_intervals(slow_broker, slow_from, slow_to)
    failures, slow_spells = len(first), len(slow_first)
    outage_counts = np.diff(np.append(first, len(broker)))
    # one event for each outage and one at the end, and two for each slow spell
    interval = np.concatenate(
        [
            np.repeat(np.arange(failures), outage_counts),
            np.arange(failures + slow_spells),
            failures + np.arange(slow_spells),
        ]
    )
    event_s = np.concatenate([from_s, ends, slow_from[slow_first], slow_ends])
    codes = [
        code,
        np.full(failures, EventCode.BACK),
        np.full(slow_spells, EventCode.SLOW),
        np.full(slow_spells, EventCode.FAST),
    ]
    order_by_interval = np.lexsort((event_s, interval))
    copies = np.logical_or.reduceat(code >= EventCode.DISK, first) if failures else np.zeros(0, dtype=bool)
    # an interval of a single outage keeps the name that it shares with other brokers
    interval_names = np.where(outage_counts == 1, name[first], name_count + np.arange(failures))
    return FaultHistory(
        broker=np.concatenate([broker[first], slow_broker[slow_first]]),
        from_s=np.concatenate([from_s[first], slow_from[slow_first]]),
        to_s=np.concatenate([ends, slow_ends]),
        copies=np.concatenate([copies, np.zeros(slow_spells, dtype=bool)]),
        name=np.concatenate([interval_names, name_count + failures + np.arange(slow_spells)]),
        first_event=np.concatenate([[0], np.cumsum(np.bincount(interval, minlength=failures + slow_spells))]),
        event_s=event_s[order_by_interval],
        event_code=np.concatenate(codes).astype(np.int64)[order_by_interval],
    )


def _merge_intervals(owner: Ints, from_s: Floats, to_s: Floats) -> tuple[Ints, Floats]:
    """Return the first interval of each union of overlapping ones, and its end; arguments as of ``starts_apart``."""
    first = np.flatnonzero(starts_apart(owner, from_s, to_s))
    return first, np.maximum.reduceat(to_s, first) if len(first) else np.zeros(0)


def starts_apart(owner: Ints, from_s: Floats, to_s: Floats) -> Bools:
    """Return which intervals start after all earlier ones of the same owner; sorted by owner and start."""
    if not len(owner):
        return np.zeros(0, dtype=bool)
    # offset owners so far that no interval of one reaches into the next one's
    far = float(to_s.max() - from_s.min()) + 1.0
    ends = np.maximum.accumulate(to_s + owner * far)
    apart = np.ones(len(owner), dtype=bool)
    apart[1:] = from_s[1:] + owner[1:] * far > ends[:-1]
    return apart


def ranges(first: Ints, sizes: Ints) -> Ints:
    """Return ``first[0], first[0] + 1, …``, ``sizes[0]`` numbers, then those of the next, and so on."""
    return np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))


def _burst_rates(faults: FaultRates, racks: tuple[int, ...]) -> tuple[float, Floats]:
    """Return the bursts in a second, and the probability of each rack for a burst within one rack.

    A burst takes two or more brokers, geometrically distributed, at most all brokers of its rack or of the cluster.
    Brokers fail as often as configured and are equally likely to be taken.
    """
    bursts, brokers = faults.bursts, sum(racks)

    def mean_size(most: int) -> float:
        return float(((1 - 1 / (bursts.size - 1)) ** np.maximum(np.arange(most) - 1.0, 0.0)).sum())

    mean_sizes = np.array([mean_size(size) for size in racks])
    rack_probabilities = np.array(racks) / mean_sizes
    rack_probabilities /= rack_probabilities.sum()
    mean_brokers = bursts.one_rack * float(rack_probabilities @ mean_sizes) + (1 - bursts.one_rack) * mean_size(brokers)
    return faults.broker.per_year * bursts.share * brokers / mean_brokers / YEAR_S, rack_probabilities


def _draw_burst(
    bursts: BurstRates, racks: tuple[int, ...], rack_probabilities: Floats, random: np.random.Generator
) -> Ints:
    """Draw the brokers of a burst."""
    size = 1 + int(random.geometric(1 / (bursts.size - 1)))
    first, broker_count = 0, sum(racks)
    if random.random() < bursts.one_rack:
        rack = int(random.choice(len(racks), p=rack_probabilities))
        first, broker_count = sum(racks[:rack]), racks[rack]
    return first + random.choice(broker_count, size=min(size, broker_count), replace=False).astype(np.int64)
