"""The final read: all records of topics from the first offset to the log's end, as events of a history."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pyhooks.errors import RackgateError
from pyhooks.history import Event, History

POLL_S = 0.5
REQUEST_S = 20.0


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rackgate-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": "read_uncommitted",
            "log_level": 2,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, topic: str) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REQUEST_S)
    except KafkaException as error:
        raise RackgateError(f"{topic}: its leader does not tell the log's end: {error.args[0].str()}") from error
    return int(low), int(high)


def high_watermark(bootstrap: str, topic: str) -> int:
    """The offset up to which consumers may read the topic's only partition.

    Raises:
        RackgateError: the leader does not answer.
    """
    with _consumer(bootstrap) as consumer:
        return _watermarks(consumer, topic)[1]


def read_all(
    bootstrap: str, topics: Sequence[str], history: History, *, timeout_s: float = 60.0, values: bool = False
) -> None:
    """Reads topics to their ends and notes one event ``read`` for each, with all keys in the order of offsets.

    Args:
        bootstrap: brokers.
        topics: with one partition each.
        history: where the events go.
        timeout_s: bound for each topic in seconds.
        values: note all values too, in the same order.

    Raises:
        RackgateError: a topic could not be read to its end in time; its event has outcome ``unknown``.
    """
    for topic in topics:
        with _consumer(bootstrap) as consumer:
            low, high = _watermarks(consumer, topic)
            records, next_offset = _read(consumer, topic, low, high, timeout_s)
        complete = next_offset >= high
        told: dict[str, Any] = {"topic": topic, "end_offset": high, "keys": [key for key, _ in records]}
        if values:
            told["values"] = [value for _, value in records]
        history.append(Event.now("reader", "read", "ok" if complete else "unknown", **told))
        if not complete:
            raise RackgateError(f"final read of {topic}: at offset {next_offset} of {high} after {timeout_s:.0f} s")


def _read(consumer: Consumer, topic: str, low: int, high: int, timeout_s: float) -> tuple[list[tuple[str, str]], int]:
    consumer.assign([TopicPartition(topic, 0, low)])
    records: list[tuple[str, str]] = []
    next_offset = low
    deadline = time.monotonic() + timeout_s
    while next_offset < high and time.monotonic() < deadline:
        message = consumer.poll(POLL_S)
        if message is None or message.error() is not None:
            continue
        next_offset = message.offset() + 1
        records.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
    return records, next_offset
