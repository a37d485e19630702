"""MirrorMaker 2 from a cluster with R=2 to one whose brokers are all in one rack, in an outage of rack b under load.

The source has racks a, a, b. One of its topics requires two of them; the other one, the control, requires one. The
target has two replicas in rack x: with R=2 it would never acknowledge a record.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from feature_tools import RACKS, RACKS_REJECTED, SETTLES_S, TOPIC, produce, wait_in_sync
from loopback_brokers import Brokers
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer
from pyhooks.kafka import topics
from pyhooks.lab.kafka_process import LOG4J, render
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import high_watermark, open_consumer
from pyhooks.workload.requirement_changes import query_requirements

# Two clusters and a JVM of MirrorMaker: "make kafka-long".
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
CONTROLLER = 100
A1, A2, B = ALL = (1, 2, 3)
CONTROL = "control"
TOPICS = {TOPIC: 2, CONTROL: 1}
# Records of each topic: before the outage, and meanwhile in the control at least.
BEFORE, MEANWHILE = 100, 100
SEND_S = 0.05
STARTS_S = 120.0
READ_S = 60.0
# Kafka's default without the configs that begin with min.insync: a user who sets the filter has to name them.
EXCLUDE = r"follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,unclean\.leader\..*"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Brokers, Brokers]]:
    """Run both clusters; the source has the topics."""
    classpath = Distribution.load().classpath()
    found = []
    for name, racks in (("source", {A1: "a", A2: "a", B: "b"}), ("target", {1: "x", 2: "x"})):
        (tmp_path / name).mkdir()
        brokers = Brokers(tmp_path / name, racks, CONTROLLER, extra={"auto.leader.rebalance.enable": "false"})
        brokers.format(classpath)
        found.append(brokers)
    source, target = found
    with source.running(classpath), target.running(classpath):
        with Admin(source.bootstrap) as admin:
            for topic, required in TOPICS.items():
                admin.create_topic(topic, [list(ALL)], {"min.insync.replicas": "2", RACKS: str(required)})
                wait_for(partial(admin.in_sync, topic, ALL), goal=f"replicas of {topic} in sync", timeout_s=60)
        yield source, target


@contextmanager
def mirroring(source: Brokers, target: Brokers, folder: Path, **more: str) -> Iterator[None]:
    """Run MirrorMaker 2 during a block; names in ``more`` have ``_`` for ``.``."""
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    properties = {
        "clusters": "source,target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": ",".join(TOPICS),
        "target->source.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "2",
        **{f"{name}.replication.factor": "1" for name in (*internal, "config.storage")},
        "refresh.topics.interval.seconds": "5",
        "sync.topic.configs.interval.seconds": "5",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "offset.flush.interval.ms": "1000",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    file, log = folder / "mm2.properties", folder / "mm2.log"
    file.write_text(render(properties), encoding="utf-8")
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J}"]
    command += ["-cp", Distribution.load().classpath(), "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
    with log.open("wb") as output:
        process = subprocess.Popen([*DIES_WITH_PARENT, *command], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
        assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
    finally:
        process.kill()
        process.wait()


@contextmanager
def load(brokers: Brokers) -> Iterator[None]:
    """Write numbered records to both topics during a block; with acks=1, so that the leader accepts each of them."""
    answers: list[Acknowledged | JavaError] = []
    ended = threading.Event()
    number = 0

    def send() -> None:
        nonlocal number
        while not ended.wait(SEND_S):
            for topic in TOPICS:
                producer.send(topic, f"key-{number}", f"value-{number}", answers.append)
            number += 1

    with Producer(brokers.bootstrap, {"acks": "1", "enable.idempotence": "false", "retries": "0"}) as producer:
        thread = threading.Thread(target=send, name="load")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
    assert [one for one in answers if isinstance(one, JavaError)] == []
    assert len(answers) == number * len(TOPICS)


def shown(brokers: Brokers, topic: str) -> int:
    """Return the high watermark of a topic; 0 before there is a topic with a leader."""
    try:
        return high_watermark(brokers.bootstrap, topic)
    except RackgateError:
        return 0


def wait_shown(brokers: Brokers, topic: str, count: int, timeout_s: float = SETTLES_S) -> None:
    """Wait until a cluster shows at least so many records of a topic."""
    goal = f"{count} records of {topic}"
    wait_for(lambda: shown(brokers, topic) >= count, goal=goal, timeout_s=timeout_s, interval_s=1.0)


def records(brokers: Brokers, topic: str) -> list[bytes | None]:
    """Return the values of all records of a topic, in the order of their offsets."""
    from confluent_kafka import TopicPartition

    values: list[bytes | None] = []
    end = high_watermark(brokers.bootstrap, topic)
    with open_consumer(brokers.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def read() -> bool:
            values.extend(message.value() for message in consumer.consume(500, 0.5) if message.error() is None)
            return len(values) >= end

        wait_for(read, goal=f"{end} records of {topic}", timeout_s=READ_S)
    return values


def test_a_target_with_one_rack_gets_what_the_source_has_committed(
    clusters: tuple[Brokers, Brokers], tmp_path: Path
) -> None:
    source, target = clusters
    with mirroring(source, target, tmp_path):
        with load(source):
            for topic in TOPICS:
                wait_shown(target, topic, BEFORE, STARTS_S)
                required = query_requirements(topics.admin(target.bootstrap), topic).answers
                assert {one.racks for one in required.values()} == {1}, "R of the source applies to its racks alone"
            source.kill(B)
            wait_in_sync(source, (A1, A2))
            assert produce(source) == RACKS_REJECTED
            hidden_from, control_from = shown(source, TOPIC), shown(target, CONTROL)
            wait_shown(target, TOPIC, hidden_from)
            wait_shown(target, CONTROL, control_from + MEANWHILE)
            assert shown(target, TOPIC) == shown(source, TOPIC) == hidden_from
            source.start(B, Distribution.load().classpath())
            wait_in_sync(source, ALL)
            wait_shown(target, TOPIC, hidden_from + MEANWHILE)
        for topic in TOPICS:
            wait_shown(target, topic, shown(source, topic))
    for topic in TOPICS:
        assert records(target, topic) == records(source, topic)


def test_control_a_filter_that_does_not_name_the_config_stops_the_target(
    clusters: tuple[Brokers, Brokers], tmp_path: Path
) -> None:
    source, target = clusters
    with mirroring(source, target, tmp_path, config_properties_exclude=EXCLUDE), load(source):
        # The topic with R=1 is copied by the same process.
        wait_shown(target, CONTROL, BEFORE, STARTS_S)
        required = query_requirements(topics.admin(target.bootstrap), TOPIC).answers
        assert {one.racks for one in required.values()} == {2}
        assert shown(source, TOPIC) >= BEFORE
        assert shown(target, TOPIC) == 0
