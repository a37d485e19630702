"""Real-time order of random logs: a correct log is in order, and one record across a real-time edge is found."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyhooks.checkers.realtime_order import check_realtime_order
from pyhooks.history.event_log import Event
from pyhooks.history.events import ClockDetails, ProduceDetails

MS = 1_000_000


@dataclass(frozen=True)
class Entry:
    """A record of a log: true times of its send, append and result, and whether it was acknowledged."""

    key: str
    host: int
    sent_ns: int
    appended_ns: int
    done_ns: int
    acked: bool
    offset: int = 0


@st.composite
def logs(draw: st.DrawFn, hosts: int = 1) -> list[Entry]:
    """Draw a correct log of one partition: offsets in the order of the appends."""
    entries = []
    for number in range(draw(st.integers(2, 12))):
        sent_ns = draw(st.integers(0, 60)) * MS
        appended_ns = sent_ns + draw(st.integers(1, 20)) * MS + number
        done_ns = appended_ns + draw(st.integers(1, 20)) * MS
        host, acked = draw(st.integers(0, hosts - 1)), draw(st.integers(0, 4)) > 0
        entries.append(Entry(f"k{number}", host, sent_ns, appended_ns, done_ns, acked))
    entries.sort(key=lambda entry: entry.appended_ns)
    return [replace(entry, offset=offset) for offset, entry in enumerate(entries)]


def history(log: list[Entry], shifts_ns: tuple[int, ...] = (0,), error_ns: int = 0) -> list[Event]:
    """Return the history of a log, with hosts' clock errors, and its final read."""
    events = [
        ClockDetails(run=entry.key, host=f"h{entry.host}", error_ns=error_ns).event_at(0, 0, process="workload")
        for entry in log
        if error_ns
    ]
    for entry in log:
        shift_ns = shifts_ns[entry.host]
        details = ProduceDetails(
            topic="t",
            partition=0,
            key=entry.key,
            sent_ns=entry.sent_ns + shift_ns,
            offset=entry.offset if entry.acked else None,
            run=entry.key,
        )
        outcome = "ok" if entry.acked else "unknown"
        events.append(details.event_at(entry.done_ns + shift_ns, 0, outcome, process="producer"))  # type: ignore[arg-type]
        for op in ("intend", "end"):
            data = {"run": entry.key, "topic": "t", "first_only": True, "idempotent": False, "to": {}}
            events.append(Event(0, 0, "producer", op, None, None, data))
    data = {"pass": "p", "topic": "t", "partition": 0, "partitions": 1, "isolation": "read_uncommitted"}
    keys = [entry.key for entry in sorted(log, key=lambda entry: entry.offset)]
    chunk = {"low": 0, "begin": 0, "next": len(keys), "end": len(keys), "runs": [[0, len(keys)]], "keys": keys}
    return [*events, Event(10**12, 0, "reader", "read", "ok", None, {**data, **chunk})]


def edges(log: list[Entry]) -> list[tuple[int, int]]:
    """Return the pairs of indices of which the first was acknowledged before the second was sent."""
    return [
        (first, second)
        for first, earlier in enumerate(log)
        for second, later in enumerate(log)
        if earlier.acked and earlier.done_ns < later.sent_ns
    ]


@settings(max_examples=200, deadline=None)
@given(logs(), st.randoms(use_true_random=False))
def test_a_correct_log_is_in_order(log: list[Entry], choice: random.Random) -> None:
    events = history(log)
    choice.shuffle(events)
    verdict = check_realtime_order(events)
    assert verdict.valid == ("true" if edges(log) else "unknown"), verdict


@settings(max_examples=200, deadline=None)
@given(logs(), st.data())
def test_a_record_moved_across_a_real_time_edge_is_found(log: list[Entry], data: st.DataObject) -> None:
    assume(edges(log))
    first, second = data.draw(st.sampled_from(edges(log)))
    order = [entry for at, entry in enumerate(log) if at != first]
    # behind the record that was sent after its acknowledgement
    order.insert(second, log[first])
    moved = [replace(entry, offset=offset) for offset, entry in enumerate(order)]
    verdict = check_realtime_order(history(moved))
    assert verdict.valid == "false", verdict


@settings(max_examples=200, deadline=None)
@given(logs(hosts=3), st.tuples(*[st.integers(-5, 5)] * 3))
def test_clocks_within_their_error_cause_no_false_alarm(log: list[Entry], shifts_ms: tuple[int, ...]) -> None:
    events = history(log, tuple(shift * MS for shift in shifts_ms), 5 * MS)
    assert check_realtime_order(events).valid != "false"


@settings(max_examples=200, deadline=None)
@given(logs(hosts=2), st.tuples(*[st.integers(-5, 5)] * 2), st.data())
def test_a_move_across_a_long_edge_is_found_whatever_the_clocks(
    log: list[Entry], shifts_ms: tuple[int, ...], data: st.DataObject
) -> None:
    long = [(first, second) for first, second in edges(log) if log[second].sent_ns - log[first].done_ns > 20 * MS]
    assume(long)
    first, second = data.draw(st.sampled_from(long))
    order = [entry for at, entry in enumerate(log) if at != first]
    order.insert(second, log[first])
    moved = [replace(entry, offset=offset) for offset, entry in enumerate(order)]
    events = history(moved, tuple(shift * MS for shift in shifts_ms), 5 * MS)
    assert check_realtime_order(events).valid == "false"
