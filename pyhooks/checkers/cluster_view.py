"""View of the cluster in a history: placement, leaders, ISRs, settings, faults.

Reads ``ObservationDetails``, ``SettingsDetails`` and ``FaultDetails``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyhooks.checkers.record_view import PartitionName
from pyhooks.history.event_log import Event
from pyhooks.history.events import FaultDetails, ObservationDetails, ObservationFailureDetails, SettingsDetails
from pyhooks.kafka import gate
from pyhooks.kafka.gate import Requirement

INJECT, PROVED, HELD, HEAL, HEALED = "inject", "proved", "held", "heal", "healed"


@dataclass(frozen=True)
class RecordedPartition:
    """An observation: state of a partition as the cluster reported it at one moment."""

    at_ns: int  # monotonic time of the response
    leader: int  # broker id, or -1
    isr: tuple[int, ...]  # broker ids, sorted
    replicas: tuple[int, ...]  # broker ids, in the order of the assignment; empty if not reported
    # broker id to rack, ``""`` for a broker without a rack, of all brokers known by then
    racks: Mapping[int, str]
    asked_ns: int | None = None  # time of the request, if recorded
    # new replicas of a running reassignment, until all of them are in sync
    adding: frozenset[int] = frozenset()

    @property
    def since_ns(self) -> int:
        """Time of the request if recorded, else of the response: the state is from between this and ``at_ns``."""
        return self.at_ns if self.asked_ns is None else self.asked_ns

    @property
    def isr_racks(self) -> tuple[str, ...]:
        """Racks of the ISR's members, as the gate counts them, sorted."""
        return tuple(sorted(gate.racks_of(self.isr, self.racks)))

    @property
    def state(self) -> tuple[Any, ...]:
        """Fields that define a state: observations with equal fields show the same state."""
        return (self.leader, self.isr, self.replicas, tuple(self.racks.get(member) for member in self.isr))


@dataclass(frozen=True)
class RecordedFault:
    """One fault; see ``FaultDetails`` for its fields and steps. ``op`` is its kind.

    Times are those of the steps, monotonic; None if the history has no such event, or a proof failed.
    """

    op: str
    rack: str | None
    broker: int | None
    inject_ns: int
    heal_ns: int | None
    healed_ns: int | None
    proved_ns: int | None = None
    doubted: bool = False  # a heal was not proved at first, or was begun again
    held_ns: int | None = None
    brokers: frozenset[int] = frozenset()
    # racks from which a network partition separates its rack; empty for other faults, or if from all racks
    peers: tuple[str, ...] = ()
    brokers_alone: bool = False

    @property
    def name(self) -> str:
        """Kind of the fault, and affected rack or broker."""
        return f"{self.op} {self.rack}" if self.broker is None else f"{self.op} broker {self.broker}"

    def hits(self, broker: int, racks: Mapping[int, str]) -> bool:
        """Return whether the fault affects the broker."""
        if self.broker is not None or self.brokers:
            return broker == self.broker or broker in self.brokers
        return racks.get(broker, "") == self.rack

    def over(self, at_ns: int, later_ns: int) -> bool:
        """Return whether the heal was proved more than ``later_ns`` before a moment."""
        return self.healed_ns is not None and self.healed_ns + later_ns < at_ns

    def separates(self, broker: int, other: int, racks: Mapping[int, str]) -> bool:
        """Return whether the fault is a partition between brokers only, and separates these two."""
        directions = ((broker, other), (other, broker))
        return self.brokers_alone and any(
            self.hits(near, racks) and racks.get(far, "") in self.peers for near, far in directions
        )

    def may_outdate(self, observation: RecordedPartition) -> bool:
        """Return whether an observation made while the fault is in force may be outdated.

        It may be if the fault affects the leader or a member of the ISR. A partition between brokers only leaves
        controllers connected to all of them, so what they report is current, unless the leader can't reach a member of
        the ISR.
        """
        if self.brokers_alone:
            return any(self.separates(observation.leader, member, observation.racks) for member in observation.isr)
        return any(self.hits(broker, observation.racks) for broker in {observation.leader, *observation.isr})

    def keeps_out(self, broker: int, observation: RecordedPartition) -> bool:
        """Return whether the fault keeps a replica out of the ISR, or may do so."""
        return self.hits(broker, observation.racks) or self.separates(observation.leader, broker, observation.racks)


