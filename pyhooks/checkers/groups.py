"""Do consumer groups commit, rebalance and fetch exactly as the partition of their coordinator allows?

Reads the events of ``pyhooks.workload.group_members``, faults, looks and settings of ``__consumer_offsets``, and what
groups had committed in the end (``pyhooks.checkers.group_commits``). A coordinator appends to its partition with
acks=1, so that neither replicas nor racks are asked; but it answers when the record is below the high watermark, which
stands still while the ISR has too few of either. So a commit or a change of a group's members is not answered then,
other than by its own timeout (``offsets.commit.timeout.ms``), and no refusal is ever seen. What is expected is computed
from M, R, placement and ISR of the group's partition; a replication factor below either caps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Settings
from pyhooks.checkers.group_commits import check_commits, left
from pyhooks.checkers.group_view import Group, Member, groups
from pyhooks.checkers.progress import Window, windows
from pyhooks.checkers.record_view import Place
from pyhooks.checkers.settling_times import NEVER_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS

TOPIC = "__consumer_offsets"
CLIENTS = "org.apache.kafka.clients.consumer"
# Members ask for their coordinator again, and join again if a rebalance came to nothing while nobody answered: a
# rebalance that waits for all of them takes as long as their heartbeats and requests take to fail.
BOUND_S = 45.0
# A change that the next one overtakes within this time tells nothing; one that had longer was to be seen to be over.
OVERTAKEN_S = 20.0
# Who is kept from reading by an outage reads nothing until its end; the rest is for a machine that is busy: one with a
# load of 30 on two cores answered nobody for 24 s.
FETCH_S = 30.0
# Refusals of a member that a rebalance has overtaken; it joins again.
REBALANCING = frozenset(
    {
        f"{CLIENTS}.CommitFailedException",
        *(
            f"{ERRORS}.{name}"
            for name in (
                "RebalanceInProgressException",
                "IllegalGenerationException",
                "UnknownMemberIdException",
                "StaleMemberEpochException",
            )
        ),
    }
)
# What a client says of a coordinator that does not answer, or not yet; the first is what it makes of the others.
WAITING = frozenset(
    {
        f"{CLIENTS}.RetriableCommitFailedException",
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
    """What Java's String.hashCode gives."""
    found = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def partition_of(group: str, count: int) -> int:
    """The partition of ``__consumer_offsets`` whose leader coordinates a group, as Kafka's Utils.abs has it."""
    return (java_hash(group) & 0x7FFFFFFF) % count


def stretches(events: Sequence[Event], settle_s: float = SETTLE_S) -> dict[Place, list[Window]]:
    """The settled stretches of each partition of ``__consumer_offsets``."""
    settings, faults, looks = Settings(events), cluster_view.faults(events), cluster_view.looks(events)
    return {
        place: list(windows(place, seen, settings, faults, round(settle_s * NS)))
        for place, seen in looks.items()
        if place[0] == TOPIC
    }


def check_groups(events: Sequence[Event], *, settle_s: float = SETTLE_S, bound_s: float = BOUND_S) -> Verdict:
    """Commits and rebalances succeed exactly while the coordinator's partition is enough, and fetches go on always.

    Where it is enough, settled and for longer than ``bound_s`` since it was not, or had another leader: a commit that
    fails is wrong, unless a rebalance overtook it, and so is one that takes longer than the bound. Each change of a
    group's members must be over within the bound, from the change or from the begin of the stretch on: each member has
    something, each partition one owner. So must each member that commits have succeeded within the bound after the
    begin of a stretch. For these two, stretches under one leader are one, though its ISR changes in between, and is not
    known for a moment.

    Where it is not enough: a commit that was begun and succeeded in the stretch is wrong, and so is a rebalance.
    Everywhere a commit that fails with anything but what a silent coordinator or a rebalance makes a client say is
    wrong, and a failed poll, too. A member that has a partition must go on reading it: wrong is a pause of more than
    ``FETCH_S`` though records that it had not read were acknowledged before. No commit is lost and no record skipped,
    as ``pyhooks.checkers.group_commits`` says.

    Unknown without a member, without looks and settings of ``__consumer_offsets``, if no commit of a group could be
    judged, if a change is over at no moment that is known, or the history ends before the bound does. So it is if the
    next change overtakes one within the bound, unless that was within ``OVERTAKEN_S``, and all leave then, or who
    joined had its part when the next one was over, or another join or leave, as it was one, was over in the same
    stretch.

    Args:
        events: a whole history.
        settle_s: what is granted to a change to take effect, in seconds.
        bound_s: for commits and rebalances, in seconds.
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
    name: str, member: Member, known: Sequence[Window], bound_ns: int, wrong: list[str], notes: list[str]
) -> int:
    """Judges a member's commits, and returns of how many it is known what was expected."""
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
    name: str, member: Member, known: Sequence[Window], bound_ns: int, wrong: list[str], missing: list[str]
) -> None:
    """Judges whether a member commits again when all is enough after it was not."""
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
    known: Sequence[Window],
    bound_ns: int,
    wrong: list[str],
    missing: list[str],
) -> None:
    """Judges one change of a group's members."""
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
        # from a change that nobody could answer, or of which nobody knows, to the first stretch in which all is enough
        inside = next((one for one in known if one.enough and one.from_ns > at_ns), None)
    if inside is None:
        if over_ns is None:
            missing.append(f"{what}: nothing tells that it was over, nor that it had to be")
        return
    since_ns = max(at_ns, inside.from_ns)
    if over_ns is not None and over_ns - since_ns <= bound_ns:
        return
    if next_ns is not None and next_ns - since_ns <= bound_ns:
        # of one that was overtaken before it had to be over any other one tells as much
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
    """Whether all leave at about that time, one after the other, and nobody joins any more."""
    until_ns = at_ns + OVERTAKEN_S * NS
    return all(one.join_ns <= at_ns and one.leave_ns is not None and one.leave_ns <= until_ns for one in group.members)


