"""Enforcement of min.insync.racks (R) by each broker, derived from the broker's own responses. Pure functions.

A broker with the complete overlay shows three signs: it accepts Produce 14, supports the feature
``min.insync.racks.version`` and knows the config. Each sign alone may have another cause, for example Produce 14 in a
later Kafka, so all three are required. The broker enforces an R above 1 while this feature and
``eligible.leader.replicas.version`` are both finalized at level 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE, UPGRADE, level_of
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.kafka.topics import MINIMUM_MAX
from pyhooks.placement.findings import Finding, Severity, brokers_text, names_text
from pyhooks.placement.gate_forecast import Broker, CheckedTopic, IsrRequirements

PRODUCE_WITH_RACKS = 14
VALUE_SHOWN = 40
# A broker whose metadata ends so many offsets before the newest one's is cut off from the controllers. These append a
# record twice a second even if nothing changes.
LAG_OFFSETS = 20
BEHIND_CONTROLLER = "some are behind the controller: check again, see their logs"

OverlayState = Literal["yes", "no", "partly"]


@dataclass(frozen=True)
class BrokerResponse:
    """Response of a broker: its versions, features and settings."""

    produce: int  # highest version of Produce that it accepts
    supported_level: int  # highest level of ``RACKS_FEATURE`` that it supports; 0 if it does not know the feature
    levels: Mapping[str, int]  # finalized feature levels known to it; features at level 0 may be missing
    epoch: int  # metadata offset of these levels, or -1
    # requirements for topics without settings of their own; None if it did not report them
    default: IsrRequirements | None
    # requirements of topics as reported by this broker
    topics: Mapping[str, IsrRequirements] = field(default_factory=dict)
    # reasons why it did not report settings, by topic; ``""`` for its own settings
    rejected: Mapping[str, str] = field(default_factory=dict)
    # invalid values, by topic (as in ``rejected``) and key; None for null. Settings with an invalid value are in
    # neither ``default`` nor ``topics``
    invalid: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    # ``min.insync.racks`` in its own properties; None if it is not set or was not reported. At level 1 only the active
    # controller reads it, to set the cluster's first value
    property_racks: int | None = None
    # its ``min.insync.replicas`` by source, as in ``ConfigValue``: which value is in force if others are removed
    replicas_by_source: Mapping[str, int] = field(default_factory=dict)
    # sources of ``unclean.leader.election.enable=true``, by topic (as in ``rejected``); empty if it was not requested
    unclean: Mapping[str, str] = field(default_factory=dict)
    metadata_version: int = 0  # highest level of ``metadata.version`` that it supports; 0 if it does not know it

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
        return bool(self.responses) and all(response.level >= 1 for response in self.responses.values())

    @property
    def outdated(self) -> frozenset[int]:
        """Brokers whose metadata ends long before another one's; what they report of the cluster may be over."""
        newest = max((response.epoch for response in self.responses.values()), default=-1)
        return frozenset(
            broker for broker, response in self.responses.items() if 0 <= response.epoch < newest - LAG_OFFSETS
        )

    @property
    def default(self) -> IsrRequirements | None:
        """Requirements for topics without settings of their own; if brokers differ, those with the highest R."""
        return strictest(response.default for response in self.responses.values())

    def describe(self, broker: Broker) -> str:
        """Describe whether a broker enforces racks."""
        if broker.broker_id not in self.responses:
            return "unknown (fenced)" if broker.fenced else "unknown (no response)"
        response = self.responses[broker.broker_id]
        if response.overlay == "no":
            return "no (no overlay)"
        if response.overlay == "partly":
            return "unknown (overlay incomplete)"
        return "yes" if response.level >= 1 else "no (feature at level 0)"


def strictest(reported: Iterable[IsrRequirements | None]) -> IsrRequirements | None:
    """Return the requirements with the highest R, then the highest M; None if no broker reported any."""

    def strictness(requirements: IsrRequirements) -> tuple[bool, int, int]:
        return requirements.racks is not None, requirements.min_racks, requirements.replicas.value

    return max(filter(None, reported), key=strictness, default=None)