def observations(events: Iterable[Event]) -> dict[PartitionName, list[RecordedPartition]]:
    """Return all observations of each partition, in order of time."""
    by_partition: defaultdict[PartitionName, list[RecordedPartition]] = defaultdict(list)
    known: dict[int, str] = {}
    for event, observed in ObservationDetails.each(events):
        # Responses omit unavailable brokers, whose racks do not change meanwhile.
        known = known | {broker: rack or "" for broker, rack in observed.racks.items()}
        for name, state in observed.partitions.items():
            isr = tuple(sorted(state.isr))
            by_partition[PartitionName.parse(name)].append(
                RecordedPartition(event.mono_ns, state.leader, isr, state.replicas, known, observed.asked_ns)
            )
    return {
        partition: _with_added(sorted(observed, key=lambda observation: observation.at_ns))
        for partition, observed in by_partition.items()
    }


def _with_added(observed: Iterable[RecordedPartition]) -> list[RecordedPartition]:
    """Add to observations the replicas that a reassignment adds, which responses do not contain."""
    completed: list[RecordedPartition] = []
    known: frozenset[int] = frozenset()
    adding: frozenset[int] = frozenset()
    for observation in observed:
        replicas = frozenset(observation.replicas)
        if known and replicas:
            # Replicas are removed only when a reassignment ends.
            adding = (replicas - known) | (adding if replicas >= known else frozenset())
        if adding <= set(observation.isr):
            adding = frozenset()
        known = replicas or known
        completed.append(replace(observation, adding=adding) if adding else observation)
    return completed


def failed_observations(events: Iterable[Event]) -> list[int]:
    """Return the times of observations without a response."""
    return [event.mono_ns for event, _ in ObservationFailureDetails.each(events)]


def faults(events: Iterable[Event]) -> list[RecordedFault]:
    """Return all injected faults, in the order of injection."""
    recorded: list[RecordedFault] = []
    open_at: dict[tuple[str, str | None, int | None], int] = {}
    for event, details in FaultDetails.each(events):
        key = (event.op, event.rack, details.broker)
        step, at_ns = details.step, event.mono_ns
        if step == INJECT:
            open_at[key] = len(recorded)
            brokers, peers = frozenset(details.brokers or ()), details.peers or ()
            brokers_alone = bool(peers) and bool(details.brokers_alone)
            recorded.append(
                RecordedFault(*key, at_ns, None, None, brokers=brokers, peers=peers, brokers_alone=brokers_alone)
            )
            continue
        if key not in open_at:
            # A step of a fault that is over or was never injected.
            continue
        index = open_at[key]
        fault = recorded[index]
        if step == HEAL:
            recorded[index] = replace(
                fault, heal_ns=fault.heal_ns or at_ns, doubted=fault.doubted or fault.heal_ns is not None
            )
        elif step == HEALED and event.outcome != "ok":
            recorded[index] = replace(fault, doubted=True)
        elif step == HEALED:
            recorded[index] = replace(fault, healed_ns=at_ns)
            del open_at[key]
        elif step == PROVED and event.outcome == "ok":
            recorded[index] = replace(fault, proved_ns=at_ns)
        elif step == HELD and event.outcome == "ok":
            recorded[index] = replace(fault, held_ns=at_ns)
    return recorded


@dataclass(frozen=True)
class RecordedSettings:
    """One event about a topic's settings."""

    at_ns: int  # monotonic
    # ``made``, ``seen``, ``begin``, ``settled``, ``rejected``, or ``open`` for a change that is not known to have
    # settled
    step: str
    value: Requirement
    since_ns: int  # time of the request for a ``seen`` event, if recorded; else ``at_ns``


@dataclass(frozen=True)
class Request:
    """A requested change of settings."""

    begun: RecordedSettings  # the event that began it
    # the event that ended it, ``settled``, ``rejected`` or ``open``; None if there is none, or if it belongs to a later
    # request for the same settings
    ended: RecordedSettings | None = None


