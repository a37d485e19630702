"""Taking the steps of an adoption: each change is read before, made and verified on every broker after."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyhooks.adoption.plan import (
    STEPS,
    AdoptionContext,
    AdoptionStep,
    BrokerDifference,
    Change,
    RejectionReport,
    StepName,
    StepState,
    TopicSetting,
    difference_texts,
    first_left,
    plan_steps,
)
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.gate import MIN_INSYNC_RACKS
from pyhooks.kafka.topics import RejectedError
from pyhooks.placement.check_cli import make_report
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.preflight_judgement import PreflightFacts, in_sync_findings

VERIFY_S = 60.0
POLL_S = 0.5
# Plans of one command: a first one, and two for each step with changes, if no other process changes anything.
_PLANS_MAX = 10


class AdoptingCluster(Protocol):
    """Cluster, as far as an adoption is concerned."""

    def facts(self) -> PreflightFacts:
        """Return the state of the whole cluster.

        Raises:
            RackgateError: the cluster can't be queried.
        """

    def observe(self, topics: Collection[str]) -> PreflightFacts:
        """Return the state of brokers and of these topics.

        Raises:
            RackgateError: the cluster can't be queried.
        """

    def rejections(self) -> RejectionReport:
        """Return what brokers have counted; those that can't be read are in ``unread``."""

    def apply(self, change: Change) -> None:
        """Make a change.

        Raises:
            RejectedError: the cluster rejected the change, so nothing has changed.
            RackgateError: it is not known whether anything has changed, or will.
        """


@dataclass
class Adoption:
    """One run of the command."""

    cluster: AdoptingCluster
    context: AdoptionContext  # what is to be adopted
    until: StepName  # last step to take
    # called with a step before its changes are made, and with a report that is not met or unknown before the next step;
    # returns whether to go on
    agrees: Callable[[AdoptionStep], bool]
    show: Callable[[AdoptionStep], None]  # called with each step that is done, and with the one at which the run stops
    verify_s: float = VERIFY_S  # how long brokers may take to report a change, in seconds
    poll_s: float = POLL_S  # pause between two queries, in seconds
    _shown: set[StepName] = field(default_factory=set)

    def plan(self) -> tuple[tuple[AdoptionStep, ...], PreflightFacts]:
        """Query the cluster and return all steps, with the facts that they were derived from.

        Raises:
            RackgateError: the cluster can't be queried.
        """
        facts = self.cluster.facts()
        names = {topic.name for topic in self.context.goal.topics}
        goal = replace(self.context.goal, topics=tuple(one for one in facts.cluster.topics if one.name in names))
        self.context = replace(self.context, goal=goal)
        concerned = goal.concerned(facts.cluster)
        observation = ClusterObservation(facts.cluster, facts.enforcement)
        check = make_report(observation, concerned, strict=False, expect_racks=goal.racks).findings
        steps = plan_steps(facts, None, check, self.context)
        observed, enforced = (steps[STEPS.index(name)].state == "done" for name in ("observe", "enforce"))
        if observed and not enforced and STEPS.index(self.until) >= STEPS.index("report"):
            steps = plan_steps(facts, self.cluster.rejections(), check, self.context)
        return steps, facts

    def run(self) -> tuple[AdoptionStep, ...]:
        """Take steps until all are done, a check is not met or unknown, or the user does not agree.

        Raises:
            RackgateError: the cluster can't be queried.
        """
        taken: set[StepName] = set()
        agreed: AdoptionStep | None = None
        declined: AdoptionStep | None = None
        steps: tuple[AdoptionStep, ...] = ()
        for _ in range(_PLANS_MAX):
            steps, facts = self.plan()
            left = first_left(steps, self.until)
            self._show_done(steps, left)
            if left is None:
                return steps
            if left.name == "report" and not self.context.accepted and left.state != "pending":
                if not self.agrees(left):
                    declined = left
                    break
                self.context = replace(self.context, accepted=True)
                continue
            if left.state != "pending" or not left.changes or left.name in taken:
                break
            # planned again after the answer, which may have taken long
            if agreed is None or (agreed.name, agreed.changes) != (left.name, left.changes):
                if not self.agrees(left):
                    declined = left
                    break
                agreed = left
                continue
            taken.add(left.name)
            stopped = self._take(left, facts)
            if stopped is not None:
                steps = tuple(stopped if step.name == stopped.name else step for step in steps)
                break
        # a step that was declined has been shown with the question
        if (left := first_left(steps, self.until)) not in (None, declined):
            self.show(left)
        return steps

    def _show_done(self, steps: tuple[AdoptionStep, ...], left: AdoptionStep | None) -> None:
        for step in steps[: STEPS.index(self.until) + 1]:
            if left is not None and step.name == left.name:
                return
            if step.name not in self._shown:
                self._shown.add(step.name)
                self.show(step)

    def _take(self, step: AdoptionStep, planned: PreflightFacts) -> AdoptionStep | None:
        """Make the changes of a step; return it with its new state if it stopped."""
        for change in step.changes:
            # of hundreds of topics, only the one that is changed is read
            topics = [change.topic] if isinstance(change, TopicSetting) else []
            reported = self.cluster.observe(topics)
            before = change.differences(reported)
            if not before:
                continue
            command = change.command(self.context.commands)
            if any(not one.known for one in before):
                return _stopped(step, "unknown", f"not changed, since not every broker reports: {command}", before)
            # inherited values get another source when the features are enabled
            if _own_values(before) != _own_values(change.differences(planned)):
                return _stopped(step, "not met", f"not changed, since something else changed: {command}", before)
            # topics are changed one after another, and a broker may have failed since the preflight
            if late := tuple(self._late_replicas(change, reported)):
                text = f"not changed, since replicas are out of sync: {command}"
                return replace(step, state="not met", text=text, findings=late)
            why = ""
            try:
                self.cluster.apply(change)
            except RejectedError as error:
                return _stopped(step, "not met", str(error), ())
            except RackgateError as error:
                why = f" ({error})"
            after = self._verify(change, topics)
            if after:
                return _stopped(step, "unknown", f"not reported by every broker: {command}{why}", after)
        return None

    def _late_replicas(self, change: Change, reported: PreflightFacts) -> Iterator[str]:
        """Yield what is out of sync in a topic whose R is to be raised: the controller would forget who is eligible."""
        if isinstance(change, TopicSetting) and change.key == MIN_INSYNC_RACKS:
            for finding in in_sync_findings(reported, self.context.commands):
                if finding.subject == change.topic and finding.severity == "obstacle":
                    yield f"{finding.subject}: {finding.text} ({finding.code})"

    def _verify(self, change: Change, topics: Collection[str]) -> tuple[BrokerDifference, ...]:
        """Wait until every broker reports a change; return those that do not."""
        deadline = time.monotonic() + self.verify_s
        while True:
            try:
                after = change.differences(self.cluster.observe(topics))
            except RackgateError as error:
                after = (BrokerDifference(-1, str(error), known=False),)
            if not after or time.monotonic() >= deadline:
                return after
            time.sleep(self.poll_s)


def _own_values(differences: tuple[BrokerDifference, ...]) -> set[tuple[int, int | None]]:
    return {(one.broker, one.own) for one in differences}


def _stopped(
    step: AdoptionStep, state: StepState, text: str, differences: tuple[BrokerDifference, ...]
) -> AdoptionStep:
    return replace(step, state=state, text=text, findings=difference_texts(differences))
