"""Exact availability and durability of one partition with a placement, M and R: sums over all broker and rack failures.

RF is the replication factor, M is ``min.insync.replicas``, R is ``min.insync.racks``.

Model
-----

*Writes, at a random moment.* Each broker is unavailable with probability p and each rack with probability q, all
independently. A replica is available if its broker and its rack are. The ISR is the set of available replicas, and one
of them leads. The gate is ``pyhooks.kafka.gate``, with M and R capped by the replication factor. A produce request with
acks=all is rejected for the first of these reasons: no replica is available (no leader), the ISR has fewer than M
members (too few replicas, which Kafka reports first), or its members are in fewer than R racks. One rack acknowledges
alone if the write is not rejected and the whole ISR is in one rack.

*Acknowledged records.* acks=all waits for the whole ISR, so an acknowledged record is on all members of an ISR that
passes the gate. In the window after that, each replica is destroyed with probability d and each rack with probability
D, all independently. The records are lost if all replicas that may be elected are destroyed: one that returns empty is
elected in the end, and the others truncate their logs (kip/KIP-1290.md). The replicas that may be elected, ISR and ELR
together, are the last ISR that was sufficient for the controller. Sufficient means:

- ``elr="racks"``: at least M members in at least R racks; rack-aware ELR, as in the patch series.
- ``elr="replicas"``: at least M members; ``eligible.leader.replicas.version`` 1 of stock Kafka, whatever the gate is.
- ``elr="off"``: one member; without ELR.

Which sufficient ISR was the last depends on earlier events, so there are three figures:

- *worst*: the sufficient ISR that is most likely to be destroyed completely. No history of ISRs gives more.
- *usual*: the ISR of a random moment as above, given that it is sufficient; it does not change in the window.
- *whole*: the ISR is all replicas. If racks are never destroyed, this is d to the power of RF.

Closed forms that follow: with R = 1 writes continue without any RF - M brokers. A record survives the loss of any
max(M, R) - 1 brokers and of any R - 1 racks, at least.

Limits of the model
-------------------

- No time: replicas join and leave the ISR at once. No record is copied within the window, neither to a replica that
  returns nor to a replacement, so losses are overestimated rather than underestimated.
- No wait for a member of the last ISR. After all replicas were unavailable, those that return first may not belong to
  it and must wait for a member. With 2 M > RF there is no such wait. Otherwise its share of time would have to be added
  to "no leader": RF - 1 times as much with M = 1; as much with R = 1 where the outages of two racks overlap; almost
  none with R = 2 there (``tests/unit/placement/test_event_chain.py`` solves the Markov chain).
- No unclean leader election (disabled by default), no acks=0 or 1, no R lowered during an outage, no controllers.
- No correlated failures other than those of a rack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyhooks.kafka import gate
from pyhooks.placement.failure_rates import FailureProbabilities
from pyhooks.placement.replica_placement import Placement

Elr = Literal["racks", "replicas", "off"]
ELRS: tuple[Elr, ...] = ("racks", "replicas", "off")


@dataclass(frozen=True)
class RejectedShares:
    """Share of time in which acks=all is rejected, by cause; the causes exclude each other."""

    no_leader: float  # no replica is available
    replicas: float  # too few replicas are available: NotEnoughReplicasException
    racks: float  # enough replicas are available, but in too few racks: NotEnoughRacksException

    @property
    def total(self) -> float:
        """By any cause."""
        return self.no_leader + self.replicas + self.racks


@dataclass(frozen=True)
class LossProbability:
    """Probability that all replicas of a set are destroyed within the window, by cause."""

    brokers: float = 0.0  # only individual brokers, and no rack with a replica of the set
    one_rack: float = 0.0  # one of those racks, and individual brokers in the others, if there are any
    more_racks: float = 0.0  # several of those racks

    @property
    def total(self) -> float:
        """By any cause."""
        return self.brokers + self.one_rack + self.more_racks

    def plus(self, other: LossProbability, times: float) -> LossProbability:
        """Return the sum of this and ``times`` the other."""
        return LossProbability(
            self.brokers + times * other.brokers,
            self.one_rack + times * other.one_rack,
            self.more_racks + times * other.more_racks,
        )


@dataclass(frozen=True)
class IsrGroup:
    """All ISRs of the same size in the same number of racks; the gate treats them alike."""

    members: int  # number of ISR members
    racks: int  # number of their racks
    probability: float  # probability that the ISR is in this cell
    lost: LossProbability  # probability that the ISR is in this cell and is then destroyed completely
    worst: LossProbability  # highest probability with which one of these ISRs is destroyed completely
    worst_set: Placement  # the ISR with this probability


@dataclass(frozen=True)
class Evaluation:
    """Availability and durability of a placement with M and R."""

    placement: Placement
    limits: gate.Limits  # effective M and R
    # whether writes are accepted if all replicas are available. Otherwise all are rejected, and no record can be lost
    writable: bool
    rejected: RejectedShares  # share of time in which writes are rejected
    one_rack_alone: float  # share of time in which writes are accepted and the ISR is in one rack
    usual: LossProbability  # loss of acknowledged records, see the module's docstring
    worst: LossProbability  # likewise
    whole: LossProbability  # likewise
    # the sufficient ISR that is most likely to be destroyed completely; None if there is none
    worst_set: Placement | None
    # how many arbitrary brokers may be unavailable while writes continue; -1 if all writes are rejected
    writes_without_brokers: int
    writes_without_racks: int  # how many arbitrary racks may be unavailable, likewise
    outlives_brokers: int  # how many arbitrary brokers may be destroyed without loss; -1 if nothing is acknowledged
    outlives_racks: int  # how many arbitrary racks may be destroyed, and no broker elsewhere, likewise


def isr_groups(placement: Placement, probabilities: FailureProbabilities) -> tuple[IsrGroup, ...]:
    """Return all possible ISRs of a placement, from none to all replicas, grouped by member and rack count.

    Replicas in one rack are interchangeable, so the enumeration is over the number of available replicas in each rack:
    at most 2 to the power of RF outcomes, each with its exact probability.
    """
    groups: dict[tuple[int, int], IsrGroup] = {}
    rack_probabilities = [_availability(count, probabilities) for count in placement.counts]
    for available in itertools.product(*(range(count + 1) for count in placement.counts)):
        probability = math.prod(
            probabilities_of_rack[count]
            for probabilities_of_rack, count in zip(rack_probabilities, available, strict=True)
        )
        isr = Placement.of(dict(zip(placement.racks, available, strict=True)))
        lost = destruction_probability(isr, probabilities)
        key = (isr.replicas, len(isr.racks))
        previous = groups.get(key, IsrGroup(*key, 0.0, LossProbability(), lost, isr))
        is_worst = lost.total > previous.worst.total
        groups[key] = IsrGroup(
            *key,
            previous.probability + probability,
            previous.lost.plus(lost, probability),
            lost if is_worst else previous.worst,
            isr if is_worst else previous.worst_set,
        )
    return tuple(groups[key] for key in sorted(groups))


def _availability(count: int, probabilities: FailureProbabilities) -> list[float]:
    """Return the probabilities that 0, 1, … of a rack's replicas are available."""
    broker_down, rack_up = probabilities.broker_away, 1 - probabilities.rack_away
    shares = [
        rack_up * math.comb(count, up) * (1 - broker_down) ** up * broker_down ** (count - up)
        for up in range(count + 1)
    ]
    shares[0] += probabilities.rack_away
    return shares


