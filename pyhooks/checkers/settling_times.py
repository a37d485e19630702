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

from pyhooks.checkers.cluster_view import ClusterView, RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
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
    """Since when a leader may follow a state other than the observed one, which is up to ``LAG_S`` old."""

    next_ns: int = NEVER_NS  # a state that is observed afterwards and calls for the opposite outcome
    unclear_ns: int = NEVER_NS  # a state that may never have been observed, or that a fault has caused
    moved_ns: int = NEVER_NS  # any other state that is observed afterwards, whatever outcome it calls for

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
    """An interval in which the state was known and constant."""

    from_ns: int  # its start, monotonic
    to_ns: int
    ahead: Ahead  # since when leaders may have followed other states


@dataclass(frozen=True)
class Span:
    """An interval in which one outcome was expected of a partition."""

    enough: bool  # whether replicas and racks in the ISR are enough to acknowledge
    pieces: tuple[Piece, ...]  # intervals in it with a constant state; between them the state was changing
    # until when the opposite was known, if no longer than ``BLIND_S`` before: then the span begins with a change. Else
    # None.
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
        excused = []
        for attempt in attempts:
            index = bisect_right(self.pieces, attempt.sent_ns, key=lambda piece: piece.from_ns) - 1
            if index >= 0 and attempt.done_ns <= self.pieces[index].to_ns:
                excused.append((attempt, self.pieces[index].ahead.excuse(attempt)))
        return sorted(excused, key=lambda pair: pair[0].done_ns)


@dataclass(frozen=True)
class Change:
    """A change, and the outcomes of attempts that were sent after it."""

    span: Span  # expected outcome from then on
    old: tuple[Attempt, ...]  # attempts that ended as the previous state demands
    certain: tuple[Attempt, ...]  # attempts in ``old`` without an excuse
    followed: bool  # whether an attempt ended as the new state demands after the last one in ``old``

    @property
    def lag_s(self) -> float:
        """How long outcomes followed the old state, in seconds."""
        return (self.old[-1].done_ns - self.span.from_ns) / NS if self.old else 0.0


@dataclass(frozen=True)
class Settling:
    """Time granted to changes, and time they took, in seconds."""

    bound_s: float
    # longest time for which outcomes followed the old state after a change; None if no change could be measured,
    # because no outcome was seen to follow the new state
    measured_s: float | None
    changes: int  # number of changes measured
    # longest time from the request for other settings until all relevant brokers reported them; None if the history has
    # no such request
    reported_s: float | None

    @property
    def text(self) -> str:
        """Summary in one line."""
        granted = f"{self.bound_s:g} s are granted to a change to take effect"
        if self.measured_s is None:
            measured = "not measured: no outcome was seen to follow a change"
        else:
            measured = f"measured: {self.measured_s:.2f} s at most in {self.changes} changes"
        if self.reported_s is None:
            return f"{granted}; {measured}"
        return f"{granted}; {measured}; all brokers reported new settings within {self.reported_s:.2f} s"


def stretches(
    observations: Sequence[RecordedPartition], faults: Sequence[RecordedFault]
) -> Iterator[list[RecordedPartition]]:
    """Yield runs of observations of the same state, with nothing in between that could hide another state."""
    current: list[RecordedPartition] = []
    for observation in observations:
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


def _disturbed(
    first: RecordedPartition, second: RecordedPartition, faults: Sequence[RecordedFault], *, proofs: bool = True
) -> bool:
    """Return whether a fault of a replica, or its heal, began between two observations, or a heal was proved.

    A replica that was back may be unavailable again.

    Args:
        first: the earlier observation.
        second: the later observation.
        faults: all faults of the history.
        proofs: whether proofs of heals count.
    """
    racks = {**first.racks, **second.racks}
    replicas = {*first.replicas, *second.replicas}
    return any(
        at_ns is not None and first.since_ns <= at_ns <= second.at_ns
        for fault in faults
        if any(fault.hits(broker, racks) for broker in replicas)
        for at_ns in (fault.inject_ns, fault.heal_ns, fault.healed_ns if proofs else None)
    )


