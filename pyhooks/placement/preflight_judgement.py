"""Whether the feature min.insync.racks.version and an R may be enabled on a cluster, for some topics. Pure functions.

M is ``min.insync.replicas``, R is ``min.insync.racks``. The input is recorded: what each broker, each controller and
each JMX port reported. What was not reported is unknown, never ready. Controllers, their racks and the Produce versions
of clients are reported only if their options were given; otherwise a notice names the option.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pyhooks.core import paths
from pyhooks.kafka import gate
from pyhooks.kafka.features import ELR_FEATURE, METADATA_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, NO_RACK, UNCLEAN_ELECTION
from pyhooks.patchset import recipe
from pyhooks.patchset.recipe import Recipe
from pyhooks.placement.enforcement import PRODUCE_WITH_RACKS, BrokerResponse, Enforcement
from pyhooks.placement.findings import COORDINATED, brokers_text, names_text, similar_racks
from pyhooks.placement.gate_forecast import (
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    ReportedPartition,
    rack_name,
    reaches,
)
from pyhooks.placement.readiness import (
    READY,
    CommandWriter,
    ReadinessFinding,
    ReadinessSeverity,
    obstacles_first,
    readiness_status,
)

# Level that eligible.leader.replicas.version 1 depends on: 4.0-IV1.
ELR_METADATA_VERSION = 23
# Sources of a value that enabling eligible.leader.replicas.version ends: server.properties, and the config of a single
# broker in the metadata.
_LOST_SOURCES = ("file", "broker")
# First metadata.version level of each release.
_RELEASES = ((31, "4.4 or later"), (30, "4.3"), (28, "4.2"), (26, "4.1"), (22, "4.0"), (21, "3.9"), (20, "3.8"))


@dataclass(frozen=True)
class JmxReport:
    """Report of a broker's JMX port."""

    kafka_version: str  # version of its jars, such as 4.1.0
    # requests since its start by version of Produce
    produce_requests: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PreflightFacts:
    """Recorded state of a cluster."""

    cluster: ClusterSnapshot
    enforcement: Enforcement  # responses of the brokers
    # responses of the controllers; None if no address of a controller was given
    controllers: Enforcement | None = None
    controller_racks: Mapping[int, str] = field(default_factory=dict)  # given by the user, by node id
    jmx: Mapping[int, JmxReport] | None = None  # by broker; None if no address was given
    jmx_unanswered: Mapping[str, str] = field(default_factory=dict)  # reasons by address

    @property
    def voter_racks(self) -> Mapping[int, str]:
        """Racks of the voting controllers: given by the user, or those of combined nodes."""
        known = {**self.cluster.racks, **self.controller_racks}
        return {voter: known[voter] for voter in self.cluster.voters or () if known.get(voter, NO_RACK) != NO_RACK}

    @property
    def by_role(self) -> tuple[tuple[str, Mapping[int, BrokerResponse]], ...]:
        """Responses of brokers, and of controllers if they were asked."""
        brokers = ("brokers", self.enforcement.responses)
        return (brokers, ("controllers", self.controllers.responses)) if self.controllers is not None else (brokers,)

    def level(self, feature: str) -> int:
        """Return the lowest finalized level of a feature that a broker reported; 0 if none did."""
        return min((response.levels.get(feature, 0) for response in self.enforcement.responses.values()), default=0)


@dataclass(frozen=True)
class PreflightGoal:
    """What would be enabled: R for some topics."""

    racks: int  # R
    topics: tuple[CheckedTopic, ...]  # chosen topics
    patterns: tuple[str, ...]  # their names as given; without any, R would become the cluster's default

    def concerned(self, cluster: ClusterSnapshot) -> tuple[CheckedTopic, ...]:
        """Return the chosen topics, and the internal topics that their records depend on."""
        names = {topic.name for topic in self.topics} | COORDINATED.keys()
        return tuple(topic for topic in cluster.topics if topic.name in names)

    @property
    def topic_options(self) -> tuple[str, ...]:
        """Options of ``rackgate`` that choose the same topics."""
        return tuple(word for pattern in self.patterns for word in ("--topic", pattern))

    def racks_of(self, topic: CheckedTopic) -> int:
        """Return the R that a topic would have: its current one if that is higher."""
        return max(self.racks, topic.requirements.min_racks if topic.requirements else 1)


