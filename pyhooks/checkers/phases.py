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
    """One phase of a history.

    Attributes:
        name: name of the phase.
        topic: topic of its attempts.
        expect: ``"ok"`` or a Java class name.
        begin_ns: monotonic nanoseconds.
        end_ns: monotonic nanoseconds.
        log_bytes_before: size of the leader's log at the beginning, if measured.
        log_bytes_after: size of the leader's log at the end, if measured.
    """

    name: str
    topic: str
    expect: str
    begin_ns: int
    end_ns: int
    log_bytes_before: int | None
    log_bytes_after: int | None


def phases(events: Iterable[Event]) -> tuple[Phase, ...]:
    """Return the finished phases of a history.

    Raises:
        ValueError: an end without a beginning, or a beginning without an end.
    """
    begun: dict[tuple[str, str], tuple[int, PhaseDetails]] = {}
    found: list[Phase] = []
    for event, edge in PhaseDetails.each(events):
        key = (edge.name, edge.topic)
        if edge.edge == "begin":
            begun[key] = event.mono_ns, edge
            continue
        if key not in begun:
            raise ValueError(f"phase {key[0]!r} of {key[1]} ends without a beginning")
        begin_ns, first = begun.pop(key)
        found.append(
            Phase(
                name=key[0],
                topic=key[1],
                expect=first.expect,
                begin_ns=begin_ns,
                end_ns=event.mono_ns,
                log_bytes_before=first.log_bytes,
                log_bytes_after=edge.log_bytes,
            )
        )
    if begun:
        raise ValueError(f"phases without an end: {sorted(begun)}")
    return tuple(found)


def check_phases(events: Sequence[Event], *, attempts_min: int) -> Verdict:
    """Check that all probe attempts in a phase end as expected, and that rejected ones leave nothing in the log.

    Args:
        events: a whole history.
        attempts_min: minimum number of attempts; a phase with fewer is unknown.
    """
    try:
        ended = phases(events)
    except ValueError as error:
        return Verdict.of("phases", missing=[str(error)])
    found = Findings()
    if not ended:
        found.missing.append("no phase in the history")
    probes = [(event, produced) for event, produced in ProduceDetails.each(events) if event.process == "probe"]
    for phase in ended:
        attempts = [
            (event.outcome, produced)
            for event, produced in probes
            if produced.topic == phase.topic and phase.begin_ns <= event.mono_ns <= phase.end_ns
        ]
        if len(attempts) < attempts_min:
            found.missing.append(f"{phase.name}: {len(attempts)} attempts, at least {attempts_min} are needed")
        for outcome, produced in attempts:
            result = OK if outcome == "ok" else str(produced.exception)
            if outcome == "unknown":
                found.missing.append(f"{phase.name}: seq {produced.seq} is unknown ({result})")
            elif result != phase.expect:
                found.wrong.append(f"{phase.name}: seq {produced.seq} got {result}, expected {phase.expect}")
        if phase.expect == OK:
            continue
        if phase.log_bytes_before is None or phase.log_bytes_after is None:
            found.missing.append(f"{phase.name}: the log size before and after is not recorded")
        elif phase.log_bytes_before != phase.log_bytes_after:
            added = phase.log_bytes_after - phase.log_bytes_before
            found.wrong.append(f"{phase.name}: the log of {phase.topic} grew by {added} bytes though all were refused")
    return found.verdict("phases")
