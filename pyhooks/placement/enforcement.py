"""Enforcement of min.insync.racks (R) by each broker, derived from the broker's own responses. Pure functions.

A broker with the complete overlay shows three signs: it accepts Produce 14, supports the feature
``min.insync.racks.version`` and knows the config. Each sign alone may have another cause, for example Produce 14 in a
later Kafka, so all three are required. The broker enforces an R above 1 while this feature and
``eligible.leader.replicas.version`` are both finalized at level 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE, UPGRADE, level_of
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE, MIN_INSYNC_REPLICAS
from pyhooks.kafka.topics import MINIMUM_MAX
from pyhooks.placement.findings import Finding, brokers_text, names_text
from pyhooks.placement.gate_forecast import Broker, CheckedTopic, ConfigValue, IsrRequirements

PRODUCE_WITH_RACKS = 14
MIN_REPLICAS, MIN_RACKS = MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS
OBSERVED_RACKS = MIN_INSYNC_RACKS_OBSERVE
VALUE_SHOWN = 40

OverlayState = Literal["yes", "no", "partly"]


@dataclass(frozen=True)
class BrokerResponse:
    """Response of a broker: its versions, features and settings.

    Attributes:
        produce: highest version of Produce that it accepts.
        supported_level: highest level of ``RACKS_FEATURE`` that it supports; 0 if it does not know the feature.
        levels: finalized feature levels known to it; features at level 0 may be missing.
        epoch: metadata offset of these levels, or -1.
        default: requirements for topics without settings of their own; None if it did not report them.
        property_racks: ``min.insync.racks`` in its own properties; None if it is not set or was not reported. At level
            1 only the active controller reads it, to set the cluster's first value.
        topics: requirements of topics as reported by this broker.
        refused: reasons why it did not report settings, by topic; ``""`` for its own settings.
        invalid: invalid values, by topic (as in ``refused``) and key; None for null. Settings with an invalid value are
            in neither ``default`` nor ``topics``.
    """

    produce: int
    supported_level: int
    levels: Mapping[str, int]
    epoch: int
    default: IsrRequirements | None
    topics: Mapping[str, IsrRequirements] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    invalid: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    property_racks: int | None = None

    @property
    def overlay(self) -> OverlayState:
        """Whether it has the overlay: ``partly`` if only some of the signs are present."""
        signs = [self.produce >= PRODUCE_WITH_RACKS, self.supported_level >= 1]
        if self.default is not None:
            signs.append(self.default.racks is not None)
        if all(signs):
            return "yes"
        return "partly" if any(signs) else "no"

    @property
    def level(self) -> int:
        """Feature level known to this broker; R above 1 is in force from 1 on; 0 unless both features are enabled."""
        return level_of(self.levels)


@dataclass(frozen=True)
class Enforcement:
    """Responses of brokers, and reasons why other brokers did not respond, by broker id."""

    responses: Mapping[int, BrokerResponse]
    unresponsive: Mapping[int, str]

    @property
    def enforced(self) -> bool:
        """Whether an R above 1 is in force according to every broker that responded."""
        return bool(self.responses) and all(answer.level >= 1 for answer in self.responses.values())

    @property
    def default(self) -> IsrRequirements | None:
        """Requirements for topics without settings of their own; if brokers differ, those with the highest R."""
        return strictest(answer.default for answer in self.responses.values())

    def describe(self, broker: Broker) -> str:
        """Describe whether a broker enforces racks."""
        if broker.broker_id not in self.responses:
            return "unknown (fenced)" if broker.fenced else "unknown (no response)"
        answer = self.responses[broker.broker_id]
        if answer.overlay == "no":
            return "no (no overlay)"
        if answer.overlay == "partly":
            return "unknown (overlay incomplete)"
        return "yes" if answer.level >= 1 else "no (feature at level 0)"


def strictest(needs: Iterable[IsrRequirements | None]) -> IsrRequirements | None:
    """Return the requirements with the highest R, then the highest M; None if no broker reported any."""
    known = [requirements for requirements in needs if requirements is not None]
    return max(
        known,
        key=lambda requirements: (requirements.racks is not None, requirements.min_racks, requirements.replicas.value),
        default=None,
    )


def enforcement_findings(
    seen: Enforcement, brokers: Mapping[int, Broker], topics: Sequence[CheckedTopic]
) -> tuple[Finding, ...]:
    """Return findings about brokers that disagree, lack the overlay, or did not respond.

    Args:
        seen: responses of the brokers.
        brokers: all registered brokers.
        topics: all topics of the cluster, not only those of the report.
    """
    asked = {topic.name: topic.requirements.min_racks for topic in topics if topic.requirements}
    demanding = sorted(name for name, racks in asked.items() if racks > 1)
    default = seen.default
    wanted = bool(demanding) or (default is not None and default.min_racks > 1)
    return (
        *_silent(seen, brokers, wanted=wanted),
        *_software(seen, topics, demanding, wanted=wanted),
        *_levels(seen, demanding, wanted=wanted),
        *_properties(seen),
        *_differ("default", {broker: a.default for broker, a in seen.responses.items() if a.default is not None}, ""),
        *_topics_differ(topics),
    )


def _silent(seen: Enforcement, brokers: Mapping[int, Broker], *, wanted: bool) -> Iterable[Finding]:
    for broker, because in sorted(seen.unresponsive.items()):
        if broker in brokers and brokers[broker].fenced:
            means = f"broker {broker} is fenced: it is unknown what it enforces when it returns"
            yield Finding(
                "unknown" if wanted else "notice", "broker-fenced", means, f"start broker {broker}, check again"
            )
        else:
            means = f"broker {broker} did not respond: {because}"
            yield Finding(
                "unknown", "broker-silent", means, "make sure that it runs and can be reached from here, check again"
            )
    refused = sorted(broker for broker, answer in seen.responses.items() if answer.refused)
    if refused:
        first = seen.responses[refused[0]].refused
        names = sorted({name for broker in refused for name in seen.responses[broker].refused} - {""})
        own = ["their own"] * any("" in seen.responses[broker].refused for broker in refused)
        settings = " and ".join([*own, *([f"those of {names_text(names)}"] if names else [])])
        means = f"{brokers_text(refused)} did not report all settings ({settings}): {next(iter(first.values()))}"
        yield Finding("unknown", "settings-refused", means, "let the principal of --command-config describe configs")
    yield from _invalid(seen)


def _invalid(seen: Enforcement) -> Iterable[Finding]:
    """Yield findings about invalid values, one for all brokers with the same value."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for broker, answer in sorted(seen.responses.items()):
        for topic, values in answer.invalid.items():
            for key, value in values.items():
                # repr makes blanks and the end of the value visible
                text = "null" if value is None else repr(value[:VALUE_SHOWN])
                found.setdefault((topic, key, text), []).append(broker)
    for (topic, key, text), brokers in sorted(found.items()):
        means = f"{brokers_text(brokers)}: {key}={text} is no number from 1 to {MINIMUM_MAX}, so the value is unknown"
        where = f"--entity-type topics --entity-name {topic}" if topic else "--entity-type brokers"
        yield Finding("unknown", "value-invalid", means, f"set it again: kafka-configs {where}", topic)


