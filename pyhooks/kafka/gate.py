"""Gate for acks=all: decide whether an ISR has enough replicas in enough racks. Pure functions.

The rules are those of the patch series (kip/KIP-1290.md). min.insync.replicas (M) and min.insync.racks (R) are both
capped at the number of replicas. For R, replicas that a reassignment is adding do not count until it completes. Only
the ISR counts. A broker without a rack, or unknown to the cluster, adds no rack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

# Configuration names, which are also keys of ``settings`` events.
MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS = "min.insync.replicas", "min.insync.racks"
# Reported in metrics only, never enforced.
MIN_INSYNC_RACKS_OBSERVE = "min.insync.racks.observe"
# If true, a replica without all acknowledged records can be elected.
UNCLEAN_ELECTION = "unclean.leader.election.enable"
# Rack of a broker without one. ``racks_of`` does not count it as a rack.
NO_RACK = ""


@dataclass(frozen=True)
class GateDecision:
    """Decision of the gate for an ISR."""

    replicas: int  # number of ISR members
    racks: frozenset[str]  # their distinct racks
    need_replicas: int  # effective M, at least 1
    need_racks: int  # effective R, at least 1

    @property
    def enough_replicas(self) -> bool:
        """Whether M is met; an empty ISR never meets it."""
        return self.replicas >= self.need_replicas

    @property
    def enough_racks(self) -> bool:
        """Whether R is met; an effective R of 1 is always met, even by brokers without racks."""
        return self.need_racks <= 1 or len(self.racks) >= self.need_racks

    @property
    def passes(self) -> bool:
        """Whether both are met."""
        return self.enough_replicas and self.enough_racks


def capped(minimum: int, replicas: int) -> int:
    """Return the effective M or R of a partition with ``replicas`` replicas: capped at that number, at least 1."""
    return max(1, min(minimum, replicas))


def racks_of(members: Iterable[int], racks: Mapping[int, str | None]) -> frozenset[str]:
    """Return the distinct racks of brokers; a broker that is unknown or has no rack adds none.

    Args:
        members: broker ids.
        racks: broker id to rack, None or blank for a broker without one; unknown brokers are missing.
    """
    known = map(racks.get, members)
    return frozenset(rack for rack in known if rack is not None and rack.strip())


@dataclass(frozen=True)
class Limits:
    """Effective M and R of a partition: at least 1 and at most its number of replicas."""

    replicas: int  # effective M
    racks: int  # effective R

    def decide(self, isr: Iterable[int], racks: Mapping[int, str | None]) -> GateDecision:
        """Return the gate's decision for an ISR; arguments are those of the function ``decide``."""
        members = frozenset(isr)
        return GateDecision(len(members), racks_of(members, racks), self.replicas, self.racks)


def limits(min_replicas: int, min_racks: int, replicas: int, adding: int = 0) -> Limits:
    """Return the effective M and R; arguments are those of ``decide``."""
    return Limits(capped(min_replicas, replicas), capped(min_racks, replicas - adding))


def decide(
    isr: Collection[int],
    racks: Mapping[int, str | None],
    *,
    min_replicas: int,
    min_racks: int,
    replicas: int,
    adding: int = 0,
) -> GateDecision:
    """Return the gate's decision for a committed ISR. Callers check for a leader, and whether R is enforced.

    Args:
        isr: broker ids of the committed ISR.
        racks: broker id to rack, None or blank for a broker without one; unknown brokers are missing.
        min_replicas: configured M.
        min_racks: configured R; 1 where R is not enforced.
        replicas: number of replicas of the partition, including those that a reassignment is adding.
        adding: how many of them a reassignment is adding.
    """
    return limits(min_replicas, min_racks, replicas, adding).decide(isr, racks)


class GateInput(Protocol):
    """State of a partition that the gate depends on."""

    @property
    def leader(self) -> int:
        """Broker id, or -1."""

    @property
    def isr(self) -> Collection[int]:
        """Broker ids of the committed ISR."""

    @property
    def replicas(self) -> Collection[int]:
        """Broker ids of the assignment, including replicas being added."""

    @property
    def adding(self) -> Collection[int]:
        """Broker ids of the replicas that a reassignment is adding."""

    @property
    def racks(self) -> Mapping[int, str | None]:
        """Broker id to rack."""


@dataclass(frozen=True)
class Requirement:
    """Configured minimums of a topic."""

    replicas: int  # min.insync.replicas
    racks: int  # min.insync.racks

    def effective(self, state: GateInput) -> Limits:
        """Return the minimums as they apply to a partition in this state."""
        return limits(self.replicas, self.racks, len(state.replicas), len(state.adding))

    def decide(self, state: GateInput) -> GateDecision:
        """Return the gate's decision for the ISR of a partition in this state."""
        return self.effective(state).decide(state.isr, state.racks)

    def met_by(self, state: GateInput) -> bool:
        """Return whether a partition in this state acknowledges acks=all writes."""
        return state.leader >= 0 and self.decide(state).passes
