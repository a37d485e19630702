"""Who enforces min.insync.racks, from what each broker says of itself. Pure functions.

A broker with the whole overlay says so in three ways: it takes Produce 14, supports the feature
``min.insync.racks.version`` and knows the config. Any one of them alone could come from elsewhere,
Produce 14 from a later Kafka, so all three are asked for. It enforces an R above 1 while both features are finalized at
level 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE, UPGRADE, level_of
from pyhooks.kafka.topics import MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE, MIN_INSYNC_REPLICAS, MINIMUM_MAX
from pyhooks.placement.findings import Finding, brokers_in_words, some
from pyhooks.placement.gate_forecast import Broker, Need, Setting, Topic

PRODUCE_WITH_RACKS = 14
MIN_REPLICAS, MIN_RACKS = MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS
OBSERVED_RACKS = MIN_INSYNC_RACKS_OBSERVE
VALUE_SHOWN = 40

Knows = Literal["yes", "no", "partly"]


@dataclass(frozen=True)
class Answer:
    """What a broker said.

    Attributes:
        produce: highest version of Produce that it takes.
        supports: highest level of ``RACKS_FEATURE`` that it supports; 0 if it does not know it.
        levels: finalized levels of features as it knows them; those at level 0 may be left out.
        epoch: metadata offset up to which it knows them, or -1.
        default: what it asks of topics without settings of their own; None if it would not say.
        property_racks: ``min.insync.racks`` in its own properties; None if it is not there, or not told. At level 1
            nothing reads it but the active controller that sets the cluster's first value.
        topics: what it says that topics ask.
        refused: what it would not say and why, by topic; ``""`` for its own settings.
        invalid: values that are no valid number, by topic as in ``refused`` and key; None for null. The settings that
            they are part of are in neither ``default`` nor ``topics``.
    """

    produce: int
    supports: int
    levels: Mapping[str, int]
    epoch: int
    default: Need | None
    topics: Mapping[str, Need] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    invalid: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    property_racks: int | None = None

    @property
    def knows(self) -> Knows:
        """Whether it has the overlay."""
        signs = [self.produce >= PRODUCE_WITH_RACKS, self.supports >= 1]
        if self.default is not None:
            signs.append(self.default.racks is not None)
        if all(signs):
            return "yes"
        return "partly" if any(signs) else "no"

    @property
    def level(self) -> int:
        """The level at which an R above 1 is in force, as it knows: 0 unless both features are on."""
        return level_of(self.levels)


@dataclass(frozen=True)
class Enforcement:
    """What all brokers said.

    Attributes:
        answers: by broker id.
        silent: why others did not answer, by broker id.
    """

    answers: Mapping[int, Answer]
    silent: Mapping[int, str]

    @property
    def enforced(self) -> bool:
        """An R above 1 is in force, as all say that answered."""
        return bool(self.answers) and all(answer.level >= 1 for answer in self.answers.values())

    @property
    def default(self) -> Need | None:
        """What topics without settings of their own are asked for; of several answers the one with the highest R."""
        return strictest(answer.default for answer in self.answers.values())

    def words(self, broker: Broker) -> str:
        """Whether a broker enforces racks, in a few words."""
        if broker.broker_id not in self.answers:
            return "unknown (fenced)" if broker.fenced else "unknown (no answer)"
        answer = self.answers[broker.broker_id]
        if answer.knows == "no":
            return "no (no overlay)"
        if answer.knows == "partly":
            return "unknown (overlay not whole)"
        return "yes" if answer.level >= 1 else "no (feature at level 0)"


def strictest(needs: Iterable[Need | None]) -> Need | None:
    """Of what brokers say the one with the highest R, and then M; None if none said anything."""
    told = [need for need in needs if need is not None]
    return max(told, key=lambda need: (need.racks is not None, need.min_racks, need.replicas.value), default=None)


def enforcement_findings(
    seen: Enforcement, brokers: Mapping[int, Broker], topics: Sequence[Topic]
) -> tuple[Finding, ...]:
    """What brokers disagree on, can't do, or did not say.

    Args:
        seen: their answers.
        brokers: all that are registered.
        topics: all topics, whichever of them are reported.
    """
    asked = {topic.name: topic.need.min_racks for topic in topics if topic.need}
    demanding = sorted(name for name, racks in asked.items() if racks > 1)
    default = seen.default
    wanted = bool(demanding) or (default is not None and default.min_racks > 1)
    return (
        *_silent(seen, brokers, wanted=wanted),
        *_software(seen, topics, demanding, wanted=wanted),
        *_levels(seen, demanding, wanted=wanted),
        *_properties(seen),
        *_differ("default", {broker: a.default for broker, a in seen.answers.items() if a.default is not None}, ""),
        *_topics_differ(topics),
    )


def _silent(seen: Enforcement, brokers: Mapping[int, Broker], *, wanted: bool) -> Iterable[Finding]:
    for broker, because in sorted(seen.silent.items()):
        if broker in brokers and brokers[broker].fenced:
            means = f"broker {broker} is fenced: what it enforces when it comes back is not known"
            yield Finding(
                "unknown" if wanted else "notice", "broker-fenced", means, f"start broker {broker}, ask again"
            )
        else:
            means = f"broker {broker} did not answer: {because}"
            yield Finding("unknown", "broker-silent", means, "see that it runs and can be reached from here, ask again")
    refused = sorted(broker for broker, answer in seen.answers.items() if answer.refused)
    if refused:
        first = seen.answers[refused[0]].refused
        names = sorted({name for broker in refused for name in seen.answers[broker].refused} - {""})
        own = ["their own"] * any("" in seen.answers[broker].refused for broker in refused)
        what = " and ".join([*own, *([f"those of {some(names)}"] if names else [])])
        means = f"{brokers_in_words(refused)} did not tell all settings ({what}): {next(iter(first.values()))}"
        yield Finding("unknown", "settings-refused", means, "let the principal of --command-config describe configs")
    yield from _invalid(seen)


def _invalid(seen: Enforcement) -> Iterable[Finding]:
    """Values that are no valid numbers, those that brokers agree about together."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for broker, answer in sorted(seen.answers.items()):
        for topic, values in answer.invalid.items():
            for key, value in values.items():
                # repr, since it shows blanks and where the value ends
                text = "null" if value is None else repr(value[:VALUE_SHOWN])
                found.setdefault((topic, key, text), []).append(broker)
    for (topic, key, text), brokers in sorted(found.items()):
        means = f"{brokers_in_words(brokers)}: {key}={text} is no number from 1 to {MINIMUM_MAX}: what holds is unknown"
        where = f"--entity-type topics --entity-name {topic}" if topic else "--entity-type brokers"
        yield Finding("unknown", "value-invalid", means, f"set it anew: kafka-configs {where}", topic)


