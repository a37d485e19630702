"""What a round of the tests on destroyed racks does: which rack leaves, which one is destroyed, and when; all drawn."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.core.errors import RackgateError

# Racks by their places in a drawn order: each can lose any one rack and still hold what two racks had.
SHAPES = ("xxy", "xyy", "xyz", "xyx", "xy")
# Faults that leave the disks of a rack intact. A killed broker leaves the ELR, but the controller remembers it.
KEEPING_DISKS = ("kill", "cut", "pause")
# From a moment that no ISR notices to one at which every ISR has shrunk (sessions last 9 s).
MOST_AWAY_S = 25.0
MOST_DOWN_S = 15.0
OVERLAPPING, AFTERWARDS = 0.55, 0.75
# Of one that is to come back with something missing, so that every ISR has shrunk.
LEAST_BEHIND_S = 18.0
# between two acknowledgements of a producer that goes on
GAP_S = 1.0
NS = 1_000_000_000
# of a round, so that a person can type one
SEEDS = 1_000_000


@dataclass(frozen=True)
class Round:
    """One topic, and what becomes of the racks that it is placed in.

    Attributes:
        seed: by which it is drawn.
        replicas: broker ids; the first leads.
        min_replicas: of the topic.
        wiped: the rack whose disks go.
        down_s: how long it is away.
        leaves: the rack that leaves before, or empty.
        how: the fault by which it leaves, or empty.
        away_s: how long it is away before the other one is destroyed, or before it comes back.
        overlaps: it is still away when the other one is destroyed.
        first_back: of two that are away, whether the one that left first comes back first.
        behind: it comes back, but parted from the other one, so that it lacks what was written meanwhile when the other
            one is destroyed.
    """

    seed: int
    replicas: tuple[int, ...]
    min_replicas: int
    wiped: str
    down_s: float
    leaves: str = ""
    how: str = ""
    away_s: float = 0.0
    overlaps: bool = False
    first_back: bool = False
    behind: bool = False

    @property
    def topic(self) -> str:
        """Its own."""
        return f"round-{self.seed}"

    @property
    def text(self) -> str:
        """In one line."""
        placed = f"{self.topic} on {', '.join(map(str, self.replicas))} with M={self.min_replicas}"
        destroyed = f"{self.wiped} is destroyed for {self.down_s:.1f} s"
        if not self.leaves:
            return f"{placed}: {destroyed}"
        left = f"{self.leaves} leaves ({self.how}) for {self.away_s:.1f} s"
        if self.behind:
            return f"{placed}: {left} and comes back, parted from {self.wiped}; behind as it is, {destroyed}"
        if not self.overlaps:
            return f"{placed}: {left} and comes back, then {destroyed}"
        return (
            f"{placed}: {left}, meanwhile {destroyed}; {self.leaves if self.first_back else self.wiped} is back first"
        )


def seeds(seed: int, count: int, racks: Mapping[str, Sequence[int]]) -> list[int]:
    """The seeds of the rounds of a run, each another one; the first one's round has two racks away at a time.

    Args:
        seed: of the run.
        count: how many rounds.
        racks: rack to its brokers.

    Raises:
        RackgateError: there are fewer than two racks.
    """
    choice = random.Random(f"{seed}")  # noqa: S311 - no secret
    found: list[int] = []
    while len(found) < count:
        one = choice.randrange(SEEDS)
        if one not in found and (found or draw(one, racks).overlaps):
            found.append(one)
    return found


def behind_seed(seed: int) -> int:
    """That of the round of a run in which a rack is back and behind; rounds of such seeds are of no other kind.

    Args:
        seed: of the run.
    """
    return SEEDS + random.Random(f"catching up {seed}").randrange(SEEDS)  # noqa: S311 - no secret


def draw(seed: int, racks: Mapping[str, Sequence[int]]) -> Round:
    """A round, decided by its own seed alone.

    Args:
        seed: of the round.
        racks: rack to its brokers.

    Raises:
        RackgateError: there are fewer than two racks.
    """
    if len(racks) < 2:
        raise RackgateError("a rack can't be destroyed without loss where there is no other one")
    choice = random.Random(f"round {seed}")  # noqa: S311 - no secret
    while True:
        replicas = _placed(choice, racks)
        own = sorted({rack for rack, brokers in racks.items() if set(brokers) & set(replicas)})
        # with a third rack what waits for who is behind would be in two racks already
        if seed < SEEDS or len(own) == 2:
            break
    wiped, leaves = choice.sample(own, 2)
    down_s, away_s = choice.uniform(0, MOST_DOWN_S), choice.uniform(0, MOST_AWAY_S)
    min_replicas, first_back = choice.choice((1, 2)), choice.random() < 0.5
    if seed >= SEEDS:
        # one that is paused does not go on leading, though it can't reach anybody
        away_s = choice.uniform(LEAST_BEHIND_S, MOST_AWAY_S)
        return Round(seed, replicas, min_replicas, wiped, down_s, leaves, "pause", away_s, behind=True)
    what = choice.random()
    if what < OVERLAPPING:
        how = choice.choice(KEEPING_DISKS)
        return Round(seed, replicas, min_replicas, wiped, down_s, leaves, how, away_s, True, first_back)
    if what < AFTERWARDS:
        # it is in sync again before the next fault, so that may hit the same rack
        leaves = choice.choice(own)
        return Round(seed, replicas, min_replicas, wiped, down_s, leaves, choice.choice(KEEPING_DISKS), away_s)
    return Round(seed, replicas, min_replicas, wiped, down_s)


def _placed(choice: random.Random, racks: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Replicas in at least two racks, in a shape that these racks have room for."""
    while True:
        shape = choice.choice(SHAPES)
        names = dict(zip("xyz", choice.sample(sorted(racks), len(racks)), strict=False))
        left = {rack: choice.sample(sorted(brokers), len(brokers)) for rack, brokers in racks.items()}
        if set(shape) <= set(names) and all(shape.count(place) <= len(left[names[place]]) for place in set(shape)):
            return tuple(left[names[place]].pop() for place in shape)


def goes_on_s(acks_ns: Iterable[int], gap_s: float = GAP_S) -> float:
    """For how long acknowledgements have followed one another, up to the last of them, in seconds.

    Args:
        acks_ns: when each was there, monotonic, in any order.
        gap_s: how far two of them may be apart.
    """
    marks = sorted(acks_ns)
    since_ns = marks[0] if marks else 0
    for one, two in pairwise(marks):
        if two - one > gap_s * NS:
            since_ns = two
    return (marks[-1] - since_ns) / NS if marks else 0.0
