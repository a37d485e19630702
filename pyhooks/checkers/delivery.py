"""Check that the final read has every acknowledged record, no definitely rejected one, and none that was not sent.

Reads the events of producers (``produce``, ``intend``, ``end``, ``killed``) and the last read_uncommitted pass
(``read``) over every partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyhooks.checkers.duplicate_writes import WHY, Doubled
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, Read, Records
from pyhooks.checkers.verdict import Verdict
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
    missing = records.unnoted()
    if not any(attempt.outcome == "ok" and records.shared(attempt) for attempt in records.attempts):
        missing.append("no acknowledged record in the history")
    doubled = Doubled(events, records)
    wrong: list[str] = []
    notes: list[str] = []
    for topic in sorted({attempt.topic for attempt in records.attempts} | {read.topic for read in records.reads}):
        attempts = {attempt.key: attempt for attempt in records.attempts if attempt.topic == topic}
        reads, gaps = records.final(topic, UNCOMMITTED)
        if reads or any(attempt.outcome == "ok" for attempt in attempts.values()):
            missing += gaps
        count = Counter(key for read in reads.values() for key in read.keys.values())
        for attempt in attempts.values():
            _presence(attempt, records, count, reads, wrong, missing)
        for read in reads.values():
            _elsewhere(read, attempts, wrong)
        _strangers(topic, count, attempts, records, wrong, missing)
        _twice(topic, count, attempts, records, doubled, wrong, missing, notes)
        for read in reads.values():
            _values(read, attempts, wrong)
            _sizes(read, records, wrong, missing)
    return Verdict.of("delivery", wrong=wrong, missing=missing, notes=notes)


def _presence(
    attempt: Attempt,
    records: Records,
    count: Counter[str | None],
    reads: dict[int, Read],
    wrong: list[str],
    missing: list[str],
) -> None:
    if attempt.outcome == "fail" and count[attempt.key]:
        wrong.append(f"{attempt.topic}: refused record {attempt.key} was read")
    if not records.shared(attempt):
        return
    absent = _absent(attempt, count, reads)
    if absent == "late":
        missing.append(f"{attempt.topic}: record {attempt.key} was acknowledged after the final read began")
    elif absent == "below":
        missing.append(f"{attempt.topic}: record {attempt.key} is below the log's first offset")
    elif absent == "lost":
        wrong.append(f"{attempt.topic}: acknowledged record {attempt.key} is lost")


def _absent(attempt: Attempt, count: Counter[str | None], reads: dict[int, Read]) -> Absence:
    """Return why an acknowledged record was not read; empty if it was read or a gap already explains its absence."""
    if attempt.outcome != "ok" or count[attempt.key] or not reads:
        return ""
    own = [read for number, read in reads.items() if attempt.partition in (None, number)]
    if not own or any(read.gaps for read in own):
        return ""  # reported as a gap
    if any(attempt.done_ns > read.begun_ns for read in own):
        return "late"
    below = attempt.offset is not None and any(attempt.offset < read.low for read in own)
    return "below" if below else "lost"


@dataclass(frozen=True)
class Losses:
    """Acknowledged and lost records of a topic.

    Attributes:
        acked: number of acknowledged records.
        lost: keys of the records that are definitely lost, in the order of acknowledgement.
        first_ns: monotonic time of the first acknowledgement.
        last_ns: monotonic time of the last acknowledgement.
    """

    acked: int
    lost: tuple[str, ...]
    first_ns: int
    last_ns: int


def losses(events: Sequence[Event]) -> dict[str, Losses]:
    """Return the acknowledged and lost records of each topic, for reports; no verdict.

    Args:
        events: a whole history.
    """
    records = Records(events)
    acked: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.outcome == "ok" and records.shared(attempt):
            acked[attempt.topic].append(attempt)
    found: dict[str, Losses] = {}
    for topic, own in sorted(acked.items()):
        own.sort(key=lambda attempt: attempt.done_ns)
        reads, _ = records.final(topic, UNCOMMITTED)
        count = Counter(key for read in reads.values() for key in read.keys.values())
        lost = tuple(attempt.key for attempt in own if _absent(attempt, count, reads) == "lost")
        found[topic] = Losses(len(own), lost, own[0].done_ns, own[-1].done_ns)
    return found


def _elsewhere(read: Read, attempts: dict[str, Attempt], wrong: list[str]) -> None:
    for key in read.keys.values():
        attempt = attempts.get(str(key))
        if attempt is not None and attempt.partition not in (None, read.partition):
            where = f"sent to partition {attempt.partition} and was read in partition {read.partition}"
            wrong.append(f"{read.topic}: record {key} was {where}")


def _strangers(
    topic: str,
    count: Counter[str | None],
    attempts: dict[str, Attempt],
    records: Records,
    wrong: list[str],
    missing: list[str],
) -> None:
    for key in sorted(map(str, count.keys() - attempts.keys())):
        parts = parts_of(key)
        run = records.runs.get((parts[0], topic)) if parts and parts[1] == topic else None
        if run is None or parts is None:
            wrong.append(f"{topic}: record {key} was read but never produced")
            continue
        _, _, partition, seq = parts
        bounds = run.intended if run.ended is None else run.ended
        if seq >= bounds.get(partition, 0):
            wrong.append(f"{topic}: record {key} was read, and its producer never came to it")
        elif run.ended is not None:
            missing.append(f"{topic}: record {key} was read, and nothing tells what its producer was told")


def _twice(
    topic: str,
    count: Counter[str | None],
    attempts: dict[str, Attempt],
    records: Records,
    doubled: Doubled,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    for key, times in sorted((str(key), times) for key, times in count.items() if times > 1):
        attempt, parts = attempts.get(key), parts_of(key)
        name = attempt.run if attempt else parts[0] if parts else None
        run = records.runs.get((name, topic)) if name else None
        retries = run is not None and not run.first_only and not run.idempotent
        said = f"{topic}: record {key} was read {times} times"
        if not retries and doubled.own(topic, key):
            missing.append(f"{said}, written {WHY}")
        else:
            (notes if retries else wrong).append(said)


def _values(read: Read, attempts: dict[str, Attempt], wrong: list[str]) -> None:
    wrong += [f"{read.topic}: record {read.keys.get(offset)} was read with another value" for offset in read.damaged]
    for offset, value in read.values.items():
        attempt = attempts.get(str(read.keys[offset]))
        if attempt and attempt.outcome == "ok" and attempt.value is not None and attempt.value != value:
            wrong.append(f"{read.topic}: record {attempt.key} was read with another value")


def _sizes(read: Read, records: Records, wrong: list[str], missing: list[str]) -> None:
    where = f"{read.topic}-{read.partition}"
    untold = 0
    for offset, key in read.keys.items():
        parts = parts_of(key) if key else None
        run = records.runs.get((parts[0], read.topic)) if parts else None
        if key is None or run is None or run.record_bytes is None:
            continue
        size, sent = read.sizes.get(offset), len(value_of(key, run.record_bytes))
        if size is None:
            untold += 1
        elif size != sent:
            wrong.append(f"{where}: record {key} was read with {size} bytes, it was sent with {sent}")
    if untold:
        missing.append(f"{where}: nothing tells how long the values of {untold} records are")
