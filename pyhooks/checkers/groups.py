"""Check that consumer groups commit, rebalance and fetch exactly as their coordinator's partition allows.

Reads the events of ``pyhooks.workload.group_members``, faults, observations and settings of ``__consumer_offsets``, and
the final committed offsets of groups (``pyhooks.checkers.group_commits``). A coordinator appends to its partition with
acks=1, so the gate does not apply. But it responds only when the record is below the high watermark, which does not
advance while the ISR has too few replicas or racks. So a commit or a change of a group's members gets no response then,
other than the coordinator's timeout (``offsets.commit.timeout.ms``), and no rejection is ever seen. The expected
outcome is computed from M (``min.insync.replicas``), R (``min.insync.racks``), placement and ISR of the group's
partition; a replication factor below either caps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.group_commits import check_commits, left
from pyhooks.checkers.group_view import Group, GroupMemberLife, groups
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import Place
from pyhooks.checkers.settling_times import NEVER_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails
from pyhooks.history.outcomes import CONSUMER, ERRORS, REBALANCING

TOPIC = "__consumer_offsets"
# Members find their coordinator again, and join again if a rebalance failed while it did not respond. A rebalance that
# waits for all members takes as long as their heartbeats and requests take to fail.
BOUND_S = 45.0
# A change that the next one overtakes within this time is no evidence; with more time it should have completed.
OVERTAKEN_S = 20.0
# A member that an outage keeps from reading reads nothing until its end. Shorter pauses occur on a busy machine: one
# with a load of 30 on two cores did not respond for 24 s.
FETCH_S = 30.0
# Client errors for a coordinator that does not respond, or not yet; the client turns the others into the first.
WAITING = frozenset(
    {
        f"{CONSUMER}.RetriableCommitFailedException",
        *(
            f"{ERRORS}.{name}"
            for name in (
                "TimeoutException",
                "CoordinatorNotAvailableException",
                "CoordinatorLoadInProgressException",
                "NotCoordinatorException",
                "DisconnectException",
            )
        ),
        "not-reported",
    }
)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode of a text."""
    found = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def partition_of(group: str, count: int) -> int:
    """Return the partition of ``__consumer_offsets`` whose leader coordinates a group, as Kafka's Utils.abs does."""
    return (java_hash(group) & 0x7FFFFFFF) % count


def stretches(events: Sequence[Event], settle_s: float = SETTLE_S) -> dict[Place, list[SettledWindow]]:
    """Return the settled intervals of each partition of ``__consumer_offsets``."""
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    return {
        place: list(windows(place, seen, settings, faults, round(settle_s * NS)))
        for place, seen in observations.items()
        if place[0] == TOPIC
    }


def check_groups(events: Sequence[Event], *, settle_s: float = SETTLE_S, bound_s: float = BOUND_S) -> Verdict:
    """Check commits, rebalances and fetches of groups: fetches always continue, the rest only with a sufficient ISR.

    A sufficient ISR of the coordinator's partition has enough replicas and racks. While it is settled and sufficient,
    these are wrong:

    * a commit that fails, unless a rebalance overtook it, in an interval that has been sufficient under the same leader
      for longer than ``bound_s``;
    * a commit that takes longer than the bound;
    * a change of the group's members that does not complete within the bound, counted from the change or from the start
      of the interval: each member owns a partition, each partition has one owner;
    * a member that commits, but not successfully within the bound after the start of an interval.

    For the last two, consecutive intervals under one leader are one, though its ISR changes in between, and is unknown
    for a moment. While the ISR is insufficient, a commit that began and succeeded in the interval is wrong, and so is a
    rebalance.

    Always wrong:

    * a failed poll;
    * a commit that fails with an error other than those of an unresponsive coordinator or a rebalance;
    * a pause of more than ``FETCH_S`` in reading an owned partition, though records that the member had not read were
      acknowledged before;
    * a lost commit or a skipped record, see ``pyhooks.checkers.group_commits``.

    Unknown:

    * no member, or no observations and settings of ``__consumer_offsets``;
    * no judged commit of a group;
    * a change that is not known to have completed, or a history that ends before the bound;
    * a change that the next one overtakes within the bound. It is excused if that was within ``OVERTAKEN_S`` and one of
      these is true: all members leave then; the new member was still one when the next change completed; another change
      of the same kind (join or leave) completed in the same interval.

    Args:
        events: a whole history.
        settle_s: seconds granted to a change to take effect.
        bound_s: bound for commits and rebalances, in seconds.
    """
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    found, of = groups(events), stretches(events, settle_s)
    acked = acknowledged(events)
    if not found:
        missing.append("no member of a group in the history")
    if not of:
        missing.append(f"nobody looked at {TOPIC}")
    for group in found:
        check_commits(group, acked, left(events, group.name), wrong, missing)
    for group in found if of else ():
        place = (TOPIC, partition_of(group.name, len(of)))
        known = of.get(place, [])
        if not known:
            missing.append(f"{group.name}: no settled stretch of {place[0]}-{place[1]} was observed")
            continue
        bound_ns = round(bound_s * NS)
        judged = 0
        runs = _joined(known)
        for member in group.members:
            name = f"{group.name}: {member.run}"
            judged += _commits(name, member, known, bound_ns, wrong, notes)
            _resumed(name, member, runs, bound_ns, wrong, missing)
            _fetched(name, member, acked, wrong)
        if not judged:
            missing.append(f"{group.name}: no commit could be judged")
        for at_ns, what in group.changes:
            _rebalanced(f"{group.name}: {what}", group, at_ns, runs, bound_ns, wrong, missing)
    return Verdict.of("groups", wrong=wrong, missing=missing, notes=notes)


