"""A broker restarts while racks are missing: invisible records stay invisible, wherever min.insync.racks is set."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import confluent_kafka

from feature_tools import CONFIGS, tool
from loopback_brokers import Pair
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.patchset.distribution import Distribution

DEFAULT, OWN = "with-default", "with-own"


def classpath() -> str:
    """Return the class path of the build, or of the one in RACKGATE_DIST: with an older build this test fails."""
    other = os.environ.get("RACKGATE_DIST")
    return Distribution(Path(other)).classpath() if other else Distribution.load().classpath()


def require_racks_of_the_cluster(bootstrap: str) -> None:
    """Set min.insync.racks=2 as the dynamic cluster default, which librdkafka's admin client cannot do."""
    change = ["--entity-type", "brokers", "--entity-default", "--add-config", "min.insync.racks=2"]
    done = tool(classpath(), CONFIGS, "--bootstrap-server", bootstrap, "--alter", *change)
    assert done.status == 0, done.text


def visible(bootstrap: str, topic: str) -> int:
    """Return the number of visible records; 0 if the leader has no high watermark yet."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    try:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=20)
        return int(high) - int(low)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() == confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE:
            return 0
        raise
    finally:
        consumer.close()


def leads(admin: Admin, topic: str) -> bool:
    """Return whether broker 1 leads the topic."""
    return admin.partition(topic).leader == 1


def write_to_the_leader(bootstrap: str, topic: str) -> int:
    """Produce a record with acks=1 and return its offset."""
    reports: list[int] = []

    def done(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        reports.append(message.offset() or 0)

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": 1})
    producer.produce(topic, b"value", on_delivery=done)
    assert producer.flush(30) == 0
    return reports[0]


def test_a_restarted_leader_shows_nothing_that_is_in_too_few_racks(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.format(classpath())
    with pair.running(classpath()):
        with Admin(pair.bootstrap) as admin:
            for topic in (DEFAULT, OWN):
                admin.create_topic(topic, [[1, 2]], {"min.insync.racks": "2"} if topic == OWN else {})
                wait_for(partial(admin.in_sync, topic, (1, 2)), goal="both replicas in sync", timeout_s=60)
        require_racks_of_the_cluster(pair.bootstrap)
        pair.kill(2)
        first = pair.address(1)
        for topic in (DEFAULT, OWN):
            with Admin(first) as admin:
                wait_for(partial(admin.in_sync, topic, (1,)), goal="an ISR of one", timeout_s=60)
            assert write_to_the_leader(first, topic) == 0
            assert visible(first, topic) == 0
        # A clean shutdown: a killed leader may have lost its disk, so it could not lead again before broker 2, which
        # has all acknowledged records, is back.
        pair.stop(1)
        pair.start(1, classpath())
        wait_for(partial(pair.serves, 1), goal="the leader that is back", timeout_s=90)
        for topic in (DEFAULT, OWN):
            with Admin(first) as admin:
                wait_for(partial(leads, admin, topic), goal="a leader", timeout_s=60)
            assert visible(first, topic) == 0
