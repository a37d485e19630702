"""Brokers, racks and partitions as reported by the first broker that responds, within a deadline.

librdkafka's ``list_topics`` queries one broker, reports no racks, and waits for that broker even if it is dead. This
module moves on to the next broker when one does not respond. The request is Metadata 7 (Kafka 2.1). Its response is a
snapshot of the cluster with all brokers that are not fenced. The layouts are those of ``MetadataRequest.json`` and
``MetadataResponse.json`` in Kafka's sources.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import Reader

_NAME = "Metadata"
# Time limit of one broker. On a busy machine even a healthy broker needs some time, so each gets at least LEAST_S.
EACH_S = 0.6
LEAST_S = 0.1


@dataclass(frozen=True)
class Partition:
    """Partition as reported in a broker's metadata."""

    leader: int  # broker id, or -1
    isr: tuple[int, ...]  # broker ids, in the reported order
    replicas: tuple[int, ...]  # broker ids, in the order of the assignment


@dataclass(frozen=True)
class Metadata:
    """Cluster as reported by one broker."""

    # broker id to rack, for brokers that are registered and not fenced; ``""`` for a broker without a rack
    racks: Mapping[int, str]
    controller: int  # broker id that the response names as controller (in KRaft any unfenced broker), or -1
    partitions: Mapping[tuple[str, int], Partition]  # by topic and partition number; topics with an error are left out


def request(topics: Sequence[str]) -> bytes:
    """Return a request for some topics, including its length prefix; it does not auto-create topics."""
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return wire_protocol.framed(3, 7, struct.pack(">i", len(topics)) + names + b"\0")


def parse(response: bytes) -> Metadata:
    """Parse a response, starting at its header.

    Raises:
        IndexError: the response is truncated; or struct.error for the same reason.
        UnicodeDecodeError: a name is not valid UTF-8.
    """
    at = Reader(response)
    at.take(8)  # correlation id and throttle time
    racks: dict[int, str] = {}
    for _ in range(at.count()):
        broker = at.number(">i")
        at.text()
        at.take(4)
        racks[broker] = at.text() or ""
    at.text()
    controller = at.number(">i")
    partitions: dict[tuple[str, int], Partition] = {}
    for _ in range(at.count()):
        code, topic = at.number(">h"), at.text() or ""
        at.take(1)
        for _ in range(at.count()):
            # skip the partition's error: a partition without a leader has one, and is reported nevertheless
            at.take(2)
            number, leader = at.number(">i"), at.number(">i")
            at.take(4)
            replicas, isr = at.numbers(), at.numbers()
            at.numbers()
            if not code:
                partitions[topic, number] = Partition(leader, isr, replicas)
    return Metadata(racks, controller, partitions)


class MetadataClient:
    """Client for metadata requests that starts with the broker that responded last.

    Args:
        bootstrap: addresses of brokers, ``host:port,…``.
        each_s: timeout per broker in seconds.
    """

    def __init__(self, bootstrap: str, *, each_s: float = EACH_S) -> None:
        self._addresses = [wire_protocol.address(server) for server in bootstrap.split(",")]
        self._each_s = each_s

    def query(self, topics: Sequence[str], timeout_s: float) -> Metadata:
        """Return the metadata of the first broker that responds.

        Args:
            topics: topic names.
            timeout_s: timeout for all brokers together, in seconds. Each broker gets at least ``LEAST_S``, even
                after it.

        Raises:
            RackgateError: no broker responds in time; the message has the error of each.
        """
        deadline = time.monotonic() + timeout_s
        errors: list[str] = []
        for _ in range(len(self._addresses)):
            left_s = max(LEAST_S, min(deadline - time.monotonic(), self._each_s))
            address = self._addresses[0]
            try:
                return wire_protocol.query(address, request(topics), _NAME, left_s, parse)
            except RackgateError as error:
                errors.append(str(error))
            # move it to the end, also for later requests
            self._addresses.append(self._addresses.pop(0))
        raise RackgateError("; ".join(errors))

    def query_or_none(self, topics: Sequence[str], timeout_s: float) -> Metadata | None:
        """Return the same as ``query``, or None if no broker responds in time."""
        try:
            return self.query(topics, timeout_s)
        except RackgateError:
            return None
