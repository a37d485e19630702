"""How long a change may take until all go by it, and how long it took in a history.

A change is one of what a partition has to do: its ISR or leader is seen otherwise, or its topic's settings are told
otherwise, and from then on its replicas and racks are enough where they were too few, or too few where they were
enough. Outcomes may follow the old state for as long as the *bound* says, and no longer; it is given, not taken from
the history, so that nothing a history shows can excuse what it shows. What is *measured* in a history is how long they
did. Until a change is over an outcome speaks neither for nor against anybody. Nor does one that goes by a change which
is seen soon afterwards: the leader knows it first, and a look asks any broker, whose metadata lag behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyhooks.checker import cluster
from pyhooks.checker.cluster import Fault, Look, Requirement, Settings
from pyhooks.checker.records import Attempt, Place, Records
from pyhooks.history import Event
from pyhooks.workload.certainty import TOO_FEW

NS = 1_000_000_000
SETTLE_S = 2.0
# By how much the metadata of the broker that a look asks may lag behind the leader.
LAG_S = 1.0
NEVER_NS = 1 << 63
# A gap between looks that is longer than this could hide a change and its reversal.
BLIND_S = 3.0


@dataclass(frozen=True)
class Span:
    """A stretch of time in which one thing was expected of a partition.

    Attributes:
        from_ns: when that was first known, monotonic.
        to_ns: until when it was, as far as anybody looked.
        enough: whether replicas and racks in the ISR are enough to acknowledge.
        parts: the stretches in it in which the partition's state was the same; between them it was in motion.
        before_ns: until when the opposite was known, if that was within ``BLIND_S``; so this begins with a change.
        sure_ns: until when outcomes must go by it; after that they may go by what was seen next.
    """

    from_ns: int
    to_ns: int
    enough: bool
    parts: tuple[tuple[int, int], ...]
    before_ns: int | None = None
    sure_ns: int = NEVER_NS

    def inside(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Attempts that began and ended while the state was known, by their ends."""
        found = []
        for one in attempts:
            at = bisect_right(self.parts, one.sent_ns, key=lambda part: part[0]) - 1
            if at >= 0 and one.done_ns <= self.parts[at][1]:
                found.append(one)
        return sorted(found, key=lambda one: one.done_ns)


@dataclass(frozen=True)
class Change:
    """A change, and what attempts that were sent after it became of.

    Attributes:
        span: what was expected from then on.
        old: attempts that ended as the state before demands.
        follows: whether one ended as the new state demands after the last of those.
    """

    span: Span
    old: tuple[Attempt, ...]
    follows: bool

    @property
    def kept_s(self) -> float:
        """For how long outcomes followed the old state."""
        return (self.old[-1].done_ns - self.span.from_ns) / NS if self.old else 0.0


@dataclass(frozen=True)
class Settling:
    """What was granted to changes, and what they took.

    Attributes:
        bound_s: the bound.
        measured_s: for how long at most outcomes followed the old state after a change; None if no change could be
            measured, as no outcome was seen to follow the new one.
        changes: how many could be measured.
        told_s: what it took at most from the request for other settings until all brokers concerned told them; None
            if the history tells of no such request.
    """

    bound_s: float
    measured_s: float | None
    changes: int
    told_s: float | None

    @property
    def text(self) -> str:
        """In one line."""
        granted = f"{self.bound_s:g} s are granted to a change to take effect"
        if self.measured_s is None:
            measured = "how long it takes was not measured: no outcome was seen to follow a change"
        else:
            measured = f"measured: {self.measured_s:.2f} s at most in {self.changes} changes"
        told = "" if self.told_s is None else f"; all brokers told other settings {self.told_s:.2f} s after the request"
        return f"{granted}; {measured}{told}"


def stretches(seen: Sequence[Look], faults: Sequence[Fault]) -> Iterator[list[Look]]:
    """Looks in a row at the same state, with nothing in between by which it could have been another."""
    current: list[Look] = []
    for look in seen:
        if current and (
            look.state != current[-1].state
            or look.at_ns - current[-1].at_ns > BLIND_S * NS
            or _disturbed(current[-1], look, faults)
        ):
            yield current
            current = []
        current.append(look)
    if current:
        yield current


def _disturbed(one: Look, two: Look, faults: Sequence[Fault]) -> bool:
    """Whether a fault of a replica began or was healed between two looks: one that was back may be gone again."""
    ends = any(
        fault.healed_ns is not None and one.since_ns <= fault.healed_ns <= two.at_ns
        for fault in _of_replicas(one, two, faults)
    )
    return ends or _struck(one, two, faults)


