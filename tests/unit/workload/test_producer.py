"""Producer program with fake clients: pacing, announced records, transactions, and events at an early end."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.record_view import Records
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.history.outcomes import Acked, Answer, Rejected
from pyhooks.history.record_format import value_of
from pyhooks.workload.producer import AHEAD, ProducerRun
from pyhooks.workload.producer_clients import ProducerRecord, SendResult, TransactionError
from pyhooks.workload.producer_plan import ProducerPlan
from untyped_events import note

PLAN = ProducerPlan("b:9092", ("t", "u"), rate_per_s=2000, count=300, timeout_ms=500)


@dataclass
class Fake:
    """Fake client: stores the records it sends and acknowledges them, or responds as ``response`` says.

    Attributes:
        response: response to a record; none if the client reports nothing.
        hold_s: duration of a send, in seconds.
        fails: error of a step; none if it succeeds.
        announced_at_send: number of announcements in the history at each send.
    """

    response: Callable[[ProducerRecord], Answer | None] = field(
        default=lambda record: Acked(record.partition, record.token)
    )
    hold_s: float = 0.0
    fails: Callable[[str], str | None] = field(default=lambda _: None)
    sent: list[ProducerRecord] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    reports: deque[SendResult] = field(default_factory=deque)
    announced_at_send: list[int] = field(default_factory=list)
    history: Path | None = None

    def fetch_metadata(self, topics: Sequence[str]) -> str:
        self.steps += [f"fetch metadata of {topic}" for topic in topics]
        return self.fails("fetch_metadata") or ""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        if self.history is not None:
            text = self.history.read_text(encoding="utf-8") if self.history.exists() else ""
            self.announced_at_send.append(text.count('"op":"intend"'))
        if self.hold_s:
            time.sleep(self.hold_s)
        for record in records:
            now_ns = time.monotonic_ns()
            self.sent.append(record)
            if (answer := self.response(record)) is not None:
                self.reports.append(SendResult(record.token, now_ns, time.monotonic_ns(), answer))

    def take(self, timeout_s: float) -> list[SendResult]:
        if not self.reports:
            time.sleep(min(timeout_s, 0.005))
        return [self.reports.popleft() for _ in range(len(self.reports))]

    def _step(self, step: str) -> None:
        self.steps.append(step)
        if error := self.fails(step):
            raise TransactionError(error, "text")

    def init_transactions(self) -> None:
        self._step("init")

    def begin(self) -> None:
        self._step("begin")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def flush(self) -> None:
        self.steps.append("flush")

    def close(self) -> None:
        self.steps.append("close")

    def release(self) -> None:
        self.steps.append("release")


def drive(
    plan: ProducerPlan, path: Path, client: Fake, partitions: int = 3, *, stop_after: int | None = None
) -> list[Event]:
    producing = ProducerRun(plan, History(path), lambda _: client, dict.fromkeys(plan.topics, partitions))
    if stop_after is not None:
        respond = client.response

        def stop_and_respond(record: ProducerRecord) -> Answer | None:
            if len(client.sent) >= stop_after:
                producing.stop.set()
            return respond(record)

        client.response = stop_and_respond
    producing.run()
    return list(History(path).events())


def with_op(events: Sequence[Event], op: str) -> list[Event]:
    return [event for event in events if event.op == op]


def test_every_record_is_announced_sent_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    client = Fake(history=path)
    events = drive(PLAN, path, client)
    assert len(client.sent) == len({record.key for record in client.sent}) == 600
    assert {record.key.decode() for record in client.sent} == {
        event.data["key"] for event in with_op(events, "produce")
    }
    assert Counter((record.topic, record.partition) for record in client.sent) == {
        (topic, partition): 100 for topic in "tu" for partition in range(3)
    }
    assert all(value_of(record.key.decode(), 100) == record.value for record in client.sent)
    assert min(client.announced_at_send) >= 1, "announced before the first record is sent"
    assert [event.data["to"] for event in with_op(events, "end")] == [{"0": 100, "1": 100, "2": 100}] * 2
    assert Records(events).unrecorded() == []
    assert client.steps == ["fetch metadata of t", "fetch metadata of u", "close", "release"]


def test_a_client_without_metadata_records_it_and_sends_anyway(tmp_path: Path) -> None:
    errors = ["org.apache.kafka.common.errors.TimeoutException"] * 2
    client = Fake(fails=lambda step: errors.pop() if step == "fetch_metadata" and errors else None)
    events = drive(replace(PLAN, topics=("t",)), tmp_path / "slow.jsonl", client)
    assert client.steps.count("fetch metadata of t") == 3
    assert not with_op(events, "no-metadata"), "the third try succeeded"
    client = Fake(fails=lambda step: "TIMED_OUT" if step == "fetch_metadata" else None)
    events = drive(replace(PLAN, topics=("t",)), tmp_path / "never.jsonl", client)
    (no_metadata,) = with_op(events, "no-metadata")
    assert (no_metadata.outcome, no_metadata.data["exception"]) == ("unknown", "TIMED_OUT")
    assert len(with_op(events, "produce")) == 300


def test_no_record_is_sent_before_it_was_announced(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    early: list[bytes] = []

    def respond(record: ProducerRecord) -> Answer:
        _, topic, partition, seq = record.key.decode().split("/")
        announcements = [event.data for event in with_op(list(History(path).events()), "intend")]
        if not any(each["topic"] == topic and int(seq) < each["to"][partition] for each in announcements):
            early.append(record.key)
        return Acked(record.partition, 0)

    events = drive(replace(PLAN, topics=("t",), count=2 * AHEAD + 7), path, Fake(response=respond), partitions=1)
    assert not early
    assert len(with_op(events, "intend")) > 0
    assert len(with_op(events, "produce")) == 2 * AHEAD + 7


def test_send_times_are_the_intended_ones_and_do_not_drift(tmp_path: Path) -> None:
    plan = replace(PLAN, topics=("t",), rate_per_s=100, count=30)
    events = with_op(drive(plan, tmp_path / "h.jsonl", Fake()), "produce")
    intended = sorted(event.data["intended_ns"] for event in events)
    assert [round((ns - intended[0]) / 1e7, 3) for ns in intended] == list(range(30))
    assert all(event.data["sent_ns"] >= event.data["intended_ns"] for event in events)
    assert all(event.mono_ns >= event.data["sent_ns"] for event in events)


def test_a_late_record_is_sent_at_once_and_keeps_its_intended_time(tmp_path: Path) -> None:
    plan = replace(PLAN, topics=("t",), rate_per_s=100, count=20)
    events = with_op(drive(plan, tmp_path / "h.jsonl", Fake(hold_s=0.05)), "produce")
    late_ms = [(event.data["sent_ns"] - event.data["intended_ns"]) / 1e6 for event in events]
    assert len(events) == 20
    assert max(late_ms) > 30


def test_a_probe_skips_attempts_that_are_overdue(tmp_path: Path) -> None:
    plan = replace(PLAN, topics=("t",), rate_per_s=100, count=None, seconds=1.5, mode="probe")
    events = drive(plan, tmp_path / "h.jsonl", Fake(hold_s=0.3), partitions=1)
    (end,) = with_op(events, "end")
    assert 4 <= end.data["attempts"] <= 6
    assert end.data["attempts"] + end.data["skipped"] >= 149
    assert len(with_op(events, "produce")) == end.data["attempts"]


def test_each_topic_of_a_probe_has_its_own_client(tmp_path: Path) -> None:
    """Responses on a connection are in order: after a record of "t", a client gets no response."""

    class InOrder(Fake):
        def send(self, records: Sequence[ProducerRecord]) -> None:
            blocked = any(record.topic == "t" for record in (*self.sent, *records))
            self.response = lambda _: None if blocked else Rejected("NotEnoughRacksException", "1 of 2", True)
            super().send(records)

    clients: list[InOrder] = []

    def create(_: str) -> InOrder:
        clients.append(InOrder())
        return clients[-1]

    plan = replace(PLAN, rate_per_s=100, count=5, mode="probe", record_bytes=0)
    ProducerRun(plan, History(tmp_path / "h.jsonl"), create, dict.fromkeys(plan.topics, 1)).run()
    events = with_op(list(History(tmp_path / "h.jsonl").events()), "produce")
    produced = {topic: [event for event in events if event.data["topic"] == topic] for topic in "tu"}
    assert [event.data["exception"] for event in produced["u"]] == ["NotEnoughRacksException"] * 5
    assert {event.data["exception"] for event in produced["t"]} == {"not-reported"}
    assert [client.steps for client in clients] == [
        ["fetch metadata of t", "close", "release"],
        ["fetch metadata of u", "close", "release"],
    ]
    # in other modes the topics share one client
    clients.clear()
    ProducerRun(replace(plan, mode="plain"), History(tmp_path / "p"), create, dict.fromkeys(plan.topics, 1))
    assert len(clients) == 1


def test_a_client_that_cannot_be_created_closes_the_others(tmp_path: Path) -> None:
    clients: list[Fake] = []

    def create(_: str) -> Fake:
        if clients:
            raise RackgateError("no more memory")
        clients.append(Fake())
        return clients[-1]

    with pytest.raises(RackgateError, match="no more memory"):
        ProducerRun(replace(PLAN, mode="probe"), History(tmp_path / "h"), create, dict.fromkeys(PLAN.topics, 1))
    assert clients[0].steps == ["close", "release"]


def test_a_slow_topic_does_not_delay_the_others(tmp_path: Path) -> None:
    class Slow(Fake):
        def send(self, records: Sequence[ProducerRecord]) -> None:
            if records and records[0].topic == "t":
                time.sleep(3)
            super().send(records)

    events = drive(replace(PLAN, count=None, seconds=0.3, rate_per_s=50), tmp_path / "h.jsonl", Slow())
    late = {
        topic: max((e.data["sent_ns"] - e.data["intended_ns"]) / 1e6 for e in with_op(events, "produce")
                   if e.data["topic"] == topic)
        for topic in "tu"
    }  # fmt: skip
    assert late["t"] > 2600
    assert late["u"] < 2600


def test_an_early_end_records_every_attempt(tmp_path: Path) -> None:
    plan = replace(PLAN, count=None, seconds=60, rate_per_s=500)
    client = Fake(response=lambda record: None if record.token % 7 == 0 else Acked(record.partition, record.token))
    events = drive(plan, tmp_path / "h.jsonl", client, stop_after=100)
    assert 100 <= len(client.sent) < 10_000, "of 30,000"
    assert Records(events).unrecorded() == []
    unreported = [event for event in with_op(events, "produce") if event.outcome == "unknown"]
    assert {event.data["exception"] for event in unreported} == {"not-reported"}
    assert len(unreported) == sum(record.token % 7 == 0 for record in client.sent)


def test_a_rejection_is_unknown_if_the_client_retries(tmp_path: Path) -> None:
    rejected = Rejected("org.apache.kafka.common.errors.NotEnoughRacksException", "spans 1 rack(s)", True)
    for name, retries, outcome in (("a", 0, "fail"), ("b", 3, "unknown")):
        plan = replace(PLAN, count=5, retries=retries)
        events = with_op(drive(plan, tmp_path / name, Fake(response=lambda _: rejected)), "produce")
        assert {event.outcome for event in events} == {outcome}
        assert {event.data["message"] for event in events} == {"spans 1 rack(s)"}


def test_an_error_of_the_client_ends_the_run(tmp_path: Path) -> None:
    class Broken(Fake):
        def send(self, _: Sequence[ProducerRecord]) -> None:
            raise RackgateError("the JVM of a gateway does not respond")

    with pytest.raises(RackgateError, match="does not respond"):
        drive(PLAN, tmp_path / "h.jsonl", Broken())
    events = list(History(tmp_path / "h.jsonl").events())
    assert with_op(events, "end") == []
    assert check_delivery(events).valid == "unknown"


TRANSACTIONS = replace(PLAN, mode="transactional", txn_records=10, abort_share=0.3, seed=7, count=200)


def test_transactions_are_recorded_with_their_records(tmp_path: Path) -> None:
    client = Fake()
    events = drive(TRANSACTIONS, tmp_path / "h.jsonl", client)
    members = Counter(event.data["txn"] for event in with_op(events, "produce"))
    recorded = {event.data["txn"]: event for event in with_op(events, "txn")}
    assert members == {number: event.data["records"] for number, event in recorded.items()}
    assert sum(members.values()) == 400
    assert {event.outcome for event in recorded.values()} == {"ok", "fail"}
    assert client.steps.count("commit") == sum(event.outcome == "ok" for event in recorded.values())
    assert all(client.steps[at - 1] == "flush" for at, step in enumerate(client.steps) if step == "abort")
    assert client.steps.count("abort") == sum(event.outcome == "fail" for event in recorded.values())
    assert max(members.values()) <= 10
    assert {e.outcome for e in with_op(events, "produce")} == {"ok"}, "aborted records were acknowledged too"


@pytest.mark.parametrize(
    ("error", "aborts", "outcome"),
    [
        ("org.apache.kafka.common.KafkaException", True, "fail"),
        ("org.apache.kafka.common.errors.TimeoutException", True, "unknown"),
        ("_TIMED_OUT", True, "unknown"),
        ("org.apache.kafka.common.errors.ProducerFencedException", False, "unknown"),
    ],
)
def test_a_commit_that_fails_is_aborted_or_unknown(tmp_path: Path, error: str, aborts: bool, outcome: str) -> None:
    failed: list[str] = []

    def fails(step: str) -> str | None:
        if step == "commit" and not failed:
            failed.append(step)
            return error
        return error if step == "abort" and not aborts else None

    client = Fake(fails=fails)
    events = drive(replace(TRANSACTIONS, abort_share=0.0), tmp_path / "h.jsonl", client)
    first, *others = with_op(events, "txn")
    assert (first.outcome, first.data["exception"]) == (outcome, error)
    assert {event.outcome for event in others} == {"ok"}, "later transactions commit"
    assert client.steps.count("init") == (2 if outcome == "unknown" else 1), "a new client replaces it"


def test_a_transaction_that_cannot_begin_ends_the_run(tmp_path: Path) -> None:
    client = Fake(fails=lambda step: "X" if step == "init" else None)
    with pytest.raises(RackgateError, match="cannot be begun: X"):
        drive(replace(TRANSACTIONS, count=None, seconds=0.2), tmp_path / "h.jsonl", client)
    assert client.steps.count("init") > 1, "retried until the deadline"


def test_the_producer_handles_5000_records_per_second(tmp_path: Path) -> None:
    plan = replace(PLAN, topics=("t",), rate_per_s=20_000, count=20_000)
    cpu = time.process_time()
    events = drive(plan, tmp_path / "h.jsonl", Fake(), partitions=4)
    cpu_s = time.process_time() - cpu
    assert len(with_op(events, "produce")) == 20_000
    # the bound includes reading the history
    assert cpu_s < 20_000 / 5_000, f"{cpu_s:.2f} s of one core for 20,000 records"


def test_checkers_accept_the_events_of_the_producer(tmp_path: Path) -> None:
    client = Fake()
    path = tmp_path / "h.jsonl"
    plan = replace(PLAN, topics=("t",), count=50)
    logs: dict[int, list[str]] = {number: [] for number in range(2)}

    def append(record: ProducerRecord) -> Answer:
        logs[record.partition].append(record.key.decode())
        return Acked(record.partition, len(logs[record.partition]) - 1)

    client.response = append
    drive(plan, path, client, partitions=2)
    history = History(path)
    for number, keys in logs.items():
        partition: dict[str, Any] = {
            "pass": "p",
            "topic": "t",
            "partition": number,
            "partitions": 2,
            "isolation": "read_uncommitted",
        }
        span: dict[str, Any] = {"low": 0, "end": len(keys), "begin": 0, "next": len(keys), "runs": [[0, len(keys)]]}
        sizes = [[100, len(keys)]]
        note(history, "reader", "read", "ok", **partition, **span, keys=keys, sizes=sizes)
    events = list(history.events())
    assert check_delivery(events).valid == check_offsets(events).valid == "true"


def test_events_are_written_during_the_run(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    plan = replace(PLAN, topics=("t",), count=None, seconds=30, rate_per_s=100)
    producing = ProducerRun(plan, History(path), lambda _: Fake(), {"t": 1})
    thread = threading.Thread(target=producing.run)
    thread.start()
    try:
        wait_for(lambda: len(with_op(list(History(path).events()), "produce")) > 20, goal="events", timeout_s=10)
    finally:
        producing.stop.set()
        thread.join(timeout=10)
    assert not thread.is_alive()


@dataclass
class Unclosable(Fake):
    """Fake client whose ``close`` fails, as when its JVM does not respond."""

    def close(self) -> None:
        raise RackgateError("the JVM does not respond")


def test_a_client_that_cannot_be_closed_is_released(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    client = Unclosable(response=lambda _: None)
    plan = replace(PLAN, topics=("t",), count=3, seconds=None)
    with pytest.raises(RackgateError, match="the JVM does not respond"):
        drive(plan, path, client, 1)
    assert client.steps == ["fetch metadata of t", "release"]
    events = list(History(path).events())
    assert [event.data["exception"] for event in with_op(events, "produce")] == ["not-reported"] * 3
    assert not with_op(events, "end")
