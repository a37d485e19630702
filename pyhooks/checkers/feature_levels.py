"""Check that the feature is switched, and racks are required, exactly where a cluster allows it.

Reads ``SettingsDetails`` and ``LevelDetails``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import LevelDetails, LevelRequest

UPGRADE: LevelRequest = "upgrade"
DOWNGRADE: LevelRequest = "downgrade"
# Cases that a history must cover: each kind of request, where it is allowed and where it is not.
CASES = (
    f"{UPGRADE} rejected",
    f"{UPGRADE} carried out",
    f"{DOWNGRADE} rejected",
    f"{DOWNGRADE} carried out",
    "racks rejected",
    "racks carried out",
)


def check_levels(events: Sequence[Event]) -> Verdict:
    """Check that a level is reached, and more than one rack is required, if and only if nothing prevents it.

    A level of at least 1 is prevented by a node without the overlay; level 0 by a topic that requires more than one
    rack; such a requirement by level 0. Nothing else changes a level. Unknown if one of the six cases does not occur,
    if a request has no end, or if the requirement of a topic is unknown.
    """
    findings = Findings()
    settings = RequirementTimeline(events)
    levels = sorted(((event.mono_ns, level) for event, level in LevelDetails.each(events)), key=lambda pair: pair[0])
    cases: Counter[str] = Counter()

    def judge(kind: str, request: str, *, allowed: bool, happened: bool) -> None:
        cases[f"{kind} {'carried out' if allowed else 'rejected'}"] += 1
        if allowed is not happened:
            results = ("carried out", "rejected") if happened else ("rejected", "carried out")
            findings.wrong.append(f"{request} was {results[0]}, expected: {results[1]}")

    last: int | None = None
    for at_ns, level in levels:
        request = f"the {level.how} from level {level.before} to {level.to}"
        if last is not None and level.before != last:
            findings.wrong.append(f"the level went from {last} to {level.before} without a request")
        last = level.after
        needs_racks = {
            topic: {requirement.racks > 1 for requirement in settings.possible(topic, at_ns, at_ns)}
            for topic in settings.topics
        }
        if level.how == DOWNGRADE and any(len(possible) != 1 for possible in needs_racks.values()):
            findings.missing.append(f"{request}: the topics' requirements then are unknown")
            continue
        count = sum(True in possible for possible in needs_racks.values())
        if level.how == UPGRADE:
            allowed, obstacle = not level.stock_nodes, f"{level.stock_nodes} nodes lacking the overlay"
        else:
            allowed, obstacle = not count, f"racks required by {count} topics"
        judge(
            level.how, f"{request} with {obstacle} ({level.output})", allowed=allowed, happened=level.after == level.to
        )
    for topic in settings.topics:
        for change in settings.requests(topic):
            begun, ended = change.begun, change.ended
            if begun.value.racks <= 1:
                continue
            request = f"R={begun.value.racks} for topic {topic}"
            before = [level for at_ns, level in levels if at_ns <= begun.at_ns]
            if not levels:
                findings.missing.append(f"{request}: the level then is unknown")
                continue
            value = before[-1].after if before else levels[0][1].before
            request = f"{request} at level {value}"
            if ended is None or ended.step not in ("settled", "rejected"):
                findings.missing.append(f"{request}: its result is unknown")
                continue
            judge("racks", request, allowed=value >= 1, happened=ended.step == "settled")
    findings.missing += [f"no case of: {case}" for case in CASES if not cases[case]]
    findings.notes += [f"{count} times {case}" for case, count in sorted(cases.items())]
    return findings.verdict("levels")
