"""Consumer that follows topics from their ends and notes each record's arrival time, as a process beside a test.

Events of process ``follower`` and op ``fetched``, one per second and topic: ``data`` ``{topic, keys, ago_ms}``,
the keys of the records in order of arrival and how many milliseconds before the event each record arrived.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.record_format import text_of
from pyhooks.workload import program

PROCESS, OP = "follower", "fetched"
POLL_S = 0.2
WRITE_S = 1.0
REQUEST_S = 20.0


def follow(bootstrap: str, topics: Sequence[str], history: History, ended: threading.Event) -> None:
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
        consumer.assign(_places(consumer, topics))
        came: defaultdict[str, list[tuple[str | None, int]]] = defaultdict(list)
        written_ns = time.monotonic_ns()
        while not ended.is_set():
            # One message per call: a call for several returns only when it has all of them or times out.
            message = consumer.poll(POLL_S)
            # An error means an unavailable broker; the consumer retries by itself.
            if message is not None and message.error() is None:
                came[message.topic()].append((text_of(message.key()), time.monotonic_ns()))
            if time.monotonic_ns() - written_ns > WRITE_S * 1e9:
                history.extend(_events(came))
                came.clear()
                written_ns = time.monotonic_ns()
        history.extend(_events(came))
    finally:
        consumer.close()


def _places(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    try:
        found = consumer.list_topics(timeout=REQUEST_S).topics
    except KafkaException as error:
        raise RackgateError(f"nobody tells of the topics: {error.args[0].str()}") from error
    if absent := [topic for topic in topics if topic not in found]:
        raise RackgateError(f"--topics: the cluster has no {', '.join(absent)}")
    return [TopicPartition(topic, number, OFFSET_END) for topic in topics for number in found[topic].partitions]


def _events(came: dict[str, list[tuple[str | None, int]]]) -> list[Event]:
    made = []
    for topic, records in came.items():
        now = Event.now(PROCESS, OP, "ok")
        told: dict[str, Any] = {"topic": topic, "keys": [key for key, _ in records]}
        told["ago_ms"] = [round((now.mono_ns - at_ns) / 1e6, 3) for _, at_ns in records]
        made.append(Event(now.mono_ns, now.wall_ms, PROCESS, OP, "ok", None, told))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow topics until SIGTERM or SIGINT."""
    what = "Follows topics from their ends on and writes when each record came, until it is ended."
    parser = program.on_topics("arrivals", what)
    parser.add_argument("--run", help="of no effect: it sends nothing")
    found = parser.parse_args(arguments)
    ended = program.told_to_end()
    return program.status_of(lambda: follow(found.bootstrap, found.topics.split(","), History(found.history), ended))


if __name__ == "__main__":
    sys.exit(main())
