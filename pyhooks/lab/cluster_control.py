"""Running cluster as faults and tests need it: a lab or the hosts of a ducktape cluster file."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.quorum_changes import QuorumCluster
from pyhooks.lab.topology import Link, Node, Quality, Topology

# Covers a round trip over the slowest link that a fault may create. A node that does not respond takes all of it.
WAIT_S = 3.0
# In WAIT_S the kernel sends a SYN twice. Over a link that loses a third of the packets in each direction, one of four
# attempts gets no response; all TRIES attempts fail less than once in 10,000 times.
TRIES = 8
# Errors that also mean no response: the node was not found.
SILENT = (errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH)
ProcessState = Literal["up", "paused", "down"]
_NUM_THREADS = 17  # proc(5)'s 20th field, counted from the state letter
# ApiVersions request of version 0, which every Kafka since 0.10 answers: size, key, version, correlation id, no client
# id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class NetworkControl(Protocol):
    """Network between the nodes of a cluster. All operations are idempotent."""

    @property
    def slows(self) -> bool:
        """Whether links can be slowed."""

    @property
    def by_site(self) -> bool:
        """Whether a site is partitioned as a whole, so one node proves it for all; else each node has its own rules."""

    def cut(self, site: str, peers: Sequence[str] = ()) -> None:
        """Drop all packets between ``site`` and other sites (all, or ``peers``), in both directions."""

    def join(self, site: str) -> None:
        """Heal a partition of ``site``; do nothing if there is none."""

    def unplug(self, node: Node) -> None:
        """Drop all packets between a node and all others."""

    def plug(self, node: Node) -> None:
        """Undo ``unplug``."""

    def slow(self, site: str, added: Quality) -> None:
        """Add delay, jitter and loss to all links of a site."""

    def restore_links(self, site: str) -> None:
        """Undo ``slow``; keep what other slowed sites add."""

    def quality(self, link: Link, without: str) -> Quality:
        """Return the current quality of a link, without what slowing the site ``without`` adds."""

    def slow_node(self, node: Node, added: Quality) -> None:
        """Add delay, jitter and loss between a node and all others."""

    def restore_node(self, node: Node) -> None:
        """Undo ``slow_node``."""


class RunningCluster(QuorumCluster, Protocol):
    """Cluster whose Kafka processes can be killed and started and whose racks can be partitioned."""

    @property
    def topology(self) -> Topology:
        """Topology of the cluster."""

    @property
    def network(self) -> NetworkControl:
        """Network between the nodes, for fault injection."""

    def process_state(self, node: Node) -> ProcessState:
        """Return the state of the node's Kafka process."""

    def kill_kafka(self, node: Node) -> None:
        """Kill the node's Kafka process and wait until it has ended; do nothing if it does not run."""

    def pause_kafka(self, node: Node) -> None:
        """Pause the node's Kafka process and wait until it has stopped."""

    def resume_kafka(self, node: Node) -> None:
        """Resume a paused Kafka process; do nothing if it is not paused or does not run."""

    def wait_unfenced(self, nodes: Sequence[Node], timeout_s: float = ...) -> None:
        """Wait until all of ``nodes`` are registered and unfenced."""

    def replies(self, target: Node, source: Node | None = None) -> bool:
        """Return whether ``target`` answers echo requests from ``source`` (None: from the clients)."""

    def rtt(self, target: Node, source: Node | None = None, count: int = ..., *, burst: bool = False) -> RoundTripTimes:
        """Measure the round-trip time to ``target`` from ``source`` (None: from the clients)."""

    def wipe(self, node: Node) -> str:
        """Delete the disk of a node whose Kafka does not run; return the directory id that it had."""


def process_state_of(stat: Sequence[str]) -> ProcessState:
    """Return the state of a process, given the fields of /proc/PID/stat from the state letter on (empty: no process).

    A killed JVM is a zombie while its last threads still hold its sockets. It counts as down when the last one ended.
    """
    letter = stat[0] if stat else "X"
    ended = letter == "X" or (letter == "Z" and int(stat[_NUM_THREADS]) <= 1)
    return "paused" if letter in "Tt" else "down" if ended else "up"


def reachable(node: Node, tries: int = TRIES) -> bool:
    """Return whether a client here can connect to the node's Kafka port; a refused connection is a response.

    Raises:
        RackgateError: a local error prevents the attempt.
    """
    return _try_connection(lambda: _connects(node), node, tries)


def responds(node: Node, tries: int = TRIES) -> bool:
    """Return whether the node's Kafka responds to a client in this process's network; a paused one only accepts.

    Raises:
        RackgateError: a local error prevents the attempt.
    """
    return _try_connection(lambda: _responds(node), node, tries)


def _try_connection(attempt: Callable[[], bool], node: Node, tries: int) -> bool:
    for _ in range(tries):
        try:
            return attempt()
        except ConnectionError:
            return False
        except OSError as error:
            if not isinstance(error, TimeoutError) and error.errno not in SILENT:
                raise RackgateError(f"{node.name}: can't connect to {node.address}: {error}") from error
    return False


def _connects(node: Node) -> bool:
    with socket.create_connection((node.ip, node.port), timeout=WAIT_S):
        return True


def _responds(node: Node) -> bool:
    with socket.create_connection((node.ip, node.port), timeout=WAIT_S) as connection:
        connection.sendall(_API_VERSIONS)
        return len(connection.recv(4)) > 0
