"""What lowering R of a topic gives up, in numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhooks.kafka import gate
from pyhooks.placement.topic_observation import ObservedTopic


@dataclass(frozen=True)
class RecordCounts:
    """Records of a partition; None where its leader did not report an offset."""

    acknowledged: int | None  # records below the high watermark
    hidden: int | None  # records above it, which only the racks of the in-sync replicas have


@dataclass(frozen=True)
class LoweringCost:
    """What a topic gives up at once."""

    topic: str  # its name
    old: int  # R in force before
    new: int  # R after
    partitions: int  # number of partitions
    rejecting: int  # partitions that reject acks=all now, and would not any more
    # partitions whose ISR spans fewer racks than R. Of these, the controller forgets which other replicas have the
    # acknowledged records.
    short: int
    still_rejecting: int  # partitions that would still reject, because of M or because even fewer racks are in sync
    one_rack: int  # partitions whose in-sync replicas are in one rack, which would acknowledge alone
    racks: tuple[str, ...]  # names of these racks
    acknowledged: int | None  # records acknowledged before in the partitions of ``short``; None if not known for all
    # records that only one rack has and that would count as acknowledged at once; None if not known for all
    hidden: int | None


def lowering_cost(
    observed: ObservedTopic, old: int, new: int, records: Mapping[tuple[str, int], RecordCounts]
) -> LoweringCost:
    """Return what lowering R of a topic gives up.

    A partition that is missing in ``records`` has unknown counts.
    """
    rejecting = set(observed.rejects(old))
    still = set(observed.rejects(new))
    short = [
        partition
        for partition in observed.partitions
        if len(gate.racks_of(partition.isr, observed.racks))
        < gate.capped(old, len(partition.replicas) - len(partition.adding))
    ]
    alone = [partition for partition in observed.in_one_rack() if partition not in still]
    unknown = RecordCounts(None, None)

    def total(counts: list[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def counts_of(topic: str, number: int) -> RecordCounts:
        return records.get((topic, number), unknown)

    return LoweringCost(
        topic=observed.name,
        old=old,
        new=new,
        partitions=len(observed.partitions),
        rejecting=len(rejecting - still),
        short=len(short),
        still_rejecting=len(still),
        one_rack=len(alone),
        racks=tuple(sorted({rack for one in alone for rack in gate.racks_of(one.isr, observed.racks)})),
        acknowledged=total([counts_of(one.topic, one.number).acknowledged for one in short]),
        hidden=total([counts_of(one.topic, one.number).hidden for one in alone]),
    )


def cost_lines(cost: LoweringCost) -> tuple[str, ...]:
    """Return the cost in sentences."""

    def records(count: int | None) -> str:
        return "an unknown number of records" if count is None else f"{count:,} record{'s' * (count != 1)}"

    racks = ", ".join(cost.racks)
    lines = [
        f"{cost.topic}: min.insync.racks {cost.old} -> {cost.new}; of {cost.partitions}"
        f" partition{'s' * (cost.partitions != 1)}, {cost.rejecting} reject acks=all now and would accept it again"
    ]
    if cost.one_rack:
        lines.append(
            f"  one rack alone ({racks}) would acknowledge in {cost.one_rack}: at once {records(cost.hidden)} that only"
            " it has, and everything from then on"
        )
    if cost.short:
        lines.append(
            f"  in {cost.short} the controller forgets which other replicas have what was acknowledged before:"
            f" {records(cost.acknowledged)}"
        )
    if cost.still_rejecting:
        lines.append(f"  {cost.still_rejecting} would still reject acks=all: too few replicas or racks are in sync")
    if not cost.rejecting:
        lines.append("  no partition rejects acks=all now, so lowering R has no benefit at the moment")
    return tuple(lines)
