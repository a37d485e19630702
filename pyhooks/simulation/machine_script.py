"""What is given to the machine of ``pyhooks.simulation.partition_machine`` and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pyhooks.kafka import gate
from pyhooks.placement.exact_model import Elr

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NEVER = math.inf


class Code(IntEnum):
    """What happens to the brokers of some replicas at a moment. By those up to ``RACK_DISKS`` they go away."""

    CUT = 0  # from everybody; they go on by themselves
    STOP = 1  # cleanly
    CRASH = 2  # of the process; what is written stays
    POWER = 3  # what is not flushed is lost
    DISK = 4  # destroyed, one by one
    RACK_DISKS = 5  # destroyed, with all of the rack
    BACK = 6
    SLOW = 7  # as followers
    FAST = 8


class Status(IntEnum):
    """What acks=all meets. Where nobody leads, it is told as what there is would be if it could be led."""

    TAKEN = 0
    WAITS = 1  # for a member of the ISR, or a leader, that is not known to be away yet
    NOBODY = 2  # no replica is there
    HOLDER = 3  # enough are there, but none that may lead
    REPLICAS = 4
    RACKS = 5


STATUSES = len(Status)
ALONE, LOWERED = STATUSES, STATUSES + 1  # further columns: taken by one rack alone; R is lowered
COLUMNS = STATUSES + 2


class Cause(IntEnum):
    """Why acknowledged records are lost."""

    BROKERS = 0  # disks one by one
    ONE_RACK = 1  # a rack was destroyed, and disks one by one elsewhere, if any
    MORE_RACKS = 2
    UNFLUSHED = 3  # nothing was destroyed but what was not flushed
    FORGOTTEN = 4  # a replica has them, and another was elected


CAUSES = len(Cause)


@dataclass(frozen=True)
class Setting:
    """What is judged.

    Attributes:
        min_replicas: M as configured.
        min_racks: R as configured.
        elr: who is remembered as fit to lead, as in ``pyhooks.placement.exact_model``.
        lower_s: the operator lowers R so long after writes began to be refused for want of racks; ``NEVER`` if not.
    """

    min_replicas: int
    min_racks: int
    elr: Elr = "racks"
    lower_s: float = NEVER


@dataclass(frozen=True)
class Timing:
    """How long things take, in seconds.

    Attributes:
        session_s: until a broker that is away is fenced.
        lag_s: a follower that is behind for longer is taken out of the ISR when its leader looks next.
        flush_s: what is older than this is on disk.
        catch_up: of the time that it was away or behind, a replica takes this part to catch up.
        copy_s: to copy everything to an empty disk.
    """

    session_s: float
    lag_s: float
    flush_s: float
    catch_up: float
    copy_s: float

    def looks_s(self, after_s: Floats) -> Floats:
        """When leaders look next after each moment: each half of ``lag_s``."""
        every = self.lag_s / 2
        found: Floats = (np.floor(after_s / every) + 1) * every
        return found


@dataclass(frozen=True)
class Scripts:
    """What happens, for each script in the order of time.

    Attributes:
        first: where each script begins in the other three, and at the end their length; at least one event each.
        at_s: when.
        code: see ``Code``.
        replicas: of which replicas, as bits.
        pattern: in which racks the replicas of each script are: an index into the patterns.
    """

    first: Ints
    at_s: Floats
    code: Ints
    replicas: Ints
    pattern: Ints

    @property
    def number(self) -> int:
        """Of scripts."""
        return len(self.pattern)

    @staticmethod
    def joined(parts: Sequence[Scripts]) -> Scripts:
        """All of them, one after the other."""
        offsets = np.cumsum([0, *(int(part.first[-1]) for part in parts)])
        firsts = [part.first[:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
        return Scripts(
            np.concatenate([*firsts, offsets[-1:]]),
            np.concatenate([part.at_s for part in parts]),
            np.concatenate([part.code for part in parts]),
            np.concatenate([part.replicas for part in parts]),
            np.concatenate([part.pattern for part in parts]),
        )


@dataclass(frozen=True)
class Losses:
    """Acknowledged records that were lost, each entry an election that lost some. Arrays of the same length.

    Attributes:
        script: which.
        setting: under which.
        at_s: when it was lost for good.
        seconds: how many seconds of acknowledged writes; infinite where all was lost.
        cause: see ``Cause``.
    """

    script: Ints
    setting: Ints
    at_s: Floats
    seconds: Floats
    cause: Ints


@dataclass(frozen=True)
class Outcome:
    """What the machine found.

    Attributes:
        spent_s: shape (scripts, settings, ``COLUMNS``): seconds from the first event to the last, within the horizon.
        ended_s: shape (scripts,): when the last setting had all replicas in the ISR, and R restored.
        losses: all, within the horizon.
    """

    spent_s: Floats
    ended_s: Floats
    losses: Losses


@dataclass(frozen=True)
class Seen:
    """A stretch of time in one script under one setting, for replays."""

    script: int
    setting: int
    from_s: float
    to_s: float
    status: Status
    leader: int
    isr: int
    elr: int


@lru_cache
def tables(replicas: int) -> tuple[npt.NDArray[np.bool_], Ints, Ints]:
    """For each set of replicas: its members, how many, and the first of them (-1 of none)."""
    sets = np.arange(1 << replicas, dtype=np.int64)
    members = (sets[:, None] >> np.arange(replicas)) & 1 == 1
    first = np.where(sets > 0, members.argmax(axis=1), -1)
    return members, members.sum(axis=1).astype(np.int64), first.astype(np.int64)


def racks_of_sets(patterns: Sequence[Sequence[int]]) -> Ints:
    """How many racks each set of replicas is in.

    Args:
        patterns: for each, the rack of each replica; all of the same length.

    Returns:
        Shape (patterns, sets).
    """
    members, _, _ = tables(len(patterns[0]))
    found = np.zeros((len(patterns), len(members)), dtype=np.int64)
    for row, pattern in enumerate(patterns):
        for rack in set(pattern):
            found[row] += members[:, [one == rack for one in pattern]].any(axis=1)
    return found


def met(
    *,
    leader: Ints,
    isr: Ints,
    up: Ints,
    slow: Ints,
    pattern: Ints,
    need_m: Ints,
    need_r: Ints,
    count: Ints,
    racks: Ints,
) -> Ints:
    """What acks=all meets (``Status``) in states of partitions; all but the tables have one entry a state.

    Args:
        leader: the replica that leads as the controller has it, -1 for none.
        isr: its members, as bits.
        up: replicas that are there.
        slow: followers that lag behind.
        pattern: which row of ``racks``.
        need_m: M as it is applied.
        need_r: R as it is applied.
        count: how many replicas each set has, of ``tables``.
        racks: ``racks_of_sets``.
    """
    led = leader >= 0
    bit = np.where(led, np.left_shift(1, np.maximum(leader, 0)), 0)
    there = np.where(led, isr, up)
    silent = isr & (~up | (slow & ~bit))
    status = np.where(led & (silent == 0), Status.TAKEN, np.where(led, Status.WAITS, Status.HOLDER))
    status[racks[pattern, there] < need_r] = Status.RACKS
    status[count[there] < need_m] = Status.REPLICAS
    status[led & ((bit & up) == 0)] = Status.WAITS
    status[~led & (up == 0)] = Status.NOBODY
    return status.astype(np.int64)


def whole(patterns: Sequence[Sequence[int]], settings: Sequence[Setting]) -> Ints:
    """The status while all replicas are in the ISR; shape (patterns, settings)."""
    found = np.zeros((len(patterns), len(settings)), dtype=np.int64)
    for row, pattern in enumerate(patterns):
        for column, one in enumerate(settings):
            limits = gate.limits(one.min_replicas, one.min_racks, len(pattern))
            enough = len(set(pattern)) >= limits.racks
            found[row, column] = Status.TAKEN if enough else Status.RACKS
    return found
