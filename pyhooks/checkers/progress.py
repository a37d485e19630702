"""Check that a partition acknowledges exactly while its ISR has enough replicas and racks.

Reads ``produce`` events, observations, settings, faults and, if present, logs; see ``pyhooks.checkers.cluster_view``.
The expected outcome is computed from M (``min.insync.replicas``), R (``min.insync.racks``), placement and ISR at every
moment. The history does not contain it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers import cluster_view, settling_times
from pyhooks.checkers.broker_returns import put_out, returns
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.server_log_view import logged
from pyhooks.checkers.settling_times import BLIND_S, NS, SETTLE_S, Ahead, Change, Excuse, Span
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW
from pyhooks.kafka.gate import Requirement

PATIENCE_S = 5.0
# replica.lag.time.max.ms, whose default all clusters here have, and a second for requests in flight.
LAG_MAX_S = 31.0


@dataclass(frozen=True)
class SettledWindow:
    """An interval in which a partition's state was known, settled, and called for one outcome.

    Attributes:
        from_ns: start, monotonic.
        to_ns: end.
        enough: whether replicas and racks in the ISR are enough to acknowledge.
        look: an observation of the state.
        ahead: since when leaders may have followed other states.
    """

    from_ns: int
    to_ns: int
    enough: bool
    observation: RecordedPartition
    ahead: Ahead

    def excuse(self, attempt: Attempt) -> Excuse:
        """Return which other state an attempt that contradicts this one may have followed."""
        return self.ahead.excuse(attempt) if settling_times.follows(attempt, enough=not self.enough) else ""

    def judges(self, attempt: Attempt) -> bool:
        """Return whether an attempt is entirely within the window and did not follow the state observed next."""
        whole = self.from_ns <= attempt.sent_ns and attempt.done_ns <= self.to_ns
        return whole and self.excuse(attempt) != "next"


def windows(
    place: Place,
    seen: Sequence[RecordedPartition],
    settings: RequirementTimeline,
    faults: Sequence[RecordedFault],
    settle_ns: int,
) -> Iterator[SettledWindow]:
    """Yield the settled intervals of a partition: from first to last observation of a state, less the settling time.

    Time under a fault counts only once no affected broker leads or is in sync: until then observations may be outdated.
    The same applies after the heal until it is proved and has settled. Time in which settings change does not count.
    Partitions from some racks only exclude less time, see ``RecordedFault.clouds``.
    """
    found = [*settling_times.stretches(seen, faults)]
    for number, stretch in enumerate(found):
        from_ns, to_ns, observation = stretch[0].at_ns + settle_ns, stretch[-1].since_ns, stretch[0]
        cuts = [
            (inject_ns, ended_ns)
            for inject_ns, ended_ns in settling_times.under_faults(observation, faults, settle_ns, to_ns)
            if inject_ns < to_ns and ended_ns > from_ns
        ]
        for piece in _uncut(from_ns, to_ns, cuts):
            for begin_ns, end_ns, wanted in _between(place[0], piece, settings, settle_ns):
                expected = {one.met_by(observation) for one in wanted}
                if observation.replicas and len(expected) == 1:
                    (enough,) = expected
                    ahead = settling_times.ahead_of(place[0], found, number, settings, faults, enough=enough)
                    yield SettledWindow(begin_ns, end_ns, enough, observation, ahead)


def _between(
    topic: str, piece: tuple[int, int], settings: RequirementTimeline, settle_ns: int
) -> Iterator[tuple[int, int, Collection[Requirement]]]:
    """Yield the parts of an interval with constant settings, less the settling time, and the possible settings."""
    from_ns, to_ns = piece
    since_ns = from_ns - settle_ns
    edges = [at_ns for at_ns in settings.edges(topic) if since_ns < at_ns < to_ns]
    for after_ns, before_ns in pairwise([since_ns, *edges, to_ns]):
        begin_ns = max(from_ns, after_ns + settle_ns)
        if begin_ns < before_ns:
            yield begin_ns, before_ns, settings.possible(topic, after_ns + 1, before_ns - 1)


def _uncut(from_ns: int, to_ns: int, cuts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what remains of an interval without the cuts."""
    at_ns = from_ns
    for begin_ns, end_ns in sorted(cuts):
        if begin_ns > at_ns:
            yield at_ns, min(begin_ns, to_ns)
        at_ns = max(at_ns, end_ns)
    if at_ns < to_ns:
        yield at_ns, to_ns