def _software(
    seen: Enforcement, topics: Sequence[Topic], demanding: Sequence[str], *, wanted: bool
) -> Iterable[Finding]:
    kinds: dict[Knows, list[int]] = {"yes": [], "no": [], "partly": []}
    for broker, answer in sorted(seen.answers.items()):
        kinds[answer.knows].append(broker)
    if kinds["partly"]:
        answer = seen.answers[kinds["partly"][0]]
        config = "?" if answer.default is None else "known" if answer.default.racks else "not known"
        means = (
            f"{brokers_in_words(kinds['partly'])} with a part of the overlay: Produce {answer.produce},"
            f" {RACKS_FEATURE} {answer.supports or 'not known'}, {MIN_RACKS} {config}"
        )
        yield Finding("error", "overlay-not-whole", means, "put all jars of the overlay in front and restart")
    stock, names = set(kinds["no"]), frozenset(demanding)
    for topic in topics if stock else ():
        if topic.name not in names:
            continue
        could = sorted(stock & {replica for partition in topic.partitions for replica in partition.replicas})
        if could:
            led = tuple(partition.number for partition in topic.partitions if partition.leader in stock)
            yield Finding(
                "error",
                "would-not-enforce",
                f"{brokers_in_words(could)} without the overlay {'leads' if led else 'could lead'} and checks no racks",
                "put the overlay in front on all brokers and restart them",
                topic.name,
                led,
            )
    if stock and (kinds["yes"] or kinds["partly"]):
        means = f"{brokers_in_words(sorted(stock))} without the overlay, others with it: the feature can't be upgraded"
        remedy = "put the overlay in front on all brokers and controllers"
        yield Finding("error" if wanted else "notice", "mixed-brokers", means, remedy)