def _software(
    seen: Enforcement, topics: Sequence[CheckedTopic], demanding: Sequence[str], *, wanted: bool
) -> Iterable[Finding]:
    kinds: dict[OverlayState, list[int]] = {"yes": [], "no": [], "partly": []}
    for broker, answer in sorted(seen.responses.items()):
        kinds[answer.overlay].append(broker)
    if kinds["partly"]:
        answer = seen.responses[kinds["partly"][0]]
        config = "?" if answer.default is None else "known" if answer.default.racks else "not known"
        means = (
            f"{brokers_text(kinds['partly'])} with only a part of the overlay: Produce {answer.produce},"
            f" {RACKS_FEATURE} {answer.supported_level or 'not known'}, {MIN_RACKS} {config}"
        )
        yield Finding(
            "error", "overlay-not-whole", means, "put all jars of the overlay first on the classpath and restart"
        )
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
                f"{brokers_text(could)} without the overlay {'leads' if led else 'could lead'} and checks no racks",
                "put the overlay first on the classpath of all brokers and restart them",
                topic.name,
                led,
            )
    if stock and (kinds["yes"] or kinds["partly"]):
        means = f"{brokers_text(sorted(stock))} without the overlay, others with it: the feature can't be upgraded"
        remedy = "put the overlay first on the classpath of all brokers and controllers"
        yield Finding("error" if wanted else "notice", "mixed-brokers", means, remedy)


