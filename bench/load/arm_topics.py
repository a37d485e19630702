"""Topics of the benchmark, with the settings of its arms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.plan.scenario import BenchArm, BenchCell
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, Requirement
from pyhooks.kafka.topics import LeaderAndIsr, Partition, TopicSpec
from pyhooks.workload import requirement_changes
from pyhooks.workload.requirement_changes import ReportedRequirements

IN_FORCE_S = 20.0
POLL_S = 0.05
DELETE_S = 10.0


def arm_topic(arm: BenchArm) -> TopicSpec:
    """Return the topic of an arm in the outage phase; with R=1 it is equal to one on an unpatched Kafka."""
    config = {MIN_INSYNC_REPLICAS: str(arm.min_insync_replicas)}
    if arm.min_insync_racks > 1:
        config[MIN_INSYNC_RACKS] = str(arm.min_insync_racks)
    return TopicSpec(arm.topic, tuple(arm.replicas), config)


def cell_topics(cell: BenchCell, session: int, prefix: str = "") -> list[TopicSpec]:
    """Return the topics of a cell, as many as there are arms; their requirements are set before each block."""
    names = [f"{prefix}{cell.id}-{session}-t{number}" for number in range(1, len(cell.scenario.latency_arms) + 1)]
    return [TopicSpec(name, cell.replicas, {}, cell.setting.partitions) for name in names]


class BenchTopics:
    """Topics of the benchmark on one cluster.

    ``announce`` is called with the names of topics before they are created. ``alter`` changes the configuration of a
    topic, ``query`` returns its requirements as the brokers report them; a change has ``timeout_s`` to take effect.
    """

    def __init__(
        self,
        client: AdminClient,
        announce: Callable[[Sequence[str]], None] = lambda _names: None,
        *,
        alter: Callable[[AdminClient, str, Mapping[str, str]], None] = topics.alter,
        query: Callable[[AdminClient, str], ReportedRequirements] = requirement_changes.query_requirements,
        timeout_s: float = IN_FORCE_S,
    ) -> None:
        self._client = client
        self._announce, self._alter, self._query, self._timeout_s = announce, alter, query, timeout_s
        self._in_force: dict[str, Requirement] = {}

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics."""
        self._announce([spec.name for spec in specs])
        topics.create(self._client, specs)

    def apply_settings(self, on: Mapping[str, str], arms: Sequence[BenchArm]) -> float:
        """Give topics the settings of arms, wait until the live brokers apply them, and return the seconds it took.

        Raises:
            RackgateError: the cluster rejects the settings, or a broker does not report them within the time limit.
        """
        begun = time.monotonic()
        wanted = {on[arm.id]: Requirement(arm.min_insync_replicas, arm.min_insync_racks) for arm in arms}
        changed = {topic: value for topic, value in wanted.items() if self._in_force.get(topic) != value}
        for topic, value in changed.items():
            self._in_force.pop(topic, None)
            config = {MIN_INSYNC_REPLICAS: str(value.replicas), MIN_INSYNC_RACKS: str(value.racks)}
            self._alter(self._client, topic, config)
        for topic, value in changed.items():
            wait_for(
                partial(self._all_report, topic, value),
                goal=f"the brokers of {topic} to apply {requirement_changes.requirement_text(value)}",
                timeout_s=self._timeout_s,
                interval_s=POLL_S,
            )
            self._in_force[topic] = value
        return time.monotonic() - begun

    def _all_report(self, topic: str, value: Requirement) -> bool:
        return self._query(self._client, topic).all_report(value)

    def wait_isrs(self, names: Sequence[str], isr: Sequence[int]) -> None:
        """Wait until all partitions of each topic have this ISR."""
        topics.wait_isrs(self._client, dict.fromkeys(names, frozenset(isr)))

    def states(self, names: Sequence[str]) -> Mapping[Partition, LeaderAndIsr]:
        """Return leader and ISR of each partition of topics that the cluster reports."""
        return topics.try_partition_states(self._client, names)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; see ``delete``."""
        delete(self._client, names)


def delete(client: AdminClient, names: Sequence[str]) -> None:
    """Delete topics, without waiting for the deletion of their files.

    Raises:
        RackgateError: the cluster rejects the request, or does not respond.
    """
    for name, future in client.delete_topics(list(names), operation_timeout=DELETE_S, request_timeout=DELETE_S).items():
        try:
            future.result(timeout=2 * DELETE_S)
        except (KafkaException, TimeoutError) as error:
            raise RackgateError(f"delete topic {name}: {error}") from error
