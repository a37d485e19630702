"""Partition reassignments: input for Kafka's tool, and waiting until replicas and leaders are in place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient

TOOL = "reassign-partitions"
MOVED_S = 90.0
QUERY_S = 2.0


def document(moves: Mapping[str, Sequence[int]]) -> str:
    """Return the content of ``--reassignment-json-file`` for partition 0 of topics.

    Args:
        moves: topic to broker ids; the first is the preferred leader.
    """
    partitions = [{"topic": topic, "partition": 0, "replicas": list(brokers)} for topic, brokers in moves.items()]
    return json.dumps({"version": 1, "partitions": partitions})


def wait_placed(
    bootstrap: str, moves: Mapping[str, Sequence[int]], *, in_sync: bool = True, timeout_s: float = MOVED_S
) -> None:
    """Wait until some broker reports exactly these replicas for partition 0 of each topic.

    During a reassignment a partition has both the adding and the removing replicas.

    Args:
        bootstrap: addresses of brokers.
        moves: topic to broker ids, in assignment order.
        in_sync: whether all replicas must also be in the ISR.
        timeout_s: timeout in seconds.

    Raises:
        RackgateError: not reached in time.
    """
    goal = ", ".join(f"{topic} on {list(brokers)}" for topic, brokers in moves.items())
    _wait_metadata(
        bootstrap,
        tuple(moves),
        lambda metadata: all(is_placed(metadata, topic, brokers, in_sync=in_sync) for topic, brokers in moves.items()),
        goal,
        timeout_s,
    )


def wait_led(bootstrap: str, topics: Sequence[str], leader: int, *, timeout_s: float = MOVED_S) -> None:
    """Wait until some broker reports ``leader`` as the leader of partition 0 of each topic.

    Raises:
        RackgateError: not reached in time.
    """

    def led(metadata: Metadata) -> bool:
        return {metadata.partitions[name, 0].leader for name in topics if (name, 0) in metadata.partitions} == {leader}

    _wait_metadata(bootstrap, topics, led, f"broker {leader} to lead {', '.join(topics)}", timeout_s)


def _wait_metadata(
    bootstrap: str, topics: Sequence[str], check: Callable[[Metadata], bool], goal: str, timeout_s: float
) -> None:
    client = MetadataClient(bootstrap)

    def satisfied() -> bool:
        try:
            return check(client.query(topics, QUERY_S))
        except RackgateError:
            # no broker responds yet
            return False

    wait_for(satisfied, goal=goal, timeout_s=timeout_s, interval_s=0.2)


def is_placed(metadata: Metadata, topic: str, brokers: Sequence[int], *, in_sync: bool) -> bool:
    """Return whether partition 0 of a topic has exactly these replicas, in this order."""
    state = metadata.partitions.get((topic, 0))
    if state is None or state.replicas != tuple(brokers):
        return False
    return not in_sync or set(state.isr) == set(brokers)
