"""What a broker says of the cluster's features in its handshake, without a Kafka client: librdkafka tells none of it.

The request is ApiVersions 3, the first version whose answer has features (Kafka 2.4, KIP-584); layouts are those of
``ApiVersionsRequest.json`` and ``ApiVersionsResponse.json`` in Kafka's sources. A broker that is older answers in the
layout of version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import CLIENT, Reader

_NAME = "ApiVersions"
_UNSUPPORTED_VERSION = 35
_FINALIZED_TAG = 2


def request() -> bytes:
    """The question, its length in front."""
    # compact strings: length plus one; each structure ends with its number of tagged fields, the header too
    return wire_protocol.framed(18, 3, b"\0" + bytes([len(CLIENT) + 1]) + CLIENT + b"\x021" + b"\0")


def finalized(host: str, port: int, timeout_s: float) -> Mapping[str, int]:
    """Finalized levels of features as one broker knows them; those at level 0 may be left out.

    Args:
        host: of a listener without encryption and authentication.
        port: its port.
        timeout_s: bound for all of it, in seconds.

    Raises:
        RackgateError: no whole answer in time, or one that is none.
    """
    return wire_protocol.told((host, port), request(), _NAME, timeout_s, levels)


def levels(answer: bytes) -> Mapping[str, int]:
    """Finalized levels by feature in an answer, which begins with its header.

    Raises:
        IndexError: it ends early; so does struct.error.
        UnicodeDecodeError: a name is not text.
        RackgateError: the broker refused.
    """
    at = Reader(answer)
    at.number(">i")
    code = at.number(">h")
    if code == _UNSUPPORTED_VERSION:
        return {}
    if code:
        raise RackgateError(f"{_NAME} was refused with Kafka's error code {code}")
    for _ in range(at.compact_count()):
        at.take(6)
        at.skip_tags()
    at.number(">i")
    found: dict[str, int] = {}
    for _ in range(at.varint()):
        tag, size = at.varint(), at.varint()
        value = Reader(at.take(size))
        if tag != _FINALIZED_TAG:
            continue
        for _ in range(value.compact_count()):
            name = value.take(value.varint() - 1).decode()
            found[name] = value.number(">h")
            value.number(">h")
            value.skip_tags()
    return found
