"""Check that waiting records of an idle topic are shown as soon as fewer racks are required, without another write.

A test lowers ``min.insync.racks`` of a topic with acks=1 records waiting for racks, and writes nothing to it from then
on. Before, it records this (``IdleDetails``). Also reads ``intend`` and ``produce`` events, settings and the rounds of
``pyhooks.workload.visibility_reader``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.verdict import Verdict
from pyhooks.checkers.visibility import ROUNDS_S, Sight, sights
from pyhooks.history.event_log import Event
from pyhooks.history.events import IdleDetails

# Counted from the moment at which every broker reports the new value; the proposal promises one second.
BOUND_S = 1.0


def check_idle(events: Sequence[Event], *, bound_s: float = BOUND_S) -> Verdict:
    """Check that waiting records are below the high watermark ``bound_s`` after all brokers report the lower value.

    Wrong: a leader that was queried later than that, and returned a high watermark at or below the last of these
    records, which could not be read either. The measurement adds up to the time between two rounds of a reader, since a
    later query shows a later moment.

    Unknown:

    * no change that settled;
    * no record that a reader found hidden after its acknowledgement and before the change;
    * another record that was sent to the topic before that one was shown;
    * no response to a reader within ``ROUNDS_S`` after the bound.

    Args:
        events: a whole history.
        bound_s: seconds from the moment at which the change has settled.
    """
    records, settings, seen = Records(events), RequirementTimeline(events), sights(events)
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    asked = list(IdleDetails.each(events))
    if not asked:
        missing.append("nothing tells of a topic that was left idle")
    for event, idle in asked:
        topic = idle.topic
        change = next((one for one in settings.requests(topic) if one.begun.at_ns > event.mono_ns), None)
        if change is None or change.ended is None or change.ended.step != "settled":
            missing.append(f"{topic}: no change of what it requires has settled after it was left idle")
            continue
        begun_ns, settled_ns = change.begun.at_ns, change.ended.at_ns
        own = [one for one in records.attempts if one.topic == topic]
        waiting = _waiting(topic, own, records, seen, event.mono_ns, begun_ns)
        if not waiting:
            missing.append(f"{topic}: no record is known to have waited when it was left idle")
        for place, top in sorted(waiting.items()):
            name = f"{topic}-{place[1]}"
            rounds = [one for one in seen[place] if one.at_ns > begun_ns]
            shown = next((one for one in rounds if one.shown > top), None)
            until_ns = settled_ns + round((bound_s + ROUNDS_S) * NS)
            over_ns = until_ns if shown is None else shown.at_ns
            # A round has the offset read before its query, and the leader's high watermark after it.
            late = [one for one in rounds if one.asked_ns >= settled_ns + bound_s * NS and one.high is not None]
            if any(one.done_ns > event.mono_ns and one.sent_ns < over_ns for one in own):
                missing.append(f"{name}: something else was sent to it before what waited was shown")
            elif late and late[0].shown <= top:
                late_s = (late[0].asked_ns - settled_ns) / NS
                wrong.append(f"{name}: record {top} not shown {late_s:.1f} s after all brokers told the lower value")
            elif shown is None or shown.at_ns > until_ns:
                missing.append(f"{name}: nobody was told in time whether record {top} is shown")
            else:
                took_s = (shown.at_ns - begun_ns) / NS
                notes.append(f"{name}: records up to {top} seen to be shown {took_s:.1f} s after the change was begun")
    return Verdict.of("idle", wrong=wrong, missing=missing, notes=notes)


def _waiting(
    topic: str,
    own: Sequence[Attempt],
    records: Records,
    seen: dict[Place, list[Sight]],
    idle_ns: int,
    begun_ns: int,
) -> dict[Place, int]:
    """Return for each partition the last offset acknowledged with acks=1, if a reader found it hidden."""
    found: dict[Place, int] = {}
    for one in own:
        if one.outcome != "ok" or one.offset is None or one.partition is None or records.shared(one):
            continue
        place = topic, one.partition
        rounds = [
            sight
            for sight in seen.get(place, ())
            if sight.asked_ns > one.done_ns and sight.at_ns < begun_ns and sight.high is not None
        ]
        if one.done_ns <= idle_ns and rounds and max(sight.shown for sight in rounds) <= one.offset:
            found[place] = max(one.offset, found.get(place, -1))
    return found
