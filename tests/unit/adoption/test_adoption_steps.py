"""Steps of ``rackgate adopt`` on a simulated cluster: each transition, what is changed, and the exit status."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import pytest

from pyhooks.adoption.cluster import rejections_of
from pyhooks.adoption.plan import (
    STEPS,
    AdoptionContext,
    AdoptionStep,
    Change,
    FeatureUpgrade,
    ObservedRejections,
    RejectionReport,
    StepName,
    TopicSetting,
    exit_status,
)
from pyhooks.adoption.run import Adoption
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, METADATA_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE
from pyhooks.kafka.topics import RejectedError
from pyhooks.placement.enforcement import BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)
from pyhooks.placement.preflight_judgement import PreflightFacts, PreflightGoal
from pyhooks.placement.readiness import CommandWriter

RACKS = {1: "a", 2: "b", 3: "c"}
COMMANDS = CommandWriter("k1:9092")
M = ConfigValue(2, "cluster")
UPGRADE = (
    "kafka-features.sh --bootstrap-server k1:9092 upgrade"
    " --feature eligible.leader.replicas.version=1 --feature min.insync.racks.version=1"
)
OBSERVE = "kafka-configs.sh --bootstrap-server k1:9092 --alter --topic orders --add-config min.insync.racks.observe=2"
ENFORCE = "kafka-configs.sh --bootstrap-server k1:9092 --alter --topic orders --add-config min.insync.racks=2"
CHECK = "rackgate check --bootstrap k1:9092 --topic orders --expect-racks 2"
IDLE = ObservedRejections({}, 0)


@dataclass
class SimulatedCluster:
    """Cluster with one topic."""

    placement: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2, 3)
    level: int = 0
    racks: int | None = None  # of the topic
    observed: int | None = None
    silent: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()  # brokers that report what was in force at the beginning
    counted: dict[int, ObservedRejections] = field(default_factory=lambda: dict.fromkeys(RACKS, IDLE))
    exists: bool = True
    fails: Exception | None = None  # of each change
    applies: bool = True  # whether a change is applied, though it may fail
    changes: list[Change] = field(default_factory=list)
    reads: int = 0

    def facts(self) -> PreflightFacts:
        return self.observe(["orders"])

    def observe(self, topics: Collection[str]) -> PreflightFacts:
        responses = {broker: self._response(broker) for broker in RACKS if broker not in self.silent}
        enforcement = Enforcement(responses, dict.fromkeys(self.silent, "no response within 30 s"))
        partition = ReportedPartition("orders", 0, 1, self.placement, self.isr)
        settings = {broker: self._settings(broker) for broker in self.placement if broker in responses}
        requirements = max(settings.values(), key=lambda one: one.min_racks, default=None)
        topic = CheckedTopic("orders", False, (partition,), requirements, settings)
        brokers = {broker: Broker(broker, rack, False, f"k{broker}:9092") for broker, rack in RACKS.items()}
        snapshot = ClusterSnapshot(
            "id", brokers, (topic,) * (self.exists and "orders" in topics), enforcement.enforced, tuple(RACKS), {}
        )
        return PreflightFacts(snapshot, enforcement)

    def _response(self, broker: int) -> BrokerResponse:
        level = 0 if broker in self.behind else self.level
        levels = {METADATA_FEATURE: 30, ELR_FEATURE: level, RACKS_FEATURE: level}
        default = IsrRequirements(M, ConfigValue(1, "cluster"))
        return BrokerResponse(14, 1, levels, 9, default, replicas_by_source={"cluster": 2}, metadata_version=30)

    def _settings(self, broker: int) -> IsrRequirements:
        racks = None if broker in self.behind else self.racks
        observed = None if broker in self.behind or self.observed is None else ConfigValue(self.observed, "topic")
        # the controller sets the cluster's value when the features are enabled
        inherited = ConfigValue(1, "cluster" if self.level else "default")
        return IsrRequirements(M, ConfigValue(racks, "topic") if racks else inherited, observed)

    def rejections(self) -> RejectionReport:
        self.reads += 1
        return RejectionReport(self.counted, {})

    def apply(self, change: Change) -> None:
        self.changes.append(change)
        if self.applies and isinstance(change, FeatureUpgrade):
            self.level = 1
        elif self.applies and isinstance(change, TopicSetting) and change.key == MIN_INSYNC_RACKS:
            self.racks = change.racks
        elif self.applies and isinstance(change, TopicSetting):
            self.observed = change.racks
        if self.fails is not None:
            raise self.fails


def adoption(
    cluster: SimulatedCluster,
    until: StepName = "verify",
    agrees: Callable[[AdoptionStep], bool] = lambda step: step.name != "report",
    *,
    accepted: bool = False,
) -> Adoption:
    context = AdoptionContext(
        PreflightGoal(2, cluster.facts().cluster.topics, ("orders",)), COMMANDS, "preflight again", "report", accepted
    )
    return Adoption(cluster, context, until, agrees, lambda _: None, verify_s=0.05, poll_s=0.01)


def states(steps: Collection[AdoptionStep]) -> list[str]:
    return [step.state for step in steps]


def outcome(
    cluster: SimulatedCluster, until: StepName = "verify", *, accepted: bool = False
) -> tuple[int, StepName | None, AdoptionStep]:
    """Run an adoption; return exit status, name of the step that is left, and this step or the last one."""
    steps = adoption(cluster, until, accepted=accepted).run()
    left = next((step for step in steps if step.state != "done"), None)
    return exit_status(steps, until), left.name if left else None, left or steps[-1]


def test_all_steps_are_taken_in_order_and_a_repetition_changes_nothing() -> None:
    cluster = SimulatedCluster()
    assert outcome(cluster)[:2] == (0, None)
    assert cluster.changes == [
        TopicSetting("orders", MIN_INSYNC_RACKS_OBSERVE, 2),
        FeatureUpgrade((ELR_FEATURE, RACKS_FEATURE)),
        TopicSetting("orders", MIN_INSYNC_RACKS, 2),
    ]
    cluster.changes.clear()
    asked: list[AdoptionStep] = []

    def agree(step: AdoptionStep) -> bool:
        asked.append(step)
        return True

    steps = adoption(cluster, agrees=agree).run()
    assert (states(steps), asked, cluster.changes) == (["done"] * 5, [], [])
    assert steps[-1].text == "3 brokers enforce it"


@pytest.mark.parametrize(
    ("until", "left", "changes"),
    [("preflight", "observe", 0), ("observe", "report", 1), ("report", "enforce", 1), ("enforce", None, 3)],
)
def test_until_stops_after_a_step_with_status_0(until: StepName, left: StepName | None, changes: int) -> None:
    cluster = SimulatedCluster()
    steps = adoption(cluster, until).run()
    assert exit_status(steps, until) == 0
    assert next((step.name for step in steps if step.state != "done"), None) == left
    assert len(cluster.changes) == changes
    assert bool(cluster.reads) == (until in STEPS[2:])


def test_a_dry_run_has_the_commands_of_all_remaining_steps() -> None:
    cluster = SimulatedCluster()
    steps, _ = adoption(cluster).plan()
    assert states(steps) == ["done", "pending", "pending", "pending", "pending"]
    commands = [step.commands for step in steps]
    assert commands == [(), (OBSERVE,), ("report",), (UPGRADE, ENFORCE), (CHECK,)]
    assert (exit_status(steps, "verify", dry_run=True), exit_status(steps, "verify")) == (0, 1)
    assert cluster.changes == []
    cluster.level, cluster.observed = 1, 2
    assert [step.commands for step in adoption(cluster).plan()[0]][3] == (ENFORCE,)


def test_a_placement_that_cannot_reach_r_stops_at_preflight() -> None:
    cluster = SimulatedCluster()
    cluster.facts = lambda: _in_one_rack(SimulatedCluster())  # type: ignore[method-assign]
    steps = adoption(cluster).run()
    assert (exit_status(steps, "verify"), states(steps)) == (1, ["not met", *["pending"] * 4])
    assert "placement-in-too-few-racks" in steps[0].findings[0]
    assert exit_status(steps, "verify", dry_run=True) == 1
    assert (steps[0].commands, cluster.changes) == (("preflight again",), [])


def _in_one_rack(cluster: SimulatedCluster) -> PreflightFacts:
    facts = cluster.observe(["orders"])
    brokers = {1: Broker(1, "a"), 2: Broker(2, "a"), 3: Broker(3, "a"), 4: Broker(4, "b")}
    responses = {**facts.enforcement.responses, 4: facts.enforcement.responses[1]}
    snapshot = replace(facts.cluster, brokers=brokers)
    return replace(facts, cluster=snapshot, enforcement=Enforcement(responses, {}))


def test_replicas_out_of_sync_stop_at_preflight() -> None:
    status, left, step = outcome(SimulatedCluster(isr=(1, 2)))
    assert (status, left, "replicas-out-of-sync" in step.findings[0]) == (1, "preflight", True)


def test_a_silent_broker_is_unknown_at_preflight_and_after_the_adoption() -> None:
    for cluster in (SimulatedCluster(silent=(3,)), SimulatedCluster(silent=(3,), level=1, racks=2)):
        status, left, step = outcome(cluster)
        assert (status, left, cluster.changes) == (2, "preflight", [])
        assert "broker 3" in step.findings[0]


def test_each_step_that_is_already_done_is_left_out() -> None:
    cluster = SimulatedCluster(observed=2)
    assert outcome(cluster)[0] == 0
    assert [change.command(COMMANDS) for change in cluster.changes] == [UPGRADE, ENFORCE]
    cluster = SimulatedCluster(level=1, racks=3)
    assert (outcome(cluster)[0], cluster.changes) == (0, [])


def test_another_observed_number_is_changed() -> None:
    cluster = SimulatedCluster(observed=3)
    assert outcome(cluster, "observe")[0] == 0
    assert cluster.observed == 2


def test_appends_that_would_have_been_rejected_stop_at_the_report_unless_accepted() -> None:
    counted = {**dict.fromkeys(RACKS, IDLE), 2: ObservedRejections({"orders": 7, "other": 9}, 20, {"orders": 50})}
    cluster = SimulatedCluster(observed=2, counted=counted)
    status, left, step = outcome(cluster)
    assert (status, left, step.state) == (1, "report", "not met")
    assert step.findings == (
        "orders: 7 appends with acks=all on broker 2 would have been rejected",
        "broker 2: 4 appends to topics it led earlier would have been rejected",
    )
    assert "50 produce requests" in step.text
    assert cluster.changes == []
    assert outcome(cluster, accepted=True)[0] == 0
    assert cluster.racks == 2


def test_a_report_without_any_produce_request_says_so() -> None:
    cluster = SimulatedCluster(observed=2)
    steps, _ = adoption(cluster, "report").plan()
    assert (steps[2].state, steps[2].text.split(",")[0]) == ("done", "nothing was produced since the leaders lead")
    cluster.counted[1] = ObservedRejections({}, 0, {"orders": 7})
    steps, _ = adoption(cluster, "report").plan()
    assert steps[2].text.startswith("nothing would have been rejected; 7 produce requests were counted")


def test_rejections_of_other_topics_do_not_count() -> None:
    counted = dict.fromkeys(RACKS, ObservedRejections({"other": 9}, 9))
    assert outcome(SimulatedCluster(counted=counted))[0] == 0


def test_a_broker_without_metrics_makes_the_report_unknown() -> None:
    cluster = SimulatedCluster(observed=2, counted={1: IDLE, 2: IDLE})
    status, left, step = outcome(cluster)
    assert (status, left, step.findings) == (2, "report", ("broker 3: its metrics were not read",))
    assert "--jmx" in step.text
    asked: list[StepName] = []

    def agree(step: AdoptionStep) -> bool:
        asked.append(step.name)
        return True

    steps = adoption(cluster, agrees=agree).run()
    assert (states(steps), asked) == (["done"] * 5, ["report", "enforce"])


def test_nothing_is_changed_without_agreement() -> None:
    cluster = SimulatedCluster()
    steps = adoption(cluster, agrees=lambda _: False).run()
    assert (exit_status(steps, "verify"), cluster.changes) == (1, [])


def test_a_check_that_fails_while_the_user_is_asked_stops_the_change() -> None:
    cluster = SimulatedCluster(observed=2)

    def lose_a_replica(step: AdoptionStep) -> bool:
        cluster.isr = (1, 2)
        return step.name == "enforce"

    steps = adoption(cluster, agrees=lose_a_replica).run()
    assert (exit_status(steps, "verify"), states(steps)[0], cluster.changes) == (1, "not met", [])


def test_a_value_that_changes_before_the_change_is_not_overwritten() -> None:
    cluster = SimulatedCluster(observed=2, level=1)
    observe = cluster.observe
    reads = 0

    def changed_by_another(topics: Collection[str]) -> PreflightFacts:
        nonlocal reads
        reads += 1
        # the plan, the plan after the answer, then the reading before the change
        cluster.racks = 1 if reads > 2 else None
        return observe(topics)

    adopting = adoption(cluster)
    cluster.observe = changed_by_another  # type: ignore[method-assign]
    steps = adopting.run()
    assert (exit_status(steps, "verify"), steps[3].state, cluster.changes) == (1, "not met", [])
    assert "something else changed" in steps[3].text


def test_r_is_not_raised_once_a_replica_fell_behind_since_the_preflight() -> None:
    cluster = SimulatedCluster(observed=2)
    apply = cluster.apply

    def broker_fails_after(change: Change) -> None:
        apply(change)
        cluster.isr = (1, 2)

    cluster.apply = broker_fails_after  # type: ignore[method-assign]
    status, left, step = outcome(cluster)
    assert (status, left, cluster.changes) == (1, "enforce", [FeatureUpgrade((ELR_FEATURE, RACKS_FEATURE))])
    assert step.text == f"not changed, since replicas are out of sync: {ENFORCE}"
    assert "broker 3 out of sync in partition 0" in step.findings[0]


class KilledError(BaseException):
    """End of the operator's process."""


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_at_each_change_a_repetition_continues(number: int, *, applied: bool) -> None:
    cluster = SimulatedCluster()
    apply = cluster.apply

    def killed(change: Change) -> None:
        last = len(cluster.changes) + 1 == number
        if not last or applied:
            apply(change)
        if last:
            raise KilledError

    cluster.apply = killed  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        outcome(cluster)
    cluster.apply = apply  # type: ignore[method-assign]
    assert outcome(cluster)[:2] == (0, None)
    assert (cluster.observed, cluster.level, cluster.racks, len(cluster.changes)) == (2, 1, 2, 3)