class RequirementTimeline:
    """Settings that topics required over time."""

    def __init__(self, events: Sequence[Event]) -> None:
        by_topic: defaultdict[str, list[RecordedSettings]] = defaultdict(list)
        for event, settings in SettingsDetails.each(events):
            value = Requirement(settings.min_replicas, settings.min_racks)
            step = "open" if event.outcome == "unknown" else settings.step
            since_ns = event.mono_ns if settings.asked_ns is None else settings.asked_ns
            by_topic[settings.topic].append(RecordedSettings(event.mono_ns, step, value, since_ns))
        # Each event with all settings that may apply from it until the next one. Once the requested settings are known,
        # they apply: brokers that report others are wrong, see strays().
        self._timeline = {
            topic: _with_possible(sorted(recorded, key=lambda settings: settings.at_ns))
            for topic, recorded in by_topic.items()
        }

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics with settings events, sorted."""
        return tuple(sorted(self._timeline))

    def edges(self, topic: str) -> tuple[int, ...]:
        """Return the moments at which the result of ``possible`` can change."""
        timeline = self._timeline.get(topic, [])
        values = [None, *(possible for _, possible in timeline), None]
        return tuple(
            settings.at_ns
            for index, (settings, possible) in enumerate(timeline, 1)
            if values[index - 1] != possible or values[index + 1] != possible
        )

    def unsettled_ns(self, topic: str) -> int | None:
        """Return when the first change began that is not known to have settled; None if there is none."""
        since_ns: int | None = None
        for request in self.requests(topic):
            end = request.ended.step if request.ended else ""
            if end == "settled":
                since_ns = None
            elif end != "rejected" and since_ns is None:
                since_ns = request.begun.at_ns
        return since_ns

    def strays(self, topic: str, faults: Sequence[RecordedFault], settle_ns: int) -> list[str]:
        """Describe settings that brokers report although they were not requested.

        Previous settings are accepted for ``settle_ns`` after the end of a change, and for as long after the heal of a
        fault that was in force at that end: a broker that missed the change may respond before it learns of it.

        Args:
            topic: name of the topic.
            faults: all faults of the history.
            settle_ns: how long a change may take to reach all brokers.
        """
        strays: list[str] = []
        former: set[Requirement] = set()
        changed_ns: int | None = None
        for settings, possible in self._timeline.get(topic, ()):
            value = settings.value
            if settings.step == "seen" and value not in possible:
                late = changed_ns is not None and (
                    settings.since_ns <= changed_ns + settle_ns
                    or any(
                        fault.inject_ns < changed_ns
                        and not fault.over(changed_ns, 0)
                        and not fault.over(settings.since_ns, settle_ns)
                        for fault in faults
                    )
                )
                if value not in former or not late:
                    requested = " or ".join(
                        f"M={requirement.replicas} and R={requirement.racks}"
                        for requirement in sorted(possible, key=str)
                    )
                    strays.append(f"{topic}: a broker reports M={value.replicas} and R={value.racks}, not {requested}")
            elif settings.step not in ("seen", "begin"):
                changed_ns = settings.at_ns
            former |= possible
        if len(strays) > 1:
            strays[1:] = [f"{topic}: and {len(strays) - 1} times more"]
        return strays

    def requests(self, topic: str) -> tuple[Request, ...]:
        """Return all requested changes, in order of time."""
        requests: list[Request] = []
        for settings, _ in self._timeline.get(topic, ()):
            waiting = [
                index
                for index, request in enumerate(requests)
                if request.ended is None and request.begun.value == settings.value
            ]
            if settings.step == "begin" or (settings.step == "open" and not waiting):
                requests.append(Request(settings, settings if settings.step == "open" else None))
            elif settings.step not in ("seen", "made"):
                # A settled change ends all requests for the same settings.
                for index in waiting if settings.step == "settled" else waiting[-1:]:
                    requests[index] = replace(requests[index], ended=settings)
        return tuple(requests)

    def possible(self, topic: str, from_ns: int, to_ns: int) -> frozenset[Requirement]:
        """Return the settings that may have applied to a topic within an interval; empty if unknown.

        Before the first and after the last event, the settings of that event apply. Between two different ones, both
        may. From a ``begin`` on, old and new settings may apply until the change has settled or is rejected. If its end
        is not recorded, they may until the new settings are seen; if it is recorded as not settled, indefinitely.
        """
        timeline = self._timeline.get(topic)
        if not timeline:
            return frozenset()
        first, possible = timeline[0]
        # Settings before the first request are unknown.
        if first.step in ("begin", "open") or (first.step == "settled" and from_ns < first.at_ns):
            return frozenset()
        values = set(possible) if from_ns < first.at_ns else set()
        for index, (settings, possible) in enumerate(timeline):
            # The interval from this event to the next.
            after, possible_after = timeline[index + 1] if index + 1 < len(timeline) else (None, frozenset())
            if settings.at_ns <= to_ns and (after is None or after.at_ns >= from_ns):
                values |= possible
                # Before other settings are seen, they may apply since any time after this event, if they were
                # requested.
                stray = after is None or (after.step == "seen" and after.value not in possible_after)
                values |= {after.value} if after is not None and settings.step != "begin" and not stray else set()
        return frozenset(values)


@dataclass(frozen=True)
class _PossibleSettings:
    """Settings that may apply according to the events so far."""

    values: frozenset[Requirement] = frozenset()  # settings that may apply
    requested: Requirement | None = None  # settings of the last request until it ends, else None
    unsettled: bool = False  # whether a change is recorded as not settled
    # whether the requested settings are known, so that others reported by brokers are strays
    known: bool = False


def _with_possible(recorded: Sequence[RecordedSettings]) -> list[tuple[RecordedSettings, frozenset[Requirement]]]:
    """Return each event with the settings that may apply from it on."""
    timeline: list[tuple[RecordedSettings, frozenset[Requirement]]] = []
    possible = _PossibleSettings()
    for index, settings in enumerate(recorded):
        if settings.step == "rejected":
            recorded = _without_request(recorded, index)
            possible = _PossibleSettings()
            for earlier in range(index + 1):
                possible = _after(possible, recorded, earlier)
        elif settings.step == "seen" and possible.requested is None and _outdated(recorded, index):
            continue
        else:
            possible = _after(possible, recorded, index)
        timeline.append((settings, possible.values))
    return timeline


def _without_request(recorded: Sequence[RecordedSettings], index: int) -> list[RecordedSettings]:
    """Return the events as if the request that the event at ``index`` rejects had never been made."""
    begins = [at for at in range(index) if recorded[at].step == "begin" and recorded[at].value == recorded[index].value]
    removed = {index, *begins[-1:]}
    return [replace(settings, step="") if at in removed else settings for at, settings in enumerate(recorded)]


def _after(before: _PossibleSettings, recorded: Sequence[RecordedSettings], index: int) -> _PossibleSettings:
    """Return the settings that may apply after one more event."""
    step, value, requested = recorded[index].step, recorded[index].value, before.requested
    if step == "begin":
        return _PossibleSettings(before.values | {value}, value, known=before.known)
    if step == "made":
        return _PossibleSettings(frozenset({value}), known=True)
    if step == "open":
        return replace(before, values=before.values | {value}, unsettled=True)
    if step == "settled":
        # A later request may have overtaken the settled change.
        return _PossibleSettings(
            frozenset({value} if requested is None else {value, requested}),
            None if requested == value else requested,
            before.unsettled,
            known=True,
        )
    if step != "seen" or (requested is None and _outdated(recorded, index)):
        return before
    if before.known and value not in before.values:
        return before
    if requested is None or (
        value == requested and not before.unsettled and not _end_is_recorded(recorded[index:], requested)
    ):
        return _PossibleSettings(frozenset({value}), None, before.unsettled, before.known)
    # One broker reports it; only 'settled' shows that all brokers apply it.
    return replace(before, values=before.values | {value})


def _end_is_recorded(rest: Sequence[RecordedSettings], value: Requirement) -> bool:
    """Return whether the end of a change (settled, open or rejected) is recorded before the next one begins."""
    until = next((index for index, settings in enumerate(rest) if settings.step == "begin"), len(rest))
    return any(
        settings.step in ("settled", "open", "rejected") and settings.value == value for settings in rest[:until]
    )


def _outdated(recorded: Sequence[RecordedSettings], index: int) -> bool:
    """Return whether other settings settled between request and response, so the response may predate them."""
    seen = recorded[index]
    while index and recorded[index - 1].at_ns > seen.since_ns:
        index -= 1
        if recorded[index].step == "settled":
            return recorded[index].value != seen.value
    return False


def observation_at(observed: Sequence[RecordedPartition], moment_ns: int) -> RecordedPartition | None:
    """Return the last observation at or before a moment; None if there is none."""
    index = bisect_right(observed, moment_ns, key=lambda observation: observation.at_ns)
    return observed[index - 1] if index else None


@dataclass(frozen=True)
class ClusterView:
    """Observations, settings and faults of a history."""

    observations: Mapping[PartitionName, Sequence[RecordedPartition]]
    settings: RequirementTimeline
    faults: Sequence[RecordedFault]

    @staticmethod
    def of(events: Sequence[Event]) -> ClusterView:
        """Return the view of a whole history."""
        return ClusterView(observations(events), RequirementTimeline(events), faults(events))

    def of_partition(self, partition: PartitionName) -> Sequence[RecordedPartition]:
        """Return the observations of a partition, in order of time."""
        return self.observations.get(partition, ())
