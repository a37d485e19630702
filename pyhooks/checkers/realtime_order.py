"""Check that records of a partition have offsets in real-time order, across producers and processes.

Reads ``produce`` and ``intend`` events, all ``read`` events, and the clocks of hosts (``clock``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pyhooks.checkers.record_view import PartitionName, Records
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ClockDetails

MS = 1_000_000
# Host of the runs without a ``clock`` event: that of the history, whose processes share a clock.
LOCAL = ""


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record of a partition with a known offset, and one moment: of its send or of its acknowledgement."""

    at_ns: int  # monotonic, by the clock of the record's producer, converted to that of the history
    offset: int
    key: str


@dataclass(frozen=True)
class Inversion:
    """A record that has no higher offset than one that was acknowledged before it was sent."""

    acked: PlacedRecord
    sent: PlacedRecord


# Records by the host of their producer.
ByHost = Mapping[str, Sequence[PlacedRecord]]


def check_realtime_order(events: Sequence[Event]) -> Verdict:
    """Check that a record acknowledged before another one was sent has the lower offset in their partition.

    A record with acks=all is acknowledged when it is below the high watermark, and a record is appended after its send.
    So the order must be that of real time, whichever producers and leaders are involved.

    The offset of a record is the acknowledged one. For a record without an acknowledged offset, such as one that timed
    out, it is the lowest at which a consumer read it. For the later record of a pair both count.

    Times of one host are compared exactly. Those of two hosts differ by no more than the errors of their clocks, which
    the history records; a pair that may be in either order is unknown if it has the wrong order of offsets.

    Records with acks=1 are excluded, except those that a consumer read: another leader may assign their offsets again,
    see ``pyhooks.checkers.visibility``.

    Unknown:

    * no record with an offset that was sent after another one of its partition was acknowledged;
    * an acknowledged record without a recorded send time; such a record that was not acknowledged is not judged;
    * results that a producer should have recorded;
    * only pairs within the error of the clocks that violate the order.
    """
    records = Records(events)
    findings = Findings(missing=records.unrecorded())
    acked, sent, unsent = _placed(records, _hosts(events))
    if unsent:
        findings.missing.append(f"{unsent} acknowledged records have no recorded send time")
    errors_ns = _errors_ns(events)
    pairs = 0
    for partition in sorted(acked):
        certain: list[Inversion] = []
        possible: list[Inversion] = []
        for host, other in product(sorted(acked[partition]), sorted(sent[partition])):
            margin_ns = 0 if host == other else errors_ns.get(host, 0) + errors_ns.get(other, 0)
            earlier, later = acked[partition][host], sent[partition][other]
            ordered, inversions = _inversions(earlier, later, margin_ns)
            pairs += ordered
            certain += inversions
            if margin_ns:
                _, inversions = _inversions(earlier, later, -margin_ns)
                possible += inversions
        if certain:
            findings.wrong.append(_describe(partition, certain))
        elif possible:
            bound_ms = max(errors_ns.values()) * 2 / MS
            findings.missing.append(f"{_describe(partition, possible)}; clocks are compared to within {bound_ms:g} ms")
    if not pairs:
        findings.missing.append("no record was sent after another one of its partition was acknowledged")
    findings.notes.append(f"{pairs} records were sent after another one of their partition was acknowledged")
    return findings.verdict("realtime_order")


def _describe(partition: PartitionName, inversions: Sequence[Inversion]) -> str:
    """Describe the inversions of a partition by their number and the first one."""
    first = min(inversions, key=lambda inversion: inversion.sent.at_ns)
    others = f", and {len(inversions) - 1} more" if len(inversions) > 1 else ""
    after_ms = (first.sent.at_ns - first.acked.at_ns) / MS
    return (
        f"{partition}: record {first.sent.key} is at offset {first.sent.offset}, though it was sent {after_ms:.3f} ms"
        f" after record {first.acked.key} was acknowledged at offset {first.acked.offset}{others}"
    )