def enforcement_findings(
    enforcement: Enforcement, brokers: Mapping[int, Broker], topics: Sequence[CheckedTopic]
) -> tuple[Finding, ...]:
    """Return findings about brokers that disagree, lack the overlay, or did not respond.

    ``topics`` are all of the cluster, not only those of the report.
    """
    requiring = [topic for topic in topics if topic.requirements and topic.requirements.min_racks > 1]
    default = enforcement.default
    racks_required = bool(requiring) or (default is not None and default.min_racks > 1)
    defaults = {broker: response.default for broker, response in enforcement.responses.items() if response.default}
    return (
        *_missing_responses(enforcement, brokers, racks_required=racks_required),
        *_rejected_settings(enforcement),
        *_invalid_values(enforcement),
        *_missing_overlays(enforcement, requiring, racks_required=racks_required),
        *_feature_levels(enforcement, requiring, racks_required=racks_required),
        *_ignored_properties(enforcement),
        *_differences("default", defaults, ""),
        *(finding for topic in topics for finding in _topic_differences(topic)),
    )


def _missing_responses(
    enforcement: Enforcement, brokers: Mapping[int, Broker], *, racks_required: bool
) -> Iterable[Finding]:
    for broker, reason in sorted(enforcement.unresponsive.items()):
        if broker in brokers and brokers[broker].fenced:
            severity: Severity = "unknown" if racks_required else "notice"
            means = f"broker {broker} is fenced: it is unknown what it enforces when it returns"
            yield Finding(severity, "broker-fenced", means, f"start broker {broker}, check again")
        else:
            remedy = "make sure that it runs and can be reached from here, check again"
            yield Finding("unknown", "broker-silent", f"broker {broker} did not respond: {reason}", remedy)


def _rejected_settings(enforcement: Enforcement) -> Iterable[Finding]:
    rejected = {broker: response.rejected for broker, response in enforcement.responses.items() if response.rejected}
    if not rejected:
        return
    names = sorted({name for reasons in rejected.values() for name in reasons})
    topics = [name for name in names if name]
    settings = " and ".join(
        ["their own"] * ("" in names) + [f"those of {names_text(topics)}"] * bool(topics),
    )
    reason = next(iter(rejected[min(rejected)].values()))
    means = f"{brokers_text(rejected)} did not report all settings ({settings}): {reason}"
    yield Finding("unknown", "settings-rejected", means, "let the principal of --command-config describe configs")


def _invalid_values(enforcement: Enforcement) -> Iterable[Finding]:
    """Yield findings about invalid values, one for all brokers with the same value."""
    brokers_by_value: dict[tuple[str, str, str], list[int]] = {}
    for broker, response in sorted(enforcement.responses.items()):
        for topic, values in response.invalid.items():
            for key, value in values.items():
                # repr makes blanks and the end of the value visible
                text = "null" if value is None else repr(value[:VALUE_SHOWN])
                brokers_by_value.setdefault((topic, key, text), []).append(broker)
    for (topic, key, text), brokers in sorted(brokers_by_value.items()):
        means = f"{brokers_text(brokers)}: {key}={text} is no number from 1 to {MINIMUM_MAX}, so the value is unknown"
        entity = f"--entity-type topics --entity-name {topic}" if topic else "--entity-type brokers"
        yield Finding("unknown", "value-invalid", means, f"set it again: kafka-configs {entity}", topic)


def _missing_overlays(
    enforcement: Enforcement, requiring: Sequence[CheckedTopic], *, racks_required: bool
) -> Iterable[Finding]:
    brokers: dict[OverlayState, list[int]] = {"yes": [], "no": [], "partly": []}
    for broker, response in sorted(enforcement.responses.items()):
        brokers[response.overlay].append(broker)
    if brokers["partly"]:
        response = enforcement.responses[brokers["partly"][0]]
        config = "?" if response.default is None else "known" if response.default.racks else "not known"
        means = (
            f"{brokers_text(brokers['partly'])} with only a part of the overlay: Produce {response.produce},"
            f" {RACKS_FEATURE} {response.supported_level or 'not known'}, {MIN_INSYNC_RACKS} {config}"
        )
        remedy = "put all jars of the overlay first on the classpath and restart"
        yield Finding("error", "overlay-not-whole", means, remedy)
    stock = set(brokers["no"])
    for topic in sorted(requiring, key=lambda topic: topic.name) if stock else ():
        led = tuple(partition.number for partition in topic.partitions if partition.leader in stock)
        if hosts := stock & {replica for partition in topic.partitions for replica in partition.replicas}:
            means = f"{brokers_text(hosts)} without the overlay {'leads' if led else 'could lead'} and checks no racks"
            remedy = "put the overlay first on the classpath of all brokers and restart them"
            yield Finding("error", "would-not-enforce", means, remedy, topic.name, led)
    if stock and (brokers["yes"] or brokers["partly"]):
        means = f"{brokers_text(stock)} without the overlay, others with it: the feature can't be upgraded"
        remedy = "put the overlay first on the classpath of all brokers and controllers"
        yield Finding("error" if racks_required else "notice", "mixed-brokers", means, remedy)