def planned_cluster(facts: PreflightFacts, goal: PreflightGoal) -> ClusterSnapshot:
    """Return the cluster with the R that the concerned topics would have."""
    concerned = {topic.name for topic in goal.concerned(facts.cluster)}

    def planned(topic: CheckedTopic) -> CheckedTopic:
        if topic.name not in concerned or topic.requirements is None:
            return topic
        racks = ConfigValue(goal.racks_of(topic), "topic")
        return replace(topic, requirements=replace(topic.requirements, racks=racks))

    return replace(facts.cluster, topics=tuple(map(planned, facts.cluster.topics)))


def preflight_findings(
    facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter
) -> tuple[ReadinessFinding, ...]:
    """Return all findings, obstacles first."""
    return obstacles_first(
        [
            *_missing_responses(facts, goal, commands),
            *_broker_software(facts, commands),
            *_controllers(facts, commands),
            *_feature_levels(facts, commands),
            *_replicas_under_elr(facts, commands),
            *_racks_in_properties(facts, commands),
            *_racks_of_brokers(facts, goal, commands),
            *_placements(facts, goal, commands),
            *in_sync_findings(facts, commands),
            *_internal_topics(facts, goal, commands),
            *_unclean_elections(facts, goal, commands),
            *_controller_racks(facts),
            *_clients(facts),
        ]
    )


def next_commands(
    facts: PreflightFacts,
    goal: PreflightGoal,
    findings: Iterable[ReadinessFinding],
    commands: CommandWriter,
    again: str,
) -> tuple[str, ...]:
    """Return the commands to run next: those that enable R, or the remedies and the preflight again.

    ``again`` is the command of this preflight.
    """
    findings = tuple(findings)
    if readiness_status(findings) == READY:
        return enabling_commands(facts, goal, commands)
    remedies = [finding.remedy for finding in findings if finding.severity != "notice"]
    # topics may share a remedy
    return (*dict.fromkeys(line for remedy in remedies for line in remedy.splitlines()), again)


def enabling_commands(facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter) -> tuple[str, ...]:
    """Return the commands that enable the features and R, in order; the last one checks the result."""
    off = [feature for feature in (ELR_FEATURE, RACKS_FEATURE) if facts.level(feature) < 1]
    lines = []
    if off:
        lines.append(commands.kafka("features", "upgrade", *(a for name in off for a in ("--feature", f"{name}=1"))))
    setting = f"{MIN_INSYNC_RACKS}={goal.racks}"
    lower = [topic for topic in goal.concerned(facts.cluster) if topic.requirements and _racks_below(topic, goal.racks)]
    if not goal.patterns:
        default = facts.enforcement.default
        if default is None or default.min_racks < goal.racks or (default.racks and default.racks.source != "cluster"):
            entity = ("--entity-type", "brokers", "--entity-default")
            lines.append(commands.kafka("configs", "--alter", *entity, "--add-config", setting))
        # the others take the cluster's value
        lower = [topic for topic in lower if _racks_source(topic) == "topic"]
    lines += [commands.kafka("configs", "--alter", "--topic", one.name, "--add-config", setting) for one in lower]
    lines.append(commands.rackgate("check", *goal.topic_options, "--expect-racks", str(goal.racks)))
    return tuple(lines)


def _racks_below(topic: CheckedTopic, racks: int) -> bool:
    """Return whether a topic's R in the metadata is below a number; properties of brokers do not count."""
    return topic.requirements is None or topic.requirements.min_racks < racks or _racks_source(topic) in _LOST_SOURCES


def _racks_source(topic: CheckedTopic) -> str:
    return topic.requirements.racks.source if topic.requirements and topic.requirements.racks else "default"