def _struck(one: Look, two: Look, faults: Sequence[Fault]) -> bool:
    """Whether a fault of a replica, or its heal, began between two looks."""
    return any(
        at_ns is not None and one.since_ns <= at_ns <= two.at_ns
        for fault in _of_replicas(one, two, faults)
        for at_ns in (fault.inject_ns, fault.heal_ns)
    )


def _of_replicas(one: Look, two: Look, faults: Sequence[Fault]) -> Iterator[Fault]:
    racks = {**one.racks, **two.racks}
    replicas = {*one.replicas, *two.replicas}
    return (fault for fault in faults if any(fault.hits(broker, racks) for broker in replicas))


def _joined(one: Look, two: Look, faults: Sequence[Fault], enough: bool, wanted: Collection[Requirement]) -> bool:
    """Whether what is expected was the same all the way between two looks at different states.

    An ISR gets from one to another by way of both together, or of what they have in common.
    """
    if one.replicas != two.replicas or one.leader != two.leader or _disturbed(one, two, faults):
        return False
    ways = set(one.isr) & set(two.isr) if enough else set(one.isr) | set(two.isr)
    between = replace(two, isr=tuple(sorted(ways)), racks={**one.racks, **two.racks})
    return all(requirement.met_by(between) is enough for requirement in wanted)


def sure_ns(
    topic: str, one: Look, two: Look | None, faults: Sequence[Fault], settings: Settings, *, enough: bool
) -> int:
    """Until when what looks tell of a state is what the leader goes by.

    A change that a fault or its heal may have caused has not begun before that did.

    Args:
        topic: of which.
        one: the last look at the state.
        two: the next look, if there is one.
        faults: all of them.
        settings: of the topic.
        enough: what the state calls for.
    """
    if (
        two is None
        or _struck(one, two, faults)
        or _joined(one, two, faults, enough, settings.possible(topic, one.since_ns, two.at_ns))
    ):
        return NEVER_NS
    return one.since_ns - round(LAG_S * NS)


def under_faults(look: Look, faults: Sequence[Fault], settle_ns: int, to_ns: int) -> list[tuple[int, int]]:
    """When looks at a state tell what was, and not what is: something under a fault leads or is in sync.

    So it is from the fault's begin until its heal is proved and has settled, or until ``to_ns`` if it is not.
    """
    return [
        (fault.inject_ns, fault.healed_ns + settle_ns if fault.healed_ns is not None else to_ns)
        for fault in faults
        if any(fault.hits(broker, look.racks) for broker in {look.leader, *look.isr})
    ]


@dataclass(frozen=True)
class _Part:
    """A piece of time in which neither state nor settings change.

    Attributes:
        from_ns: its start.
        to_ns: its end.
        looks: those at its state, of which it is a piece.
        enough: what is expected, or None where that is not known.
        seen: the same, by looks alone, whatever faults there are.
        sure_ns: see ``Span``.
    """

    from_ns: int
    to_ns: int
    looks: Sequence[Look]
    enough: bool | None
    seen: bool | None
    sure_ns: int


def spans(
    place: Place, seen: Sequence[Look], settings: Settings, faults: Sequence[Fault], settle_ns: int
) -> list[Span]:
    """What was expected of a partition, in the order of time; where nobody knows there is none."""
    found: list[Span] = []
    before: _Part | None = None
    for part in _parts(place, seen, settings, faults, settle_ns):
        if part.enough is not None:
            last = found[-1] if found else None
            near = last is not None and part.from_ns - last.to_ns <= BLIND_S * NS
            held = settings.possible(place[0], before.to_ns, part.from_ns) if before else frozenset()
            if last is not None and near and before is not None and _goes_on(before, part, faults, held):
                *parts, (begin_ns, end_ns) = last.parts
                parts += (
                    [(begin_ns, part.to_ns)]
                    if end_ns == part.from_ns
                    else [(begin_ns, end_ns), (part.from_ns, part.to_ns)]
                )
                found[-1] = replace(last, to_ns=part.to_ns, parts=tuple(parts), sure_ns=part.sure_ns)
            else:
                before_ns = last.to_ns if last is not None and near and last.enough is not part.enough else None
                own = ((part.from_ns, part.to_ns),)
                found.append(Span(part.from_ns, part.to_ns, part.enough, own, before_ns, part.sure_ns))
        before = part
    return found


def _goes_on(before: _Part, part: _Part, faults: Sequence[Fault], wanted: Collection[Requirement]) -> bool:
    """Whether the same was expected before a piece, and all the time in between, in which ``wanted`` may have held."""
    if part.enough is None or before.enough is not part.enough:
        return False
    if before.looks is part.looks:
        return True
    return _joined(before.looks[-1], part.looks[0], faults, part.enough, wanted)


