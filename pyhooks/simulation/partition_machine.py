"""The life of partitions while some of their brokers are disturbed, many of them in lockstep: ISR, ELR, leader, data.

A *script* is what happens to the replicas of one partition from the moment at which one of them is disturbed to the one
at which all are in the ISR again. The machine runs each script under each setting and tells how long acks=all was taken
or refused and why, and which acknowledged records were lost. It is a state machine of kip/KIP-1290.md and KIP-966:

- A broker that goes away is fenced after its session (at once where it stops cleanly); then it leaves the ISR. So does
  a follower that has not caught up for ``replica.lag.time.max.ms`` when its leader looks next, which is each half of
  that time (``isr-expiration`` of ReplicaManager): after 1 to 1.5 times the limit. Until then writes wait for it. All
  leaders look at the same moments: since partitions that live the same are played once, they can't each have their own.
  Spells begin at random moments, so how long each partition waits is as if they had; that those of different leaders
  wait equally long makes intervals wider, if anything.
- Who leaves an ISR that is not enough by M (and by R, with ``elr="racks"``) is eligible: in the ELR. An ISR that is
  enough again clears it. Who comes back from an unclean end is taken out of ISR and ELR.
- The leader is a member of the ISR; of an empty ISR, one of the ELR; if that is empty too, the last known leader. With
  ``elr="off"`` the last member stays in the ISR and leads when it is back, whatever it has lost.
- Where R is above 1, with ``elr="racks"``, replicas that left the ISR or the ELR after an unclean end are remembered in
  the last known ELR, the last leader first, until the ISR is enough again. Where ISR and ELR are empty, the first of
  them is awaited and elected. A replica whose disk was replaced is forgotten when it is back, unless there is no other
  one to wait for. When R is lowered to 1 and nobody leads, the first of them stays.
- Who is back, or fast again, joins the ISR when it has caught up with a leader.
- An operator lowers R to 1 when a partition has refused for want of racks for the reaction time, which clears its ELR
  if the ISR is enough then, and restores R the same time after all replicas are in the ISR.

Acknowledged records: each replica is known to have everything that was acknowledged until some moment. A member of the
ISR has everything up to now, since acks=all waits for all of them; who left, up to then; after a loss of power what was
flushed; after its disk is destroyed, nothing. Records are lost when a leader serves that lacks some.

Left out: topics (the operator acts on single partitions), M and R that change otherwise, reassignments, unclean
elections that a person asks for, preferred leader elections while a script lasts, controllers that are away, acks=1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyhooks.kafka import gate
from pyhooks.simulation.machine_script import (
    ALONE,
    COLUMNS,
    LOWERED,
    NEVER,
    Cause,
    Code,
    Floats,
    Ints,
    Losses,
    Outcome,
    Scripts,
    Seen,
    Setting,
    Status,
    Timing,
    met,
    racks_of_sets,
    tables,
)

_COMPACT = 0.7  # of the rows still run: then the others are put away
# row, moment, seconds and cause of what was lost
_Lost = tuple[Ints, Floats, Floats, Ints]


def run(
    scripts: Scripts,
    patterns: Sequence[Sequence[int]],
    settings: Sequence[Setting],
    timing: Timing,
    *,
    end_s: float,
    begin_s: float = 0.0,
    seen: list[Seen] | None = None,
) -> Outcome:
    """Runs each script under each setting until all is well again.

    Args:
        scripts: what happens.
        patterns: for each, the rack of each replica, as small numbers.
        settings: to judge.
        timing: how long things take.
        end_s: nothing counts from then on.
        begin_s: nothing counts until then.
        seen: if given, each stretch of time is appended; slow.

    Raises:
        RuntimeError: a script ends and a partition is not well again: a broker never came back.
    """
    members, _, _ = tables(len(patterns[0]))
    rows = _Rows(scripts, patterns, settings, timing)
    spent = np.zeros((scripts.number * len(settings), COLUMNS))
    ended = np.zeros(scripts.number * len(settings))
    lost: list[_Lost] = []
    while rows.size:
        until = rows.next()
        done = np.isinf(until)
        if done.any():
            if (rows.isr[done] != len(members) - 1).any() or (rows.leader[done] < 0).any():
                raise RuntimeError("a script ends before all replicas are back")
            ended[rows.row[done]] = rows.now[done]
            if done.mean() > 1 - _COMPACT or done.all():
                rows.keep(~done)
                until = until[~done]
                if not rows.size:
                    break
        counted = np.clip(until, begin_s, end_s) - np.clip(rows.now, begin_s, end_s)
        counted[np.isinf(until)] = 0.0
        spent[rows.row, rows.status] += counted
        spent[rows.row, ALONE] += counted * (rows.alone & (rows.status == Status.TAKEN))
        spent[rows.row, LOWERED] += counted * rows.lowered
        if seen is not None:
            rows.tell(until, len(settings), seen)
        lost += rows.step(until)
    return Outcome(
        spent.reshape(scripts.number, len(settings), COLUMNS),
        ended.reshape(scripts.number, len(settings)).max(axis=1, initial=-NEVER),
        _losses(lost, len(settings), begin_s, end_s),
    )


def _losses(found: list[_Lost], settings: int, begin_s: float, end_s: float) -> Losses:
    if not found:
        none, zero = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Losses(none, none, zero, zero, none)
    rows, at, seconds, causes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    inside = (at >= begin_s) & (at < end_s)
    order = np.lexsort((at[inside], rows[inside]))
    rows, at, seconds, causes = (part[inside][order] for part in (rows, at, seconds, causes))
    return Losses(rows // settings, rows % settings, at, seconds, causes)


class _Rows:
    """The rows that still run, one for each script and setting; arrays with one entry, or one of each replica, a row.

    Sets of replicas are bits. ``has_until`` is the moment until which a replica has all that was acknowledged, and
    ``acked`` the last moment at which anything was. ``turn`` is the place of each replica in the last known ELR, the
    lowest first, ``NEVER`` if it is not in it. ``replaced`` are replicas with a new disk that are not back yet.
    """

    _EACH = (
        "row", "now", "at", "last_event", "pattern", "need_m", "need_r", "wants_r", "elr_mode", "lower", "operator",
        "up", "slow", "isr", "elr", "unclean", "replaced", "leader", "turn", "acked", "status", "alone", "lowered",
        "has_until", "fence", "ready", "copy", "behind", "gone", "timer", "event",
    )  # fmt: skip

    now: Floats
    lower: Floats
    operator: Floats
    acked: Floats
    timer: Floats
    event: Floats
    need_m: Ints
    need_r: Ints
    elr_mode: Ints

    def __init__(
        self, scripts: Scripts, patterns: Sequence[Sequence[int]], settings: Sequence[Setting], timing: Timing
    ) -> None:
        replicas = len(patterns[0])
        self.timing, self.events = timing, scripts
        self.members, self.count, self.first = tables(replicas)
        self.racks = racks_of_sets(patterns)
        self.rack_ids = np.array(patterns, dtype=np.int64)
        self.full = (1 << replicas) - 1
        number, every = len(settings), scripts.number * len(settings)
        limits = [gate.limits(one.min_replicas, one.min_racks, replicas) for one in settings]

        def each(values: Sequence[Any], dtype: type) -> npt.NDArray[Any]:
            return np.tile(np.array(values, dtype=dtype), scripts.number)

        def filled(value: Any, dtype: type = np.int64) -> npt.NDArray[Any]:
            return np.full(every, value, dtype=dtype)

        self.row = np.arange(every)
        self.at = np.repeat(scripts.first[:-1], number)
        self.last_event = np.repeat(scripts.first[1:], number)
        self.now = scripts.at_s[self.at] if every else np.zeros(0)
        self.pattern = np.repeat(scripts.pattern, number)
        self.need_m, self.need_r = (each([getattr(one, of) for one in limits], int) for of in ("replicas", "racks"))
        self.wants_r = self.need_r.copy()
        self.elr_mode = each([{"off": 0, "replicas": 1, "racks": 2}[one.elr] for one in settings], int)
        self.lower = each([one.lower_s for one in settings], float)
        self.operator = filled(NEVER, float)
        self.up, self.isr = filled(self.full), filled(self.full)
        self.slow, self.elr, self.unclean = filled(0), filled(0), filled(0)
        self.replaced, self.leader = filled(0), filled(0)
        self.lowered = filled(False, bool)
        self.alone = self.racks[self.pattern, self.isr] == 1
        self.status = np.where(self.racks[self.pattern, self.isr] >= self.need_r, Status.TAKEN, Status.RACKS)
        self.acked = np.where(self.status == Status.TAKEN, self.now, -NEVER)
        self.has_until = np.repeat(self.now[:, None], replicas, axis=1)
        self.fence, self.ready, self.turn = (np.full((every, replicas), NEVER) for _ in range(3))
        self.copy, self.behind = (np.zeros((every, replicas)) for _ in range(2))
        self.gone = np.zeros((every, replicas), dtype=np.int8)
        self.timer, self.event = filled(NEVER, float), filled(NEVER, float)

    @property
    def size(self) -> int:
        """How many rows still run."""
        return len(self.row)

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Puts the others away."""
        for name in self._EACH:
            setattr(self, name, getattr(self, name)[which])

    def next(self) -> Floats:
        """When something happens next, of each row."""
        self.timer = np.minimum(np.minimum(self.fence.min(axis=1), self.ready.min(axis=1)), self.operator)
        left = self.at < self.last_event
        self.event = np.where(left, self.events.at_s[np.where(left, self.at, 0)], NEVER)
        earliest: Floats = np.minimum(self.timer, self.event)
        return earliest

    def step(self, until: Floats) -> list[_Lost]:
        """To the next moment of each row, and what happens then; returns what was lost by it."""
        runs = np.isfinite(until)
        taken = runs & (self.status == Status.TAKEN)
        self.acked[taken] = until[taken]
        live = self.members[self.isr & self.up] & runs[:, None]
        self.has_until = np.where(live, np.where(runs, until, 0.0)[:, None], self.has_until)
        self.now = np.where(runs, until, self.now)
        self.served: list[Ints] = []
        happens = runs & (self.event <= self.timer)
        self._happen(np.flatnonzero(happens))
        self._ring(np.flatnonzero(runs & ~happens))
        lost = self._lose(np.unique(np.concatenate(self.served))) if self.served else []
        self._judge(np.flatnonzero(runs))
        return lost

    # -- what happens to brokers --------------------------------------------------------------------------------------

    def _happen(self, rows: Ints) -> None:
        codes, sets = self.events.code[self.at[rows]], self.events.replicas[self.at[rows]]
        self.at[rows] += 1
        for code in np.unique(codes):
            some = codes == code
            if code <= Code.RACK_DISKS:
                self._hit(rows[some], sets[some], Code(code))
            elif code == Code.BACK:
                self._back(rows[some], sets[some])
            elif code == Code.SLOW:
                self._slow(rows[some], sets[some])
            else:
                self._fast(rows[some], sets[some])

    def _hit(self, rows: Ints, sets: Ints, code: Code) -> None:
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
            self.gone[rows] = np.where(hit, np.maximum(self.gone[rows], worse), self.gone[rows])
        goes = sets & self.up[rows]
        self.up[rows] &= ~sets
        left, fence = self.members[goes & self.isr[rows]], self.fence[rows]
        # who was about to leave already, since it was slow, is behind since then
        self.behind[rows] = np.where(left & (fence == NEVER), now, self.behind[rows])
        wait = 0.0 if code == Code.STOP else self.timing.session_s
        self.fence[rows] = np.where(left, np.minimum(fence, now + wait), fence)
        self.ready[rows] = np.where(hit, NEVER, self.ready[rows])

    def _back(self, rows: Ints, sets: Ints) -> None:
        now, back = self.now[rows, None], self.members[sets]
        self.up[rows] |= sets
        dirty = sets & self.unclean[rows]
        self.unclean[rows] &= ~sets
        lost = sets & self.replaced[rows]
        self.replaced[rows] &= ~sets
        # one that is back before its session ended and is still slow is behind as before
        slow = back & self.members[self.slow[rows] & self.isr[rows]]
        looks = self.timing.looks_s(np.maximum(now, self.behind[rows] + self.timing.lag_s))
        self.fence[rows] = np.where(back, np.where(slow, looks, NEVER), self.fence[rows])
        self._remember_copy(rows, back)
        some = dirty > 0
        self._leave(rows[some], dirty[some], eligible=False, lost=lost[some])
        # a leader that was not missed serves again, with what it has
        same = self.members[sets][np.arange(len(rows)), self.leader[rows]] & (self.leader[rows] >= 0)
        self.served.append(rows[same])
        self._elect(rows[self.leader[rows] < 0])
        self._prepare(rows, back)

    def _slow(self, rows: Ints, sets: Ints) -> None:
        now = self.now[rows, None]
        self.slow[rows] |= sets
        followers = sets & self.up[rows] & self.isr[rows] & ~self._leader_bit(rows)
        late = self.members[followers]
        looks = self.timing.looks_s(now + self.timing.lag_s)
        self.fence[rows] = np.where(late, np.minimum(self.fence[rows], looks), self.fence[rows])
        self.behind[rows] = np.where(late, now, self.behind[rows])
        self.ready[rows] = np.where(self.members[sets], NEVER, self.ready[rows])

    def _fast(self, rows: Ints, sets: Ints) -> None:
        self.slow[rows] &= ~sets
        fast = self.members[sets & self.up[rows]]
        self.fence[rows] = np.where(fast, NEVER, self.fence[rows])
        self._remember_copy(rows, fast)
        self._prepare(rows, fast)

    def _remember_copy(self, rows: Ints, which: npt.NDArray[np.bool_]) -> None:
        """How long those will take to catch up."""
        missed = self.timing.catch_up * (self.now[rows, None] - self.behind[rows])
        copy = np.where(self.gone[rows] > 0, self.timing.copy_s, missed)
        self.copy[rows] = np.where(which, copy, self.copy[rows])

    def _prepare(self, rows: Ints, which: npt.NDArray[np.bool_]) -> None:
        """Those that are there and not in the ISR begin to catch up, where there is a leader."""
        follow = self.members[self.up[rows] & ~self.slow[rows] & ~self.isr[rows]] & which
        follow &= (self.leader[rows] >= 0)[:, None]
        self.ready[rows] = np.where(follow, self.now[rows, None] + self.copy[rows], self.ready[rows])

    # -- what timers bring about --------------------------------------------------------------------------------------

    def _ring(self, rows: Ints) -> None:
        """One at a time, those that leave first: the controller fences one broker after the other."""
        now = self.now[rows, None]
        due: npt.NDArray[np.bool_] = self.fence[rows] <= now
        leaves: npt.NDArray[np.bool_] = np.asarray(due.any(axis=1))
        some, slot = rows[leaves], due[leaves].argmax(axis=1)
        self.fence[some, slot] = NEVER
        self._leave(some, np.left_shift(1, slot), eligible=True)
        due = (self.ready[rows] <= now) & ~leaves[:, None]
        joins = due.any(axis=1)
        self._join(rows[joins], due[joins])
        acts = rows[~leaves & ~joins]
        self._lower_or_restore(acts[self.operator[acts] <= self.now[acts]])

    def _leave(self, rows: Ints, sets: Ints, *, eligible: bool, lost: Ints | int = 0) -> None:
        """Out of the ISR; and into the ELR if the ISR is not enough then, or out of it.

        Args:
            rows: of which partitions.
            sets: the replicas that leave.
            eligible: they did not end uncleanly.
            lost: replicas whose disks were replaced.
        """
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
        leaving = self._leader_bit(rows) & sets
        self._remember(rows, leaving, (before | elr_before) & ~after & ~elr, sets & lost)
        some = rows[leaving > 0]
        self.leader[some] = -1
        self._elect(some)

    def _remember(self, rows: Ints, leader: Ints, others: Ints, lost: Ints) -> None:
        """Updates the last known ELR (PartitionChangeBuilder.populateTargetLastKnownElr).

        Args:
            rows: of which partitions.
            leader: the leader, if it leaves; it comes first.
            others: members that left the ISR and the ELR; they come last.
            lost: replicas whose disks were replaced.
        """
        turn, remembers = self.turn[rows], self._remembers(rows)
        known = np.isfinite(turn)
        # where racks do not matter: who led before stays known, the first time that there is no leader
        single = np.where(self.members[leader] & ~known.any(axis=1)[:, None], 0.0, turn)
        lowest = turn.min(axis=1, initial=0.0, where=known)[:, None]
        highest = turn.max(axis=1, initial=0.0, where=known)[:, None]
        turn = np.where(self.members[others] & ~known, highest + 1 + np.arange(turn.shape[1]), turn)
        turn = np.where(self.members[leader], lowest - 1, turn)
        candidates = np.isfinite(turn) & ~self.members[self.isr[rows]]
        kept = candidates & ~self.members[lost]
        sole = (self.isr[rows] == 0) & (self.elr[rows] == 0) & ~kept.any(axis=1)
        kept = np.where(sole[:, None], candidates, kept) & ~self._enough(rows)[:, None]
        self.turn[rows] = np.where(remembers[:, None], np.where(kept, turn, NEVER), single)

    def _remembers(self, rows: Ints) -> npt.NDArray[np.bool_]:
        remembers: npt.NDArray[np.bool_] = (self.elr_mode[rows] == 2) & (self.need_r[rows] > 1)
        return remembers

    def _last(self, rows: Ints) -> Ints:
        """The first of the last known ELR, -1 if it is empty."""
        turn = self.turn[rows]
        last: Ints = np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), -1)
        return last

    def _enough(self, rows: Ints) -> npt.NDArray[np.bool_]:
        isr = self.isr[rows]
        racks = self.racks[self.pattern[rows], isr] >= self.need_r[rows]
        enough: npt.NDArray[np.bool_] = (self.count[isr] >= self.need_m[rows]) & (racks | (self.elr_mode[rows] < 2))
        return enough

    def _elect(self, rows: Ints) -> None:
        """Of the ISR also who is away and not fenced: the controller does not know."""
        if not len(rows):
            return
        isr, elr, up = self.isr[rows], self.elr[rows], self.up[rows]
        unknown = (self.fence[rows] < NEVER) @ np.left_shift(1, np.arange(self.fence.shape[1]))
        leader = self.first[isr & (up | unknown)]
        from_elr = np.where((isr == 0) & (leader < 0), self.first[elr & up], -1)
        last = self._last(rows)
        known = (isr == 0) & (elr == 0) & (self.elr_mode[rows] > 0) & (last >= 0) & (leader < 0)
        known &= (np.right_shift(up, np.maximum(last, 0)) & 1) == 1
        found = np.where(leader >= 0, leader, np.where(from_elr >= 0, from_elr, np.where(known, last, -1)))
        alone = (from_elr >= 0) | known
        bit = np.where(found >= 0, np.left_shift(1, np.maximum(found, 0)), 0)
        self.isr[rows] = np.where(alone, bit, isr)
        self.elr[rows] = elr & ~bit
        self.leader[rows] = found
        none, some = rows[found < 0], rows[found >= 0]
        self.ready[none] = NEVER
        # elsewhere there is only a last known leader
        members = self.members[self.isr[some] | self.elr[some]] | ~self._remembers(some)[:, None]
        self.turn[some] = np.where(members, NEVER, self.turn[some])
        # a leader lags behind nobody
        up_leader = (up & bit) > 0
        leads, slot = rows[up_leader], found[up_leader]
        self.fence[leads, slot] = NEVER
        self.ready[leads, slot] = NEVER
        self.served.append(leads)
        begins = self.ready[some] == NEVER
        self._prepare(some, begins)

    def _join(self, rows: Ints, which: npt.NDArray[np.bool_]) -> None:
        sets = which @ np.left_shift(1, np.arange(which.shape[1]))
        self.ready[rows] = np.where(which, NEVER, self.ready[rows])
        self.isr[rows] |= sets
        self.has_until[rows] = np.where(which, self.now[rows, None], self.has_until[rows])
        self.gone[rows] = np.where(which, 0, self.gone[rows])
        enough = self._enough(rows)
        self.elr[rows] = np.where(enough, 0, self.elr[rows] & ~sets)
        self.turn[rows] = np.where(which | (enough & self._remembers(rows))[:, None], NEVER, self.turn[rows])

    def _lower_or_restore(self, rows: Ints) -> None:
        self.operator[rows] = NEVER
        restores, lowers = rows[self.lowered[rows]], rows[~self.lowered[rows]]
        self.lowered[restores], self.lowered[lowers] = False, True
        self.need_r[restores] = self.wants_r[restores]
        self.need_r[lowers] = 1
        isr, elr, last = self.isr[lowers], self.elr[lowers], self._last(lowers)
        # nobody leads: one of each stays, the last leader if it can be
        turn = np.where(self.members[elr], self.turn[lowers], NEVER)
        one = np.where(np.isfinite(turn).any(axis=1), turn.argmin(axis=1), self.first[elr])
        only = np.where(elr > 0, np.left_shift(1, np.maximum(one, 0)), 0)
        kept = np.where(isr == 0, only, np.where(self._enough(lowers), 0, elr))
        racks = self.elr_mode[lowers] == 2
        self.elr[lowers] = np.where(racks, kept, elr)
        stays = (np.arange(turn.shape[1]) == last[:, None]) & (isr == 0)[:, None]
        self.turn[lowers] = np.where(stays | ~racks[:, None], self.turn[lowers], NEVER)

    # -- what it comes to ---------------------------------------------------------------------------------------------

    def _leader_bit(self, rows: Ints) -> Ints:
        leader = self.leader[rows]
        return np.where(leader >= 0, np.left_shift(1, np.maximum(leader, 0)), 0)

    def _lose(self, rows: Ints) -> list[_Lost]:
        """Where a leader serves that lacks what was acknowledged, that is lost, and the others truncate it."""
        rows = rows[self.leader[rows] >= 0]
        has = self.has_until[rows, self.leader[rows]]
        less = (has < self.acked[rows]) & ((self.up[rows] & self._leader_bit(rows)) > 0)
        rows, has = rows[less], has[less]
        if not len(rows):
            return []
        lost = (self.row[rows], self.now[rows], self.acked[rows] - has, self._cause(rows))
        self.acked[rows] = has
        self.has_until[rows] = np.minimum(self.has_until[rows], has[:, None])
        return [lost]

    def _cause(self, rows: Ints) -> Ints:
        gone = self.gone[rows]
        rack_ids = self.rack_ids[self.pattern[rows]]
        racks = np.zeros(len(rows), dtype=np.int64)
        for rack in range(int(rack_ids.max()) + 1):
            racks += ((gone == 2) & (rack_ids == rack)).any(axis=1)
        destroyed = np.where(racks == 0, Cause.BROKERS, np.where(racks == 1, Cause.ONE_RACK, Cause.MORE_RACKS))
        cause = np.where((gone > 0).any(axis=1), destroyed, Cause.UNFLUSHED)
        kept = self.has_until[rows].max(axis=1) >= self.acked[rows]
        return np.where(kept, Cause.FORGOTTEN, cause).astype(np.int64)

    def _judge(self, rows: Ints) -> None:
        isr, pattern = self.isr[rows], self.pattern[rows]
        status = met(
            leader=self.leader[rows],
            isr=isr,
            up=self.up[rows],
            slow=self.slow[rows],
            pattern=pattern,
            need_m=self.need_m[rows],
            need_r=self.need_r[rows],
            count=self.count,
            racks=self.racks,
        )
        self.status[rows] = status
        self.alone[rows] = self.racks[pattern, isr] == 1
        self._operate(rows)

    def _operate(self, rows: Ints) -> None:
        """The operator's clock: begins with refusals for want of racks, or when all is well and R lowered."""
        lowered, clock, led = self.lowered[rows], self.operator[rows], self.leader[rows] >= 0
        short = self.racks[self.pattern[rows], self.isr[rows]] < self.need_r[rows]
        begins = np.where(lowered, self.isr[rows] == self.full, (self.status[rows] == Status.RACKS) & led)
        # no failure brought it about, so nobody is called: the placement cannot meet R
        begins &= lowered | (self.racks[self.pattern[rows], self.full] >= self.wants_r[rows])
        goes_on = np.where(lowered, self.isr[rows] == self.full, short | ~led)
        clock = np.where(goes_on, clock, NEVER)
        self.operator[rows] = np.where(begins, np.minimum(clock, self.now[rows] + self.lower[rows]), clock)

    def tell(self, until: Floats, settings: int, seen: list[Seen]) -> None:
        """What there is from now to the next moment."""
        for index in np.flatnonzero(np.isfinite(until) & (until > self.now)):
            row = int(self.row[index])
            stretch = float(self.now[index]), float(until[index])
            state = (int(part[index]) for part in (self.leader, self.isr, self.elr))
            seen.append(Seen(row // settings, row % settings, *stretch, Status(self.status[index]), *state))