def _over_with(group: Group, at_ns: int, next_ns: int) -> bool:
    """Whether who joined at a moment had its part when the next change was over: then both were."""
    over_ns = group.balanced_ns(next_ns)
    return over_ns is not None and any(one.join_ns == at_ns and one.lives(over_ns) for one in group.members)


def _another_over(group: Group, at_ns: int, kind: str, window: Window) -> bool:
    """Whether another change, of a kind if one is told, was over in a stretch, or on the way from a change to it."""
    over = [
        group.balanced_ns(other_ns) for other_ns, other in group.changes if other_ns != at_ns and other.startswith(kind)
    ]
    from_ns = min(at_ns, window.from_ns)
    return any(moment is not None and from_ns <= moment <= window.to_ns for moment in over)


def _fetched(name: str, member: Member, acked: Mapping[str, Sequence[tuple[int, int]]], wrong: list[str]) -> None:
    """Judges whether a member reads what it has."""
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
    """Stretches of more than ``FETCH_S`` without a record of what was owned, with the offset that was next."""
    inside = [(at, after) for at, after in got if at >= from_ns and (to_ns is None or at <= to_ns)]
    before = [after for at, after in got if at < from_ns]
    since_ns, offset = from_ns, before[-1] if before else 0
    for at, after in [*inside, *([(to_ns, 0)] if to_ns is not None else [])]:
        if at - since_ns > FETCH_S * NS:
            yield since_ns, at, offset
        since_ns, offset = at, after


def acknowledged(events: Sequence[Event]) -> dict[str, list[tuple[int, int]]]:
    """When which offset of a partition was acknowledged."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event.op == "produce" and event.outcome == "ok" and event.data.get("offset") is not None:
            found[f"{event.data['topic']}-{event.data['partition']}"].append((event.mono_ns, int(event.data["offset"])))
    return found


def _joined(known: Sequence[Window]) -> list[Window]:
    """Stretches with those that follow them under the same leader, if the same is expected of both."""
    found: list[Window] = []
    for one in known:
        last = found[-1] if found else None
        if last is not None and (last.enough, last.look.leader) == (one.enough, one.look.leader):
            found[-1] = replace(last, to_ns=one.to_ns)
        else:
            found.append(one)
    return found


def _around(known: Sequence[Window], from_ns: int, to_ns: int) -> Window | None:
    """The stretch that has all of a piece of time."""
    return next((one for one in known if one.from_ns <= from_ns and to_ns <= one.to_ns), None)


def _before(known: Sequence[Window], window: Window) -> Window | None:
    """The stretch before one."""
    at = known.index(window)
    return known[at - 1] if at else None


def _changed_ns(known: Sequence[Window], window: Window) -> int:
    """Since when a stretch's partition is enough under its leader, as far as that was seen to change."""
    at = known.index(window)
    for number in range(at, 0, -1):
        one, before = known[number], known[number - 1]
        if not before.enough or before.look.leader != one.look.leader:
            return one.from_ns
    return -NEVER_NS


def _state(window: Window) -> str:
    racks = ", ".join(window.look.isr_racks)
    return f"{TOPIC} had ISR {list(window.look.isr)} in rack(s) {racks}"
