"""Steps of adopting R (``min.insync.racks``) on topics: state, changes and commands of each. Pure functions.

The input is recorded: what each broker reported. What was not reported is unknown, never done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pyhooks.kafka import gate
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE
from pyhooks.placement.findings import Finding, names_text
from pyhooks.placement.gate_forecast import CheckedTopic, ConfigValue
from pyhooks.placement.preflight_judgement import PreflightFacts, PreflightGoal, preflight_findings
from pyhooks.placement.readiness import NOT_READY, READY, UNKNOWN, CommandWriter, readiness_status

StepName = Literal["preflight", "observe", "report", "enforce", "verify"]
StepState = Literal["done", "pending", "not met", "unknown"]
STEPS: tuple[StepName, ...] = get_args(StepName)
# Sources of a value that is in the metadata, on which brokers and controllers agree.
_METADATA_SOURCES = ("topic", "cluster")
# Risks that mean that R is not required where it should be; other risks are those of the placement.
_UNENFORCED = ("racks-below-expected", "internal-topic-requires-fewer-racks")
# What a broker without a report says in the metrics' place.
NO_METRICS = "its metrics were not read"


@dataclass(frozen=True)
class BrokerDifference:
    """Broker that does not report what a change sets."""

    broker: int
    text: str  # what it reports instead, or why it did not report
    known: bool  # whether it reported
    own: int | None = None  # the topic's own value that it reports instead; None if the topic inherits one


@dataclass(frozen=True)
class FeatureUpgrade:
    """Change: features at level 1."""

    features: tuple[str, ...]

    def command(self, commands: CommandWriter) -> str:
        """Return the command that makes the change."""
        return commands.kafka("features", "upgrade", *(word for name in self.features for word in _level_1(name)))

    def differences(self, facts: PreflightFacts) -> tuple[BrokerDifference, ...]:
        """Return the registered brokers that do not report all features at level 1."""
        return tuple(_level_differences(self.features, facts))


@dataclass(frozen=True)
class TopicSetting:
    """Change: a config of a topic that takes a number of racks."""

    topic: str
    key: str  # ``min.insync.racks``, of which a higher value is left as it is, or ``min.insync.racks.observe``
    racks: int

    def command(self, commands: CommandWriter) -> str:
        """Return the command that makes the change."""
        return commands.kafka("configs", "--alter", "--topic", self.topic, "--add-config", f"{self.key}={self.racks}")

    def differences(self, facts: PreflightFacts) -> tuple[BrokerDifference, ...]:
        """Return the brokers with replicas of the topic that do not report the value."""
        topic = next((one for one in facts.cluster.topics if one.name == self.topic), None)
        hosts = _hosts([topic]) if topic is not None else frozenset()
        if topic is None or not hosts:
            unknown = topic.unanswered if topic is not None else ""
            return (BrokerDifference(-1, f"topic {self.topic}: {unknown or 'there is no such topic'}", known=False),)
        return tuple(self._host_differences(topic, hosts, facts))

    def _host_differences(
        self, topic: CheckedTopic, hosts: Collection[int], facts: PreflightFacts
    ) -> Iterator[BrokerDifference]:
        for broker in sorted(hosts):
            requirements = topic.by_broker.get(broker)
            if requirements is None:
                reason = facts.enforcement.unresponsive.get(broker, "it did not report the topic's settings")
                yield BrokerDifference(broker, f"topic {self.topic}: {reason}", known=False)
                continue
            value = requirements.racks if self.key == MIN_INSYNC_RACKS else requirements.observed
            if not self._satisfied_by(value):
                text = f"{value.value} ({value.source})" if value is not None else "not set"
                own = value.value if value is not None and value.source == "topic" else None
                yield BrokerDifference(broker, f"topic {self.topic}: {self.key} is {text}", known=True, own=own)

    def _satisfied_by(self, value: ConfigValue | None) -> bool:
        if value is None:
            return False
        if self.key == MIN_INSYNC_RACKS:
            return value.value >= self.racks and value.source in _METADATA_SOURCES
        return value.value == self.racks


Change = FeatureUpgrade | TopicSetting


@dataclass(frozen=True)
class ObservedRejections:
    """Accepted appends with acks=all that ``min.insync.racks.observe`` would have rejected, counted by one broker.

    A broker drops the meters of a topic when it stops leading it. Its total continues until its restart.
    """

    by_topic: Mapping[str, int]  # of topics that it leads
    total: int
    produce_requests: Mapping[str, int] = field(default_factory=dict)  # of topics that it leads

    @property
    def earlier(self) -> int:
        """Number of appends to topics that it no longer leads."""
        return max(0, self.total - sum(self.by_topic.values()))


@dataclass(frozen=True)
class RejectionReport:
    """Metrics of the brokers that could be read, and reasons why others could not."""

    rejections: Mapping[int, ObservedRejections] = field(default_factory=dict)  # by broker
    unread: Mapping[str, str] = field(default_factory=dict)  # by address or node


@dataclass(frozen=True)
class AdoptionStep:
    """State of a step."""

    name: StepName
    # ``done``; ``pending``, if it or an earlier step has changes to make; ``not met`` or ``unknown``, if a check of it
    # stands against going on
    state: StepState
    does: str  # what it does, in a line
    why: str  # why, in a line
    text: str = ""  # its result so far, or what it waits for
    changes: tuple[Change, ...] = ()  # changes to make
    commands: tuple[str, ...] = ()  # shell commands that do the same, none if it is done
    findings: tuple[str, ...] = ()  # sentences about what was found, the worst first


@dataclass(frozen=True)
class AdoptionContext:
    """What is to be adopted, and how commands reach the cluster."""

    goal: PreflightGoal  # R and topics
    commands: CommandWriter
    preflight: str  # command of the preflight
    report: str  # command that reads the report
    accepted: bool = False  # whether to go on though appends would have been rejected, or it is unknown how many


def plan_steps(
    facts: PreflightFacts, report: RejectionReport | None, check: Sequence[Finding], context: AdoptionContext
) -> tuple[AdoptionStep, ...]:
    """Return all steps with their states.

    ``report`` is None if the metrics were not read. ``check`` has the findings of ``rackgate check --expect-racks``
    about the topics of the goal and the cluster.
    """
    enforce = _enforce(facts, context)
    preflight = _preflight(facts, context, enforced=enforce.state == "done")
    observe = _observe(facts, context, enforced=enforce.state == "done")
    rejections = _report(facts, report, context, observe, enforced=enforce.state == "done")
    steps = (preflight, observe, rejections, enforce, _verify(facts, check, context, enforce))
    return tuple(replace(step, commands=()) if step.state == "done" else step for step in steps)


def first_left(steps: Iterable[AdoptionStep], until: StepName) -> AdoptionStep | None:
    """Return the first step that is not done, up to and including ``until``; None if all are."""
    last = STEPS.index(until)
    return next((step for step in steps if step.state != "done" and STEPS.index(step.name) <= last), None)


def exit_status(steps: Iterable[AdoptionStep], until: StepName, *, dry_run: bool = False) -> int:
    """Return 0 if all steps up to ``until`` are done, 1 if the command stopped before, 2 if something is unknown.

    With ``dry_run`` a step with changes to make counts as done.
    """
    left = first_left(steps, until)
    if left is None or (dry_run and left.state == "pending"):
        return READY
    return UNKNOWN if left.state == "unknown" else NOT_READY


def _level_1(feature: str) -> tuple[str, str]:
    return "--feature", f"{feature}=1"


def _level_differences(features: Collection[str], facts: PreflightFacts) -> Iterator[BrokerDifference]:
    for broker in sorted(facts.cluster.brokers):
        response = facts.enforcement.responses.get(broker)
        if response is None:
            reason = facts.enforcement.unresponsive.get(broker, "it did not respond")
            yield BrokerDifference(broker, reason, known=False)
        elif below := [name for name in features if response.levels.get(name, 0) < 1]:
            yield BrokerDifference(broker, f"{names_text(below)} at level 0", known=True)


def _hosts(topics: Iterable[CheckedTopic]) -> frozenset[int]:
    return frozenset(replica for topic in topics for one in topic.partitions for replica in one.replicas)


def difference_texts(differences: Iterable[BrokerDifference]) -> tuple[str, ...]:
    """Return a sentence for each difference."""
    return tuple(f"broker {one.broker}: {one.text}" if one.broker >= 0 else one.text for one in differences)


def _changing_step(
    step: AdoptionStep, done_text: str, settings: Sequence[Change], facts: PreflightFacts, context: AdoptionContext
) -> AdoptionStep:
    """Return a step that makes changes: done if every broker reports them all, else with those that are left."""
    differences = [one for change in settings for one in change.differences(facts)]
    left = tuple(change for change in settings if any(one.known for one in change.differences(facts)))
    if not differences:
        return replace(step, state="done", text=done_text)
    return replace(
        step,
        state="pending" if left else "unknown",
        changes=left,
        commands=tuple(change.command(context.commands) for change in left),
        findings=difference_texts(differences),
    )


def _preflight(facts: PreflightFacts, context: AdoptionContext, *, enforced: bool) -> AdoptionStep:
    does = f"check whether {MIN_INSYNC_RACKS}={context.goal.racks} can be enforced"
    why = "an obstacle that is found later rejects writes, or voids the promise"
    if enforced:
        return AdoptionStep("preflight", "done", does, why, f"{MIN_INSYNC_RACKS} is enforced already")
    findings = preflight_findings(facts, context.goal, context.commands)
    status = readiness_status(findings)
    state: StepState = "done" if status == READY else "not met" if status == NOT_READY else "unknown"
    shown = [one for one in findings if one.severity != "notice"]
    notices = len(findings) - len(shown)
    text = "ready" if state == "done" else f"{len(shown)} found"
    return AdoptionStep(
        "preflight",
        state,
        does,
        why,
        f"{text}, {notices} notice{'s' * (notices != 1)}",
        commands=(context.preflight,),
        findings=tuple(f"{one.subject}: {one.text} ({one.code})" for one in shown),
    )


def _observe(facts: PreflightFacts, context: AdoptionContext, *, enforced: bool) -> AdoptionStep:
    racks = context.goal.racks
    does = f"set {MIN_INSYNC_RACKS_OBSERVE}={racks} on topics, which rejects nothing"
    why = "brokers count and log what would be rejected, before any producer is"
    if enforced:
        return AdoptionStep("observe", "done", does, why, f"{MIN_INSYNC_RACKS} is enforced already")
    settings: list[Change] = [
        TopicSetting(topic.name, MIN_INSYNC_RACKS_OBSERVE, racks)
        for topic in context.goal.concerned(facts.cluster)
        if TopicSetting(topic.name, MIN_INSYNC_RACKS, racks).differences(facts)
    ]
    return _changing_step(
        AdoptionStep("observe", "pending", does, why), "every broker observes", settings, facts, context
    )


def _report(
    facts: PreflightFacts,
    report: RejectionReport | None,
    context: AdoptionContext,
    observe: AdoptionStep,
    *,
    enforced: bool,
) -> AdoptionStep:
    does = "read from every broker how many appends would have been rejected"
    why = "after enforcement these fail at the producers, or wait for racks"
    if enforced:
        return AdoptionStep("report", "done", does, why, f"{MIN_INSYNC_RACKS} is enforced already")
    commands = (context.report,)
    if observe.state != "done":
        return AdoptionStep("report", "pending", does, why, "nothing is observed yet", commands=commands)
    if report is None:
        return AdoptionStep("report", "pending", does, why, "not read", commands=commands)
    topics = context.goal.concerned(facts.cluster)
    known = tuple(_rejected(facts, report, topics, context.goal.racks))
    unread = tuple(f"{name}: {reason}" for name, reason in sorted(report.unread.items()))
    missing = sorted(_hosts(topics) - report.rejections.keys())
    unread += tuple(f"broker {broker}: {NO_METRICS}" for broker in missing)
    requests = sum(
        count
        for rejections in report.rejections.values()
        for name, count in rejections.produce_requests.items()
        if name in {topic.name for topic in topics}
    )
    text = f"{requests} produce requests were counted by the leaders since they lead"
    state: StepState = "done"
    if known:
        state, text = "not met", f"writes would have been rejected; {text}"
    elif missing:
        beans = "kafka.server:type=BrokerTopicMetrics,name=ObservedRackCheckFailuresPerSec"
        line = f"If {MIN_INSYNC_RACKS} were {context.goal.racks}, this leader would reject writes"
        state, text = "unknown", f"not all brokers were read: name their JMX ports with --jmx, or read {beans}"
        text += f" on each, or its log for lines '{line}', and continue with --accept-report"
    elif requests:
        text = f"nothing would have been rejected; {text}"
    else:
        text = "nothing was produced since the leaders lead, so nothing would have been rejected; observe for longer"
    if state != "done" and context.accepted:
        state, text = "done", f"accepted with --accept-report: {text}"
    return AdoptionStep("report", state, does, why, text, commands=commands, findings=known + unread)


def _rejected(
    facts: PreflightFacts, report: RejectionReport, topics: Sequence[CheckedTopic], racks: int
) -> Iterator[str]:
    names = {topic.name for topic in topics}
    for broker, rejections in sorted(report.rejections.items()):
        for name, count in sorted(rejections.by_topic.items()):
            if name in names and count:
                yield f"{name}: {count} appends with acks=all on broker {broker} would have been rejected"
        if rejections.earlier:
            yield f"broker {broker}: {rejections.earlier} appends to topics it led earlier would have been rejected"
    for topic in topics:
        for one in topic.partitions:
            needed = gate.capped(racks, len(one.replicas))
            inside = gate.racks_of(one.isr, facts.cluster.racks)
            if one.leader >= 0 and len(inside) < needed:
                found = names_text(sorted(inside)) or "none"
                yield f"{one.topic}-{one.number}: now in sync in {len(inside)} of {needed} racks ({found})"


def _enforce(facts: PreflightFacts, context: AdoptionContext) -> AdoptionStep:
    racks = context.goal.racks
    does = f"enable the features and set {MIN_INSYNC_RACKS}={racks} on topics"
    why = f"from then on acks=all waits for in-sync replicas in {racks} racks, and is rejected with fewer"
    off = tuple(name for name in (ELR_FEATURE, RACKS_FEATURE) if _level_differs(name, facts))
    settings: list[Change] = [FeatureUpgrade(off)] if off else []
    settings += [TopicSetting(topic.name, MIN_INSYNC_RACKS, racks) for topic in context.goal.concerned(facts.cluster)]
    return _changing_step(
        AdoptionStep("enforce", "pending", does, why), "every broker requires it", settings, facts, context
    )


def _level_differs(feature: str, facts: PreflightFacts) -> bool:
    """Return whether a broker does not report level 1, or no broker is known."""
    return not facts.cluster.brokers or any(_level_differences((feature,), facts))


def _verify(
    facts: PreflightFacts, check: Sequence[Finding], context: AdoptionContext, enforce: AdoptionStep
) -> AdoptionStep:
    racks = context.goal.racks
    does = f"check that every broker enforces {MIN_INSYNC_RACKS}={racks}, by its own report"
    why = "a leader that does not enforce it lets one rack acknowledge alone"
    commands = (context.commands.rackgate("check", *context.goal.topic_options, "--expect-racks", str(racks)),)
    if enforce.state != "done":
        return AdoptionStep("verify", "pending", does, why, "nothing is enforced yet", commands=commands)
    wrong = [one for one in check if one.severity == "error" or one.code in _UNENFORCED]
    unknown = [one for one in check if one.severity == "unknown"]
    state: StepState = "not met" if wrong else "unknown" if unknown else "done"
    risks = sum(one.severity == "risk" and one.code not in _UNENFORCED for one in check)
    brokers = len(facts.enforcement.responses)
    text = f"{brokers} broker{'s' * (brokers != 1)} enforce it" if state == "done" else ""
    if risks:
        text += f"{'; ' * bool(text)}rackgate check reports {risks} risk{'s' * (risks != 1)} of placements"
    findings = tuple(f"{one.topic or 'cluster'}: {one.means} ({one.code})" for one in (*wrong, *unknown))
    return AdoptionStep("verify", state, does, why, text, commands=commands, findings=findings)
