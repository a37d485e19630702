"""The watch on real brokers in racks a, a, b on loopback, one of which is stopped and one paused."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import Producer

from loopback_brokers import HOST, Brokers, shared_classes
from pyhooks.core.process import DIES_WITH_PARENT, run
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.lab.mbeans import BEANS, MetricsReading, SocketSource
from pyhooks.lab.metrics import metrics_of, poll_once
from pyhooks.patchset.distribution import Distribution
from pyhooks.watch.collector import QUERY_S, Collector, WatchedCluster
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import PartitionSummary, Snapshot

RACKS = {1: "a", 2: "a", 3: "b"}
WATCH = [sys.executable, "-c", "import pyhooks.cli; pyhooks.cli.main()", "watch"]


def sources(brokers: Brokers) -> tuple[SocketSource, ...]:
    return tuple(map(brokers.metrics, RACKS))


@pytest.fixture(scope="module")
def classpath() -> str:
    return Distribution.load().classpath()


@pytest.fixture(scope="module")
def brokers(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    agent = Distribution.load().hooks
    made = Brokers(tmp_path_factory.mktemp("watch"), RACKS, controller=1, agent=agent, jmx=True)
    made.format(classpath)
    with made.running(classpath):
        admin = topics.admin(made.bootstrap)
        wait_for(lambda: topics.unfenced(admin) == set(RACKS), goal="three brokers", timeout_s=60)
        topics.create(
            admin,
            [
                topics.TopicSpec("gated", (1, 3), {"min.insync.racks": "2", "min.insync.replicas": "1"}),
                topics.TopicSpec("free", (1, 2, 3), {"min.insync.replicas": "1"}),
                topics.TopicSpec("second", (2, 1), {"min.insync.replicas": "1"}),
            ],
        )
        yield made


class Eye:
    """Observer that takes observations repeatedly, as the command does."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.shown: Snapshot | None = None
        self.duration_s: list[float] = []

    def look(self) -> Snapshot:
        begun = time.monotonic()
        self.shown = take_snapshot(self.collector.observe(), self.shown)
        self.duration_s.append(time.monotonic() - begun)
        return self.shown

    def until(self, condition: Callable[[Snapshot], bool], goal: str, timeout_s: float = 60) -> Snapshot:
        try:
            wait_for(lambda: condition(self.look()), goal=goal, timeout_s=timeout_s, interval_s=0.3)
        except Exception as error:
            raise AssertionError(f"{error}; last seen: {self.shown}") from error
        assert self.shown is not None
        return self.shown


def of(shown: Snapshot, topic: str) -> PartitionSummary:
    return next(one for one in shown.partitions if one.observed.topic == topic)


def racks(shown: Snapshot, topic: str) -> tuple[int | None, int | None, int | None]:
    """Return required racks, racks of the ISR, and the leader's own count of racks."""
    one = of(shown, topic)
    return one.min_racks, one.isr_racks, one.leader_isr_racks


def states(shown: Snapshot) -> dict[int, str]:
    return {broker.id: broker.state for broker in shown.brokers}


