"""The voters of a cluster's metadata quorum, and how one whose disk was lost comes back among them.

Every step looks first at what is there, so all of it can be interrupted anywhere and done once more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import tools
from pyhooks.kafka.quorum_state import Quorum
from pyhooks.lab.topology import Node

TOOL = "metadata-quorum"
FOLLOW_S = 60.0
# What of a deleted disk is not yet gone; a disk is there whole, or not at all.
GONE = "data.gone"


class Folders(Protocol):
    """Folders of a lab's nodes, and the class path of its tools."""

    @property
    def classpath(self) -> str:
        """Class path of Kafka's tools."""

    @property
    def disks(self) -> Mapping[str, str]:
        """Node name to the folder of its disk."""

    def data(self, node: Node) -> Path:
        """Folder of Kafka's data of a node."""


class Disks(Protocol):
    """What it takes to replace the disks of a cluster, be it a lab or the hosts of a ducktape cluster file."""

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        """The brokers of a rack, or all."""

    def formatted(self, node: Node) -> bool:
        """Whether the disk of a node is formatted."""

    def directory_id(self, node: Node) -> str:
        """The id of the node's directory."""

    def clear_disk(self, node: Node) -> None:
        """Deletes what is left of a disk that is not formatted."""

    def format(self, nodes: Sequence[Node], *, joins: bool = False) -> None:
        """Formats the disks of ``nodes``, for a new cluster or, with ``joins``, for the one that is there."""

    def start_kafka(self, node: Node) -> None:
        """Starts Kafka on ``node`` and does not wait until it serves; does nothing if it runs."""

    def all_run(self, nodes: Sequence[Node]) -> None:
        """Raises if the Kafka process of one of them does not run."""

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        """The quorum, as the first of ``brokers`` that answers tells it."""

    def change_quorum(self, words: Sequence[str], brokers: Sequence[Node]) -> str:
        """What Kafka's tool for the quorum writes when it is to change it through some of ``brokers``."""

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        """Makes a controller that follows the quorum a voter with the directory that it has now."""


def voters(cluster: Disks, brokers: Sequence[Node]) -> dict[int, str]:
    """Directory ids of the voters by node id, as some of ``brokers`` tell.

    Raises:
        RackgateError: none of them answers.
    """
    return {one.node_id: one.directory_id for one in cluster.quorum(brokers).voters}


def ask(lab: Folders, words: Sequence[str], brokers: Sequence[Node]) -> str:
    """See ``Lab.change_quorum``."""
    return tools.run(lab.classpath, TOOL, words, addresses(brokers))


def join(lab: Folders, node: Node, brokers: Sequence[Node]) -> None:
    """See ``Lab.join_quorum``."""
    config = Path(lab.disks[node.name]) / "format.properties"
    ask(lab, ["--command-config", str(config), "add-controller"], brokers)


def clear_disk(lab: Folders, node: Node) -> None:
    """See ``Lab.clear_disk``."""
    for leftover in (lab.data(node), lab.data(node).with_name(GONE)):
        if leftover.exists():
            shutil.rmtree(leftover)


def addresses(brokers: Sequence[Node]) -> str:
    """Of the brokers that can be asked, as ``bootstrap.servers``.

    Raises:
        RackgateError: there are none.
    """
    if not brokers:
        raise RackgateError("the quorum can't be asked: no broker is left that could be")
    return ",".join(node.address for node in brokers)


def delete_disk(lab: Folders, node: Node) -> None:
    """Deletes a node's log folder; a kill in between leaves none that is half there."""
    data = lab.data(node)
    gone = data.with_name(GONE)
    shutil.rmtree(gone, ignore_errors=True)
    data.rename(gone)
    shutil.rmtree(gone)


def replace_disks(cluster: Disks, nodes: Sequence[Node]) -> None:
    """Formats the disks of ``nodes`` that are not, starts Kafka on all, and makes their controllers voters again.

    Raises:
        RackgateError: the quorum refuses, or a process does not start.
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
            # A voter is known by its directory: the new one would wait for ever for the old one's vote.
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


def wait_follows(cluster: Disks, node: Node, others: Sequence[Node]) -> None:
    """Waits until a controller has all that the active one has, as some of ``others`` tell.

    Raises:
        RackgateError: not in time, or its process ended.
    """
    directory_id = cluster.directory_id(node)

    def caught_up() -> bool:
        cluster.all_run([node])
        return cluster.quorum(others).lag(node.node_id, directory_id) == 0

    wait_for(caught_up, what=f"{node.name} to follow the quorum", timeout_s=FOLLOW_S, interval_s=0.5)


def _make_voter(cluster: Disks, node: Node, others: Sequence[Node]) -> None:
    """Adds a voter once it follows the quorum.

    Raises:
        RackgateError: not in time; says what the quorum answered last.
    """
    wait_follows(cluster, node, others)
    directory = cluster.directory_id(node)
    _until_taken(
        lambda: cluster.join_quorum(node, others),
        lambda: voters(cluster, others).get(node.node_id) == directory,
        f"the quorum to take {node.name} as a voter",
    )


def _remove_voter(cluster: Disks, node: Node, directory: str, others: Sequence[Node]) -> None:
    """Removes the voter that had a directory.

    Raises:
        RackgateError: not in time; says what the quorum answered last.
    """
    words = ["remove-controller", "--controller-id", str(node.node_id), "--controller-directory-id", directory]
    _until_taken(
        lambda: cluster.change_quorum(words, others),
        lambda: voters(cluster, others).get(node.node_id) != directory,
        f"the quorum to let {node.name} go",
    )


def _until_taken(change: Callable[[], object], taken: Callable[[], bool], what: str) -> None:
    """Changes the voters, again if the quorum refuses.

    It refuses while it is busy with something else, and a broker that has not yet heard of an election sends the change
    to a controller that is not the active one any more: its refusal (NOT_LEADER_OR_FOLLOWER) comes back to the tool,
    which does not try again (Kafka 4.3.1).
    """
    refused: list[RackgateError] = []

    def done() -> bool:
        try:
            # an answer that got lost tells nothing
            if refused and taken():
                return True
            change()
        except RackgateError as error:
            refused.append(error)
            return False
        return True

    try:
        wait_for(done, what=what, timeout_s=FOLLOW_S, interval_s=1.0)
    except RackgateError as error:
        if not refused:
            raise
        raise RackgateError(f"{error}; its last answer: {refused[-1]}", detail=refused[-1].detail) from refused[-1]