def _missing_responses(
    facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter
) -> Iterator[ReadinessFinding]:
    brokers = facts.cluster.brokers
    allow = "# let the principal of --command-config describe the cluster and its configs"
    for broker, reason in sorted(facts.enforcement.unresponsive.items()):
        subject = f"broker {broker}"
        if broker in brokers and brokers[broker].fenced:
            text = "it is fenced: whether it has the overlay is unknown"
            remedy = f"# start broker {broker}, or unregister it with kafka-cluster.sh if it will never return"
            yield ReadinessFinding("broker-fenced", "unknown", subject, text, remedy)
        else:
            remedy = f"# make sure that broker {broker} runs and can be reached from here"
            yield ReadinessFinding("broker-silent", "unknown", subject, f"it did not respond: {reason}", remedy)
    if facts.enforcement.outdated:
        subject = brokers_text(facts.enforcement.outdated)
        text = "its metadata is behind: if it is cut off from the controllers, the reported ISR may be an old one"
        remedy = f"# wait, then run it again; see the logs of {subject}"
        yield ReadinessFinding("broker-behind", "unknown", subject, text, remedy)
    concerned = {topic.name for topic in goal.concerned(facts.cluster)} | {""}
    for broker, response in sorted(facts.enforcement.responses.items()):
        for name, reason in sorted(response.rejected.items()):
            if name in concerned:
                subject = f"broker {broker}"
                text = f"it did not report the settings of {f'topic {name}' if name else 'the broker'}: {reason}"
                yield ReadinessFinding("settings-rejected", "unknown", subject, text, allow)
        for name, values in sorted(response.invalid.items()):
            if name in concerned:
                text = f"it reports invalid values of {f'topic {name}' if name else 'the broker'}: " + ", ".join(
                    f"{key}={value!r}" for key, value in sorted(values.items())
                )
                remedy = commands.kafka(
                    "configs", "--describe", *(("--topic", name) if name else ("--broker", str(broker), "--all"))
                )
                yield ReadinessFinding("value-invalid", "unknown", f"broker {broker}", text, remedy)
    for topic in facts.cluster.topics:
        if topic.unanswered:
            # of any topic: who is eligible to lead it may be forgotten when the features are enabled
            text = f"its partitions are unknown: {topic.unanswered}"
            yield ReadinessFinding("topic-unanswered", "unknown", topic.name, text, allow)
        elif topic.requirements is None and topic.name in concerned:
            text = f"no broker reported its {MIN_INSYNC_REPLICAS}"
            yield ReadinessFinding("settings-unknown", "unknown", topic.name, text, allow)
    if because := facts.cluster.unanswered.get("reassignments"):
        text = f"it is unknown which partitions are being reassigned: {because}"
        remedy = commands.kafka("reassign-partitions", "--list")
        yield ReadinessFinding("reassignments-unanswered", "unknown", "cluster", text, remedy)


def release_of(metadata_version: int) -> str:
    """Return the release of Kafka whose highest metadata.version level this is, such as ``4.3``."""
    return next((name for first, name in _RELEASES if metadata_version >= first), "before 3.8")


@cache
def _base(version: str) -> Recipe:
    """Return the recipe of a version of Kafka that has an overlay."""
    return recipe.load(paths.patch_folder(version) / "kafka.toml")


def _version_of(response: BrokerResponse, jmx: JmxReport | None) -> str:
    """Return a node's version of Kafka: exact from JMX, else the release."""
    return jmx.kafka_version if jmx else release_of(response.metadata_version)


def _base_of(response: BrokerResponse, jmx: JmxReport | None) -> str:
    """Return the version with an overlay that a node may run, or "": releases of one line differ in JMX only."""
    for version in paths.patched_versions():
        if jmx.kafka_version == version if jmx else response.metadata_version == _base(version).metadata_version:
            return version
    return ""