def _same_between(
    first: RecordedPartition,
    second: RecordedPartition,
    faults: Sequence[RecordedFault],
    enough: bool,
    required: Collection[Requirement],
) -> bool:
    """Return whether the expected outcome was the same throughout the time between observations of two states.

    An ISR changes to another by way of the union or the intersection of both.
    """
    if first.replicas != second.replicas or first.leader != second.leader or _disturbed(first, second, faults):
        return False
    in_both = set(first.isr) & set(second.isr)
    # A broker's rack changes only with a restart, so a member in another rack was unavailable in between.
    if any(first.racks.get(member) != second.racks.get(member) for member in in_both):
        return False
    extreme = in_both if enough else set(first.isr) | set(second.isr)
    between = replace(second, isr=tuple(sorted(extreme)), racks={**first.racks, **second.racks})
    return all(requirement.met_by(between) is enough for requirement in required)


def ahead_of(
    topic: str,
    intervals: Sequence[Sequence[RecordedPartition]],
    number: int,
    cluster: ClusterView,
    *,
    enough: bool,
) -> Ahead:
    """Return since when a leader may have followed other states while observations showed one.

    A later state may apply since the last observation of each state before it, less ``LAG_S``.

    Args:
        topic: name of the topic.
        intervals: runs of observations.
        number: index of the state's run.
        cluster: view of the history.
        enough: whether the state calls for acknowledgements.
    """
    last = previous = intervals[number][-1]
    may_ns = last.since_ns - LAG_NS
    next_ns = unclear_ns = moved_ns = NEVER_NS
    for stretch in intervals[number + 1 :]:
        if may_ns >= last.since_ns:
            return Ahead(next_ns, unclear_ns, moved_ns)
        first = stretch[0]
        if first.at_ns - previous.at_ns > BLIND_S * NS:
            break
        moved_ns = min(moved_ns, may_ns) if first.state != last.state else moved_ns
        required = cluster.settings.possible(topic, last.since_ns - LAG_NS, first.at_ns)
        disturbed = _disturbed(last, first, cluster.faults, proofs=False)
        if any(requirement.met_by(first) is not enough for requirement in required):
            if disturbed:
                unclear_ns = min(unclear_ns, may_ns)
            else:
                next_ns = min(next_ns, may_ns)
        elif disturbed or (
            previous.state != first.state and not _same_between(previous, first, cluster.faults, enough, required)
        ):
            unclear_ns = min(unclear_ns, may_ns)
        previous = stretch[-1]
        may_ns = max(may_ns, previous.since_ns - LAG_NS)
    # What came next was not observed.
    return Ahead(next_ns, min(unclear_ns, may_ns), moved_ns)


@dataclass(frozen=True)
class StateInterval:
    """An interval in which neither state nor settings change."""

    piece: Piece
    observations: Sequence[RecordedPartition]  # run of observations that it belongs to
    enough: bool | None  # whether acknowledgements are expected, or None if unknown


def spans(partition: PartitionName, cluster: ClusterView, settle_ns: int) -> list[Span]:
    """Return the outcomes expected of a partition, in order of time, without intervals in which they are unknown."""
    expected: list[Span] = []
    before: StateInterval | None = None
    for part in state_intervals(partition, cluster, settle_ns):
        if part.enough is not None:
            last = expected[-1] if expected else None
            near = last is not None and part.piece.from_ns - last.to_ns <= BLIND_S * NS
            if last is not None and near and before is not None and _continues(partition.topic, before, part, cluster):
                *pieces, end = last.pieces
                if end.to_ns == part.piece.from_ns:
                    pieces += [replace(end, to_ns=part.piece.to_ns)]
                else:
                    pieces += [end, part.piece]
                expected[-1] = replace(last, pieces=tuple(pieces))
            else:
                opposite = last is not None and near and last.enough is not part.enough
                expected.append(Span(part.enough, (part.piece,), last.to_ns if last is not None and opposite else None))
        before = part
    return expected


def _continues(topic: str, before: StateInterval, part: StateInterval, cluster: ClusterView) -> bool:
    """Return whether the same outcome was expected before a part, and all the time in between."""
    if part.enough is None or before.enough is not part.enough:
        return False
    if before.observations is part.observations:
        return True
    required = cluster.settings.possible(topic, before.piece.to_ns, part.piece.from_ns)
    return _same_between(before.observations[-1], part.observations[0], cluster.faults, part.enough, required)


