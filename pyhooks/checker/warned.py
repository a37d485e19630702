"""Do the controllers warn of each reassignment into too few racks, when it begins and when it ends, and of no other?

Reads ``settings`` (see ``pyhooks.checker.cluster``), events of op ``moved``: ``data`` ``{topic, before, after, racks}``
with the replicas of a topic's partition before and after a reassignment that has ended, and the racks of brokers by
their ids; and one of op ``warnings``: ``data`` ``{counts}``, by topic how often the controllers' logs warn of a
``begin`` and of an ``end``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks import gate
from pyhooks.checker.cluster import Requirement, Settings
from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event

OP, LOGS = "moved", "warnings"
BEGIN, END = "begin", "end"
KINDS = {True: "enough", False: "too few"}


def check_warned(events: Sequence[Event]) -> Verdict:
    """As many warnings as moves into too few racks; of their begin only where a replica had to be added first.

    What is too few is what the gate would say of all replicas in sync. Unknown without moves, without one of each kind,
    if nobody read the logs after them, or if it is not known what a topic required.

    Args:
        events: a whole history.
    """
    moves = [event for event in events if event.op == OP]
    logs = [event for event in events if event.op == LOGS and all(event.mono_ns >= one.mono_ns for one in moves)]
    settings = Settings(events)
    expected: dict[tuple[str, str], int] = {}
    missing: list[str] = []
    kinds: set[bool] = set()
    for one in moves:
        topic, after = str(one.data["topic"]), [int(broker) for broker in one.data["after"]]
        wanted = settings.possible(topic, one.mono_ns, one.mono_ns)
        racks = {int(broker): str(rack) for broker, rack in one.data["racks"].items()}
        passes = {_passes(after, racks, each) for each in wanted}
        if len(passes) != 1:
            missing.append(f"nobody knows what topic {topic} required when it was moved to {after}")
            continue
        enough = passes.pop()
        kinds.add(enough)
        added = bool(set(after) - {int(broker) for broker in one.data["before"]})
        for place, counts in ((BEGIN, added and not enough), (END, not enough)):
            expected[topic, place] = expected.get((topic, place), 0) + counts
    missing += [f"no move into {words} racks" for which, words in KINDS.items() if which not in kinds]
    wrong: list[str] = []
    if not logs:
        missing.append("nobody read the controllers' logs after the moves")
    else:
        counts = logs[-1].data["counts"]
        told = {(str(topic), str(place)): int(own) for topic, each in counts.items() for place, own in each.items()}
        wrong = [
            f"topic {topic}: {told.get((topic, place), 0)} warnings of the {place} of a move, and {number} are right"
            for (topic, place), number in sorted((dict.fromkeys(told, 0) | expected).items())
            if told.get((topic, place), 0) != number and not missing
        ]
    notes = [f"{sum(expected.values())} warnings of {len(moves)} moves"]
    return Verdict.of("warned", wrong=wrong, missing=missing, notes=notes)


def _passes(replicas: Sequence[int], racks: dict[int, str], wanted: Requirement) -> bool:
    return gate.ask(
        replicas, racks, min_replicas=wanted.replicas, min_racks=wanted.racks, replicas=len(replicas)
    ).passes
