"""Check that every fault of a history took hold, lasted and was healed."""

from __future__ import annotations

from collections.abc import Iterable

from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import FaultDetails

STEPS = ("before", "inject", "proved", "held", "heal", "healed")
# Meaning of a proof that probes contradict. A contradicted "before" proves no failure: nothing was injected yet.
FAILED = {"proved": "did not take hold", "held": "did not last", "healed": "did not heal"}


def check_faults(events: Iterable[Event]) -> Verdict:
    """Check by probe results that each fault took hold, lasted and was healed; at least one fault is required.

    Wrong if a probe contradicts one of the three (outcome ``fail``): other observations made under such a fault are no
    evidence about an outage. Unknown if there is no fault, if a proof could not be made, or if steps are missing. Also
    unknown if a fault was not injected because the state before it was abnormal.
    """
    findings = Findings()
    open_steps: dict[tuple[str, str | None, object], list[str]] = {}
    finished = 0
    for event, fault in FaultDetails.each(events):
        step, broker = str(fault.step), fault.broker
        name = _name(event.op, event.rack, broker)
        if event.outcome == "fail" and step in FAILED:
            findings.wrong.append(f"{name}: {FAILED[step]}: {fault.probes}")
        elif event.outcome in ("fail", "unknown"):
            findings.missing.append(f"{name}: {step!r} was not proved: {fault.errors or fault.probes}")
        steps = open_steps.setdefault((event.op, event.rack, broker), [])
        steps.append(step)
        if step == STEPS[-1]:
            if tuple(steps) != STEPS:
                findings.missing.append(f"{name}: steps {steps}, expected {list(STEPS)}")
            del open_steps[event.op, event.rack, broker]
            finished += 1
    findings.missing += [
        f"{_name(*fault_key)}: {'never healed' if 'inject' in steps else 'never injected'}, last step {steps[-1]!r}"
        for fault_key, steps in open_steps.items()
    ]
    if not finished:
        findings.missing.append("no fault in the history")
    return findings.verdict("faults")


def _name(op: str, rack: str | None, broker: object) -> str:
    return f"{op} {rack}" if broker is None else f"{op} broker {broker}"
