"""What a history tells of the cluster while it was driven: placement, leaders, ISRs, settings, faults.

Events:

* process ``isr-watch``, op ``look``, outcome ``ok``: ``data`` ``{racks, partitions}`` with ``racks`` broker id (as
  text) to rack, and ``partitions`` ``topic-number`` to ``{leader, isr, replicas}``. A look that got no answer is
  ``unknown``.
* op ``settings``: ``data`` ``{topic, step}`` and the topic's ``min.insync.replicas`` and ``min.insync.racks`` as
  numbers. Steps are ``seen`` (the cluster says so at this moment), ``begin`` (somebody asks for it now: from here on it
  may hold) and ``settled`` (it holds everywhere).
* process ``fault``: ``rack`` or ``data`` ``{broker}``, and ``data`` ``{step}`` of ``pyhooks.fault``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyhooks import gate
from pyhooks.checker.records import Place
from pyhooks.history import Event

LOOK_PROCESS = "isr-watch"
REPLICAS, RACKS = "min.insync.replicas", "min.insync.racks"
INJECT, PROVED, HEAL, HEALED = "inject", "proved", "heal", "healed"


@dataclass(frozen=True)
class Look:
    """A partition as the cluster told it at one moment.

    Attributes:
        at_ns: monotonic.
        leader: broker id, or -1.
        isr: broker ids, sorted.
        replicas: broker ids, in the order of the assignment; empty if nobody told.
        racks: broker id to rack, ``""`` for a broker without one, of the brokers that were known then.
    """

    at_ns: int
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    racks: Mapping[int, str]

    @property
    def isr_racks(self) -> tuple[str, ...]:
        """The racks of the ISR's members, as the gate counts them, sorted."""
        return tuple(sorted(gate.racks_of(self.isr, self.racks)))

    @property
    def state(self) -> tuple[Any, ...]:
        """What must stay the same for a state to be the same."""
        return (self.leader, self.isr, self.replicas)


@dataclass(frozen=True)
class Requirement:
    """What a topic asks of an ISR.

    Attributes:
        replicas: min.insync.replicas.
        racks: min.insync.racks.
    """

    replicas: int
    racks: int

    def effective(self, replication: int) -> Requirement:
        """With both bounded by the replication factor, as brokers apply them."""
        return Requirement(gate.capped(self.replicas, replication), gate.capped(self.racks, replication))

    def met_by(self, look: Look) -> bool:
        """Whether a partition in this state acknowledges."""
        told = gate.ask(
            look.isr, look.racks, min_replicas=self.replicas, min_racks=self.racks, replicas=len(look.replicas)
        )
        return look.leader >= 0 and told.passes


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
    """

    op: str
    rack: str | None
    broker: int | None
    inject_ns: int
    heal_ns: int | None
    healed_ns: int | None
    proved_ns: int | None = None

    def hits(self, broker: int, racks: Mapping[int, str]) -> bool:
        """Whether the broker is under it."""
        return broker == self.broker if self.broker is not None else racks.get(broker, "") == self.rack


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
                )
            )
    return {place: sorted(seen, key=lambda look: look.at_ns) for place, seen in found.items()}


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
            found.append(Fault(*name, event.mono_ns, None, None))
        elif step == HEAL and name in open_at:
            found[open_at[name]] = replace(found[open_at[name]], heal_ns=event.mono_ns)
        elif step == PROVED and event.outcome == "ok" and name in open_at:
            found[open_at[name]] = replace(found[open_at[name]], proved_ns=event.mono_ns)
        elif step == HEALED and event.outcome == "ok" and name in open_at:
            found[open_at[name]] = replace(found[open_at[name]], healed_ns=event.mono_ns)
    return found


class Settings:
    """What topics required, and when.

    Args:
        events: a whole history.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._told: defaultdict[str, list[tuple[int, str, Requirement]]] = defaultdict(list)
        for event in events:
            if event.op == "settings":
                value = Requirement(int(event.data[REPLICAS]), int(event.data[RACKS]))
                self._told[str(event.data["topic"])].append((event.mono_ns, str(event.data["step"]), value))
        for told in self._told.values():
            told.sort(key=lambda one: one[0])

    def possible(self, topic: str, from_ns: int, to_ns: int) -> frozenset[Requirement]:
        """What a topic may have required within a stretch of time; none if the history does not tell.

        Before the first and after the last word of it, that word holds. Between two different ones, both may.
        """
        told = self._told.get(topic, [])
        # What held before the first request is not known.
        if not told or told[0][1] == "begin":
            return frozenset()
        current = frozenset({told[0][2]})
        found = set(current) if from_ns < told[0][0] else set()
        for index, (at_ns, step, value) in enumerate(told):
            # from here to the next word
            after = told[index + 1] if index + 1 < len(told) else None
            current = current | {value} if step == "begin" else frozenset({value})
            if at_ns <= to_ns and (after is None or after[0] >= from_ns):
                found |= current
                # What was seen may have changed at any time before it was seen otherwise.
                found |= {after[2]} if after is not None and step != "begin" else set()
        return frozenset(found)


def at(seen: Sequence[Look], moment_ns: int) -> Look | None:
    """The last look at or before a moment."""
    index = bisect_right(seen, moment_ns, key=lambda look: look.at_ns)
    return seen[index - 1] if index else None
