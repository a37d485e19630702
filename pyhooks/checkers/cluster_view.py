"""What a history tells of the cluster while it was driven: placement, leaders, ISRs, settings, faults.

Events:

* process ``isr-watch``, op ``look``, outcome ``ok``: ``data`` ``{racks, partitions}`` with ``racks`` broker id (as
  text) to rack, and ``partitions`` ``topic-number`` to ``{leader, isr, replicas}``. A look that got no answer is
  ``unknown``. The event is of the moment of the answer; ``asked_ns``, if told, is that of the question.
* op ``settings``: ``data`` ``{topic, step}`` and the topic's ``min.insync.replicas`` and ``min.insync.racks`` as
  numbers. Steps are ``made`` (the topic was made with that), ``seen`` (some broker says so, since ``asked_ns`` if
  told), ``begin`` (somebody asks for it now: from here on it may hold), ``settled`` (every broker concerned says so;
  with outcome ``unknown``: not all did, and it may or may not hold) and ``refused`` (what was asked for holds nowhere).
  See ``pyhooks.workload.requirement_changes``.
* process ``fault``: ``rack`` or ``data`` ``{broker}``, and ``data`` ``{step}`` of ``pyhooks.faults``; of a rack, if
  told, ``brokers``, its brokers' ids. A cut from some racks alone tells ``peers``, their names, and ``brokers_alone``:
  that neither clients nor controllers are at either end of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyhooks.checkers.record_view import Place
from pyhooks.history.event_log import Event
from pyhooks.history.events import LOOK_PROCESS, RACKS, REPLICAS
from pyhooks.kafka import gate
from pyhooks.kafka.gate import Requirement

INJECT, PROVED, HELD, HEAL, HEALED = "inject", "proved", "held", "heal", "healed"


@dataclass(frozen=True)
class Look:
    """A partition as the cluster told it at one moment.

    Attributes:
        at_ns: monotonic.
        leader: broker id, or -1.
        isr: broker ids, sorted.
        replicas: broker ids, in the order of the assignment; empty if nobody told.
        racks: broker id to rack, ``""`` for a broker without one, of the brokers that were known then.
        asked_ns: when the cluster was asked, if told.
        adding: replicas that a reassignment adds: those that were not there before, until all of them are in sync.
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
        """The state is of some moment from here until ``at_ns``."""
        return self.at_ns if self.asked_ns is None else self.asked_ns

    @property
    def isr_racks(self) -> tuple[str, ...]:
        """The racks of the ISR's members, as the gate counts them, sorted."""
        return tuple(sorted(gate.racks_of(self.isr, self.racks)))

    @property
    def state(self) -> tuple[Any, ...]:
        """What must stay the same for a state to be the same."""
        return (self.leader, self.isr, self.replicas, tuple(self.racks.get(member) for member in self.isr))


