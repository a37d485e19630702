"""Check that the final read has every acknowledged record, no definitely rejected one, and none that was not sent.

Reads the events of producers (``produce``, ``intend``, ``end``, ``killed``) and the last read_uncommitted pass
(``read``) over every partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyhooks.checkers.duplicate_writes import WHY, DuplicateWrites
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, Read, RecordedRun, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import parts_of, value_of

# Why an acknowledged record was not read.
Absence = Literal["", "late", "below", "lost"]


def check_delivery(events: Sequence[Event]) -> Verdict:
    """Compare the outcomes that producers recorded with the final read.

    Wrong:

    * an acknowledged record that is lost;
    * a record read in another partition than it was sent to;
    * a definitely rejected record that was read;
    * a record that was never sent;
    * a value that differs from the one sent, or has another length than its producer announced;
    * a duplicate, unless the client retries without idempotence: such duplicates are allowed, and noted. A duplicate
      that an idempotent client may have made by itself (``pyhooks.checkers.duplicate_writes``) is unknown.

    Unknown:

    * no acknowledged record at all;
    * a topic with acknowledged records whose partitions were not all read to their ends;
    * a producer that neither ended nor is recorded as killed, or that ended without recording everything;
    * a record acknowledged after the final read began, and not in it;
    * an acknowledged record below the log's first offset, which retention may have removed;
    * values whose length was announced, but not read.

    A record in the log that its producer did not record is allowed if the producer had announced it and was killed. A
    record acknowledged with acks=1 may be missing: see ``pyhooks.checkers.visibility``.
    """
    records = Records(events)
    findings = Findings(missing=records.unrecorded())
    if not any(attempt.outcome == "ok" and records.acks_all(attempt) for attempt in records.attempts):
        findings.missing.append("no acknowledged record in the history")
    duplicates = DuplicateWrites(events, records)
    topics = {attempt.topic for attempt in records.attempts} | {read.partition.topic for read in records.reads}
    for topic in sorted(topics):
        _TopicDelivery(topic, records, findings).check(duplicates)
    return findings.verdict("delivery")


class _TopicDelivery:
    """Attempts and final read of a topic."""

    def __init__(self, topic: str, records: Records, findings: Findings) -> None:
        self.topic, self.records, self.findings = topic, records, findings
        self.attempts = {attempt.key: attempt for attempt in records.attempts if attempt.topic == topic}
        self.reads, gaps = records.final(topic, UNCOMMITTED)
        if self.reads or any(attempt.outcome == "ok" for attempt in self.attempts.values()):
            findings.missing += gaps
        self.count = _read_counts(self.reads)

    def check(self, duplicates: DuplicateWrites) -> None:
        """Check all records of the topic."""
        for attempt in self.attempts.values():
            self._check_attempt(attempt)
        self._check_unrecorded()
        self._check_duplicates(duplicates)
        for read in self.reads.values():
            self._check_partitions_and_values(read)
            self._check_sizes(read)

    def _check_attempt(self, attempt: Attempt) -> None:
        if attempt.outcome == "fail" and self.count[attempt.key]:
            self.findings.wrong.append(f"{self.topic}: rejected record {attempt.key} was read")
        if not self.records.acks_all(attempt):
            return
        absent = _absence(attempt, self.count, self.reads)
        if absent == "late":
            self.findings.missing.append(
                f"{self.topic}: record {attempt.key} was acknowledged after the final read began"
            )
        elif absent == "below":
            self.findings.missing.append(f"{self.topic}: record {attempt.key} is below the log's first offset")
        elif absent == "lost":
            self.findings.wrong.append(f"{self.topic}: acknowledged record {attempt.key} is lost")

    def _run(self, key: str) -> RecordedRun | None:
        """Return the run that wrote a record to the topic, by the record's key."""
        parts = parts_of(key)
        return self.records.runs.get((parts[0], self.topic)) if parts else None

    def _check_unrecorded(self) -> None:
        """Check the records that were read and that no producer recorded."""
        for key in sorted(map(str, self.count.keys() - self.attempts.keys())):
            run, parts = self._run(key), parts_of(key)
            name = f"{self.topic}: record {key} was read"
            if run is None or parts is None or parts[1] != self.topic:
                self.findings.wrong.append(f"{name} but never produced")
                continue
            _, _, partition, seq = parts
            bounds = run.intended if run.ended is None else run.ended
            if seq >= bounds.get(partition, 0):
                self.findings.wrong.append(f"{name}, and its producer never sent it")
            elif run.ended is not None:
                self.findings.missing.append(f"{name}, and its result is not recorded")

    def _check_duplicates(self, duplicates: DuplicateWrites) -> None:
        for key, times in sorted((str(key), times) for key, times in self.count.items() if times > 1):
            attempt = self.attempts.get(key)
            run = self.records.runs.get((attempt.run or "", self.topic)) if attempt else self._run(key)
            reason = f"{self.topic}: record {key} was read {times} times"
            if run is not None and not run.first_only and not run.idempotent:
                self.findings.notes.append(reason)
            elif duplicates.possible(self.topic, key):
                self.findings.missing.append(f"{reason}, written {WHY}")
            else:
                self.findings.wrong.append(reason)

    def _check_partitions_and_values(self, read: Read) -> None:
        for offset in read.damaged:
            self.findings.wrong.append(f"{self.topic}: record {read.keys.get(offset)} was read with another value")
        for offset, key in read.keys.items():
            attempt = self.attempts.get(str(key))
            if attempt is None:
                continue
            if attempt.partition not in (None, read.partition.number):
                self.findings.wrong.append(
                    f"{self.topic}: record {key} was sent to partition {attempt.partition} and was read in partition"
                    f" {read.partition.number}"
                )
            value = read.values.get(offset, attempt.value)
            if attempt.outcome == "ok" and attempt.value is not None and attempt.value != value:
                self.findings.wrong.append(f"{self.topic}: record {key} was read with another value")

    def _check_sizes(self, read: Read) -> None:
        unknown = 0
        for offset, key in read.keys.items():
            run = self._run(key) if key else None
            if key is None or run is None or run.record_bytes is None:
                continue
            size, sent = read.sizes.get(offset), len(value_of(key, run.record_bytes))
            if size is None:
                unknown += 1
            elif size != sent:
                self.findings.wrong.append(
                    f"{read.partition}: record {key} was read with {size} bytes, it was sent with {sent}"
                )
        if unknown:
            self.findings.missing.append(f"{read.partition}: the value sizes of {unknown} records are not recorded")


