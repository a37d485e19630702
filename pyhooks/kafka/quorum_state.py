"""What some living broker says of the metadata quorum: who leads it, who votes, and how far each has got.

Kafka's tool says the same, after a start of Java each time. The request is DescribeQuorum 2 (Kafka 3.9, KIP-853), which
a broker passes on to the active controller; layouts are those of ``DescribeQuorumRequest.json`` and
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
# While there is no active controller a broker waits for one, and says nothing.
EACH_S, AGAIN_S, TIMEOUT_S = 3.0, 0.3, 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """A controller or a broker that has the metadata.

    Attributes:
        node_id: its id.
        directory_id: of its disk, in Kafka's form.
        log_end: end of its log as the leader knows it, an offset.
    """

    node_id: int
    directory_id: str
    log_end: int


@dataclass(frozen=True)
class Quorum:
    """The metadata quorum as its leader tells it.

    Attributes:
        leader: node id of the active controller.
        voters: the controllers that vote, itself among them.
        observers: who else follows it.
    """

    leader: int
    voters: tuple[Member, ...]
    observers: tuple[Member, ...]

    def lag(self, node_id: int, directory_id: str | None = None) -> int | None:
        """How many records one lacks that the leader has; None if the leader has not heard of it.

        Args:
            node_id: whose.
            directory_id: of its disk; None for whatever it has.
        """
        (end,) = (one.log_end for one in self.voters if one.node_id == self.leader)
        for one in (*self.voters, *self.observers):
            if one.node_id == node_id and directory_id in (None, one.directory_id):
                return end - one.log_end
        return None


def request() -> bytes:
    """The question, its length in front."""
    # The header ends with its number of tagged fields, as does each structure; arrays and strings have length plus one.
    topic = bytes([len(_TOPIC) + 1]) + _TOPIC + b"\x02" + struct.pack(">i", 0) + b"\0" + b"\0"
    return wire_protocol.framed(55, 2, b"\0" + b"\x02" + topic + b"\0")


def ask(bootstrap: str, *, each_s: float = EACH_S, timeout_s: float = TIMEOUT_S) -> Quorum:
    """What the first broker that answers says; all are asked in turn, again and again.

    Args:
        bootstrap: addresses of brokers, ``host:port,…``.
        each_s: how long one of them is waited for, in seconds.
        timeout_s: bound for all of it, in seconds, but for the last question.

    Raises:
        RackgateError: none answers in time, or nobody leads the quorum; with what became of the last questions.
    """
    addresses = [wire_protocol.address(text) for text in bootstrap.split(",")]
    said: dict[tuple[str, int], RackgateError] = {}

    def told() -> Quorum | None:
        for address in addresses:
            try:
                return wire_protocol.told(address, request(), _NAME, each_s, parse)
            except RackgateError as error:
                said[address] = error
        return None

    try:
        return wait_for(told, what="the metadata quorum", timeout_s=timeout_s, interval_s=AGAIN_S)
    except RackgateError as error:
        raise RackgateError(f"{error}; {'; '.join(map(str, said.values()))}") from error


def parse(answer: bytes) -> Quorum:
    """The quorum in an answer, which begins with its header.

    Raises:
        IndexError: it ends early; so does struct.error.
        UnicodeDecodeError: a text is none.
        RackgateError: the broker refused, or nobody leads the quorum.
    """
    at = Reader(answer)
    at.number(">i")
    at.skip_tags()
    _refused(at)
    (found,) = _array(at, _topic) or [[]]
    if not found:
        raise RackgateError(f"the answer to {_NAME} has no quorum")
    return found[0]


def _topic(at: Reader) -> list[Quorum]:
    at.compact_text()
    partitions = _array(at, _partition)
    at.skip_tags()
    return partitions


def _partition(at: Reader) -> Quorum:
    at.number(">i")
    _refused(at)
    leader = at.number(">i")
    # its epoch and the high watermark
    at.take(4 + 8)
    voters, observers = tuple(_array(at, _member)), tuple(_array(at, _member))
    at.skip_tags()
    if leader not in {one.node_id for one in voters}:
        raise RackgateError(f"nobody leads the quorum: {_NAME} tells of leader {leader}")
    return Quorum(leader, voters, observers)


def _member(at: Reader) -> Member:
    node_id = at.number(">i")
    directory_id = base64.urlsafe_b64encode(at.take(16)).decode().rstrip("=")
    log_end = at.number(">q")
    # when it fetched last, and when it had all
    at.take(8 + 8)
    at.skip_tags()
    return Member(node_id, directory_id, log_end)


def _refused(at: Reader) -> None:
    code, message = at.number(">h"), at.compact_text()
    if code:
        raise RackgateError(f"{_NAME} was refused with Kafka's error code {code}{f': {message}' if message else ''}")


def _array(at: Reader, element: Callable[[Reader], T]) -> list[T]:
    return [element(at) for _ in range(at.compact_count())]
