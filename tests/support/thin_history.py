"""Reduce histories of the system tests to a few events, for tests/support/lab_histories.

python tests/support/thin_history.py HISTORY.jsonl >tests/support/lab_histories/NAME.jsonl

Keeps observations (one in two seconds while nothing changes), settings, the steps of faults, the first ``intend`` and
``end`` of each producer, and one of its records a second for each outcome. Other events are dropped, which can turn a
checker's verdict only into unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyhooks.checkers.cluster_view import HEAL, HEALED, INJECT, PROVED
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import OBSERVER

LOOK_NS, RECORD_NS = 2_000_000_000, 1_000_000_000
PRODUCE = ("run", "topic", "key", "seq", "partition", "sent_ns", "latency_ms", "exception", "offset")


def thinned(events: list[Event]) -> Iterator[Event]:
    """Yield the events to keep."""
    last: Event | None = None
    held: Event | None = None
    kept: set[tuple[object, ...]] = set()
    for event in events:
        if event.process == OBSERVER and event.op == "look":
            same = last is not None and last.data.get("partitions") == event.data.get("partitions")
            if same and last is not None and event.mono_ns - last.mono_ns < LOOK_NS:
                held = event
                continue
            if held is not None:
                yield held
            last, held = event, None
            yield event
        elif event.op == "settings":
            yield event
        elif event.process == "fault" and event.data.get("step") in (INJECT, PROVED, HEAL, HEALED):
            yield replace(event, data={key: event.data[key] for key in ("broker", "step") if key in event.data})
        elif event.op in ("intend", "end"):
            name = (event.op, event.data.get("run"), event.data.get("topic"))
            if name not in kept:
                kept.add(name)
                yield event
        elif event.op == "produce":
            data = {key: event.data[key] for key in PRODUCE if key in event.data}
            place = (data["run"], data["topic"], data.get("partition"))
            second = (*place, event.outcome, event.mono_ns // RECORD_NS)
            if second not in kept:
                kept.add(second)
                yield replace(event, data=data)
    if held is not None:
        yield held


if __name__ == "__main__":
    sys.stdout.writelines(event.line() for event in thinned(list(History(Path(sys.argv[1])).events())))
