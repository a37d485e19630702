"""Topics of the benchmark, with the settings of its arms."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.plan.scenario import Arm, Cell
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, Requirement
from pyhooks.kafka.topics import TopicSpec
from pyhooks.workload import requirement_changes

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

IN_FORCE_S = 20.0
POLL_S = 0.05
DELETE_S = 10.0


def spec(arm: Arm) -> TopicSpec:
    """Return the topic of an arm in the outage phase.

    ``min.insync.racks`` keeps its default if the arm does not use it, so that the topic is equal to one on an unpatched
    Kafka.
    """
    config = {MIN_INSYNC_REPLICAS: str(arm.min_insync_replicas)}
    if arm.min_insync_racks > 1:
        config[MIN_INSYNC_RACKS] = str(arm.min_insync_racks)
    return TopicSpec(arm.topic, tuple(arm.replicas), config)


def of_cell(cell: Cell, session: int, prefix: str = "") -> list[TopicSpec]:
    """Return the topics of a cell, as many as there are arms; their requirements are set before each block."""
    names = [f"{prefix}{cell.id}-{session}-t{number}" for number in range(1, len(cell.scenario.latency_arms) + 1)]
    return [TopicSpec(name, cell.replicas, {}) for name in names]


def require(client: AdminClient, on: Mapping[str, str], arms: Sequence[Arm], known: dict[str, Requirement]) -> float:
    """Give topics the settings of arms, and wait until the live brokers apply them.

    Args:
        client: admin client, see ``pyhooks.kafka.topics.admin``.
        on: arm id to topic.
        arms: all arms of ``on``.
        known: requirements in force on topics, updated by the call; topics with the right ones are not altered.

    Returns:
        Duration in seconds.

    Raises:
        RackgateError: the cluster refuses, or a broker does not report the new values within ``IN_FORCE_S``.
    """
    begun = time.monotonic()
    wanted = {on[arm.id]: Requirement(arm.min_insync_replicas, arm.min_insync_racks) for arm in arms}
    changed = {topic: value for topic, value in wanted.items() if known.get(topic) != value}
    for topic, value in changed.items():
        known.pop(topic, None)
        topics.alter(client, topic, {MIN_INSYNC_REPLICAS: str(value.replicas), MIN_INSYNC_RACKS: str(value.racks)})
    for topic, value in changed.items():
        wait_for(
            lambda topic=topic, value=value: requirement_changes.query_requirements(client, topic).all_report(value),  # type: ignore[misc]
            what=f"the brokers of {topic} to go by {requirement_changes.requirement_text(value)}",
            timeout_s=IN_FORCE_S,
            interval_s=POLL_S,
        )
        known[topic] = value
    return time.monotonic() - begun


def delete(client: AdminClient, names: Sequence[str]) -> None:
    """Delete topics, without waiting for the deletion of their files.

    Raises:
        RackgateError: the cluster refuses, or does not respond.
    """
    from confluent_kafka import KafkaException

    for name, future in client.delete_topics(list(names), operation_timeout=DELETE_S, request_timeout=DELETE_S).items():
        try:
            future.result(timeout=2 * DELETE_S)
        except (KafkaException, TimeoutError) as error:
            raise RackgateError(f"delete topic {name}: {error}") from error
