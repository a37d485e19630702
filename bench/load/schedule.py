"""Open-loop schedule: the intended time of each record, fixed before the first one is sent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    # executors of a Spark cluster import this module, and need not have the packages that read plans
    from bench.plan.scenario import BenchArm, LatencyPlan, OutagePlan

# Phase of a load whose records are not evaluated.
BACKGROUND = "background"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slot:
    """Period in which one arm is driven at a fixed rate."""

    phase: str  # ``latency``, ``outage`` or ``background``
    block: int  # number of the block; negative for warm-up
    arm: str  # id of the arm
    topic: str  # topic of the arm in this period
    start_ns: int  # start, from the start of the load
    duration_ns: int  # length
    discard_ns: int  # length of the head whose records don't count
    rate_per_s: float  # intended records per second
    first_seq: int  # sequence number of its first record; unique for the arm within the load
    jitter: int = -1  # seed of the random shift of each record within its step; -1 for no shift

    @property
    def count(self) -> int:
        """Number of intended records."""
        return record_count(self.duration_ns, self.rate_per_s)

    @property
    def intended(self) -> Ints:
        """Intended time of each record from the start of the load; ascending."""
        return self.start_ns + _due(self.count, self.rate_per_s, self.jitter)

    @property
    def counts(self) -> npt.NDArray[np.bool_]:
        """Whether each record counts (it is in a measured block and after the discarded head)."""
        return np.asarray((self.intended - self.start_ns >= self.discard_ns) & (self.block >= 0))

    def share(self, task: int, tasks: int) -> range:
        """Return the indices of the records that task ``task`` of ``tasks`` sends."""
        return range(task, self.count, tasks)


# of the pieces of a block, all arms but the first find the current one here
@lru_cache(maxsize=16)
def _due(number: int, rate_per_s: float, jitter: int) -> Ints:
    """Return the times of a schedule from its start, each with a seeded shift within its step; their order is kept."""
    # as pyhooks.workload.pacing.due_ns, in one step
    steps = np.rint(np.arange(number, dtype=np.int64) * NS / rate_per_s).astype(np.int64)
    if jitter >= 0:
        steps += np.floor(np.random.default_rng(jitter).random(number) * NS / rate_per_s).astype(np.int64)
    steps.flags.writeable = False
    return steps


def record_count(duration_ns: int, rate_per_s: float) -> int:
    """Return how many records are to be sent in ``duration_ns``."""
    return max(1, round(duration_ns * rate_per_s / NS))


def topics_of_block(arms: Sequence[BenchArm], topics: Sequence[str], block: int) -> dict[str, str]:
    """Return the topic of each arm, by its id, in a block; from block to block the arms move on by one topic."""
    return {arm.id: topics[(place + block) % len(topics)] for place, arm in enumerate(arms)}


@lru_cache(maxsize=16)
def _williams(size: int) -> tuple[tuple[int, ...], ...]:
    """Return orders in which each of ``size`` items is in each position, and directly after each other, equally often.

    Source: E. J. Williams, Australian Journal of Scientific Research A 2 (1949), 149.
    """
    ups, downs = range(1, size), range(size - 1, 0, -1)
    first = [0, *(at for pair in zip(ups, downs, strict=True) for at in pair)][:size]
    rows = [tuple((at + shift) % size for at in first) for shift in range(size)]
    return tuple(rows if size % 2 == 0 else rows + [row[::-1] for row in rows])


def round_order(arms: Sequence[str], number: int, seed: str) -> list[str]:
    """Return the order of the arms in a round of pieces: random, but balanced over every few rounds.

    Random orders alone would leave the balance to chance, and every run of a plan, which has one seed, would have the
    same imbalance: a late position, or the arm before, would pass for a difference between arms.
    """
    square = _williams(len(arms))
    generator = random.Random(f"{seed}/turns/{number // len(square)}")  # noqa: S311 - a seeded plan, not a secret
    names, rows = list(arms), list(square)
    generator.shuffle(names)
    generator.shuffle(rows)
    return [names[at] for at in rows[number % len(square)]]


def block_slots(
    plan: LatencyPlan,
    topics: Mapping[str, str],
    blocks: Sequence[int],
    *,
    rate_per_s: float,
    seed: str,
) -> tuple[Slot, ...]:
    """Return the slots of consecutive blocks: in each an opening of every arm, then pieces in a new order each round.

    All arms of a block have the same rates and sending times within a piece. Blocks with negative numbers are warm-up.
    """
    slots: list[Slot] = []
    start_ns, first_seq = 0, 0
    for block in blocks:
        generator = random.Random(f"{seed}/{block}")  # noqa: S311 - a seeded plan, not a secret
        for piece in range(-1, plan.pieces):
            order, jitter = list(topics), generator.getrandbits(62)
            generator.shuffle(order)
            if piece >= 0:
                order = round_order(list(topics), block * plan.pieces + piece, seed)
            length_ns = round((plan.opening_s if piece < 0 else plan.piece_s) * NS)
            for arm in order:
                slots.append(
                    Slot(
                        phase="latency",
                        block=block,
                        arm=arm,
                        topic=topics[arm],
                        start_ns=start_ns,
                        duration_ns=length_ns,
                        discard_ns=length_ns + NS if piece < 0 else round(plan.discard_s * NS),
                        rate_per_s=rate_per_s,
                        first_seq=first_seq,
                        jitter=jitter,
                    )
                )
                start_ns += length_ns
            first_seq += record_count(length_ns, rate_per_s)
    return tuple(slots)


def steady_slot(arm: str, topic: str, *, rate_per_s: float, seconds: float) -> Slot:
    """Return the slot of one arm alone at one rate, in which every record counts."""
    return Slot("latency", 0, arm, topic, 0, round(seconds * NS), 0, rate_per_s, 0)


def outage_slots(plan: OutagePlan, arms: Sequence[BenchArm]) -> tuple[Slot, ...]:
    """Return the slots of the outage phase: every arm over the whole length, shifted so that arms take turns."""
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


def background_slots(plan: OutagePlan, arms: Sequence[BenchArm], rate_per_s: float) -> tuple[Slot, ...]:
    """Return the slots of a second load of each topic over the whole outage phase, in a phase of its own."""
    return tuple(
        replace(slot, phase=BACKGROUND, arm=f"{slot.topic}-{BACKGROUND}", rate_per_s=rate_per_s)
        for slot in outage_slots(plan, arms)
    )


def length_ns(slots: Sequence[Slot]) -> int:
    """Return the time from the start of the load to the end of its last slot."""
    return max(slot.start_ns + slot.duration_ns for slot in slots)


def by_arm(slots: Sequence[Slot]) -> dict[str, tuple[Slot, ...]]:
    """Return the slots of each arm in their order."""
    arms = dict.fromkeys(slot.arm for slot in slots)
    return {arm: tuple(slot for slot in slots if slot.arm == arm) for arm in arms}
