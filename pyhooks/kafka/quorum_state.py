"""Leader, voters, observers and log ends of the metadata quorum, as reported by the first broker that responds.

Kafka's tool reports the same but starts a JVM each time. The request is DescribeQuorum 2 (Kafka 3.9, KIP-853), which a
broker forwards to the active controller. The layouts are those of ``DescribeQuorumRequest.json`` and
``DescribeQuorumResponse.json`` in Kafka's sources.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import Reader

_NAME = "DescribeQuorum"
_TOPIC = b"__cluster_metadata"
# Without an active controller, a broker waits for one and does not respond.
EACH_S, AGAIN_S, TIMEOUT_S = 3.0, 0.3, 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """Controller or broker that replicates the metadata log."""

    node_id: int
    directory_id: str  # id of its metadata log directory, in Kafka's base64 form
    log_end: int  # log end offset known to the quorum leader


@dataclass(frozen=True)
class Quorum:
    """Metadata quorum as reported by its leader."""

    leader: int  # node id of the active controller
    voters: tuple[Member, ...]  # voting controllers, including the leader
    observers: tuple[Member, ...]  # other nodes that replicate the log

    def lag(self, node_id: int, directory_id: str | None = None) -> int | None:
        """Return how many records a node lags behind the leader; None if the leader does not list it.

        Without ``directory_id`` any log directory of the node counts.
        """
        (end,) = (replica.log_end for replica in self.voters if replica.node_id == self.leader)
        for replica in (*self.voters, *self.observers):
            if replica.node_id == node_id and directory_id in (None, replica.directory_id):
                return end - replica.log_end
        return None


def request() -> bytes:
    """Return the request, including its length prefix."""
    # Each structure and the header end with tagged fields. Arrays and strings start with their length plus one.
    topic = bytes([len(_TOPIC) + 1]) + _TOPIC + b"\x02" + struct.pack(">i", 0) + b"\0" + b"\0"
    return wire_protocol.framed(55, 2, b"\0" + b"\x02" + topic + b"\0")


def query(bootstrap: str, *, each_s: float = EACH_S, timeout_s: float = TIMEOUT_S) -> Quorum:
    """Return the quorum as reported by the first broker that responds; all are queried in turn, repeatedly.

    Args:
        bootstrap: addresses of brokers, ``host:port,…``.
        each_s: timeout per broker in seconds.
        timeout_s: total timeout in seconds; a round of requests that has started may exceed it.

    Raises:
        RackgateError: no broker responds in time, or the quorum has no leader; the message has the last errors.
    """
    addresses = [wire_protocol.address(text) for text in bootstrap.split(",")]
    errors: dict[tuple[str, int], RackgateError] = {}

    def quorum() -> Quorum | None:
        for address in addresses:
            try:
                return wire_protocol.query(address, request(), _NAME, each_s, parse)
            except RackgateError as error:
                errors[address] = error
        return None

    try:
        return wait_for(quorum, goal="the metadata quorum", timeout_s=timeout_s, interval_s=AGAIN_S)
    except RackgateError as error:
        raise RackgateError(f"{error}; {'; '.join(map(str, errors.values()))}") from error


def parse(response: bytes) -> Quorum:
    """Parse a response, starting at its header.

    Raises:
        IndexError: the response is truncated; or struct.error for the same reason.
        UnicodeDecodeError: a string is not valid UTF-8.
        RackgateError: the broker returned an error, or the quorum has no leader.
    """
    at = Reader(response)
    at.number(">i")
    at.skip_tags()
    _rejected(at)
    (quorums,) = _array(at, _topic) or [[]]
    if not quorums:
        raise RackgateError(f"the response to {_NAME} has no quorum")
    return quorums[0]


def _topic(at: Reader) -> list[Quorum]:
    at.compact_text()
    partitions = _array(at, _partition)
    at.skip_tags()
    return partitions


def _partition(at: Reader) -> Quorum:
    at.number(">i")
    _rejected(at)
    leader = at.number(">i")
    # leader epoch and high watermark
    at.take(4 + 8)
    voters, observers = tuple(_array(at, _member)), tuple(_array(at, _member))
    at.skip_tags()
    if leader not in {voter.node_id for voter in voters}:
        raise RackgateError(f"the quorum has no leader: {_NAME} reports leader {leader}")
    return Quorum(leader, voters, observers)


def _member(at: Reader) -> Member:
    node_id = at.number(">i")
    directory_id = base64.urlsafe_b64encode(at.take(16)).decode().rstrip("=")
    log_end = at.number(">q")
    # last fetch and last caught-up timestamps
    at.take(8 + 8)
    at.skip_tags()
    return Member(node_id, directory_id, log_end)


def _rejected(at: Reader) -> None:
    code, message = at.number(">h"), at.compact_text()
    if code:
        raise RackgateError(f"{_NAME} was rejected with Kafka's error code {code}{f': {message}' if message else ''}")


def _array(at: Reader, element: Callable[[Reader], T]) -> list[T]:
    return [element(at) for _ in range(at.compact_count())]
