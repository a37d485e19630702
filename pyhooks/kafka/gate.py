"""The gate: whether an ISR has enough replicas in enough racks to take a record with acks=all. Pure.

It is that of the patch series (kip/KIP-1290.md): min.insync.replicas (M) and min.insync.racks (R) are both capped by
the number of replicas. For R, replicas that a reassignment adds are left out until it ends. Only the ISR counts. A
broker that has no rack, or that the cluster does not know, counts for no rack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

# Rack of a broker without one. It is not a rack: ``racks_of`` leaves it out.
NO_RACK = ""


@dataclass(frozen=True)
class Answer:
    """What the gate says of an ISR.

    Attributes:
        replicas: members of the ISR.
        racks: the distinct racks that they are in.
        need_replicas: M as it is applied, at least 1.
        need_racks: R as it is applied, at least 1.
    """

    replicas: int
    racks: frozenset[str]
    need_replicas: int
    need_racks: int

    @property
    def enough_replicas(self) -> bool:
        """Whether M is met; by no member at all it never is."""
        return self.replicas >= self.need_replicas

    @property
    def enough_racks(self) -> bool:
        """Whether R is met; where one rack is enough, none is looked at."""
        return self.need_racks <= 1 or len(self.racks) >= self.need_racks

    @property
    def passes(self) -> bool:
        """Whether both are met."""
        return self.enough_replicas and self.enough_racks


def capped(minimum: int, replicas: int) -> int:
    """M or R as it is applied to a partition with so many replicas, so that one value can serve all topics."""
    return max(1, min(minimum, replicas))


def racks_of(members: Iterable[int], racks: Mapping[int, str | None]) -> frozenset[str]:
    """The distinct racks of brokers; one without a rack, or that is unknown, adds none.

    Args:
        members: broker ids.
        racks: broker id to rack, None or blank for a broker without one; a broker that is not in it is unknown.
    """
    known = map(racks.get, members)
    return frozenset(rack for rack in known if rack is not None and rack.strip())


@dataclass(frozen=True)
class Limits:
    """What an ISR must have, M and R as they are applied, so both at least 1 and at most the number of replicas.

    Attributes:
        replicas: M.
        racks: R.
    """

    replicas: int
    racks: int

    def ask(self, isr: Iterable[int], racks: Mapping[int, str | None]) -> Answer:
        """What the gate says of an ISR; arguments are those of ``ask``."""
        members = frozenset(isr)
        return Answer(len(members), racks_of(members, racks), self.replicas, self.racks)


def limits(min_replicas: int, min_racks: int, replicas: int, adding: int = 0) -> Limits:
    """M and R as they are applied; arguments are those of ``ask``."""
    return Limits(capped(min_replicas, replicas), capped(min_racks, replicas - adding))


def ask(
    isr: Collection[int],
    racks: Mapping[int, str | None],
    *,
    min_replicas: int,
    min_racks: int,
    replicas: int,
    adding: int = 0,
) -> Answer:
    """What the gate says of a committed ISR; whether there is a leader, and whether R is in force, is not its matter.

    Args:
        isr: broker ids of the committed ISR.
        racks: broker id to rack, None or blank for a broker without one; a broker that is not in it is unknown.
        min_replicas: M as configured.
        min_racks: R as configured; 1 where it is not in force.
        replicas: how many replicas the partition has, those included that a reassignment is adding.
        adding: how many of them a reassignment is adding.
    """
    return limits(min_replicas, min_racks, replicas, adding).ask(isr, racks)


class PartitionState(Protocol):
    """State of a partition as far as the gate depends on it."""

    @property
    def leader(self) -> int:
        """Broker id, or -1."""

    @property
    def isr(self) -> Collection[int]:
        """Broker ids of the committed ISR."""

    @property
    def replicas(self) -> Collection[int]:
        """Broker ids of the assignment, including adding replicas."""

    @property
    def adding(self) -> Collection[int]:
        """Broker ids of the replicas that a reassignment adds."""

    @property
    def racks(self) -> Mapping[int, str | None]:
        """Broker id to rack."""


@dataclass(frozen=True)
class Requirement:
    """Configured minima of a topic.

    Attributes:
        replicas: min.insync.replicas.
        racks: min.insync.racks.
    """

    replicas: int
    racks: int

    def effective(self, state: PartitionState) -> Limits:
        """Return the minima as they apply to a partition in this state."""
        return limits(self.replicas, self.racks, len(state.replicas), len(state.adding))

    def ask(self, state: PartitionState) -> Answer:
        """Return what the gate decides for the ISR of a partition in this state."""
        return self.effective(state).ask(state.isr, state.racks)

    def met_by(self, state: PartitionState) -> bool:
        """Return whether a partition in this state acknowledges."""
        return state.leader >= 0 and self.ask(state).passes