def _commits(
    name: str,
    member: GroupMemberLife,
    known: Sequence[SettledWindow],
    bound_ns: int,
    wrong: list[str],
    notes: list[str],
) -> int:
    """Judge a member's commits; return the number of commits whose expected outcome is known."""
    judged, overtaken = 0, 0
    for one in member.commits:
        if one.exception is not None and one.exception not in REBALANCING | WAITING:
            wrong.append(f"{name}: a commit failed with {one.exception}")
        window = _around(known, one.begun_ns, one.ended_ns)
        if window is None:
            continue
        judged += 1
        if not window.enough:
            if one.outcome == "ok":
                wrong.append(f"{name}: a commit succeeded after {one.latency_s:.1f} s while {_state(window)}: too few")
            continue
        overtaken += one.exception in REBALANCING
        fresh = one.begun_ns < _changed_ns(known, window) + bound_ns
        if one.outcome == "ok" and one.ended_ns - one.begun_ns > bound_ns:
            wrong.append(f"{name}: a commit took {one.latency_s:.1f} s while {_state(window)}: enough")
        elif one.exception in WAITING and one.exception != "not-reported" and not fresh:
            wrong.append(f"{name}: a commit failed with {one.exception} while {_state(window)}: enough")
    for at_ns, why in member.failures:
        wrong.append(f"{name}: a poll failed with {why} at {at_ns}")
    if overtaken:
        notes.append(f"{name}: {overtaken} commits were overtaken by a rebalance")
    return judged