def destruction_probability(replicas: Placement, probabilities: FailureProbabilities) -> LossProbability:
    """Return the probability that all these replicas are destroyed within the window; it is 1 for an empty set."""
    broker, rack = probabilities.broker_destroyed, probabilities.rack_destroyed
    no_rack, one_rack, more_racks = 1.0, 0.0, 0.0
    for count in replicas.counts:
        brokers_only = (1 - rack) * broker**count
        no_rack, one_rack, more_racks = (
            no_rack * brokers_only,
            one_rack * brokers_only + no_rack * rack,
            more_racks * (brokers_only + rack) + one_rack * rack,
        )
    return LossProbability(no_rack, one_rack, more_racks)


def evaluate(
    placement: Placement, *, min_replicas: int, min_racks: int, probabilities: FailureProbabilities, elr: Elr = "racks"
) -> Evaluation:
    """Evaluate M and R on a placement.

    Configured M and R are capped by the replication factor. For ``elr`` see the module's docstring.
    """
    return evaluate_groups(
        placement, isr_groups(placement, probabilities), min_replicas=min_replicas, min_racks=min_racks, elr=elr
    )


def evaluate_groups(
    placement: Placement, groups: tuple[IsrGroup, ...], *, min_replicas: int, min_racks: int, elr: Elr = "racks"
) -> Evaluation:
    """Evaluate M and R as ``evaluate`` does, with groups that many settings of a placement share."""
    limits = gate.limits(min_replicas, min_racks, placement.replicas)
    accepted = [group for group in groups if _passes(limits, group.members, group.racks)]
    rejected = [group for group in groups if group not in accepted]
    writable = bool(accepted)
    # if no write is ever acknowledged, no acknowledged record can be lost
    sufficient = {"racks": limits, "replicas": gate.Limits(limits.replicas, 1), "off": gate.Limits(1, 1)}[elr]
    sufficient_groups = [group for group in groups if writable and _passes(sufficient, group.members, group.racks)]
    share = sum(group.probability for group in sufficient_groups)
    usual = LossProbability()
    if share:
        for group in sufficient_groups:
            usual = usual.plus(group.lost, 1 / share)
    worst = max(sufficient_groups, key=lambda group: group.worst.total, default=None)
    return Evaluation(
        placement=placement,
        limits=limits,
        writable=writable,
        rejected=_by_cause(rejected, limits),
        one_rack_alone=sum(group.probability for group in accepted if group.racks == 1),
        usual=usual,
        worst=worst.worst if worst else LossProbability(),
        whole=groups[-1].worst if writable else LossProbability(),
        worst_set=worst.worst_set if worst else None,
        writes_without_brokers=min(placement.replicas - group.members for group in rejected) - 1,
        writes_without_racks=next(
            unavailable for unavailable, writable_without in _without_racks(placement, limits) if not writable_without
        )
        - 1,
        outlives_brokers=min((group.members for group in sufficient_groups), default=0) - 1,
        outlives_racks=min((group.racks for group in sufficient_groups), default=0) - 1,
    )


def _passes(limits: gate.Limits, members: int, racks: int) -> bool:
    names = frozenset(str(number) for number in range(racks))
    return gate.GateDecision(members, names, limits.replicas, limits.racks).passes


def _by_cause(rejected: list[IsrGroup], limits: gate.Limits) -> RejectedShares:
    return RejectedShares(
        no_leader=sum(group.probability for group in rejected if not group.members),
        replicas=sum(group.probability for group in rejected if 0 < group.members < limits.replicas),
        racks=sum(group.probability for group in rejected if group.members >= limits.replicas),
    )


def _without_racks(placement: Placement, limits: gate.Limits) -> Iterator[tuple[int, bool]]:
    """Yield for 0, 1, … unavailable racks, those with the most replicas first, whether writes continue."""
    counts = sorted(placement.counts, reverse=True)
    for unavailable in range(len(counts) + 1):
        yield unavailable, _passes(limits, sum(counts[unavailable:]), len(counts) - unavailable)
