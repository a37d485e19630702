"""Metadata responses of brokers, written by Kafka's own classes, and the choice of the broker to query."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaException
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import cluster_metadata, topics
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient, Partition, parse, request
from silent_brokers import broker, dead, framed

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER = bytes.fromhex(
    "000000010000000000000003000000010002683100002384000161000000020002683200002384ffff00000003000268330000238400016200"
    "0263310000000200000002000000017400000000020000000000000000000300000004000000030000000100000003000000040000000200"
    "000003000000010000000100000004000500000001ffffffffffffffff00000001000000040000000100000004000000010000000400030004"
    "676f6e650000000000"
)
EMPTY = bytes.fromhex("000000010000000000000000ffffffffffff00000000")
REQUEST = bytes.fromhex("000300070000000100087261636b67617465000000020001740004676f6e6500")
TOLD = Metadata(
    {1: "a", 2: "", 3: "b"},
    2,
    {("t", 0): Partition(3, (3, 1), (1, 3, 4)), ("t", 1): Partition(-1, (4,), (4,))},
)


def test_the_request_equals_kafka_s() -> None:
    assert request(["t", "gone"]) == framed(REQUEST)


def test_a_response_is_parsed() -> None:
    assert parse(ANSWER) == TOLD
    assert parse(EMPTY) == Metadata({}, -1, {})


@given(st.integers(0, len(ANSWER) - 1))
def test_a_truncated_response_is_not_accepted(size: int) -> None:
    with pytest.raises(IndexError):
        parse(ANSWER[:size])


def test_a_silent_dead_or_foreign_server_is_skipped() -> None:
    with broker(None) as silent, dead() as down, broker(b"HTTP/1.1 400") as other, broker(framed(ANSWER)) as sound:
        asker = MetadataClient(f"{silent},{down},{other},{sound}", each_s=2)
        assert asker.query(["t"], 20) == TOLD
        begun = time.monotonic()
        assert asker.query(["t"], 20) == TOLD
        assert time.monotonic() - begun < 2, "the one that answered is asked first"


def test_no_response_in_time_is_an_error() -> None:
    with broker(None) as one, broker(None) as two, broker(None) as three:
        begun = time.monotonic()
        with pytest.raises(RackgateError, match=r"timed out.*; .*timed out.*; .*timed out"):
            MetadataClient(f"{one},{two},{three}", each_s=0.2).query(["t"], 0.3)
        assert time.monotonic() - begun < 3


def test_a_healthy_broker_is_queried_even_if_others_used_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metadata, "LEAST_S", 2.0)
    with broker(None) as one, broker(None) as two, broker(framed(ANSWER)) as sound:
        assert MetadataClient(f"{one},{two},{sound}", each_s=0.2).query(["t"], 0.3) == TOLD


def test_a_received_response_counts_however_late_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine holds us up between the question and the answer."""
    sendall = socket.socket.sendall

    def late(self: socket.socket, data: bytes) -> None:
        sendall(self, data)
        if len(data) < len(ANSWER):
            time.sleep(0.5)

    monkeypatch.setattr(socket.socket, "sendall", late)
    with broker(framed(ANSWER)) as sound:
        assert MetadataClient(sound, each_s=0.2).query(["t"], 0.2) == TOLD


def test_an_unreadable_response_is_an_error() -> None:
    with broker(framed(ANSWER[:50])) as one, pytest.raises(RackgateError, match="can't read its response to Metadata"):
        MetadataClient(one).query(["t"], 2)


class Client:
    """An admin client that knows the addresses of these brokers."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout == 1
        if not self.addresses:
            raise KafkaException("nobody")
        parts = [one.split(":") for one in self.addresses]
        return SimpleNamespace(brokers={port: SimpleNamespace(host=host, port=int(port)) for host, port in parts})


def unfenced(*addresses: str) -> frozenset[int]:
    return topics.unfenced(cast("AdminClient", Client(*addresses)), 1)


def test_a_returning_broker_stays_fenced_until_other_brokers_list_it() -> None:
    with (
        broker(framed(ANSWER)) as one,
        broker(framed(ANSWER)) as two,
        broker(framed(EMPTY)) as other,
        broker(framed(EMPTY)) as another,
        dead() as down,
        broker(None) as silent,
    ):
        assert unfenced(one, other, another) == set()
        assert unfenced(one, two, other, another) == set(), "half of them is not enough"
        assert unfenced(one, two, other) == set(TOLD.racks)
        assert unfenced(one, down, silent) == set(TOLD.racks), "who does not answer has no vote"
        assert unfenced(down, silent) == unfenced() == set()
