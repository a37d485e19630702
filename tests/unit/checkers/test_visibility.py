"""Visibility of records with acks=1 during a shortage of racks: the checker, and the reader that it relies on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from planted_violations import planted
from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.record_view import PartitionName, Records
from pyhooks.checkers.recovery import check_recovery
from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.settling_times import attempts_of
from pyhooks.checkers.visibility import check_visibility, reader_rounds
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.record_format import key_of
from pyhooks.workload import visibility_reader
from pyhooks.workload.visibility_reader import VisibilityReader, read_rounds
from written_histories import REJECTED, S, chunks, event, without

RUN = "producer-1"
LOST_S, BACK_S, END_S = 10.0, 25.0, 40.0
BOUND_S = 5.0
FIRST_HIDDEN = 24


@dataclass
class ObservedRun:
    """Run of 40 s with rack b out of the ISR from 10 s to 25 s; every 0.5 s a record, an observation and a read round.

    Attributes:
        leader: leader at a time.
        rejected: times at which a record was rejected, in seconds.
        shown: high watermark by time and log end offset; None if the leader does not respond.
        observed: whether the ISR was observed at a time.
        lost: offsets missing in the final read.
        back_s: time at which the ISR is complete again.
        acks: acks setting that the producer announced.
        until_s: time at which the reader ended.
    """

    leader: Callable[[float], int] = lambda _: 1
    rejected: tuple[float, ...] = ()
    shown: Callable[[float, int], int | None] = lambda at_s, sent: 20 if LOST_S <= at_s < BACK_S + 1 else sent
    observed: Callable[[float], bool] = lambda _: True
    lost: tuple[int, ...] = ()
    back_s: float = BACK_S
    acks: str | None = "1"
    until_s: float = END_S
    events: list[Event] = field(default_factory=list)

    def history(self) -> list[Event]:
        fields: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": 2, "step": "seen", "topic": "t"}
        self._note(0, "isr-watch", "settings", **fields)
        about = {"run": RUN, "topic": "t", "client": "patched", "first_only": True, "idempotent": False}
        self._note(0, "producer", "intend", None, **about, to={"0": 1000}, **({"acks": self.acks} if self.acks else {}))
        keys: list[str] = []
        for step in range(int(2 * END_S)):
            self._step(step, step / 2, keys)
        self._note(END_S, "producer", "end", None, **about, to={"0": int(2 * END_S)})
        present = [(at, key) for at, key in enumerate(keys) if at not in self.lost]
        place: dict[str, Any] = {"pass": "p", "topic": "t", "partition": 0, "partitions": 1}
        for part in chunks(present, 100, len(keys)):
            self._note(END_S + 1, "reader", "read", **place, isolation="read_uncommitted", low=0, end=len(keys), **part)
        return self.events

    def _step(self, seq: int, at_s: float, keys: list[str]) -> None:
        isr = [1, 2] if LOST_S <= at_s < self.back_s else [1, 2, 3]
        state = {"leader": self.leader(at_s), "isr": isr, "replicas": [1, 2, 3]}
        racks = {"1": "a", "2": "a", "3": "b"}
        if self.observed(at_s):
            self._note(at_s, "isr-watch", "look", racks=racks, partitions={"t-0": state})
        key = key_of(RUN, "t", 0, seq)
        sent: dict[str, Any] = {"run": RUN, "topic": "t", "key": key, "seq": seq, "partition": 0}
        sent["sent_ns"] = round((at_s + 0.1) * S)
        if at_s in self.rejected:
            self._note(at_s + 0.2, "producer", "produce", "fail", exception=REJECTED, **sent)
        else:
            self._note(at_s + 0.2, "producer", "produce", offset=len(keys), **sent)
            keys.append(key)
        if at_s < self.until_s:
            offset = self.shown(at_s, len(keys))
            # the reader has read up to the high watermark
            read = {"t-0": offset or 0}
            high = {} if offset is None else {"t-0": offset}
            asked_ns = round((at_s + 0.3) * S)
            outcome = "unknown" if offset is None else "ok"
            self._note(at_s + 0.4, "viewer", "visible", outcome, run="v", asked_ns=asked_ns, next=read, high=high)

    def _note(self, at_s: float, process: str, op: str, outcome: Any = "ok", **data: Any) -> None:
        self.events.append(event(round(at_s * S), process, op, outcome, **data))


def no_response(at_s: float, sent: int) -> int | None:
    """No high watermark while the rack is lost."""
    return None if LOST_S <= at_s < BACK_S + 1 else sent


def visible_during_outage(at_s: float, sent: int) -> int | None:
    """High watermark that advances although the racks are too few."""
    return 30 if 16 <= at_s < BACK_S else 20 if LOST_S <= at_s < BACK_S else sent


def hidden_forever(at_s: float, sent: int) -> int | None:
    """High watermark that does not advance after the heal."""
    return 20 if at_s >= LOST_S else sent


def new_leader_from(from_s: float) -> Callable[[float], int]:
    return lambda at_s: 2 if at_s >= from_s else 1


@pytest.mark.parametrize(
    ("run", "valid", "reason"),
    [
        (ObservedRun(), "true", ""),
        (ObservedRun(rejected=(15.0,)), "false", "seq"),
        (ObservedRun(rejected=(2.0,)), "false", "rejected with"),
        (ObservedRun(shown=visible_during_outage), "false", "could be read"),
        (ObservedRun(shown=hidden_forever), "false", "within 5 s"),
        (ObservedRun(shown=hidden_forever, until_s=27), "unknown", "no reader ran for 5 s"),
        (ObservedRun(shown=no_response), "unknown", "no reader got the high watermark"),
        (ObservedRun(until_s=5), "unknown", "no reader got the high watermark"),
        (ObservedRun(back_s=END_S, shown=hidden_forever), "unknown", "never seen in sync again"),
        (ObservedRun(lost=(30,)), "false", "its leader stayed"),
        (ObservedRun(lost=(3,)), "false", "its leader stayed"),
        # a new leader need not have the record
        (ObservedRun(lost=(30,), leader=new_leader_from(28)), "true", ""),
        (ObservedRun(lost=(70,), leader=new_leader_from(28)), "false", "its leader stayed"),
        (ObservedRun(shown=hidden_forever, leader=new_leader_from(26)), "true", ""),
        # the leader is unknown
        (ObservedRun(lost=(30,), observed=lambda at_s: not 27 <= at_s < 32), "true", ""),
        (
            ObservedRun(observed=lambda at_s: not LOST_S <= at_s < BACK_S),
            "unknown",
            "no reader looked for a record with acks=1",
        ),
        (ObservedRun(acks="all"), "unknown", "for a record with acks=1"),
        (ObservedRun(acks=None), "unknown", "for a record with acks=1"),
    ],
)
def test_verdict_on_the_visibility_of_records_with_acks_1(run: ObservedRun, valid: str, reason: str) -> None:
    verdict = check_visibility(run.history(), shown_s=BOUND_S)
    assert verdict.valid == valid, verdict
    if reason != "seq":
        assert any(reason in because for because in verdict.because) or not reason, verdict.because


def test_records_lost_with_another_leader_are_noted() -> None:
    verdict = check_visibility(ObservedRun(lost=(30, 31), leader=new_leader_from(28)).history(), shown_s=BOUND_S)
    assert any("2 records with acks=1 are gone" in note for note in verdict.notes), verdict.notes


def test_the_time_until_records_are_visible_is_noted() -> None:
    verdict = check_visibility(ObservedRun().history())
    assert any("none readable for up to" in note for note in verdict.notes)
    assert any("all of them read 1.4 s after" in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize("op", ["visible", "look", "settings", "intend", "produce", "read"])
def test_without_events_of_one_kind_the_verdict_is_unknown(op: str) -> None:
    assert check_visibility([entry for entry in ObservedRun().history() if entry.op != op]).valid == "unknown"


def test_other_checkers_do_not_judge_acks_1() -> None:
    """Rejected, late or lost records with acks=1 violate no guarantee of acks=all."""
    events = ObservedRun(lost=(3,), back_s=END_S).history()
    assert not attempts_of(Records(events))
    for check in (check_delivery, check_offsets, check_promise, check_progress, check_recovery):
        assert check(events).valid == "unknown", check
    acks_all = [
        replace(entry, data={**entry.data, "acks": "all"}) if entry.op == "intend" else entry for entry in events
    ]
    assert check_delivery(acks_all).valid == check_offsets(acks_all).valid == "false"


def test_the_checker_applies_where_a_reader_runs() -> None:
    events = ObservedRun().history()
    assert any(map(CHECKERS["visibility"].applies, events))
    assert not any(map(CHECKERS["visibility"].applies, [entry for entry in events if entry.op != "visible"]))


@pytest.mark.parametrize(("blind_until_s", "valid"), [(21.5, "true"), (19.0, "unknown")])
def test_a_period_too_short_for_two_rounds_needs_no_round(blind_until_s: float, valid: str) -> None:
    """A pause of observations makes two periods; the reader gets no high watermark in the second one."""

    def shown(at_s: float, sent: int) -> int | None:
        return None if blind_until_s <= at_s < BACK_S else 20 if LOST_S <= at_s < BACK_S + 1 else sent

    observed = ObservedRun(observed=lambda at_s: not 15 <= at_s < blind_until_s, shown=shown)
    assert check_visibility(observed.history(), shown_s=BOUND_S).valid == valid


def test_a_single_missing_round_is_tolerated() -> None:
    events = ObservedRun().history()
    assert check_visibility(without(events, lambda entry: entry.op == "visible", 30)).valid == "true"


# -- the reader -------------------------------------------------------------------------------------------------------


@dataclass
class Message:
    at: int
    code: int | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class FakeConsumer:
    """Fake Consumer of topic ``t`` that returns or raises the given batches in order; ``high``: its high watermark."""

    def __init__(self, *batches: list[Message] | KafkaException, high: int | None = 7) -> None:
        self.batches, self.high = list(batches), high

    def assign(self, partitions: list[Any]) -> None:
        assert [(assigned.topic, assigned.partition) for assigned in partitions] == [("t", 0)]

    def consume(self, _num_messages: int, _timeout: float) -> list[Message]:
        batch = self.batches.pop(0) if self.batches else []
        if isinstance(batch, KafkaException):
            raise batch
        return batch

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        assert timeout > 0
        error = None if topic == "t" else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={0: None})})

    def get_watermark_offsets(self, _partition: object, *, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        if self.high is None:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return 0, self.high


def read_one_round(consumer: FakeConsumer, path: Path) -> Event:
    history = History(path / "h.jsonl")
    VisibilityReader(cast(Consumer, consumer), [("t", 0)], history, "v").read_round(0.05)
    (recorded,) = history.events()
    return recorded


def test_a_round_records_read_offsets_and_the_high_watermark(tmp_path: Path) -> None:
    entry = read_one_round(
        FakeConsumer([Message(0), Message(1)], [Message(4), Message(5, KafkaError._PARTITION_EOF)]), tmp_path
    )
    assert (entry.process, entry.op, entry.outcome) == ("viewer", "visible", "ok")
    assert {name: entry.data[name] for name in ("run", "next", "high")} == {
        "run": "v",
        "next": {"t-0": 5},
        "high": {"t-0": 7},
    }
    assert "errors" not in entry.data
    (round_,) = reader_rounds([entry])[PartitionName("t", 0)]
    assert (round_.next, round_.high, round_.readable, round_.asked_ns <= round_.at_ns) == (
        5,
        7,
        7,
        True,
    )


def test_a_leader_without_a_high_watermark_is_unknown(tmp_path: Path) -> None:
    entry = read_one_round(FakeConsumer([Message(0)], high=None), tmp_path)
    assert (entry.outcome, entry.data["high"], entry.data["errors"]) == ("unknown", {}, {"t-0": "LEADER_NOT_AVAILABLE"})
    assert reader_rounds([entry])[PartitionName("t", 0)][0].high is None


@pytest.mark.parametrize(
    ("batch", "partition"),
    [
        ([Message(0, KafkaError.OFFSET_OUT_OF_RANGE)], "t-0"),
        (KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), ""),
    ],
)
def test_every_error_of_a_fetch_is_recorded(batch: Any, partition: str, tmp_path: Path) -> None:
    entry = read_one_round(FakeConsumer(batch), tmp_path)
    assert list(entry.data["errors"]) == [partition]
    assert entry.outcome == "ok", "its leader reported the offset"


def test_a_reader_reads_once_more_after_it_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(visibility_reader, "INTERVAL_S", 0.01)
    stop, history = threading.Event(), History(tmp_path / "h.jsonl")
    stop.set()
    read_rounds(cast(Consumer, FakeConsumer([Message(3)])), ["t"], history, "v", stop)
    assert [entry.data["next"] for entry in history.events()] == [{"t-0": 4}]
    with pytest.raises(RackgateError, match="read u"):
        read_rounds(cast(Consumer, FakeConsumer()), ["u"], history, "v", stop)


def test_the_planted_violation_show_hidden_is_found() -> None:
    for events in planted("show-hidden", ObservedRun().history()):
        assert check_visibility(events).valid == "false"