def _inversions(
    acked: Sequence[PlacedRecord], sent: Sequence[PlacedRecord], margin_ns: int
) -> tuple[int, list[Inversion]]:
    """Compare each sent record with the highest offset acknowledged before its send.

    Args:
        acked: records in order of acknowledgement.
        sent: records in order of their sends.
        margin_ns: time by which the acknowledgement must precede the send; if negative, by which it may follow it.

    Returns:
        The number of sent records that another one precedes, and the inversions, one for each of them at most.
    """
    inversions: list[Inversion] = []
    highest: PlacedRecord | None = None
    index = ordered = 0
    for record in sent:
        while index < len(acked) and acked[index].at_ns + margin_ns < record.at_ns:
            if highest is None or acked[index].offset > highest.offset:
                highest = acked[index]
            index += 1
        if highest is None:
            continue
        ordered += 1
        if highest.offset >= record.offset:
            inversions.append(Inversion(highest, record))
    return ordered, inversions


def _placed(
    records: Records, hosts: Mapping[str, str]
) -> tuple[dict[PartitionName, ByHost], dict[PartitionName, ByHost], int]:
    """Return the acknowledged and the sent records with known offsets.

    Returns:
        Acknowledged records in order of acknowledgement, sent records in order of their sends, and the number of
        acknowledged records without a recorded send time.
    """
    acked: defaultdict[PartitionName, defaultdict[str, list[PlacedRecord]]] = defaultdict(lambda: defaultdict(list))
    sent: defaultdict[PartitionName, defaultdict[str, list[PlacedRecord]]] = defaultdict(lambda: defaultdict(list))
    read = _lowest_read(records)
    unsent = 0
    for attempt in records.attempts:
        if attempt.outcome == "fail":
            continue  # it must be in no log, see the checker ``delivery``
        host = hosts.get(attempt.run or "", LOCAL)
        places = dict(read.get((attempt.topic, attempt.key), {}))
        acks_all = records.acks_all(attempt)
        partition, offset = attempt.partition_name, attempt.offset
        if attempt.outcome == "ok" and acks_all and partition is not None:
            own = offset if offset is not None and offset >= 0 else places.get(partition)
            if own is not None:
                acked[partition][host].append(PlacedRecord(attempt.done_ns, own, attempt.key))
                places[partition] = min(own, places.get(partition, own))
        if attempt.sent_ns >= attempt.done_ns:
            unsent += attempt.outcome == "ok" and bool(places)
            continue
        for place, lowest in places.items():
            sent[place][host].append(PlacedRecord(attempt.sent_ns, lowest, attempt.key))
    for by_host in (*acked.values(), *sent.values()):
        for placed in by_host.values():
            placed.sort(key=lambda record: record.at_ns)
    return dict(acked), defaultdict(dict, sent), unsent


def _lowest_read(records: Records) -> dict[tuple[str, str], dict[PartitionName, int]]:
    """Return the lowest offset at which a consumer read a record, by topic and key, then by partition.

    Disks are not used: the log of a broker that has not yet returned to the ISR may have records that are in no order
    with the committed ones.
    """
    lowest: defaultdict[tuple[str, str], dict[PartitionName, int]] = defaultdict(dict)
    for partition, offset, key in _read_records(records):
        places = lowest[partition.topic, key]
        places[partition] = min(offset, places.get(partition, offset))
    return lowest


def _read_records(records: Records) -> Iterator[tuple[PartitionName, int, str]]:
    for read in records.reads:
        for offset, key in read.keys.items():
            if key is not None:
                yield read.partition, offset, key


def _hosts(events: Sequence[Event]) -> dict[str, str]:
    """Return the host of each run that has a clock of its own."""
    return {clock.run: clock.host for _, clock in ClockDetails.each(events)}


def _errors_ns(events: Sequence[Event]) -> dict[str, int]:
    """Return the largest error of each host's clock, in nanoseconds."""
    errors_ns: dict[str, int] = {}
    for _, clock in ClockDetails.each(events):
        errors_ns[clock.host] = max(clock.error_ns, errors_ns.get(clock.host, 0))
    return errors_ns
