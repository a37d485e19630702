"""Violations of what consumers, consumer groups and copiers receive and commit."""

from __future__ import annotations

import random
from typing import Any

from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.verify.stored_history import StoredHistory, draw, edit_one

# -- polls of consumers ------------------------------------------------------------------------------------------------


def read_ahead_of_commit(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a leader return a last stable offset below the position of a reader of committed records."""
    victim = draw(choice, [event for event, follow in ev.LeaderOffsetsDetails.each(history.events) if follow.position])
    return edit_one(history, victim, stable=victim.data["position"] - 1 if victim else 0)


def read_ahead_of_watermark(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a leader return a high watermark below the offset that a reader has read up to."""
    found = [
        (event, partition, after)
        for event, visible in ev.VisibleDetails.each(history.events)
        for partition, after in visible.next.items()
        if after and visible.high.get(partition) is not None
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, after = victim
    return edit_one(history, event, high={**event.data["high"], partition: after - 1})


def skip_in_polls(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a consumer receive one record less than it passed."""
    followed = [event for event, follow in ev.FollowDetails.each(history.events) if follow.records]
    if followed:
        victim = choice.choice(followed)
        return edit_one(history, victim, records=victim.data["records"] - 1)
    arrived = [event for event, arrivals in ev.ArrivalsDetails.each(history.events) if len(arrivals.keys) > 2]
    if not arrived:
        return None
    victim = choice.choice(arrived)
    place = choice.randrange(1, len(victim.data["keys"]) - 1)
    fields = {name: [one for at, one in enumerate(victim.data[name]) if at != place] for name in ("keys", "ago_ms")}
    return edit_one(history, victim, **fields)


def repeat_poll(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a group member receive the record before its position once more."""
    positions: dict[tuple[str, str, str], int] = {}
    found = []
    for event, member in ev.MemberDetails.each(history.events):
        if change := ev.AssignmentDetails.of(event):
            for key in [key for key in positions if key[:2] == (change.run, change.group)]:
                if key[2] not in change.now or key[2] in change.partitions:
                    del positions[key]
        elif fetch := ev.FetchDetails.of(event):
            for partition, after in fetch.next.items():
                key = (member.run, member.group, partition)
                if positions.get(key, 0) > 0 and partition in fetch.first:
                    found.append((event, partition, positions[key] - 1))
                positions[key] = after
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, first = victim
    return edit_one(history, event, first={**event.data["first"], partition: first})


def go_back_in_polls(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a reader report a position below its previous one."""
    before: dict[tuple[str, str, int], int] = {}
    found: list[tuple[Event, dict[str, Any]]] = []
    for event, follow in ev.FollowDetails.each(history.events):
        name = (follow.run, follow.topic, follow.partition)
        if before.get(name, 0) > 0:
            found.append((event, {"position": before[name] - 1}))
        before[name] = follow.position
    rounds: dict[tuple[str, str], int] = {}
    for event, visible in ev.VisibleDetails.each(history.events):
        for partition, after in visible.next.items():
            if rounds.get((visible.run, partition), 0) > 0:
                position = rounds[visible.run, partition] - 1
                found.append((event, {"next": {**event.data["next"], partition: position}}))
            rounds[visible.run, partition] = after
    victim = draw(choice, found)
    return None if victim is None else edit_one(history, victim[0], **victim[1])


def show_hidden(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a reader read a record with acks=1 while the ISR is insufficient."""
    found = []
    rounds = list(ev.VisibleDetails.each(history.events))
    for attempt in history.records.attempts:
        partition = attempt.partition_name
        if attempt.outcome != "ok" or attempt.offset is None or history.records.acks_all(attempt) or partition is None:
            continue
        for window in history.windows.get(partition, ()):
            to_ns = min(window.to_ns, window.ahead.from_ns)
            if window.enough or not window.from_ns <= attempt.sent_ns <= attempt.done_ns <= to_ns:
                continue
            found += [
                (event, str(partition), attempt.offset + 1)
                for event, visible in rounds
                if attempt.done_ns <= visible.asked_ns and event.mono_ns <= to_ns and str(partition) in visible.next
            ]
        if len(found) > 1000:
            break
    victim = draw(choice, found)
    if victim is None:
        return None
    event, name, after = victim
    fields = {"next": {**event.data["next"], name: after}, "high": {**event.data["high"], name: after}}
    return edit_one(history, event, **fields)


# -- groups and copiers ------------------------------------------------------------------------------------------------


def lose_commit(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a coordinator return less than a member had committed."""
    found = [
        (event, partition, offset)
        for event, committed in ev.CommittedOffsetsDetails.each(history.events)
        for partition, offset in committed.offsets.items()
        if offset > 0
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, offset = victim
    return edit_one(history, event, offsets={**event.data["offsets"], partition: offset - 1})


def copy_twice(history: StoredHistory, choice: random.Random) -> list[Event] | None:
    """Let a copier take a record that an earlier transaction took."""
    ends = history.records.transactions
    copies = [
        (event, copy)
        for event, copy in ev.CopyDetails.each(history.events)
        if (end := ends.get((copy.run, copy.txn))) is not None and end.outcome == "ok"
    ]
    found = [
        (event, partition, first, after)
        for event, copy in copies[1:]
        for partition, (first, after) in copy.taken.items()
        if first > 0
    ]
    victim = draw(choice, found)
    if victim is None:
        return None
    event, partition, first, after = victim
    return edit_one(history, event, taken={**event.data["taken"], partition: [first - 1, after]})
