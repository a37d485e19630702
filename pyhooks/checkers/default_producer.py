"""What does an application with a producer's default settings see of a long refusal?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Settings
from pyhooks.checkers.progress import Window, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, Place, Records
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS

TIMEOUT = f"{ERRORS}.TimeoutException"


def check_defaults(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Every attempt with default settings (``data.defaults``) that failed ended with a timeout, and not too early.

    Its own retries hide each refusal until ``data.delivery_timeout_ms`` is over; then it is told that time ran out, and
    not why. Unknown if none failed, or if nothing tells how long that timeout is. Whether one that was acknowledged
    should have been is not asked here.

    If too few were in sync all the time from when it was sent until ``settle_s`` after it failed, each of its tries was
    refused before the append: it is wrong if it can be read in the end. Unknown if that could be asked of none, or the
    final read is not whole.

    Args:
        events: a whole history.
        settle_s: what is granted to a change to take effect, in seconds.
    """
    wrong: list[str] = []
    missing: list[str] = []
    acked = failed = 0
    for event in events:
        if event.op != "produce" or not event.data.get("defaults"):
            continue
        if event.outcome == "ok":
            acked += 1
            continue
        failed += 1
        name, seen = f"seq {event.data.get('seq')}", event.data.get("exception")
        latency_ms, timeout_ms = float(event.data["latency_ms"]), event.data.get("delivery_timeout_ms")
        if seen != TIMEOUT:
            wrong.append(f"{name} got {seen or event.outcome}, expected {TIMEOUT}")
        elif timeout_ms is None:
            missing.append(f"{name}: nothing tells its delivery timeout")
        elif latency_ms < timeout_ms:
            wrong.append(f"{name} gave up after {latency_ms:.0f} ms, before {timeout_ms} ms were over")
    if not failed:
        missing.append("no attempt with default settings failed")
    else:
        _unwritten(events, settle_s, wrong, missing)
    notes = [f"{failed} attempts with default settings failed, {acked} were acknowledged"]
    return Verdict.of("defaults", wrong=wrong, missing=missing, notes=notes)


def _unwritten(events: Sequence[Event], settle_s: float, wrong: list[str], missing: list[str]) -> None:
    """Whether what failed while too few were in sync all the time is in no log."""
    records = Records(events)
    settings, faults, looks = Settings(events), cluster_view.faults(events), cluster_view.looks(events)
    defaults = {str(event.data["key"]) for event in events if event.op == "produce" and event.data.get("defaults")}
    own: defaultdict[Place, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.key in defaults and attempt.outcome != "ok" and attempt.partition is not None:
            own[attempt.topic, attempt.partition].append(attempt)
    asked = 0
    for place, attempts in sorted(own.items()):
        known = list(windows(place, looks.get(place, ()), settings, faults, round(settle_s * NS)))
        short = [one for one in attempts if any(_whole(one, window, settle_s) for window in known)]
        if not short:
            continue
        asked += len(short)
        reads, gaps = records.final(place[0], UNCOMMITTED)
        missing += gaps
        read = {key for one in reads.values() for key in one.keys.values()}
        wrong += [
            f"{place[0]}-{place[1]}: record {one.key} was read, and too few were in sync while it was tried"
            for one in short
            if one.key in read
        ]
    if not asked:
        missing.append("of no attempt that failed it is known that too few were in sync while it was tried")


def _whole(attempt: Attempt, window: Window, settle_s: float) -> bool:
    """Whether a stretch of too few has all of an attempt, with the request that may be under way at its end."""
    return not window.enough and window.judges(attempt) and attempt.done_ns + round(settle_s * NS) <= window.to_ns
