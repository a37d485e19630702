"""What one placement gives with M and R: exact sums over all failures of brokers and racks, for one partition.

What is modelled
----------------

*Writes, at a random moment.* Each broker is away with probability p and each rack with probability q, all of them
independently. A replica is there if its broker and its rack are. The ISR is the replicas that are there, and one of
them leads. The gate is ``pyhooks.kafka.gate``, with M and R capped by the replication factor. A produce with acks=all
is refused because nobody is there (no leader), else because the ISR has fewer than M members (too few replicas, which
Kafka tells first), else because these are in fewer than R racks. One rack acknowledges alone where it is not refused
and the whole ISR is in one rack.

*Acknowledged records.* acks=all waits for the whole ISR, so a record that is acknowledged is on all members of an ISR
that passes the gate. In the window after that each replica is destroyed with probability d and each rack with
probability D, all independently. The records are lost if all that may be elected are destroyed: who returns empty is
elected in the end, and the others truncate what they have (kip/KIP-1290.md). Who may be elected is the last ISR that
was enough for the controller, ISR and ELR together:

- ``elr="racks"``: enough is at least M members in at least R racks; rack-aware ELR, as in the patch series.
- ``elr="replicas"``: at least M members; ``eligible.leader.replicas.version`` 1 of stock Kafka, whatever the gate is.
- ``elr="off"``: one member; without ELR.

Which of these sets it is depends on what happened before, so there are three figures:

- *worst*: whichever of them is the likeliest to be destroyed whole. No history of ISRs gives more.
- *usual*: the ISR is that of a random moment as above, given that it is enough; it does not change in the window.
- *whole*: the ISR is all replicas. Without racks to be destroyed this is d to the power of RF.

Closed forms that come out: writes go on without any RF - M brokers where R is 1; a record outlives the loss of any
max(M, R) - 1 brokers and any R - 1 racks, at least.

What is left out
----------------

- Time. Who comes back is in the ISR, and who leaves is out of it, at once; nobody copies a record within the window,
  neither one that was away nor one that was replaced, so losses are told too high rather than too low.
- The wait for a holder: where all replicas were away, those that come back first may be others than the last ISR, and
  must wait for one of it. There is none where 2 M > RF. Else it comes after "no leader" and would have to be added:
  RF - 1 times as much with M = 1, as much where the outages of two racks overlap and R is 1, next to none with R = 2
  there (``tests/test_model_chain.py`` solves the chain of events).
- Unclean leader election (off, as by default), acks=0 and 1, an R that is lowered in an outage, controllers.
- Failures that make each other likelier, but for those of one rack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyhooks.kafka import gate
from pyhooks.placement.failure_rates import Chances
from pyhooks.placement.replica_placement import Placement

Elr = Literal["racks", "replicas", "off"]
ELRS: tuple[Elr, ...] = ("racks", "replicas", "off")


@dataclass(frozen=True)
class Refused:
    """The share of time in which acks=all is refused, by cause; the causes exclude each other.

    Attributes:
        no_leader: no replica is there.
        replicas: too few are: NotEnoughReplicasException.
        racks: enough are, in too few racks: NotEnoughRacksException.
    """

    no_leader: float
    replicas: float
    racks: float

    @property
    def total(self) -> float:
        """By any cause."""
        return self.no_leader + self.replicas + self.racks


@dataclass(frozen=True)
class Lost:
    """The probability that all of a set of replicas are destroyed within the window, by what did it.

    Attributes:
        brokers: brokers one by one, no rack that has a replica of the set.
        one_rack: one of those racks was destroyed, and brokers one by one elsewhere, if there are any.
        more_racks: several of them were.
    """

    brokers: float = 0.0
    one_rack: float = 0.0
    more_racks: float = 0.0

    @property
    def total(self) -> float:
        """By any cause."""
        return self.brokers + self.one_rack + self.more_racks

    def plus(self, other: Lost, times: float) -> Lost:
        """This, and another with a weight."""
        return Lost(
            self.brokers + times * other.brokers,
            self.one_rack + times * other.one_rack,
            self.more_racks + times * other.more_racks,
        )


@dataclass(frozen=True)
class Cell:
    """All ISRs of the same size in the same number of racks, which is all that the gate sees of them.

    Attributes:
        members: of the ISR.
        racks: that they are in.
        probability: that the ISR is one of them.
        lost: the probability that it is one of them and then destroyed whole.
        worst: the highest probability with which one of them is destroyed whole.
        worst_set: which one that is.
    """

    members: int
    racks: int
    probability: float
    lost: Lost
    worst: Lost
    worst_set: Placement


@dataclass(frozen=True)
class Weighed:
    """What M and R give on a placement.

    Attributes:
        placement: which.
        limits: M and R as they are applied.
        writable: writes are taken if all replicas are there. Else all are refused and nothing can be lost.
        refused: see ``Refused``.
        one_rack_alone: the share of time in which writes are taken and the ISR is in one rack.
        usual: loss of acknowledged records, as in the module.
        worst: the same.
        whole: the same.
        worst_set: the replicas that are the likeliest to hold acknowledged records alone; None if there are none.
        writes_without_brokers: so many brokers, any of them, may be away and writes go on; -1 if they never do.
        writes_without_racks: so many racks, any of them.
        outlives_brokers: so many brokers, any of them, may be destroyed without loss; -1 if nothing is acknowledged.
        outlives_racks: so many racks, any of them, and no broker elsewhere.
    """

    placement: Placement
    limits: gate.Limits
    writable: bool
    refused: Refused
    one_rack_alone: float
    usual: Lost
    worst: Lost
    whole: Lost
    worst_set: Placement | None
    writes_without_brokers: int
    writes_without_racks: int
    outlives_brokers: int
    outlives_racks: int


def cells(placement: Placement, chances: Chances) -> tuple[Cell, ...]:
    """All that can be there of a placement, the full one and none at all included, summed up by what the gate sees.

    Replicas of one rack are alike, so it goes through how many of each rack are there: at most 2 to the power of RF
    outcomes, each with its exact probability.
    """
    found: dict[tuple[int, int], Cell] = {}
    sizes = [_there(count, chances) for count in placement.counts]
    for present in itertools.product(*(range(count + 1) for count in placement.counts)):
        probability = math.prod(size[count] for size, count in zip(sizes, present, strict=True))
        isr = Placement.of(dict(zip(placement.racks, present, strict=True)))
        lost = destroyed(isr, chances)
        key = (isr.replicas, len(isr.racks))
        before = found.get(key, Cell(*key, 0.0, Lost(), lost, isr))
        worse = lost.total > before.worst.total
        found[key] = Cell(
            *key,
            before.probability + probability,
            before.lost.plus(lost, probability),
            lost if worse else before.worst,
            isr if worse else before.worst_set,
        )
    return tuple(found[key] for key in sorted(found))


def _there(count: int, chances: Chances) -> list[float]:
    """How likely it is that 0, 1, … of a rack's replicas are there."""
    p, rack = chances.broker_away, 1 - chances.rack_away
    shares = [rack * math.comb(count, there) * (1 - p) ** there * p ** (count - there) for there in range(count + 1)]
    shares[0] += chances.rack_away
    return shares


