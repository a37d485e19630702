"""Cluster states in which arms are compared, and the brokers to kill or slow down for each of them.

The first replica of a topic leads. Followers leave the ISR because they are killed; a slow follower's extra round trip
is far too short for that. In ``third-far`` all replicas are slow but the leader and one follower in another rack: a
leader that waited for M=2 replicas in two racks would never wait for a slow one, with M=3 it always would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

SLOW_RTT_MS = 20.0


@dataclass(frozen=True)
class ClusterState:
    """Requirements on a topic's replicas."""

    text: str  # display name
    isr: int | None = None  # size of the ISR; None for all replicas, -1 for all but one
    racks: int | None = None  # number of racks that the ISR spans; None for any number
    # number of replicas in the ISR that are not slow, the leader included; -1 for all but one, None for all. If it is
    # positive, these replicas span ``racks`` racks.
    near: int | None = None


STATES: Mapping[str, ClusterState] = {
    "healthy": ClusterState("all replicas in sync"),
    "slow-follower": ClusterState(f"one follower with {SLOW_RTT_MS:g} ms more round-trip time, still in sync", near=-1),
    "third-far": ClusterState(
        f"leader and one follower near, in two racks; all others with {SLOW_RTT_MS:g} ms more round-trip time, in sync",
        racks=2,
        near=2,
    ),
    "broker-gone": ClusterState("one broker killed", isr=-1),
    "isr-3-in-2-racks": ClusterState("ISR of 3 in 2 racks", isr=3, racks=2),
    "isr-2-in-2-racks": ClusterState("ISR of 2 in 2 racks", isr=2, racks=2),
    "isr-2-in-1-rack": ClusterState("ISR of 2 in 1 rack", isr=2, racks=1),
    "two-data-centres": ClusterState("two data centres, all replicas in sync", racks=2),
}


@dataclass(frozen=True)
class StateBrokers:
    """Brokers of a topic in a state."""

    isr: tuple[int, ...]  # ids of the brokers in the ISR, in the order of the replicas; the first leads
    dead: tuple[int, ...] = ()  # ids of the replicas that are killed
    slow: tuple[int, ...] = ()  # ids of the replicas that are slowed down


def brokers_in_state(name: str, replicas: Sequence[int], racks: Mapping[int, str]) -> StateBrokers:
    """Return the brokers that bring a topic into a state; of several choices, keep the replicas that are listed first.

    Raises:
        ValueError: these replicas can't be brought into the state.
    """
    state = STATES[name]
    size = len(replicas) if state.isr is None else len(replicas) - 1 if state.isr == -1 else state.isr
    leader, *followers = replicas
    for chosen in combinations(followers, size - 1) if size <= len(replicas) else ():
        isr = (leader, *chosen)
        slow = () if state.near is None else isr[state.near :]
        counted = isr[: state.near] if state.near is not None and state.near > 0 else isr
        if state.racks in (None, len({racks[broker] for broker in counted})):
            dead = tuple(broker for broker in replicas if broker not in isr)
            return StateBrokers(isr, dead, slow)
    places = ", ".join(f"{broker} in {racks[broker]}" for broker in replicas)
    raise ValueError(f"{state.text}: impossible with replicas {places}")
