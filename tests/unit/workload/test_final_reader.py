"""Final read with a fake consumer: chunks, ends, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer

from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.record_view import Records
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import ReadDetails
from pyhooks.history.record_format import key_of, value_of
from pyhooks.workload import final_reader


@dataclass
class Message:
    at: int
    size: int

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return key_of("r", "t", 0, self.at).encode()

    def value(self) -> bytes:
        return value_of(self.key().decode(), 100)[: self.size]


class Log:
    """A consumer of a log that may not give all of itself; time passes for it only while it has nothing to give."""

    def __init__(self, end: int, given: int, size: int = 100) -> None:
        self.end, self.given, self.size, self.at, self.clock_s = end, given, size, 0, 0.0

    def monotonic(self) -> float:
        return self.clock_s

    def assign(self, _where: object) -> None:
        self.at = 0

    def get_watermark_offsets(self, *_about: object, **_more: object) -> tuple[int, int]:
        return 0, self.end

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        found = [Message(at, self.size) for at in range(self.at, min(self.at + most, self.given))]
        self.at += len(found)
        self.clock_s += 0.0 if found else timeout_s
        return found


def read(log: Log, path: Path, timeout_s: float = 60.0) -> list[Event]:
    about = ReadDetails(
        read_id="p", topic="t", partition=0, partitions=1, isolation=final_reader.UNCOMMITTED, begun_ns=5
    )
    history = History(path / "h.jsonl")
    final_reader._read_partition(cast(Consumer, log), about, history, timeout_s, values=False)
    return list(history.events())


def test_many_chunks_are_one_whole_read(tmp_path: Path) -> None:
    events = read(Log(12_000, 12_000), tmp_path)
    assert [one.outcome for one in events] == ["ok"] * 3
    reads, missing = Records(events).final("t", final_reader.UNCOMMITTED)
    assert (missing, len(reads[0].keys), reads[0].begun_ns) == ([], 12_000, 5)


def test_an_incomplete_read_is_recorded_with_the_last_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(12_000, 11_000)
    monkeypatch.setattr(final_reader, "time", log)
    events = read(log, tmp_path, timeout_s=0.5)
    assert log.clock_s >= 0.5, "it was asked until the time was over"
    assert [one.outcome for one in events] == ["ok", "ok", "unknown"]
    assert Records(events).final("t", final_reader.UNCOMMITTED)[1] == [
        "t-0: final read: not to its end: offset 11000 of 12000"
    ]


@pytest.mark.parametrize("readers", [1, 2, 3, 8])
def test_several_readers_share_the_topics_and_record_the_same_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    consumers: list[Log] = []

    @contextmanager
    def consumer_of(*_about: object, **_more: object) -> Iterator[Log]:
        consumers.append(Log(3, 3))
        yield consumers[-1]

    names = [f"t{number}" for number in range(5)]
    monkeypatch.setattr(final_reader, "open_consumer", consumer_of)
    monkeypatch.setattr(final_reader, "partition_count", lambda *_about: 2)
    history = History(tmp_path / "h.jsonl")
    final_reader.read_all("b:1", names, history, readers=readers)
    assert len(consumers) == min(readers, len(names))
    records = Records(list(history.events()))
    assert len({read.name for read in records.reads}) == 1
    for name in names:
        reads, missing = records.final(name, final_reader.UNCOMMITTED)
        assert (missing, sorted(reads), len(reads[1].keys)) == ([], [0, 1], 3)


def test_a_failure_of_one_of_several_readers_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def partitions(_consumer: object, topic: str, _purpose: str) -> int:
        if topic == "absent":
            raise RackgateError("final read of absent: no such topic")
        return 1

    @contextmanager
    def consumer_of(*_about: object, **_more: object) -> Iterator[Log]:
        yield Log(3, 2)

    monkeypatch.setattr(final_reader, "open_consumer", consumer_of)
    monkeypatch.setattr(final_reader, "partition_count", partitions)
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match=r"t0-0: at offset 2 of 3 .*; t1-0: at offset 2"):
        final_reader.read_all("b:1", ["t0", "t1"], history, readers=2, timeout_s=0.05)
    with pytest.raises(RackgateError, match="no such topic"):
        final_reader.read_all("b:1", ["t0", "absent"], history, readers=2, timeout_s=0.05)


NAME = key_of("r", "t", 0, 0)
_RUN: dict[str, Any] = {"run": "r", "topic": "t", "to": {"0": 1}}
SENT = (
    Event(1, 1, "producer", "intend", None, None,
          {**_RUN, "first_only": True, "idempotent": False, "record_bytes": 100}),
    Event(2, 1, "producer", "produce", "ok", None,
          {"run": "r", "topic": "t", "key": NAME, "seq": 0, "partition": 0, "offset": 0}),
    Event(3, 1, "producer", "end", None, None, _RUN),
)  # fmt: skip


@pytest.mark.parametrize(("size", "valid"), [(100, "true"), (60, "false"), (len("r/t/0/0"), "false"), (0, "false")])
def test_a_shortened_value_is_found(tmp_path: Path, size: int, valid: str) -> None:
    found = check_delivery([*SENT, *read(Log(1, 1, size), tmp_path)])
    assert found.valid == valid, found.because
    assert size == 100 or any(f"{NAME} was read with {size} bytes" in reason for reason in found.because)


def test_an_announced_length_without_a_read_is_unknown(tmp_path: Path) -> None:
    (last,) = read(Log(1, 1), tmp_path)
    bare = Event(4, 1, "reader", "read", "ok", None, {key: data for key, data in last.data.items() if key != "sizes"})
    found = check_delivery([*SENT, bare])
    assert (found.valid, len(found.because)) == ("unknown", 1)
    assert found.because[0].startswith("t-0: ")
