"""Settling times: how long outcomes may follow the old state after a change, and how long they did in a history.

A change reverses the outcome expected of a partition: another ISR, leader or setting is observed, and from then on its
ISR is sufficient (*enough* replicas and racks) where it was insufficient (*too few*), or vice versa. Outcomes may
follow the old state for no longer than the *bound*. It is given, not taken from the history, so that a history can't
excuse its own outcomes. The *measured* time of a history is how long they did follow it.

Until a change has settled, an outcome is no evidence for or against correctness. Nor is an outcome that follows a
change observed soon afterwards: the leader knows it first, and an observation queries any broker, whose metadata may
lag behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW
from pyhooks.kafka.gate import Requirement

NS = 1_000_000_000
SETTLE_S = 2.0
# Maximum lag of the queried broker's metadata behind the leader.
LAG_S = 1.0
LAG_NS = round(LAG_S * NS)
NEVER_NS = 1 << 63
# What else an attempt that contradicts the observations may have followed.
Excuse = Literal["", "next", "unclear"]
# A longer gap between observations could hide a change and its reversal.
BLIND_S = 3.0


@dataclass(frozen=True)
class Ahead:
    """Since when a leader may follow a state other than the observed one, which is up to ``LAG_S`` old.

    Attributes:
        next_ns: a state that is observed afterwards and calls for the opposite outcome.
        unclear_ns: a state that may never have been observed, or that a fault has caused.
        moved_ns: any other state that is observed afterwards, whatever outcome it calls for.
    """

    next_ns: int = NEVER_NS
    unclear_ns: int = NEVER_NS
    moved_ns: int = NEVER_NS

    @property
    def from_ns(self) -> int:
        """Earlier of ``next_ns`` and ``unclear_ns``."""
        return min(self.next_ns, self.unclear_ns)

    def excuse(self, attempt: Attempt) -> Excuse:
        """Return which other state an attempt that contradicts the observations may have followed."""
        if attempt.done_ns > self.next_ns:
            return "next"
        return "unclear" if attempt.done_ns > self.unclear_ns else ""


@dataclass(frozen=True)
class Piece:
    """An interval in which the state was known and constant.

    Attributes:
        from_ns: its start, monotonic.
        to_ns: its end.
        ahead: since when leaders may have followed other states.
    """

    from_ns: int
    to_ns: int
    ahead: Ahead


@dataclass(frozen=True)
class Span:
    """An interval in which one outcome was expected of a partition.

    Attributes:
        enough: whether replicas and racks in the ISR are enough to acknowledge.
        pieces: intervals in it with a constant state; between them the state was changing.
        before_ns: until when the opposite was known, if no longer than ``BLIND_S`` before: then the span begins with a
            change. Else None.
    """

    enough: bool
    pieces: tuple[Piece, ...]
    before_ns: int | None = None

    @property
    def from_ns(self) -> int:
        """Start of the first piece, monotonic."""
        return self.pieces[0].from_ns

    @property
    def to_ns(self) -> int:
        """End of the last piece, limited by the observations."""
        return self.pieces[-1].to_ns

    def inside(self, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Excuse]]:
        """Return attempts that began and ended within a piece, ordered by their ends, with their excuses."""
        found = []
        for one in attempts:
            at = bisect_right(self.pieces, one.sent_ns, key=lambda piece: piece.from_ns) - 1
            if at >= 0 and one.done_ns <= self.pieces[at].to_ns:
                found.append((one, self.pieces[at].ahead.excuse(one)))
        return sorted(found, key=lambda pair: pair[0].done_ns)


@dataclass(frozen=True)
class Change:
    """A change, and the outcomes of attempts that were sent after it.

    Attributes:
        span: what was expected from then on.
        old: attempts that ended as the previous state demands.
        sure: attempts in ``old`` without an excuse.
        follows: whether an attempt ended as the new state demands after the last one in ``old``.
    """

    span: Span
    old: tuple[Attempt, ...]
    sure: tuple[Attempt, ...]
    follows: bool

    @property
    def kept_s(self) -> float:
        """How long outcomes followed the old state, in seconds."""
        return (self.old[-1].done_ns - self.span.from_ns) / NS if self.old else 0.0


@dataclass(frozen=True)
class Settling:
    """Time granted to changes, and time they took, in seconds.

    Attributes:
        bound_s: the bound.
        measured_s: longest time for which outcomes followed the old state after a change; None if no change could be
            measured, because no outcome was seen to follow the new state.
        changes: number of changes measured.
        told_s: longest time from the request for other settings until all relevant brokers reported them; None if the
            history has no such request.
    """

    bound_s: float
    measured_s: float | None
    changes: int
    told_s: float | None

    @property
    def text(self) -> str:
        """Summary in one line."""
        granted = f"{self.bound_s:g} s are granted to a change to take effect"
        if self.measured_s is None:
            measured = "how long it takes was not measured: no outcome was seen to follow a change"
        else:
            measured = f"measured: {self.measured_s:.2f} s at most in {self.changes} changes"
        told = "" if self.told_s is None else f"; all brokers told other settings {self.told_s:.2f} s after the request"
        return f"{granted}; {measured}{told}"


def stretches(seen: Sequence[RecordedPartition], faults: Sequence[RecordedFault]) -> Iterator[list[RecordedPartition]]:
    """Yield runs of observations of the same state, with nothing in between that could hide another state."""
    current: list[RecordedPartition] = []
    for observation in seen:
        if current and (
            observation.state != current[-1].state
            or observation.at_ns - current[-1].at_ns > BLIND_S * NS
            or _disturbed(current[-1], observation, faults)
        ):
            yield current
            current = []
        current.append(observation)
    if current:
        yield current


def _disturbed(one: RecordedPartition, two: RecordedPartition, faults: Sequence[RecordedFault]) -> bool:
    """Return whether a fault of a replica began, or its heal began or was proved, between two observations.

    A replica that was back may be unavailable again.
    """
    ends = any(
        fault.healed_ns is not None and one.since_ns <= fault.healed_ns <= two.at_ns
        for fault in _of_replicas(one, two, faults)
    )
    return ends or _struck(one, two, faults)


def _struck(one: RecordedPartition, two: RecordedPartition, faults: Sequence[RecordedFault]) -> bool:
    """Return whether a fault of a replica, or its heal, began between two observations."""
    return any(
        at_ns is not None and one.since_ns <= at_ns <= two.at_ns
        for fault in _of_replicas(one, two, faults)
        for at_ns in (fault.inject_ns, fault.heal_ns)
    )


def _of_replicas(
    one: RecordedPartition, two: RecordedPartition, faults: Sequence[RecordedFault]
) -> Iterator[RecordedFault]:
    racks = {**one.racks, **two.racks}
    replicas = {*one.replicas, *two.replicas}
    return (fault for fault in faults if any(fault.hits(broker, racks) for broker in replicas))


def _joined(
    one: RecordedPartition,
    two: RecordedPartition,
    faults: Sequence[RecordedFault],
    enough: bool,
    wanted: Collection[Requirement],
) -> bool:
    """Return whether the expected outcome was the same throughout the time between observations of two states.

    An ISR changes to another by way of the union or the intersection of both.
    """
    if one.replicas != two.replicas or one.leader != two.leader or _disturbed(one, two, faults):
        return False
    ways = set(one.isr) & set(two.isr) if enough else set(one.isr) | set(two.isr)
    # A broker's rack changes only with a restart, so a member in another rack was unavailable in between.
    if any(one.racks.get(member) != two.racks.get(member) for member in set(one.isr) & set(two.isr)):
        return False
    between = replace(two, isr=tuple(sorted(ways)), racks={**one.racks, **two.racks})
    return all(requirement.met_by(between) is enough for requirement in wanted)


def ahead_of(
    topic: str,
    found: Sequence[Sequence[RecordedPartition]],
    number: int,
    settings: RequirementTimeline,
    faults: Sequence[RecordedFault],
    *,
    enough: bool,
) -> Ahead:
    """Return since when a leader may have followed other states while observations showed one.

    A later state may apply since the last observation of each state before it, less ``LAG_S``.

    Args:
        topic: name of the topic.
        found: runs of observations.
        number: index of the state's run.
        settings: settings of the history.
        faults: all faults of the history.
        enough: whether the state calls for acknowledgements.
    """
    last = one = found[number][-1]
    may_ns = last.since_ns - LAG_NS
    next_ns = unclear_ns = moved_ns = NEVER_NS
    for stretch in found[number + 1 :]:
        if may_ns >= last.since_ns:
            return Ahead(next_ns, unclear_ns, moved_ns)
        two = stretch[0]
        if two.at_ns - one.at_ns > BLIND_S * NS:
            break
        moved_ns = min(moved_ns, may_ns) if two.state != last.state else moved_ns
        wanted = settings.possible(topic, last.since_ns - LAG_NS, two.at_ns)
        struck = _struck(last, two, faults)
        if any(requirement.met_by(two) is not enough for requirement in wanted):
            if struck:
                unclear_ns = min(unclear_ns, may_ns)
            else:
                next_ns = min(next_ns, may_ns)
        elif struck or (one.state != two.state and not _joined(one, two, faults, enough, wanted)):
            unclear_ns = min(unclear_ns, may_ns)
        one = stretch[-1]
        may_ns = max(may_ns, one.since_ns - LAG_NS)
    # What came next was not observed.
    return Ahead(next_ns, min(unclear_ns, may_ns), moved_ns)


def under_faults(
    observation: RecordedPartition, faults: Sequence[RecordedFault], settle_ns: int, to_ns: int
) -> list[tuple[int, int]]:
    """Return the intervals in which observations of a state may be outdated due to a fault (``RecordedFault.clouds``).

    An interval lasts from the injection until the heal is proved and has settled, or until ``to_ns`` if it is not
    proved.
    """
    return [
        (fault.inject_ns, fault.healed_ns + settle_ns if fault.healed_ns is not None else to_ns)
        for fault in faults
        if fault.clouds(observation)
    ]


@dataclass(frozen=True)
class _Part:
    """An interval in which neither state nor settings change.

    Attributes:
        piece: the interval.
        looks: run of observations that it belongs to.
        enough: whether acknowledgements are expected, or None if unknown.
    """

    piece: Piece
    observations: Sequence[RecordedPartition]
    enough: bool | None


def spans(
    place: Place,
    seen: Sequence[RecordedPartition],
    settings: RequirementTimeline,
    faults: Sequence[RecordedFault],
    settle_ns: int,
) -> list[Span]:
    """Return the outcomes expected of a partition, in order of time, without intervals in which they are unknown."""
    found: list[Span] = []
    before: _Part | None = None
    for part in _parts(place, seen, settings, faults, settle_ns):
        if part.enough is not None:
            last = found[-1] if found else None
            near = last is not None and part.piece.from_ns - last.to_ns <= BLIND_S * NS
            if last is not None and near and before is not None and _goes_on(place[0], before, part, settings, faults):
                *pieces, end = last.pieces
                if end.to_ns == part.piece.from_ns:
                    pieces += [replace(end, to_ns=part.piece.to_ns)]
                else:
                    pieces += [end, part.piece]
                found[-1] = replace(last, pieces=tuple(pieces))
            else:
                opposite = last is not None and near and last.enough is not part.enough
                found.append(Span(part.enough, (part.piece,), last.to_ns if last is not None and opposite else None))
        before = part
    return found


def _goes_on(
    topic: str, before: _Part, part: _Part, settings: RequirementTimeline, faults: Sequence[RecordedFault]
) -> bool:
    """Return whether the same outcome was expected before a part, and all the time in between."""
    if part.enough is None or before.enough is not part.enough:
        return False
    if before.observations is part.observations:
        return True
    wanted = settings.possible(topic, before.piece.to_ns, part.piece.from_ns)
    return _joined(before.observations[-1], part.observations[0], faults, part.enough, wanted)


def _parts(
    place: Place,
    seen: Sequence[RecordedPartition],
    settings: RequirementTimeline,
    faults: Sequence[RecordedFault],
    settle_ns: int,
) -> Iterator[_Part]:
    found = [*stretches(seen, faults)]
    for number, stretch in enumerate(found):
        observation, from_ns, to_ns = stretch[0], stretch[0].at_ns, stretch[-1].since_ns
        cuts = under_faults(observation, faults, settle_ns, to_ns)
        edges = {at_ns for cut in cuts for at_ns in cut} | set(settings.edges(place[0]))
        marks = sorted({from_ns, to_ns} | {at_ns for at_ns in edges if from_ns < at_ns < to_ns})
        for begin_ns, end_ns in pairwise(marks):
            wanted = settings.possible(place[0], begin_ns + 1, end_ns - 1)
            expected = {one.met_by(observation) for one in wanted}
            cut = any(begin_ns < cut_to and cut_from < end_ns for cut_from, cut_to in cuts)
            if observation.replicas and len(expected) == 1 and not cut:
                (enough,) = expected
                ahead = ahead_of(place[0], found, number, settings, faults, enough=enough)
                yield _Part(Piece(begin_ns, end_ns, ahead), stretch, enough)
            else:
                yield _Part(Piece(begin_ns, end_ns, Ahead()), stretch, None)


def change_of(span: Span, attempts: Sequence[Attempt]) -> Change | None:
    """Return how outcomes followed the change that begins a span; None if it begins with no observed change."""
    if span.before_ns is None:
        return None
    inside = span.inside(attempts)
    new = [one for one, _ in inside if follows(one, enough=span.enough)]
    # Once an attempt has followed the change, others may follow the next one.
    old = [
        (one, excuse)
        for one, excuse in inside
        if follows(one, enough=not span.enough) and not (excuse == "next" and new and new[0].done_ns < one.sent_ns)
    ]
    return Change(
        span,
        tuple(one for one, _ in old),
        tuple(one for one, excuse in old if not excuse),
        any(not old or one.done_ns > old[-1][0].done_ns for one in new),
    )


def follows(attempt: Attempt, *, enough: bool) -> bool:
    """Return whether an attempt ended as only a sufficient, or insufficient, ISR allows; others are no evidence."""
    return attempt.outcome == "ok" if enough else attempt.exception in TOO_FEW


def late(span: Span, attempts: Sequence[Attempt], settle_ns: int) -> list[tuple[Attempt, Excuse]]:
    """Return attempts that ended as the opposite demands, though sent after a change had time to settle.

    Attempts that may follow the state observed next are left out.
    """
    over_ns = span.from_ns + settle_ns
    return [
        (one, excuse)
        for one, excuse in span.inside(attempts)
        if one.sent_ns >= over_ns and excuse != "next" and follows(one, enough=not span.enough)
    ]


def settling(
    changes: Sequence[Change], settings: RequirementTimeline, topics: Sequence[str], bound_s: float
) -> Settling:
    """Return how long changes took."""
    measured = [change.kept_s for change in changes if change.follows]
    told = [
        (request.ended.at_ns - request.begun.at_ns) / NS
        for topic in topics
        for request in settings.requests(topic)
        if request.ended is not None and request.ended.step == "settled"
    ]
    return Settling(bound_s, max(measured, default=None), len(measured), max(told, default=None))


def measure(events: Sequence[Event], bound_s: float = SETTLE_S) -> Settling:
    """Measure how long changes took in a history.

    Args:
        events: a whole history.
        bound_s: seconds granted to a change.
    """
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    found: list[Change] = []
    for place, own in attempts_of(Records(events)).items():
        for span in spans(place, observations.get(place, ()), settings, faults, round(bound_s * NS)):
            change = change_of(span, own)
            found += [change] if change is not None else []
    return settling(found, settings, settings.topics, bound_s)


def attempts_of(records: Records) -> Mapping[Place, Sequence[Attempt]]:
    """Return the attempts that the gate applies to and whose partition is known, by partition.

    Attempts with acks=1 are left out: the leader accepts them whatever the ISR is.
    """
    found: defaultdict[Place, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.partition is not None and records.shared(attempt):
            found[attempt.topic, attempt.partition].append(attempt)
    return found