def _broker_software(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    others: dict[str, list[int]] = {}
    stock: dict[str, list[int]] = {}  # by version that has an overlay
    for broker, response in sorted(facts.enforcement.responses.items()):
        jmx = (facts.jmx or {}).get(broker)
        if response.overlay == "partly":
            text = (
                f"only a part of the overlay is on its classpath: Produce {response.produce}, {RACKS_FEATURE} up to"
                f" {response.supported_level}"
            )
            remedy = _restart_each("put all jars of the overlay first on the classpath", [broker], commands)
            yield ReadinessFinding("overlay-incomplete", "obstacle", f"broker {broker}", text, remedy)
        elif response.overlay == "no" and (base := _base_of(response, jmx)):
            stock.setdefault(base, []).append(broker)
        elif response.overlay == "no":
            others.setdefault(_version_of(response, jmx), []).append(broker)
    for version, brokers in sorted(others.items()):
        text = f"they run Kafka {version}: overlays are for {' and '.join(paths.patched_versions())} only"
        remedy = _restart_each(f"upgrade to Kafka {paths.kafka_version()} and put its overlay first", brokers, commands)
        yield ReadinessFinding("kafka-version", "obstacle", brokers_text(brokers), text, remedy)
    for version, brokers in stock.items():
        release = release_of(_base(version).metadata_version)
        text = f"they run Kafka {release} without the overlay: the feature is rejected"
        change = f"make sure that it is {version}, put the overlay for {version} first on the classpath"
        remedy = _restart_each(change, brokers, commands)
        yield ReadinessFinding("overlay-missing", "obstacle", brokers_text(brokers), text, remedy)


def _restart_each(change: str, brokers: Sequence[int], commands: CommandWriter) -> str:
    first = commands.rackgate("check", "--without", str(brokers[0]))
    return (
        f"# on {brokers_text(brokers)}: {change}, then restart them one after another, each when this ends with 0:\n"
        f"{first}"
    )


def _restart_controllers(change: str, controllers: Sequence[int], commands: CommandWriter) -> str:
    status = commands.kafka("metadata-quorum", "describe", "--replication")
    names = names_text(controllers)
    return f"# on controllers {names}: {change}, then restart them one after another, the active one last:\n{status}"


def _controllers(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    voters = [voter for voter in facts.cluster.voters or () if voter not in facts.cluster.brokers]
    subject = f"controllers {names_text(voters)}" if voters else "controllers"
    because = facts.cluster.unanswered.get("quorum", "") or ("not reported" if facts.cluster.voters is None else "")
    again = commands.rackgate("preflight", "--bootstrap-controller", "HOST:PORT")
    if facts.controllers is None:
        if voters or because:
            text = "not asked whether they have the overlay and what their properties contain"
            text += f"; who they are is unknown: {because}" if because else ""
            yield ReadinessFinding("controllers-not-asked", "notice", subject, text, again)
        return
    if because:
        text = f"it is unknown whether all of them responded: the voters are unknown: {because}"
        remedy = commands.kafka("metadata-quorum", "describe", "--status")
        yield ReadinessFinding("quorum-unanswered", "unknown", "controllers", text, remedy)
    missing = {
        **{voter: "not registered" for voter in voters if voter not in facts.controllers.responses},
        **facts.controllers.unresponsive,
    }
    for controller, reason in sorted(missing.items()):
        remedy = f"# make sure that controller {controller} runs and can be reached from here\n{again}"
        text = f"it did not respond: {reason}"
        yield ReadinessFinding("controller-silent", "unknown", f"controller {controller}", text, remedy)
    for controller, response in sorted(facts.controllers.responses.items()):
        for reason in (*response.rejected.values(), *(f"invalid {key}" for key in response.invalid.get("", ()))):
            text = f"it did not report its own settings: {reason}"
            remedy = "# let the principal of --command-config describe the configs of controllers"
            yield ReadinessFinding("settings-rejected", "unknown", f"controller {controller}", text, remedy)
    stock = [node for node, response in sorted(facts.controllers.responses.items()) if response.supported_level < 1]
    if stock:
        releases = {release_of(facts.controllers.responses[node].metadata_version) for node in stock}
        text = f"they run Kafka {', '.join(sorted(releases))} without the overlay: the feature is rejected"
        subject = f"controllers {names_text(stock)}"
        bases = {_base_of(facts.controllers.responses[node], None) or paths.kafka_version() for node in stock}
        change = f"run Kafka {' or '.join(sorted(bases))} with its overlay first on the classpath"
        remedy = _restart_controllers(change, stock, commands)
        yield ReadinessFinding("controller-overlay-missing", "obstacle", subject, text, remedy)


def _feature_levels(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    if not facts.enforcement.responses:
        return
    for feature in (METADATA_FEATURE, ELR_FEATURE, RACKS_FEATURE):
        levels = sorted({response.levels.get(feature, 0) for response in facts.enforcement.responses.values()})
        if len(levels) > 1:
            text = f"brokers report different levels of {feature}: {', '.join(map(str, levels))}"
            describe = commands.kafka("features", "describe")
            remedy = f"# some brokers are behind the controller: wait, see their logs\n{describe}"
            yield ReadinessFinding("levels-differ", "obstacle", "cluster", text, remedy)
    level = facts.level(METADATA_FEATURE)
    if level < ELR_METADATA_VERSION:
        text = (
            f"{METADATA_FEATURE} is {level} ({release_of(level)}): {ELR_FEATURE} needs {ELR_METADATA_VERSION} (4.0-IV1)"
        )
        # --release-version would enable eligible.leader.replicas.version too
        bases = {_base_of(one, (facts.jmx or {}).get(broker)) for broker, one in facts.enforcement.responses.items()}
        newest = min(_base(version or paths.kafka_version()).metadata_version for version in bases)
        remedy = commands.kafka("features", "upgrade", "--feature", f"{METADATA_FEATURE}={newest}")
        yield ReadinessFinding("metadata-version-too-low", "obstacle", "cluster", text, remedy)


def _replicas_under_elr(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    """Yield findings about M, of which only the value in the metadata counts at level 1 of ELR."""
    responses = facts.enforcement.responses
    if not responses:
        return
    by_source = [response.replicas_by_source for response in responses.values()]
    of_cluster = next((values["cluster"] for values in by_source if "cluster" in values), None)
    if facts.level(ELR_FEATURE) >= 1:
        yield from _ignored_replicas(responses, of_cluster or 1, commands)
        return
    after, source = (of_cluster, "the cluster's value") if of_cluster else _controllers_value(facts)
    # topics by the value that ends for them; none for a value of brokers that no topic has now
    ending: dict[ConfigValue, set[str]] = {
        response.default.replicas: set() for response in responses.values() if response.default
    }
    for topic in facts.cluster.topics:
        for requirements in (*topic.by_broker.values(), *filter(None, [topic.requirements])):
            if requirements.replicas.source != "topic":
                ending.setdefault(requirements.replicas, set()).add(topic.name)
    changes = sorted(
        ((value, topics) for value, topics in ending.items() if value.value != after),
        key=lambda pair: (-pair[0].value, pair[0].source),
    )
    for value, topics in changes:
        concerned = f"topics {names_text(sorted(topics))}" if topics else "new topics"
        text = (
            f"{MIN_INSYNC_REPLICAS}={value.value} {_source_text(value.source)}: enabling {ELR_FEATURE} makes it {after}"
            f" ({source}) for {concerned}"
        )
        if value.value > after:
            # one value keeps all topics at least as safe as they are
            remedy = _set_default(f"{MIN_INSYNC_REPLICAS}={changes[0][0].value}", commands)
            yield ReadinessFinding("min-isr-lost", "obstacle", MIN_INSYNC_REPLICAS, text, remedy)
        else:
            remedy = _set_default(f"{MIN_INSYNC_REPLICAS}={value.value}", commands)
            yield ReadinessFinding("min-isr-raised", "notice", MIN_INSYNC_REPLICAS, text, remedy)
    if of_cluster is None and not changes:
        text = f"enabling {ELR_FEATURE} makes {after} the cluster's {MIN_INSYNC_REPLICAS}, which can't be removed then"
        remedy = _set_default(f"{MIN_INSYNC_REPLICAS}={after}", commands)
        yield ReadinessFinding("min-isr-becomes-cluster-value", "notice", MIN_INSYNC_REPLICAS, text, remedy)


def _controllers_value(facts: PreflightFacts) -> tuple[int, str]:
    """Return the M that the active controller would write, and its source.

    Any voter may be the active controller by then, so it is the lowest value; 1 if a voter was not asked.
    """
    known = {**facts.enforcement.responses, **(facts.controllers.responses if facts.controllers else {})}
    voters = facts.cluster.voters or ()
    if not voters or any(voter not in known for voter in voters):
        return 1, "the default, unless the controllers' properties have another: not all were asked"
    values = [known[voter].replicas_by_source.get("file", 1) for voter in voters]
    return min(values), "from the controllers' properties, 1 if they have none"


def _source_text(source: str) -> str:
    if source == "file":
        return "stands only in the properties of brokers"
    return "is set for single brokers" if source == "broker" else "is the default of brokers"


def _set_default(setting: str, commands: CommandWriter) -> str:
    entity = ("--entity-type", "brokers", "--entity-default")
    return commands.kafka("configs", "--alter", *entity, "--add-config", setting)


def _ignored_replicas(
    responses: Mapping[int, BrokerResponse], of_cluster: int, commands: CommandWriter
) -> Iterator[ReadinessFinding]:
    ignored: dict[int, list[int]] = {}
    for broker, response in sorted(responses.items()):
        value = response.replicas_by_source.get("file", 0)
        if value > of_cluster:
            ignored.setdefault(value, []).append(broker)
    for value, brokers in sorted(ignored.items()):
        text = f"{MIN_INSYNC_REPLICAS}={value} in their properties is ignored: the cluster's value is {of_cluster}"
        remedy = _set_default(f"{MIN_INSYNC_REPLICAS}={value}", commands)
        yield ReadinessFinding("min-isr-property-ignored", "notice", brokers_text(brokers), text, remedy)


def _racks_in_properties(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    """Yield findings about R in properties, of which the active controller's becomes the cluster's first value."""
    for role, responses in facts.by_role:
        by_value: dict[int, list[int]] = {}
        for node, response in sorted(responses.items()):
            racks = response.default.racks if response.default else None
            in_metadata = racks.value if racks and (response.level >= 1 or racks.source == "cluster") else 1
            if (response.property_racks or 1) > in_metadata:
                by_value.setdefault(response.property_racks or 1, []).append(node)
        for value, found in sorted(by_value.items()):
            effect = (
                "brokers ignore it"
                if role == "brokers"
                else "the active controller makes it the cluster's value when the feature is enabled, for all topics"
            )
            text = f"{MIN_INSYNC_RACKS}={value} stands only in their properties: {effect}"
            restart = _restart_each if role == "brokers" else _restart_controllers
            remedy = restart(f"remove {MIN_INSYNC_RACKS} from the properties", found, commands)
            subject = f"{role} {names_text(found)}"
            yield ReadinessFinding("racks-only-in-properties", "obstacle", subject, text, remedy)


def _racks_of_brokers(
    facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter
) -> Iterator[ReadinessFinding]:
    brokers = facts.cluster.brokers.values()
    racks = {broker.rack for broker in brokers if broker.rack != NO_RACK}
    without = sorted(broker.broker_id for broker in brokers if broker.rack == NO_RACK)
    if without:
        text = f"no rack: they count for none, and {MIN_INSYNC_RACKS} above 1 is rejected where they have replicas"
        remedy = _restart_each("set broker.rack in the properties", without, commands)
        yield ReadinessFinding("brokers-without-rack", "obstacle", brokers_text(without), text, remedy)
    for group in similar_racks(racks):
        concerned = sorted(broker.broker_id for broker in brokers if broker.rack in group)
        names = names_text(list(map(repr, group)))
        text = f"racks {names} differ only in case or spaces, and count as {len(group)} racks"
        remedy = _restart_each("set the same broker.rack in the properties", concerned, commands)
        yield ReadinessFinding("similar-racks", "obstacle", brokers_text(concerned), text, remedy)
    if len(racks) < goal.racks:
        known = facts.cluster.racks
        strangers = {broker for topic in goal.concerned(facts.cluster) for broker in _unknown_brokers(topic, known)}
        number = "1 rack is" if len(racks) == 1 else f"{len(racks)} racks are"
        text = f"{number} known, {MIN_INSYNC_RACKS}={goal.racks} needs as many"
        remedy = f"# start {brokers_text(strangers)}" if strangers else "# add brokers in other racks"
        severity: ReadinessSeverity = "unknown" if strangers else "obstacle"
        yield ReadinessFinding("fewer-racks-than-required", severity, "cluster", text, remedy)
    elif len(racks) == goal.racks:
        text = f"there are {len(racks)} racks: without any one, acks=all is rejected until it is back or R is lowered"
        remedy = "# add brokers in one more rack, or accept it"
        yield ReadinessFinding("no-spare-rack", "notice", "cluster", text, remedy)


def _unknown_brokers(topic: CheckedTopic, racks: Mapping[int, str]) -> set[int]:
    """Return the brokers of a topic's replicas that the cluster does not know."""
    return {replica for partition in topic.partitions for replica in partition.target if replica not in racks}


def _placements(facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    racks = facts.cluster.racks
    for topic in goal.concerned(facts.cluster):
        needed = goal.racks_of(topic)
        strangers = _unknown_brokers(topic, racks)
        # at best each of them is in a rack of its own
        possible = {**racks, **{replica: f"rack of broker {replica}" for replica in strangers}}
        bad = [partition for partition in topic.partitions if not reaches(partition.target, needed, possible)]
        if strangers:
            text = f"replicas on {brokers_text(strangers)}, which the cluster does not know: their racks are unknown"
            remedy = f"# start {brokers_text(strangers)}, or reassign the partitions"
            yield ReadinessFinding("replicas-on-unknown-brokers", "unknown", topic.name, text, remedy)
        if bad:
            names = sorted({rack_name(racks.get(replica, "unknown")) for one in bad for replica in one.target})
            text = (
                f"replicas of {_partitions(bad)} are in too few racks for {MIN_INSYNC_RACKS}={needed}: in"
                f" {names_text(names)}; they would reject every write with acks=all"
            )
            plan = ("--racks", str(goal.racks), "--plan-to", "plan.json")
            execute = ("--reassignment-json-file", "plan.json", "--execute")
            remedy = "\n".join(
                [
                    commands.rackgate("preflight", *goal.topic_options, *plan),
                    commands.kafka("reassign-partitions", *execute),
                ]
            )
            yield ReadinessFinding("placement-in-too-few-racks", "obstacle", topic.name, text, remedy)
        fewest = min((len(one.target) for one in topic.partitions), default=needed)
        if fewest < needed and topic.name not in COORDINATED:
            text = f"R counts as {max(1, fewest)}, since partitions have {fewest} replicas"
            remedy = "# add replicas in other racks, or accept it"
            yield ReadinessFinding("racks-capped", "notice", topic.name, text, remedy)


def _partitions(partitions: Sequence[ReportedPartition]) -> str:
    return f"partition{'s' * (len(partitions) > 1)} {names_text([str(one.number) for one in partitions])}"


def in_sync_findings(facts: PreflightFacts, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    """Yield findings about replicas of any topic: enabling the features forgets who was eligible beside the ISR."""
    for topic in facts.cluster.topics:
        describe = commands.kafka("topics", "--describe", "--topic", topic.name)
        offline = [one for one in topic.partitions if one.leader < 0]
        if offline:
            waited = {replica for one in offline for replica in one.elr or one.isr or one.replicas}
            text = (
                f"{_partitions(offline)} without a leader: of these, who may lead is forgotten but for the last leader"
            )
            remedy = f"# start one of {brokers_text(waited)}\n{describe}"
            yield ReadinessFinding("partition-offline", "obstacle", topic.name, text, remedy)
        behind = [
            one for one in topic.partitions if one.leader >= 0 and set(one.replicas) - set(one.isr) - set(one.adding)
        ]
        if behind:
            late = {replica for one in behind for replica in set(one.replicas) - set(one.isr) - set(one.adding)}
            text = f"{brokers_text(late)} out of sync in {_partitions(behind)}: enable racks while all are in sync"
            remedy = f"# wait for or start {brokers_text(late)}\n{describe}"
            yield ReadinessFinding("replicas-out-of-sync", "obstacle", topic.name, text, remedy)
        moving = [one for one in topic.partitions if one.adding or one.removing]
        if moving:
            text = f"a reassignment of {_partitions(moving)} is in progress; its target is judged here"
            remedy = commands.kafka("reassign-partitions", "--list")
            yield ReadinessFinding("reassigning", "notice", topic.name, text, remedy)


def _internal_topics(facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter) -> Iterator[ReadinessFinding]:
    """Yield findings about internal topics that would have a lower effective R than the topics that depend on them."""
    needed = max(
        (
            gate.capped(goal.racks_of(topic), len(one.target))
            for topic in goal.topics
            if topic.name not in COORDINATED
            for one in topic.partitions
        ),
        default=1,
    )
    for topic in facts.cluster.topics:
        if topic.name not in COORDINATED or not topic.partitions or needed <= 1:
            continue
        _, loss = COORDINATED[topic.name]
        fewest = min(len(one.target) for one in topic.partitions)
        if fewest < needed:
            text = f"{fewest} replicas, and other topics would require {needed} racks: {loss} can be lost with one rack"
            remedy = (
                f"# add replicas to its partitions, in at least {needed} racks, with kafka-reassign-partitions.sh\n"
                + commands.kafka("topics", "--describe", "--topic", topic.name)
            )
            yield ReadinessFinding("internal-topic-too-few-replicas", "obstacle", topic.name, text, remedy)
        elif _racks_below(topic, needed):
            current = topic.requirements.min_racks if topic.requirements else 1
            text = f"requires racks: {current}, and other topics would require {needed}: {loss} can be lost with a rack"
            # the commands that enable R contain it, too
            setting = f"{MIN_INSYNC_RACKS}={goal.racks}"
            remedy = commands.kafka("configs", "--alter", "--topic", topic.name, "--add-config", setting)
            yield ReadinessFinding("internal-topic-requires-fewer-racks", "notice", topic.name, text, remedy)


def _unclean_elections(
    facts: PreflightFacts, goal: PreflightGoal, commands: CommandWriter
) -> Iterator[ReadinessFinding]:
    concerned = [topic.name for topic in goal.concerned(facts.cluster)]
    off = f"{UNCLEAN_ELECTION}=false"
    text = f"{UNCLEAN_ELECTION} is true: an unclean election ends the promise"
    inherited: set[str] = set()
    for name in concerned:
        sources = {one.unclean[name] for one in facts.enforcement.responses.values() if name in one.unclean}
        if "topic" in sources:
            remedy = commands.kafka("configs", "--alter", "--topic", name, "--add-config", off)
            yield ReadinessFinding("unclean-election", "obstacle", name, text, remedy)
        elif sources:
            inherited.add(name)
    for role, responses in facts.by_role:
        found = [node for node, response in sorted(responses.items()) if "" in response.unclean]
        if found or (role == "brokers" and inherited):
            subject = f"{role} {names_text(found)}" if found else "brokers"
            topics = f", for topics {names_text(sorted(inherited))}" if inherited else ""
            remedy = _set_default(off, commands)
            yield ReadinessFinding("unclean-election", "obstacle", subject, f"{text}{topics}", remedy)


def _controller_racks(facts: PreflightFacts) -> Iterator[ReadinessFinding]:
    voters = facts.cluster.voters or ()
    racks = facts.voter_racks
    missing = [voter for voter in voters if voter not in racks]
    if missing or not voters:
        names = names_text(missing)
        text = "their racks are not known, so it is unknown whether the loss of a rack leaves a majority"
        remedy = "# name them: --controller-rack ID=RACK for each"
        yield ReadinessFinding("controller-racks-unknown", "notice", f"controllers {names}".strip(), text, remedy)
    total = len(voters)
    for rack in sorted(set(racks.values())):
        inside = sorted(voter for voter, of in racks.items() if of == rack)
        if 2 * (total - len(inside)) > total:
            continue
        text = f"{len(inside)} of {total} controllers are in rack {rack}: its loss leaves no majority"
        remedy = "# place controllers in three racks, or outside of the brokers' racks"
        # with fewer controllers or racks no placement survives
        avoidable = total > 2 and len({*racks.values(), *facts.cluster.racks.values()} - {NO_RACK}) > 2
        subject = f"controllers {names_text(inside)}"
        yield ReadinessFinding("quorum-loss", "obstacle" if avoidable else "notice", subject, text, remedy)


def _clients(facts: PreflightFacts) -> Iterator[ReadinessFinding]:
    for address, reason in sorted(facts.jmx_unanswered.items()):
        text = f"its JMX port did not respond: {reason}"
        yield ReadinessFinding(
            "jmx-silent", "unknown", address, text, "# open the JMX port to this host, or leave out --jmx"
        )
    jmx = facts.jmx or {}
    missing = [broker for broker in facts.enforcement.responses if broker not in jmx]
    if missing:
        text = (
            f"the Produce versions of their clients are unknown; below {PRODUCE_WITH_RACKS} they get other error codes"
        )
        remedy = "# name the JMX port of each broker: --jmx HOST:PORT"
        yield ReadinessFinding("produce-versions-unknown", "notice", brokers_text(missing), text, remedy)
    requests: dict[int, int] = {}
    for report in jmx.values():
        for version, count in report.produce_requests.items():
            if version < PRODUCE_WITH_RACKS and count:
                requests[version] = requests.get(version, 0) + count
    if requests:
        listed = ", ".join(f"{version} ({count} requests)" for version, count in sorted(requests.items()))
        text = (
            f"clients use Produce {listed} since the brokers' start: they get NOT_ENOUGH_REPLICAS instead of"
            " NOT_ENOUGH_RACKS, and retry it as they do now"
        )
        remedy = "# nothing to do; clients with the overlay's jar see NotEnoughRacksException by name"
        yield ReadinessFinding("old-producers", "notice", "clients", text, remedy)
