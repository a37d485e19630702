"""Did every fault of a history take hold, last, and heal?"""

from __future__ import annotations

from collections.abc import Iterable

from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event

STEPS = ("before", "inject", "proved", "held", "heal", "healed")
# What a proof says that its probes contradict; before the fault there is nothing that could have failed.
FAILED = {"proved": "did not take hold", "held": "did not last", "healed": "did not heal"}


def check_faults(events: Iterable[Event]) -> Verdict:
    """Each fault took hold, lasted and was healed, by what probes answered; there must be at least one.

    Wrong if a probe that was asked for the proof of one of these contradicts it (outcome ``fail``): nothing else that
    was observed under such a fault says anything about an outage. Unknown without a fault, if a proof could not be
    made, if things were not as usual before the fault, so that it was not injected, or if steps are missing.
    """
    wrong: list[str] = []
    missing: list[str] = []
    open_steps: dict[tuple[str, str | None, object], list[str]] = {}
    finished = 0
    for event in events:
        if event.process != "fault":
            continue
        step = str(event.data.get("step"))
        broker = event.data.get("broker")
        name = _name(event.op, event.rack, broker)
        if event.outcome == "fail" and step in FAILED:
            wrong.append(f"{name}: {FAILED[step]}: {event.data.get('probes')}")
        elif event.outcome in ("fail", "unknown"):
            missing.append(f"{name}: {step!r} was not proved: {event.data.get('errors') or event.data.get('probes')}")
        steps = open_steps.setdefault((event.op, event.rack, broker), [])
        steps.append(step)
        if step == STEPS[-1]:
            if tuple(steps) != STEPS:
                missing.append(f"{name}: steps {steps}, expected {list(STEPS)}")
            del open_steps[event.op, event.rack, broker]
            finished += 1
    missing += [
        f"{_name(*which)}: {'never healed' if 'inject' in steps else 'never injected'}, last step {steps[-1]!r}"
        for which, steps in open_steps.items()
    ]
    if not finished:
        missing.append("no fault in the history")
    return Verdict.of("faults", wrong=wrong, missing=missing)


def _name(op: str, rack: str | None, broker: object) -> str:
    return f"{op} {rack}" if broker is None else f"{op} broker {broker}"
