"""Replications of a cluster's life, independent of each other; each has its own random seed.

An *episode* of a partition lasts from the first disturbance of one of its replicas until all are in the ISR again.
Episodes of partitions with replicas in the same racks and the same disturbances are the same, so the machine runs each
only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from pyhooks.simulation.failures import FaultRates
from pyhooks.simulation.fault_history import FaultHistory, draw_history, ranges, starts_apart, warm_up_s
from pyhooks.simulation.partition_machine import (
    ALONE,
    COLUMNS,
    STATUSES,
    Cause,
    Floats,
    GateSetting,
    Ints,
    Scripts,
    Status,
    Timing,
    healthy_status,
    run,
)
from pyhooks.simulation.striped_placement import place

# losses of one cluster that are at most this far apart are one event
EVENT_S = 3600.0


@dataclass(frozen=True)
class SimulationPlan:
    """What to simulate; all settings on the same histories of faults."""

    racks: tuple[int, ...]  # number of brokers of each
    topics: int
    partitions: int  # of all topics
    replication_factor: int  # replication factor
    placements: tuple[tuple[int, ...], ...]  # brokers of each partition in turn; empty for Kafka's placement
    settings: tuple[GateSetting, ...]
    faults: FaultRates
    timing: Timing
    counted_s: float  # length of a replication
    seed: int

    @property
    def warm_s(self) -> float:
        """Length of the history before the counted time."""
        return warm_up_s(self.faults, self.timing.copy_s)


@dataclass(frozen=True)
class ReplicaLayout:
    """Placement of the replicas of all partitions."""

    replicas: Ints  # brokers, the preferred leader first, of shape (partitions, replication factor)
    pattern: Ints  # index into ``patterns`` of each partition
    patterns: tuple[tuple[int, ...], ...]  # racks of the replicas, numbered in the order in which they occur


@dataclass(frozen=True)
class ReplicationResult:
    """Result of one replication for one setting."""

    replication: int
    setting: int
    shares: Floats  # fractions of partition-time, by ``Status``, then ``ALONE`` and ``LOWERED``
    lost: Floats  # partitions that lost acknowledged records, by ``Cause``
    events: int  # losses, those within an hour of each other counted once
    by_cause: Ints  # the same for each ``Cause``
    tail_s: float  # seconds of acknowledged writes lost by partitions that did not lose all of them
    with_tail: float  # number of these partitions


@lru_cache(maxsize=4)
def replica_layout(plan: SimulationPlan) -> ReplicaLayout:
    """Return the placement of partitions on brokers, which are numbered rack by rack."""
    rack = np.repeat(np.arange(len(plan.racks)), plan.racks)
    if plan.placements:
        replicas = [list(plan.placements[number % len(plan.placements)]) for number in range(plan.partitions)]
    else:
        racks = [np.flatnonzero(rack == number).tolist() for number in range(len(plan.racks))]
        replicas = place(
            racks, topics=plan.topics, partitions=plan.partitions, replicas=plan.replication_factor, seed=plan.seed
        )
    patterns: dict[tuple[int, ...], int] = {}
    pattern = []
    for replica_racks in rack[np.array(replicas)].tolist():
        distinct = list(dict.fromkeys(replica_racks))
        pattern.append(
            patterns.setdefault(tuple(distinct.index(rack_number) for rack_number in replica_racks), len(patterns))
        )
    return ReplicaLayout(np.array(replicas, dtype=np.int64), np.array(pattern, dtype=np.int64), tuple(patterns))


class _Episodes:
    """Episodes of all partitions in one history, by partition and then by time.

    Each interval of the history that disturbs a replica is an *entry*: ``partition``, ``slot`` (which of its replicas)
    and ``interval``. ``first`` is the first entry of each episode, ``script`` the script that it is an instance of, -1
    if it has not been run.
    """

    def __init__(self, history: FaultHistory, layout: ReplicaLayout, timing: Timing) -> None:
        self.history, self.layout = history, layout
        order = np.lexsort((history.from_s, history.broker))
        interval_counts = np.bincount(history.broker, minlength=int(layout.replicas.max()) + 1)
        replicas = layout.replicas.ravel()
        interval = order[ranges((np.cumsum(interval_counts) - interval_counts)[replicas], interval_counts[replicas])]
        partition, slot = np.divmod(
            np.repeat(np.arange(len(replicas)), interval_counts[replicas]), layout.replicas.shape[1]
        )
        by_time = np.lexsort((history.from_s[interval], partition))
        self.partition, self.slot, self.interval = partition[by_time], slot[by_time], interval[by_time]
        # replicas have caught up then if there is a leader all the time; otherwise the machine returns a later time
        ends = history.to_s + np.where(history.copies, timing.copy_s, timing.catch_up * (history.to_s - history.from_s))
        apart = starts_apart(self.partition, history.from_s[self.interval], ends[self.interval])
        self.first = np.flatnonzero(apart)
        self.script = np.full(len(self.first), -1)
        # random numbers of entries: equal episodes have the same sum, different ones almost certainly not
        random, shape = np.random.default_rng(0), (int(history.name.max(initial=0)) + 1, layout.replicas.shape[1])
        self.entry_keys = random.integers(0, 2**64, shape, dtype=np.uint64)
        self.pattern_keys = random.integers(0, 2**64, len(layout.patterns), dtype=np.uint64)

    def scripts(self, episodes: Ints) -> tuple[Scripts, Ints]:
        """Return the different scripts of some episodes, and which of them each episode is an instance of."""
        entry, sizes = self._entries(episodes)
        keys = self.entry_keys[self.history.name[self.interval[entry]], self.slot[entry]]
        pattern = self.layout.pattern[self.partition[self.first[episodes]]]
        sums = np.add.reduceat(keys, np.cumsum(sizes) - sizes) + self.pattern_keys[pattern]
        _, example, kind = np.unique(sums, return_index=True, return_inverse=True)
        entry, sizes = self._entries(episodes[example])
        interval, first_event = self.interval[entry], self.history.first_event
        events = first_event[interval + 1] - first_event[interval]
        event = ranges(first_event[interval], events)
        script = np.repeat(np.repeat(np.arange(len(example)), sizes), events)
        bit = np.repeat(np.left_shift(1, self.slot[entry]), events)
        at_s, code = self.history.event_s[event], self.history.event_code[event]
        order = np.lexsort((code, at_s, script))
        script, at_s, code, bit = script[order], at_s[order], code[order], bit[order]
        # the same event of several replicas at the same moment is one event
        is_first = np.append(True, (np.diff(script) != 0) | (np.diff(at_s) != 0) | (np.diff(code) != 0))
        first = np.flatnonzero(is_first)
        firsts = np.concatenate([[0], np.cumsum(np.bincount(script[first], minlength=len(example)))])
        sets = np.bitwise_or.reduceat(bit, first)
        return Scripts(firsts, at_s[first], code[first], sets, pattern[example]), kind

    def _entries(self, episodes: Ints) -> tuple[Ints, Ints]:
        """Return the entries of some episodes, and how many each has."""
        sizes = np.append(self.first, len(self.partition))[episodes + 1] - self.first[episodes]
        return ranges(self.first[episodes], sizes), sizes

    def merge_overlapping(self, ended_s: Floats) -> None:
        """Merge each episode with the next one of its partition if its script ended after the start of that."""
        owner, from_s = self.partition[self.first], self.history.from_s[self.interval[self.first]]
        overlaps = (owner[1:] == owner[:-1]) & (ended_s[self.script[:-1]] >= from_s[1:])
        self.script[:-1][overlaps] = -1
        kept = np.append(True, ~overlaps)
        self.first, self.script = self.first[kept], self.script[kept]


def run_replications(plan: SimulationPlan, numbers: Sequence[int]) -> list[ReplicationResult]:
    """Run replications with these numbers; the result of each depends on nothing but the plan and its number."""
    return [result for number in numbers for result in _replicate(plan, number)]


def _replicate(plan: SimulationPlan, number: int) -> list[ReplicationResult]:
    layout = replica_layout(plan)
    random = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,)))
    episodes = _Episodes(
        draw_history(plan.racks, plan.faults, plan.warm_s, plan.counted_s, random), layout, plan.timing
    )
    spent_s, ended_s = np.zeros((0, len(plan.settings), COLUMNS)), np.zeros(0)
    pattern, losses = np.zeros(0, dtype=np.int64), []
    while len(pending := np.flatnonzero(episodes.script < 0)):
        scripts, kind = episodes.scripts(pending)
        result = run(scripts, layout.patterns, plan.settings, plan.timing, end_s=plan.counted_s)
        episodes.script[pending] = len(ended_s) + kind
        losses.append(result.losses.assign(script=len(ended_s) + result.losses.script))
        spent_s, ended_s = np.concatenate([spent_s, result.spent_s]), np.concatenate([ended_s, result.ended_s])
        pattern = np.concatenate([pattern, scripts.pattern])
        episodes.merge_overlapping(ended_s)
    # the partitions that had each script; none if it overlapped with the next one
    partitions = np.bincount(episodes.script, minlength=len(ended_s))
    shares = _shares(plan, layout, spent_s * partitions[:, None, None], pattern)
    lost = pd.concat(losses) if losses else pd.DataFrame(columns=["script", "setting", "at_s", "seconds", "cause"])
    lost["partitions"] = partitions[lost.script.to_numpy(dtype=np.int64)]
    lost = lost[lost.partitions > 0]
    return [
        _replication_result(number, setting, shares[setting], lost[lost.setting == setting])
        for setting in range(len(plan.settings))
    ]


def _shares(plan: SimulationPlan, layout: ReplicaLayout, spent_s: Floats, pattern: Ints) -> Floats:
    """Return the fractions of partition-time, of shape (settings, ``COLUMNS``); all replicas are in sync otherwise."""
    total = spent_s.sum(axis=0)
    healthy = np.repeat(plan.counted_s * np.bincount(layout.pattern)[:, None], len(plan.settings), axis=1)
    np.subtract.at(healthy, pattern, spent_s[:, :, :STATUSES].sum(axis=2))
    status = healthy_status(layout.patterns, plan.settings)
    for row, racks in enumerate(layout.patterns):
        for setting, seconds in enumerate(healthy[row]):
            total[setting, status[row, setting]] += seconds
            total[setting, ALONE] += seconds * (len(set(racks)) == 1 and status[row, setting] == Status.ACCEPTED)
    shares: Floats = total / (plan.counted_s * len(layout.replicas))
    return shares


def _replication_result(number: int, setting: int, shares: Floats, lost: pd.DataFrame) -> ReplicationResult:
    partial_losses = lost[np.isfinite(lost.seconds.astype(float))]
    return ReplicationResult(
        replication=number,
        setting=setting,
        shares=shares,
        lost=np.array([float(lost.partitions[lost.cause == cause].sum()) for cause in Cause]),
        events=_count_events(lost),
        by_cause=np.array([_count_events(lost[lost.cause == cause]) for cause in Cause]),
        tail_s=float((partial_losses.seconds * partial_losses.partitions).sum()),
        with_tail=float(partial_losses.partitions.sum()),
    )


def _count_events(lost: pd.DataFrame) -> int:
    """Return the number of losses, those close to each other counted once."""
    return int((np.diff(np.sort(lost.at_s), prepend=-np.inf) > EVENT_S).sum())
