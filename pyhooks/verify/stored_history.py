"""Recorded history with the views that violations need, and helpers to define them and to change its events."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS
from pyhooks.verify.stored_logs import Log, LogName, stored_logs

NOT_ENOUGH_RACKS = f"{ERRORS}.NotEnoughRacksException"
NOT_ENOUGH_REPLICAS = f"{ERRORS}.NotEnoughReplicasException"
SETTLE_NS = round(SETTLE_S * NS)


class NotApplicableError(Exception):
    """The history has nothing to which a violation applies."""


class StoredHistory:
    """A recorded history, with what violations need of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = tuple(events)
        self.records = Records(self.events)
        self.cluster = ClusterView.of(self.events)
        self.logs = stored_logs(self.events)

    @cached_property
    def attempts(self) -> dict[tuple[str, str], Attempt]:
        """Attempts by topic and key."""
        return {(attempt.topic, attempt.key): attempt for attempt in self.records.attempts}

    @cached_property
    def finals(self) -> dict[PartitionName, Log]:
        """The final read_uncommitted read of each partition that was read completely."""
        found: dict[PartitionName, Log] = {}
        for topic in sorted({attempt.topic for attempt in self.records.attempts}):
            reads, gaps = self.records.final(topic, UNCOMMITTED)
            for read in () if gaps else reads.values():
                found[read.partition] = self.logs[LogName(read.name, read.partition, UNCOMMITTED)]
        return found

    @cached_property
    def acked(self) -> list[Attempt]:
        """Records acknowledged by all in-sync replicas that the final read has once, at the acknowledged offset."""
        return [
            attempt
            for attempt in self.records.attempts
            if attempt.outcome == "ok"
            and self.records.acks_all(attempt)
            and (partition := attempt.partition_name) in self.finals
            and attempt.offset is not None
            and (record := self.finals[partition].get(attempt.offset)) is not None
            and record.key == attempt.key
            and self.count[partition, attempt.key] == 1
        ]

    @cached_property
    def count(self) -> dict[tuple[PartitionName, str | None], int]:
        """How often the final read has a key."""
        found: dict[tuple[PartitionName, str | None], int] = {}
        for partition, log in self.finals.items():
            for record in log.values():
                found[partition, record.key] = found.get((partition, record.key), 0) + 1
        return found

    @cached_property
    def windows(self) -> dict[PartitionName, list[SettledWindow]]:
        """Settled intervals of each partition."""
        return {partition: list(windows(partition, self.cluster, SETTLE_NS)) for partition in self.cluster.observations}

    def judged(self, attempt: Attempt, *, enough: bool) -> bool:
        """Return whether the checker ``progress`` judges an attempt in an interval with a (in)sufficient ISR."""
        partition = attempt.partition_name
        return partition is not None and any(
            window.enough is enough and window.judges(attempt) and not window.ahead.excuse(attempt)
            for window in self.windows.get(partition, ())
        )

    def first_only(self, attempt: Attempt) -> bool:
        """Return whether the attempt's client sends each record once."""
        run = self.records.runs.get((attempt.run or "", attempt.topic))
        return run is not None and run.first_only

    def wiped(self) -> bool:
        """Return whether a fault destroyed disks."""
        return any(fault.op.startswith("wipe") for fault in self.cluster.faults)

    def edit(self, where: Callable[[Event], bool], *, outcome: Any = ..., **data: Any) -> list[Event]:
        """Return the events with other data in the matching ones; a field set to None is removed."""
        return [changed(event, outcome=outcome, **data) if where(event) else event for event in self.events]


def changed(event: Event, *, outcome: Any = ..., **data: Any) -> Event:
    """Return an event with other data, and perhaps another outcome; a field set to None is removed."""
    fields = {name: value for name, value in {**event.data, **data}.items() if value is not None}
    return replace(event, outcome=event.outcome if outcome is ... else outcome, data=fields)


def is_result(attempt: Attempt) -> Callable[[Event], bool]:
    """Return a predicate of the event that has an attempt's result."""
    return lambda event: (
        event.op == ev.PRODUCE and event.data["key"] == attempt.key and event.data["topic"] == attempt.topic
    )


def draw(choice: random.Random, candidates: Sequence[Any]) -> Any:
    """Return a random candidate.

    Raises:
        NotApplicableError: there is none.
    """
    if not candidates:
        raise NotApplicableError
    return choice.choice(candidates)


def edit_one(history: StoredHistory, victim: Event, **data: Any) -> list[Event]:
    """Return the history with other data in one event."""
    return history.edit(lambda event: event is victim, **data)


def client_names(history: StoredHistory) -> dict[str, str | None]:
    """Return the kind of client of each producer run, None if it was not recorded."""
    return {intend.run: intend.client for _, intend in ev.IntendDetails.each(history.events) if intend.run is not None}


@dataclass(frozen=True)
class Violation:
    """A violation, by name."""

    name: str
    about: str  # what it changes, for output
    # checkers whose claim it contradicts: where they judge the history, none of them may return true
    breaks: frozenset[str]
    plant: Callable[[StoredHistory, random.Random], list[Event] | None]
    anomaly: str = ""  # Jepsen's name of the anomaly, if it has one


def violation(
    breaks: str, anomaly: str = ""
) -> Callable[[Callable[[StoredHistory, random.Random], list[Event]]], Violation]:
    """Make a violation of a function from a history and a random generator to the changed events.

    Its name and docstring are those of the violation. It may raise NotApplicableError; the violation then returns None.
    """

    def decorate(function: Callable[[StoredHistory, random.Random], list[Event]]) -> Violation:
        def plant(history: StoredHistory, choice: random.Random) -> list[Event] | None:
            try:
                return function(history, choice)
            except NotApplicableError:
                return None

        about = str(function.__doc__).removesuffix(".")
        name = function.__name__.replace("_", "-")
        return Violation(name, about[0].lower() + about[1:], frozenset(breaks.split()), plant, anomaly)

    return decorate
