"""Check that controllers report partitions that are moved into too few racks, and when that ends.

Reads ``SettingsDetails``, ``MoveDetails`` and ``WarningsDetails``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import MoveDetails, WarningsDetails
from pyhooks.kafka import gate
from pyhooks.kafka.gate import Requirement

KINDS = {True: "enough", False: "too few"}


def check_placement_reports(events: Sequence[Event]) -> Verdict:
    """Check that each controller logs how many partitions are in too few racks, up and down as they are moved.

    A controller may log each partition of a request, or all of them at once, so local maxima and minima are compared.
    Unknown without moves, without one of each kind, if no log was read after them, or if the requirement of
    a topic is unknown.
    """
    findings = Findings()
    moves = [(event.mono_ns, move) for event, move in MoveDetails.each(events)]
    last_ns = max((at_ns for at_ns, _ in moves), default=0)
    logs = [warnings for event, warnings in WarningsDetails.each(events) if event.mono_ns >= last_ns]
    settings = RequirementTimeline(events)
    kinds: set[bool] = set()
    short: set[str] = set()
    expected: list[int] = []
    for at_ns, move in moves:
        sufficient = {
            _spans_enough(move.after, move.racks, requirement)
            for requirement in settings.possible(move.topic, at_ns, at_ns)
        }
        if len(sufficient) != 1:
            findings.missing.append(
                f"the requirement of topic {move.topic} when it was moved to {list(move.after)} is unknown"
            )
            continue
        (enough,) = sufficient
        kinds.add(enough)
        short = short - {move.topic} if enough else short | {move.topic}
        expected.append(len(short))
    findings.missing += [f"no move into {name} racks" for kind, name in KINDS.items() if kind not in kinds]
    counts = logs[-1].counts if logs else {}
    if not counts:
        findings.missing.append("no log of a controller was read after the moves")
    numbers = _extremes(expected)
    if not findings.missing:
        findings.wrong += [
            f"controller {controller} logged {_text(logged)} partitions in too few racks, expected: {_text(numbers)}"
            for controller, controller_counts in sorted(counts.items())
            if (logged := _extremes(controller_counts)) != numbers
        ]
    findings.notes.append(
        f"{len(counts)} controllers logged {_text(numbers)} partitions in too few racks in {len(moves)} moves"
    )
    return findings.verdict("warned")


def _spans_enough(replicas: Sequence[int], racks: Mapping[int, str], requirement: Requirement) -> bool:
    return gate.limits(1, requirement.racks, len(replicas)).decide(replicas, racks).enough_racks


def _extremes(counts: Iterable[int]) -> list[int]:
    """Return the local maxima and minima of a number that begins with 0, and its last value."""
    path = [0]
    for count in counts:
        if count == path[-1]:
            continue
        if len(path) > 1 and (count > path[-1]) is (path[-1] > path[-2]):
            path[-1] = count
        else:
            path.append(count)
    return path[1:]


def _text(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "no"
