"""What does an application with a producer's default settings see of a long refusal?"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event


def check_defaults(events: Sequence[Event], *, exception: str, delivery_timeout_ms: float) -> Verdict:
    """Every attempt with default settings (``data.defaults``) ended with ``exception``, after the delivery timeout.

    Args:
        events: a whole history.
        exception: Java class name.
        delivery_timeout_ms: the producer's ``delivery.timeout.ms``.
    """
    attempts = [event for event in events if event.op == "produce" and event.data.get("defaults")]
    missing = () if attempts else ("no attempt with default settings in the history",)
    wrong: list[str] = []
    for event in attempts:
        seen, latency_ms = event.data.get("exception"), float(event.data["latency_ms"])
        if seen != exception:
            wrong.append(f"seq {event.data.get('seq')} got {seen or event.outcome}, expected {exception}")
        elif latency_ms < delivery_timeout_ms:
            wrong.append(f"seq {event.data.get('seq')} gave up after {latency_ms:.0f} ms")
    return Verdict.of("defaults", wrong=wrong, missing=missing)
