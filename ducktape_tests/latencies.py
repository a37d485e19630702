"""How long producers with acks=all wait for their acknowledgements before, during and after an outage; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Fault
from pyhooks.checkers.record_view import Attempt, Records
from pyhooks.checkers.visibility import sights
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event

MS = 1_000_000
NS = 1_000 * MS
Span = tuple[int, int]
BEFORE, OUTAGE, RETURNING, CATCHING_UP, AFTER = "before", "outage", "returning", "catching up", "after"
# Before the outage only the last seconds count: at first clients warm up.
WARM_S = 15


@dataclass(frozen=True)
class Latency:
    """Of the records that were meant to be sent within a stretch of time, from then until their acknowledgement.

    Attributes:
        seconds: how long the stretch is.
        acked: how many of them were acknowledged.
        others: how many were not.
        p50_ms: half of the acknowledged took no longer; None if there are none.
        p99_ms: 99 of 100 did not.
        max_ms: none did.
    """

    seconds: float
    acked: int
    others: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def of(values_ms: Sequence[float], others: int, seconds: float) -> Latency:
    """The figures of latencies.

    Args:
        values_ms: of the acknowledged records.
        others: how many were not acknowledged.
        seconds: in which time.
    """
    found = sorted(values_ms)

    def rank(percent: int) -> float | None:
        # the least value that so many of a hundred do not exceed
        return round(found[(len(found) * percent + 99) // 100 - 1], 1) if found else None

    return Latency(round(seconds, 1), len(found), others, rank(50), rank(99), rank(100))


@dataclass(frozen=True)
class Backlog:
    """What a leader took with acks=1 while too few were in sync.

    Attributes:
        records: how many were acknowledged from the begin of the fault to that of its heal.
        top: the highest offset of them.
        shown_ns: when a reader beside had read it.
    """

    records: int
    top: int
    shown_ns: int


def backlog(events: Sequence[Event], topic: str) -> Backlog:
    """The backlog of the only fault of a history.

    Raises:
        RackgateError: there was none, or nobody read to its end.
    """
    fault = only(events)
    records = Records(events)
    taken = [
        one.offset
        for one in records.attempts
        if one.topic == topic and one.outcome == "ok" and one.offset is not None and not records.shared(one)
        if fault.inject_ns < one.done_ns < (fault.heal_ns or 0)
    ]
    top = max(taken, default=-1)
    shown = [one.at_ns for one in sights(events).get((topic, 0), ()) if top >= 0 and one.next > top]
    if not shown:
        raise RackgateError(f"{topic}: nothing was taken with acks=1 in the outage, or nobody read it")
    return Backlog(len(taken), top, shown[0])


def only(events: Sequence[Event]) -> Fault:
    """The only fault of a history, which is healed.

    Raises:
        RackgateError: there is none, or there are others.
    """
    found = cluster_view.faults(events)
    if len(found) != 1 or found[0].heal_ns is None:
        raise RackgateError(f"one fault that is healed was expected, there are {len(found)}")
    return found[0]


def latencies(events: Sequence[Event], topic: str) -> Mapping[str, Latency]:
    """Latencies with acks=all before the only fault, under it, and after its heal.

    That is first until one is taken again, then until the backlog was readable, and then to the end.

    Args:
        events: a whole history.
        topic: which.

    Raises:
        RackgateError: one of these is not to be told from the others.
    """
    fault, shown_ns = only(events), backlog(events, topic).shown_ns
    heal_ns = fault.heal_ns or 0
    records = Records(events)
    sent = {
        str(one.data["key"]): int(one.data["intended_ns"])
        for one in events
        if one.op == "produce" and "intended_ns" in one.data
    }
    own = [one for one in records.attempts if one.topic == topic and one.key in sent and records.shared(one)]
    if not own:
        raise RackgateError(f"{topic}: nobody produced to it with acks=all")
    taken_ns = [sent[one.key] for one in own if one.outcome == "ok" and sent[one.key] >= heal_ns]
    if not taken_ns:
        raise RackgateError(f"{topic}: nothing was acknowledged with acks=all after the heal")
    open_ns = min(*taken_ns, shown_ns)
    first_ns, last_ns = min(sent[one.key] for one in own), max(sent[one.key] for one in own)
    spans: dict[str, Span] = {
        BEFORE: (max(first_ns, fault.inject_ns - WARM_S * NS), fault.inject_ns),
        OUTAGE: (fault.inject_ns, heal_ns),
        RETURNING: (heal_ns, open_ns),
        CATCHING_UP: (open_ns, shown_ns),
        AFTER: (shown_ns, last_ns + 1),
    }
    return {name: _within(own, sent, span) for name, span in spans.items()}


def _within(own: Sequence[Attempt], sent: Mapping[str, int], span: Span) -> Latency:
    meant = [one for one in own if span[0] <= sent[one.key] < span[1]]
    took_ms = [(one.done_ns - sent[one.key]) / MS for one in meant if one.outcome == "ok"]
    return of(took_ms, len(meant) - len(took_ms), max(0, span[1] - span[0]) / NS)
