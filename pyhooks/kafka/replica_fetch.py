"""Fetch requests of a consumer to a chosen replica, leader or follower, which client libraries don't let one choose.

The request is Fetch 11, the first version that followers serve to consumers (KIP-392). The layouts are those of
``FetchRequest.json``, ``FetchResponse.json`` and record batches of format 2 in Kafka's sources.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import Reader

_NAME = "Fetch"
_NO_REPLICA = -1
_NO_SESSION = struct.pack(">ii", 0, -1)
_MAX_BYTES = 1 << 20
# offset in a batch of what follows the length, and of the last offset delta
_BATCH_HEAD = 12
_LAST_DELTA = 23


@dataclass(frozen=True)
class FetchedPartition:
    """Response for a partition."""

    error: int  # Kafka's error code; 0 for none
    high: int  # high watermark that the replica reports
    next: int  # offset after the last record in the response; the requested offset if there is none


def request(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return a request for partitions from given offsets, including its length prefix; the response is immediate."""
    by_topic: defaultdict[str, list[bytes]] = defaultdict(list)
    for (topic, number), offset in offsets.items():
        # neither a leader epoch nor a log start offset: both are of replicas
        by_topic[topic].append(struct.pack(">iiqqi", number, -1, offset, -1, _MAX_BYTES))
    topics = b"".join(
        struct.pack(">h", len(topic.encode())) + topic.encode() + struct.pack(">i", len(parts)) + b"".join(parts)
        for topic, parts in by_topic.items()
    )
    # wait and bytes at least: none; isolation level 0: up to the high watermark
    head = struct.pack(">iiiib", _NO_REPLICA, 0, 0, _MAX_BYTES, 0) + _NO_SESSION
    no_forgotten_topics, no_rack = struct.pack(">i", 0), struct.pack(">h", 0)
    return wire_protocol.framed(1, 11, head + struct.pack(">i", len(by_topic)) + topics + no_forgotten_topics + no_rack)


def parse(response: bytes, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], FetchedPartition]:
    """Parse a response to a request for ``offsets``, starting at its header.

    Raises:
        IndexError: the response is truncated; or struct.error for the same reason.
        UnicodeDecodeError: a name is not valid UTF-8.
    """
    at = Reader(response)
    at.take(14)  # correlation id, throttle time, error of the session, session id
    found: dict[tuple[str, int], FetchedPartition] = {}
    for _ in range(at.count()):
        topic = at.text() or ""
        for _ in range(at.count()):
            number, error, high = at.number(">i"), at.number(">h"), at.number(">q")
            at.take(16)  # last stable and log start offset
            at.take(16 * at.count())  # aborted transactions
            at.take(4)  # preferred read replica
            records = at.take(max(0, at.number(">i")))
            after = max(_batch_ends(records), default=0)
            found[topic, number] = FetchedPartition(error, high, max(after, offsets.get((topic, number), 0)))
    return found


def _batch_ends(records: bytes) -> Iterator[int]:
    """Yield the offset after each complete batch; a response may end within one."""
    begin = 0
    while begin + _BATCH_HEAD <= len(records):
        offset, size = struct.unpack_from(">qi", records, begin)
        end = begin + _BATCH_HEAD + size
        if end > len(records):
            return
        (delta,) = struct.unpack_from(">i", records, begin + _LAST_DELTA)
        yield offset + delta + 1
        begin = end


def fetch(
    address: tuple[str, int], offsets: Mapping[tuple[str, int], int], timeout_s: float
) -> dict[tuple[str, int], FetchedPartition]:
    """Fetch partitions from one replica; see ``request`` and ``parse``.

    Raises:
        RackgateError: no response in time, or one that can't be parsed.
    """
    return wire_protocol.query(address, request(offsets), _NAME, timeout_s, lambda found: parse(found, offsets))