def _levels(seen: Enforcement, demanding: Sequence[str], *, wanted: bool) -> Iterable[Finding]:
    for feature in (RACKS_FEATURE, ELR_FEATURE):
        levels = {broker: answer.levels.get(feature, 0) for broker, answer in seen.responses.items()}
        if len(set(levels.values())) > 1:
            means = f"brokers know different levels of {feature}: {_by_value(levels)}"
            yield Finding(
                "error", "levels-differ", means, "some are behind the controller: check again, see their logs"
            )
    racks = [answer.levels.get(RACKS_FEATURE, 0) for answer in seen.responses.values()]
    elr = [answer.levels.get(ELR_FEATURE, 0) for answer in seen.responses.values()]
    if not seen.responses:
        return
    if min(racks) >= 1 and min(elr) < 1:
        means = (
            f"{RACKS_FEATURE} is enabled without {ELR_FEATURE}: the controller does not know which replicas have the"
            " acknowledged records"
        )
        yield Finding("error", "elr-off", means, UPGRADE)
    elif wanted and not seen.enforced:
        requiring = (
            f"topics {', '.join(demanding[:3])}{' and more' * (len(demanding) > 3)}" if demanding else "the default"
        )
        means = (
            f"{requiring} require racks, but the feature is at level 0: no broker enforces it, one rack can acknowledge"
            " alone"
        )
        yield Finding("error", "not-enforced", means, UPGRADE)


def _properties(seen: Enforcement) -> Iterable[Finding]:
    """Yield findings about brokers whose properties require more racks than the metadata; only that is enforced."""
    ignored: dict[tuple[int, int], list[int]] = {}
    for broker, answer in sorted(seen.responses.items()):
        racks = answer.default.racks if answer.default else None
        if racks is None or answer.property_racks is None:
            continue
        if (answer.level >= 1 or racks.source == "cluster") and answer.property_racks > racks.value:
            ignored.setdefault((answer.property_racks, racks.value), []).append(broker)
    for (value, enforced), brokers in sorted(ignored.items()):
        means = (
            f"{MIN_RACKS}={value} in the properties of {brokers_text(brokers)} is ignored: the cluster's value is"
            f" {enforced}, and only the metadata counts"
        )
        remedy = (
            f"kafka-configs --alter --entity-type brokers --entity-default --add-config {MIN_RACKS}={value}, or remove"
            " it from the properties"
        )
        yield Finding("error", "property-above-cluster-value", means, remedy)


def _topics_differ(topics: Sequence[CheckedTopic]) -> Iterable[Finding]:
    for topic in topics:
        own = {
            broker: requirements
            for broker, requirements in topic.by_broker.items()
            if "topic" in (requirements.replicas.source, requirements.racks.source if requirements.racks else "")
        }
        if own:
            yield from _differ("topic", topic.by_broker, topic.name)


def _differ(what: str, needs: Mapping[int, IsrRequirements], topic: str) -> Iterable[Finding]:
    """Yield findings about settings that differ between brokers.

    Brokers that do not know the config have a finding of their own, so only the values of the others are compared.
    """
    parts: tuple[tuple[str, Callable[[IsrRequirements], ConfigValue | None]], ...] = (
        (MIN_REPLICAS, lambda requirements: requirements.replicas),
        (MIN_RACKS, lambda requirements: requirements.racks),
    )
    for name, part in parts:
        values = {
            broker: setting.value
            for broker, requirements in needs.items()
            if (setting := part(requirements)) is not None
        }
        if len(set(values.values())) > 1:
            means = f"brokers disagree about {name} ({what}): {_by_value(values)}"
            remedy = (
                "some are behind the controller: check again, see their logs"
                if topic
                else "set it for the cluster: kafka-configs --entity-type brokers --entity-default"
            )
            yield Finding("error", f"{what}s-differ", means, remedy, topic)


def _by_value(values: Mapping[int, int]) -> str:
    by_value: dict[int, list[int]] = {}
    for broker, value in sorted(values.items()):
        by_value.setdefault(value, []).append(broker)
    return "; ".join(f"{value} on {brokers_text(brokers)}" for value, brokers in sorted(by_value.items()))
