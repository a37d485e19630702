"""Every client in every mode on stock brokers, of which one is killed: all checkers pass."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from loopback_brokers import Brokers
from producer_processes import running_producers
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.registry import CHECKERS
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History, Outcome
from pyhooks.jvm.admin import Admin
from pyhooks.lab.disks import BrokerDisk, read_disks
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import ISOLATIONS, read_all
from pyhooks.workload.topic_observer import observe_topics
from untyped_events import note

pytestmark = pytest.mark.timeout(600)
RACKS = {1: "a", 2: "b", 3: "c"}
CONTROLLER = 1
KILLED = 2
PARTITIONS = 3
RATE = 20
BASE_S = 90.0
# all producers send for so long before the broker is killed, while it is unavailable, and after its return
PHASE_NS = 2 * 10**9
# start-up time of a client of each kind on a busy machine
START_S = 120.0
SMALL = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # the controller fences the killed broker sooner
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class Load:
    """A producer's client and mode; its topic is named after both."""

    client: str
    mode: str

    @property
    def topic(self) -> str:
        return f"{self.client.replace('.', '')}-{self.mode}"

    def arguments(self, bootstrap: str) -> list[str]:
        more = ["--abort-share", "0.2", "--txn-records", "10"] if self.mode == "transactional" else []
        arguments = ["--bootstrap", bootstrap, "--topics", self.topic, "--client", self.client, "--mode", self.mode]
        # a record may wait until the controller has fenced the broker, but not longer
        return [*arguments, "--rate", str(RATE), "--seconds", str(3 * BASE_S), "--timeout-ms", "20000", *more]