def _read_counts(reads: Mapping[int, Read]) -> Counter[str | None]:
    """Return how many times each key was read."""
    return Counter(key for read in reads.values() for key in read.keys.values())


def _absence(attempt: Attempt, count: Counter[str | None], reads: Mapping[int, Read]) -> Absence:
    """Return why an acknowledged record was not read; empty if it was read or a gap already explains its absence."""
    if attempt.outcome != "ok" or count[attempt.key] or not reads:
        return ""
    possible = [read for number, read in reads.items() if attempt.partition in (None, number)]
    if not possible or any(read.gaps for read in possible):
        return ""  # reported as a gap
    if any(attempt.done_ns > read.begun_ns for read in possible):
        return "late"
    below = attempt.offset is not None and any(attempt.offset < read.low for read in possible)
    return "below" if below else "lost"


@dataclass(frozen=True)
class Losses:
    """Acknowledged and lost records of a topic."""

    acked: int  # number of acknowledged records
    lost: tuple[str, ...]  # keys of the records that are definitely lost, in the order of acknowledgement
    first_ns: int  # monotonic time of the first acknowledgement
    last_ns: int  # monotonic time of the last acknowledgement


def losses(events: Sequence[Event]) -> dict[str, Losses]:
    """Return the acknowledged and lost records of each topic of a whole history, for reports; no verdict."""
    records = Records(events)
    acked: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.outcome == "ok" and records.acks_all(attempt):
            acked[attempt.topic].append(attempt)
    losses_by_topic: dict[str, Losses] = {}
    for topic, attempts in sorted(acked.items()):
        attempts.sort(key=lambda attempt: attempt.done_ns)
        reads, _ = records.final(topic, UNCOMMITTED)
        count = _read_counts(reads)
        lost = tuple(attempt.key for attempt in attempts if _absence(attempt, count, reads) == "lost")
        losses_by_topic[topic] = Losses(len(attempts), lost, attempts[0].done_ns, attempts[-1].done_ns)
    return losses_by_topic
