"""Cluster features that an R (min.insync.racks) above 1 depends on, and finalized levels as a broker reports them.

librdkafka does not expose the levels. The request is ApiVersions 3, the first version whose response has features
(Kafka 2.4, KIP-584). The layouts are those of ``ApiVersionsRequest.json`` and ``ApiVersionsResponse.json`` in Kafka's
sources. An older broker responds in the layout of version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import CLIENT, Reader

RACKS_FEATURE = "min.insync.racks.version"
ELR_FEATURE = "eligible.leader.replicas.version"
METADATA_FEATURE = "metadata.version"
UPGRADE = f"kafka-features upgrade --feature {ELR_FEATURE}=1 --feature {RACKS_FEATURE}=1"
_NAME = "ApiVersions"
_UNSUPPORTED_VERSION = 35
_FINALIZED_TAG = 2


def level_of(levels: Mapping[str, int]) -> int:
    """Return the level at which an R above 1 is enforced: 0 unless both features are enabled.

    Args:
        levels: finalized levels by feature; features at level 0 may be missing.
    """
    return min(levels.get(RACKS_FEATURE, 0), levels.get(ELR_FEATURE, 0))


def request() -> bytes:
    """Return the request, including its length prefix."""
    # A compact string starts with its length plus one. Each structure and the header end with tagged fields.
    return wire_protocol.framed(18, 3, b"\0" + bytes([len(CLIENT) + 1]) + CLIENT + b"\x021" + b"\0")


def finalized(host: str, port: int, timeout_s: float) -> Mapping[str, int]:
    """Return the finalized feature levels that one broker reports; features at level 0 may be missing.

    The listener must have neither encryption nor authentication. ``timeout_s`` covers the whole request.

    Raises:
        RackgateError: no complete response in time, or an unreadable one.
    """
    return wire_protocol.query((host, port), request(), _NAME, timeout_s, levels)


def levels(response: bytes) -> Mapping[str, int]:
    """Return the finalized levels by feature from a response, starting at its header.

    Raises:
        IndexError: the response is truncated; or struct.error for the same reason.
        UnicodeDecodeError: a name is not valid UTF-8.
        RackgateError: the broker returned an error.
    """
    at = Reader(response)
    at.number(">i")
    code = at.number(">h")
    if code == _UNSUPPORTED_VERSION:
        return {}
    if code:
        raise RackgateError(f"{_NAME} was rejected with Kafka's error code {code}")
    for _ in range(at.compact_count()):
        at.take(6)
        at.skip_tags()
    at.number(">i")
    level_of: dict[str, int] = {}
    for _ in range(at.varint()):
        tag, size = at.varint(), at.varint()
        value = Reader(at.take(size))
        if tag != _FINALIZED_TAG:
            continue
        for _ in range(value.compact_count()):
            name = value.take(value.varint() - 1).decode()
            level_of[name] = value.number(">h")
            value.number(">h")
            value.skip_tags()
    return level_of
