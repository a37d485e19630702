"""Consumer that follows topics from their ends and notes each record's arrival time, as a process beside a test.

The events have ``ArrivalsDetails``, one per second and topic.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import ArrivalsDetails
from pyhooks.history.record_format import text_of
from pyhooks.workload import program

POLL_S = 0.2
WRITE_S = 1.0
REQUEST_S = 20.0


def note_arrivals(bootstrap: str, topics: Sequence[str], history: History, ended: threading.Event) -> None:
    """Follow topics until ``ended`` is set.

    Raises:
        RackgateError: a topic does not exist, or no broker responds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rackgate-follower",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        consumer.assign(_partitions(consumer, topics))
        arrived: defaultdict[str, list[tuple[str | None, int]]] = defaultdict(list)
        written_ns = time.monotonic_ns()
        while not ended.is_set():
            # One message per call: a call for several returns only when it has all of them or times out.
            message = consumer.poll(POLL_S)
            # An error means an unavailable broker; the consumer retries by itself.
            if message is not None and message.error() is None:
                arrived[message.topic()].append((text_of(message.key()), time.monotonic_ns()))
            if time.monotonic_ns() - written_ns > WRITE_S * 1e9:
                history.extend(_arrival_events(arrived))
                arrived.clear()
                written_ns = time.monotonic_ns()
        history.extend(_arrival_events(arrived))
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    try:
        listed = consumer.list_topics(timeout=REQUEST_S).topics
    except KafkaException as error:
        raise RackgateError(f"no broker lists the topics: {error.args[0].str()}") from error
    if absent := [topic for topic in topics if topic not in listed]:
        raise RackgateError(f"--topics: the cluster has no {', '.join(absent)}")
    return [TopicPartition(topic, number, OFFSET_END) for topic in topics for number in listed[topic].partitions]


def _arrival_events(arrived: dict[str, list[tuple[str | None, int]]]) -> list[Event]:
    events = []
    for topic, records in arrived.items():
        now_ns, wall_ms = time.monotonic_ns(), time.time_ns() // 1_000_000
        arrivals = ArrivalsDetails(
            topic=topic,
            keys=tuple(key for key, _ in records),
            ago_ms=tuple(round((now_ns - at_ns) / 1e6, 3) for _, at_ns in records),
        )
        events.append(arrivals.event_at(now_ns, wall_ms, "ok"))
    return events


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow topics until SIGTERM or SIGINT."""
    parser = program.topics_parser(
        "arrivals", "Follow topics from their ends and write each record's arrival time, until a SIGTERM."
    )
    parser.add_argument("--run", help="ignored: it sends no records")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        note_arrivals(options.bootstrap, options.topics.split(","), History(options.history), ended)

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