def _resumed(
    name: str,
    member: GroupMemberLife,
    known: Sequence[SettledWindow],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge whether a member commits again once the ISR of its coordinator's partition is sufficient."""
    for window in known:
        before = _before(known, window)
        if not window.enough or before is None or before.enough or not member.lives(window.from_ns):
            continue
        ok_ns = [one.ended_ns for one in member.commits if one.outcome == "ok" and one.ended_ns >= window.from_ns]
        if ok_ns and min(ok_ns) <= window.from_ns + bound_ns:
            continue
        until_ns = min(member.leave_ns or window.to_ns, window.to_ns)
        what = f"{name}: no commit succeeded within {bound_ns / NS:g} s after {_state(window)}"
        if not any(one.ended_ns >= window.from_ns for one in member.commits):
            missing.append(f"{what}, and none was tried")
        elif until_ns >= window.from_ns + bound_ns:
            wrong.append(what)
        else:
            missing.append(f"{what}, and that was known for {(until_ns - window.from_ns) / NS:.1f} s only")


def _rebalanced(
    what: str,
    group: Group,
    at_ns: int,
    known: Sequence[SettledWindow],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judge one change of a group's members."""
    over_ns = group.balanced_ns(at_ns)
    next_ns = min((other for other, _ in group.changes if other > at_ns), default=None)
    if not any(one.lives(at_ns) for one in group.members):
        return  # the last one has left
    inside = _around(known, at_ns, at_ns)
    if inside is not None and not inside.enough:
        if over_ns is not None and over_ns <= inside.to_ns:
            said = f"was over after {(over_ns - at_ns) / NS:.1f} s while {_state(inside)}: too few"
            wrong.append(f"{what}: {said}")
            return
        inside = None
    if inside is None:
        # The change could not complete, or the state is unknown: take the first later interval in which it must
        # complete.
        inside = next((one for one in known if one.enough and one.from_ns > at_ns), None)
    if inside is None:
        if over_ns is None:
            missing.append(f"{what}: nothing tells that it was over, nor that it had to be")
        return
    since_ns = max(at_ns, inside.from_ns)
    if over_ns is not None and over_ns - since_ns <= bound_ns:
        return
    if next_ns is not None and next_ns - since_ns <= bound_ns:
        # If it was overtaken before the bound began, any other change is equally good evidence.
        kind = what.partition(": ")[2].partition(" ")[0] if next_ns > since_ns else ""
        soon = next_ns - since_ns <= OVERTAKEN_S * NS
        excused = (
            _dissolves(group, at_ns) or _over_with(group, at_ns, next_ns) or _another_over(group, at_ns, kind, inside)
        )
        if not (soon and excused):
            missing.append(f"{what}: not over when the next change came, {max(0, next_ns - since_ns) / NS:.1f} s later")
        return
    late = f"{what}: not over within {bound_ns / NS:g} s after {_state(inside)}"
    if inside.to_ns - since_ns > bound_ns:
        wrong.append(late)
    else:
        missing.append(f"{late}, and that was known for {(inside.to_ns - since_ns) / NS:.1f} s only")


def _dissolves(group: Group, at_ns: int) -> bool:
    """Return whether all members leave within ``OVERTAKEN_S`` and none joins any more."""
    until_ns = at_ns + OVERTAKEN_S * NS
    return all(one.join_ns <= at_ns and one.leave_ns is not None and one.leave_ns <= until_ns for one in group.members)


def _over_with(group: Group, at_ns: int, next_ns: int) -> bool:
    """Return whether the member that joined was still one when the next change completed: then both completed."""
    over_ns = group.balanced_ns(next_ns)
    return over_ns is not None and any(one.join_ns == at_ns and one.lives(over_ns) for one in group.members)


def _another_over(group: Group, at_ns: int, kind: str, window: SettledWindow) -> bool:
    """Return whether another change, of ``kind`` if not empty, completed in a window or since ``at_ns`` before it."""
    over = [
        group.balanced_ns(other_ns) for other_ns, other in group.changes if other_ns != at_ns and other.startswith(kind)
    ]
    from_ns = min(at_ns, window.from_ns)
    return any(moment is not None and from_ns <= moment <= window.to_ns for moment in over)


def _fetched(
    name: str, member: GroupMemberLife, acked: Mapping[str, Sequence[tuple[int, int]]], wrong: list[str]
) -> None:
    """Judge whether a member reads the partitions that it owns."""
    ends = [at_ns for at_ns, _ in member.has[1:]] + ([member.leave_ns] if member.leave_ns else [])
    for number, (from_ns, now) in enumerate(member.has):
        to_ns = ends[number] if number < len(ends) else None
        for place in sorted(now):
            got = [(at, after[place]) for at, _, after in member.fetches if place in after]
            for since_ns, until_ns, offset in _pauses(got, from_ns, to_ns):
                new = [
                    at for at, one in acked.get(place, ()) if since_ns <= at < until_ns - FETCH_S * NS and one >= offset
                ]
                if new:
                    pause_s = (until_ns - since_ns) / NS
                    wrong.append(f"{name}: nothing of {place} for {pause_s:.1f} s, though there was something to read")


def _pauses(got: Sequence[tuple[int, int]], from_ns: int, to_ns: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield pauses of more than ``FETCH_S`` in fetches of an owned partition, with the offset that was next."""
    inside = [(at, after) for at, after in got if at >= from_ns and (to_ns is None or at <= to_ns)]
    before = [after for at, after in got if at < from_ns]
    since_ns, offset = from_ns, before[-1] if before else 0
    for at, after in [*inside, *([(to_ns, 0)] if to_ns is not None else [])]:
        if at - since_ns > FETCH_S * NS:
            yield since_ns, at, offset
        since_ns, offset = at, after


def acknowledged(events: Sequence[Event]) -> dict[str, list[tuple[int, int]]]:
    """Return time and offset of each acknowledgement, by partition."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for event, produced in ProduceDetails.each(events):
        if event.outcome == "ok" and produced.offset is not None:
            found[f"{produced.topic}-{produced.partition}"].append((event.mono_ns, produced.offset))
    return found


def _joined(known: Sequence[SettledWindow]) -> list[SettledWindow]:
    """Merge consecutive intervals that have the same leader and the same expected outcome."""
    found: list[SettledWindow] = []
    for one in known:
        last = found[-1] if found else None
        if last is not None and (last.enough, last.observation.leader) == (one.enough, one.observation.leader):
            found[-1] = replace(last, to_ns=one.to_ns)
        else:
            found.append(one)
    return found


def _around(known: Sequence[SettledWindow], from_ns: int, to_ns: int) -> SettledWindow | None:
    """Return the interval that contains all of a period, or None."""
    return next((one for one in known if one.from_ns <= from_ns and to_ns <= one.to_ns), None)


def _before(known: Sequence[SettledWindow], window: SettledWindow) -> SettledWindow | None:
    """Return the interval before another one, or None."""
    at = known.index(window)
    return known[at - 1] if at else None


def _changed_ns(known: Sequence[SettledWindow], window: SettledWindow) -> int:
    """Return since when an ISR has been sufficient under its leader, or ``-NEVER_NS`` if no change was observed."""
    at = known.index(window)
    for number in range(at, 0, -1):
        one, before = known[number], known[number - 1]
        if not before.enough or before.observation.leader != one.observation.leader:
            return one.from_ns
    return -NEVER_NS


def _state(window: SettledWindow) -> str:
    racks = ", ".join(window.observation.isr_racks)
    return f"{TOPIC} had ISR {list(window.observation.isr)} in rack(s) {racks}"
