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

from pyhooks.checkers.cluster_view import ClusterView, RecordedPartition
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import BLIND_S, NS, SETTLE_S, attempts_of
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import VisibleDetails
from pyhooks.history.outcomes import TOO_FEW

SHOWN_S = 60.0
# Two reader rounds and the query at their ends; a shorter interval may lie between two responses.
ROUNDS_S = 2.0


@dataclass(frozen=True)
class ReaderRound:
    """Result of one reader round for a partition."""

    at_ns: int  # end of the round, monotonic
    asked_ns: int  # when the leader was queried
    next: int  # offset after the last record read by then
    high: int | None  # high watermark that the leader returned, or None

    @property
    def readable(self) -> int:
        """Upper bound of the offsets that could be read, exclusive."""
        return max(self.next, self.high or 0)


def reader_rounds(events: Sequence[Event]) -> dict[PartitionName, list[ReaderRound]]:
    """Return the results of all reader rounds by partition, in order of time."""
    rounds_by_partition: defaultdict[PartitionName, list[ReaderRound]] = defaultdict(list)
    for event, visible in VisibleDetails.each(events):
        for name, offset in visible.next.items():
            rounds_by_partition[PartitionName.parse(name)].append(
                ReaderRound(event.mono_ns, visible.asked_ns, offset, visible.high.get(name))
            )
    return {
        partition: sorted(rounds, key=lambda round_: round_.at_ns) for partition, rounds in rounds_by_partition.items()
    }


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
    """
    records, cluster = Records(events), ClusterView.of(events)
    rounds = reader_rounds(events)
    settle_ns = round(settle_s * NS)
    findings = Findings()
    hidden = 0
    for partition, unordered in sorted(attempts_of(records, acks_all=False).items()):
        attempts = sorted(unordered, key=lambda attempt: attempt.done_ns)
        findings.wrong += [
            f"{partition}: record {attempt.key} with acks=1 was rejected with {attempt.exception}"
            for attempt in attempts
            if attempt.exception in TOO_FEW
        ]
        leadership = _Leadership(cluster.of_partition(partition))
        judge = _VisibilityJudge(partition, rounds.get(partition, ()), leadership, settle_ns, shown_s, findings)
        known = list(windows(partition, cluster, settle_ns))
        for index, window in enumerate(known):
            if not window.enough:
                hidden += judge.check_hidden(window, known[index + 1 :], attempts)
        judge.check_final_read(attempts, records)
    if not hidden:
        findings.missing.append("no reader looked for a record with acks=1 while too few were in sync")
    return findings.verdict("visibility")


class _Leadership:
    """Leadership of a partition, from its observations in order of time."""

    def __init__(self, observed: Sequence[RecordedPartition]) -> None:
        self._at = [observation.at_ns for observation in observed]
        # For each observation: index of the one since which the same broker has led without a gap.
        self._since: list[int] = []
        for number, observation in enumerate(observed):
            same = number > 0 and observation.leader == observed[number - 1].leader >= 0
            near = number > 0 and observation.at_ns - observed[number - 1].at_ns <= BLIND_S * NS
            self._since.append(self._since[-1] if same and near else number)

    def is_constant(self, from_ns: int, to_ns: int | None = None) -> bool:
        """Return whether one broker led from a moment to another, or to the last observation.

        The leader before the first observation and after the last one is unknown, so both moments must be observed.
        """
        first = bisect_left(self._at, from_ns + 1) - 1
        last = len(self._at) - 1 if to_ns is None else bisect_left(self._at, to_ns)
        return first >= 0 and last < len(self._at) and self._since[last] <= first


@dataclass(frozen=True)
class _VisibilityJudge:
    """Checks of a partition's records with acks=1."""

    partition: PartitionName
    rounds: Sequence[ReaderRound]  # results of reader rounds for it
    leadership: _Leadership
    settle_ns: int  # time granted to a change
    shown_s: float  # bound until records can be read again
    findings: Findings

    def check_hidden(self, window: SettledWindow, later: Sequence[SettledWindow], attempts: Sequence[Attempt]) -> int:
        """Check the records acknowledged in a window with an insufficient ISR; return how many were seen hidden."""
        # Until then no leader can have known the state observed next.
        from_ns, to_ns = window.from_ns, min(window.to_ns, window.ahead.from_ns)
        state = f"{self.partition}: ISR {list(window.observation.isr)}, too few"
        inside = [
            (attempt, offset)
            for attempt in attempts
            if attempt.sent_ns >= from_ns
            and attempt.done_ns <= to_ns
            and (offset := _acked_offset(attempt)) is not None
        ]
        if not inside:
            return 0
        first_ns = inside[0][0].done_ns
        rounds = [round_ for round_ in self.rounds if round_.asked_ns >= from_ns and round_.at_ns <= to_ns]
        readable = max((round_.readable for round_ in rounds), default=0)
        early = [attempt for attempt, offset in inside if offset < readable]
        if early:
            self.findings.wrong.append(
                f"{state}, and {len(early)} records with acks=1 could be read, the first is {early[0].key}"
            )
        asked_ns = max((round_.asked_ns for round_ in rounds if round_.high is not None), default=0)
        hidden = sum(attempt.done_ns <= asked_ns and offset >= readable for attempt, offset in inside)
        if not hidden and not early and to_ns - first_ns >= ROUNDS_S * NS:
            self.findings.missing.append(f"{state}, and no reader got the high watermark")
        self.findings.notes.append(
            f"{state} for {(to_ns - from_ns) / NS:.1f} s: {hidden} records with acks=1, none readable"
            f" for up to {max(0.0, (asked_ns - first_ns) / NS):.1f} s"
        )
        self._check_shown(window, later, inside)
        return hidden

    def _check_shown(
        self, window: SettledWindow, later: Sequence[SettledWindow], inside: Sequence[tuple[Attempt, int]]
    ) -> None:
        """Check that records acknowledged in a window can be read in time once the ISR is sufficient again."""
        sufficient = next((each for each in later if each.enough), None)
        if sufficient is None:
            self.findings.missing.append(
                f"{self.partition}: enough were never seen in sync again after {len(inside)} records with acks=1"
            )
            return
        enough_ns = sufficient.from_ns - self.settle_ns
        until_ns = enough_ns + round(self.shown_s * NS)
        rounds = [round_ for round_ in self.rounds if round_.at_ns > window.to_ns]
        in_time = max((round_.next for round_ in rounds if round_.at_ns <= until_ns), default=0)
        hidden = [attempt for attempt, offset in inside if offset >= in_time]
        if not hidden:
            top = max(offset for _, offset in inside)
            at_ns = next(round_.at_ns for round_ in rounds if round_.next > top)
            self.findings.notes.append(
                f"{self.partition}: all of them read {(at_ns - enough_ns) / NS:.1f} s after enough were in sync"
            )
            return
        reason = f"{self.partition}: {len(hidden)} records with acks=1 not read"
        last_ns = rounds[-1].at_ns if rounds else 0
        if not self.leadership.is_constant(inside[0][0].sent_ns, min(until_ns, last_ns)):
            self.findings.notes.append(f"{reason}: another broker has led since, or the leader was not observed")
        elif last_ns < until_ns:
            self.findings.missing.append(
                f"{reason}, and no reader ran for {self.shown_s:g} s after enough were in sync"
            )
        else:
            self.findings.wrong.append(
                f"{reason} within {self.shown_s:g} s after enough were in sync, the first is {hidden[0].key}"
            )

    def check_final_read(self, attempts: Sequence[Attempt], records: Records) -> None:
        """Check that the final read has the records; they may be absent only if another broker may have led."""
        acked = [attempt for attempt in attempts if attempt.outcome == "ok"]
        if not acked:
            self.findings.missing.append(f"{self.partition}: no record with acks=1 was acknowledged")
            return
        reads, gaps = records.final(self.partition.topic, UNCOMMITTED)
        self.findings.missing += gaps
        read = reads.get(self.partition.number)
        if read is None or read.gaps:
            return
        keys = set(read.keys.values())
        absent = [
            attempt
            for attempt in acked
            if attempt.key not in keys and (attempt.offset is None or attempt.offset >= read.low)
        ]
        lost = [attempt for attempt in absent if self.leadership.is_constant(attempt.sent_ns)]
        self.findings.wrong += [
            f"{self.partition}: record {attempt.key} with acks=1 is lost, and its leader stayed" for attempt in lost
        ]
        if len(absent) > len(lost):
            self.findings.notes.append(
                f"{self.partition}: {len(absent) - len(lost)} records with acks=1 are gone, as another broker has led"
            )


def _acked_offset(attempt: Attempt) -> int | None:
    """Return the offset of an acknowledged record, or None."""
    acked = attempt.outcome == "ok" and attempt.offset is not None and attempt.offset >= 0
    return attempt.offset if acked else None