class LatestAttempts:
    """Send time of the latest attempts; each call reads only the events added to the history since the last."""

    def __init__(self, history: History) -> None:
        self._path = history.path
        self._read = 0
        self._sent_ns: dict[str, int] = {}
        self._acked_ns: dict[tuple[str, int], int] = {}

    def attempted(self, topic: str, after_ns: int) -> bool:
        """Return whether a record of the topic was sent after a time, with any outcome."""
        self._update()
        return self._sent_ns.get(topic, 0) > after_ns

    def all_acked(self, topics: Sequence[str], after_ns: int) -> bool:
        """Return whether each partition has an acknowledged record that was sent after a time: none has a backlog."""
        self._update()
        partitions = product(topics, range(PARTITIONS))
        return all(self._acked_ns.get(partition, 0) > after_ns for partition in partitions)

    def _update(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        # the last line is still being written
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for event in map(Event.parse, filter(None, whole.decode().split("\n"))):
            if event.op == "produce":
                topic, sent_ns = event.data["topic"], event.data["sent_ns"]
                self._sent_ns[topic] = max(self._sent_ns.get(topic, 0), sent_ns)
                if event.outcome == "ok":
                    partition = (topic, event.data["partition"])
                    self._acked_ns[partition] = max(self._acked_ns.get(partition, 0), sent_ns)


def connects(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def step(history: History, brokers: Brokers, name: str, *, up: bool | None = None) -> Event:
    """Record a step of the fault, with its verification if it has one."""
    outcome: Outcome | None = None
    probes: dict[str, Any] = {}
    if up is not None:
        probes = {"connect": connects(brokers.address(KILLED))}
        outcome = "ok" if probes["connect"] is up else "unknown"
    return note(history, "fault", "kill-rack", outcome, rack=RACKS[KILLED], step=name, probes=probes)


def in_sync(admin: Admin, topics: Sequence[str], replicas: Sequence[int]) -> bool:
    return all(admin.in_sync(topic, replicas, number) for topic in topics for number in range(PARTITIONS))


def outage(brokers: Brokers, classpath: str, loads: Sequence[Load], history: History, *, kill_first: bool) -> None:
    """Produce, kill a broker, restart it, and read all records; optionally also kill the first producer."""
    topics = [load.topic for load in loads]
    latest = LatestAttempts(history)
    survivors = ",".join(brokers.address(broker) for broker in RACKS if broker != KILLED)
    with Admin(survivors) as admin:
        for load in loads:
            placed = [[1 + (number + shift) % 3 for shift in range(3)] for number in range(PARTITIONS)]
            admin.create_topic(load.topic, placed, {"min.insync.replicas": "2"})
        wait_for(partial(in_sync, admin, topics, (1, 2, 3)), goal="all replicas in sync", timeout_s=BASE_S)
        watch = observe_topics(survivors, topics, RACKS, history, interval_s=0.3)
        programs = [load.arguments(brokers.bootstrap) for load in loads]
        with watch, running_producers(programs, history, logs=history.path.parent) as running:
            started = partial(latest.all_acked, topics, 0)
            wait_for(started, goal="all producers", timeout_s=START_S, interval_s=1)
            base_ns = note(history, "test", "mark", None).mono_ns
            wait_for(partial(latest.all_acked, topics, base_ns + PHASE_NS), goal="records", timeout_s=BASE_S,
                     interval_s=0.5)  # fmt: skip
            step(history, brokers, "before", up=True)
            step(history, brokers, "inject")
            brokers.kill(KILLED)
            proved = step(history, brokers, "proved", up=False)
            wait_for(partial(in_sync, admin, topics, (1, 3)), goal="the ISR of two", timeout_s=BASE_S)
            seen_ns = max(proved.mono_ns, note(history, "test", "mark", None).mono_ns)
            wait_for(partial(latest.all_acked, topics, seen_ns + PHASE_NS), goal="records without the broker",
                     timeout_s=BASE_S, interval_s=0.5)  # fmt: skip
            step(history, brokers, "held", up=False)
            step(history, brokers, "heal")
            brokers.start(KILLED, classpath)
            wait_for(partial(brokers.serves, KILLED), goal="the broker", timeout_s=BASE_S, interval_s=0.3)
            step(history, brokers, "healed", up=True)
            wait_for(partial(in_sync, admin, topics, (1, 2, 3)), goal="all in sync again", timeout_s=BASE_S)
            back_ns = note(history, "test", "mark", None).mono_ns
            wait_for(partial(latest.all_acked, topics, back_ns + PHASE_NS), goal="records after the heal",
                     timeout_s=BASE_S, interval_s=0.5)  # fmt: skip
            if kill_first:
                running[0].kill()
    read_all(brokers.bootstrap, topics, history, isolations=ISOLATIONS)


def disks(brokers: Brokers, folder: Path | None = None) -> list[BrokerDisk]:
    return [
        BrokerDisk(broker, rack, brokers.data(broker) if folder is None else folder / str(broker), stopped=True)
        for broker, rack in RACKS.items()
    ]


@pytest.mark.parametrize(
    ("loads", "kill_first"),
    [
        ((Load("patched", "idempotent"), Load("2.8", "plain"), Load("confluent", "transactional")), False),
        (
            (Load("confluent", "plain"), Load("patched", "transactional"), Load(paths.kafka_version(), "idempotent")),
            True,
        ),
        # "make kafka-long" runs it. "make test" has the first two loads below, transactions and old clients above, and
        # client 3.9 in tests/live/jvm/test_clients.py
        pytest.param(
            (Load("patched", "plain"), Load("confluent", "idempotent"), Load("3.9", "transactional")),
            False,
            marks=pytest.mark.long,
        ),
    ],
    ids=["one", "two", "three"],
)
def test_all_checkers_pass_on_stock_kafka(tmp_path: Path, loads: Sequence[Load], kill_first: bool) -> None:
    classpath = Distribution.load().classpath(overlay=False)
    history = History(tmp_path / "history.jsonl")
    brokers = Brokers(tmp_path, RACKS, CONTROLLER, extra=SMALL)
    brokers.format(classpath)
    with brokers.running(classpath, clean_end=True):
        outage(brokers, classpath, loads, history, kill_first=kill_first)
    topics = [load.topic for load in loads]
    read_disks(disks(brokers), history, topics=topics)

    events = list(history.events())
    found, left_out = judge(events)
    verdicts = {one.checker: (one.valid, one.because[:5]) for one in found}
    modes = {load.mode for load in loads}
    # whether a record was rejected is random
    assert set(left_out) - {"rejections"} == {"phases"} | (set() if "transactional" in modes else {"transactions"})
    # A client without retries may lose its leader at any time, so its attempts can have any outcome.
    for name, (valid, because) in verdicts.items():
        assert valid == "true" or (name in ("progress", "rejections") and valid == "unknown"), (name, valid, because)
    records = Records(events)
    for load in loads:
        own = [attempt for attempt in records.attempts if attempt.topic == load.topic]
        assert {attempt.partition for attempt in own} == set(range(PARTITIONS))
        assert sum(attempt.outcome == "ok" for attempt in own) > 100
    if not kill_first:
        # the disks of one run are enough: these checks do not depend on the clients
        _torn_logs_end_where_kafka_would_cut_them(brokers, topics[0], tmp_path, events)
        _lost_replicas_break_the_promise(brokers, topics, tmp_path, events)


def _torn_logs_end_where_kafka_would_cut_them(
    brokers: Brokers, topic: str, tmp_path: Path, events: Sequence[Event]
) -> None:
    """A log with a damaged batch ends before it; garbage after the last batch is reported, but harmless."""
    copied = tmp_path / "torn" / "1"
    shutil.copytree(brokers.data(1), copied)
    segment = copied / f"{topic}-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    before = next(e.data for e in events if e.op == "disk" and (e.data["broker"], e.data["topic"], e.data["partition"])
                  == (1, topic, 0))  # fmt: skip

    def read(content: bytes, name: str) -> dict[str, Any]:
        segment.write_bytes(content)
        history = History(tmp_path / f"torn-{name}.jsonl")
        read_disks([BrokerDisk(1, "a", copied, stopped=True)], history, topics=[topic])
        return next(dict(e.data) for e in history.events() if e.op == "disk" and e.data["partition"] == 0)

    garbage = read(whole + b"\x00" * 7, "garbage")
    assert (garbage["end"], garbage["keys"]) == (before["end"], before["keys"])
    assert garbage["torn"] == f"{segment.name}: cut short at byte {len(whole)}, 7 bytes left"
    short = read(whole[:-1], "short")
    assert short["end"] < before["end"]
    assert short["keys"] == before["keys"][: len(short["keys"])]
    # the last byte of a batch near the middle; the first bytes, its base offset, are not covered by the checksum
    middle = 0
    while middle < len(whole) // 2:
        middle += 12 + int.from_bytes(whole[middle + 8 : middle + 12])
    middle -= 1
    flipped = read(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], "flipped")
    assert 0 < flipped["end"] < short["end"]
    assert "damaged at byte" in flipped["torn"]


