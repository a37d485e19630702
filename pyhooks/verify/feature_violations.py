"""Violations of what features of Kafka show, keep and process: replicas that are read, share groups and others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyhooks.checkers.record_view import COMMITTED, PartitionName, offsets_of
from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.verify.stored_history import (
    NotApplicableError,
    StoredHistory,
    changed,
    draw,
    edit_one,
    is_result,
    violation,
)


@violation("replicas", anomaly="precommitted-read")
def show_at_replica(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A replica shows more than is committed."""
    found = [
        (event, name, high)
        for event, read in ev.ReplicaReadDetails.each(history.events)
        for name in read.next
        if (high := _later_watermark(history, name, event.mono_ns)) is not None
    ]
    event, name, high = draw(choice, found)
    return edit_one(history, event, next={**event.data["next"], name: high + 1})


def _later_watermark(history: StoredHistory, partition: str, at_ns: int) -> int | None:
    """Return the first high watermark of a partition that its leader was asked for after a moment."""
    later = ((one.asked_ns, one.high.get(partition)) for _, one in ev.VisibleDetails.each(history.events))
    return min(((asked_ns, high) for asked_ns, high in later if asked_ns >= at_ns and high is not None),
               default=(0, None))[1]  # fmt: skip


@violation("remote")
def copy_uncommitted(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Remote storage has a segment that is not committed."""
    found = [
        event
        for event, listed in ev.RemoteSegmentsDetails.each(history.events)
        if (high := _later_watermark(history, f"{listed.topic}-0", event.mono_ns)) is not None
        and max(listed.local, default=0) > high
    ]
    victim = draw(choice, found)
    return edit_one(history, victim, remote=sorted(victim.data["local"])[:-1])


@violation("late transactions", anomaly="G1a")
def commit_late(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A late record of an aborted transaction is read as committed."""
    committed = {
        (txn.run, txn.txn): event for event, txn in ev.TransactionDetails.each(history.events) if event.outcome == "ok"
    }
    read = {key for one in history.records.reads if one.isolation == COMMITTED for key in one.keys.values()}
    attempts = [
        attempt
        for attempt in history.records.attempts
        if (attempt.run, attempt.txn) in committed and attempt.key in read
    ]
    attempt = draw(choice, attempts)
    appended = next((event for event, _ in ev.AppendedDetails.each(history.events)), None)
    if appended is None:
        raise NotApplicableError
    end = committed[attempt.run, attempt.txn]
    result = is_result(attempt)
    given_up_ms = next(event.wall_ms for event in history.events if result(event))
    late = changed(appended, topic=attempt.topic, partition=attempt.partition, key=attempt.key,
                   append_ms=given_up_ms + 5000)  # fmt: skip
    edited = [
        changed(event, outcome="fail")
        if event is end
        else changed(event, outcome="unknown", offset=None)
        if result(event)
        else event
        for event in history.events
    ]
    return [*edited, late]


@violation("shares")
def deliver_again(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A share group delivers a record again though it was confirmed."""
    found = [
        (later, ack.partition, ack.offsets[0][0])
        for event, ack in ev.AcknowledgementDetails.each(history.events)
        if event.outcome == "ok" and ack.offsets
        for later, delivery in ev.DeliveryDetails.each(history.events)
        if delivery.group == ack.group and delivery.begun_ns > event.mono_ns
    ]
    event, partition, offset = draw(choice, found)
    own = [*event.data["offsets"].get(partition, []), [offset, 1]]
    return edit_one(history, event, offsets={**event.data["offsets"], partition: own})


@violation("flat")
def grow(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A process uses more and more memory."""
    samples = [event for event, _ in ev.ResourcesDetails.each(history.events)]
    names = sorted({event.data["name"] for event in samples})
    # as many samples as the checker needs
    name = draw(choice, [one for one in names if sum(event.data["name"] == one for event in samples) > 5])
    own = [event for event in samples if event.data["name"] == name]
    last = {id(event) for event in own[2 * (len(own) // 3) :]}
    return [
        changed(event, memory_kib=3 * event.data["memory_kib"]) if id(event) in last else event
        for event in history.events
    ]


@violation("connected")
def skip_at_sink(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A Connect sink skips records."""
    received = [(event, sunk) for event, sunk in ev.SunkDetails.each(history.events) if sunk.offsets]
    count = Counter((sunk.group, offset) for _, sunk in received for offset in offsets_of(sunk.offsets))
    found = [
        event
        for event, sunk in received
        if all(count[sunk.group, offset] == 1 for offset in offsets_of(sunk.offsets))
        and any(later.group == sunk.group and later.offsets > sunk.offsets for _, later in received)
    ]
    victim = draw(choice, found)
    return [event for event in history.events if event is not victim]


@violation("connected")
def sink_in_outage(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A Connect sink receives records with an insufficient ISR."""
    received = [(event, sunk.topic) for event, sunk in ev.SunkDetails.each(history.events) if sunk.offsets]
    return _arrive_in_outage(history, choice, received, lambda from_ns: {"begun_ns": from_ns})


def _arrive_in_outage(
    history: StoredHistory,
    choice: random.Random,
    arrivals: Sequence[tuple[Event, str]],
    fields: Callable[[int], Mapping[str, object]],
) -> list[Event]:
    """Move one of the arrivals, each with its topic, to where the ISR of the topic was insufficient.

    ``fields`` returns the fields to change for the start of that time in ns.
    """
    found = [
        (event, window)
        for event, topic in arrivals
        for window in history.windows.get(PartitionName(topic, 0), ())
        if not window.enough and window.to_ns < event.mono_ns and window.from_ns < window.ahead.from_ns
        # so that the application wrote before, and goes on
        if any(own == topic and other.mono_ns < window.from_ns for other, own in arrivals)
        and any(own == topic and other.mono_ns > event.mono_ns for other, own in arrivals)
    ]
    moved, window = draw(choice, found)
    early = replace(changed(moved, **fields(window.from_ns)), mono_ns=min(window.to_ns, window.ahead.from_ns))
    return [early if event is moved else event for event in history.events]


@violation("processed")
def count_again(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A stream processor counts a record twice."""
    targets = {one.target for _, one in ev.StreamsDetails.each(history.events)}
    counted = [
        event
        for event, read in ev.ReadChunkDetails.each(history.events)
        if read.topic in targets and read.isolation == COMMITTED and read.values
    ]
    victim = draw(choice, counted)
    values = list(victim.data["values"])
    values[choice.randrange(len(values))] = "\0" * 7 + "\2"
    return edit_one(history, victim, values=values)


@violation("processed")
def write_in_outage(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A stream processor writes with an insufficient ISR."""
    targets = {one.target for _, one in ev.StreamsDetails.each(history.events)}
    arrivals = [(event, one.topic) for event, one in ev.ArrivalsDetails.each(history.events) if one.topic in targets]
    return _arrive_in_outage(history, choice, arrivals, lambda _: {"keys": ["early"], "ago_ms": [0.0]})
