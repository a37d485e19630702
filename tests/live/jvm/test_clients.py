"""The in-process producer and consumer, and stock clients in gateways, against one patched broker."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from loopback_brokers import HOST, Brokers
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.consumer import Consumer, TopicPartition
from pyhooks.jvm.gateway import Gateway
from pyhooks.jvm.java_exception import ERRORS, JavaError
from pyhooks.jvm.producer import Producer
from pyhooks.patchset.client_classpaths import client_classpath
from pyhooks.patchset.distribution import Distribution

EXTRA = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
ONE_ATTEMPT = {"acks": "all", "retries": "0", "enable.idempotence": "false"}
CPU_S_PER_50000 = 1.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Run one node, both broker and controller."""
    classpath = Distribution.load().classpath()
    made = Brokers(tmp_path_factory.mktemp("clients"), {1: "a"}, controller=1, extra=EXTRA)
    made.format(classpath)
    with made.running(classpath):
        yield made


@pytest.fixture
def topic(brokers: Brokers, request: pytest.FixtureRequest) -> str:
    """Create a topic with two partitions for the test."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(name, [[1], [1]], {})
        wait_for(lambda: admin.in_sync(name, (1,), 1), goal="a new topic", timeout_s=90)
    return name


def read(consumer: Consumer, count: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Poll until ``count`` records have arrived; return partition, offset, key and value of each."""
    found: list[tuple[int, int, bytes | None, bytes | None]] = []

    def enough() -> bool:
        polled = consumer.poll(0.5)
        numbers = [polled.partitions[index].number for index in polled.partition]
        found.extend(zip(numbers, polled.offset.tolist(), polled.keys, polled.values, strict=True))
        return len(found) >= count

    wait_for(enough, goal=f"{count} records", timeout_s=90, interval_s=0)
    return found


