"""What a fault and a test need of a running cluster, be it a lab or the hosts of a ducktape cluster file."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.lab.echo import Rtt
from pyhooks.lab.network_faults import Ways
from pyhooks.lab.topology import Node, Topology

# one round trip of the slowest way that a fault may make, and some; what is silent costs all of it
WAIT_S = 3.0
# In that time the kernel sends a SYN twice. Over a way that loses a third of the packets in each direction no answer
# comes in one of four times; to all of these once in 10,000 times.
TRIES = 8
# Nor is it an answer if the node is not found.
SILENT = (errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH)
ProcessState = Literal["up", "paused", "down"]
_NUM_THREADS = 17  # proc(5)'s 20th field, counted from the state letter
# An ApiVersions request of version 0, which every Kafka since 0.10 answers: size, key, version, correlation id, no
# client id.
_ASK = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class RunningCluster(Protocol):
    """A cluster whose Kafka processes can be killed and started and whose racks can be cut off."""

    @property
    def topology(self) -> Topology:
        """What it consists of."""

    @property
    def ways(self) -> Ways:
        """What lies between its nodes."""

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """The brokers of a rack, or all."""

    def members(self, site: str) -> tuple[Node, ...]:
        """All nodes of a site, controllers included."""

    def process_state(self, node: Node) -> ProcessState:
        """What the node's Kafka process does."""

    def kill_kafka(self, node: Node) -> None:
        """Ends the node's Kafka process at once and waits until it is gone; does nothing if it does not run."""

    def start_kafka(self, node: Node) -> None:
        """Starts Kafka on ``node`` and does not wait until it serves; does nothing if it runs."""

    def pause_kafka(self, node: Node) -> None:
        """Stops the node's Kafka process where it is and waits until it stands."""

    def resume_kafka(self, node: Node) -> None:
        """Lets a paused Kafka process go on; does nothing to one that runs, or to none."""

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = ...) -> None:
        """Waits until all of ``nodes`` are registered and unfenced."""

    def answers(self, target: Node, source: Node | None = None) -> bool:
        """Whether ``target`` answers echo requests from ``source`` (None: from the clients)."""

    def rtt(self, target: Node, source: Node | None = None, count: int = ...) -> Rtt:
        """The round-trip time to ``target`` from ``source`` (None: from the clients)."""

    def wipe(self, node: Node) -> str:
        """Deletes the disk of a node whose Kafka does not run; returns the id that its directory had."""

    def formatted(self, node: Node) -> bool:
        """Whether the disk of a node is formatted."""

    def directory_id(self, node: Node) -> str:
        """The id of the node's directory, which Kafka draws anew when the disk is formatted."""

    def replace_disks(self, nodes: Sequence[Node]) -> None:
        """Formats the disks of ``nodes`` that are not, starts Kafka on all, and makes their controllers voters again.

        It looks first at what is there, so that it can be interrupted anywhere and done once more.
        """

    def voters(self, brokers: Sequence[Node]) -> Mapping[int, str]:
        """Directory ids of the quorum's voters by node id, as some of ``brokers`` tell."""


def state_of(stat: Sequence[str]) -> ProcessState:
    """What a process does, by the fields of its entry in /proc from the state letter on; none: there is no process.

    A killed JVM is a zombie while its last threads still hold its sockets: it is down when the last one is gone.
    """
    letter = stat[0] if stat else "X"
    gone = letter == "X" or (letter == "Z" and int(stat[_NUM_THREADS]) <= 1)
    return "paused" if letter in "Tt" else "down" if gone else "up"


def reachable(node: Node, tries: int = TRIES) -> bool:
    """Whether a client in this process's network can connect to the node's Kafka port right now.

    Args:
        node: whose.
        tries: how often it is asked if there is no answer, since a way may lose some; a refusal is an answer.

    Raises:
        RackgateError: this side can't ask.
    """
    return _says(lambda: _connected(node), node, tries)


def serves(node: Node, tries: int = TRIES) -> bool:
    """Whether the node's Kafka answers a client in this process's network; a paused one accepts and says nothing.

    Args:
        node: whose.
        tries: how often it is asked if there is no answer.

    Raises:
        RackgateError: this side can't ask.
    """
    return _says(lambda: _answered(node), node, tries)


def _says(ask: Callable[[], bool], node: Node, tries: int) -> bool:
    for _ in range(tries):
        try:
            return ask()
        except ConnectionError:
            return False
        except OSError as error:
            if not isinstance(error, TimeoutError) and error.errno not in SILENT:
                raise RackgateError(f"{node.name}: nobody can ask at {node.address}: {error}") from error
    return False


def _connected(node: Node) -> bool:
    with socket.create_connection((node.ip, node.port), timeout=WAIT_S):
        return True


def _answered(node: Node) -> bool:
    with socket.create_connection((node.ip, node.port), timeout=WAIT_S) as talk:
        talk.sendall(_ASK)
        return len(talk.recv(4)) > 0
