"""Transfer of records between Python and Java, and the results of sends, without a JVM."""

from __future__ import annotations

import queue
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.consumer import TopicPartition, _lines, _offsets
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.packed_columns import Unpacker, column, joined, lengths_of
from pyhooks.jvm.producer import Acknowledged, Producer, Sent

STRINGS = st.lists(st.none() | st.binary(max_size=40), max_size=30)
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
RETRIABLE = "org.apache.kafka.common.errors.RetriableException"


@given(STRINGS)
def test_byte_strings_survive_a_round_trip(strings: list[bytes | None]) -> None:
    packed = column(lengths_of(strings), len(strings), ">i4") + joined(strings) + b"rest"
    unpacker = Unpacker(packed)
    assert unpacker.strings(unpacker.ints(len(strings))) == strings
    assert unpacker.rest() == "rest"
    assert not unpacker.more


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_numbers_survive_a_round_trip(longs: list[int], ints: list[int]) -> None:
    unpacker = Unpacker(column(longs, len(longs), ">i8") + column(ints, len(ints), ">i4"))
    assert unpacker.longs(len(longs)).tolist() == longs
    assert unpacker.ints(len(ints)).tolist() == ints


def test_a_column_of_the_wrong_length_is_rejected() -> None:
    assert column(7, 2, ">i4") == struct.pack(">2i", 7, 7)
    with pytest.raises(ValueError, match="for 2 records"):
        column([1, 2, 3], 2, ">i4")


@given(st.dictionaries(st.tuples(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True), st.integers(0, 999)),
                       st.integers(0, 2**62)))  # fmt: skip
def test_offsets_of_partitions_as_lines(offsets: dict[tuple[str, int], int]) -> None:
    expected = {TopicPartition(*key): offset for key, offset in offsets.items()}
    assert _offsets(_lines(expected)) == expected
    assert _offsets(_lines(expected.keys())) == dict.fromkeys(expected, -1)


