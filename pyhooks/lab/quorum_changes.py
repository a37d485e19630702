"""Voters of a cluster's metadata quorum: replace lost disks and make the controllers on them voters again.

Every step checks the current state first, so an interrupted operation can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka.quorum_state import Quorum
from pyhooks.lab.topology import Node

TOOL = "metadata-quorum"
FOLLOW_S = 60.0
# Name of a disk while it is being deleted, so that the disk itself is either complete or missing.
DELETED_NAME = "data.gone"


class QuorumCluster(Protocol):
    """Operations to replace the disks of a cluster: a lab or the hosts of a ducktape cluster file."""

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """Return the brokers of a rack, or all brokers."""

    def formatted(self, node: Node) -> bool:
        """Return whether the disk of a node is formatted."""

    def directory_id(self, node: Node) -> str:
        """Return the directory id of a node."""

    def clear_disk(self, node: Node) -> None:
        """Delete the remains of an unformatted disk."""

    def format(self, nodes: Sequence[Node], *, joins: bool = False) -> None:
        """Format the disks of ``nodes`` for a new cluster or, with ``joins``, for the existing one."""

    def start_kafka(self, node: Node) -> None:
        """Start Kafka on ``node`` without waiting until it serves; do nothing if it runs."""

    def check_running(self, nodes: Sequence[Node]) -> None:
        """Raise an error unless Kafka runs on all of ``nodes``."""

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        """Return the quorum as reported by the first of ``brokers`` that responds."""

    def change_quorum(self, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        """Run Kafka's metadata-quorum tool through some of ``brokers`` and return its output."""

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        """Make a controller that is an observer a voter, with its current directory."""


def voters(cluster: QuorumCluster, brokers: Sequence[Node]) -> dict[int, str]:
    """Return the directory ids of the voters by node id, as reported by one of ``brokers``.

    Raises:
        RackgateError: no broker responds.
    """
    return {voter.node_id: voter.directory_id for voter in cluster.quorum(brokers).voters}


def addresses(brokers: Sequence[Node]) -> str:
    """Return the addresses of ``brokers`` in the form of ``bootstrap.servers``.

    Raises:
        RackgateError: ``brokers`` is empty.
    """
    if not brokers:
        raise RackgateError("the quorum can't be queried: no broker remains")
    return ",".join(node.address for node in brokers)


def delete_disk(data: Path) -> None:
    """Delete a node's log directory; renames it first, so that a kill never leaves it half deleted."""
    deleted = data.with_name(DELETED_NAME)
    shutil.rmtree(deleted, ignore_errors=True)
    data.rename(deleted)
    shutil.rmtree(deleted)


def clear_disk(data: Path) -> None:
    """Delete the remains of an unformatted log directory."""
    for leftover in (data, data.with_name(DELETED_NAME)):
        if leftover.exists():
            shutil.rmtree(leftover)


def replace_disks(cluster: QuorumCluster, nodes: Sequence[Node]) -> None:
    """Format the unformatted disks of ``nodes``, start Kafka on all nodes and make their controllers voters again.

    Raises:
        RackgateError: the quorum rejects a change, or a process does not start.
    """
    if not nodes:
        return
    others = [node for node in cluster.brokers() if node not in nodes]
    controllers = [node for node in nodes if node.is_controller]
    empty = [node for node in nodes if not cluster.formatted(node)]
    if controllers:
        now = voters(cluster, others)
        for node in controllers:
            directory = now.get(node.node_id)
            # A voter is identified by its directory: with a new one, the quorum would wait forever for the old one.
            if directory is not None and (node in empty or directory != cluster.directory_id(node)):
                _remove_voter(cluster, node, directory, others)
    for node in empty:
        cluster.clear_disk(node)
    if empty:
        cluster.format(empty, joins=True)
    for node in nodes:
        cluster.start_kafka(node)
    if controllers:
        now = voters(cluster, others)
        for node in controllers:
            if now.get(node.node_id) != cluster.directory_id(node):
                _make_voter(cluster, node, others)


def wait_caught_up(cluster: QuorumCluster, node: Node, others: Sequence[Node]) -> None:
    """Wait until a controller has caught up with the active controller, as reported by one of ``others``.

    Raises:
        RackgateError: not in time, or its process ended.
    """
    directory_id = cluster.directory_id(node)

    def caught_up() -> bool:
        cluster.check_running([node])
        return cluster.quorum(others).lag(node.node_id, directory_id) == 0

    wait_for(caught_up, goal=f"{node.name} to follow the quorum", timeout_s=FOLLOW_S, interval_s=0.5)


def _make_voter(cluster: QuorumCluster, node: Node, others: Sequence[Node]) -> None:
    """Add a voter once it has caught up."""
    wait_caught_up(cluster, node, others)
    directory = cluster.directory_id(node)
    _retry_change(
        lambda: cluster.join_quorum(node, others),
        lambda: voters(cluster, others).get(node.node_id) == directory,
        f"the quorum to take {node.name} as a voter",
    )


def _remove_voter(cluster: QuorumCluster, node: Node, directory: str, others: Sequence[Node]) -> None:
    """Remove the voter with a directory id."""
    arguments = ["remove-controller", "--controller-id", str(node.node_id), "--controller-directory-id", directory]
    _retry_change(
        lambda: cluster.change_quorum(arguments, others),
        lambda: voters(cluster, others).get(node.node_id) != directory,
        f"the quorum to let {node.name} go",
    )


def _retry_change(change: Callable[[], object], taken: Callable[[], bool], goal: str) -> None:
    """Change the voters; retry if the quorum rejects the change.

    It rejects changes while another one is in progress. A broker that has not yet learned of an election sends the
    change to a controller that is no longer active. The tool receives NOT_LEADER_OR_FOLLOWER and does not retry.
    """
    rejected: list[RackgateError] = []

    def done() -> bool:
        try:
            # an earlier attempt may have succeeded although its response was lost
            if rejected and taken():
                return True
            change()
        except RackgateError as error:
            rejected.append(error)
            return False
        return True

    try:
        wait_for(done, goal=goal, timeout_s=FOLLOW_S, interval_s=1.0)
    except RackgateError as error:
        if not rejected:
            raise
        raise RackgateError(f"{error}; its last answer: {rejected[-1]}", detail=rejected[-1].detail) from rejected[-1]
