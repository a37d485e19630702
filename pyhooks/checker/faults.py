"""Did every fault of a history take hold, last, and heal?"""

from __future__ import annotations

from collections.abc import Iterable

from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event

STEPS = ("before", "inject", "proved", "held", "heal", "healed")


def check_faults(events: Iterable[Event]) -> Verdict:
    """Unknown unless the history holds at least one fault and each went through all of its steps, proofs good.

    Without that, nothing else that was observed says anything about an outage.
    """
    missing: list[str] = []
    open_steps: dict[tuple[str, str | None, object], list[str]] = {}
    finished = 0
    for event in events:
        if event.process != "fault":
            continue
        step = str(event.data.get("step"))
        broker = event.data.get("broker")
        name = f"{event.op} {event.rack}" if broker is None else f"{event.op} broker {broker}"
        if event.outcome == "unknown":
            missing.append(f"{name}: {step!r} was not proved: {event.data.get('probes')}")
        steps = open_steps.setdefault((event.op, event.rack, broker), [])
        steps.append(step)
        if step == STEPS[-1]:
            if tuple(steps) != STEPS:
                missing.append(f"{name}: steps {steps}, expected {list(STEPS)}")
            del open_steps[event.op, event.rack, broker]
            finished += 1
    missing += [
        f"{op} {rack if broker is None else f'broker {broker}'}: never healed, last step {steps[-1]!r}"
        for (op, rack, broker), steps in open_steps.items()
    ]
    if not finished:
        missing.append("no fault in the history")
    return Verdict.of("faults", missing=missing)