@dataclass
class FakeSender:
    """Fake ``rackgate.hooks.Sender`` that reports results when the test calls ``report``."""

    reports: queue.Queue[bytes] = field(default_factory=queue.Queue)
    sent: list[tuple[int, str, bytes]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    closed: int = 0
    jvm_ended: bool = False

    def make(self, name: str, config: Mapping[str, str], *arguments: int) -> FakeSender:
        assert name == "rackgate.hooks.Sender"
        assert config["bootstrap.servers"] == "b"
        assert arguments == ()
        return self

    def send(self, ticket: int, topic: str, packed: bytes) -> None:
        self.sent.append((ticket, topic, packed))

    def take(self, wait_ms: int) -> bytes:
        if self.jvm_ended:
            raise RackgateError("the JVM has ended")
        try:
            return self.reports.get(timeout=wait_ms / 1000) if wait_ms else self.reports.get_nowait()
        except queue.Empty:
            return b""

    def beginTransaction(self) -> None:  # noqa: N802 - Java's name
        self.calls.append("begin")

    def commitTransaction(self) -> None:  # noqa: N802
        self.calls.append("commit")

    def abortTransaction(self) -> None:  # noqa: N802
        self.calls.append("abort")

    def close(self, _timeout_ms: int) -> None:
        self.closed += 1

    def report(self, ticket: int, offsets: list[int], errors: list[int], exceptions: list[tuple[str, str]]) -> None:
        size = len(offsets)
        head = struct.pack(">qii", ticket, size, len(exceptions))
        columns = column(3, size, ">i4") + column(offsets, size, ">i8") + column(1, size, ">i8")
        columns += column(5, size, ">i8") + column(errors, size, ">i4")
        texts = b"".join(struct.pack(">i", len(text.encode())) + text.encode() for pair in exceptions for text in pair)
        self.reports.put(head + columns + texts)


@pytest.fixture
def java() -> FakeSender:
    return FakeSender()


def test_a_batch_is_packed_as_java_reads_it(java: FakeSender) -> None:
    with Producer("b", {}, home=java) as producer:
        future = producer.send_batch("t", [b"ab", None], keys=[None, b"k"], partitions=[4, -1], timestamps_ms=9)
        ((ticket, topic, packed),) = java.sent
        assert topic == "t"
        assert packed == struct.pack(">iii qq ii ii", 2, 4, -1, 9, 9, -1, 1, 2, -1) + b"k" + b"ab"
        assert not future.done()
        java.report(ticket, [10, 11], [-1, -1], [])
        assert future.result(5).acked.all()
    assert java.closed == 1


def test_results_come_in_any_order_and_errors_once_each(java: FakeSender) -> None:
    with Producer("b", {}, home=java) as producer:
        first, second = (producer.send_batch("t", [b""] * 3) for _ in range(2))
        java.report(1, [7, 8, 9], [-1, -1, -1], [])
        assert second.result(5).offset.tolist() == [7, 8, 9]
        assert not first.done()
        java.report(0, [5, -1, -1], [-1, 0, 0], [(f"{TIMEOUT}\n{RETRIABLE}\njava.lang.Throwable", "späť")])
        sent = first.result(5)
    assert sent.acked.tolist() == [True, False, False]
    assert sent.result(0) == Acknowledged("t", 3, 5)
    failure = sent.result(2)
    assert isinstance(failure, JavaError)
    assert failure is sent.result(1)
    assert (failure.java_class, failure.text, failure.retriable) == (TIMEOUT, "späť", True)


def test_a_slow_listener_delays_only_listeners(java: FakeSender) -> None:
    results: list[object] = []
    proceed = threading.Event()

    def slow(result: object) -> None:
        proceed.wait(10)
        results.append((threading.current_thread().name, result))

    with Producer("b", {}, home=java) as producer:
        for number in range(3):
            producer.send("t", "k", str(number), slow)
            java.report(number, [number], [-1], [])
        assert results == []
        assert len(java.sent) == 3
        proceed.set()
    assert results == [("producer-ends", Acknowledged("t", 3, number)) for number in range(3)]


def test_errors_of_a_listener_are_raised_by_close(java: FakeSender) -> None:
    def failing(_result: object) -> None:
        raise ValueError("disk full")

    producer = Producer("b", {}, home=java)
    producer.send("t", "k", "v", failing)
    java.report(0, [1], [-1], [])
    with pytest.raises(ValueError, match="disk full"):
        producer.close()


def test_a_missing_result_is_an_error_after_close(java: FakeSender) -> None:
    producer = Producer("b", {}, home=java)
    future = producer.send_batch("t", [b""])
    producer.close()
    with pytest.raises(RackgateError, match="the producer ended"):
        future.result(0)
    with pytest.raises(RackgateError, match="is closed"):
        producer.send_batch("t", [b""])


def test_pending_results_fail_when_the_jvm_ends(java: FakeSender) -> None:
    producer = Producer("b", {}, home=java)
    future = producer.send_batch("t", [b""])
    java.jvm_ended = True
    with pytest.raises(RackgateError, match="the producer ended"):
        future.result(5)
    with pytest.raises(RackgateError, match="the JVM has ended"):
        producer.close()


def test_a_result_without_a_waiting_caller_is_ignored(java: FakeSender) -> None:
    """A send that raised has no waiting caller; if Java reports it, other results must not change."""
    with Producer("b", {}, home=java) as producer:
        java.report(77, [1], [-1], [])
        future = producer.send_batch("t", [b""])
        java.report(0, [2], [-1], [])
        assert future.result(5).offset.tolist() == [2]


def test_a_wait_is_bounded(java: FakeSender) -> None:
    with Producer("b", {}, home=java) as producer:
        future = producer.send_batch("t", [b""])
        start_s = time.monotonic()
        with pytest.raises(TimeoutError):
            future.result(0.05)
        assert time.monotonic() - start_s < 2
        java.report(0, [2], [-1], [])
        assert isinstance(future.result(5), Sent)


def test_keys_and_values_must_have_the_same_number(java: FakeSender) -> None:
    with Producer("b", {}, home=java) as producer:
        with pytest.raises(ValueError, match="1 keys for 2 records"):
            producer.send_batch("t", [b"", b""], keys=[b""])
        with pytest.raises(ValueError, match="for 2 records"):
            producer.send_batch("t", [b"", b""], partitions=[1])
    assert java.sent == []


def test_a_transaction_commits_after_its_block_and_aborts_on_an_error(java: FakeSender) -> None:
    def fail() -> None:
        raise ValueError("failed")

    with Producer("b", {}, home=java) as producer:
        with producer.transaction():
            pass
        with pytest.raises(ValueError, match="failed"), producer.transaction():
            fail()
    assert java.calls == ["begin", "commit", "begin", "abort"]