def _feature_levels(
    enforcement: Enforcement, requiring: Sequence[CheckedTopic], *, racks_required: bool
) -> Iterable[Finding]:
    if not enforcement.responses:
        return
    least: dict[str, int] = {}
    for feature in (RACKS_FEATURE, ELR_FEATURE):
        levels = {broker: response.levels.get(feature, 0) for broker, response in enforcement.responses.items()}
        least[feature] = min(levels.values())
        if len(set(levels.values())) > 1:
            means = f"brokers know different levels of {feature}: {_by_value(levels)}"
            yield Finding("error", "levels-differ", means, BEHIND_CONTROLLER)
    if least[RACKS_FEATURE] >= 1 and least[ELR_FEATURE] < 1:
        means = (
            f"{RACKS_FEATURE} is enabled without {ELR_FEATURE}: the controller does not know which replicas have the"
            " acknowledged records"
        )
        yield Finding("error", "elr-off", means, UPGRADE)
    elif racks_required and not enforcement.enforced:
        names = sorted(topic.name for topic in requiring)
        subject = f"topics {', '.join(names[:3])}{' and more' * (len(names) > 3)}" if names else "the default"
        means = (
            f"{subject} require racks, but the feature is at level 0: no broker enforces it, one rack can acknowledge"
            " alone"
        )
        yield Finding("error", "not-enforced", means, UPGRADE)


def _ignored_properties(enforcement: Enforcement) -> Iterable[Finding]:
    """Yield findings about brokers whose properties require more racks than the metadata; only that is enforced."""
    ignored: dict[tuple[int, int], list[int]] = {}
    for broker, response in sorted(enforcement.responses.items()):
        racks = response.default.racks if response.default else None
        if racks is None or response.property_racks is None:
            continue
        if (response.level >= 1 or racks.source == "cluster") and response.property_racks > racks.value:
            ignored.setdefault((response.property_racks, racks.value), []).append(broker)
    for (value, enforced), brokers in sorted(ignored.items()):
        means = (
            f"{MIN_INSYNC_RACKS}={value} in the properties of {brokers_text(brokers)} is ignored: the cluster's value"
            f" is {enforced}, and only the metadata counts"
        )
        remedy = (
            f"kafka-configs --alter --entity-type brokers --entity-default --add-config {MIN_INSYNC_RACKS}={value},"
            " or remove it from the properties"
        )
        yield Finding("error", "property-above-cluster-value", means, remedy)


def _topic_differences(topic: CheckedTopic) -> Iterable[Finding]:
    """Yield findings about a topic with settings of its own that brokers report differently."""
    for requirements in topic.by_broker.values():
        if "topic" in (requirements.replicas.source, requirements.racks.source if requirements.racks else ""):
            return _differences("topic", topic.by_broker, topic.name)
    return ()


def _differences(scope: str, reported: Mapping[int, IsrRequirements], topic: str) -> Iterable[Finding]:
    """Yield findings about settings that differ between brokers.

    Brokers that do not know the config have a finding of their own, so only the values of the others are compared.
    """
    replicas = {broker: requirements.replicas.value for broker, requirements in reported.items()}
    racks = {broker: requirements.racks.value for broker, requirements in reported.items() if requirements.racks}
    for key, values in ((MIN_INSYNC_REPLICAS, replicas), (MIN_INSYNC_RACKS, racks)):
        if len(set(values.values())) > 1:
            means = f"brokers disagree about {key} ({scope}): {_by_value(values)}"
            cluster_remedy = "set it for the cluster: kafka-configs --entity-type brokers --entity-default"
            yield Finding("error", f"{scope}s-differ", means, BEHIND_CONTROLLER if topic else cluster_remedy, topic)


def _by_value(values: Mapping[int, int]) -> str:
    by_value: dict[int, list[int]] = {}
    for broker, value in sorted(values.items()):
        by_value.setdefault(value, []).append(broker)
    return "; ".join(f"{value} on {brokers_text(brokers)}" for value, brokers in sorted(by_value.items()))