def _parts(
    place: Place, seen: Sequence[Look], settings: Settings, faults: Sequence[Fault], settle_ns: int
) -> Iterator[_Part]:
    for stretch, after in with_next(stretches(seen, faults)):
        look, from_ns, to_ns = stretch[0], stretch[0].at_ns, stretch[-1].since_ns
        cuts = under_faults(look, faults, settle_ns, to_ns)
        edges = {at_ns for cut in cuts for at_ns in cut} | set(settings.edges(place[0]))
        marks = sorted({from_ns, to_ns} | {at_ns for at_ns in edges if from_ns < at_ns < to_ns})
        for begin_ns, end_ns in pairwise(marks):
            wanted = settings.possible(place[0], begin_ns + 1, end_ns - 1)
            expected = {one.met_by(look) for one in wanted}
            told = expected.pop() if look.replicas and len(expected) == 1 else None
            cut = any(begin_ns < cut_to and cut_from < end_ns for cut_from, cut_to in cuts)
            until_ns = NEVER_NS
            if told is not None and end_ns == to_ns:
                until_ns = sure_ns(place[0], stretch[-1], after, faults, settings, enough=told)
            yield _Part(begin_ns, end_ns, stretch, None if cut else told, told, until_ns)


def with_next(found: Iterable[list[Look]]) -> Iterator[tuple[list[Look], Look | None]]:
    """Stretches, and with each the first look of the next one."""
    ahead = [*found]
    yield from zip(ahead, [*(stretch[0] for stretch in ahead), None][1:], strict=True)


def doubtful(
    place: Place,
    seen: Sequence[Look],
    settings: Settings,
    faults: Sequence[Fault],
    settle_ns: int,
    attempts: Sequence[Attempt],
) -> list[Attempt]:
    """Attempts that contradict looks at a state in which something under a fault leads or is in sync, and which lasts.

    Looks may tell what was; but nobody knows.
    """
    found = []
    for part in _parts(place, seen, settings, faults, settle_ns):
        if part.seen is not None and part.enough is None:
            found += [
                one
                for one in attempts
                if part.from_ns + settle_ns <= one.sent_ns
                and one.done_ns <= min(part.to_ns, part.sure_ns)
                and follows(one, enough=not part.seen)
            ]
    return found


def change_of(span: Span, attempts: Sequence[Attempt]) -> Change | None:
    """How outcomes took to what a span expects; None if it does not begin with a change that was seen."""
    if span.before_ns is None:
        return None
    inside = span.inside(attempts)
    against = [one for one in inside if follows(one, enough=not span.enough)]
    new = [one for one in inside if follows(one, enough=span.enough)]
    # When one has followed the change, those at the end may follow the next one.
    early = [one for one in against if new and new[0].done_ns < one.sent_ns and one.done_ns > span.sure_ns]
    old = tuple(one for one in against if one not in early)
    return Change(span, old, any(not old or one.done_ns > old[-1].done_ns for one in new))


def follows(attempt: Attempt, *, enough: bool) -> bool:
    """Whether an attempt ended as only a partition does whose ISR is enough, or too few; others say nothing."""
    return attempt.outcome == "ok" if enough else attempt.exception in TOO_FEW


def late(span: Span, attempts: Sequence[Attempt], settle_ns: int) -> list[Attempt]:
    """Attempts that ended as the opposite demands though they were sent after a change had time to settle."""
    over_ns = span.from_ns + settle_ns
    return [
        one
        for one in span.inside(attempts)
        if one.sent_ns >= over_ns and one.done_ns <= span.sure_ns and follows(one, enough=not span.enough)
    ]


def settling(changes: Sequence[Change], settings: Settings, topics: Sequence[str], bound_s: float) -> Settling:
    """What changes took."""
    measured = [change.kept_s for change in changes if change.follows]
    told = [
        (request.ended.at_ns - request.begun.at_ns) / NS
        for topic in topics
        for request in settings.requests(topic)
        if request.ended is not None and request.ended.step == "settled"
    ]
    return Settling(bound_s, max(measured, default=None), len(measured), max(told, default=None))


def measure(events: Sequence[Event], bound_s: float = SETTLE_S) -> Settling:
    """What changes took in a history.

    Args:
        events: a whole history.
        bound_s: what is granted to them, in seconds.
    """
    settings, faults, looks = Settings(events), cluster.faults(events), cluster.looks(events)
    found: list[Change] = []
    for place, own in attempts_of(Records(events)).items():
        for span in spans(place, looks.get(place, ()), settings, faults, round(bound_s * NS)):
            change = change_of(span, own)
            found += [change] if change is not None else []
    return settling(found, settings, settings.topics, bound_s)


def attempts_of(records: Records) -> Mapping[Place, Sequence[Attempt]]:
    """The attempts of which it is known where they went."""
    found: defaultdict[Place, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.partition is not None:
            found[attempt.topic, attempt.partition].append(attempt)
    return found
