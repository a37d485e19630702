"""When records of a topic with LogAppendTime were appended, and the longest pause between two of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from pyhooks.workload.final_reader import COMMITTED, open_consumer


def append_times(bootstrap: str, topic: str, count: int, timeout_s: float) -> list[int]:
    """Return when the committed records of partition 0 were appended, in milliseconds since the epoch.

    Args:
        bootstrap: value of ``bootstrap.servers``.
        topic: topic name.
        count: number of records to wait for.
        timeout_s: time limit in seconds; then there are fewer.
    """
    times: list[int] = []
    until = time.monotonic() + timeout_s
    with open_consumer(bootstrap, COMMITTED, enable_partition_eof="false") as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while len(times) < count and time.monotonic() < until:
            times += [int(message.timestamp()[1]) for message in consumer.consume(500, 0.5) if message.error() is None]
    return times


def longest_pause_s(times: Sequence[int]) -> float:
    """Return the longest pause between two times in milliseconds, in seconds."""
    return round(max((later - earlier for earlier, later in pairwise(times)), default=0) / 1000, 1)
