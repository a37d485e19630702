"""Damaged logs: reading a disk gives the same records as its broker after recovery."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from loopback_brokers import Brokers
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.record_format import key_of, value_of
from pyhooks.jvm.admin import Admin
from pyhooks.lab.disks import BrokerDisk, read_disks
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import high_watermark, read_all

TOPIC = "damaged"
RECORDS = 3000
SEGMENT_BYTES = 1 << 20


def produce(bootstrap: str) -> None:
    """Produce three segments of records."""
    # many batches per segment
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 20, "log_level": 2}
    producer = confluent_kafka.Producer(settings)
    failed: list[Any] = []

    def done(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for seq in range(RECORDS):
        key = key_of("run", TOPIC, 0, seq)
        producer.produce(TOPIC, value_of(key, 1000), key.encode(), on_delivery=done)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


def dumped(brokers: Brokers, path: Path) -> list[dict[str, Any]]:
    history = History(path)
    read_disks([BrokerDisk(1, "a", brokers.data(1), stopped=True)], history)
    *chunks, last = history.events()
    assert (last.op, last.outcome, last.rack) == ("disk-end", "ok", "a")
    assert last.data["replicas"] == [[TOPIC, 0]]
    assert [event.op for event in chunks] == ["disk"] * len(chunks)
    return [dict(event.data) for event in chunks]


def damage(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_disk_is_read_as_its_broker_recovers_it(tmp_path: Path) -> None:
    classpath = Distribution.load().classpath(overlay=False)
    brokers = Brokers(tmp_path, {1: "a"}, 1)
    brokers.format(classpath)

    def served() -> bool:
        return brokers.serves(1)

    def recovered() -> int:
        """Start the broker on its disk; return its log end offset and records."""
        brokers.start(1, classpath)
        wait_for(served, goal="the broker", timeout_s=90, interval_s=0.3)
        end = high_watermark(brokers.bootstrap, TOPIC)
        path = tmp_path / f"read-{end}.jsonl"
        read_all(brokers.bootstrap, [TOPIC], History(path))
        keys = [key for event in History(path).events() for key in event.data["keys"]]
        assert keys == [key_of("run", TOPIC, 0, seq) for seq in range(end)]
        assert not any("damaged" in event.data for event in History(path).events())
        brokers.kill(1)
        return end

    with brokers.running(classpath):
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic(TOPIC, [[1]], {"segment.bytes": str(SEGMENT_BYTES)})
            wait_for(partial(admin.in_sync, TOPIC, (1,)), goal="a leader", timeout_s=60)
        produce(brokers.bootstrap)
        brokers.kill(1)
        segments = sorted((brokers.data(1) / f"{TOPIC}-0").glob("*.log"))
        assert len(segments) >= 3

        whole = dumped(brokers, tmp_path / "whole.jsonl")
        assert [key for chunk in whole for key in chunk["keys"]] == [
            key_of("run", TOPIC, 0, seq) for seq in range(RECORDS)
        ]
        assert {chunk["end"] for chunk in whole} == {RECORDS}
        assert not any("torn" in chunk for chunk in whole)

        # in the body of a batch, since the checksum does not cover the base offset
        damage(segments[1], segments[1].stat().st_size // 2 + 100)
        middle = dumped(brokers, tmp_path / "middle.jsonl")
        assert "damaged at byte" in middle[-1]["torn"]
        assert int(segments[1].stem) < middle[-1]["end"] < int(segments[2].stem)
        assert recovered() == middle[-1]["end"]

        last = max((brokers.data(1) / f"{TOPIC}-0").glob("*.log"))
        last.write_bytes(last.read_bytes()[:-3])
        short = dumped(brokers, tmp_path / "short.jsonl")
        assert "cut short at byte" in short[-1]["torn"]
        assert 0 < short[-1]["end"] < middle[-1]["end"]
        assert recovered() == short[-1]["end"]


def test_a_missing_disk_is_empty_and_an_unreadable_one_unknown(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    broken = tmp_path / "broken"
    (broken / f"{TOPIC}-0").mkdir(parents=True)
    (broken / "log-start-offset-checkpoint").write_text("0\n1\nnonsense\n", encoding="utf-8")
    disks = [BrokerDisk(1, "a", tmp_path / "wiped", stopped=True), BrokerDisk(2, "b", broken, stopped=False)]
    with pytest.raises(RackgateError, match="read the disks: broker 2"):
        read_disks(disks, history)
    wiped, unread = history.events()
    assert (wiped.outcome, wiped.data["replicas"], wiped.data["stopped"]) == ("ok", [], True)
    assert (unread.outcome, unread.data["stopped"]) == ("unknown", False)
    assert "error" in unread.data
