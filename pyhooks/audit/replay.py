"""Replay of audit records: the state of each lowering, and what restores a topic. Pure functions.

The state of a lowering is its furthest event in the order of ``EVENTS``. So it does not depend on the order in which
records are read, nor on copies of them, nor on the clocks of hosts. A step that is recorded after the lowering was
closed, by a process that was stopped meanwhile, opens it again only from ``abandoned``: a value that was set after all.

After a crash between two records, the topic's current value shows which step was taken last:

=============  =============================  =======================================
furthest       current value                  meaning
=============  =============================  =======================================
``intended``   not what was to be set         never applied
``intended``   what was to be set             applied, and the command ended before it recorded that
``applied``    what was set                   lowered
``applied``    another                        superseded: another client changed it
``restoring``  what was set                   lowered; the restoration was not made
``restoring``  the old one                    restored, and the command ended before it recorded that
=============  =============================  =======================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pyhooks.audit.audit_record import CLOSED, EVENTS, AuditRecord, Event, Terms

# A command of another host that has recorded its intention makes the change within this time, or gives it up.
CHANGE_WINDOW = timedelta(minutes=2)


@dataclass(frozen=True)
class Lowering:
    """Lowering of one topic, with its state."""

    terms: Terms
    state: Event
    records: tuple[AuditRecord, ...]  # by time

    @property
    def open(self) -> bool:
        """Whether it is neither restored nor abandoned nor superseded."""
        return self.state not in CLOSED

    def time_is_up(self, at: datetime) -> bool:
        """Return whether its time is over; never for one that only waits for racks."""
        return self.terms.until is not None and at >= self.terms.until


def replay(records: Iterable[AuditRecord]) -> tuple[Lowering, ...]:
    """Return all lowerings, oldest first, from records in any order; copies of a record count once."""
    by_lowering: dict[tuple[str, str], dict[str, AuditRecord]] = {}
    for record in records:
        by_lowering.setdefault(record.terms.key, {})[record.record] = record
    found = []
    for steps in by_lowering.values():
        ordered = sorted(steps.values(), key=lambda step: (step.at, EVENTS.index(step.event), step.record))
        first = min(ordered, key=lambda step: (EVENTS.index(step.event), step.record))
        found.append(Lowering(first.terms, max((step.event for step in ordered), key=EVENTS.index), tuple(ordered)))
    return tuple(sorted(found, key=lambda one: (one.terms.began, one.terms.key)))


def earlier_contenders(own: Terms, sequence: Sequence[AuditRecord], open_: Iterable[Lowering]) -> tuple[Terms, ...]:
    """Return open lowerings of the same topic that were intended before this one, in the order of one log.

    Two operators who both record their intention before they read the log can't both find none: the first in the log
    goes on, the second gives up.

    Args:
        own: the terms whose record is in the log.
        sequence: all records of the file, or of the topic, in their order.
        open_: lowerings that are open according to all records.
    """
    keys = {one.terms.key for one in open_}
    found: dict[tuple[str, str], Terms] = {}
    for record in sequence:
        if record.terms.key == own.key:
            break
        if record.terms.key in keys and record.terms.topic == own.topic and record.terms.cluster == own.cluster:
            found[record.terms.key] = record.terms
    return tuple(found.values())


@dataclass(frozen=True)
class TopicPlan:
    """What the current value of a topic means for its open lowerings."""

    topic: str  # its name
    # lowerings that the current value is due to; restoring the topic restores all of them
    lowered: tuple[Lowering, ...] = ()
    value: int | None = None  # value to restore; None removes the topic's value, so that it inherits the cluster's
    racks: int = 1  # R that was in force before
    never_applied: tuple[Lowering, ...] = ()  # intended ones that were not applied
    restored: tuple[Lowering, ...] = ()  # ones that were restored, without a record of it
    superseded: tuple[Lowering, ...] = ()  # ones whose value another client has changed

    @property
    def unrecorded(self) -> bool:
        """Whether a command ended, or another client changed the value, without a record of it so far."""
        return bool(
            self.never_applied
            or self.restored
            or self.superseded
            or any(one.state == "intended" for one in self.lowered)
        )

    def time_is_up(self, at: datetime) -> bool:
        """Return whether the time of all of them is over."""
        return bool(self.lowered) and all(one.time_is_up(at) for one in self.lowered)

    @property
    def until_healed(self) -> bool:
        """Whether all of them are to be restored as soon as racks are back."""
        return bool(self.lowered) and all(one.terms.until_healed for one in self.lowered)


def plan_topic(topic: str, lowerings: Iterable[Lowering], current: int | None) -> TopicPlan:
    """Return what restores a topic.

    Usually one lowering is open. Several are possible where operators could not see each other's records. They then
    form a chain from the current value to the first one's old value.

    Args:
        topic: its name.
        lowerings: its lowerings; closed ones are ignored.
        current: value of R on the topic; None if it has none.
    """
    left = [one for one in lowerings if one.open and one.terms.topic == topic]
    chain: list[Lowering] = []
    value, racks = current, 1
    while members := [one for one in left if one.terms.new == value]:
        first = members[0]
        chain += members
        left = [one for one in left if one not in members]
        value, racks = first.terms.old, first.terms.old_racks
    never_applied, restored, superseded = [], [], []
    for one in left:
        if one.state == "intended":
            never_applied.append(one)
        elif one.state == "restoring" and one.terms.old == current:
            restored.append(one)
        else:
            superseded.append(one)
    return TopicPlan(
        topic, tuple(chain), value if chain else None, racks, tuple(never_applied), tuple(restored), tuple(superseded)
    )


Status = Literal["active", "unfinished", "due", "waiting", "changed", "unknown", "abandoned", "superseded", "restored"]
# Statuses that require an operator to act.
NEEDS_ACTION: frozenset[Status] = frozenset({"unfinished", "due", "waiting", "changed"})


def status_of(lowering: Lowering, plan: TopicPlan | None, waits: Sequence[str], at: datetime) -> tuple[Status, str]:
    """Return the status of a lowering, and what it means, in a sentence.

    ``plan`` is None if the topic's value is unknown; ``waits`` is what keeps it from being restored now.
    """
    if lowering.state in CLOSED:
        last = [step for step in lowering.records if step.event == lowering.state][-1]
        return lowering.state, last.note or _CLOSED_MEANS[lowering.state]  # type: ignore[return-value]
    if plan is None:
        return "unknown", "the topic's current value is not known"
    if lowering in plan.never_applied:
        return "unfinished", "intended, but not applied: the command ended before the change"
    if lowering in plan.restored:
        return "unfinished", "restored, but the command ended before it recorded that"
    if lowering not in plan.lowered:
        return "changed", "the value is no longer what was set: another client changed it"
    if lowering.time_is_up(at) or lowering.terms.until_healed:
        if not waits:
            what = "its time is up" if lowering.time_is_up(at) else "racks are back"
            return "due", f"restoration missed: {what}, and nothing keeps R from being restored"
        if lowering.time_is_up(at):
            return "waiting", f"its time is up, but it waits: {'; '.join(waits)}"
    if lowering.state == "intended":
        return "unfinished", "applied, but the command ended before it recorded that"
    return "active", "lowered"


_CLOSED_MEANS = {
    "abandoned": "was not applied",
    "superseded": "closed without a restoration",
    "restored": "the old value is in force again",
}
