"""Check that every produce attempt within a phase ends as the phase expects.

A phase is the time between two events with ``PhaseDetails`` of the same name and topic. Those of a phase that expects
rejections have the size of the partition's log, because consumers can't see records above the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import PhaseDetails, ProduceDetails

OK = "ok"


@dataclass(frozen=True)
class Phase:
    """Details of both ends of a finished phase, and their monotonic times."""

    begin: PhaseDetails
    begin_ns: int
    end: PhaseDetails
    end_ns: int


def phases(events: Iterable[Event]) -> list[Phase]:
    """Return the finished phases of a history.

    Raises:
        ValueError: an end without a beginning, or a beginning without an end.
    """
    begun: dict[tuple[str, str], tuple[PhaseDetails, int]] = {}
    finished: list[Phase] = []
    for event, edge in PhaseDetails.each(events):
        key = (edge.name, edge.topic)
        if edge.edge == "begin":
            begun[key] = edge, event.mono_ns
        elif key not in begun:
            raise ValueError(f"phase {edge.name!r} of {edge.topic} ends without a beginning")
        else:
            finished.append(Phase(*begun.pop(key), edge, event.mono_ns))
    if begun:
        raise ValueError(f"phases without an end: {sorted(begun)}")
    return finished


def check_phases(events: Sequence[Event], *, attempts_min: int) -> Verdict:
    """Check that all probe attempts in a phase end as expected, and that rejected ones leave nothing in the log.

    A phase with fewer than ``attempts_min`` attempts is unknown.
    """
    try:
        ended = phases(events)
    except ValueError as error:
        return Verdict.of("phases", missing=[str(error)])
    findings = Findings()
    if not ended:
        findings.missing.append("no phase in the history")
    probes = [(event, produced) for event, produced in ProduceDetails.each(events) if event.process == "probe"]
    for phase in ended:
        name, topic, expect = phase.begin.name, phase.begin.topic, phase.begin.expect
        attempts = [
            (event.outcome, produced)
            for event, produced in probes
            if produced.topic == topic and phase.begin_ns <= event.mono_ns <= phase.end_ns
        ]
        if len(attempts) < attempts_min:
            findings.missing.append(f"{name}: {len(attempts)} attempts, at least {attempts_min} are needed")
        for outcome, produced in attempts:
            result = OK if outcome == "ok" else str(produced.exception)
            if outcome == "unknown":
                findings.missing.append(f"{name}: seq {produced.seq} is unknown ({result})")
            elif result != expect:
                findings.wrong.append(f"{name}: seq {produced.seq} got {result}, expected {expect}")
        if expect == OK:
            continue
        before, after = phase.begin.log_bytes, phase.end.log_bytes
        if before is None or after is None:
            findings.missing.append(f"{name}: the log size before and after is not recorded")
        elif before != after:
            findings.wrong.append(f"{name}: the log of {topic} grew by {after - before} bytes though all were rejected")
    return findings.verdict("phases")