def test_a_rejected_change_is_not_met_and_an_unanswered_one_is_verified() -> None:
    cluster = SimulatedCluster(fails=RejectedError("rejected by the cluster: policy", exit_status=1), applies=False)
    status, left, step = outcome(cluster)
    assert (status, left, step.text) == (1, "observe", "rejected by the cluster: policy")
    cluster = SimulatedCluster(fails=RackgateError("no response in time"))
    assert outcome(cluster)[:2] == (0, None)
    cluster = SimulatedCluster(fails=RackgateError("no response in time"), applies=False)
    status, left, step = outcome(cluster)
    assert (status, left) == (2, "observe")
    assert "no response in time" in step.text
    assert step.findings[0] == "broker 1: topic orders: min.insync.racks.observe is not set"


def test_a_broker_that_does_not_apply_a_change_makes_it_unknown_and_the_repetition_continues() -> None:
    cluster = SimulatedCluster(behind=(3,))
    status, left, step = outcome(cluster)
    assert (status, left, len(cluster.changes)) == (2, "observe", 1)
    assert step.findings == ("broker 3: topic orders: min.insync.racks.observe is not set",)
    cluster.behind = ()
    assert outcome(cluster)[0] == 0
    assert len(cluster.changes) == 3


def test_verify_reports_what_the_check_finds() -> None:
    cluster = SimulatedCluster(level=1, racks=2, isr=(1,))
    status, left, step = outcome(cluster)
    assert (status, left, step.state) == (1, "verify", "not met")
    assert any("too-few-racks" in text for text in step.findings)


def test_a_deleted_topic_is_unknown() -> None:
    cluster = SimulatedCluster(observed=2)
    setting = TopicSetting("orders", MIN_INSYNC_RACKS, 2)
    cluster.exists = False
    (difference,) = setting.differences(cluster.facts())
    assert (difference.known, difference.text) == (False, "topic orders: there is no such topic")


def test_rejections_are_read_from_beans() -> None:
    bean = "kafka.server:type=BrokerTopicMetrics,name="
    rows = [
        (f"{bean}ObservedRackCheckFailuresPerSec", "Count", "12"),
        (f"{bean}ObservedRackCheckFailuresPerSec,topic=orders", "Count", "5"),
        (f"{bean}TotalProduceRequestsPerSec", "Count", "90"),
        (f"{bean}TotalProduceRequestsPerSec,topic=orders", "Count", "40"),
    ]
    rejections = rejections_of(rows)
    assert rejections == ObservedRejections({"orders": 5}, 12, {"orders": 40})
    assert rejections.earlier == 7
    with pytest.raises(LookupError, match="ObservedRackCheckFailuresPerSec"):
        rejections_of(rows[1:])
