"""Replications of a cluster's life: independent of each other, each from a seed of its own, whoever runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pyhooks.simulation import partition_machine, rare_losses
from pyhooks.simulation.episodes import alike, clumps, entries, episodes, lone_scripts, scripts
from pyhooks.simulation.failures import Faults
from pyhooks.simulation.machine_script import (
    ALONE,
    CAUSES,
    COLUMNS,
    NEVER,
    STATUSES,
    Floats,
    Ints,
    Losses,
    Scripts,
    Setting,
    Status,
    Timing,
    whole,
)
from pyhooks.simulation.outage_history import Biased, Cluster, Stretch, draw, warm_up_s
from pyhooks.simulation.partition_layout import Layout
from pyhooks.simulation.striping import place

# losses of one cluster that are no further apart than this are one event
EVENT_S = 3600.0


@dataclass(frozen=True)
class Plan:
    """What is simulated.

    Attributes:
        racks: how many brokers each has.
        topics: how many.
        partitions: of all of them.
        factor: the replication factor.
        placements: where replicas are, as brokers of each partition in turn; empty to have Kafka place them.
        settings: to judge, all on the same histories.
        faults: what fails.
        timing: how long things take.
        counts_s: the length of a replication, in seconds.
        seed: of all that is drawn.
        biased: what is drawn more often than it happens; None for what happens.
    """

    racks: tuple[int, ...]
    topics: int
    partitions: int
    factor: int
    placements: tuple[tuple[int, ...], ...]
    settings: tuple[Setting, ...]
    faults: Faults
    timing: Timing
    counts_s: float
    seed: int
    biased: Biased | None = None

    @property
    def stretch(self) -> Stretch:
        """The time of each replication."""
        return Stretch(warm_up_s(self.faults, self.timing.copy_s), self.counts_s)


@dataclass(frozen=True)
class Found:
    """What one replication gives for one setting; it is the same wherever it is run.

    Attributes:
        replication: its number.
        setting: its index.
        shares: of partition-time, by ``script.Status`` and then ``script.ALONE`` and ``script.LOWERED``.
        lost: partitions that lost acknowledged records, by ``script.Cause``; with what is drawn more often, each by
            its weight.
        events: how many times any did, losses within an hour of each other counted once; 0 with what is drawn more
            often, since events have no weight.
        by_cause: the same, of each ``script.Cause`` alone.
        tail_s: how many seconds of acknowledged writes they lost, where that was not everything.
        with_tail: how many partitions of ``lost`` that was.
    """

    replication: int
    setting: int
    shares: Floats
    lost: Floats
    events: int
    by_cause: Ints
    tail_s: float
    with_tail: float


@lru_cache(maxsize=4)
def layout(plan: Plan) -> tuple[Cluster, Layout]:
    """The cluster, and its partitions as Kafka places them."""
    cluster = Cluster.of(list(plan.racks))
    if plan.placements:
        placed = [list(plan.placements[number % len(plan.placements)]) for number in range(plan.partitions)]
    else:
        racks = [cluster.members(rack).tolist() for rack in range(cluster.racks)]
        placed = place(racks, topics=plan.topics, partitions=plan.partitions, replicas=plan.factor, seed=plan.seed)
    return cluster, Layout.of(placed, cluster)


class _Replication:
    """One replication on its way: what is to be played, what that came to, and which partitions played it.

    What is played is numbered: first what lone clumps bring, then kinds of episodes, as they are found.
    """

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.number = plan, number
        self.cluster, self.layout = layout(plan)
        random = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,)))
        self.history = draw(self.cluster, plan.faults, plan.stretch, random, plan.biased)
        self.done = not self.history.number
        if not self.done:
            slack_s = max([one.lower_s for one in plan.settings if one.lower_s < NEVER], default=0.0)
            self.clumps = clumps(self.history, plan.timing, slack_s)
            self._begin(self.clumps.lone)

    def _begin(self, lone: npt.NDArray[np.bool_]) -> None:
        """With these clumps as lone ones, and nothing played yet."""
        self.lone = lone
        self.pattern, self.clump = (np.zeros(0, dtype=np.int64) for _ in range(2))
        self.spent, self.ended = np.zeros((0, len(self.plan.settings), COLUMNS)), np.zeros(0)
        self.losses: list[Losses] = []
        first, self.group, clump = lone_scripts(self.clumps, np.flatnonzero(lone), self.history, self.layout)
        self.entries = entries(self.layout, self.history, np.flatnonzero(~lone[self.clumps.of]))
        self.episodes = episodes(self.entries, self.history, self.plan.timing)
        self.played = np.full(self.episodes.number, -1)
        self._next([first], clump, len(self.group))

    def _next(self, before: list[Scripts], clump: Ints, offset: int) -> None:
        """Adds the episodes that have not been played to what is to be played next."""
        which = np.flatnonzero(self.played < 0)
        example, kind = alike(self.episodes, which, self.entries, self.history, self.layout)
        self.played[which] = offset + kind
        last = self.entries.interval[self.episodes.first[example + 1] - 1]
        self.pending = Scripts.joined(
            [*before, scripts(self.episodes, example, self.entries, self.history, self.layout)]
        )
        self.pattern = np.concatenate([self.pattern, self.pending.pattern])
        self.clump = np.concatenate([self.clump, clump, self.clumps.of[last]])

    def take(self, spent: Floats, ended: Floats, losses: Losses) -> None:
        """What that came to; if it reaches into what was to be apart from it, there is more to play."""
        offset = len(self.ended)
        self.spent, self.ended = np.concatenate([self.spent, spent]), np.concatenate([self.ended, ended])
        self.losses.append(Losses(losses.script + offset, losses.setting, losses.at_s, losses.seconds, losses.cause))
        lone = self._still_lone()
        if (lone != self.lone).any():
            self._begin(lone)
            return
        overtaken = self.episodes.overtaken(self.ended[self.played])
        self.done = not overtaken.any()
        if not self.done:
            self.episodes, kept = self.episodes.joined(overtaken)
            self.played = np.where(overtaken, -1, self.played)[kept]
            self._next([], np.zeros(0, dtype=np.int64), len(self.ended))

    def _still_lone(self) -> npt.NDArray[np.bool_]:
        """Which clumps do not reach into others, nor others into them."""
        number = len(self.lone)
        ended = np.full(number, -NEVER)
        np.maximum.at(ended, self.clump, self.ended)
        # as far as any clump before it reaches
        reached = np.maximum.accumulate(ended)
        late = reached[:-1] >= self.clumps.from_s[1:]
        lone = self.lone.copy()
        lone[:-1] &= ~late
        lone[1:] &= ~late
        return lone

    def _weights(self) -> Floats:
        """How many partitions played each."""
        number = np.bincount(self.played, minlength=len(self.ended)).astype(np.float64)
        number[: len(self.group)] = [len(self.layout.groups.members[one]) for one in self.group]
        return number

    def _partitions(self, played: int) -> Ints:
        """Which partitions played it."""
        if played < len(self.group):
            return self.layout.groups.members[int(self.group[played])]
        partitions: Ints = self.episodes.partition[self.played == played]
        return partitions

    def found(self) -> list[Found]:
        """For each setting."""
        plan, patterns = self.plan, self.layout.patterns
        total = np.zeros((len(plan.settings), COLUMNS))
        whole_s = np.repeat(plan.counts_s * np.bincount(self.layout.pattern)[:, None], len(plan.settings), axis=1)
        if self.history.number:
            spent = self.spent * self._weights()[:, None, None]
            total += spent.sum(axis=0)
            np.subtract.at(whole_s, self.pattern, spent[:, :, :STATUSES].sum(axis=2))
        status = whole(patterns, plan.settings)
        alone = np.array([len(set(one)) == 1 for one in patterns])
        shares = []
        for setting in range(len(plan.settings)):
            np.add.at(total[setting], status[:, setting], whole_s[:, setting])
            taken = alone & (status[:, setting] == Status.TAKEN)
            total[setting, ALONE] += whole_s[taken, setting].sum()
            shares.append(total[setting] / (plan.counts_s * self.layout.partitions))
        return [Found(self.number, setting, one, *self._lost(setting)) for setting, one in enumerate(shares)]

    def _lost(self, setting: int) -> tuple[Floats, int, Ints, float, float]:
        lost, tail_s, with_tail = np.zeros(CAUSES), 0.0, 0.0
        times: list[tuple[float, int]] = []
        for part in self.losses if self.history.number else ():
            for index in np.flatnonzero(part.setting == setting):
                at, seconds, cause = float(part.at_s[index]), float(part.seconds[index]), int(part.cause[index])
                partitions = self._partitions(int(part.script[index]))
                # what was played and then found to reach into something else does not count
                if not len(partitions):
                    continue
                weight = self._weight(partitions, at)
                lost[cause] += weight
                if np.isfinite(seconds):
                    tail_s += weight * seconds
                    with_tail += weight
                times.append((at, cause))
        if self.plan.biased is not None:
            times = []
        by_cause = [_events([at for at, of in times if of == cause]) for cause in range(CAUSES)]
        return lost, _events([at for at, _ in times]), np.array(by_cause), tail_s, with_tail

    def _weight(self, partitions: Ints, at_s: float) -> float:
        plan = self.plan
        if plan.biased is None:
            return float(len(partitions))
        replicas = self.layout.replicas[partitions]
        weights = rare_losses.weights(
            plan.faults, plan.stretch, plan.biased, self.history, self.cluster, replicas, at_s
        )
        return float(weights.sum())


def _events(times: Sequence[float]) -> int:
    """How many there are at these moments, those that are close to each other counted once."""
    return 1 + int((np.diff(np.sort(times)) > EVENT_S).sum()) if times else 0


def play(plan: Plan, numbers: Sequence[int]) -> list[Found]:
    """Runs some replications; what each gives does not depend on which others are run with it.

    Args:
        plan: what.
        numbers: which.
    """
    every = [_Replication(plan, number) for number in numbers]
    while left := [one for one in every if not one.done]:
        parts = [one.pending for one in left]
        patterns = left[0].layout.patterns
        outcome = partition_machine.run(
            Scripts.joined(parts), patterns, plan.settings, plan.timing, end_s=plan.counts_s
        )
        first = np.cumsum([0, *(part.number for part in parts)])
        lost = outcome.losses
        for one, begin, end in zip(left, first[:-1], first[1:], strict=True):
            own = (lost.script >= begin) & (lost.script < end)
            losses = Losses(
                lost.script[own] - begin, lost.setting[own], lost.at_s[own], lost.seconds[own], lost.cause[own]
            )
            one.take(outcome.spent_s[begin:end], outcome.ended_s[begin:end], losses)
    return [found for one in every for found in one.found()]