def test_a_batch_reports_each_record(brokers: Brokers, topic: str) -> None:
    values = [b"%d" % number for number in range(1000)]
    before = time.monotonic_ns()
    with Producer(brokers.bootstrap, {"acks": "all", "linger.ms": "5"}) as producer:
        sent = producer.send_batch(
            topic, [*values, None], keys=[None, *values], partitions=[0, 1] * 500 + [1], timestamps_ms=12345
        ).result(30)
    after = time.monotonic_ns()
    assert sent.acked.all()
    assert sent.errors == ()
    assert sent.partition.tolist() == [0, 1] * 500 + [1]
    assert sorted(sent.offset[sent.partition == 0].tolist()) == list(range(500))
    # Java's nanoTime and Python's monotonic clock are the same
    assert (sent.sent_ns >= before).all()
    assert (sent.done_ns >= sent.sent_ns).all()
    assert (sent.done_ns <= after).all()
    with Consumer(brokers.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found = read(consumer, 1001)
    results = {
        (int(p), int(o)): (key, value)
        for p, o, key, value in zip(sent.partition, sent.offset, [None, *values], [*values, None], strict=True)
    }
    assert {(partition, offset): (key, value) for partition, offset, key, value in found} == results


def test_a_rejected_batch_reports_its_reason_once(brokers: Brokers, topic: str) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.set_topic_config(topic, "max.message.bytes", "300")
    with Producer(brokers.bootstrap, {**ONE_ATTEMPT, "batch.size": "0", "linger.ms": "0"}) as producer:
        wait_for(
            lambda: not producer.send_batch(topic, [b"x" * 2000]).result(60).acked.any(),
            goal="the new config",
            timeout_s=60,
        )
        # Large records last: without batching, it splits "large, small" into the same two until its stack overflows.
        sent = producer.send_batch(topic, [b"x", b"x", b"x" * 2000, b"x" * 2000], partitions=0).result(60)
    assert sent.acked.tolist() == [True, True, False, False]
    assert sent.error.tolist() == [-1, -1, 0, 0]
    (error,) = sent.errors
    assert error.java_class == f"{ERRORS}.RecordTooLargeException"
    assert not error.retriable


def test_a_batch_to_a_missing_topic_takes_one_timeout(brokers: Brokers) -> None:
    with Producer(brokers.bootstrap, {"max.block.ms": "700"}) as producer:
        begun = time.monotonic()
        sent = producer.send_batch("absent", [b"x"] * 100).result(5)
        duration_s = time.monotonic() - begun
    assert 0.6 < duration_s < 3
    assert not sent.acked.any()
    assert all(error.java_class == f"{ERRORS}.TimeoutException" for error in sent.errors)


def test_a_record_rejected_by_the_producer_gets_the_error(brokers: Brokers, topic: str) -> None:
    with Producer(brokers.bootstrap, {"max.block.ms": "700"}) as producer:
        # connect first, for which 700 ms may be too short
        wait_for(
            lambda: producer.send_batch(topic, [b"x"]).result(60).acked.all(),
            goal="a record to the topic",
            timeout_s=60,
        )
        sent = producer.send_batch(topic, [b"x", b"x"], partitions=[-1, 99]).result(5)
        assert sent.acked.tolist() == [True, False]
        assert sent.errors[0].java_class == f"{ERRORS}.TimeoutException", "a partition may yet be added"
        too_large = producer.send_batch(topic, [b"x" * 2_000_000]).result(5)
        # an invalid record does not affect the others
        odd = producer.send_batch(topic, [b"x"] * 3, timestamps_ms=[-1, -7, -1]).result(5)
    assert too_large.errors[0].java_class == f"{ERRORS}.RecordTooLargeException"
    assert odd.acked.tolist() == [True, False, True]
    assert odd.errors[0].java_class == "java.lang.IllegalArgumentException"


def test_a_blocking_listener_delays_no_acknowledgement(brokers: Brokers, topic: str) -> None:
    go, blocked = threading.Event(), threading.Event()

    def block(_answer: object) -> None:
        blocked.set()
        go.wait(120)

    with Producer(brokers.bootstrap, {"acks": "all", "linger.ms": "0", "batch.size": "0"}) as producer:
        producer.send(topic, "key", "first", block)
        assert blocked.wait(30)
        later = producer.send_batch(topic, [b"second"])
        with Consumer(brokers.bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            # acknowledged and readable, although the first record's listener still blocks
            assert {value for *_, value in read(consumer, 2)} == {b"first", b"second"}
        assert not later.done()
        go.set()
        sent = later.result(60)
    assert sent.done_ns[0] < time.monotonic_ns()
    assert sent.acked.all()


def test_transactions(brokers: Brokers, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Producer(brokers.bootstrap, {"transactional.id": topic}) as producer:
        with pytest.raises(JavaError, match=r"^java\.lang\.IllegalStateException"):
            producer.begin()
        producer.init_transactions()
        with producer.transaction():
            kept = producer.send_batch(topic, [b"kept"], partitions=0)
        producer.begin()
        producer.send_batch(topic, [b"aborted"], partitions=0).result(60)
        producer.abort()
        producer.begin()
        open_ = producer.send_batch(topic, [b"open"], partitions=0)
        assert open_.result(60).acked.all()
        levels = {"read_uncommitted": {b"kept", b"aborted", b"open"}, "read_committed": {b"kept"}}
        for level, values in levels.items():
            with Consumer(brokers.bootstrap, {"isolation.level": level}) as consumer:
                consumer.assign([partition])
                assert {value for *_, value in read(consumer, len(values))} == values
                assert consumer.ends([partition])[partition] == (5 if level == "read_uncommitted" else 4)
        assert kept.result(0).offset.tolist() == [0]
        producer.commit()


def test_a_fenced_producer_is_recognised_by_its_exception(brokers: Brokers, topic: str) -> None:
    config = {"transactional.id": topic}
    with Producer(brokers.bootstrap, config) as first:
        first.init_transactions()
        first.begin()
        with Producer(brokers.bootstrap, config) as second:
            second.init_transactions()
        sent = first.send_batch(topic, [b"x"], partitions=0).result(60)
        assert not sent.acked.any()
        with pytest.raises(JavaError) as caught:
            first.commit()
        assert caught.value.extends(f"{ERRORS}.ApiException")
        assert not caught.value.retriable


def test_a_group_has_positions_and_commits(brokers: Brokers, topic: str) -> None:
    with Producer(brokers.bootstrap, {}) as producer:
        producer.send_batch(topic, [b"x"] * 10, partitions=[0] * 4 + [1] * 6).result(60)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(brokers.bootstrap, {"group.id": topic}) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, 10)) == 10
        assert consumer.positions() == {left: 4, right: 6}
        assert consumer.committed([left, right]) == {}
        consumer.commit({left: 2})
        assert consumer.committed([left, right]) == {left: 2}
        consumer.commit()
        assert consumer.committed([left, right]) == {left: 4, right: 6}
        assert consumer.beginnings([left]) == {left: 0}
    with Consumer(brokers.bootstrap, {"group.id": topic}) as consumer:
        consumer.assign({left: 3})
        assert read(consumer, 1) == [(0, 3, None, b"x")]
        assert len(consumer.poll(0.2)) == 0


def test_wakeup_ends_a_poll_and_close_is_bounded(brokers: Brokers, topic: str) -> None:
    with Consumer(brokers.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        timer = threading.Timer(0.3, consumer.wakeup)
        begun = time.monotonic()
        timer.start()
        with pytest.raises(JavaError, match=r"errors\.WakeupException"):
            consumer.poll(20)
        assert time.monotonic() - begun < 5
        timer.join()
    # a group whose coordinator never responds
    with socket.create_server((HOST, 0)) as mute:
        lost = Consumer(f"{HOST}:{mute.getsockname()[1]}", {"group.id": "g"}, timeout_s=1, close_timeout_s=1)
        lost.subscribe([topic])
        assert len(lost.poll(0.2)) == 0
        with pytest.raises(JavaError, match=r"errors\.TimeoutException"):
            lost.ends([TopicPartition(topic, 0)])
        begun = time.monotonic()
        lost.close()
        assert time.monotonic() - begun < 5
    with (
        pytest.raises(JavaError, match=r"^java\.lang\.IllegalStateException: .*not subscribed"),
        Consumer(brokers.bootstrap) as nothing,
    ):
        nothing.poll(0.1)


@pytest.mark.parametrize("release", ["patched", paths.kafka_version(), "4.4", "3.9", "2.8"])
def test_clients_of_other_releases_in_their_own_jvm(brokers: Brokers, topic: str, release: str) -> None:
    partition = TopicPartition(topic, 0)
    with Gateway(client_classpath(release)) as home:
        with Producer(brokers.bootstrap, {"acks": "all"}, home=home) as producer:
            values = [b"%d" % number for number in range(500)]
            sent = producer.send_batch(topic, values, partitions=0).result(30)
            assert sent.offset.tolist() == list(range(500))
            results: list[object] = []
            producer.send(topic, "key", "text", results.append)
        assert len(results) == 1
        with Producer(brokers.bootstrap, {"max.block.ms": "500"}, home=home) as producer:
            (error,) = producer.send_batch("absent", [b""]).result(60).errors
            assert error.retriable
        with Consumer(brokers.bootstrap, home=home) as consumer:
            consumer.assign([partition])
            assert [value for *_, value in read(consumer, 500)][:500] == values
            consumer.wakeup()
            with pytest.raises(JavaError, match=r"errors\.WakeupException"):
                consumer.poll(5)
        with pytest.raises(JavaError, match=r"config\.ConfigException"):
            Producer(brokers.bootstrap, {"acks": "some"}, home=home)


def test_a_dead_jvm_is_an_error(brokers: Brokers, topic: str) -> None:
    with Gateway(client_classpath(paths.kafka_version())) as home:
        producer = Producer(brokers.bootstrap, {"linger.ms": "60000"}, home=home)
        future = producer.send_batch(topic, [b"waits"])
        home.kill()
        with pytest.raises(RackgateError, match="the producer ended"):
            future.result(20)
        with pytest.raises(RackgateError):
            producer.close()


def test_an_unclosed_producer_does_not_keep_the_process(brokers: Brokers, topic: str) -> None:
    script = (
        "from pyhooks.jvm.producer import Producer\n"
        f"producer = Producer({brokers.bootstrap!r}, {{}})\n"
        f"print(producer.send_batch({topic!r}, [b'x']).result(20).acked.all())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=paths.REPO, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_fifty_thousand_records_take_little_cpu_time(brokers: Brokers, topic: str) -> None:
    # CPU time, not elapsed time, which depends on other work on the machine.
    command = ["taskset", "-c", "0", sys.executable, str(paths.REPO / "tests/support/jvm_crossing_cost.py")]
    cost = json.loads(
        run([*command, brokers.bootstrap, topic, "50000"], task="crossing", cwd=paths.REPO, timeout_s=200)
    )
    assert cost["send"]["cpu_s_per_50000"] < CPU_S_PER_50000, cost
    assert cost["poll"]["cpu_s_per_50000"] < CPU_S_PER_50000, cost