@dataclass(frozen=True)
class Fault:
    """One fault, on the monotonic clock; None where the history does not say.

    Attributes:
        op: its kind.
        rack: the rack under it, or None.
        broker: the broker under it if it is about one, else None.
        inject_ns: it began.
        heal_ns: the heal began.
        healed_ns: the heal was proved.
        proved_ns: it was proved to have taken hold.
        doubted: a heal of it was not proved at first, or was begun again.
        held_ns: it was proved to have lasted until then.
        brokers: the brokers of the rack, if the history tells them.
        peers: the racks from which alone it cuts its rack off; empty if it is no cut, or from all others.
        brokers_alone: such a cut parts brokers alone, so that clients and controllers see all of them.
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
        """Whether the broker is under it."""
        if self.broker is not None or self.brokers:
            return broker == self.broker or broker in self.brokers
        return racks.get(broker, "") == self.rack

    def over(self, at_ns: int, later_ns: int) -> bool:
        """Whether its heal was proved so long before a moment, or more."""
        return self.healed_ns is not None and self.healed_ns + later_ns < at_ns

    def parts(self, one: int, two: int, racks: Mapping[int, str]) -> bool:
        """Whether it is a cut between brokers alone, and parts these two."""
        ends = ((one, two), (two, one))
        return self.brokers_alone and any(
            self.hits(near, racks) and racks.get(far, "") in self.peers for near, far in ends
        )

    def clouds(self, look: Look) -> bool:
        """Whether a look at a state may tell what was, and not what is, while it is in force.

        So it is if something under it leads or is in sync. What a cut parts are brokers alone: then controllers see all
        of them, and what they know is so, but for a leader with members of the ISR that can't reach it any more.
        """
        if self.brokers_alone:
            return any(self.parts(look.leader, member, look.racks) for member in look.isr)
        return any(self.hits(broker, look.racks) for broker in {look.leader, *look.isr})

    def keeps(self, broker: int, look: Look) -> bool:
        """Whether it keeps a replica out of the ISR, or may do so."""
        return self.hits(broker, look.racks) or self.parts(look.leader, broker, look.racks)


def looks(events: Iterable[Event]) -> dict[Place, list[Look]]:
    """All looks at each partition, in the order of time."""
    found: defaultdict[Place, list[Look]] = defaultdict(list)
    known: dict[int, str] = {}
    for event in events:
        if (event.process, event.op, event.outcome) != (LOOK_PROCESS, "look", "ok"):
            continue
        # A broker that is away is in no answer, and its rack is what it was.
        known = known | {int(broker): str(rack or "") for broker, rack in event.data.get("racks", {}).items()}
        for name, told in event.data["partitions"].items():
            topic, _, number = str(name).rpartition("-")
            found[topic, int(number)].append(
                Look(
                    event.mono_ns,
                    int(told["leader"]),
                    tuple(sorted(map(int, told["isr"]))),
                    tuple(map(int, told.get("replicas", ()))),
                    known,
                    event.data.get("asked_ns"),
                )
            )
    return {place: _with_added(sorted(seen, key=lambda look: look.at_ns)) for place, seen in found.items()}


def _with_added(seen: Iterable[Look]) -> list[Look]:
    """Looks at a partition with the replicas that a reassignment adds, which looks themselves do not tell."""
    found: list[Look] = []
    known: frozenset[int] = frozenset()
    adding: frozenset[int] = frozenset()
    for look in seen:
        replicas = frozenset(look.replicas)
        if known and replicas:
            # Replicas are removed only when a reassignment ends.
            adding = (replicas - known) | (adding if replicas >= known else frozenset())
        if adding <= set(look.isr):
            adding = frozenset()
        known = replicas or known
        found.append(replace(look, adding=adding) if adding else look)
    return found


def unanswered(events: Iterable[Event]) -> list[int]:
    """When somebody looked and got no answer."""
    return [event.mono_ns for event in events if (event.op, event.outcome) == ("look", "unknown")]


def faults(events: Iterable[Event]) -> list[Fault]:
    """All faults that were injected, in the order of their beginnings."""
    found: list[Fault] = []
    open_at: dict[tuple[str, str | None, int | None], int] = {}
    for event in events:
        if event.process != "fault":
            continue
        broker = event.data.get("broker")
        name = (event.op, event.rack, None if broker is None else int(broker))
        step = event.data.get("step")
        if step == INJECT:
            open_at[name] = len(found)
            brokers = frozenset(map(int, event.data.get("brokers", ())))
            peers = tuple(map(str, event.data.get("peers", ())))
            alone = bool(peers) and bool(event.data.get("brokers_alone"))
            found.append(Fault(*name, event.mono_ns, None, None, brokers=brokers, peers=peers, brokers_alone=alone))
        elif name not in open_at:
            # of one that is over, or that was never injected
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
    """What was said of a topic's settings.

    Attributes:
        at_ns: monotonic.
        step: ``made``, ``seen``, ``begin``, ``settled``, ``refused``, or ``open`` for a change that did not settle as
            far as anybody knows.
        value: the settings.
        since_ns: of ``seen``, when the question was put.
    """

    at_ns: int
    step: str
    value: Requirement
    since_ns: int


@dataclass(frozen=True)
class Request:
    """A change of settings that somebody asked for.

    Attributes:
        begun: the word of its begin.
        ended: the word of its end, ``settled``, ``refused`` or ``open``, or None: there is none, or another one was
            begun before it.
    """

    begun: Word
    ended: Word | None = None


class Settings:
    """What topics required, and when.

    Args:
        events: a whole history.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        said: defaultdict[str, list[Word]] = defaultdict(list)
        for event in events:
            if event.op == "settings":
                value = Requirement(int(event.data[REPLICAS]), int(event.data[RACKS]))
                step = "open" if event.outcome == "unknown" else str(event.data["step"])
                since_ns = int(event.data.get("asked_ns", event.mono_ns))
                said[str(event.data["topic"])].append(Word(event.mono_ns, step, value, since_ns))
        # A word and all that may hold from it on, until the next one. Once it is told what was asked for, that holds:
        # what brokers say otherwise holds nowhere by right, see strays().
        self._told = {topic: _meanings(sorted(words, key=lambda one: one.at_ns)) for topic, words in said.items()}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of which something was said, sorted."""
        return tuple(sorted(self._told))

    def edges(self, topic: str) -> tuple[int, ...]:
        """The moments at which what ``possible`` tells can become something else."""
        told = self._told.get(topic, [])
        meanings = [None, *(meaning for _, meaning in told), None]
        return tuple(
            word.at_ns
            for at, (word, meaning) in enumerate(told, 1)
            if meanings[at - 1] != meaning or meanings[at + 1] != meaning
        )

    def unsettled_ns(self, topic: str) -> int | None:
        """When a change was begun of which nobody tells that it settled; None if there is none."""
        since_ns: int | None = None
        for request in self.requests(topic):
            end = request.ended.step if request.ended else ""
            if end == "settled":
                since_ns = None
            elif end != "refused" and since_ns is None:
                since_ns = request.begun.at_ns
        return since_ns

    def strays(self, topic: str, faults: Sequence[Fault], settle_ns: int) -> list[str]:
        """What brokers told that nobody had asked for, in words; what they require is not theirs to say.

        What held before is no stray for ``settle_ns`` after a change has ended, and as long after a fault that was in
        force then: a broker that missed the change may answer before it learns of it.

        Args:
            topic: which.
            faults: all of them.
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
        """All changes that somebody asked for, in the order of time."""
        found: list[Request] = []
        for word, _ in self._told.get(topic, ()):
            waiting = [at for at, one in enumerate(found) if one.ended is None and one.begun.value == word.value]
            if word.step == "begin" or (word.step == "open" and not waiting):
                found.append(Request(word, word if word.step == "open" else None))
            elif word.step not in ("seen", "made"):
                # what has settled has done so for all who asked for it
                for at in waiting if word.step == "settled" else waiting[-1:]:
                    found[at] = replace(found[at], ended=word)
        return tuple(found)

    def possible(self, topic: str, from_ns: int, to_ns: int) -> frozenset[Requirement]:
        """What a topic may have required within a stretch of time; none if the history does not tell.

        Before the first and after the last word of it, that word holds. Between two different ones, both may. From a
        ``begin`` on, both may hold until the change has settled or is refused; if nobody tells whether it has, until
        somebody sees the new value; and if somebody tells that it has not, for good.
        """
        told = self._told.get(topic, [])
        # What held before the first request is not known.
        if not told or told[0][0].step in ("begin", "open"):
            return frozenset()
        if told[0][0].step == "settled" and from_ns < told[0][0].at_ns:
            return frozenset()
        found = set(told[0][1]) if from_ns < told[0][0].at_ns else set()
        for index, (word, current) in enumerate(told):
            # from here to the next word
            after, then = told[index + 1] if index + 1 < len(told) else (None, frozenset())
            if word.at_ns <= to_ns and (after is None or after.at_ns >= from_ns):
                found |= current
                # What was seen may have changed at any time before it was seen otherwise, if it was asked for.
                stray = after is None or (after.step == "seen" and after.value not in then)
                found |= {after.value} if after is not None and word.step != "begin" and not stray else set()
        return frozenset(found)


