"""Python side of the Java producer, with a fake Java object."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer

# partition, offset, time of sending and of the end, and error of a record, as packed by Java
RESULT = ((2, ">i4"), (7, ">i8"), (1, ">i8"), (2, ">i8"), (-1, ">i4"))


class FakeSender:
    """Fake Java sender, and the factory that creates it: accepts all records and reports no result."""

    def make(self, _name: str, _config: Mapping[str, str], *_: int) -> Any:
        return self

    def send(self, ticket: int, *_: object) -> None:
        pass

    def take(self, timeout_ms: int) -> bytes:
        time.sleep(timeout_ms / 1000)
        return b""

    def close(self, timeout_ms: int) -> None:
        pass


class ImmediateSender(FakeSender):
    """Fake Java sender that returns only after the listener has taken the result of the record."""

    def __init__(self) -> None:
        self.results: SimpleQueue[bytes] = SimpleQueue()
        self.taken = threading.Event()
        self.delivered = False

    def send(self, ticket: int, *_: object) -> None:
        columns = [np.array([value], kind).tobytes() for value, kind in RESULT]
        self.results.put(ticket.to_bytes(8) + (1).to_bytes(4) + (0).to_bytes(4) + b"".join(columns))
        assert self.taken.wait(10)

    def take(self, timeout_ms: int) -> bytes:
        # asked again: the earlier result has been delivered
        if self.results.empty() and self.delivered:
            self.taken.set()
        try:
            found = self.results.get(timeout=timeout_ms / 1000)
        except Empty:
            return b""
        self.delivered = True
        return found


class ClosingTickets:
    """Ticket numbers. While a number is drawn, another thread tries to close the producer."""

    def __init__(self, producer: Producer) -> None:
        self.closing = threading.Thread(target=producer.close)
        self._numbers = itertools.count()

    def __next__(self) -> int:
        self.closing.start()
        self.closing.join(timeout=1)
        return next(self._numbers)


def test_a_result_that_precedes_the_end_of_send_is_reported_in_the_producer_s_thread() -> None:
    reported: list[tuple[str, Acknowledged | JavaError]] = []
    with Producer("no-broker:1", {}, home=ImmediateSender()) as producer:
        producer.send("t", "key", "value", lambda result: reported.append((threading.current_thread().name, result)))
    assert reported == [("producer-ends", Acknowledged("t", 2, 7))]


def test_records_sent_while_another_thread_closes_are_completed() -> None:
    producer = Producer("no-broker:1", {}, home=FakeSender())
    tickets = ClosingTickets(producer)
    producer._tickets = tickets  # type: ignore[assignment]
    with pytest.raises(RackgateError, match="producer"):
        producer.send_batch("t", [b"x"]).result(timeout=5)
    tickets.closing.join(timeout=5)
    assert not tickets.closing.is_alive()


def test_a_closed_producer_rejects_records() -> None:
    with Producer("no-broker:1", {}, home=FakeSender()) as producer:
        pending = producer.send_batch("t", [b"x"])
    with pytest.raises(RackgateError, match="the producer ended"):
        pending.result(timeout=0)
    with pytest.raises(RackgateError, match="is closed"):
        producer.send_batch("t", [b"x"])
