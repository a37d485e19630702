"""Metadata client: requests and responses (bytes written by Kafka's own classes), and the choice of the broker."""

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

RESPONSE = bytes.fromhex(
    "000000010000000000000003000000010002683100002384000161000000020002683200002384ffff00000003000268330000238400016200"
    "0263310000000200000002000000017400000000020000000000000000000300000004000000030000000100000003000000040000000200"
    "000003000000010000000100000004000500000001ffffffffffffffff00000001000000040000000100000004000000010000000400030004"
    "676f6e650000000000"
)
EMPTY_RESPONSE = bytes.fromhex("000000010000000000000000ffffffffffff00000000")
REQUEST = bytes.fromhex("000300070000000100087261636b67617465000000020001740004676f6e6500")
METADATA = Metadata(
    {1: "a", 2: "", 3: "b"},
    2,
    {("t", 0): Partition(3, (3, 1), (1, 3, 4)), ("t", 1): Partition(-1, (4,), (4,))},
)


def test_the_request_has_the_bytes_of_kafka_s_own() -> None:
    assert request(["t", "gone"]) == framed(REQUEST)


def test_a_response_is_parsed() -> None:
    assert parse(RESPONSE) == METADATA
    assert parse(EMPTY_RESPONSE) == Metadata({}, -1, {})


@given(st.integers(0, len(RESPONSE) - 1))
def test_a_truncated_response_is_not_accepted(size: int) -> None:
    with pytest.raises(IndexError):
        parse(RESPONSE[:size])


def test_unresponsive_dead_and_foreign_servers_are_skipped() -> None:
    with (
        broker(None) as unresponsive,
        dead() as down,
        broker(b"HTTP/1.1 400") as other,
        broker(framed(RESPONSE)) as healthy,
    ):
        client = MetadataClient(f"{unresponsive},{down},{other},{healthy}", each_s=2)
        assert client.query(["t"], 20) == METADATA
        start_s = time.monotonic()
        assert client.query(["t"], 20) == METADATA
        assert time.monotonic() - start_s < 2, "the broker that responded is queried first"


def test_no_response_in_time_is_an_error() -> None:
    with broker(None) as first, broker(None) as second, broker(None) as third:
        start_s = time.monotonic()
        with pytest.raises(RackgateError, match=r"timed out.*; .*timed out.*; .*timed out"):
            MetadataClient(f"{first},{second},{third}", each_s=0.2).query(["t"], 0.3)
        assert time.monotonic() - start_s < 3


def test_a_healthy_broker_is_queried_after_others_used_up_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metadata, "LEAST_S", 1.0)
    with broker(None) as first, broker(None) as second, broker(framed(RESPONSE)) as healthy:
        assert MetadataClient(f"{first},{second},{healthy}", each_s=0.2).query(["t"], 0.3) == METADATA


def test_a_response_received_in_time_may_be_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may suspend this process between request and response."""
    sendall = socket.socket.sendall

    def send_and_pause(self: socket.socket, data: bytes) -> None:
        sendall(self, data)
        if len(data) < len(RESPONSE):
            time.sleep(0.5)

    monkeypatch.setattr(socket.socket, "sendall", send_and_pause)
    with broker(framed(RESPONSE)) as healthy:
        assert MetadataClient(healthy, each_s=0.2).query(["t"], 0.2) == METADATA


def test_an_unreadable_response_is_an_error() -> None:
    with (
        broker(framed(RESPONSE[:50])) as truncated,
        pytest.raises(RackgateError, match="can't read its response to Metadata"),
    ):
        MetadataClient(truncated).query(["t"], 2)


class FakeAdmin:
    """Fake admin client that lists brokers at these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout == 1
        if not self.addresses:
            raise KafkaException("no broker responds")
        parts = [address.split(":") for address in self.addresses]
        return SimpleNamespace(brokers={port: SimpleNamespace(host=host, port=int(port)) for host, port in parts})


def unfenced(*addresses: str) -> frozenset[int]:
    return topics.unfenced(cast("AdminClient", FakeAdmin(*addresses)), 1)


def test_a_returning_broker_stays_fenced_until_other_brokers_list_it() -> None:
    with (
        broker(framed(RESPONSE)) as lists_all,
        broker(framed(RESPONSE)) as lists_all_too,
        broker(framed(EMPTY_RESPONSE)) as lists_none,
        broker(framed(EMPTY_RESPONSE)) as lists_none_too,
        dead() as down,
        broker(None) as unresponsive,
    ):
        assert unfenced(lists_all, lists_none, lists_none_too) == set()
        assert unfenced(lists_all, lists_all_too, lists_none, lists_none_too) == set(), (
            "half of the brokers is not enough"
        )
        assert unfenced(lists_all, lists_all_too, lists_none) == set(METADATA.racks)
        assert unfenced(lists_all, down, unresponsive) == set(METADATA.racks), "unresponsive brokers do not count"
        assert unfenced(down, unresponsive) == unfenced() == set()
