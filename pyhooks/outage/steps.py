"""Steps of lowering R of topics and of restoring it, each recorded in the audit before it is taken.

A process can end after any step. ``pyhooks.audit.replay`` derives from the records and the topic's value what was done,
and ``restore`` finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, Protocol

from pyhooks.audit import audit_record
from pyhooks.audit.audit_record import AuditRecord, Event, Terms, make_record, time_text
from pyhooks.audit.journal import AuditContents, AuditJournal
from pyhooks.audit.replay import CHANGE_WINDOW, Lowering, TopicPlan, earlier_contenders, plan_topic
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.topics import RejectedError
from pyhooks.placement.topic_observation import NO_TOPIC, ObservedTopic, describe, restore_waits, value_text

VERIFY_S = 30.0
POLL_S = 0.5

Result = Literal[
    "lowered", "restored", "closed", "recorded", "active", "rejected", "lost", "waiting", "superseded", "unknown"
]
# Results by exit status; all others are 0.
NOT_DONE: frozenset[Result] = frozenset({"rejected", "lost", "waiting", "superseded"})


@dataclass(frozen=True)
class TopicOutcome:
    """Outcome for one topic."""

    topic: str
    result: Result
    text: str  # what it means, in a sentence


def exit_status(outcomes: Iterable[TopicOutcome]) -> int:
    """Return 2 if an outcome is unknown, else 1 if something was not done, else 0."""
    results = {outcome.result for outcome in outcomes}
    return 2 if "unknown" in results else 1 if results & NOT_DONE else 0


class TopicConfigs(Protocol):
    """Cluster, as far as R of topics is concerned."""

    def observe(self, topics: Collection[str]) -> Mapping[str, ObservedTopic]:
        """Return topics by name; a topic that does not exist, or is hidden from this principal, is missing.

        Raises:
            RackgateError: the cluster can't be queried.
        """

    def set_racks(self, topic: str, value: int | None) -> None:
        """Set R on a topic, or remove the topic's value.

        Raises:
            RejectedError: the cluster rejected the change, so nothing has changed.
            RackgateError: it is not known whether the value has changed, or will.
        """


@dataclass(frozen=True)
class Patience:
    """Waits of the steps."""

    verify_s: float = VERIFY_S  # how long brokers may take to report a changed value
    poll_s: float = POLL_S  # pause between two queries
    now: Callable[[], datetime] = audit_record.now  # returns the current time


@dataclass(frozen=True)
class Operator:
    """Operator who changes topics of one cluster."""

    cluster: TopicConfigs
    journal: AuditJournal
    by: str  # user and host, for the records
    patience: Patience = Patience()

    def lower(self, terms: Sequence[Terms], accept_file_only: Callable[[str], bool]) -> tuple[TopicOutcome, ...]:
        """Lower R of topics.

        ``accept_file_only`` is called with the reason if the audit topic does not take records; it returns whether to
        go on with the audit file alone.

        Raises:
            RackgateError: the audit file can't be read, or another process holds its lock; nothing changed.
        """
        with self.journal.lock():
            topics = [one.topic for one in terms]
            self._settle(topics)
            if rejections := _reject_open(topics, self.journal.read()):
                return rejections
            outcomes: list[TopicOutcome] = []
            accepted: bool | None = None

            def accept_once(error: str) -> bool:
                nonlocal accepted
                if accepted is None:
                    accepted = accept_file_only(error)
                return accepted

            for one in terms:
                if accepted is False:
                    outcomes.append(
                        TopicOutcome(one.topic, "rejected", "not changed: the audit topic takes no records")
                    )
                else:
                    outcomes.append(_outcome_of(one.topic, partial(self._lower_one, one, accept_once)))
            return tuple(outcomes)

    def _lower_one(self, terms: Terms, accept_file_only: Callable[[str], bool]) -> TopicOutcome:
        began = self.patience.now()
        error_text = self._record("intended", [terms])
        if error_text and not accept_file_only(error_text):
            self._record("abandoned", [terms], "the audit topic did not take the record")
            return TopicOutcome(terms.topic, "rejected", f"not changed: the audit topic takes no records: {error_text}")
        # read after the own record is there: of two operators at least one sees the other
        contents = self.journal.read()
        if not error_text and contents.topic_error and not accept_file_only(contents.topic_error):
            text = f"not changed: the audit topic can't be read: {contents.topic_error}"
            return self._close(terms, "abandoned", "rejected", text)
        open_ = contents.open_lowerings(terms.topic)
        for sequence in (contents.file.records, contents.topic.records):
            if rivals := earlier_contenders(terms, sequence, open_):
                text = f"{rivals[0].lowered_by} is lowering it as well, and was first; nothing was changed"
                return self._close(terms, "abandoned", "lost", text)
        try:
            before = self._observe(terms.topic)
        except RackgateError as error:
            text = f"it was not changed, since its value could not be read again: {error}"
            return self._close(terms, "abandoned", "unknown", text)
        if before.own_values != {terms.old} or before.in_force(terms.old) != terms.old_racks:
            text = f"min.insync.racks changed meanwhile: it {describe(before)}, and was {value_text(terms.old)}"
            return self._close(terms, "abandoned", "lost", text)
        if offline := before.offline():
            text = f"not changed: partition {', '.join(map(str, offline))} has no leader any more"
            return self._close(terms, "abandoned", "rejected", text)
        if self.patience.now() - began > CHANGE_WINDOW:
            # another host may have closed the record meanwhile
            text = f"not changed, since that took longer than {CHANGE_WINDOW.seconds} s; try again"
            return self._close(terms, "abandoned", "rejected", text)
        why = ""
        try:
            self.cluster.set_racks(terms.topic, terms.new)
        except RejectedError as error:
            return self._close(terms, "abandoned", "rejected", str(error))
        except RackgateError as error:
            why = str(error)
        after, verified = self._verify(terms.topic, terms.new)
        if verified and after:
            note = unverified_text(after)
            error_text = self._record("applied", [terms], note)
            text = f"min.insync.racks is {terms.new} (before: {value_text(terms.old)}){'; ' * bool(note)}{note}"
            return TopicOutcome(terms.topic, "lowered", text + file_only_text(error_text))
        if after and not after.unknown and not after.own_values & {terms.old, terms.new}:
            text = f"another client changed min.insync.racks at the same time: it {describe(after)}"
            return self._close(terms, "superseded", "lost", text)
        seen = f"it {describe(after)}" if after else "the cluster can't be queried"
        text = f"it is not known whether min.insync.racks was changed: {why or unreported_text(after)}; {seen}"
        return TopicOutcome(terms.topic, "unknown", text)

    def restore(
        self, topics: Collection[str] | None, *, due_only: bool, lowering: str | None = None
    ) -> tuple[TopicOutcome, ...]:
        """Restore topics, and record what commands that ended have left unrecorded.

        Args:
            topics: names; None for all with an open lowering.
            due_only: only those whose time is up, or whose racks are back if that was agreed.
            lowering: only those of this command.

        Raises:
            RackgateError: the audit file can't be read, or another process holds its lock; or the cluster can't be
                queried. Nothing changed.
        """
        contents = self.journal.read()
        chosen = sorted(
            {
                one.terms.topic
                for one in contents.lowerings
                if one.open
                and (topics is None or one.terms.topic in topics)
                and (lowering is None or one.terms.lowering == lowering)
            }
        )
        if not chosen:
            return ()
        observed = self.cluster.observe(chosen)
        outcomes: dict[str, TopicOutcome] = {}
        unrecorded: dict[str, bool] = {}  # of the topics to change or to record
        for topic in chosen:
            plan = _plan(topic, contents, observed.get(topic))
            if isinstance(plan, TopicOutcome):
                outcomes[topic] = plan
                continue
            decision = _decide(plan, observed[topic], due_only=due_only, at=self.patience.now())
            if decision is None or plan.unrecorded:
                unrecorded[topic] = plan.unrecorded
            else:
                outcomes[topic] = decision
        if unrecorded:
            with self.journal.lock():
                for topic, settle in unrecorded.items():
                    step = partial(self._restore_one, topic, settle=settle, due_only=due_only)
                    outcomes[topic] = _outcome_of(topic, step)
        return tuple(outcomes[topic] for topic in chosen)

    def dismiss(self, topics: Collection[str], reason: str) -> tuple[TopicOutcome, ...]:
        """Close the open lowerings of topics without a change.

        Raises:
            RackgateError: the audit file can't be read or written, or another process holds its lock.
        """
        with self.journal.lock():
            contents = self.journal.read()
            open_ = [one.terms for topic in topics for one in contents.open_lowerings(topic)]
            error = self._record("superseded", open_, f"dismissed: {reason}") if open_ else ""
        return tuple(TopicOutcome(one.topic, "closed", f"dismissed: {reason}{file_only_text(error)}") for one in open_)

    def _restore_one(self, topic: str, *, settle: bool, due_only: bool) -> TopicOutcome:
        """Restore a topic, with the lock held, from what is read now; with ``settle`` record first what is missing."""
        settled = self._settle([topic]) if settle else {}
        contents = self.journal.read()
        if not contents.open_lowerings(topic):
            return settled.get(topic, TopicOutcome(topic, "closed", "another command has closed it"))
        observed = self.cluster.observe([topic]).get(topic)
        plan = _plan(topic, contents, observed)
        if isinstance(plan, TopicOutcome) or observed is None:
            return plan if isinstance(plan, TopicOutcome) else TopicOutcome(topic, "unknown", NO_TOPIC)
        if decision := _decide(plan, observed, due_only=due_only, at=self.patience.now()):
            return decision
        terms = [one.terms for one in plan.lowered]
        self._record("restoring", terms)
        # the record may have taken a while
        try:
            before = self._observe(topic)
        except RackgateError as error:
            return TopicOutcome(topic, "unknown", f"not restored, since its value could not be read again: {error}")
        if before.own_values != observed.own_values:
            return TopicOutcome(topic, "lost", f"not restored, since min.insync.racks changed: it {describe(before)}")
        if decision := _decide(plan, before, due_only=False, at=self.patience.now()):
            return decision
        why = ""
        try:
            self.cluster.set_racks(topic, plan.value)
        except RejectedError as error:
            return TopicOutcome(topic, "rejected", str(error))
        except RackgateError as error:
            why = str(error)
        after, verified = self._verify(topic, plan.value)
        if verified and after:
            racks = after.in_force(plan.value)
            # the cluster's value may have been lowered by hand, which is in no record
            below = f"but R in force is {racks}, and was {plan.racks} before" if racks < plan.racks else ""
            note = "; ".join(filter(None, [below, unverified_text(after)]))
            error_text = self._record("restored", terms, note)
            text = f"min.insync.racks is {value_text(plan.value)} again{'; ' * bool(note)}{note}"
            return TopicOutcome(topic, "lost" if below else "restored", text + file_only_text(error_text))
        if after and not after.unknown and not after.own_values & {plan.value, *observed.own_values}:
            text = f"another client changed min.insync.racks at the same time: it {describe(after)}"
            self._record("superseded", terms, text)
            return TopicOutcome(topic, "lost", text)
        seen = f"it {describe(after)}" if after else "the cluster can't be queried"
        text = f"it is not known whether min.insync.racks was restored: {why or unreported_text(after)}; {seen}"
        return TopicOutcome(topic, "unknown", text)

    def _settle(self, topics: Sequence[str]) -> dict[str, TopicOutcome]:
        """Record what ended commands have left unrecorded, with the lock held; return what was closed or recorded.

        An intention in the file of this host is certainly not in progress, since its process would hold the lock. Of
        one of another host that is certain after ``CHANGE_WINDOW``.
        """
        contents = self.journal.read()
        open_ = [topic for topic in topics if contents.open_lowerings(topic)]
        if not open_:
            return {}
        own = {record.terms.key for record in contents.file.records}
        at = self.patience.now()
        outcomes = {}
        for topic, observed in self.cluster.observe(open_).items():
            if observed.unknown or len(observed.own_values) != 1:
                continue
            (current,) = observed.own_values
            plan = plan_topic(topic, contents.lowerings, current)

            def ended(one: Lowering) -> bool:
                return one.terms.key in own or at - one.records[0].at > CHANGE_WINDOW

            text = f"it {describe(observed)}"
            steps: list[tuple[Event, list[Lowering], str]] = [
                ("abandoned", [one for one in plan.never_applied if ended(one)], f"was never applied: {text}"),
                ("restored", list(plan.restored), f"was restored by a command that ended then: {text}"),
                ("superseded", list(plan.superseded), f"another client changed it: {text}"),
                (
                    "applied",
                    [one for one in plan.lowered if one.state == "intended" and ended(one)],
                    f"was applied by a command that ended then: {text}",
                ),
            ]
            for event, lowerings, note in steps:
                if lowerings:
                    self._record(event, [one.terms for one in lowerings], note)
                    result: Result = "superseded" if event == "superseded" else "closed"
                    outcomes[topic] = TopicOutcome(topic, "recorded" if event == "applied" else result, note)
        return outcomes

    def _observe(self, topic: str) -> ObservedTopic:
        observed = self.cluster.observe([topic]).get(topic)
        if observed is None:
            raise RackgateError(f"topic {topic}: {NO_TOPIC}")
        if observed.unknown:
            raise RackgateError(f"topic {topic}: {observed.unknown}")
        return observed

    def _verify(self, topic: str, value: int | None) -> tuple[ObservedTopic | None, bool]:
        """Wait until all current brokers and all leaders report a value; return the last report, and whether they do.

        A broker that does not report it may be cut off from the controllers, and lead with the old value.
        """
        last = None
        deadline = time.monotonic() + self.patience.verify_s
        while True:
            try:
                last = self._observe(topic)
            except RackgateError:
                last = None
            if last is not None and last.own_values == {value} and not last.unverified_leaders():
                return last, True
            if time.monotonic() >= deadline:
                return last, False
            time.sleep(self.patience.poll_s)

    def _record(self, event: Event, terms: Sequence[Terms], note: str = "") -> str:
        """Append a record for each topic; return why the audit topic does not have them, or an empty text."""
        at = self.patience.now()
        records: list[AuditRecord] = [make_record(event, one, at=at, by=self.by, note=note) for one in terms]
        return self.journal.append(records)

    def _close(self, terms: Terms, event: Event, result: Result, text: str) -> TopicOutcome:
        self._record(event, [terms], text)
        return TopicOutcome(terms.topic, result, text)


def _outcome_of(topic: str, step: Callable[[], TopicOutcome]) -> TopicOutcome:
    """Return the outcome of a step; an error makes it unknown, and does not hide the outcomes of other topics."""
    try:
        return step()
    except RackgateError as error:
        return TopicOutcome(topic, "unknown", f"{error}; see 'rackgate audit' for what was changed")


def _plan(topic: str, contents: AuditContents, observed: ObservedTopic | None) -> TopicPlan | TopicOutcome:
    """Return the plan of a topic, or the outcome if its value is unknown."""
    if observed is None:
        return TopicOutcome(topic, "unknown", NO_TOPIC)
    if observed.unknown or len(observed.own_values) != 1:
        return TopicOutcome(topic, "unknown", observed.unknown or f"brokers differ: it {describe(observed)}")
    (current,) = observed.own_values
    return plan_topic(topic, contents.lowerings, current)


def _decide(plan: TopicPlan, observed: ObservedTopic, *, due_only: bool, at: datetime) -> TopicOutcome | None:
    """Return None if a topic is to be restored now, else the outcome."""
    if not plan.lowered:
        return TopicOutcome(plan.topic, "active", "another host recorded minutes ago that it lowers it")
    waits = restore_waits(plan, observed)
    if due_only and not plan.time_is_up(at) and (waits or not plan.until_healed):
        return TopicOutcome(plan.topic, "active", f"not due: lowered {until_text(plan)}")
    return TopicOutcome(plan.topic, "waiting", f"not restored: {'; '.join(waits)}") if waits else None


def _reject_open(topics: Iterable[str], contents: AuditContents) -> tuple[TopicOutcome, ...]:
    """Return a rejection for each topic that is lowered already."""
    return tuple(
        TopicOutcome(
            topic,
            "rejected",
            f"{open_[0].terms.lowered_by} lowered it at {time_text(open_[0].terms.began)} ({open_[0].terms.reason});"
            " see 'rackgate audit', and restore it first",
        )
        for topic in topics
        if (open_ := contents.open_lowerings(topic))
    )


def until_text(plan: TopicPlan) -> str:
    """Return until when a topic stays lowered."""
    times = [one.terms.until for one in plan.lowered if one.terms.until is not None]
    texts = [f"until {time_text(at)}" for at in sorted(times)[-1:]] + ["until racks are back"] * plan.until_healed
    return " or ".join(texts) or "lowered"


def unverified_text(observed: ObservedTopic) -> str:
    """Return which brokers did not report the new value; empty if all did."""
    if not observed.unverified:
        return ""
    brokers = ", ".join(map(str, observed.unverified))
    return f"not verified on unavailable brokers, which apply it before they lead: {brokers}"


def unreported_text(observed: ObservedTopic | None) -> str:
    """Return why a change could not be verified: which brokers did not report the topic's value."""
    if observed is None or not observed.unverified:
        return "not all brokers report it"
    return f"broker {', '.join(map(str, observed.unverified))} did not report it"


def file_only_text(error: str) -> str:
    """Return the note about a record that is in the audit file alone; empty if it is not."""
    return f"; recorded in the audit file alone: {error}" if error else ""