def blind(seen: Sequence[RecordedPartition], attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that were in flight while the partition was not observed.

    That is between observations further apart than ``BLIND_S``, before the first observation, or after the last one.
    """
    if not seen:
        return list(attempts)
    gaps = [(one.at_ns, two.at_ns) for one, two in pairwise(seen) if two.at_ns - one.at_ns > BLIND_S * NS]
    first_ns, last_ns = seen[0].at_ns, seen[-1].at_ns
    return [
        one
        for one in attempts
        if one.sent_ns < first_ns
        or one.done_ns > last_ns
        or any(one.done_ns > begin_ns and one.sent_ns < end_ns for begin_ns, end_ns in gaps)
    ]


def check_progress(
    events: Sequence[Event], *, settle_s: float = SETTLE_S, patience_s: float = PATIENCE_S, attempts_min: int = 1
) -> Verdict:
    """Check that attempts in every settled interval end as M, R, placement and ISR demand.

    While the ISR is sufficient (enough replicas and racks), these are wrong:

    * a rejection due to too few replicas or racks;
    * an interval without any acknowledgement, if an attempt finished or was waited for longer than ``patience_s``,
      unless a returning replica may hold it up (see ``_held_up``).

    A single attempt without an acknowledgement is unknown. The exception is an attempt that timed out within
    ``patience_s`` with a batch begun before the interval, if others are acknowledged.

    While the ISR is insufficient, an acknowledgement of an attempt sent in the interval is wrong, and of one sent
    before it unknown. The same applies where the state changes too often for an interval to settle, but the expected
    outcome stays the same: after ``settle_s`` any other outcome is wrong.

    The requested settings are required: where the history has them, a broker that reports others is wrong, see
    ``RequirementTimeline.strays``.

    While a change settles, attempts are not judged, only noted. The same applies to attempts that follow a change up to
    ``LAG_S`` before observations show it; if no observation shows what they may have followed, they are unknown. The
    measured settling time (see ``pyhooks.checkers.settling_times``) is a note, too. A change that attempts contradict
    and that none follows is unknown.

    Also unknown:

    * no settled interval at all;
    * an interval in which fewer than ``attempts_min`` attempts began, though a producer ran for ``patience_s`` of it;
    * attempts while the partition was not observed (see ``blind``);
    * attempts that contradict observations under a fault, where nothing is judged, unless logs show that a broker that
      came back was removed from the ISR meanwhile (see ``pyhooks.checkers.broker_returns``);
    * attempts that are not judged because a heal is not proved, or settings never settled;
    * a partition without any judged attempt, or without one while its ISR was sufficient, or insufficient, though a
      producer ran for ``patience_s`` of such an interval.

    An insufficient interval needs no attempts if it continues one in which attempts were judged, since patient
    producers begin none there: a heal of other brokers separates the two, and nothing changed in between (see
    ``_stays``).

    Args:
        events: a whole history. Its clients must have been able to reach all leaders that are not under a fault.
        settle_s: how long a change may take from its first observation until all brokers follow it, in seconds.
        patience_s: how long an attempt may take under normal conditions, in seconds.
        attempts_min: minimum number of attempts in each interval of at least ``patience_s``, unless it continues
            another as above.
    """
    records = Records(events)
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    unanswered, returned = cluster_view.unanswered(events), returns(logged(events))
    wrong: list[str] = []
    missing = records.unnoted()
    notes: list[str] = []
    changes: list[Change] = []
    settle_ns = round(settle_s * NS)
    attempts = settling_times.attempts_of(records)
    if not attempts:
        missing.append("no attempt in the history")
    for place, own in sorted(attempts.items()):
        name = f"{place[0]}-{place[1]}"
        wrong += [one for one in settings.strays(place[0], faults, settle_ns) if one not in wrong]
        if place[0] not in settings.topics:
            missing.append(f"{place[0]}: nothing tells what it required")
            continue
        found = list(windows(place, observations.get(place, ()), settings, faults, settle_ns))
        if not found:
            missing.append(f"{name}: no settled stretch was observed")
        if unseen := blind(observations.get(place, ()), own):
            asked = sum(unseen[0].sent_ns <= at_ns <= unseen[-1].done_ns for at_ns in unanswered)
            missing.append(
                f"{name}: nobody saw its state during {len(unseen)} attempts, the first is {unseen[0].key}"
                f" ({asked} looks without an answer)"
            )
        between = [one for one in own if not any(window.judges(one) for window in found)]
        if between:
            of_all = f"{len(between)} of {len(own)} attempts"
            notes.append(f"{name}: {of_all} are not judged: a change, a fault, or nobody looked")
        # Computed without faults: the observations may be outdated, which is not certain.
        doubtful = [
            one
            for span in settling_times.spans(place, observations.get(place, ()), settings, (), settle_ns)
            for one, excuse in settling_times.late(span, between, settle_ns)
            if not excuse
        ]
        explained = [
            one for one in put_out(place[0], observations.get(place, ()), own, returned, settings) if one in doubtful
        ]
        doubtful = [one for one in doubtful if one not in explained]
        if explained:
            lasted_s = (explained[-1].done_ns - explained[0].sent_ns) / NS
            notes.append(
                f"{name}: {len(explained)} attempts were refused within {lasted_s:.1f} s while a broker that came back"
                " was out of the ISR, as the controller logged"
            )
        if doubtful:
            missing.append(
                f"{name}: {len(doubtful)} attempts contradict what was seen while a fault made that doubtful, the first"
                f" is {doubtful[0].key}"
            )
        missing += _unproved(name, observations.get(place, ()), faults, between)
        begun_ns = settings.unsettled_ns(place[0])
        if begun_ns is not None and (after := [one for one in between if one.sent_ns > begun_ns]):
            missing.append(
                f"{name}: nobody tells that a change of settings settled, so {len(after)} attempts after it are not"
                f" judged, the first is {after[0].key}"
            )
        judged: defaultdict[bool, int] = defaultdict(int)
        ran = records.ran(place[0])
        tried: SettledWindow | None = None
        for window in found:
            held = _held_up(window.observation, faults)
            stays = tried is not None and _stays(tried, window, place[0], observations[place], settings, faults)
            at_least = 0 if stays else attempts_min
            bad, gaps, told, count = _judged(name, window, own, ran, held, round(patience_s * NS), at_least)
            tried = window if count and not window.enough else tried if stays else None
            wrong += bad
            missing += gaps
            notes += told
            if count or _lasted_ns(window, ran) >= patience_s * NS:
                judged[window.enough] += count
        if found and not judged:
            missing.append(f"{name}: no attempt could be judged")
        missing += [
            f"{name}: no attempt could be judged while its ISR was {'enough' if enough else 'too few'}"
            for enough, count in sorted(judged.items())
            if not count
        ]
        for span in settling_times.spans(place, observations.get(place, ()), settings, faults, settle_ns):
            change = settling_times.change_of(span, own)
            changes += [change] if change is not None else []
            bad, gaps = _settled(name, span, change, settling_times.late(span, between, settle_ns), settle_s)
            wrong += bad
            missing += gaps
    notes.append(settling_times.settling(changes, settings, sorted({topic for topic, _ in attempts}), settle_s).text)
    return Verdict.of("progress", wrong=wrong, missing=missing, notes=notes)


def _lasted_ns(window: SettledWindow, runs: Sequence[tuple[float, float]]) -> float:
    """Return the longest time for which one producer ran in a window, in nanoseconds; 0 or less if none did."""
    return max(min(window.to_ns, to_ns) - max(window.from_ns, from_ns) for from_ns, to_ns in runs)


def _stays(
    before: SettledWindow,
    window: SettledWindow,
    topic: str,
    seen: Sequence[RecordedPartition],
    settings: RequirementTimeline,
    faults: Sequence[RecordedFault],
) -> bool:
    """Return whether two windows with an insufficient ISR are one: nothing that affects outcomes changed in between.

    This requires the same state in every observation, observations without a gap, constant settings, and no fault that
    makes the observations doubtful (``RecordedFault.clouds``).
    """
    if before.enough or window.enough:
        return False
    observations = [one for one in seen if before.from_ns <= one.at_ns <= window.to_ns]
    if {one.state for one in observations} != {window.observation.state}:
        return False
    if any(two.at_ns - one.at_ns > BLIND_S * NS for one, two in pairwise(observations)):
        return False
    if len(settings.possible(topic, before.from_ns, window.to_ns)) != 1:
        return False
    return not any(
        fault.clouds(window.observation) and fault.inject_ns < window.to_ns and _over(fault) > before.from_ns
        for fault in faults
    )


def _over(fault: RecordedFault) -> float:
    """Return when a fault had no effect any more; infinity if its heal is not proved."""
    return math.inf if fault.healed_ns is None else fault.healed_ns


def _held_up(observation: RecordedPartition, faults: Sequence[RecordedFault]) -> list[tuple[int, int]]:
    """Return when the high watermark may wait for a returning replica, though all ISR members have the record.

    Kafka's leader also waits for a replica outside the ISR that was caught up within replica.lag.time.max.ms and whose
    broker is unfenced (Partition.maybeIncrementLeaderHW, 4.3.1). After a short network partition the broker is unfenced
    before TCP retransmits its fetches.
    """
    return [
        (fault.heal_ns, fault.inject_ns + round(LAG_MAX_S * NS))
        for fault in faults
        if fault.heal_ns is not None
        and any(fault.keeps(broker, observation) for broker in observation.replicas if broker not in observation.isr)
    ]


def _unproved(
    name: str, seen: Sequence[RecordedPartition], faults: Sequence[RecordedFault], attempts: Sequence[Attempt]
) -> Iterator[str]:
    """Describe unproved heals due to which attempts are not judged: without an end, these would excuse anything.

    Args:
        name: name of the partition.
        seen: observations of the partition.
        faults: all faults of the history.
        attempts: attempts that are not judged.
    """
    for fault in faults:
        if fault.heal_ns is None or (fault.healed_ns is not None and not fault.doubted):
            continue
        under = [one for one in seen if fault.clouds(one)]
        to_ns = fault.healed_ns if fault.healed_ns is not None else under[-1].at_ns if under else 0
        if after := [one for one in attempts if fault.heal_ns < one.sent_ns <= to_ns]:
            yield (
                f"{name}: a heal of {fault.op} was not proved, so {len(after)} attempts after it are not judged,"
                f" the first is {after[0].key}"
            )


def _settled(
    name: str, span: Span, change: Change | None, late: Sequence[tuple[Attempt, Excuse]], settle_s: float
) -> tuple[list[str], list[str]]:
    """Return what is wrong and what is unknown about a change and the outcomes expected from then on.

    Args:
        name: name of the partition.
        span: what was expected.
        change: the change that begins the span, or None.
        late: attempts outside all windows that contradict the span after the bound, with their excuses.
        settle_s: the bound.
    """
    now = "enough" if span.enough else "too few"
    wrong: list[str] = []
    missing: list[str] = []
    for one, excuse in late:
        said = f"{name}: {now} for {(one.sent_ns - span.from_ns) / NS:.1f} s, in changing states, and record {one.key}"
        (missing if excuse else wrong).append(f"{said} was {_ending(one)}")
    if change is None or not change.old:
        return wrong, missing
    took = f"{name}: outcomes followed what was before for {change.kept_s:.1f} s after it was {now}"
    if change.sure and change.sure[-1].sent_ns - span.from_ns >= settle_s * NS:
        wrong.append(f"{took}: the change did not take effect within {settle_s:g} s")
    elif not change.follows:
        missing.append(f"{took}, and none was seen to follow the change")
    return wrong, missing


def _ending(attempt: Attempt) -> str:
    return "acknowledged" if attempt.outcome == "ok" else f"refused with {attempt.exception}"


def _judged(
    name: str,
    window: SettledWindow,
    attempts: Sequence[Attempt],
    runs: Sequence[tuple[float, float]],
    held: Sequence[tuple[int, int]],
    patience_ns: int,
    attempts_min: int,
) -> tuple[list[str], list[str], list[str], int]:
    """Return what is wrong in a window, what is unknown, notes, and the number of judged attempts."""
    wrong: list[str] = []
    missing: list[str] = []
    began = [one for one in attempts if window.from_ns <= one.sent_ns < window.to_ns]
    # Without a running producer no attempts are expected.
    long = _lasted_ns(window, runs) >= patience_ns
    isr, racks = list(window.observation.isr), ", ".join(window.observation.isr_racks)
    state = f"{name}: ISR {isr} in rack(s) {racks}, leader {window.observation.leader}"
    if len(began) < attempts_min and long:
        missing.append(f"{state}: {len(began)} attempts in {(window.to_ns - window.from_ns) / NS:.1f} s")
    inside = [one for one in began if window.judges(one)]
    if not window.enough:
        for one in attempts:
            excuse = window.excuse(one)
            if one.outcome == "ok" and window.from_ns <= one.done_ns <= window.to_ns and excuse != "next":
                early = one.sent_ns < window.from_ns
                said = f"{state}: too few, and record {one.key} was {_ending(one)}"
                (missing if early or excuse else wrong).append(said)
        return wrong, missing, [], len(inside)
    stuck = [one for one in began if one.done_ns > window.to_ns and window.to_ns - one.sent_ns > patience_ns]
    acked = sum(one.outcome == "ok" for one in inside)
    for one in inside:
        if one.exception in TOO_FEW:
            said = f"{state}: enough, and record {one.key} was {_ending(one)}"
            (missing if window.excuse(one) else wrong).append(said)
    open_ended = [one for one in inside if one.outcome != "ok" and one.exception not in TOO_FEW] + stuck
    waiting = [
        one for one in open_ended if any(one.done_ns > from_ns and one.sent_ns < to_ns for from_ns, to_ns in held)
    ]
    open_ended = [one for one in open_ended if one not in waiting]
    # They joined a batch begun before the window, and had only the rest of its time.
    older = [
        one
        for one in open_ended
        if acked and one.batch_ns < window.from_ns and one.done_ns - window.from_ns <= patience_ns
    ]
    open_ended = [one for one in open_ended if one not in older]
    notes = [f"{state}: {len(waiting)} attempts waited for a replica that comes back"] if waiting else []
    if older:
        notes.append(f"{state}: {len(older)} attempts ran out of time with a batch that was begun before")
    sure_ns = window.ahead.from_ns
    if not acked and any(one.done_ns <= sure_ns or sure_ns - one.sent_ns > patience_ns for one in open_ended):
        wrong.append(f"{state}: enough, and none of {len(inside) + len(stuck)} attempts was acknowledged")
    elif open_ended := [one for one in open_ended if not acked or one.done_ns <= window.ahead.moved_ns]:
        # Later attempts may have followed the state observed next.
        why = open_ended[0].exception or "no answer in time"
        missing.append(f"{state}: enough, and {len(open_ended)} attempts were not acknowledged, the first: {why}")
    return wrong, missing, notes, len(inside) + len(stuck) - len(waiting)
