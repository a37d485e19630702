"""Violations of what consumers, consumer groups and copiers receive and commit."""

from __future__ import annotations

import random
from typing import Any

from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.verify.stored_history import StoredHistory, draw, edit_one, violation

# -- polls of consumers ------------------------------------------------------------------------------------------------


@violation("polls", anomaly="precommitted-read")
def read_ahead_of_commit(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A committed read is beyond the last stable offset."""
    victim = draw(choice, [event for event, follow in ev.LeaderOffsetsDetails.each(history.events) if follow.position])
    return edit_one(history, victim, stable=victim.data["position"] - 1)


@violation("polls", anomaly="precommitted-read")
def read_ahead_of_watermark(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A reader is beyond the high watermark."""
    found = [
        (event, partition, after)
        for event, visible in ev.VisibleDetails.each(history.events)
        for partition, after in visible.next.items()
        if after and visible.high.get(partition) is not None
    ]
    event, partition, after = draw(choice, found)
    return edit_one(history, event, high={**event.data["high"], partition: after - 1})


@violation("polls", anomaly="poll-skip")
def skip_in_polls(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A consumer skips a record."""
    followed = [event for event, follow in ev.FollowDetails.each(history.events) if follow.records]
    if followed:
        victim = choice.choice(followed)
        return edit_one(history, victim, records=victim.data["records"] - 1)
    arrived = [event for event, arrivals in ev.ArrivalsDetails.each(history.events) if len(arrivals.keys) > 2]
    victim = draw(choice, arrived)
    place = choice.randrange(1, len(victim.data["keys"]) - 1)
    fields = {name: [one for at, one in enumerate(victim.data[name]) if at != place] for name in ("keys", "ago_ms")}
    return edit_one(history, victim, **fields)


@violation("polls", anomaly="nonmonotonic-poll")
def repeat_poll(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A group member receives a record twice."""
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
    event, partition, first = draw(choice, found)
    return edit_one(history, event, first={**event.data["first"], partition: first})


@violation("polls", anomaly="nonmonotonic-poll")
def go_back_in_polls(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A reader's position goes back."""
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
    event, fields = draw(choice, found)
    return edit_one(history, event, **fields)


@violation("visibility")
def show_hidden(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A record with acks=1 is readable with an insufficient ISR."""
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
    event, name, after = draw(choice, found)
    fields = {"next": {**event.data["next"], name: after}, "high": {**event.data["high"], name: after}}
    return edit_one(history, event, **fields)


# -- groups and copiers ------------------------------------------------------------------------------------------------


@violation("groups")
def lose_commit(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A coordinator has a lower offset than was committed."""
    found = [
        (event, partition, offset)
        for event, committed in ev.CommittedOffsetsDetails.each(history.events)
        for partition, offset in committed.offsets.items()
        if offset > 0
    ]
    event, partition, offset = draw(choice, found)
    return edit_one(history, event, offsets={**event.data["offsets"], partition: offset - 1})


@violation("copied", anomaly="int-nonmonotonic-poll")
def copy_twice(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A copier takes a record twice."""
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
    event, partition, first, after = draw(choice, found)
    return edit_one(history, event, taken={**event.data["taken"], partition: [first - 1, after]})
