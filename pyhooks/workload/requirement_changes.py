"""Changes of a topic's ISR requirements during a workload, with events from which checkers derive the valid values.

Events of op ``settings`` (see ``pyhooks.checkers.cluster_view``): the values that a topic was ``made``
with, those ``seen`` before a change, ``begin`` just before the request, and ``settled`` once every broker
that leads or replicates the topic reports the new values, or ``rejected``.

Fenced brokers are not awaited: before such a broker leads again it has applied the change, which precedes
its election in the metadata log. Brokers are queried by id, because an Admin client otherwise queries the
least busy one. A broker reports the values in its metadata and applies them to its logs in the same step a
moment later (DynamicConfigPublisher in core/src/main/scala/kafka/server/metadata). So even
after ``settled``, checkers allow a change time to take effect, see ``pyhooks.checkers.settling_times``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import SettingsDetails, SettingsStep
from pyhooks.kafka import topics
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, Requirement

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PROCESS = "settings"
SETTLED_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True)
class ReportedRequirements:
    """Requirements of a topic as reported by the brokers that lead or replicate it."""

    asked_ns: int  # when they were queried, monotonic
    answers: Mapping[int, Requirement] = field(default_factory=dict)  # broker id to reported requirement
    # broker id to error, for brokers without a usable response
    errors: Mapping[int, str] = field(default_factory=dict)
    # ids of the brokers that were not queried because they are fenced or unavailable
    fenced: tuple[int, ...] = ()

    def all_report(self, value: Requirement) -> bool:
        """Return whether brokers responded, and all of them reported this value."""
        return not self.errors and set(self.answers.values()) == {value}

    def describe_others(self, value: Requirement) -> str:
        """Describe the brokers that did not report this value."""
        other = [
            f"broker {broker} reports {requirement_text(requirement)}"
            for broker, requirement in sorted(self.answers.items())
            if requirement != value
        ]
        return "; ".join([*other, *(f"broker {broker}: {why}" for broker, why in sorted(self.errors.items()))])


@dataclass(frozen=True)
class SettledChange:
    """A change that has settled."""

    topic: str
    before: Requirement  # previous requirement
    value: Requirement  # new requirement
    brokers: tuple[int, ...]  # ids of the brokers that reported the new requirement
    fenced: tuple[int, ...]  # ids of the brokers that apply it when they are back
    reported_s: float  # seconds from the request until all of them had reported it


def requirement_text(value: Requirement) -> str:
    """Return a requirement as text."""
    return f"{MIN_INSYNC_REPLICAS}={value.replicas} and {MIN_INSYNC_RACKS}={value.racks}"


def query_requirements(client: AdminClient, topic: str) -> ReportedRequirements:
    """Query every unfenced broker that leads or replicates a topic for the topic's requirement.

    Raises:
        RackgateError: no broker responds, or there is no such topic.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    try:
        cluster = client.list_topics(timeout=topics.QUERY_S)
    except KafkaException as error:
        raise RackgateError(f"topic {topic}: no broker returns its metadata: {error.args[0].str()}") from error
    listed = cluster.topics
    if topic not in listed or listed[topic].error is not None:
        raise RackgateError(f"topic {topic}: there is no such topic")
    states = listed[topic].partitions.values()
    concerned = {int(broker) for state in states for broker in (state.leader, *state.replicas) if broker >= 0}
    # metadata lists unfenced brokers only
    brokers = sorted(concerned.intersection(cluster.brokers))
    reported = ReportedRequirements(time.monotonic_ns())
    asked = {
        broker: client.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=topics.QUERY_S, broker=broker
        )
        for broker in brokers
    }
    answers: dict[int, Requirement] = {}
    errors: dict[int, str] = {}
    for broker, futures in asked.items():
        (future,) = futures.values()
        try:
            values = future.result(timeout=2 * topics.QUERY_S)
        except KafkaException as error:
            errors[broker] = str(error.args[0].str())
        except TimeoutError:
            errors[broker] = f"no response within {2 * topics.QUERY_S:.0f} s"
        else:
            try:
                # Stock Kafka lacks min.insync.racks; it effectively requires one rack, since any replica is in one.
                racks = int(values[MIN_INSYNC_RACKS].value) if MIN_INSYNC_RACKS in values else 1
                answers[broker] = Requirement(int(values[MIN_INSYNC_REPLICAS].value), racks)
            except (KeyError, TypeError, ValueError) as error:
                errors[broker] = f"a response without a number: {type(error).__name__} {error}"
    return replace(reported, answers=answers, errors=errors, fenced=tuple(sorted(concerned.difference(brokers))))


def _current_requirement(client: AdminClient, topic: str) -> tuple[ReportedRequirements, Requirement]:
    """Return the reports of a topic's brokers, and the requirement that they agree on.

    Raises:
        RackgateError: brokers report different requirements or none.
    """
    reported = query_requirements(client, topic)
    values = set(reported.answers.values())
    if len(values) != 1:
        reports = "; ".join(
            f"broker {broker}: {requirement_text(value)}" for broker, value in sorted(reported.answers.items())
        )
        errors = "; ".join(f"broker {broker}: {why}" for broker, why in sorted(reported.errors.items()))
        why = f"they differ: {reports}" if values else f"no broker reports it: {errors}"
        raise RackgateError(f"topic {topic}: the current requirement is unknown ({why}); try again")
    return reported, values.pop()


