"""View of the cluster in a history: placement, leaders, ISRs, settings, faults.

Reads ``ObservationDetails``, ``SettingsDetails`` and ``FaultDetails``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyhooks.checkers.record_view import Place
from pyhooks.history.event_log import Event
from pyhooks.history.events import FaultDetails, ObservationDetails, ObservationFailureDetails, SettingsDetails
from pyhooks.kafka import gate
from pyhooks.kafka.gate import Requirement

INJECT, PROVED, HELD, HEAL, HEALED = "inject", "proved", "held", "heal", "healed"


@dataclass(frozen=True)
class RecordedPartition:
    """An observation: state of a partition as the cluster reported it at one moment.

    Attributes:
        at_ns: monotonic time of the response.
        leader: broker id, or -1.
        isr: broker ids, sorted.
        replicas: broker ids, in the order of the assignment; empty if not reported.
        racks: broker id to rack, ``""`` for a broker without a rack, of all brokers known by then.
        asked_ns: time of the request, if recorded.
        adding: new replicas of a running reassignment, until all of them are in sync.
    """

    at_ns: int
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    racks: Mapping[int, str]
    asked_ns: int | None = None
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
    """One fault. Times are monotonic; None if the history has no such event.

    Attributes:
        op: kind of the fault.
        rack: affected rack, or None.
        broker: affected broker if the fault is of a single broker, else None.
        inject_ns: the injection began.
        heal_ns: the heal began.
        healed_ns: the heal was proved.
        proved_ns: the fault was proved to have taken hold.
        doubted: a heal was not proved at first, or was begun again.
        held_ns: the fault was proved to have lasted until then.
        brokers: brokers of the rack, if recorded.
        peers: racks from which a network partition separates its rack; empty for other faults, or if from all racks.
        brokers_alone: the network partition separates only brokers, so clients and controllers reach all of them.
    """

    op: str
    rack: str | None
    broker: int | None
    inject_ns: int
    heal_ns: int | None
    healed_ns: int | None
    proved_ns: int | None = None
    doubted: bool = False
    held_ns: int | None = None
    brokers: frozenset[int] = frozenset()
    peers: tuple[str, ...] = ()
    brokers_alone: bool = False

    def hits(self, broker: int, racks: Mapping[int, str]) -> bool:
        """Return whether the fault affects the broker."""
        if self.broker is not None or self.brokers:
            return broker == self.broker or broker in self.brokers
        return racks.get(broker, "") == self.rack

    def over(self, at_ns: int, later_ns: int) -> bool:
        """Return whether the heal was proved more than ``later_ns`` before a moment."""
        return self.healed_ns is not None and self.healed_ns + later_ns < at_ns

    def parts(self, one: int, two: int, racks: Mapping[int, str]) -> bool:
        """Return whether the fault is a partition between brokers only, and separates these two."""
        ends = ((one, two), (two, one))
        return self.brokers_alone and any(
            self.hits(near, racks) and racks.get(far, "") in self.peers for near, far in ends
        )

    def clouds(self, observation: RecordedPartition) -> bool:
        """Return whether an observation made while the fault is in force may be outdated.

        It may be if the fault affects the leader or a member of the ISR. A partition between brokers only leaves
        controllers connected to all of them, so what they report is current, unless the leader can't reach a member of
        the ISR.
        """
        if self.brokers_alone:
            return any(self.parts(observation.leader, member, observation.racks) for member in observation.isr)
        return any(self.hits(broker, observation.racks) for broker in {observation.leader, *observation.isr})

    def keeps(self, broker: int, observation: RecordedPartition) -> bool:
        """Return whether the fault keeps a replica out of the ISR, or may do so."""
        return self.hits(broker, observation.racks) or self.parts(observation.leader, broker, observation.racks)


def observations(events: Iterable[Event]) -> dict[Place, list[RecordedPartition]]:
    """Return all observations of each partition, in order of time."""
    found: defaultdict[Place, list[RecordedPartition]] = defaultdict(list)
    known: dict[int, str] = {}
    for event, observed in ObservationDetails.each(events):
        # Responses omit unavailable brokers, whose racks do not change meanwhile.
        known = known | {broker: rack or "" for broker, rack in observed.racks.items()}
        for name, state in observed.partitions.items():
            topic, _, number = name.rpartition("-")
            isr = tuple(sorted(state.isr))
            found[topic, int(number)].append(
                RecordedPartition(event.mono_ns, state.leader, isr, state.replicas, known, observed.asked_ns)
            )
    return {
        place: _with_added(sorted(seen, key=lambda observation: observation.at_ns)) for place, seen in found.items()
    }


def _with_added(seen: Iterable[RecordedPartition]) -> list[RecordedPartition]:
    """Add to observations the replicas that a reassignment adds, which responses do not contain."""
    found: list[RecordedPartition] = []
    known: frozenset[int] = frozenset()
    adding: frozenset[int] = frozenset()
    for observation in seen:
        replicas = frozenset(observation.replicas)
        if known and replicas:
            # Replicas are removed only when a reassignment ends.
            adding = (replicas - known) | (adding if replicas >= known else frozenset())
        if adding <= set(observation.isr):
            adding = frozenset()
        known = replicas or known
        found.append(replace(observation, adding=adding) if adding else observation)
    return found


def unanswered(events: Iterable[Event]) -> list[int]:
    """Return the times of observations without a response."""
    return [event.mono_ns for event, _ in ObservationFailureDetails.each(events)]


def faults(events: Iterable[Event]) -> list[RecordedFault]:
    """Return all injected faults, in the order of injection."""
    found: list[RecordedFault] = []
    open_at: dict[tuple[str, str | None, int | None], int] = {}
    for event, details in FaultDetails.each(events):
        name = (event.op, event.rack, details.broker)
        step = details.step
        if step == INJECT:
            open_at[name] = len(found)
            brokers, peers = frozenset(details.brokers or ()), details.peers or ()
            alone = bool(peers) and bool(details.brokers_alone)
            found.append(
                RecordedFault(*name, event.mono_ns, None, None, brokers=brokers, peers=peers, brokers_alone=alone)
            )
        elif name not in open_at:
            # A step of a fault that is over or was never injected.
            continue
        elif step == HEAL:
            one = found[open_at[name]]
            again = one.heal_ns is not None
            found[open_at[name]] = replace(one, heal_ns=one.heal_ns or event.mono_ns, doubted=one.doubted or again)
        elif step == PROVED and event.outcome == "ok":
            found[open_at[name]] = replace(found[open_at[name]], proved_ns=event.mono_ns)
        elif step == HELD and event.outcome == "ok":
            found[open_at[name]] = replace(found[open_at[name]], held_ns=event.mono_ns)
        elif step == HEALED and event.outcome == "ok":
            found[open_at[name]] = replace(found[open_at[name]], healed_ns=event.mono_ns)
            del open_at[name]
        elif step == HEALED:
            found[open_at[name]] = replace(found[open_at[name]], doubted=True)
    return found


@dataclass(frozen=True)
class Word:
    """One event about a topic's settings.

    Attributes:
        at_ns: monotonic.
        step: ``made``, ``seen``, ``begin``, ``settled``, ``refused``, or ``open`` for a change that is not known to
            have settled.
        value: the settings.
        since_ns: time of the request for a ``seen`` event, if recorded; else ``at_ns``.
    """

    at_ns: int
    step: str
    value: Requirement
    since_ns: int


@dataclass(frozen=True)
class Request:
    """A requested change of settings.

    Attributes:
        begun: the event that began it.
        ended: the event that ended it, ``settled``, ``refused`` or ``open``; None if there is none, or if it belongs to
            a later request for the same settings.
    """

    begun: Word
    ended: Word | None = None


class RequirementTimeline:
    """Settings that topics required over time.

    Args:
        events: a whole history.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        said: defaultdict[str, list[Word]] = defaultdict(list)
        for event, settings in SettingsDetails.each(events):
            value = Requirement(settings.min_replicas, settings.min_racks)
            step = "open" if event.outcome == "unknown" else settings.step
            since_ns = event.mono_ns if settings.asked_ns is None else settings.asked_ns
            said[settings.topic].append(Word(event.mono_ns, step, value, since_ns))
        # Each event with all settings that may apply from it until the next one. Once the requested settings are known,
        # they apply: brokers that report others are wrong, see strays().
        self._told = {topic: _meanings(sorted(words, key=lambda one: one.at_ns)) for topic, words in said.items()}

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics with settings events, sorted."""
        return tuple(sorted(self._told))

    def edges(self, topic: str) -> tuple[int, ...]:
        """Return the moments at which the result of ``possible`` can change."""
        told = self._told.get(topic, [])
        meanings = [None, *(meaning for _, meaning in told), None]
        return tuple(
            word.at_ns
            for at, (word, meaning) in enumerate(told, 1)
            if meanings[at - 1] != meaning or meanings[at + 1] != meaning
        )

    def unsettled_ns(self, topic: str) -> int | None:
        """Return when the first change began that is not known to have settled; None if there is none."""
        since_ns: int | None = None
        for request in self.requests(topic):
            end = request.ended.step if request.ended else ""
            if end == "settled":
                since_ns = None
            elif end != "refused" and since_ns is None:
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
        told = self._told.get(topic, [])
        found: list[str] = []
        former: set[Requirement] = set()
        changed_ns: int | None = None
        for word, holds in told:
            if word.step == "seen" and word.value not in holds:
                late = changed_ns is not None and (
                    word.since_ns <= changed_ns + settle_ns
                    or any(one.inject_ns < changed_ns and not one.over(changed_ns, 0)
                           and not one.over(word.since_ns, settle_ns) for one in faults)
                )  # fmt: skip
                if word.value not in former or not late:
                    asked = " or ".join(f"M={one.replicas} and R={one.racks}" for one in sorted(holds, key=str))
                    found.append(f"{topic}: a broker tells M={word.value.replicas} and R={word.value.racks}, {asked}"
                                 f" was asked for")  # fmt: skip
            elif word.step not in ("seen", "begin"):
                changed_ns = word.at_ns
            former |= holds
        if len(found) > 1:
            found[1:] = [f"{topic}: and {len(found) - 1} times more"]
        return found

    def requests(self, topic: str) -> tuple[Request, ...]:
        """Return all requested changes, in order of time."""
        found: list[Request] = []
        for word, _ in self._told.get(topic, ()):
            waiting = [at for at, one in enumerate(found) if one.ended is None and one.begun.value == word.value]
            if word.step == "begin" or (word.step == "open" and not waiting):
                found.append(Request(word, word if word.step == "open" else None))
            elif word.step not in ("seen", "made"):
                # A settled change ends all requests for the same settings.
                for at in waiting if word.step == "settled" else waiting[-1:]:
                    found[at] = replace(found[at], ended=word)
        return tuple(found)

    def possible(self, topic: str, from_ns: int, to_ns: int) -> frozenset[Requirement]:
        """Return the settings that may have applied to a topic within an interval; empty if unknown.

        Before the first and after the last event, the settings of that event apply. Between two different ones, both
        may. From a ``begin`` on, old and new settings may apply until the change has settled or is refused. If its end
        is not recorded, they may until the new settings are seen; if it is recorded as not settled, indefinitely.
        """
        told = self._told.get(topic, [])
        # Settings before the first request are unknown.
        if not told or told[0][0].step in ("begin", "open"):
            return frozenset()
        if told[0][0].step == "settled" and from_ns < told[0][0].at_ns:
            return frozenset()
        found = set(told[0][1]) if from_ns < told[0][0].at_ns else set()
        for index, (word, current) in enumerate(told):
            # The interval from this event to the next.
            after, then = told[index + 1] if index + 1 < len(told) else (None, frozenset())
            if word.at_ns <= to_ns and (after is None or after.at_ns >= from_ns):
                found |= current
                # Before other settings are seen, they may apply since any time after this event, if they were
                # requested.
                stray = after is None or (after.step == "seen" and after.value not in then)
                found |= {after.value} if after is not None and word.step != "begin" and not stray else set()
        return frozenset(found)


@dataclass(frozen=True)
class _Meaning:
    """Settings that may apply according to the events so far.

    Attributes:
        holds: settings that may apply.
        asked: settings of the last request until it ends, else None.
        opened: whether a change is recorded as not settled.
        known: whether the requested settings are known, so that others reported by brokers are strays.
    """

    holds: frozenset[Requirement] = frozenset()
    asked: Requirement | None = None
    opened: bool = False
    known: bool = False


def _meanings(words: Sequence[Word]) -> list[tuple[Word, frozenset[Requirement]]]:
    found: list[tuple[Word, frozenset[Requirement]]] = []
    meaning = _Meaning()
    for index, word in enumerate(words):
        if word.step == "refused":
            words = _without(words, index)
            meaning = _Meaning()
            for at in range(index + 1):
                meaning = _after(meaning, words, at)
        elif word.step == "seen" and meaning.asked is None and _outdated(words, index):
            continue
        else:
            meaning = _after(meaning, words, index)
        found.append((word, meaning.holds))
    return found


def _without(words: Sequence[Word], index: int) -> list[Word]:
    """Return the events as if the request that the event at ``index`` refuses had never been made."""
    asked = [at for at in range(index) if words[at].step == "begin" and words[at].value == words[index].value]
    gone = {index, *asked[-1:]}
    return [replace(word, step="") if at in gone else word for at, word in enumerate(words)]


def _after(before: _Meaning, words: Sequence[Word], index: int) -> _Meaning:
    """Return what may apply after one more event."""
    word, holds, asked = words[index], before.holds, before.asked
    if word.step == "begin":
        return _Meaning(holds | {word.value}, word.value, known=before.known)
    if word.step == "made":
        return _Meaning(frozenset({word.value}), known=True)
    if word.step == "open":
        return replace(before, holds=holds | {word.value}, opened=True)
    if word.step == "settled":
        # A later request may have overtaken the settled change.
        return _Meaning(
            frozenset({word.value} if asked is None else {word.value, asked}),
            None if asked == word.value else asked,
            before.opened,
            known=True,
        )
    if word.step != "seen" or (asked is None and _outdated(words, index)):
        return before
    if before.known and word.value not in holds:
        return before
    if asked is None or (word.value == asked and not before.opened and not _settles(words[index:], asked)):
        return _Meaning(frozenset({word.value}), None, before.opened, before.known)
    # One broker reports it; only 'settled' shows that all brokers apply it.
    return replace(before, holds=holds | {word.value})


def _settles(rest: Sequence[Word], value: Requirement) -> bool:
    """Return whether the end of a change (settled, open or refused) is recorded before the next one begins."""
    until = next((at for at, word in enumerate(rest) if word.step == "begin"), len(rest))
    return any(word.step in ("settled", "open", "refused") and word.value == value for word in rest[:until])


def _outdated(words: Sequence[Word], index: int) -> bool:
    """Return whether other settings settled between request and response, so the response may predate them."""
    seen = words[index]
    while index and words[index - 1].at_ns > seen.since_ns:
        index -= 1
        if words[index].step == "settled":
            return words[index].value != seen.value
    return False


def at(seen: Sequence[RecordedPartition], moment_ns: int) -> RecordedPartition | None:
    """Return the last observation at or before a moment; None if there is none."""
    index = bisect_right(seen, moment_ns, key=lambda observation: observation.at_ns)
    return seen[index - 1] if index else None
