"""Timeline of a test from its history: faults, acknowledgements and rejections per second, and racks of the ISRs.

Unknown and incomplete events are skipped: a picture explains, and does not judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyhooks.checkers.cluster_view import faults as faults_of
from pyhooks.history.event_log import Event
from pyhooks.history.events import FaultDetails, ObservationDetails, ProduceDetails, SettingsDetails

NS = 1_000_000_000
# Topics that are shown individually; all others are summed.
TOPICS = 8
REJECTED = "rejected"
NAMELESS = "no rack"
# raised by incomplete events
INCOMPLETE = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class FaultSpan:
    """A fault, in seconds since the start.

    Attributes:
        to_s: when it was healed, or the end of the history.
    """

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True)
class IsrState:
    """ISR and leader of a partition from a point in time.

    Attributes:
        racks: of its ISR, sorted.
        leader: rack of its leader; empty without one.
    """

    at_s: float
    racks: tuple[str, ...]
    leader: str


@dataclass
class TopicTimeline:
    """Results of a topic's records, and states of its partitions.

    Attributes:
        acked: second to number of acknowledgements.
        rejected: kind of error to second to number of errors.
        partitions: number to its states, each different from the previous one.
        changes: of its settings: second, and the new values or a rejected change.
    """

    name: str
    acked: Counter[int] = field(default_factory=Counter)
    rejected: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    partitions: dict[int, list[IsrState]] = field(default_factory=lambda: defaultdict(list))
    changes: list[tuple[float, str]] = field(default_factory=list)
    requirement: str = ""

    @property
    def weight(self) -> int:
        """Number of results."""
        return self.acked.total() + sum(seconds.total() for seconds in self.rejected.values())


@dataclass(frozen=True)
class Timeline:
    """A test over time.

    Attributes:
        topics: the busiest ones by name, followed by the sum of all others if there are any.
    """

    length_s: float
    faults: tuple[FaultSpan, ...]
    topics: tuple[TopicTimeline, ...]
    observed_s: float


class _TimelineBuilder:
    """Collector that builds a timeline from events."""

    def __init__(self) -> None:
        self.start_ns: int | None = None
        self.topics: dict[str, TopicTimeline] = {}
        self.faults: list[Event] = []
        self.racks: dict[int, str] = {}
        self.last_s = self.observed_s = 0.0
        # Last observed leader and ISR by partition, so that unchanged observations cost nothing.
        self.last: dict[str, tuple[Any, ...]] = {}
        # Kept until the end, because events of other processes are not in the order of time.
        self.changes: list[tuple[Event, SettingsDetails]] = []
        self.values: dict[str, tuple[Any, Any]] = {}
        self.pending: dict[str, tuple[Any, Any] | None] = {}

    def seconds(self, at_ns: int) -> float:
        return max(0.0, (at_ns - (self.start_ns or 0)) / NS)

    def topic(self, name: str) -> TopicTimeline:
        return self.topics.setdefault(name, TopicTimeline(name))

    def add(self, event: Event) -> None:
        # An incomplete line has no time.
        if event.mono_ns <= 0:
            return
        if self.start_ns is None:
            self.start_ns = event.mono_ns
        at_s = self.seconds(event.mono_ns)
        if (produced := ProduceDetails.of(event)) is not None:
            topic = self.topic(produced.topic)
            if event.outcome == "ok":
                topic.acked[int(at_s)] += 1
            else:
                topic.rejected[kind_of(produced.exception)][int(at_s)] += 1
        elif (observed := ObservationDetails.of(event)) is not None:
            self._add_observation(observed, at_s)
            self.observed_s = max(self.observed_s, at_s)
        elif FaultDetails.describes(event):
            self.faults.append(event)
        elif (settings := SettingsDetails.of(event)) is not None:
            self.changes.append((event, settings))
        elif event.op != "phase":
            return
        self.last_s = max(self.last_s, at_s)

    def _add_observation(self, observed: ObservationDetails, at_s: float) -> None:
        self.racks |= {broker: rack or NAMELESS for broker, rack in observed.racks.items()}
        for name, state in observed.partitions.items():
            current = (state.leader, state.isr)
            if self.last.get(name) == current:
                continue
            self.last[name] = current
            topic, _, number = name.rpartition("-")
            leader = self.racks.get(state.leader, NAMELESS) if state.leader >= 0 else ""
            racks = tuple(sorted({self.racks.get(broker, NAMELESS) for broker in state.isr}))
            self.topic(topic).partitions[int(number)].append(IsrState(at_s, racks, leader))

    def apply_settings(self, event: Event, details: SettingsDetails) -> None:
        """Apply a settings event of a topic; these events must be in the order of time."""
        name, value = details.topic, (details.min_replicas, details.min_racks)
        topic, step, before = self.topic(name), details.step, self.values.get(name)
        topic.requirement = topic.requirement or f"M={value[0]}, R={value[1]}"
        if step == "rejected":
            # The change that started last did not happen.
            previous = self.pending.pop(name, None)
            if previous is not None and topic.changes:
                at_s, text = topic.changes[-1]
                topic.changes[-1] = (at_s, f"{text} {REJECTED}")
                self.values[name] = previous
            return
        begins = step == "begin"
        if value == before:
            self.pending.pop(name, None)
        elif begins or name not in self.pending:
            # A change of a cluster default has no start event. A value observed after a start may be an old one.
            if begins or name in self.values:
                named = [
                    f"{letter}={new}" for letter, new, old in zip("MR", value, before or (), strict=False) if new != old
                ]
                topic.changes.append((self.seconds(event.mono_ns), ", ".join(named) or topic.requirement))
            self.values[name] = value
        if begins:
            self.pending[name] = before


def read(events: Iterable[Event], topics: int = TOPICS) -> Timeline:
    """Build the timeline of a history."""
    builder = _TimelineBuilder()
    for event in events:
        try:
            builder.add(event)
        except INCOMPLETE:
            continue
    for event, settings in sorted(builder.changes, key=lambda pair: pair[0].mono_ns):
        builder.apply_settings(event, settings)
    length_s = builder.last_s
    try:
        injected = faults_of(sorted(builder.faults, key=lambda event: event.mono_ns))
    except INCOMPLETE:
        injected = []
    shaded = []
    for fault in injected:
        target = f"rack {fault.rack}" if fault.broker is None else f"broker {fault.broker}"
        end_ns = fault.healed_ns or fault.heal_ns
        end_s = length_s if end_ns is None else builder.seconds(end_ns)
        shaded.append(FaultSpan(f"{fault.op.partition('-')[0]} {target}", builder.seconds(fault.inject_ns), end_s))
    ranked = sorted(builder.topics.values(), key=lambda topic: (-topic.weight, topic.name))
    shown = sorted(ranked[:topics], key=lambda topic: topic.name)
    if len(ranked) > topics:
        shown.append(_sum(ranked[topics:]))
    return Timeline(length_s, tuple(shaded), tuple(shown), builder.observed_s)


def _sum(topics: list[TopicTimeline]) -> TopicTimeline:
    """Sum all topics that are not shown individually; of their partitions, keep the fewest racks of any."""
    total = TopicTimeline(f"{len(topics)} other topics together")
    for topic in topics:
        total.acked.update(topic.acked)
        for kind, seconds in topic.rejected.items():
            total.rejected[kind].update(seconds)
    places = [states for topic in topics for states in topic.partitions.values()]
    total.partitions[0] = fewest(places)
    return total


def fewest(places: Iterable[list[IsrState]]) -> list[IsrState]:
    """Return over time the racks of the partition whose ISR spans the fewest, of many; without a leader if any is."""
    current: dict[int, tuple[tuple[str, ...], str]] = {}
    # Nearly all of thousands of partitions are in one of a few states.
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    isr_states: list[IsrState] = []
    changes = sorted(((state.at_s, place, state) for place, states in enumerate(places) for state in states),
                     key=lambda entry: entry[:2])  # fmt: skip
    for at_s, place, state in changes:
        if place in current:
            counts[current[place]] -= 1
            counts += Counter()  # drops states without partitions
        current[place] = (state.racks, state.leader)
        counts[current[place]] += 1
        racks, leader = min(counts, key=lambda entry: (bool(entry[1]), len(entry[0]), entry))
        if isr_states and (isr_states[-1].racks, isr_states[-1].leader) == (racks, leader):
            continue
        if isr_states and isr_states[-1].at_s == at_s:
            isr_states.pop()
        isr_states.append(IsrState(at_s, racks, leader))
    return isr_states


def kind_of(exception: Any) -> str:
    """Return a short name of an error, the same for equivalent errors of Java clients and librdkafka."""
    name = str(exception or "no response").rpartition(".")[2].removesuffix("Exception")
    if name.isupper() or name.startswith("_"):
        return "".join(part.capitalize() for part in name.strip("_").split("_"))
    return name
