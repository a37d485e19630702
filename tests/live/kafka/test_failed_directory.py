"""A follower's log directory fails: the leader of stock Kafka waits for the follower although it has left the ISR.

This is a bug that ``kip/found.md`` reports. The test fails once Kafka has mended it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import confluent_kafka

from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.patchset.distribution import Distribution

LAG_MAX_S = 5.0
TOPICS = [f"topic-{number}" for number in range(4)]


def send(bootstrap: str, topic: str) -> confluent_kafka.Producer:
    """Send a record with acks=all by a producer of its own, since a waiting request blocks its connection."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "request.timeout.ms": 60_000})
    producer.produce(topic, b"value")
    return producer


def test_a_leader_waits_for_a_replica_whose_directory_failed(tmp_path: Path) -> None:
    """Only an append after replica.lag.time.max.ms ends the wait; other topics and other directories do not wait."""
    classpath = Distribution.load().classpath(overlay=False)
    directories = [tmp_path / "data-2", tmp_path / "data-2-failing"]
    brokers = Brokers(
        tmp_path,
        {1: "a", 2: "b"},
        controller=1,
        # a broker notices a failed directory when it next writes its high watermarks
        extra={
            "replica.lag.time.max.ms": str(int(LAG_MAX_S * 1000)),
            "replica.high.watermark.checkpoint.interval.ms": "1000",
        },
        own={2: {"log.dirs": ",".join(map(str, directories))}},
    )
    brokers.format(classpath)
    with brokers.running(classpath), Admin(brokers.bootstrap) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, [[1, 2]], {})
            wait_for(partial(admin.in_sync, topic, (1, 2)), goal="both replicas in sync", timeout_s=60)
            assert send(brokers.bootstrap, topic).flush(30) == 0
        failing = [topic for topic in TOPICS if (directories[1] / f"{topic}-0").is_dir()]
        other = next(topic for topic in TOPICS if topic not in failing)
        directories[1].rename(tmp_path / "failed")
        for topic in failing:
            wait_for(partial(admin.in_sync, topic, (1,)), goal="an ISR without the failed replica", timeout_s=30)
        waiting = send(brokers.bootstrap, failing[0])
        assert send(brokers.bootstrap, other).flush(LAG_MAX_S) == 0
        assert waiting.flush(2 * LAG_MAX_S) == 1
        assert admin.in_sync(failing[0], (1,))
        assert send(brokers.bootstrap, failing[0]).flush(LAG_MAX_S) == 0
        assert waiting.flush(LAG_MAX_S) == 0
