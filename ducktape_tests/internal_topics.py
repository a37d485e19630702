"""Internal topics of Kafka with a chosen placement; M is ``min.insync.replicas``, R ``min.insync.racks``."""

from __future__ import annotations

from collections.abc import Sequence

from pyhooks.kafka.gate import MIN_INSYNC_REPLICAS
from pyhooks.kafka.topics import TopicSpec

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# Coordinators keep the number of partitions that they read at startup; tests create these topics with one.
SINGLE_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def offsets_topic(replicas: Sequence[int]) -> TopicSpec:
    """Return the topic of group coordinators as they create it, on chosen replicas; M and R are inherited."""
    return TopicSpec(OFFSETS, tuple(replicas), {"cleanup.policy": "compact", "compression.type": "producer"})


def transactions_topic(replicas: Sequence[int], m: int) -> TopicSpec:
    """Return the topic of transaction coordinators as they create it, on chosen replicas; R is inherited."""
    return TopicSpec(TRANSACTIONS, tuple(replicas), {"cleanup.policy": "compact", MIN_INSYNC_REPLICAS: str(m)})
