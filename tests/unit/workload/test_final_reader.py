"""Final read with a fake consumer: chunks, incomplete reads and value sizes."""

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


class FakeLog:
    """Fake consumer of a log with ``end`` records that returns only the first ``readable``.

    Its clock advances only while no record is available.
    """

    def __init__(self, end: int, readable: int, size: int = 100) -> None:
        self.end, self.readable, self.size, self.at, self.clock_s = end, readable, size, 0, 0.0

    def monotonic(self) -> float:
        return self.clock_s

    def assign(self, _partitions: object) -> None:
        self.at = 0

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self.end

    def consume(self, max_records: int, timeout_s: float) -> list[Message]:
        found = [Message(at, self.size) for at in range(self.at, min(self.at + max_records, self.readable))]
        self.at += len(found)
        self.clock_s += 0.0 if found else timeout_s
        return found


def read_partition(log: FakeLog, path: Path, timeout_s: float = 60.0) -> list[Event]:
    details = ReadDetails(
        read_id="p", topic="t", partition=0, partitions=1, isolation=final_reader.UNCOMMITTED, begun_ns=5
    )
    history = History(path / "h.jsonl")
    final_reader._read_partition(cast(Consumer, log), details, history, timeout_s, values=False)
    return list(history.events())


def test_chunks_form_one_complete_read(tmp_path: Path) -> None:
    events = read_partition(FakeLog(12_000, 12_000), tmp_path)
    assert [event.outcome for event in events] == ["ok"] * 3
    reads, missing = Records(events).final("t", final_reader.UNCOMMITTED)
    assert (missing, len(reads[0].keys), reads[0].begun_ns) == ([], 12_000, 5)


def test_an_incomplete_read_is_recorded_with_the_last_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(12_000, 11_000)
    monkeypatch.setattr(final_reader, "time", log)
    events = read_partition(log, tmp_path, timeout_s=0.5)
    assert log.clock_s >= 0.5, "polled until the timeout"
    assert [event.outcome for event in events] == ["ok", "ok", "unknown"]
    assert Records(events).final("t", final_reader.UNCOMMITTED)[1] == [
        "t-0: final read: not to its end: offset 11000 of 12000"
    ]


@pytest.mark.parametrize("readers", [1, 2, 3, 8])
def test_parallel_readers_record_the_same_as_a_single_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    consumers: list[FakeLog] = []

    @contextmanager
    def open_fake_consumer(*_: object, **__: object) -> Iterator[FakeLog]:
        consumers.append(FakeLog(3, 3))
        yield consumers[-1]

    names = [f"t{number}" for number in range(5)]
    monkeypatch.setattr(final_reader, "open_consumer", open_fake_consumer)
    monkeypatch.setattr(final_reader, "partition_count", lambda *_: 2)
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
    def open_fake_consumer(*_: object, **__: object) -> Iterator[FakeLog]:
        yield FakeLog(3, 2)

    monkeypatch.setattr(final_reader, "open_consumer", open_fake_consumer)
    monkeypatch.setattr(final_reader, "partition_count", partitions)
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match=r"t0-0: at offset 2 of 3 .*; t1-0: at offset 2"):
        final_reader.read_all("b:1", ["t0", "t1"], history, readers=2, timeout_s=0.05)
    with pytest.raises(RackgateError, match="no such topic"):
        final_reader.read_all("b:1", ["t0", "absent"], history, readers=2, timeout_s=0.05)


KEY = key_of("r", "t", 0, 0)
_RUN: dict[str, Any] = {"run": "r", "topic": "t", "to": {"0": 1}}
PRODUCED = (
    Event(1, 1, "producer", "intend", None, None,
          {**_RUN, "first_only": True, "idempotent": False, "record_bytes": 100}),
    Event(2, 1, "producer", "produce", "ok", None,
          {"run": "r", "topic": "t", "key": KEY, "seq": 0, "partition": 0, "offset": 0}),
    Event(3, 1, "producer", "end", None, None, _RUN),
)  # fmt: skip


@pytest.mark.parametrize(("size", "valid"), [(100, "true"), (60, "false"), (len("r/t/0/0"), "false"), (0, "false")])
def test_a_truncated_value_is_reported(tmp_path: Path, size: int, valid: str) -> None:
    verdict = check_delivery([*PRODUCED, *read_partition(FakeLog(1, 1, size), tmp_path)])
    assert verdict.valid == valid, verdict.because
    assert size == 100 or any(f"{KEY} was read with {size} bytes" in reason for reason in verdict.because)


def test_an_announced_length_without_a_read_size_is_unknown(tmp_path: Path) -> None:
    (last,) = read_partition(FakeLog(1, 1), tmp_path)
    without_sizes = Event(
        4, 1, "reader", "read", "ok", None, {key: data for key, data in last.data.items() if key != "sizes"}
    )
    verdict = check_delivery([*PRODUCED, without_sizes])
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert verdict.because[0].startswith("t-0: ")