def _lost_replicas_break_the_promise(
    brokers: Brokers, topics: Sequence[str], tmp_path: Path, events: Sequence[Event]
) -> None:
    """A stock topic promises one rack: the promise is broken without any replica, but not with two of three."""
    left = [event for event in events if event.op not in ("disk", "disk-end")]
    for lost, valid in (((1, 2), "true"), ((1, 2, 3), "false")):
        folder = tmp_path / f"lost-{len(lost)}"
        for broker in RACKS:
            shutil.copytree(brokers.data(broker), folder / str(broker))
            if broker in lost:
                shutil.rmtree(folder / str(broker) / f"{topics[0]}-1")
        history = History(tmp_path / f"lost-{len(lost)}.jsonl")
        history.extend(left)
        read_disks(disks(brokers, folder), history, topics=topics)
        assert CHECKERS["promise"].check(list(history.events())).valid == valid


@pytest.mark.parametrize("overlay", [True, False], ids=["overlay", "stock"])
def test_the_gate_keeps_the_promise_and_stock_kafka_would_break_it(tmp_path: Path, overlay: bool) -> None:
    """With replicas in racks a, a, b and b lost for good, R=2 forbids records that only rack a has."""
    classpath = Distribution.load().classpath(overlay=overlay)
    history = History(tmp_path / "history.jsonl")
    racks = {1: "a", 2: "a", 3: "b"}
    brokers = Brokers(tmp_path, racks, CONTROLLER, extra=SMALL)
    brokers.format(classpath)
    loads = (Load("patched", "plain"), Load("confluent", "idempotent"))
    topics = [load.topic for load in loads]
    latest = LatestAttempts(history)
    survivors = ",".join(brokers.address(broker) for broker in (1, 2))
    needed = {"min.insync.replicas": "2"} | ({"min.insync.racks": "2"} if overlay else {})
    with brokers.running(classpath, clean_end=True), Admin(survivors) as admin:
        for topic in topics:
            admin.create_topic(topic, [[1, 2, 3], [2, 1, 3], [1, 2, 3]], needed)
        wait_for(partial(in_sync, admin, topics, (1, 2, 3)), goal="all replicas in sync", timeout_s=BASE_S)
        programs = [load.arguments(brokers.bootstrap) for load in loads]
        watch = observe_topics(survivors, topics, racks, history, interval_s=0.3)
        with watch, running_producers(programs, history, logs=tmp_path):
            wait_for(partial(latest.all_acked, topics, 0), goal="all producers", timeout_s=START_S, interval_s=1)
            base_ns = note(history, "test", "mark", None).mono_ns
            wait_for(partial(latest.all_acked, topics, base_ns + PHASE_NS), goal="records", timeout_s=BASE_S,
                     interval_s=0.5)  # fmt: skip
            note(history, "fault", "kill-rack", None, rack="b", step="inject")
            brokers.kill(3)
            wait_for(partial(in_sync, admin, topics, (1, 2)), goal="the ISR of rack a", timeout_s=BASE_S)
            alone_ns = note(history, "test", "mark", None).mono_ns + 6 * 10**9
            wait_for(partial(latest.attempted, topics[0], alone_ns), goal="attempts in rack a alone", timeout_s=BASE_S,
                     interval_s=0.5)  # fmt: skip
    own = [BrokerDisk(broker, rack, brokers.data(broker), stopped=True) for broker, rack in racks.items()]
    read_disks(own, history, topics=topics)

    # A stock topic cannot require racks: judge it as if it had required two.
    events = [
        replace(event, data={**event.data, "min.insync.racks": 2}) if event.op == "settings" else event
        for event in history.events()
    ]
    for name, says in (("promise", "lies in 1 rack(s) (a), 2 are required"), ("progress", "too few, and record")):
        found = CHECKERS[name].check(events)
        if overlay:
            assert (name, found.valid, found.because[:5]) == (name, "true", ())
        else:
            assert found.valid == "false"
            assert any(says in reason for reason in found.because), found.because[:5]
    rejected = {attempt.exception for attempt in Records(events).attempts if attempt.outcome == "fail"}
    assert rejected == ({"org.apache.kafka.common.errors.NotEnoughRacksException"} if overlay else set())
