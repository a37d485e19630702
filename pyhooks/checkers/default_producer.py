"""Check how a long rejection appears to an application with a producer's default settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, Place, Records
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails
from pyhooks.history.outcomes import ERRORS

TIMEOUT = f"{ERRORS}.TimeoutException"


def check_defaults(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that failed attempts with default settings ended with a timeout, and not too early.

    The producer's retries hide each rejection until the delivery timeout has passed; then it reports a timeout, not the
    cause. Unknown if none failed, or if that timeout is not recorded. Whether an acknowledged attempt should have been
    acknowledged is not judged here.

    If the ISR was insufficient from the send until ``settle_s`` after the failure, each try was rejected before the
    append: the record is wrong if the final read has it. Unknown if this applies to no attempt, or if the final read is
    incomplete.

    Args:
        events: a whole history.
        settle_s: seconds granted to a change to take effect.
    """
    wrong: list[str] = []
    missing: list[str] = []
    acked = failed = 0
    for event, produced in ProduceDetails.each(events):
        if not produced.defaults:
            continue
        if event.outcome == "ok":
            acked += 1
            continue
        failed += 1
        name, seen = f"seq {produced.seq}", produced.exception
        latency_ms, timeout_ms = produced.latency_ms, produced.delivery_timeout_ms
        if seen != TIMEOUT:
            wrong.append(f"{name} got {seen or event.outcome}, expected {TIMEOUT}")
        elif timeout_ms is None:
            missing.append(f"{name}: nothing tells its delivery timeout")
        elif latency_ms is None:
            missing.append(f"{name}: nothing tells its latency")
        elif latency_ms < timeout_ms:
            wrong.append(f"{name} gave up after {latency_ms:.0f} ms, before {timeout_ms:g} ms were over")
    if not failed:
        missing.append("no attempt with default settings failed")
    else:
        _unwritten(events, settle_s, wrong, missing)
    notes = [f"{failed} attempts with default settings failed, {acked} were acknowledged"]
    return Verdict.of("defaults", wrong=wrong, missing=missing, notes=notes)


def _unwritten(events: Sequence[Event], settle_s: float, wrong: list[str], missing: list[str]) -> None:
    """Judge whether attempts that failed while the ISR was insufficient throughout are in no log."""
    records = Records(events)
    settings, faults, observations = (
        RequirementTimeline(events),
        cluster_view.faults(events),
        cluster_view.observations(events),
    )
    defaults = {produced.key for _, produced in ProduceDetails.each(events) if produced.defaults}
    own: defaultdict[Place, list[Attempt]] = defaultdict(list)
    for attempt in records.attempts:
        if attempt.key in defaults and attempt.outcome != "ok" and attempt.partition is not None:
            own[attempt.topic, attempt.partition].append(attempt)
    asked = 0
    for place, attempts in sorted(own.items()):
        known = list(windows(place, observations.get(place, ()), settings, faults, round(settle_s * NS)))
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


def _whole(attempt: Attempt, window: SettledWindow, settle_s: float) -> bool:
    """Return whether a window of an insufficient ISR contains an attempt, and any request in flight at its end."""
    return not window.enough and window.judges(attempt) and attempt.done_ns + round(settle_s * NS) <= window.to_ns
