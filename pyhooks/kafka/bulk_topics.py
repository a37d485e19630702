"""Topics with many partitions: create them in batches and check all their ISRs at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Partitions per request. The controller appends all records of a request as one batch, whose size is limited.
BATCH = 500
CREATE_S = 60.0
# A response with 10,000 partitions takes longer than one with a few.
QUERY_S = 10.0


@dataclass(frozen=True)
class BulkTopic:
    """Topic with many partitions."""

    name: str
    placements: tuple[tuple[int, ...], ...]  # broker ids of each partition; the first is the preferred leader
    config: Mapping[str, str]


def pieces(topics: Sequence[BulkTopic], most: int = BATCH) -> list[list[BulkTopic]]:
    """Split topics into groups of at most ``most`` partitions; a larger topic forms a group of its own."""
    groups: list[list[BulkTopic]] = []
    size = 0
    for topic in topics:
        if not groups or size + len(topic.placements) > most:
            groups.append([])
            size = 0
        groups[-1].append(topic)
        size += len(topic.placements)
    return groups


def create(client: AdminClient, topics: Sequence[BulkTopic], timeout_s: float) -> None:
    """Create topics group by group and wait until all replicas are in sync.

    Raises:
        RackgateError: the cluster rejects a topic, or not all replicas are in sync in time.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    for piece in pieces(topics):
        wanted = [
            NewTopic(
                topic.name,
                num_partitions=len(topic.placements),
                replica_assignment=[list(placement) for placement in topic.placements],
                config=dict(topic.config),
            )
            for topic in piece
        ]
        futures = client.create_topics(wanted, operation_timeout=CREATE_S, request_timeout=CREATE_S)
        for name, future in futures.items():
            try:
                future.result(timeout=2 * CREATE_S)
            except (KafkaException, TimeoutError) as error:
                raise RackgateError(f"create topic {name}: {error}") from error
    wait_members(client, topics, None, timeout_s)


def wait_members(
    client: AdminClient, topics: Sequence[BulkTopic], brokers: Collection[int] | None, timeout_s: float
) -> None:
    """Wait until the ISR of each partition consists of its replicas on ``brokers`` (None: on all).

    Raises:
        RackgateError: not reached in time.
    """
    count = sum(len(topic.placements) for topic in topics)
    expected = "all replicas" if brokers is None else f"replicas on brokers {sorted(brokers)}"
    wait_for(
        lambda: others(client, topics, brokers) == 0,
        goal=f"exactly {expected} in the ISRs of {count} partitions",
        timeout_s=timeout_s,
        interval_s=0.5,
    )


def others(client: AdminClient, topics: Sequence[BulkTopic], brokers: Collection[int] | None) -> int:
    """Count the partitions whose ISR differs from the one in ``wait_members``; all if no broker responds."""
    from confluent_kafka import KafkaException

    count = sum(len(topic.placements) for topic in topics)
    try:
        listed = client.list_topics(timeout=QUERY_S).topics
    except KafkaException:
        return count
    matching = 0
    for topic in topics:
        if topic.name not in listed or listed[topic.name].error is not None:
            continue
        for number, placement in enumerate(topic.placements):
            state = listed[topic.name].partitions.get(number)
            wanted = {broker for broker in placement if brokers is None or broker in brokers}
            matching += state is not None and set(map(int, state.isrs)) == wanted
    return count - matching


def rotating(number: int, placements: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the placements of ``number`` partitions, taken from ``placements`` in rotation."""
    return tuple(tuple(placements[at % len(placements)]) for at in range(number))
