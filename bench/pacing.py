"""The open-loop schedule: when each record is meant to be sent, fixed before the first one is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.scenarios import Arm, Scenario
from pyhooks.workload.pacing import NS, due_ns


@dataclass(frozen=True)
class Slot:
    """A stretch of time in which one arm is driven at a fixed rate.

    Attributes:
        phase: ``latency`` or ``outage``.
        block: number of the block; negative for a warm-up round.
        arm: id of the arm.
        topic: the arm's topic.
        start_ns: from the start of the phase.
        duration_ns: length.
        discard_ns: records intended before this much has passed don't count.
        rate_per_s: intended records per second.
        first_seq: sequence number of its first record; unique for the arm within the phase.
    """

    phase: str
    block: int
    arm: str
    topic: str
    start_ns: int
    duration_ns: int
    discard_ns: int
    rate_per_s: float
    first_seq: int

    @property
    def count(self) -> int:
        """Number of intended records."""
        return count(self.duration_ns, self.rate_per_s)

    def intended_ns(self, index: int) -> int:
        """When record ``index`` of the slot is meant to be sent, from the start of the phase."""
        return self.start_ns + due_ns(index, self.rate_per_s)

    def measured(self, index: int) -> bool:
        """Whether record ``index`` counts (it is in a block and behind the discarded head)."""
        return self.block >= 0 and self.intended_ns(index) - self.start_ns >= self.discard_ns

    def share(self, task: int, tasks: int) -> range:
        """Indices of the records that task ``task`` of ``tasks`` sends."""
        return range(task, self.count, tasks)


def count(duration_ns: int, rate_per_s: float) -> int:
    """How many records are meant to be sent in ``duration_ns``."""
    return max(1, round(duration_ns * rate_per_s / NS))


def latency_slots(scenario: Scenario) -> tuple[Slot, ...]:
    """The latency phase: in every round all arms in random order, each in a slot of its own."""
    plan = scenario.latency
    order = random.Random(scenario.seed)  # noqa: S311 - a seeded plan, not a secret
    slot_ns, gap_ns = round(plan.slot_s * NS), round(plan.gap_s * NS)
    slots: list[Slot] = []
    first_seq = 0
    for block in range(-plan.warmup_rounds, plan.blocks):
        arms = list(scenario.latency_arms)
        order.shuffle(arms)
        rate_per_s = plan.rate_per_s if block >= 0 else plan.warmup_rate_per_s
        for arm in arms:
            slots.append(
                Slot(
                    phase="latency",
                    block=block,
                    arm=arm.id,
                    topic=arm.topic,
                    start_ns=len(slots) * (slot_ns + gap_ns),
                    duration_ns=slot_ns,
                    discard_ns=round(plan.discard_s * NS),
                    rate_per_s=rate_per_s,
                    first_seq=first_seq,
                )
            )
        first_seq += count(slot_ns, rate_per_s)
    return tuple(slots)


def outage_slots(scenario: Scenario) -> tuple[Slot, ...]:
    """The outage phase: every arm over the whole length, shifted so that they don't send together."""
    plan = scenario.outage
    arms = scenario.outage_arms
    return tuple(
        Slot(
            phase="outage",
            block=0,
            arm=arm.id,
            topic=arm.topic,
            start_ns=round(number * NS / plan.rate_per_s / len(arms)),
            duration_ns=round(plan.total_s * NS),
            discard_ns=round(plan.discard_s * NS),
            rate_per_s=plan.rate_per_s,
            first_seq=0,
        )
        for number, arm in enumerate(arms)
    )


def length_ns(slots: tuple[Slot, ...]) -> int:
    """From the start of the phase to the end of its last slot."""
    return max(slot.start_ns + slot.duration_ns for slot in slots)


def by_arm(slots: tuple[Slot, ...], arms: tuple[Arm, ...]) -> Iterator[tuple[Arm, tuple[Slot, ...]]]:
    """The slots of each arm in their order; arms without slots are left out."""
    for arm in arms:
        own = tuple(slot for slot in slots if slot.arm == arm.id)
        if own:
            yield arm, own