def state_intervals(partition: PartitionName, cluster: ClusterView, settle_ns: int) -> Iterator[StateInterval]:
    """Yield the intervals of a partition in which neither state nor settings change.

    The expected outcome is unknown while observations may be outdated due to a fault (``RecordedFault.may_outdate``):
    from the injection until the heal is proved and has settled.
    """
    topic, settings = partition.topic, cluster.settings
    intervals = [*stretches(cluster.of_partition(partition), cluster.faults)]
    for number, stretch in enumerate(intervals):
        observation, from_ns, to_ns = stretch[0], stretch[0].at_ns, stretch[-1].since_ns
        cuts = [
            (fault.inject_ns, fault.healed_ns + settle_ns if fault.healed_ns is not None else to_ns)
            for fault in cluster.faults
            if fault.may_outdate(observation)
        ]
        edges = {at_ns for cut in cuts for at_ns in cut} | set(settings.edges(topic))
        marks = sorted({from_ns, to_ns} | {at_ns for at_ns in edges if from_ns < at_ns < to_ns})
        for begin_ns, end_ns in pairwise(marks):
            expected = {
                requirement.met_by(observation) for requirement in settings.possible(topic, begin_ns + 1, end_ns - 1)
            }
            cut = any(begin_ns < cut_to and cut_from < end_ns for cut_from, cut_to in cuts)
            if observation.replicas and len(expected) == 1 and not cut:
                (enough,) = expected
                ahead = ahead_of(topic, intervals, number, cluster, enough=enough)
                yield StateInterval(Piece(begin_ns, end_ns, ahead), stretch, enough)
            else:
                yield StateInterval(Piece(begin_ns, end_ns, Ahead()), stretch, None)


def change_of(span: Span, attempts: Sequence[Attempt]) -> Change | None:
    """Return how outcomes followed the change that begins a span; None if it begins with no observed change."""
    if span.before_ns is None:
        return None
    inside = span.inside(attempts)
    new = [attempt for attempt, _ in inside if follows(attempt, enough=span.enough)]
    # Once an attempt has followed the change, others may follow the next one.
    old = [
        (attempt, excuse)
        for attempt, excuse in inside
        if follows(attempt, enough=not span.enough)
        and not (excuse == "next" and new and new[0].done_ns < attempt.sent_ns)
    ]
    return Change(
        span,
        tuple(attempt for attempt, _ in old),
        tuple(attempt for attempt, excuse in old if not excuse),
        any(not old or attempt.done_ns > old[-1][0].done_ns for attempt in new),
    )


def follows(attempt: Attempt, *, enough: bool) -> bool:
    """Return whether an attempt ended as only a sufficient, or insufficient, ISR allows; others are no evidence."""
    return attempt.outcome == "ok" if enough else attempt.exception in TOO_FEW


def late_attempts(span: Span, attempts: Sequence[Attempt], settle_ns: int) -> list[tuple[Attempt, Excuse]]:
    """Return attempts that ended as the opposite demands, though sent after a change had time to settle.

    Attempts that may follow the state observed next are left out.
    """
    over_ns = span.from_ns + settle_ns
    return [
        (attempt, excuse)
        for attempt, excuse in span.inside(attempts)
        if attempt.sent_ns >= over_ns and excuse != "next" and follows(attempt, enough=not span.enough)
    ]


def summarize(
    changes: Sequence[Change], settings: RequirementTimeline, topics: Sequence[str], bound_s: float
) -> Settling:
    """Return how long these changes, and all changes of settings of these topics, took."""
    measured = [change.lag_s for change in changes if change.followed]
    reported = [
        (request.ended.at_ns - request.begun.at_ns) / NS
        for topic in topics
        for request in settings.requests(topic)
        if request.ended is not None and request.ended.step == "settled"
    ]
    return Settling(bound_s, max(measured, default=None), len(measured), max(reported, default=None))


def measure(events: Sequence[Event], bound_s: float = SETTLE_S) -> Settling:
    """Measure how long changes took in a history, with ``bound_s`` seconds granted to each."""
    cluster = ClusterView.of(events)
    changes = [
        change
        for partition, attempts in attempts_of(Records(events)).items()
        for span in spans(partition, cluster, round(bound_s * NS))
        if (change := change_of(span, attempts)) is not None
    ]
    return summarize(changes, cluster.settings, cluster.settings.topics, bound_s)


def attempts_of(records: Records, *, acks_all: bool = True) -> Mapping[PartitionName, Sequence[Attempt]]:
    """Return the attempts with acks=all, or those with acks=1, whose partition is known, by partition.

    The gate applies to acks=all only: the leader accepts other records whatever the ISR is.
    """
    by_partition: defaultdict[PartitionName, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if (partition := attempt.partition_name) is not None and records.acks_all(attempt) is acks_all:
            by_partition[partition].append(attempt)
    return by_partition
