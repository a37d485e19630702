"""Parse ApiVersions responses of brokers, which were serialized by Kafka's own classes."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE, finalized, levels, request
from silent_brokers import broker, framed

HEAD = "0000000100000300000003000e000012000000040000000000"
SUPPORTED = "001702116d657461646174612e76657273696f6e0007001d00"
EPOCH = "010800000000000004d2"
LEVELS = (
    "025b04116d657461646174612e76657273696f6e001d001d0021656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e"
    "0001000100196d696e2e696e73796e632e7261636b732e76657273696f6e0001000100"
)
ON = bytes.fromhex(f"{HEAD}03{SUPPORTED}{EPOCH}{LEVELS}")
OFF = bytes.fromhex(f"{HEAD}02{SUPPORTED}{EPOCH}")
TOO_OLD = bytes.fromhex("00000001002300000000")
REQUEST = bytes.fromhex("001200030000000100087261636b6761746500097261636b67617465023100")


def test_request_has_the_format_of_kafka() -> None:
    assert request() == len(REQUEST).to_bytes(4) + REQUEST


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(ON, {"metadata.version": 29, ELR_FEATURE: 1, RACKS_FEATURE: 1}), (OFF, {}), (TOO_OLD, {})],
)
def test_levels_of_features(answer: bytes, expected: dict[str, int]) -> None:
    assert levels(answer) == expected


@given(st.integers(0, len(ON) - 1))
def test_a_truncated_response_is_an_error(size: int) -> None:
    with pytest.raises(IndexError):
        levels(ON[:size])


def test_request_to_a_broker() -> None:
    with broker(framed(ON)) as address:
        assert finalized(*wire_protocol.address(address), 5)[RACKS_FEATURE] == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (framed(ON)[:-5], "no response to ApiVersions: the connection ended"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it Kafka"),
        (framed(ON[:60]), "can't read its response"),
        (framed(bytes.fromhex("00000001001f00000000")), "rejected with Kafka's error code 31"),
    ],
)
def test_invalid_responses(answer: bytes, text: str) -> None:
    with broker(answer) as address, pytest.raises(RackgateError, match=text):
        finalized(*wire_protocol.address(address), 5)


def test_a_silent_broker_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RackgateError, match="timed out"):
        finalized("127.0.0.1", int(silent.getsockname()[1]), 0.2)
