"""Acknowledgement latency of producers with acks=all before, during and after an outage; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
from pyhooks.checkers.visibility import reader_rounds
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails

MS = 1_000_000
NS = 1_000 * MS
Span = tuple[int, int]
BEFORE, OUTAGE, RETURNING, CATCHING_UP, AFTER = "before", "outage", "returning", "catching up", "after"
# Only these last seconds before the outage count: earlier ones include the clients' warm-up.
WARM_S = 15


@dataclass(frozen=True)
class Latency:
    """Latency of the records scheduled within a time span, from the scheduled send time to the acknowledgement.

    Attributes:
        others: number of records that were not acknowledged.
        p50_ms: median; None without acknowledged records.
    """

    seconds: float
    acked: int
    others: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def summarize(values_ms: Sequence[float], others: int, seconds: float) -> Latency:
    """Return the statistics of the acknowledged latencies, the number of other records, and the length of the span."""
    ordered = sorted(values_ms)

    def rank(percent: int) -> float | None:
        # nearest-rank percentile
        return round(ordered[(len(ordered) * percent + 99) // 100 - 1], 1) if ordered else None

    return Latency(round(seconds, 1), len(ordered), others, rank(50), rank(99), rank(100))


@dataclass(frozen=True)
class Backlog:
    """Records that a leader accepted with acks=1 during the fault.

    Attributes:
        top: their highest offset.
        shown_ns: time at which a concurrent reader had read up to it.
    """

    records: int
    top: int
    shown_ns: int


def backlog(events: Sequence[Event], topic: str) -> Backlog:
    """Return the backlog of the only fault of a history.

    Raises:
        RackgateError: there is not exactly one healed fault, no record was accepted, or no reader reached the end.
    """
    fault = only_fault(events)
    records = Records(events)
    accepted = [
        attempt.offset
        for attempt in records.attempts
        if attempt.topic == topic
        and attempt.outcome == "ok"
        and attempt.offset is not None
        and not records.acks_all(attempt)
        if fault.inject_ns < attempt.done_ns < (fault.heal_ns or 0)
    ]
    top = max(accepted, default=-1)
    rounds = reader_rounds(events).get(PartitionName(topic, 0), ())
    shown = [seen.at_ns for seen in rounds if top >= 0 and seen.next > top]
    if not shown:
        raise RackgateError(f"{topic}: no record accepted with acks=1 in the outage was read")
    return Backlog(len(accepted), top, shown[0])


def only_fault(events: Sequence[Event]) -> RecordedFault:
    """Return the only fault of a history; raise ``RackgateError`` unless there is exactly one, which is healed."""
    faults = cluster_view.faults(events)
    if len(faults) != 1 or faults[0].heal_ns is None:
        raise RackgateError(f"expected one healed fault, found {len(faults)} faults")
    return faults[0]


def latencies(events: Sequence[Event], topic: str) -> Mapping[str, Latency]:
    """Compute latencies with acks=all before the only fault, during it, and after its heal.

    The time after the heal has three spans: until a record is acknowledged again, until the backlog is readable, and
    until the end.

    Raises:
        RackgateError: the history does not determine the spans.
    """
    fault, shown_ns = only_fault(events), backlog(events, topic).shown_ns
    heal_ns = fault.heal_ns or 0
    records = Records(events)
    sent = {
        produced.key: produced.intended_ns
        for _, produced in ProduceDetails.each(events)
        if produced.intended_ns is not None
    }
    own = [
        attempt
        for attempt in records.attempts
        if attempt.topic == topic and attempt.key in sent and records.acks_all(attempt)
    ]
    if not own:
        raise RackgateError(f"{topic}: no record was sent with acks=all")
    acked_ns = [sent[attempt.key] for attempt in own if attempt.outcome == "ok" and sent[attempt.key] >= heal_ns]
    if not acked_ns:
        raise RackgateError(f"{topic}: no record was acknowledged with acks=all after the heal")
    open_ns = min(*acked_ns, shown_ns)
    first_ns, last_ns = min(sent[attempt.key] for attempt in own), max(sent[attempt.key] for attempt in own)
    spans: dict[str, Span] = {
        BEFORE: (max(first_ns, fault.inject_ns - WARM_S * NS), fault.inject_ns),
        OUTAGE: (fault.inject_ns, heal_ns),
        RETURNING: (heal_ns, open_ns),
        CATCHING_UP: (open_ns, shown_ns),
        AFTER: (shown_ns, last_ns + 1),
    }
    return {name: _within(own, sent, span) for name, span in spans.items()}


def _within(own: Sequence[Attempt], sent: Mapping[str, int], span: Span) -> Latency:
    scheduled = [attempt for attempt in own if span[0] <= sent[attempt.key] < span[1]]
    latencies_ms = [(attempt.done_ns - sent[attempt.key]) / MS for attempt in scheduled if attempt.outcome == "ok"]
    return summarize(latencies_ms, len(scheduled) - len(latencies_ms), max(0, span[1] - span[0]) / NS)
