"""Check that the feature is switched, and racks are required, exactly where a cluster allows it.

Reads ``SettingsDetails`` and ``LevelDetails``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import LevelDetails, LevelRequest

UPGRADE: LevelRequest = "upgrade"
DOWNGRADE: LevelRequest = "downgrade"
# Cases that a history must cover: each kind of request, where it is allowed and where it is not.
CASES = (
    f"{UPGRADE} refused",
    f"{UPGRADE} carried out",
    f"{DOWNGRADE} refused",
    f"{DOWNGRADE} carried out",
    "racks refused",
    "racks carried out",
)


def check_levels(events: Sequence[Event]) -> Verdict:
    """Check that a level is reached, and more than one rack is required, if and only if nothing prevents it.

    A level of at least 1 is prevented by a node without the overlay; level 0 by a topic that requires more than one
    rack; such a requirement by level 0. Nothing else changes a level. Unknown if one of the six cases does not occur,
    if a request has no end, or if it is unknown what a topic required.

    Args:
        events: a whole history.
    """
    settings = RequirementTimeline(events)
    levels = sorted(((event.mono_ns, one) for event, one in LevelDetails.each(events)), key=lambda pair: pair[0])
    wrong: list[str] = []
    missing: list[str] = []
    seen: Counter[str] = Counter()

    def judge(kind: str, what: str, *, allowed: bool, happened: bool) -> None:
        seen[f"{kind} {'carried out' if allowed else 'refused'}"] += 1
        if allowed is not happened:
            wrong.append(f"{what} was {'carried out' if happened else 'refused'}, and was to be the contrary")

    last: int | None = None
    for at_ns, one in levels:
        how, to, before, after = one.how, one.to, one.before, one.after
        if last is not None and before != last:
            wrong.append(f"the level went from {last} to {before}, and nobody had asked for that")
        last = after
        wanted = {name: settings.possible(name, at_ns, at_ns) for name in settings.topics}
        if how == DOWNGRADE and any(len({each.racks > 1 for each in own}) != 1 for own in wanted.values()):
            missing.append(f"nobody knows what topics required when a {how} to level {to} was asked for")
            continue
        required = sorted(name for name, own in wanted.items() if any(each.racks > 1 for each in own))
        against = (
            f"{one.lack} nodes lacking the overlay" if how == UPGRADE else f"racks required by {len(required)} topics"
        )
        allowed = not one.lack if how == UPGRADE else not required
        what = f"the {how} from level {before} to {to} with {against} ({one.said})"
        judge(how, what, allowed=allowed, happened=after == to)
    for name in settings.topics:
        for request in settings.requests(name):
            begun, ended = request.begun, request.ended
            if begun.value.racks <= 1:
                continue
            before_it = [one for at_ns, one in levels if at_ns <= begun.at_ns]
            after_it = [one for at_ns, one in levels if at_ns > begun.at_ns]
            if not before_it and not after_it:
                missing.append(f"nobody knows the level when R={begun.value.racks} was asked for topic {name}")
                continue
            level = before_it[-1].after if before_it else after_it[0].before
            if ended is None or ended.step not in ("settled", "refused"):
                missing.append(f"nobody knows what came of R={begun.value.racks} for topic {name} at level {level}")
                continue
            what = f"R={begun.value.racks} for topic {name} at level {level}"
            judge("racks", what, allowed=level >= 1, happened=ended.step == "settled")
    missing += [f"no case of: {case}" for case in CASES if not seen[case]]
    notes = [f"{count} times {case}" for case, count in sorted(seen.items())]
    return Verdict.of("levels", wrong=wrong, missing=missing, notes=notes)
