"""Check that controllers report partitions that are moved into too few racks, and when that ends.

Reads ``SettingsDetails``, ``MoveDetails`` and ``WarningsDetails``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import MoveDetails, WarningsDetails
from pyhooks.kafka import gate
from pyhooks.kafka.gate import Requirement

KINDS = {True: "enough", False: "too few"}


def check_warned(events: Sequence[Event]) -> Verdict:
    """Check that each controller logs how many partitions are in too few racks, up and down as they are moved.

    A controller may log each partition of a request, or all of them at once, so local maxima and minima are compared.
    Unknown without moves, without one of each kind, if no log was read after them, or if it is unknown what a topic
    required.

    Args:
        events: a whole history.
    """
    moves = [(event.mono_ns, move) for event, move in MoveDetails.each(events)]
    last_ns = max((at_ns for at_ns, _ in moves), default=0)
    logs = [logged for event, logged in WarningsDetails.each(events) if event.mono_ns >= last_ns]
    settings = RequirementTimeline(events)
    missing: list[str] = []
    kinds: set[bool] = set()
    short: set[str] = set()
    expected: list[int] = []
    for at_ns, move in moves:
        topic, after = move.topic, list(move.after)
        wanted = settings.possible(topic, at_ns, at_ns)
        reaches = {_reaches(after, move.racks, each) for each in wanted}
        if len(reaches) != 1:
            missing.append(f"nobody knows what topic {topic} required when it was moved to {after}")
            continue
        enough = reaches.pop()
        kinds.add(enough)
        short = short - {topic} if enough else short | {topic}
        expected.append(len(short))
    missing += [f"no move into {words} racks" for which, words in KINDS.items() if which not in kinds]
    wrong: list[str] = []
    counts = logs[-1].counts if logs else {}
    if not counts:
        missing.append("nobody read the controllers' logs after the moves")
    right = _extremes(expected)
    if not missing:
        told = {controller: _extremes(own) for controller, own in sorted(counts.items())}
        wrong = [
            f"controller {controller} logged {_in_words(own)} partitions in too few racks; right is {_in_words(right)}"
            for controller, own in told.items()
            if own != right
        ]
    notes = [f"{len(counts)} controllers logged {_in_words(right)} partitions in too few racks in {len(moves)} moves"]
    return Verdict.of("warned", wrong=wrong, missing=missing, notes=notes)


def _reaches(replicas: Sequence[int], racks: Mapping[int, str], wanted: Requirement) -> bool:
    return gate.limits(1, wanted.racks, len(replicas)).ask(replicas, racks).enough_racks


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


def _in_words(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "no"