def change_topic(
    client: AdminClient,
    topic: str,
    history: History,
    *,
    min_replicas: int | None = None,
    min_racks: int | None = None,
    timeout_s: float = SETTLED_S,
) -> SettledChange:
    """Change a topic's settings and wait until all brokers concerned report the new values.

    If the cluster rejects the change, the history gets a ``rejected`` event. After any other failure from the
    request on, it gets a ``settled`` event of outcome ``unknown``: any broker may or may not apply the change.

    Args:
        client: admin client, see ``pyhooks.kafka.topics.admin``.
        topic: topic name.
        history: history to append to.
        min_replicas: ``min.insync.replicas``; None keeps the current value.
        min_racks: ``min.insync.racks``; None keeps the current value.
        timeout_s: bound for the brokers to report the new values, in seconds.

    Raises:
        RackgateError: there is nothing to change, the brokers report different current values or none, the
            cluster rejects the change, or not every broker reports the new values in time.
    """
    asked = {MIN_INSYNC_REPLICAS: min_replicas, MIN_INSYNC_RACKS: min_racks}
    entries = {name: str(value) for name, value in asked.items() if value is not None}
    if not entries:
        raise RackgateError(f"topic {topic}: specify a value of {MIN_INSYNC_REPLICAS} or {MIN_INSYNC_RACKS}")
    first, before = _current_requirement(client, topic)
    value = Requirement(
        before.replicas if min_replicas is None else min_replicas, before.racks if min_racks is None else min_racks
    )
    _note(history, topic, "seen", before, asked_ns=first.asked_ns)
    begin = _note(history, topic, "begin", value)
    reported = first
    try:
        topics.alter(client, topic, entries)

        def settled() -> bool:
            nonlocal reported
            try:
                reported = query_requirements(client, topic)
            except RackgateError as error:
                reported = ReportedRequirements(time.monotonic_ns(), errors=dict.fromkeys(first.answers, str(error)))
            return reported.all_report(value)

        goal = f"every broker of topic {topic} to report {requirement_text(value)}"
        wait_for(settled, goal=goal, timeout_s=timeout_s, interval_s=POLL_S)
    except topics.RejectedError as error:
        _note(history, topic, "rejected", value, error=str(error))
        raise
    except BaseException as error:
        _note(history, topic, "settled", value, "unknown", error=f"{type(error).__name__}: {error}")
        if isinstance(error, RackgateError) and reported is not first:
            raise RackgateError(f"{error}; {reported.describe_others(value)}") from error
        raise
    brokers = tuple(sorted(reported.answers))
    end = _note(history, topic, "settled", value, brokers=brokers, fenced=tuple(reported.fenced))
    return SettledChange(topic, before, value, brokers, reported.fenced, (end - begin) / 1e9)


def note_created(history: History, topic: str, value: Requirement) -> None:
    """Note the settings with which a topic was created."""
    _note(history, topic, "made", value)


def change_default(
    client: AdminClient,
    names: Sequence[str],
    history: History,
    request: Callable[[], None],
    *,
    min_racks: int,
    timeout_s: float = SETTLED_S,
) -> None:
    """Change the cluster's min.insync.racks and wait until all brokers concerned report it for the given topics.

    The history gets the same events as for ``change_topic``, for each topic, except that a rejection is noted as
    ``settled`` with outcome ``unknown``, like any other failure.

    Args:
        client: admin client, see ``pyhooks.kafka.topics.admin``.
        names: topics without their own value, which use the cluster's.
        history: history to append to.
        request: makes the change.
        min_racks: new value.
        timeout_s: bound for the brokers to report the new value, for each topic, in seconds.

    Raises:
        RackgateError: brokers report different current values or none, or not every broker reports the new
            value in time.
    """
    waits: dict[str, Requirement] = {}
    try:
        for topic in names:
            first, before = _current_requirement(client, topic)
            _note(history, topic, "seen", before, asked_ns=first.asked_ns)
            waits[topic] = replace(before, racks=min_racks)
            _note(history, topic, "begin", waits[topic])
        request()
        for topic, value in list(waits.items()):
            wait_for(
                lambda topic=topic, value=value: _all_report(client, topic, value),  # type: ignore[misc]
                goal=f"every broker of topic {topic} to report {requirement_text(value)}",
                timeout_s=timeout_s,
                interval_s=POLL_S,
            )
            del waits[topic]
            _note(history, topic, "settled", value)
    except BaseException as error:
        for topic, value in waits.items():
            _note(history, topic, "settled", value, "unknown", error=f"{type(error).__name__}: {error}")
        raise


def _all_report(client: AdminClient, topic: str, value: Requirement) -> bool:
    try:
        return query_requirements(client, topic).all_report(value)
    except RackgateError:
        # no broker responds at the moment
        return False


def _note(
    history: History,
    topic: str,
    step: SettingsStep,
    value: Requirement,
    outcome: Literal["ok", "unknown"] = "ok",
    *,
    asked_ns: int | None = None,
    error: str | None = None,
    brokers: tuple[int, ...] | None = None,
    fenced: tuple[int, ...] | None = None,
) -> int:
    details = SettingsDetails(
        topic=topic,
        step=step,
        min_replicas=value.replicas,
        min_racks=value.racks,
        asked_ns=asked_ns,
        error=error,
        brokers=brokers,
        fenced=fenced,
    )
    return history.add(details, outcome, process=PROCESS).mono_ns
