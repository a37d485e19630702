"""Check that records with acks=1 are accepted, hidden while the ISR is insufficient, and readable afterwards.

Reads ``intend`` and ``produce`` events, the final read, observations, settings and faults (see
``pyhooks.checkers.cluster_view``), and the rounds of ``pyhooks.workload.visibility_reader``. An ISR is insufficient if
it has too few replicas or racks. An acknowledgement with acks=1 is of the leader only: it promises nothing about racks,
and a later leader need not have the record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedPartition, RequirementTimeline
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, Place, Records
from pyhooks.checkers.settling_times import BLIND_S, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import VisibleDetails
from pyhooks.history.outcomes import TOO_FEW

SHOWN_S = 60.0
# Two reader rounds and the query at their ends; a shorter interval may lie between two responses.
ROUNDS_S = 2.0


@dataclass(frozen=True)
class Sight:
    """Result of one reader round for a partition.

    Attributes:
        at_ns: end of the round, monotonic.
        asked_ns: when the leader was queried.
        next: offset after the last record read by then.
        high: high watermark that the leader returned, or None.
    """

    at_ns: int
    asked_ns: int
    next: int
    high: int | None

    @property
    def shown(self) -> int:
        """Offsets below it could be read."""
        return max(self.next, self.high or 0)


def sights(events: Sequence[Event]) -> dict[Place, list[Sight]]:
    """Return the results of all reader rounds by partition, in order of time."""
    found: defaultdict[Place, list[Sight]] = defaultdict(list)
    for event, visible in VisibleDetails.each(events):
        for name, offset in visible.next.items():
            topic, _, number = name.rpartition("-")
            one = Sight(event.mono_ns, visible.asked_ns, offset, visible.high.get(name))
            found[topic, int(number)].append(one)
    return {place: sorted(own, key=lambda sight: sight.at_ns) for place, own in found.items()}


def check_visibility(events: Sequence[Event], *, settle_s: float = SETTLE_S, shown_s: float = SHOWN_S) -> Verdict:
    """Check that records with acks=1 are accepted while the ISR is insufficient, and hidden until it is sufficient.

    Wrong:

    * a record rejected due to too few replicas or racks, whatever the ISR was;
    * a record acknowledged in a settled interval with an insufficient ISR, and readable within it;
    * a record not readable ``shown_s`` after the ISR was sufficient again, though the same broker led throughout;
    * an acknowledged record missing from the final read, though the same broker led from then on.

    If another broker has led, or the partition was not observed, the record may have been truncated; its absence is
    then a note.

    Unknown:

    * no such record in any such interval;
    * an interval in which no reader got the high watermark after one of its records was acknowledged, though
      ``ROUNDS_S`` were left of it;
    * no observation of a sufficient ISR afterwards, or no reader that ran long enough after it;
    * no complete final read.

    Args:
        events: a whole history.
        settle_s: how long a change may take to take effect, in seconds.
        shown_s: time from the first observation of a sufficient ISR until all records can be read, in seconds.
    """
    records = Records(events)
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    seen = sights(events)
    attempts: defaultdict[Place, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.partition is not None and not records.shared(attempt):
            attempts[attempt.topic, attempt.partition].append(attempt)
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    hidden = 0
    for place, own in sorted(attempts.items()):
        own.sort(key=lambda attempt: attempt.done_ns)
        name = f"{place[0]}-{place[1]}"
        wrong += [
            f"{name}: record {one.key} with acks=1 was refused with {one.exception}"
            for one in own
            if one.exception in TOO_FEW
        ]
        found = list(windows(place, observations.get(place, ()), settings, faults, round(settle_s * NS)))
        stays = _Reign(observations.get(place, ()))
        for at, window in enumerate(found):
            if window.enough:
                continue
            judge = _HiddenRecords(
                name, window, found[at + 1 :], seen.get(place, ()), stays, round(settle_s * NS), shown_s
            )
            hidden += judge.judge(own, wrong, missing, notes)
        _kept(place, own, records, stays, wrong, missing, notes)
    if not hidden:
        missing.append("no record with acks=1 was looked for while too few were in sync")
    return Verdict.of("visibility", wrong=wrong, missing=missing, notes=notes)


class _Reign:
    """Leadership of a partition, as observed.

    Args:
        seen: observations of the partition, in order of time.
    """

    def __init__(self, seen: Sequence[RecordedPartition]) -> None:
        self._at = [observation.at_ns for observation in seen]
        # For each observation: index of the one since which the same broker has led without a gap.
        self._since: list[int] = []
        for number, observation in enumerate(seen):
            same = number > 0 and observation.leader == seen[number - 1].leader >= 0
            near = number > 0 and observation.at_ns - seen[number - 1].at_ns <= BLIND_S * NS
            self._since.append(self._since[-1] if same and near else number)

    def one(self, from_ns: int, to_ns: int | None = None) -> bool:
        """Return whether one broker led from a moment to another, or to the last observation.

        The leader before the first observation and after the last one is unknown, so both moments must be observed.
        """
        first = bisect_left(self._at, from_ns + 1) - 1
        last = len(self._at) - 1 if to_ns is None else bisect_left(self._at, to_ns)
        return first >= 0 and last < len(self._at) and self._since[last] <= first


@dataclass(frozen=True)
class _HiddenRecords:
    """A settled interval with an insufficient ISR.

    Attributes:
        name: name of the partition.
        window: the interval.
        later: settled intervals after it.
        seen: results of reader rounds for the partition.
        stays: leadership of the partition.
        settle_ns: time granted to a change.
        shown_s: bound until records can be read again.
    """

    name: str
    window: SettledWindow
    later: Sequence[SettledWindow]
    seen: Sequence[Sight]
    stays: _Reign
    settle_ns: int
    shown_s: float

    def judge(self, own: Sequence[Attempt], wrong: list[str], missing: list[str], notes: list[str]) -> int:
        """Judge the records acknowledged in the interval; return how many were verified to be hidden.

        Args:
            own: the partition's records with acks=1.
            wrong: receives what is wrong.
            missing: receives what is unknown.
            notes: receives notes.
        """
        # Until then no leader can have known the state observed next.
        from_ns, to_ns = self.window.from_ns, min(self.window.to_ns, self.window.ahead.from_ns)
        state = f"{self.name}: ISR {list(self.window.observation.isr)}, too few"
        inside = [one for one in own if one.sent_ns >= from_ns and one.done_ns <= to_ns and _offset(one) is not None]
        if not inside:
            return 0
        rounds = [one for one in self.seen if one.asked_ns >= from_ns and one.at_ns <= to_ns]
        shown = max((one.shown for one in rounds), default=0)
        early = [one for one in inside if (_offset(one) or 0) < shown]
        if early:
            wrong.append(f"{state}, and {len(early)} records with acks=1 could be read, the first is {early[0].key}")
        asked_ns = max((one.asked_ns for one in rounds if one.high is not None), default=0)
        sure = [one for one in inside if one.done_ns <= asked_ns and (_offset(one) or 0) >= shown]
        if not sure and not early and to_ns - inside[0].done_ns >= ROUNDS_S * NS:
            missing.append(f"{state}, and no reader was told up to where it could read it")
        held_s = (asked_ns - inside[0].done_ns) / NS
        notes.append(f"{state} for {(to_ns - from_ns) / NS:.1f} s: {len(sure)} records with acks=1, none readable"
                     f" for up to {max(0.0, held_s):.1f} s")  # fmt: skip
        self._after(inside, wrong, missing, notes)
        return len(sure)

    def _after(self, inside: Sequence[Attempt], wrong: list[str], missing: list[str], notes: list[str]) -> None:
        """Judge whether the records can be read in time once the ISR is sufficient again."""
        opened = next((one for one in self.later if one.enough), None)
        if opened is None:
            missing.append(f"{self.name}: enough were never seen in sync again after {len(inside)} records with acks=1")
            return
        opened_ns = opened.from_ns - self.settle_ns
        until_ns = opened_ns + round(self.shown_s * NS)
        rounds = [one for one in self.seen if one.at_ns > self.window.to_ns]
        in_time = max((one.next for one in rounds if one.at_ns <= until_ns), default=0)
        hidden = [one for one in inside if (_offset(one) or 0) >= in_time]
        if not hidden:
            top = max(_offset(one) or 0 for one in inside)
            at_ns = next(one.at_ns for one in rounds if one.next > top)
            notes.append(f"{self.name}: all of them read {(at_ns - opened_ns) / NS:.1f} s after enough were in sync")
            return
        said = f"{self.name}: {len(hidden)} records with acks=1 not read"
        last_ns = rounds[-1].at_ns if rounds else 0
        if not self.stays.one(inside[0].sent_ns, min(until_ns, last_ns)):
            notes.append(f"{said}: another has led since, or nobody looked")
        elif last_ns < until_ns:
            missing.append(f"{said}, and nobody read for {self.shown_s:g} s after enough were in sync")
        else:
            wrong.append(f"{said} within {self.shown_s:g} s after enough were in sync, the first is {hidden[0].key}")


def _offset(attempt: Attempt) -> int | None:
    """Return the offset of an acknowledged record, or None."""
    told = attempt.outcome == "ok" and attempt.offset is not None and attempt.offset >= 0
    return attempt.offset if told else None


def _kept(
    place: Place,
    own: Sequence[Attempt],
    records: Records,
    stays: _Reign,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    """Judge whether the final read has the records; they may be absent only if another broker may have led."""
    name = f"{place[0]}-{place[1]}"
    acked = [one for one in own if one.outcome == "ok"]
    if not acked:
        missing.append(f"{name}: no record with acks=1 was acknowledged")
        return
    reads, gaps = records.final(place[0], UNCOMMITTED)
    read = reads.get(place[1])
    missing += gaps
    if read is None or read.gaps:
        return
    keys = set(read.keys.values())
    absent = [one for one in acked if one.key not in keys and (one.offset is None or one.offset >= read.low)]
    lost = [one for one in absent if stays.one(one.sent_ns)]
    wrong += [f"{name}: record {one.key} with acks=1 is lost, and its leader stayed" for one in lost]
    if len(absent) > len(lost):
        notes.append(f"{name}: {len(absent) - len(lost)} records with acks=1 are gone, as another has led since")
