"""DescribeQuorum: request and response bytes, and servers that do not respond or return an error."""

from __future__ import annotations

import struct

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import quorum_state
from pyhooks.kafka.quorum_state import Member, Quorum
from silent_brokers import broker, dead, framed

IDS = {101: "AAAAAAAAAAAAAAAAAAAAAA", 102: "_____________________w", 103: "AQIDBAUGBwgJCgsMDQ4PEA"}
RAW = {101: bytes(16), 102: b"\xff" * 16, 103: bytes(range(1, 17))}


def member(node_id: int, log_end: int) -> bytes:
    # ends with an unknown tagged field of one byte
    return struct.pack(">i16sqqq", node_id, RAW[node_id], log_end, 1, 1) + b"\x01\x09\x01\x07"


def response_bytes(leader: int = 102, error: int = 0, partition_error: int = 0, message: bytes = b"\0") -> bytes:
    """Response as in DescribeQuorumResponse.json, version 2."""
    partition = struct.pack(">ih", 0, partition_error) + message + struct.pack(">iiq", leader, 7, 90)
    partition += b"\x03" + member(101, 95) + member(102, 100) + b"\x02" + member(103, 60) + b"\0"
    topic = b"\x13__cluster_metadata" + b"\x02" + partition + b"\0"
    # correlation id, tagged fields of the header, error, topic, no nodes
    return struct.pack(">i", 1) + b"\0" + struct.pack(">h", error) + message + b"\x02" + topic + b"\x01" + b"\0"


QUORUM = Quorum(102, (Member(101, IDS[101], 95), Member(102, IDS[102], 100)), (Member(103, IDS[103], 60),))


def test_leader_voters_and_observers_are_parsed() -> None:
    assert quorum_state.parse(response_bytes()) == QUORUM


def test_the_lag_is_relative_to_the_leader() -> None:
    assert [QUORUM.lag(node) for node in (101, 102, 103, 104)] == [5, 0, 40, None]
    assert QUORUM.lag(103, IDS[103]) == 40
    assert QUORUM.lag(103, IDS[101]) is None, "replica on a replaced disk"


def test_the_request_has_the_documented_layout() -> None:
    head = struct.pack(">hhih", 55, 2, 1, 8) + b"rackgate" + b"\0"
    body = head + b"\x02\x13__cluster_metadata\x02" + struct.pack(">i", 0) + b"\0\0\0"
    assert quorum_state.request() == struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (response_bytes(error=41, message=b"\x06wrong"), "was rejected with Kafka's error code 41: wrong"),
        (response_bytes(partition_error=6), "was rejected with Kafka's error code 6$"),
        (response_bytes(leader=-1), "leader -1"),
        (struct.pack(">i", 1) + b"\0\0\0\0\x01\x01\0", "has no quorum"),
    ],
)
def test_an_error_response_raises(response: bytes, error: str) -> None:
    with pytest.raises(RackgateError, match=error):
        quorum_state.parse(response)


def test_unresponsive_dead_and_foreign_servers_are_skipped() -> None:
    with (
        broker(None) as unresponsive,
        dead() as down,
        broker(b"HTTP/1.1 400") as foreign,
        broker(framed(response_bytes())) as healthy,
    ):
        assert quorum_state.query(f"{unresponsive},{down},{foreign},{healthy}", each_s=0.3) == QUORUM


def test_no_response_in_time_is_an_error() -> None:
    with dead() as down, broker(framed(response_bytes(leader=-1))) as leaderless:
        expected = r"the metadata quorum; .*refused; .*leader -1"
        with pytest.raises(RackgateError, match=expected):
            quorum_state.query(f"{down},{leaderless}", each_s=0.5, timeout_s=0.6)