def destroyed(replicas: Placement, chances: Chances) -> Lost:
    """How likely it is that all of these replicas are destroyed within the window; of none at all it is certain."""
    d, rack = chances.broker_destroyed, chances.rack_destroyed
    none, one, more = 1.0, 0.0, 0.0
    for count in replicas.counts:
        singly = (1 - rack) * d**count
        none, one, more = none * singly, one * singly + none * rack, more * (singly + rack) + one * rack
    return Lost(none, one, more)


def weigh(placement: Placement, *, min_replicas: int, min_racks: int, chances: Chances, elr: Elr = "racks") -> Weighed:
    """What M and R give on a placement.

    Args:
        placement: of the partition.
        min_replicas: M as configured; capped by the replication factor.
        min_racks: R as configured; capped by the same.
        chances: of failures.
        elr: who is remembered as fit to lead, see the module.
    """
    return weigh_cells(placement, cells(placement, chances), min_replicas=min_replicas, min_racks=min_racks, elr=elr)


def weigh_cells(
    placement: Placement, seen: tuple[Cell, ...], *, min_replicas: int, min_racks: int, elr: Elr = "racks"
) -> Weighed:
    """As ``weigh``, for many settings on one placement; ``seen`` is that of ``cells``."""
    limits = gate.limits(min_replicas, min_racks, placement.replicas)
    taken = [cell for cell in seen if _passes(limits, cell.members, cell.racks)]
    refused = [cell for cell in seen if cell not in taken]
    writable = bool(taken)
    # without a record that is acknowledged there is none to lose
    remembered = {"racks": limits, "replicas": gate.Limits(limits.replicas, 1), "off": gate.Limits(1, 1)}[elr]
    holders = [cell for cell in seen if writable and _passes(remembered, cell.members, cell.racks)]
    share = sum(cell.probability for cell in holders)
    usual = Lost()
    if share:
        for cell in holders:
            usual = usual.plus(cell.lost, 1 / share)
    worst = max(holders, key=lambda cell: cell.worst.total, default=None)
    return Weighed(
        placement=placement,
        limits=limits,
        writable=writable,
        refused=_by_cause(refused, limits),
        one_rack_alone=sum(cell.probability for cell in taken if cell.racks == 1),
        usual=usual,
        worst=worst.worst if worst else Lost(),
        whole=seen[-1].worst if writable else Lost(),
        worst_set=worst.worst_set if worst else None,
        writes_without_brokers=min(placement.replicas - cell.members for cell in refused) - 1,
        writes_without_racks=next(lost for lost, ok in _without_racks(placement, limits) if not ok) - 1,
        outlives_brokers=min((cell.members for cell in holders), default=0) - 1,
        outlives_racks=min((cell.racks for cell in holders), default=0) - 1,
    )


def _passes(limits: gate.Limits, members: int, racks: int) -> bool:
    names = frozenset(str(number) for number in range(racks))
    return gate.Answer(members, names, limits.replicas, limits.racks).passes


def _by_cause(refused: list[Cell], limits: gate.Limits) -> Refused:
    return Refused(
        no_leader=sum(cell.probability for cell in refused if not cell.members),
        replicas=sum(cell.probability for cell in refused if 0 < cell.members < limits.replicas),
        racks=sum(cell.probability for cell in refused if cell.members >= limits.replicas),
    )


def _without_racks(placement: Placement, limits: gate.Limits) -> Iterator[tuple[int, bool]]:
    """For 0, 1, … racks that are away, those with the most replicas: whether writes go on."""
    counts = sorted(placement.counts, reverse=True)
    for lost in range(len(counts) + 1):
        yield lost, _passes(limits, sum(counts[lost:]), len(counts) - lost)