@contextmanager
def sending(bootstrap: str, topic: str, number: int) -> Iterator[Producer]:
    """Produce records with acks=all repeatedly during the block; their outcomes are ignored."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
    producer = Producer(config | {"retry.backoff.ms": 50, "retry.backoff.max.ms": 50})
    for index in range(number):
        producer.produce(topic, value=str(index))
    try:
        yield producer
    finally:
        producer.purge()
        producer.flush(6)


def test_a_broker_is_paused_and_one_is_stopped(brokers: Brokers, classpath: str) -> None:
    target = WatchedCluster("loopback", brokers.bootstrap, sources=sources(brokers))
    with Collector(target, interval_s=0.5) as collector:
        eye = Eye(collector)
        shown = eye.until(
            lambda now: (
                collector.complete
                and len(now.partitions) == 3
                and now.gate.brokers_known == 3
                and racks(now, "gated") == (2, 2, 2)
            ),
            "a whole view",
        )
        assert (shown.racks, states(shown)) == (("a", "b"), {1: "up", 2: "up", 3: "up"})
        with sending(brokers.bootstrap, "free", 500) as producer:
            assert producer.flush(60) == 0
        # a rate is computed over the time between two observations, even if it is short
        shown = eye.until(
            lambda now: (
                of(now, "free").log_end == 500 == of(now, "free").watermark.offset and not now.observation.problems
            ),
            "500 records, and every answer in time",
        )
        assert (of(shown, "free").level, of(shown, "gated").verdict) == ("ok", "ok, no rack to spare")

        brokers.pause(2)
        try:
            shown = eye.until(lambda now: states(now)[2] in ("mute", "gone"), "broker 2 to fall silent")
            # the other brokers are observed as before
            assert (states(shown)[1], states(shown)[3], of(shown, "gated").observed.leader) == ("up", "up", 1)
            shown = eye.until(lambda now: of(now, "second").observed.leader == 1, "another leader")
            assert any("broker-2: no metrics within" in text for text in shown.observation.problems)
        finally:
            brokers.resume(2)
        eye.until(lambda now: set(states(now).values()) == {"up"}, "broker 2 to be back")

        brokers.kill(3)
        shown = eye.until(lambda now: of(now, "gated").verdict == "rejects: 1 of 2 racks", "the gate to close")
        assert states(shown)[3] == "gone"
        with sending(brokers.bootstrap, "gated", 5):
            eye.until(lambda now: (now.gate.rack_check_failures_per_s or 0) > 0, "rejections in the metrics")
            shown = eye.until(
                lambda now: (
                    of(now, "gated").watermark.motion == "frozen"
                    and racks(now, "gated") == (2, 1, 1)
                    and now.gate.under_min_rack_isr == 1
                ),
                "a frozen high watermark, and what the leader counts",
            )
        assert of(shown, "gated").level == "down"
        assert (of(shown, "free").level, of(shown, "free").isr_racks) == ("risk", 1)
        assert of(shown, "free").verdict == "rack a alone acks"
        brokers.start(3, classpath)
        eye.until(lambda now: set(states(now).values()) == {"up"} and of(now, "gated").level == "ok", "all as before")
        # no observation waits for a dead broker
        assert sorted(eye.duration_s)[-3] < QUERY_S


def test_metrics_of_a_broker_from_the_agent(brokers: Brokers) -> None:
    found = poll_once(sources(brokers)[0], 10)
    assert (found.problem, found.errors) == ("", ())
    names = {one.name for one in found.metrics}
    assert {
        "IsrRackCount",
        "LogEndOffset",
        "RackCheckFailureRate.Count",
        "UnderMinRackIsrPartitionCount",
        "UnderReplicatedPartitions",
        "OfflinePartitionsCount",
        "ActiveControllerCount",
        "MessagesInPerSec.Count",
        "ErrorsPerSec.Produce.NONE.Count",
        "BrokerState",
    } <= names
    racks = {one.topic: one.value for one in found.metrics if one.name == "IsrRackCount"}
    assert racks["gated"] == 2


def test_metrics_of_a_broker_from_jmx_are_the_same(brokers: Brokers, classpath: str) -> None:
    """Compare the agent's metrics with those that Kafka's JmxTool reads."""
    found = poll_once(sources(brokers)[0], 30)
    url = f"service:jmx:rmi:///jndi/rmi://{HOST}:{brokers.jmx_ports[1]}/jmxrmi"
    tool = ["java", *shared_classes(classpath), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    tool += ["org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--one-time"]
    rows = []
    for attributes in {attributes for _, attributes in BEANS}:
        names = [option for pattern, own in BEANS if own == attributes for option in ("--object-name", pattern)]
        options = ["--report-format", "tsv", "--attributes", attributes, *names]
        for line in run([*tool, *options], task="read MBeans through JMX", timeout_s=240).splitlines():
            name, _, value = line.partition("\t")
            bean, _, attribute = name.rpartition(":")
            if name != "time":
                rows.append((bean, attribute, value))
    by_jmx = metrics_of(MetricsReading(tuple(rows)), 1, 0, 0)
    assert found.problem == ""
    expected = {(one.topic, one.partition, one.name) for one in found.metrics}
    assert {(one.topic, one.partition, one.name) for one in by_jmx} == expected


def test_the_command_in_a_pipe(brokers: Brokers) -> None:
    command = [*WATCH, "--bootstrap", brokers.bootstrap]
    lines = subprocess.run(
        [*command, "--json", "--interval", "1s", "--for", "3s"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    # fewer samples on a busy machine
    assert 1 <= len(lines) <= 3
    snapshots = [json.loads(line) for line in lines]
    assert snapshots[-1]["counts"]["ok"] == 3
    assert snapshots[0]["partitions"][0]["hw"] in ("still", "unknown", "frozen")
    plain = subprocess.run([*command, "--once"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "\x1b" not in plain
    assert "gated-0" in plain
    assert "ok, no rack to spare" in plain
    head = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -c 'import pyhooks.cli; pyhooks.cli.main()' watch --json --interval 200ms"
         f" --bootstrap {brokers.bootstrap} | head -n 1"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert head.stderr == ""
    assert json.loads(head.stdout)["schema"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_is_restored_at_once(brokers: Brokers, number: signal.Signals) -> None:
    master, slave = pty.openpty()
    # a shell's background commands and their children ignore SIGINT
    heeds = ("env", "--default-signal=INT,TERM")
    command = [*DIES_WITH_PARENT, *heeds, *WATCH, "--bootstrap", brokers.bootstrap, "--interval", "500ms"]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    text = b""
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as running:
        os.close(slave)
        try:
            while b"gated-0" not in text:
                text += os.read(master, 65536)
            running.send_signal(number)
            begun = time.monotonic()
            # Keep reading, as a terminal does; otherwise its buffer would fill up and block the program.
            while running.poll() is None and time.monotonic() - begun < 30:
                if select.select([master], [], [], 0.05)[0]:
                    with suppress(OSError):
                        text += os.read(master, 65536)
            assert running.poll() == 0
            assert time.monotonic() - begun < 15, "not after what the next look waits for"
        finally:
            running.kill()
    try:
        while part := os.read(master, 65536):
            text += part
    except OSError:
        # the other end of a closed terminal
        pass
    os.close(master)
    assert text.index(b"\x1b[?1049h") < text.index(b"gated-0") < text.rindex(b"\x1b[?1049l")
    assert text.rindex(b"\x1b[?25h") > text.rindex(b"\x1b[?25l"), "the cursor is there again"
