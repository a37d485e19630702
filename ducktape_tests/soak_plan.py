"""Random steps of a soak: faults, changed settings, reassignments and rolling restarts, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

FAULTS = ("kill", "pause", "cut", "slow", "wipe")
# How long a fault lasts: too briefly for any ISR to change, or long enough for each.
BRIEF_S, LONG_S = (1.0, 4.0), (12.0, 30.0)
# Share of each kind of step; faults are most of them.
SHARES: Mapping[str, float] = {"fault": 0.7, "requirement": 0.12, "reassignment": 0.12, "rolling restart": 0.06}
# (M, R) of topics that change
NEEDS = ((1, 1), (2, 1), (2, 2), (3, 2), (2, 3))

Kind = Literal["fault", "requirement", "reassignment", "rolling restart"]


@dataclass(frozen=True)
class SoakStep:
    """One step.

    Attributes:
        fault: kind of fault; empty for other steps.
        rack: rack of the fault; empty if it is of a broker.
        broker: broker of the fault; 0 if it is of a rack.
        seconds: how long the fault lasts.
        topic: topic of a changed requirement or a reassignment.
        need: new M and R.
        replicas: new broker ids.
    """

    kind: Kind
    fault: str = ""
    rack: str = ""
    broker: int = 0
    seconds: float = 0.0
    topic: str = ""
    need: tuple[int, int] = (0, 0)
    replicas: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Description in a few words."""
        if self.kind == "fault":
            return f"{self.fault} {f'rack {self.rack}' if self.rack else f'broker {self.broker}'} {self.seconds:.1f} s"
        if self.kind == "requirement":
            return f"{self.topic}: M={self.need[0]}, R={self.need[1]}"
        return f"{self.topic} to {list(self.replicas)}" if self.kind == "reassignment" else self.kind


def steps(
    seed: int, racks: Mapping[str, Sequence[int]], topics: Mapping[str, Sequence[int]], changing: Sequence[str]
) -> Iterator[SoakStep]:
    """Yield steps without end; the same arguments give the same steps.

    Each kind of fault on a rack and on a broker comes once before any of them comes again.

    Args:
        seed: random seed.
        racks: rack to its broker ids.
        topics: topic to the broker ids of its replicas at the beginning.
        changing: topics whose M, R and replicas change.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    placed = {topic: tuple(replicas) for topic, replicas in topics.items()}
    waiting: list[tuple[str, bool]] = []
    while True:
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        if kind == "fault":
            waiting = waiting or rng.sample(
                [(fault, whole) for fault in FAULTS for whole in (True, False)], 2 * len(FAULTS)
            )
            fault, whole = waiting.pop()
            rack = rng.choice(sorted(racks))
            broker = rng.choice(sorted(racks[rack]))
            seconds = round(rng.uniform(*rng.choice((BRIEF_S, LONG_S))), 1)
            yield SoakStep("fault", fault, rack if whole else "", 0 if whole else broker, seconds)
        elif kind == "requirement":
            topic = rng.choice(changing)
            # With R above its number of racks a topic acknowledges nothing, and whether the last record before that
            # needed the new R would be unknown.
            needs = [need for need in NEEDS if need[1] <= _rack_count(placed[topic], racks)]
            yield SoakStep("requirement", topic=topic, need=rng.choice(needs))
        elif kind == "reassignment":
            topic = rng.choice(changing)
            placed[topic] = _moved(placed[topic], racks, rng)
            yield SoakStep("reassignment", topic=topic, replicas=placed[topic])
        else:
            yield SoakStep("rolling restart")


def _moved(replicas: Sequence[int], racks: Mapping[str, Sequence[int]], rng: random.Random) -> tuple[int, ...]:
    """Return as many other replicas in as many racks: fewer could not keep what more racks had to acknowledge."""
    brokers = sorted(broker for own in racks.values() for broker in own)
    while True:
        found = tuple(rng.sample(brokers, len(replicas)))
        if found != tuple(replicas) and _rack_count(found, racks) == _rack_count(replicas, racks):
            return found


def _rack_count(replicas: Sequence[int], racks: Mapping[str, Sequence[int]]) -> int:
    return sum(not {*replicas}.isdisjoint(own) for own in racks.values())
