"""DescribeQuorum responses, byte by byte, and brokers that do not respond or refuse."""

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
    # with an unknown tagged field of one byte
    return struct.pack(">i16sqqq", node_id, RAW[node_id], log_end, 1, 1) + b"\x01\x09\x01\x07"


def answer(leader: int = 102, code: int = 0, of_partition: int = 0, message: bytes = b"\0") -> bytes:
    """Response as in DescribeQuorumResponse.json, version 2."""
    partition = struct.pack(">ih", 0, of_partition) + message + struct.pack(">iiq", leader, 7, 90)
    partition += b"\x03" + member(101, 95) + member(102, 100) + b"\x02" + member(103, 60) + b"\0"
    topic = b"\x13__cluster_metadata" + b"\x02" + partition + b"\0"
    # correlation, the header's tags, the error, the topic, no nodes
    return struct.pack(">i", 1) + b"\0" + struct.pack(">h", code) + message + b"\x02" + topic + b"\x01" + b"\0"


TOLD = Quorum(102, (Member(101, IDS[101], 95), Member(102, IDS[102], 100)), (Member(103, IDS[103], 60),))


def test_leader_voters_and_observers_are_read() -> None:
    assert quorum_state.parse(answer()) == TOLD


def test_the_lag_is_relative_to_the_leader() -> None:
    assert [TOLD.lag(node) for node in (101, 102, 103, 104)] == [5, 0, 40, None]
    assert TOLD.lag(103, IDS[103]) == 40
    assert TOLD.lag(103, IDS[101]) is None, "the disk that it had before"


def test_the_request_has_the_documented_layout() -> None:
    head = struct.pack(">hhih", 55, 2, 1, 8) + b"rackgate" + b"\0"
    body = head + b"\x02\x13__cluster_metadata\x02" + struct.pack(">i", 0) + b"\0\0\0"
    assert quorum_state.request() == struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (answer(code=41, message=b"\x06wrong"), "was refused with Kafka's error code 41: wrong"),
        (answer(of_partition=6), "was refused with Kafka's error code 6$"),
        (answer(leader=-1), "leader -1"),
        (struct.pack(">i", 1) + b"\0\0\0\0\x01\x01\0", "has no quorum"),
    ],
)
def test_a_refusal_is_an_error(response: bytes, error: str) -> None:
    with pytest.raises(RackgateError, match=error):
        quorum_state.parse(response)


def test_a_silent_dead_or_foreign_server_is_skipped() -> None:
    with broker(None) as silent, dead() as down, broker(b"HTTP/1.1 400") as other, broker(framed(answer())) as sound:
        assert quorum_state.query(f"{silent},{down},{other},{sound}", each_s=0.3) == TOLD


def test_no_response_in_time_is_an_error() -> None:
    with dead() as one, broker(framed(answer(leader=-1))) as two:
        expected = r"the metadata quorum; .*refused; .*leader -1"
        with pytest.raises(RackgateError, match=expected):
            quorum_state.query(f"{one},{two}", each_s=0.5, timeout_s=0.6)
