"""Python side of the Java producer, with a fake Java object."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.producer import Producer


class FakeSender:
    """Fake Java sender, and the factory that creates it: accepts all records and reports no result."""

    def make(self, _name: str, _config: Mapping[str, str], *_: int) -> Any:
        return self

    def send(self, ticket: int, topic: str, packed: bytes) -> None:
        pass

    def take(self, timeout_ms: int) -> bytes:
        time.sleep(timeout_ms / 1000)
        return b""

    def close(self, timeout_ms: int) -> None:
        pass


class ClosingTickets:
    """Ticket numbers. While a number is drawn, another thread tries to close the producer."""

    def __init__(self, producer: Producer) -> None:
        self.closing = threading.Thread(target=producer.close)
        self._numbers = itertools.count()

    def __next__(self) -> int:
        self.closing.start()
        self.closing.join(timeout=1)
        return next(self._numbers)


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
