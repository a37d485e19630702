"""The states of a cluster in which arms are compared: a closed list, and what brings a topic into each of them.

A topic's leader is its first replica and stays it. Followers leave the ISR by being killed; the one that is slow is
slowed by a fixed round trip, far below what would put it out of the ISR (``replica.lag.time.max.ms``, 30 s).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

SLOW_RTT_MS = 20.0


@dataclass(frozen=True)
class State:
    """What is asked of a topic's replicas.

    Attributes:
        text: for people.
        isr: size of the ISR; None stands for all replicas, -1 for all but one.
        racks: in which the ISR is; None for any number.
        slow: whether a follower within the ISR is slow.
    """

    text: str
    isr: int | None = None
    racks: int | None = None
    slow: bool = False


STATES: Mapping[str, State] = {
    "healthy": State("all replicas in sync"),
    "slow-follower": State(f"one follower {SLOW_RTT_MS:g} ms further away, still in sync", slow=True),
    "broker-gone": State("one broker gone", isr=-1),
    "isr-3-in-2-racks": State("ISR of 3 in 2 racks", isr=3, racks=2),
    "isr-2-in-2-racks": State("ISR of 2 in 2 racks", isr=2, racks=2),
    "isr-2-in-1-rack": State("ISR of 2 in 1 rack", isr=2, racks=1),
    "two-data-centres": State("two data centres, all replicas in sync", racks=2),
}


@dataclass(frozen=True)
class Reached:
    """A state as brokers.

    Attributes:
        isr: ids of those in the ISR, in the order of the replicas; the first leads.
        dead: ids of the replicas that are killed.
        slow: ids of those that are slowed.
    """

    isr: tuple[int, ...]
    dead: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()


def reach(word: str, replicas: Sequence[int], racks: Mapping[int, str]) -> Reached:
    """What brings a topic into a state: of all ways the one that keeps the replicas that are named first.

    Args:
        word: of ``STATES``.
        replicas: broker ids in the order of the assignment.
        racks: of these brokers.

    Raises:
        ValueError: these replicas can't be in it.
    """
    state = STATES[word]
    size = len(replicas) if state.isr is None else len(replicas) - 1 if state.isr == -1 else state.isr
    leader, *followers = replicas
    for chosen in combinations(followers, size - 1) if size <= len(replicas) else ():
        isr = (leader, *chosen)
        if state.racks in (None, len({racks[broker] for broker in isr})):
            dead = tuple(broker for broker in replicas if broker not in isr)
            return Reached(isr, dead, isr[-1:] if state.slow else ())
    where = ", ".join(f"{broker} in {racks[broker]}" for broker in replicas)
    raise ValueError(f"{state.text}: not to be had with replicas {where}")
