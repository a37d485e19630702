"""What some living broker says of brokers, racks and partitions, within a bound.

librdkafka's ``list_topics`` asks one broker, tells no racks, and waits for that broker though it be dead. Here a broker
that is silent is left for the next one. The request is Metadata 7 (Kafka 2.1): one image of the cluster, with brokers
that are not fenced; layouts are those of ``MetadataRequest.json`` and ``MetadataResponse.json`` in Kafka's sources.
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
# What a broker may take. On a busy machine even a sound one needs some, and so every one gets a little.
EACH_S = 0.6
LEAST_S = 0.1


@dataclass(frozen=True)
class Partition:
    """A partition as a broker's metadata have it.

    Attributes:
        leader: broker id, or -1.
        isr: broker ids, as told.
        replicas: broker ids, in the order of the assignment.
    """

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """The cluster as a broker tells it.

    Attributes:
        racks: of the brokers that are registered and not fenced; ``""`` for a broker without one.
        controller: the broker that is named as the controller, any of those in KRaft; or -1.
        partitions: by topic and number; topics of which the broker tells an error are left out.
    """

    racks: Mapping[int, str]
    controller: int
    partitions: Mapping[tuple[str, int], Partition]


def request(topics: Sequence[str]) -> bytes:
    """The question for some topics, which makes none of them; its length in front."""
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return wire_protocol.framed(3, 7, struct.pack(">i", len(topics)) + names + b"\0")


def parse(answer: bytes) -> Metadata:
    """What an answer says, which begins with its header.

    Raises:
        IndexError: it ends early; so does struct.error.
        UnicodeDecodeError: a name is not text.
    """
    at = Reader(answer)
    at.take(8)  # correlation and throttle time
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
            # without a leader a partition has an error of its own, and is told all the same
            at.take(2)
            number, leader = at.number(">i"), at.number(">i")
            at.take(4)
            replicas, isr = at.numbers(), at.numbers()
            at.numbers()
            if not code:
                partitions[topic, number] = Partition(leader, isr, replicas)
    return Metadata(racks, controller, partitions)


class Asker:
    """Asks for metadata, beginning with the broker that answered last.

    Args:
        bootstrap: addresses of brokers, ``host:port,…``.
        each_s: how long one of them is waited for, in seconds.
    """

    def __init__(self, bootstrap: str, *, each_s: float = EACH_S) -> None:
        self._addresses = [wire_protocol.address(one) for one in bootstrap.split(",")]
        self._each_s = each_s

    def ask(self, topics: Sequence[str], timeout_s: float) -> Metadata:
        """The metadata of the first broker that answers.

        Args:
            topics: names.
            timeout_s: bound for all brokers together, in seconds, but for ``LEAST_S`` of each that is asked later.

        Raises:
            RackgateError: none answers in time, with what became of each.
        """
        deadline = time.monotonic() + timeout_s
        said: list[str] = []
        for _ in range(len(self._addresses)):
            left_s = max(LEAST_S, min(deadline - time.monotonic(), self._each_s))
            address = self._addresses[0]
            try:
                return wire_protocol.told(address, request(topics), _NAME, left_s, parse)
            except RackgateError as error:
                said.append(str(error))
            # last in turn, also of the next question
            self._addresses.append(self._addresses.pop(0))
        raise RackgateError("; ".join(said))

    def heard(self, topics: Sequence[str], timeout_s: float) -> Metadata | None:
        """The same, or None if nobody answers in time."""
        try:
            return self.ask(topics, timeout_s)
        except RackgateError:
            return None