@dataclass(frozen=True)
class _Meaning:
    """What words on a topic's settings come to.

    Attributes:
        holds: the settings that may hold.
        asked: those of the last request, until it has ended.
        opened: whether somebody tells that it did not settle.
        known: whether it is told what was asked for, so that what brokers say otherwise is a stray.
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
    """The words as if what is refused in one of them had never been asked for."""
    asked = [at for at in range(index) if words[at].step == "begin" and words[at].value == words[index].value]
    gone = {index, *asked[-1:]}
    return [replace(word, step="") if at in gone else word for at, word in enumerate(words)]


def _after(before: _Meaning, words: Sequence[Word], index: int) -> _Meaning:
    """What words come to with one more."""
    word, holds, asked = words[index], before.holds, before.asked
    if word.step == "begin":
        return _Meaning(holds | {word.value}, word.value, known=before.known)
    if word.step == "made":
        return _Meaning(frozenset({word.value}), known=True)
    if word.step == "open":
        return replace(before, holds=holds | {word.value}, opened=True)
    if word.step == "settled":
        # of a change that another one has overtaken by then
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
    # One broker has said it; whether all go by it is told by 'settled', if by anything.
    return replace(before, holds=holds | {word.value})


def _settles(rest: Sequence[Word], value: Requirement) -> bool:
    """Whether all brokers say later on that a change has settled, before the next one is begun."""
    until = next((at for at, word in enumerate(rest) if word.step == "begin"), len(rest))
    return any(word.step in ("settled", "open", "refused") and word.value == value for word in rest[:until])


def _outdated(words: Sequence[Word], index: int) -> bool:
    """Whether a change settled between the question and the answer, so that this may be an answer from before it."""
    seen = words[index]
    while index and words[index - 1].at_ns > seen.since_ns:
        index -= 1
        if words[index].step == "settled":
            return words[index].value != seen.value
    return False


def at(seen: Sequence[Look], moment_ns: int) -> Look | None:
    """The last look at or before a moment."""
    index = bisect_right(seen, moment_ns, key=lambda look: look.at_ns)
    return seen[index - 1] if index else None
