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
- An operator lowers R to 1 when writes have been refused for missing racks for the reaction time, which clears the ELR
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


class Code(IntEnum):
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
    """What acks=all meets; without a leader, what the available replicas would meet if one of them led."""

    TAKEN = 0
    WAITS = 1  # for an unavailable or slow leader or ISR member that is not fenced or removed yet
    NOBODY = 2  # no replica is available
    HOLDER = 3  # enough replicas are available, but none that may lead
    REPLICAS = 4  # too few replicas
    RACKS = 5  # too few racks


STATUSES = len(Status)
ALONE, LOWERED = STATUSES, STATUSES + 1  # further columns: taken by one rack alone; R is lowered
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
    lower_s: float = NEVER  # from the first refusal for missing racks until the operator lowers R


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
            racks[row] += members[:, [one == rack for one in pattern]].any(axis=1)
    return racks


def bit_of(replica: Ints) -> Ints:
    """Return the set of one replica; the empty set for -1."""
    return np.where(replica >= 0, np.left_shift(1, np.maximum(replica, 0)), 0)


def healthy_status(patterns: Sequence[Sequence[int]], settings: Sequence[GateSetting]) -> Ints:
    """Return the status while all replicas are in the ISR, of shape (patterns, settings)."""
    need = [gate.limits(one.min_replicas, one.min_racks, len(patterns[0])).racks for one in settings]
    racks = np.array([len(set(pattern)) for pattern in patterns])
    return np.where(racks[:, None] >= np.array(need), int(Status.TAKEN), int(Status.RACKS))


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

    Args:
        scripts: events of the partitions.
        patterns: the rack of each replica, as small numbers.
        settings: settings to simulate.
        timing: durations.
        end_s: end of the horizon; times and losses count only within it.
        begin_s: begin of the horizon.
        observe: called with the rows and the next moment of each before each step.

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
        spent[rows.row, ALONE] += seconds * (rows.alone & (rows.status == Status.TAKEN))
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

    Sets of replicas are bits. ``has_until`` is the moment until which a replica has all acknowledged records, ``acked``
    that of the last acknowledgement. ``turn`` is the place of each replica in the last known ELR, the lowest first,
    ``NEVER`` if it is not in it. ``replaced`` are replicas with a new disk that are not back yet.
    """

    def __init__(
        self, scripts: Scripts, patterns: Sequence[Sequence[int]], settings: Sequence[GateSetting], timing: Timing
    ) -> None:
        replicas, number = len(patterns[0]), len(settings)
        self.timing, self.events = timing, scripts
        self.members, self.count, self.first = replica_sets(replicas)
        self.racks, self.rack_ids = racks_of_sets(patterns), np.array(patterns, dtype=np.int64)
        self.bits, self.full = np.left_shift(1, np.arange(replicas)), (1 << replicas) - 1
        self.served: list[Ints] = []
        shared = set(vars(self))
        rows = len(scripts.pattern) * number
        limits = [gate.limits(one.min_replicas, one.min_racks, replicas) for one in settings]

        def of_setting(values: Sequence[Any], dtype: type) -> npt.NDArray[Any]:
            return np.tile(np.array(values, dtype=dtype), len(scripts.pattern))

        def filled(value: Any, dtype: type = np.int64) -> npt.NDArray[Any]:
            return np.full(rows, value, dtype=dtype)

        self.row = np.arange(rows)
        self.at, self.last_event = np.repeat(scripts.first[:-1], number), np.repeat(scripts.first[1:], number)
        self.now: Floats = scripts.at_s[self.at] if rows else np.zeros(0)
        self.pattern = np.repeat(scripts.pattern, number)
        self.need_m: Ints = of_setting([one.replicas for one in limits], int)
        self.need_r: Ints = of_setting([one.racks for one in limits], int)
        self.configured_r = self.need_r.copy()
        self.elr_mode: Ints = of_setting([{"off": 0, "replicas": 1, "racks": 2}[one.elr] for one in settings], int)
        self.lower: Floats = of_setting([one.lower_s for one in settings], float)
        self.operator: Floats = filled(NEVER, float)
        self.up, self.isr = filled(self.full), filled(self.full)
        self.slow, self.elr, self.unclean, self.replaced, self.leader = (filled(0) for _ in range(5))
        self.lowered: Bools = filled(False, bool)
        self.alone: Bools = self.racks[self.pattern, self.isr] == 1
        self.status: Ints = healthy_status(patterns, settings)[scripts.pattern].ravel()
        self.acked: Floats = np.where(self.status == Status.TAKEN, self.now, -NEVER)
        self.has_until: Floats = np.repeat(self.now[:, None], replicas, axis=1)
        self.fence, self.ready, self.turn = (np.full((rows, replicas), NEVER) for _ in range(3))
        self.copy, self.behind = (np.zeros((rows, replicas)) for _ in range(2))
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
        self.timer = np.minimum(np.minimum(self.fence.min(axis=1), self.ready.min(axis=1)), self.operator)
        left = self.at < self.last_event
        self.event = np.where(left, self.events.at_s[np.where(left, self.at, 0)], NEVER)
        return np.minimum(self.timer, self.event)

    def step(self, until: Floats) -> list[pd.DataFrame]:
        """Advance each row to its next moment, apply what happens then, and return the losses."""
        taken = self.status == Status.TAKEN
        self.acked[taken] = until[taken]
        self.has_until = np.where(self.members[self.isr & self.up], until[:, None], self.has_until)
        self.now = until
        self.served = []
        events = self.event <= self.timer
        self._apply_events(np.flatnonzero(events))
        self._apply_timers(np.flatnonzero(~events))
        losses = self._lose(np.unique(np.concatenate(self.served))) if self.served else []
        self._update_status()
        return losses

    def _apply_events(self, rows: Ints) -> None:
        codes, sets = self.events.code[self.at[rows]], self.events.replicas[self.at[rows]]
        self.at[rows] += 1
        apply = {Code.BACK: self._return, Code.SLOW: self._slow_down, Code.FAST: self._speed_up}
        for code in np.unique(codes):
            some = codes == code
            if code <= Code.RACK_DISKS:
                self._fail(rows[some], sets[some], Code(code))
            else:
                apply[Code(code)](rows[some], sets[some])

    def _fail(self, rows: Ints, sets: Ints, code: Code) -> None:
        now, hit = self.now[rows, None], self.members[sets]
        if code >= Code.CRASH:
            self.unclean[rows] |= sets
        if code == Code.POWER:
            flushed = np.minimum(self.has_until[rows], now - self.timing.flush_s)
            self.has_until[rows] = np.where(hit, flushed, self.has_until[rows])
        elif code in (Code.DISK, Code.RACK_DISKS):
            self.has_until[rows] = np.where(hit, -NEVER, self.has_until[rows])
            self.replaced[rows] |= sets
            worse = 2 if code == Code.RACK_DISKS else 1
            self.destroyed[rows] = np.where(hit, np.maximum(self.destroyed[rows], worse), self.destroyed[rows])
        failed = sets & self.up[rows]
        self.up[rows] &= ~sets
        failed_members, fence = self.members[failed & self.isr[rows]], self.fence[rows]
        # a slow member that was about to leave already has been behind since then
        self.behind[rows] = np.where(failed_members & (fence == NEVER), now, self.behind[rows])
        wait = 0.0 if code == Code.STOP else self.timing.session_s
        self.fence[rows] = np.where(failed_members, np.minimum(fence, now + wait), fence)
        self.ready[rows] = np.where(hit, NEVER, self.ready[rows])

    def _return(self, rows: Ints, sets: Ints) -> None:
        now, back = self.now[rows, None], self.members[sets]
        self.up[rows] |= sets
        unclean, replaced = sets & self.unclean[rows], sets & self.replaced[rows]
        self.unclean[rows] &= ~sets
        self.replaced[rows] &= ~sets
        # a member that returns before its session ended and is still slow is behind as before
        slow = back & self.members[self.slow[rows] & self.isr[rows]]
        check = self.timing.next_check_s(np.maximum(now, self.behind[rows] + self.timing.lag_s))
        self.fence[rows] = np.where(back, np.where(slow, check, NEVER), self.fence[rows])
        self._set_copy_time(rows, back)
        some = unclean > 0
        self._leave(rows[some], unclean[some], eligible=False, replaced=replaced[some])
        # a leader that was not fenced serves again, with what it has
        same = back[np.arange(len(rows)), self.leader[rows]] & (self.leader[rows] >= 0)
        self.served.append(rows[same])
        self._elect(rows[self.leader[rows] < 0])
        self._start_catching_up(rows, back)

    def _slow_down(self, rows: Ints, sets: Ints) -> None:
        now = self.now[rows, None]
        self.slow[rows] |= sets
        late = self.members[sets & self.up[rows] & self.isr[rows] & ~bit_of(self.leader[rows])]
        check = self.timing.next_check_s(now + self.timing.lag_s)
        self.fence[rows] = np.where(late, np.minimum(self.fence[rows], check), self.fence[rows])
        self.behind[rows] = np.where(late, now, self.behind[rows])
        self.ready[rows] = np.where(self.members[sets], NEVER, self.ready[rows])

    def _speed_up(self, rows: Ints, sets: Ints) -> None:
        self.slow[rows] &= ~sets
        fast = self.members[sets & self.up[rows]]
        self.fence[rows] = np.where(fast, NEVER, self.fence[rows])
        self._set_copy_time(rows, fast)
        self._start_catching_up(rows, fast)

    def _set_copy_time(self, rows: Ints, which: Bools) -> None:
        missed = self.timing.catch_up * (self.now[rows, None] - self.behind[rows])
        copy = np.where(self.destroyed[rows] > 0, self.timing.copy_s, missed)
        self.copy[rows] = np.where(which, copy, self.copy[rows])

    def _start_catching_up(self, rows: Ints, which: Bools) -> None:
        """Start catching up of available replicas outside the ISR where there is a leader."""
        follow = self.members[self.up[rows] & ~self.slow[rows] & ~self.isr[rows]] & which
        follow &= (self.leader[rows] >= 0)[:, None]
        self.ready[rows] = np.where(follow, self.now[rows, None] + self.copy[rows], self.ready[rows])

    def _apply_timers(self, rows: Ints) -> None:
        """Apply one due timer of each row; fencing first, as the controller fences one broker after the other."""
        now = self.now[rows, None]
        due = self.fence[rows] <= now
        leaves: Bools = np.asarray(due.any(axis=1))
        some, slot = rows[leaves], due[leaves].argmax(axis=1)
        self.fence[some, slot] = NEVER
        self._leave(some, np.left_shift(1, slot), eligible=True)
        due = (self.ready[rows] <= now) & ~leaves[:, None]
        joins = due.any(axis=1)
        self._join(rows[joins], due[joins])
        acts = rows[~leaves & ~joins]
        self._lower_or_restore(acts[self.operator[acts] <= self.now[acts]])

    def _leave(self, rows: Ints, sets: Ints, *, eligible: bool, replaced: Ints | int = 0) -> None:
        """Remove replicas from the ISR, and add them to the ELR of a too small ISR, or remove them if not eligible."""
        before, elr_before = self.isr[rows], self.elr[rows]
        after = before & ~sets
        off = self.elr_mode[rows] == 0
        # without ELR the last member stays
        after = np.where(off & (after == 0), before, after)
        self.isr[rows] = after
        elr = (elr_before | before) & ~after
        if not eligible:
            elr &= ~sets
        self.elr[rows] = np.where(off | self._enough(rows), 0, elr)
        leaving = bit_of(self.leader[rows]) & sets
        self._update_last_known_elr(rows, leaving, (before | elr_before) & ~after & ~elr, sets & replaced)
        some = rows[leaving > 0]
        self.leader[some] = -1
        self._elect(some)

    def _update_last_known_elr(self, rows: Ints, leader: Ints, others: Ints, replaced: Ints) -> None:
        """Update as PartitionChangeBuilder.populateTargetLastKnownElr: a leaving leader first, other members last."""
        turn = self.turn[rows]
        known = np.isfinite(turn)
        # without the last known ELR only the last leader is known
        single = np.where(self.members[leader] & ~known.any(axis=1)[:, None], 0.0, turn)
        lowest = turn.min(axis=1, initial=0.0, where=known)[:, None]
        highest = turn.max(axis=1, initial=0.0, where=known)[:, None]
        turn = np.where(self.members[others] & ~known, highest + 1 + np.arange(turn.shape[1]), turn)
        turn = np.where(self.members[leader], lowest - 1, turn)
        candidates = np.isfinite(turn) & ~self.members[self.isr[rows]]
        kept = candidates & ~self.members[replaced]
        sole = (self.isr[rows] == 0) & (self.elr[rows] == 0) & ~kept.any(axis=1)
        kept = np.where(sole[:, None], candidates, kept) & ~self._enough(rows)[:, None]
        self.turn[rows] = np.where(self._has_last_known_elr(rows)[:, None], np.where(kept, turn, NEVER), single)

    def _has_last_known_elr(self, rows: Ints) -> Bools:
        return np.asarray((self.elr_mode[rows] == 2) & (self.need_r[rows] > 1))

    def _last_known_leader(self, rows: Ints) -> Ints:
        """Return the first of the last known ELR, -1 if it is empty."""
        turn = self.turn[rows]
        return np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), -1)

    def _enough(self, rows: Ints) -> Bools:
        """Return whether the ISR is sufficient for the controller."""
        isr = self.isr[rows]
        racks = self.racks[self.pattern[rows], isr] >= self.need_r[rows]
        return np.asarray((self.count[isr] >= self.need_m[rows]) & (racks | (self.elr_mode[rows] < 2)))

    def _elect(self, rows: Ints) -> None:
        """Elect leaders; from the ISR also an unavailable broker that is not fenced yet."""
        if not len(rows):
            return
        isr, elr, up = self.isr[rows], self.elr[rows], self.up[rows]
        not_fenced = (self.fence[rows] < NEVER) @ self.bits
        leader = self.first[isr & (up | not_fenced)]
        from_elr = np.where((isr == 0) & (leader < 0), self.first[elr & up], -1)
        last = self._last_known_leader(rows)
        known = (isr == 0) & (elr == 0) & (self.elr_mode[rows] > 0) & (last >= 0) & (leader < 0)
        known &= (bit_of(last) & up) > 0
        elected = np.where(leader >= 0, leader, np.where(from_elr >= 0, from_elr, np.where(known, last, -1)))
        bit = bit_of(elected)
        self.isr[rows] = np.where((from_elr >= 0) | known, bit, isr)
        self.elr[rows] = elr & ~bit
        self.leader[rows] = elected
        none, some = rows[elected < 0], rows[elected >= 0]
        self.ready[none] = NEVER
        members = self.members[self.isr[some] | self.elr[some]] | ~self._has_last_known_elr(some)[:, None]
        self.turn[some] = np.where(members, NEVER, self.turn[some])
        # a leader never lags
        up_leader = (up & bit) > 0
        leads, slot = rows[up_leader], elected[up_leader]
        self.fence[leads, slot] = NEVER
        self.ready[leads, slot] = NEVER
        self.served.append(leads)
        self._start_catching_up(some, self.ready[some] == NEVER)

    def _join(self, rows: Ints, which: Bools) -> None:
        sets = which @ self.bits
        self.ready[rows] = np.where(which, NEVER, self.ready[rows])
        self.isr[rows] |= sets
        self.has_until[rows] = np.where(which, self.now[rows, None], self.has_until[rows])
        self.destroyed[rows] = np.where(which, 0, self.destroyed[rows])
        enough = self._enough(rows)
        self.elr[rows] = np.where(enough, 0, self.elr[rows] & ~sets)
        forgets = which | (enough & self._has_last_known_elr(rows))[:, None]
        self.turn[rows] = np.where(forgets, NEVER, self.turn[rows])

    def _lower_or_restore(self, rows: Ints) -> None:
        self.operator[rows] = NEVER
        restores, lowers = rows[self.lowered[rows]], rows[~self.lowered[rows]]
        self.lowered[restores], self.lowered[lowers] = False, True
        self.need_r[restores] = self.configured_r[restores]
        self.need_r[lowers] = 1
        isr, elr, last = self.isr[lowers], self.elr[lowers], self._last_known_leader(lowers)
        # without a leader, one of each stays, the last leader if possible
        turn = np.where(self.members[elr], self.turn[lowers], NEVER)
        one = np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), self.first[elr])
        kept = np.where(isr == 0, bit_of(one), np.where(self._enough(lowers), 0, elr))
        racks = self.elr_mode[lowers] == 2
        self.elr[lowers] = np.where(racks, kept, elr)
        stays = (np.arange(turn.shape[1]) == last[:, None]) & (isr == 0)[:, None]
        self.turn[lowers] = np.where(stays | ~racks[:, None], self.turn[lowers], NEVER)

    def _lose(self, rows: Ints) -> list[pd.DataFrame]:
        """Return the losses where a serving leader lacks acknowledged records; the other replicas truncate them."""
        rows = rows[self.leader[rows] >= 0]
        has = self.has_until[rows, self.leader[rows]]
        less = (has < self.acked[rows]) & ((self.up[rows] & bit_of(self.leader[rows])) > 0)
        rows, has = rows[less], has[less]
        if not len(rows):
            return []
        losses = _losses(self.row[rows], self.now[rows], self.acked[rows] - has, self._cause(rows))
        self.acked[rows] = has
        self.has_until[rows] = np.minimum(self.has_until[rows], has[:, None])
        return [losses]

    def _cause(self, rows: Ints) -> Ints:
        destroyed, rack_ids = self.destroyed[rows], self.rack_ids[self.pattern[rows]]
        racks = sum(
            ((destroyed == 2) & (rack_ids == rack)).any(axis=1).astype(np.int64)
            for rack in range(self.rack_ids.max() + 1)
        )
        by_racks = np.where(racks == 0, Cause.BROKERS, np.where(racks == 1, Cause.ONE_RACK, Cause.MORE_RACKS))
        cause = np.where((destroyed > 0).any(axis=1), by_racks, Cause.UNFLUSHED)
        kept = self.has_until[rows].max(axis=1) >= self.acked[rows]
        return np.where(kept, Cause.FORGOTTEN, cause).astype(np.int64)

    def _update_status(self) -> None:
        led, bit = self.leader >= 0, bit_of(self.leader)
        counted = np.where(led, self.isr, self.up)
        silent = self.isr & (~self.up | (self.slow & ~bit))
        status = np.where(led & (silent == 0), Status.TAKEN, np.where(led, Status.WAITS, Status.HOLDER))
        status[self.racks[self.pattern, counted] < self.need_r] = Status.RACKS
        status[self.count[counted] < self.need_m] = Status.REPLICAS
        status[led & ((bit & self.up) == 0)] = Status.WAITS
        status[~led & (self.up == 0)] = Status.NOBODY
        self.status = status.astype(np.int64)
        racks = self.racks[self.pattern, self.isr]
        self.alone = racks == 1
        # the operator's clock starts with refusals for missing racks, or when R is lowered and all replicas are in sync
        full = self.isr == self.full
        starts = np.where(self.lowered, full, (self.status == Status.RACKS) & led)
        # an operator is not called if no failure caused the refusals: the placement cannot meet R
        starts &= self.lowered | (self.racks[self.pattern, self.full] >= self.configured_r)
        continues = np.where(self.lowered, full, (racks < self.need_r) | ~led)
        clock = np.where(continues, self.operator, NEVER)
        self.operator = np.where(starts, np.minimum(clock, self.now + self.lower), clock)