def _levels(seen: Enforcement, demanding: Sequence[str], *, wanted: bool) -> Iterable[Finding]:
    for feature in (RACKS_FEATURE, ELR_FEATURE):
        levels = {broker: answer.levels.get(feature, 0) for broker, answer in seen.answers.items()}
        if len(set(levels.values())) > 1:
            means = f"brokers know different levels of {feature}: {_by_value(levels)}"
            yield Finding("error", "levels-differ", means, "some are behind the controller: ask again, see their logs")
    racks = [answer.levels.get(RACKS_FEATURE, 0) for answer in seen.answers.values()]
    elr = [answer.levels.get(ELR_FEATURE, 0) for answer in seen.answers.values()]
    if not seen.answers:
        return
    if min(racks) >= 1 and min(elr) < 1:
        means = f"{RACKS_FEATURE} is on without {ELR_FEATURE}: nobody remembers who has the acknowledged records"
        yield Finding("error", "elr-off", means, UPGRADE)
    elif wanted and not seen.enforced:
        who = f"topics {', '.join(demanding[:3])}{' and more' * (len(demanding) > 3)}" if demanding else "the default"
        means = (
            f"{who} require racks, but the feature is at level 0: nobody enforces it, one rack can acknowledge alone"
        )
        yield Finding("error", "not-enforced", means, UPGRADE)


def _properties(seen: Enforcement) -> Iterable[Finding]:
    """Brokers whose properties require more racks than the metadata, which alone is enforced."""
    ignored: dict[tuple[int, int], list[int]] = {}
    for broker, answer in sorted(seen.answers.items()):
        racks = answer.default.racks if answer.default else None
        if racks is None or answer.property_racks is None:
            continue
        if (answer.level >= 1 or racks.source == "cluster") and answer.property_racks > racks.value:
            ignored.setdefault((answer.property_racks, racks.value), []).append(broker)
    for (value, enforced), brokers in sorted(ignored.items()):
        means = (
            f"{MIN_RACKS}={value} in the properties of {brokers_in_words(brokers)} is ignored: the cluster's value is"
            f" {enforced}, and only the metadata counts"
        )
        remedy = (
            f"kafka-configs --alter --entity-type brokers --entity-default --add-config {MIN_RACKS}={value}, or remove"
            " it from the properties"
        )
        yield Finding("error", "property-above-cluster-value", means, remedy)


def _topics_differ(topics: Sequence[Topic]) -> Iterable[Finding]:
    for topic in topics:
        own = {
            broker: need
            for broker, need in topic.by_broker.items()
            if "topic" in (need.replicas.source, need.racks.source if need.racks else "")
        }
        if own:
            yield from _differ("topic", topic.by_broker, topic.name)


def _differ(what: str, needs: Mapping[int, Need], topic: str) -> Iterable[Finding]:
    """Brokers without the config are told of elsewhere, so only the values of the others are compared."""
    parts: tuple[tuple[str, Callable[[Need], Setting | None]], ...] = (
        (MIN_REPLICAS, lambda need: need.replicas),
        (MIN_RACKS, lambda need: need.racks),
    )
    for name, part in parts:
        values = {broker: setting.value for broker, need in needs.items() if (setting := part(need)) is not None}
        if len(set(values.values())) > 1:
            means = f"brokers disagree about {name} ({what}): {_by_value(values)}"
            remedy = (
                "some are behind the controller: ask again, see their logs"
                if topic
                else "set it for the cluster: kafka-configs --entity-type brokers --entity-default"
            )
            yield Finding("error", f"{what}s-differ", means, remedy, topic)


def _by_value(values: Mapping[int, int]) -> str:
    by_value: dict[int, list[int]] = {}
    for broker, value in sorted(values.items()):
        by_value.setdefault(value, []).append(broker)
    return "; ".join(f"{value} on {brokers_in_words(brokers)}" for value, brokers in sorted(by_value.items()))
