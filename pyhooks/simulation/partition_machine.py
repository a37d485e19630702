"""State machine of partitions under faults: ISR, ELR, leader and acknowledged records of many partitions in lockstep.

A *script* is the sequence of events of the replicas of one partition, from the first disturbance until all replicas are
in the ISR again. The machine runs each script under each setting by the rules of kip/KIP-1290.md and KIP-966:

- An unavailable broker is fenced after its session, at once if it stops cleanly, and then leaves the ISR. A follower
  that has lagged for ``replica.lag.time.max.ms`` leaves at the next check of its leader (``isr-expiration`` of
  ReplicaManager, each half of that time), so after 1 to 1.5 times the limit. Writes wait until then. All leaders
  check at the same moments; spells begin at random moments, so the mean wait is right.
- A replica that leaves an ISR that is then too small for M (and R, with ``elr="racks"``) joins the ELR. A sufficient
  ISR clears the ELR. A replica that returns from an unclean end leaves ISR and ELR.
- The leader is a member of the ISR; if the ISR is empty, of the ELR; if that is empty too, the last known leader. With
  ``elr="off"`` the last member stays in the ISR and leads when it returns, whatever it has lost.
- With R above 1 and ``elr="racks"``, replicas that left ISR or ELR after an unclean end are in the last known ELR, the
  last leader first, until the ISR is sufficient. If ISR and ELR are empty, the first of them is awaited and elected. A
  replica with a replaced disk is removed when it returns, unless no other one is left. When R is lowered to 1 and
  there is no leader, only the first one stays.
- A replica that returns, or no longer lags, joins the ISR when it has caught up with a leader.
- An operator lowers R to 1 when writes have been rejected for missing racks for the reaction time, which clears the ELR
  of a sufficient ISR, and restores R the same time after all replicas are in the ISR.

Each replica has all acknowledged records up to some moment: an ISR member up to now, since acks=all waits for the whole
ISR; others up to when they left; after a power loss what was flushed; after the loss of a disk none. Records are lost
when a leader serves that lacks some.

Not modelled: topics (the operator acts on single partitions), other changes of M and R, reassignments, unclean
elections by an operator, preferred leader elections, unavailable controllers, acks=1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyhooks.kafka import gate
from pyhooks.placement.exact_model import Elr

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NEVER = math.inf


class EventCode(IntEnum):
    """Event of the brokers of some replicas. Codes up to ``RACK_DISKS`` make them unavailable."""

    CUT = 0  # partitioned from all others, and still running
    STOP = 1  # stopped cleanly
    CRASH = 2  # process killed; written data stays
    POWER = 3  # power loss; unflushed data is lost
    DISK = 4  # disk destroyed
    RACK_DISKS = 5  # disk destroyed with all others of the rack
    BACK = 6
    SLOW = 7  # no longer keeps up as a follower
    FAST = 8


class Status(IntEnum):
    """Result of an acks=all write; without a leader, the result if one of the available replicas led."""

    ACCEPTED = 0
    WAITS = 1  # for an unavailable or slow leader or ISR member that is not fenced or removed yet
    UNAVAILABLE = 2  # no replica is available
    NO_CANDIDATE = 3  # enough replicas are available, but none that may lead
    REPLICAS = 4  # too few replicas
    RACKS = 5  # too few racks


STATUSES = len(Status)
ALONE, LOWERED = STATUSES, STATUSES + 1  # further columns: accepted by one rack alone; R is lowered
COLUMNS = STATUSES + 2


class Cause(IntEnum):
    """Cause of a loss of acknowledged records."""

    BROKERS = 0  # individual disks were destroyed
    ONE_RACK = 1  # a rack was destroyed, and perhaps individual disks elsewhere
    MORE_RACKS = 2
    UNFLUSHED = 3  # nothing was destroyed, but unflushed data was lost
    FORGOTTEN = 4  # a replica has the records, and another was elected


@dataclass(frozen=True)
class GateSetting:
    """Setting to simulate: M and R as configured, and which replicas are eligible leaders."""

    min_replicas: int
    min_racks: int
    elr: Elr = "racks"
    lower_s: float = NEVER  # from the first rejection for missing racks until the operator lowers R


@dataclass(frozen=True)
class Timing:
    """Durations in seconds."""

    session_s: float  # until an unavailable broker is fenced
    lag_s: float  # maximum lag; the leader removes a slower follower from the ISR at its next check
    flush_s: float  # age at which written data has been flushed
    catch_up: float  # time to catch up, as a fraction of the time that a replica was unavailable or slow
    copy_s: float  # to fill an empty disk

    def next_check_s(self, after_s: Floats) -> Floats:
        """Return the times of the next lag checks of leaders, which are half of ``lag_s`` apart."""
        checks: Floats = (np.floor(after_s / (self.lag_s / 2)) + 1) * (self.lag_s / 2)
        return checks


@dataclass(frozen=True)
class Scripts:
    """Events of partitions, by script and then by time; each script has at least one event."""

    first: Ints  # index of the first event of each script, then the number of events
    at_s: Floats
    code: Ints
    replicas: Ints  # of each event, as bits
    pattern: Ints  # index into the patterns of each script


@dataclass(frozen=True)
class MachineResult:
    """Result of a run of the machine.

    ``losses`` are the elections that lost acknowledged records: ``script``, index of the ``setting``, ``at_s``,
    ``seconds`` of acknowledged writes that were lost (infinite if all were), ``cause``.
    """

    spent_s: Floats  # in each status, of shape (scripts, settings, ``COLUMNS``)
    ended_s: Floats  # when each script had ended under all settings, with R restored
    losses: pd.DataFrame


@lru_cache
def replica_sets(replicas: int) -> tuple[Bools, Ints, Ints]:
    """Return for each set of replicas its members, their number, and the first of them (-1 if empty)."""
    sets = np.arange(1 << replicas, dtype=np.int64)
    members = (sets[:, None] >> np.arange(replicas)) & 1 == 1
    first = np.where(sets > 0, members.argmax(axis=1), -1)
    return members, members.sum(axis=1).astype(np.int64), first.astype(np.int64)


def racks_of_sets(patterns: Sequence[Sequence[int]]) -> Ints:
    """Return the number of racks of each set of replicas, of shape (patterns, sets)."""
    members, _, _ = replica_sets(len(patterns[0]))
    racks = np.zeros((len(patterns), len(members)), dtype=np.int64)
    for row, pattern in enumerate(patterns):
        for rack in set(pattern):
            racks[row] += members[:, [other == rack for other in pattern]].any(axis=1)
    return racks


def bit_of(replica: Ints) -> Ints:
    """Return the set of one replica; the empty set for -1."""
    return np.where(replica >= 0, np.left_shift(1, np.maximum(replica, 0)), 0)


def healthy_status(patterns: Sequence[Sequence[int]], settings: Sequence[GateSetting]) -> Ints:
    """Return the status while all replicas are in the ISR, of shape (patterns, settings)."""
    min_racks = [gate.limits(setting.min_replicas, setting.min_racks, len(patterns[0])).racks for setting in settings]
    racks = np.array([len(set(pattern)) for pattern in patterns])
    return np.where(racks[:, None] >= np.array(min_racks), int(Status.ACCEPTED), int(Status.RACKS))


def run(
    scripts: Scripts,
    patterns: Sequence[Sequence[int]],
    settings: Sequence[GateSetting],
    timing: Timing,
    *,
    end_s: float,
    begin_s: float = 0.0,
    observe: Callable[[_Rows, Floats], None] | None = None,
) -> MachineResult:
    """Run each script under each setting until all replicas are in the ISR again.

    ``patterns`` have the rack of each replica, as small numbers. Times and losses count only from ``begin_s`` to
    ``end_s``. ``observe`` is called with the rows and the next moment of each before each step.

    Raises:
        RuntimeError: a script ends before all replicas are in the ISR.
    """
    rows = _Rows(scripts, patterns, settings, timing)
    shape = (len(scripts.pattern), len(settings))
    spent, ended = np.zeros((len(rows.row), COLUMNS)), np.zeros(len(rows.row))
    losses: list[pd.DataFrame] = []
    while len(rows.row):
        until = rows.next_moment()
        if (done := np.isinf(until)).any():
            if (rows.isr[done] != rows.full).any() or (rows.leader[done] < 0).any():
                raise RuntimeError("a script ends before all replicas are back")
            ended[rows.row[done]] = rows.now[done]
            rows.keep(~done)
            continue
        seconds = np.clip(until, begin_s, end_s) - np.clip(rows.now, begin_s, end_s)
        spent[rows.row, rows.status] += seconds
        spent[rows.row, ALONE] += seconds * (rows.alone & (rows.status == Status.ACCEPTED))
        spent[rows.row, LOWERED] += seconds * rows.lowered
        if observe is not None:
            observe(rows, until)
        losses += rows.step(until)
    lost = pd.concat(losses or [_losses(*(np.zeros(0, dtype=np.int64),) * 4)])
    lost = lost[(lost.at_s >= begin_s) & (lost.at_s < end_s)].sort_values(["row", "at_s"])
    lost.insert(0, "script", lost.row // len(settings))
    lost.insert(1, "setting", lost.row % len(settings))
    ended_s = ended.reshape(shape).max(axis=1, initial=-NEVER)
    return MachineResult(spent.reshape(*shape, COLUMNS), ended_s, lost.drop(columns="row"))


def _losses(row: Ints, at_s: Any, seconds: Any, cause: Ints) -> pd.DataFrame:
    return pd.DataFrame({"row": row, "at_s": at_s, "seconds": seconds, "cause": cause})


class _Rows:
    """Rows still running, one for each script and setting: arrays with one entry, or one entry of each replica, a row.

    Sets of replicas are bits. ``complete_until`` is the moment until which a replica has all acknowledged records,
    ``acked`` that of the last acknowledgement. ``last_known_order`` is the place of each replica in the last known ELR,
    the lowest first, ``NEVER`` if it is not in it. ``replaced`` are replicas with a new disk that are not back yet.
    """

    def __init__(
        self, scripts: Scripts, patterns: Sequence[Sequence[int]], settings: Sequence[GateSetting], timing: Timing
    ) -> None:
        replicas, number = len(patterns[0]), len(settings)
        self.timing, self.events = timing, scripts
        self.members, self.count, self.first = replica_sets(replicas)
        self.racks, self.rack_ids = racks_of_sets(patterns), np.array(patterns, dtype=np.int64)
        self.bits, self.full = np.left_shift(1, np.arange(replicas)), (1 << replicas) - 1
        self.serving_rows: list[Ints] = []
        shared = set(vars(self))
        rows = len(scripts.pattern) * number
        limits = [gate.limits(setting.min_replicas, setting.min_racks, replicas) for setting in settings]

        def of_setting(values: Sequence[Any], dtype: type) -> npt.NDArray[Any]:
            return np.tile(np.array(values, dtype=dtype), len(scripts.pattern))

        def filled(value: Any, dtype: type = np.int64) -> npt.NDArray[Any]:
            return np.full(rows, value, dtype=dtype)

        self.row = np.arange(rows)
        self.event_index, self.last_event = np.repeat(scripts.first[:-1], number), np.repeat(scripts.first[1:], number)
        self.now: Floats = scripts.at_s[self.event_index] if rows else np.zeros(0)
        self.pattern = np.repeat(scripts.pattern, number)
        self.min_replicas: Ints = of_setting([setting.replicas for setting in limits], int)
        self.min_racks: Ints = of_setting([setting.racks for setting in limits], int)
        self.configured_min_racks = self.min_racks.copy()
        self.elr_mode: Ints = of_setting(
            [{"off": 0, "replicas": 1, "racks": 2}[setting.elr] for setting in settings], int
        )
        self.lower_after: Floats = of_setting([setting.lower_s for setting in settings], float)
        self.operator_at: Floats = filled(NEVER, float)
        self.available, self.isr = filled(self.full), filled(self.full)
        self.slow, self.elr, self.unclean, self.replaced, self.leader = (filled(0) for _ in range(5))
        self.lowered: Bools = filled(False, bool)
        self.alone: Bools = self.racks[self.pattern, self.isr] == 1
        self.status: Ints = healthy_status(patterns, settings)[scripts.pattern].ravel()
        self.acked: Floats = np.where(self.status == Status.ACCEPTED, self.now, -NEVER)
        self.complete_until: Floats = np.repeat(self.now[:, None], replicas, axis=1)
        self.fence_at, self.caught_up_at, self.last_known_order = (np.full((rows, replicas), NEVER) for _ in range(3))
        self.copy_duration, self.behind_since = (np.zeros((rows, replicas)) for _ in range(2))
        self.destroyed = np.zeros((rows, replicas), dtype=np.int8)
        self.timer: Floats = filled(NEVER, float)
        self.event: Floats = filled(NEVER, float)
        self.per_row = set(vars(self)) - shared

    def keep(self, which: Bools) -> None:
        """Remove all other rows."""
        for name in self.per_row:
            setattr(self, name, getattr(self, name)[which])

    def next_moment(self) -> Floats:
        """Return when the next event or timer of each row is due."""
        self.timer = np.minimum(np.minimum(self.fence_at.min(axis=1), self.caught_up_at.min(axis=1)), self.operator_at)
        left = self.event_index < self.last_event
        self.event = np.where(left, self.events.at_s[np.where(left, self.event_index, 0)], NEVER)
        return np.minimum(self.timer, self.event)

    def step(self, until: Floats) -> list[pd.DataFrame]:
        """Advance each row to its next moment, apply what happens then, and return the losses."""
        accepted = self.status == Status.ACCEPTED
        self.acked[accepted] = until[accepted]
        self.complete_until = np.where(self.members[self.isr & self.available], until[:, None], self.complete_until)
        self.now = until
        self.serving_rows = []
        events = self.event <= self.timer
        self._apply_events(np.flatnonzero(events))
        self._apply_timers(np.flatnonzero(~events))
        losses = self._lose(np.unique(np.concatenate(self.serving_rows))) if self.serving_rows else []
        self._update_status()
        return losses

    def _apply_events(self, rows: Ints) -> None:
        codes, sets = self.events.code[self.event_index[rows]], self.events.replicas[self.event_index[rows]]
        self.event_index[rows] += 1
        apply = {EventCode.BACK: self._return, EventCode.SLOW: self._slow_down, EventCode.FAST: self._speed_up}
        for code in np.unique(codes):
            with_code = codes == code
            if code <= EventCode.RACK_DISKS:
                self._fail(rows[with_code], sets[with_code], EventCode(code))
            else:
                apply[EventCode(code)](rows[with_code], sets[with_code])

    def _fail(self, rows: Ints, sets: Ints, code: EventCode) -> None:
        now, hit = self.now[rows, None], self.members[sets]
        if code >= EventCode.CRASH:
            self.unclean[rows] |= sets
        if code == EventCode.POWER:
            flushed = np.minimum(self.complete_until[rows], now - self.timing.flush_s)
            self.complete_until[rows] = np.where(hit, flushed, self.complete_until[rows])
        elif code in (EventCode.DISK, EventCode.RACK_DISKS):
            self.complete_until[rows] = np.where(hit, -NEVER, self.complete_until[rows])
            self.replaced[rows] |= sets
            worse = 2 if code == EventCode.RACK_DISKS else 1
            self.destroyed[rows] = np.where(hit, np.maximum(self.destroyed[rows], worse), self.destroyed[rows])
        failed = sets & self.available[rows]
        self.available[rows] &= ~sets
        failed_members, fence = self.members[failed & self.isr[rows]], self.fence_at[rows]
        # a slow member that was about to leave already has been behind since then
        self.behind_since[rows] = np.where(failed_members & (fence == NEVER), now, self.behind_since[rows])
        wait = 0.0 if code == EventCode.STOP else self.timing.session_s
        self.fence_at[rows] = np.where(failed_members, np.minimum(fence, now + wait), fence)
        self.caught_up_at[rows] = np.where(hit, NEVER, self.caught_up_at[rows])

    def _return(self, rows: Ints, sets: Ints) -> None:
        now, returning = self.now[rows, None], self.members[sets]
        self.available[rows] |= sets
        unclean, replaced = sets & self.unclean[rows], sets & self.replaced[rows]
        self.unclean[rows] &= ~sets
        self.replaced[rows] &= ~sets
        # a member that returns before its session ended and is still slow is behind as before
        slow = returning & self.members[self.slow[rows] & self.isr[rows]]
        check = self.timing.next_check_s(np.maximum(now, self.behind_since[rows] + self.timing.lag_s))
        self.fence_at[rows] = np.where(returning, np.where(slow, check, NEVER), self.fence_at[rows])
        self._set_copy_time(rows, returning)
        unclean_rows = unclean > 0
        self._leave(rows[unclean_rows], unclean[unclean_rows], eligible=False, replaced=replaced[unclean_rows])
        # a leader that was not fenced serves again, with what it has
        same_leader = returning[np.arange(len(rows)), self.leader[rows]] & (self.leader[rows] >= 0)
        self.serving_rows.append(rows[same_leader])
        self._elect(rows[self.leader[rows] < 0])
        self._start_catching_up(rows, returning)

    def _slow_down(self, rows: Ints, sets: Ints) -> None:
        now = self.now[rows, None]
        self.slow[rows] |= sets
        lagging = self.members[sets & self.available[rows] & self.isr[rows] & ~bit_of(self.leader[rows])]
        check = self.timing.next_check_s(now + self.timing.lag_s)
        self.fence_at[rows] = np.where(lagging, np.minimum(self.fence_at[rows], check), self.fence_at[rows])
        self.behind_since[rows] = np.where(lagging, now, self.behind_since[rows])
        self.caught_up_at[rows] = np.where(self.members[sets], NEVER, self.caught_up_at[rows])

    def _speed_up(self, rows: Ints, sets: Ints) -> None:
        self.slow[rows] &= ~sets
        fast = self.members[sets & self.available[rows]]
        self.fence_at[rows] = np.where(fast, NEVER, self.fence_at[rows])
        self._set_copy_time(rows, fast)
        self._start_catching_up(rows, fast)

    def _set_copy_time(self, rows: Ints, which: Bools) -> None:
        missed = self.timing.catch_up * (self.now[rows, None] - self.behind_since[rows])
        copy = np.where(self.destroyed[rows] > 0, self.timing.copy_s, missed)
        self.copy_duration[rows] = np.where(which, copy, self.copy_duration[rows])

    def _start_catching_up(self, rows: Ints, which: Bools) -> None:
        """Start catching up of available replicas outside the ISR where there is a leader."""
        follow = self.members[self.available[rows] & ~self.slow[rows] & ~self.isr[rows]] & which
        follow &= (self.leader[rows] >= 0)[:, None]
        self.caught_up_at[rows] = np.where(
            follow, self.now[rows, None] + self.copy_duration[rows], self.caught_up_at[rows]
        )

    def _apply_timers(self, rows: Ints) -> None:
        """Apply one due timer of each row; fencing first, as the controller fences one broker after the other."""
        now = self.now[rows, None]
        due = self.fence_at[rows] <= now
        leaves: Bools = np.asarray(due.any(axis=1))
        leaving_rows, slot = rows[leaves], due[leaves].argmax(axis=1)
        self.fence_at[leaving_rows, slot] = NEVER
        self._leave(leaving_rows, np.left_shift(1, slot), eligible=True)
        due = (self.caught_up_at[rows] <= now) & ~leaves[:, None]
        joins = due.any(axis=1)
        self._join(rows[joins], due[joins])
        operator_rows = rows[~leaves & ~joins]
        self._lower_or_restore(operator_rows[self.operator_at[operator_rows] <= self.now[operator_rows]])

    def _leave(self, rows: Ints, sets: Ints, *, eligible: bool, replaced: Ints | int = 0) -> None:
        """Remove replicas from the ISR, and add them to the ELR of a too small ISR, or remove them if not eligible."""
        isr_before, elr_before = self.isr[rows], self.elr[rows]
        isr_after = isr_before & ~sets
        without_elr = self.elr_mode[rows] == 0
        # without ELR the last member stays
        isr_after = np.where(without_elr & (isr_after == 0), isr_before, isr_after)
        self.isr[rows] = isr_after
        elr = (elr_before | isr_before) & ~isr_after
        if not eligible:
            elr &= ~sets
        self.elr[rows] = np.where(without_elr | self._enough(rows), 0, elr)
        leaving = bit_of(self.leader[rows]) & sets
        self._update_last_known_elr(rows, leaving, (isr_before | elr_before) & ~isr_after & ~elr, sets & replaced)
        leaderless = rows[leaving > 0]
        self.leader[leaderless] = -1
        self._elect(leaderless)

    def _update_last_known_elr(self, rows: Ints, leader: Ints, others: Ints, replaced: Ints) -> None:
        """Update as PartitionChangeBuilder.populateTargetLastKnownElr: a leaving leader first, other members last."""
        order = self.last_known_order[rows]
        known = np.isfinite(order)
        # without the last known ELR only the last leader is known
        last_leader_only = np.where(self.members[leader] & ~known.any(axis=1)[:, None], 0.0, order)
        lowest = order.min(axis=1, initial=0.0, where=known)[:, None]
        highest = order.max(axis=1, initial=0.0, where=known)[:, None]
        order = np.where(self.members[others] & ~known, highest + 1 + np.arange(order.shape[1]), order)
        order = np.where(self.members[leader], lowest - 1, order)
        candidates = np.isfinite(order) & ~self.members[self.isr[rows]]
        kept = candidates & ~self.members[replaced]
        would_be_empty = (self.isr[rows] == 0) & (self.elr[rows] == 0) & ~kept.any(axis=1)
        kept = np.where(would_be_empty[:, None], candidates, kept) & ~self._enough(rows)[:, None]
        self.last_known_order[rows] = np.where(
            self._has_last_known_elr(rows)[:, None], np.where(kept, order, NEVER), last_leader_only
        )

    def _has_last_known_elr(self, rows: Ints) -> Bools:
        return np.asarray((self.elr_mode[rows] == 2) & (self.min_racks[rows] > 1))

    def _last_known_leader(self, rows: Ints) -> Ints:
        """Return the first of the last known ELR, -1 if it is empty."""
        turn = self.last_known_order[rows]
        return np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), -1)

    def _enough(self, rows: Ints) -> Bools:
        """Return whether the ISR is sufficient for the controller."""
        isr = self.isr[rows]
        racks = self.racks[self.pattern[rows], isr] >= self.min_racks[rows]
        return np.asarray((self.count[isr] >= self.min_replicas[rows]) & (racks | (self.elr_mode[rows] < 2)))

    def _elect(self, rows: Ints) -> None:
        """Elect leaders; from the ISR also an unavailable broker that is not fenced yet."""
        if not len(rows):
            return
        isr, elr, up = self.isr[rows], self.elr[rows], self.available[rows]
        not_fenced = (self.fence_at[rows] < NEVER) @ self.bits
        leader = self.first[isr & (up | not_fenced)]
        from_elr = np.where((isr == 0) & (leader < 0), self.first[elr & up], -1)
        last_known = self._last_known_leader(rows)
        elects_last_known = (isr == 0) & (elr == 0) & (self.elr_mode[rows] > 0) & (last_known >= 0) & (leader < 0)
        elects_last_known &= (bit_of(last_known) & up) > 0
        elected = np.where(
            leader >= 0, leader, np.where(from_elr >= 0, from_elr, np.where(elects_last_known, last_known, -1))
        )
        elected_set = bit_of(elected)
        self.isr[rows] = np.where((from_elr >= 0) | elects_last_known, elected_set, isr)
        self.elr[rows] = elr & ~elected_set
        self.leader[rows] = elected
        leaderless, led = rows[elected < 0], rows[elected >= 0]
        self.caught_up_at[leaderless] = NEVER
        members = self.members[self.isr[led] | self.elr[led]] | ~self._has_last_known_elr(led)[:, None]
        self.last_known_order[led] = np.where(members, NEVER, self.last_known_order[led])
        # a leader never lags
        up_leader = (up & elected_set) > 0
        leads, slot = rows[up_leader], elected[up_leader]
        self.fence_at[leads, slot] = NEVER
        self.caught_up_at[leads, slot] = NEVER
        self.serving_rows.append(leads)
        self._start_catching_up(led, self.caught_up_at[led] == NEVER)

    def _join(self, rows: Ints, which: Bools) -> None:
        sets = which @ self.bits
        self.caught_up_at[rows] = np.where(which, NEVER, self.caught_up_at[rows])
        self.isr[rows] |= sets
        self.complete_until[rows] = np.where(which, self.now[rows, None], self.complete_until[rows])
        self.destroyed[rows] = np.where(which, 0, self.destroyed[rows])
        enough = self._enough(rows)
        self.elr[rows] = np.where(enough, 0, self.elr[rows] & ~sets)
        forgets = which | (enough & self._has_last_known_elr(rows))[:, None]
        self.last_known_order[rows] = np.where(forgets, NEVER, self.last_known_order[rows])

    def _lower_or_restore(self, rows: Ints) -> None:
        self.operator_at[rows] = NEVER
        restores, lowers = rows[self.lowered[rows]], rows[~self.lowered[rows]]
        self.lowered[restores], self.lowered[lowers] = False, True
        self.min_racks[restores] = self.configured_min_racks[restores]
        self.min_racks[lowers] = 1
        isr, elr, last = self.isr[lowers], self.elr[lowers], self._last_known_leader(lowers)
        # without a leader, one of each stays, the last leader if possible
        turn = np.where(self.members[elr], self.last_known_order[lowers], NEVER)
        staying = np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), self.first[elr])
        kept = np.where(isr == 0, bit_of(staying), np.where(self._enough(lowers), 0, elr))
        rack_aware = self.elr_mode[lowers] == 2
        self.elr[lowers] = np.where(rack_aware, kept, elr)
        stays = (np.arange(turn.shape[1]) == last[:, None]) & (isr == 0)[:, None]
        self.last_known_order[lowers] = np.where(stays | ~rack_aware[:, None], self.last_known_order[lowers], NEVER)

    def _lose(self, rows: Ints) -> list[pd.DataFrame]:
        """Return the losses where a serving leader lacks acknowledged records; the other replicas truncate them."""
        rows = rows[self.leader[rows] >= 0]
        leader_complete_until = self.complete_until[rows, self.leader[rows]]
        lacks_records = (leader_complete_until < self.acked[rows]) & (
            (self.available[rows] & bit_of(self.leader[rows])) > 0
        )
        rows, leader_complete_until = rows[lacks_records], leader_complete_until[lacks_records]
        if not len(rows):
            return []
        losses = _losses(self.row[rows], self.now[rows], self.acked[rows] - leader_complete_until, self._cause(rows))
        self.acked[rows] = leader_complete_until
        self.complete_until[rows] = np.minimum(self.complete_until[rows], leader_complete_until[:, None])
        return [losses]

    def _cause(self, rows: Ints) -> Ints:
        destroyed, rack_ids = self.destroyed[rows], self.rack_ids[self.pattern[rows]]
        racks = sum(
            ((destroyed == 2) & (rack_ids == rack)).any(axis=1).astype(np.int64)
            for rack in range(self.rack_ids.max() + 1)
        )
        by_racks = np.where(racks == 0, Cause.BROKERS, np.where(racks == 1, Cause.ONE_RACK, Cause.MORE_RACKS))
        cause = np.where((destroyed > 0).any(axis=1), by_racks, Cause.UNFLUSHED)
        retained = self.complete_until[rows].max(axis=1) >= self.acked[rows]
        return np.where(retained, Cause.FORGOTTEN, cause).astype(np.int64)

    def _update_status(self) -> None:
        led, leader_set = self.leader >= 0, bit_of(self.leader)
        counted_set = np.where(led, self.isr, self.available)
        missing_members = self.isr & (~self.available | (self.slow & ~leader_set))
        status = np.where(
            led & (missing_members == 0), Status.ACCEPTED, np.where(led, Status.WAITS, Status.NO_CANDIDATE)
        )
        status[self.racks[self.pattern, counted_set] < self.min_racks] = Status.RACKS
        status[self.count[counted_set] < self.min_replicas] = Status.REPLICAS
        status[led & ((leader_set & self.available) == 0)] = Status.WAITS
        status[~led & (self.available == 0)] = Status.UNAVAILABLE
        self.status = status.astype(np.int64)
        racks = self.racks[self.pattern, self.isr]
        self.alone = racks == 1
        # the operator's clock starts with rejections for missing racks, or when R is lowered and all are in sync
        all_in_sync = self.isr == self.full
        starts = np.where(self.lowered, all_in_sync, (self.status == Status.RACKS) & led)
        # an operator is not called if no failure caused the rejections: the placement cannot meet R
        starts &= self.lowered | (self.racks[self.pattern, self.full] >= self.configured_min_racks)
        continues = np.where(self.lowered, all_in_sync, (racks < self.min_racks) | ~led)
        running = np.where(continues, self.operator_at, NEVER)
        self.operator_at = np.where(starts, np.minimum(running, self.now + self.lower_after), running)
