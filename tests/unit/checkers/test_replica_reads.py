"""Reads from followers while racks are missing: the checker, the reader that it relies on, and its fetch requests."""

from __future__ import annotations

import random
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.replica_reads import check_replica_reads
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.record_format import key_of
from pyhooks.kafka import replica_fetch
from pyhooks.kafka.replica_fetch import FetchedPartition
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from pyhooks.workload import replica_reader
from pyhooks.workload.replica_reader import ReplicaReader, addresses_of, read_rounds
from written_histories import S, event

# Rack b is out of the ISR between these times; a record, an observation and a read round every 0.5 s.
LOST_S, BACK_S, END_S = 10.0, 25.0, 40.0
COMMITTED = 20


def history(
    *,
    shown: dict[int, int] | None = None,
    silent: tuple[int, ...] = (),
    before: bool = True,
    leader_until_s: float = END_S,
) -> list[Event]:
    """Return a history of records with acks=1.

    Args:
        shown: what brokers show during the shortage, by id; the high watermark by default.
        silent: brokers that do not respond during the shortage.
        before: whether followers show records while enough are in sync.
        leader_until_s: when the reader of the leader's high watermark ended.
    """
    events: list[Event] = []

    def note(at_s: float, process: str, op: str, outcome: Any = "ok", **data: Any) -> None:
        events.append(event(round(at_s * S), process, op, outcome, **data))

    settings: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": 2, "step": "seen", "topic": "t"}
    note(0, "isr-watch", "settings", **settings)
    about = {"run": "r", "topic": "t", "client": "patched", "first_only": True, "idempotent": False, "acks": "1"}
    note(0, "producer", "intend", None, **about, to={"0": 1000})
    for step in range(int(2 * END_S)):
        at_s = step / 2
        short = LOST_S <= at_s < BACK_S
        state = {"leader": 1, "isr": [1, 2] if short else [1, 2, 3], "replicas": [1, 2, 3]}
        racks = {"1": "a", "2": "a", "3": "b"}
        note(at_s, "isr-watch", "look", racks=racks, partitions={"t-0": state})
        sent: dict[str, Any] = {"run": "r", "topic": "t", "key": key_of("r", "t", 0, step), "seq": step, "partition": 0}
        note(at_s + 0.2, "producer", "produce", **sent, sent_ns=round((at_s + 0.1) * S), offset=step)
        high = COMMITTED if LOST_S <= at_s < BACK_S + 1 else step + 1
        for broker in (1, 2, 3):
            if short and broker in silent:
                continue
            after = (shown or {}).get(broker, high) if short else high if before or broker == 1 else 0
            read = {"run": "f", "broker": broker, "next": {"t-0": after}, "high": {"t-0": high}}
            note(at_s + 0.4, "replica-reader", "replica-read", asked_ns=round((at_s + 0.3) * S), **read)
        if at_s < leader_until_s:
            visible = {"run": "v", "next": {"t-0": high}, "high": {"t-0": high}}
            note(at_s + 0.45, "viewer", "visible", asked_ns=round((at_s + 0.41) * S), **visible)
    return events


def test_hidden_records_are_shown_by_no_replica() -> None:
    verdict = check_replica_reads(history())
    assert verdict.valid == "true", verdict
    assert verdict.notes == ("2 replicas hid records while too few were in sync, 3 showed others",)


@pytest.mark.parametrize("broker", [1, 2])
def test_a_hidden_record_shown_by_a_member_of_the_isr_is_wrong(broker: int) -> None:
    verdict = check_replica_reads(history(shown={broker: 45}))
    assert verdict.valid == "false"
    assert any(f"too few, and broker {broker} showed records with acks=1" in one for one in verdict.because)


def test_more_than_the_leader_has_committed_is_wrong_outside_the_isr_too() -> None:
    verdict = check_replica_reads(history(shown={3: 21}))
    assert verdict.valid == "false"
    assert "broker 3 showed records up to offset 21, and its leader's high watermark was 20" in verdict.because[0]


def test_a_follower_that_was_not_read_is_unknown() -> None:
    verdict = check_replica_reads(history(silent=(2,)))
    assert verdict.valid == "unknown"
    assert any("broker 2 was not read" in one for one in verdict.because)


def test_a_follower_that_never_shows_anything_proves_nothing() -> None:
    verdict = check_replica_reads(history(before=False))
    assert verdict.valid == "unknown"
    assert verdict.because == ("t-0: broker 2 showed no record while enough were in sync",)


