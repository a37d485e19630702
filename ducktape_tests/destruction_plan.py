"""Random plan of a round with a destroyed rack: which rack leaves, which one is destroyed, and when."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.core.errors import RackgateError

# Racks by position in a random order. Each placement can lose any one rack and keep the records that two racks had.
SHAPES = ("xxy", "xyy", "xyz", "xyx", "xy")
# Faults that leave the disks of a rack intact. A killed broker leaves the ELR, but the controller remembers it.
KEEPING_DISKS = ("kill", "cut", "pause")
# From too short for any ISR to change to long enough for every ISR to shrink (sessions last 9 s).
MAX_OUTAGE_S = 25.0
MAX_DOWN_S = 15.0
OVERLAPPING, AFTERWARDS = 0.55, 0.75
# Minimum outage of a rack that returns with records missing: every ISR must have shrunk.
MIN_BEHIND_OUTAGE_S = 18.0
# maximum time between two acknowledgements of a producer without a gap
GAP_S = 1.0
NS = 1_000_000_000
# upper bound for seeds of rounds, so that they are short enough to type
SEEDS = 1_000_000


@dataclass(frozen=True)
class DestructionRound:
    """One topic, and the faults of its racks.

    Attributes:
        replicas: broker ids; the first leads.
        leaves: the rack that leaves before, or empty.
        how: the fault by which it leaves, or empty.
        outage_s: how long it is unavailable before the other rack is destroyed, or before it returns.
        overlaps: whether it is still unavailable when the other rack is destroyed.
        first_back: if two racks are unavailable, whether the one that left first returns first.
        behind: whether it returns while cut off from the other rack. It then lacks the records written meanwhile when
            the other rack is destroyed.
    """

    seed: int
    replicas: tuple[int, ...]
    min_replicas: int
    wiped: str
    down_s: float
    leaves: str = ""
    how: str = ""
    outage_s: float = 0.0
    overlaps: bool = False
    first_back: bool = False
    behind: bool = False

    @property
    def topic(self) -> str:
        """Name of its topic."""
        return f"round-{self.seed}"

    @property
    def text(self) -> str:
        """Description in one line."""
        placed = f"{self.topic} on {', '.join(map(str, self.replicas))} with M={self.min_replicas}"
        destroyed = f"{self.wiped} is destroyed for {self.down_s:.1f} s"
        if not self.leaves:
            return f"{placed}: {destroyed}"
        leaves = f"{self.leaves} leaves ({self.how}) for {self.outage_s:.1f} s"
        if self.behind:
            return f"{placed}: {leaves} and returns, cut off from {self.wiped}; before it catches up, {destroyed}"
        if not self.overlaps:
            return f"{placed}: {leaves} and returns, then {destroyed}"
        return (
            f"{placed}: {leaves}, meanwhile {destroyed}; {self.leaves if self.first_back else self.wiped} returns first"
        )


def seeds(seed: int, count: int, racks: Mapping[str, Sequence[int]]) -> list[int]:
    """Return distinct seeds for ``count`` rounds of a run; in the first round two racks are unavailable together."""
    choice = random.Random(f"{seed}")  # noqa: S311 - no secret
    drawn: list[int] = []
    while len(drawn) < count:
        candidate = choice.randrange(SEEDS)
        if candidate not in drawn and (drawn or draw(candidate, racks).overlaps):
            drawn.append(candidate)
    return drawn


def behind_seed(seed: int) -> int:
    """Return the seed of a run's round in which a rack returns behind; its range gives only such rounds."""
    return SEEDS + random.Random(f"catching up {seed}").randrange(SEEDS)  # noqa: S311 - no secret


def draw(seed: int, racks: Mapping[str, Sequence[int]]) -> DestructionRound:
    """Return the round that belongs to a seed.

    Raises:
        RackgateError: there are fewer than two racks.
    """
    if len(racks) < 2:
        raise RackgateError("the destruction of the only rack always loses records")
    choice = random.Random(f"round {seed}")  # noqa: S311 - no secret
    while True:
        replicas = _placed(choice, racks)
        used_racks = sorted({rack for rack, brokers in racks.items() if set(brokers) & set(replicas)})
        # With a third rack, the records that wait for the lagging replica would already be in two racks.
        if seed < SEEDS or len(used_racks) == 2:
            break
    wiped, leaves = choice.sample(used_racks, 2)
    down_s, outage_s = choice.uniform(0, MAX_DOWN_S), choice.uniform(0, MAX_OUTAGE_S)
    min_replicas, first_back = choice.choice((1, 2)), choice.random() < 0.5
    if seed >= SEEDS:
        # A paused leader stops leading; one that is cut off would lead on although it reaches no other broker.
        outage_s = choice.uniform(MIN_BEHIND_OUTAGE_S, MAX_OUTAGE_S)
        return DestructionRound(seed, replicas, min_replicas, wiped, down_s, leaves, "pause", outage_s, behind=True)
    kind = choice.random()
    if kind < OVERLAPPING:
        how = choice.choice(KEEPING_DISKS)
        return DestructionRound(seed, replicas, min_replicas, wiped, down_s, leaves, how, outage_s, True, first_back)
    if kind < AFTERWARDS:
        # It is in sync again before the next fault, so both faults may hit the same rack.
        leaves = choice.choice(used_racks)
        return DestructionRound(
            seed, replicas, min_replicas, wiped, down_s, leaves, choice.choice(KEEPING_DISKS), outage_s
        )
    return DestructionRound(seed, replicas, min_replicas, wiped, down_s)


def _placed(choice: random.Random, racks: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return replicas in at least two racks, in a shape that fits these racks."""
    while True:
        shape = choice.choice(SHAPES)
        names = dict(zip("xyz", choice.sample(sorted(racks), len(racks)), strict=False))
        free = {rack: choice.sample(sorted(brokers), len(brokers)) for rack, brokers in racks.items()}
        if set(shape) <= set(names) and all(shape.count(place) <= len(free[names[place]]) for place in set(shape)):
            return tuple(free[names[place]].pop() for place in shape)


def gapless_s(acks_ns: Iterable[int], gap_s: float = GAP_S) -> float:
    """Return the seconds without a gap between acknowledgements, up to the last one; times are in any order."""
    times = sorted(acks_ns)
    since_ns = times[0] if times else 0
    for previous, following in pairwise(times):
        if following - previous > gap_s * NS:
            since_ns = following
    return (times[-1] - since_ns) / NS if times else 0.0
