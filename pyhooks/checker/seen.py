"""What does an application with a producer's default settings see of a long refusal?"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event
from pyhooks.workload.certainty import ERRORS

TIMEOUT = f"{ERRORS}.TimeoutException"


def check_defaults(events: Sequence[Event]) -> Verdict:
    """Every attempt with default settings (``data.defaults``) that failed ended with a timeout, and not too early.

    Its own retries hide each refusal until ``data.delivery_timeout_ms`` is over; then it is told that time ran out, and
    not why. Unknown if none failed, or if nothing tells how long that timeout is. Whether one that was acknowledged
    should have been is not asked here.

    Args:
        events: a whole history.
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
    notes = [f"{failed} attempts with default settings failed, {acked} were acknowledged"]
    return Verdict.of("defaults", wrong=wrong, missing=missing, notes=notes)