def test_without_a_shortage_nothing_is_proved() -> None:
    events = [one for one in history() if one.mono_ns < LOST_S * S]
    assert check_replica_reads(events).because == ("no replica was read while too few were in sync",)


def test_without_the_leaders_high_watermark_nothing_is_proved() -> None:
    verdict = check_replica_reads(history(leader_until_s=0.0))
    assert verdict.valid == "unknown"
    assert any("no high watermark was returned after broker 3 was read" in one for one in verdict.because)


def test_acks_all_is_left_to_other_checkers() -> None:
    events = [replace(one, data={**one.data, "acks": "all"}) if one.op == "intend" else one for one in history()]
    assert check_replica_reads(events).because == ("no replica was read while too few were in sync",)


def test_the_checker_applies_to_reads_of_replicas() -> None:
    assert any(map(CHECKERS["replicas"].applies, history()))
    assert not any(CHECKERS["replicas"].applies(one) for one in history() if one.op != "replica-read")


# -- fetch requests ---------------------------------------------------------------------------------------------------


def batch(offset: int, count: int) -> bytes:
    body = b"\0" * 11 + struct.pack(">i", count - 1) + b"\0" * 30
    return struct.pack(">qi", offset, len(body)) + body


def response(records: bytes, error: int = 0, high: int = 9) -> bytes:
    partition = struct.pack(">ihqqq", 0, error, high, high, 0) + struct.pack(">ii", 0, -1)
    partition += struct.pack(">i", len(records)) + records
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", 1) + partition
    return struct.pack(">iihi", 1, 0, 0, 0) + struct.pack(">i", 1) + topic


def test_a_response_gives_the_offset_after_its_last_complete_batch() -> None:
    records = batch(3, 2) + batch(5, 4) + batch(9, 1)[:-1]
    found = replica_fetch.parse(response(records), {("t", 0): 3})
    assert found == {("t", 0): FetchedPartition(error=0, high=9, next=9)}


def test_a_response_without_records_gives_the_requested_offset() -> None:
    assert replica_fetch.parse(response(b""), {("t", 0): 7})["t", 0].next == 7


def test_a_truncated_response_is_an_error() -> None:
    with pytest.raises(IndexError):
        replica_fetch.parse(response(batch(0, 1))[:-1], {("t", 0): 0})


def test_a_request_has_all_partitions_and_no_session() -> None:
    text = replica_fetch.request({("t", 0): 5, ("t", 1): 6})
    assert struct.unpack(">i", text[:4])[0] == len(text) - 4
    assert struct.unpack(">hh", text[4:8]) == (1, 11)
    assert struct.pack(">iiqqi", 1, -1, 6, -1, 1 << 20) in text
    assert struct.pack(">ii", 0, -1) in text


# -- the reader -------------------------------------------------------------------------------------------------------


def test_the_reader_notes_what_each_broker_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replica_reader, "INTERVAL_S", 0.01)
    asked: list[tuple[str, int]] = []

    def fetch(address: tuple[str, int], offsets: Any, _: float) -> Any:
        asked.append((address[0], offsets["t", 0]))
        if address[0] == "gone":
            raise RackgateError("no response")
        error = 9 if address[0] == "late" else 0
        return {("t", 0): FetchedPartition(error, 8, offsets["t", 0] + 2)}

    monkeypatch.setattr(replica_fetch, "fetch", fetch)
    history_file = History(tmp_path / "h.jsonl")
    addresses = addresses_of("1=here:1,2=gone:2,3=late:3")
    reader = ReplicaReader(addresses, {broker: [("t", 0)] for broker in (1, 2, 3)}, history_file, "f")
    reader.read_round()
    stop = threading.Event()
    stop.set()
    read_rounds(reader, stop)
    first = list(history_file.events())[:3]
    assert [one.outcome for one in first] == ["ok", "unknown", "unknown"]
    assert [one.data["next"] for one in first] == [{"t-0": 2}, {}, {}]
    assert [one.data.get("errors") for one in first] == [None, {"": "no response"}, {"t-0": "error code 9"}]
    # Only what a broker has shown moves its position.
    assert asked == [("here", 0), ("gone", 0), ("late", 0), ("here", 2), ("gone", 0), ("late", 0)]


def test_malformed_addresses_are_named() -> None:
    with pytest.raises(RackgateError, match="--brokers '1:9092': must be id=host:port"):
        addresses_of("1:9092")


def test_a_planted_violation_is_found() -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == "show-at-replica"]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_replica_reads(planted).valid == "false"
