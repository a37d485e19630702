"""Kafka's own topics, placed by a test, and what the whole cluster requires."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ducktape_tests.services.kafka import RackKafka
from pyhooks.cluster import tools
from pyhooks.cluster.topics import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, TopicSpec

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# Coordinators go by the number of partitions that they knew when they started; tests make these topics with one.
SINGLE_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def offsets_topic(replicas: Sequence[int]) -> TopicSpec:
    """The group coordinators' topic, as they make it, on replicas of a test's choice; what it requires is inherited."""
    return TopicSpec(OFFSETS, tuple(replicas), {"cleanup.policy": "compact", "compression.type": "producer"})


def transactions_topic(replicas: Sequence[int], m: int) -> TopicSpec:
    """The transaction coordinators' topic, as they make it, on replicas of a test's choice; its R is inherited."""
    return TopicSpec(TRANSACTIONS, tuple(replicas), {"cleanup.policy": "compact", MIN_INSYNC_REPLICAS: str(m)})


def require_racks(kafka: RackKafka, racks: int) -> None:
    """Makes ``min.insync.racks`` of the cluster, which holds for all topics that have none of their own.

    Raises:
        RackgateError: the cluster refused.
    """
    asked = kafka.brokers()[0]
    words = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", f"{MIN_INSYNC_RACKS}={racks}")
    kafka.run_on(asked, shlex.join(tools.command(kafka.classpath, "configs", words, asked.address)))
