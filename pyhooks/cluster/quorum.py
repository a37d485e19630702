"""The voters of a cluster's metadata quorum, and how one whose disk was lost comes back among them.

Every step looks first at what is there, so all of it can be interrupted anywhere and done once more.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyhooks.cluster import tools
from pyhooks.cluster.topology import Node
from pyhooks.errors import RackgateError
from pyhooks.wait import wait_for

if TYPE_CHECKING:
    from pyhooks.cluster.lab import Lab

TOOL = "metadata-quorum"
FOLLOW_S = 60.0
_VOTERS = "CurrentVoters:"
# What of a deleted disk is not yet gone; a disk is there whole, or not at all.
GONE = "data.gone"


def parse_voters(text: str) -> dict[int, str]:
    """Directory ids of the voters by node id, from what ``describe --status`` writes.

    Raises:
        RackgateError: there are none in it.
    """
    for line in text.splitlines():
        if line.startswith(_VOTERS):
            return {int(one["id"]): str(one.get("directoryId", "")) for one in json.loads(line.removeprefix(_VOTERS))}
    raise RackgateError(f"kafka-{TOOL} tells of no voters", detail=text)


def voters(lab: Lab, brokers: Sequence[Node]) -> dict[int, str]:
    """Directory ids of the voters by node id, as some of ``brokers`` tell.

    Raises:
        RackgateError: none of them answers.
    """
    return parse_voters(tools.run(lab.classpath, TOOL, ["describe", "--status"], _addresses(brokers)))


def _addresses(brokers: Sequence[Node]) -> str:
    if not brokers:
        raise RackgateError("the quorum can't be asked: no broker is left that could be")
    return ",".join(node.address for node in brokers)


def delete_disk(lab: Lab, node: Node) -> None:
    """Deletes a node's log folder; a kill in between leaves none that is half there."""
    data = lab.data(node)
    gone = data.with_name(GONE)
    shutil.rmtree(gone, ignore_errors=True)
    data.rename(gone)
    shutil.rmtree(gone)


def replace_disks(lab: Lab, nodes: Sequence[Node]) -> None:
    """Formats the disks of ``nodes`` that are not, starts Kafka on all, and makes their controllers voters again.

    Raises:
        RackgateError: the quorum refuses, or a process does not start.
    """
    if not nodes:
        return
    others = [node for node in lab.brokers() if node not in nodes]
    controllers = [node for node in nodes if node.is_controller]
    empty = [node for node in nodes if not lab.formatted(node)]
    if controllers:
        now = voters(lab, others)
        for node in controllers:
            directory = now.get(node.node_id)
            # A voter is known by its directory: the new one would wait for ever for the old one's vote.
            if directory is not None and (node in empty or directory != lab.directory_id(node)):
                words = ["remove-controller", "--controller-id", str(node.node_id)]
                tools.run(lab.classpath, TOOL, [*words, "--controller-directory-id", directory], _addresses(others))
    for node in empty:
        for leftover in (lab.data(node), lab.data(node).with_name(GONE)):
            if leftover.exists():
                shutil.rmtree(leftover)
    if empty:
        lab.format(empty, joins=True)
    for node in nodes:
        lab.start_kafka(node)
    if controllers:
        now = voters(lab, others)
        for node in controllers:
            if now.get(node.node_id) != lab.directory_id(node):
                _make_voter(lab, node, _addresses(others))


def _make_voter(lab: Lab, node: Node, bootstrap: str) -> None:
    follower = [str(node.node_id), lab.directory_id(node)]

    def caught_up() -> bool:
        lab.all_run([node])
        said = tools.run(lab.classpath, TOOL, ["describe", "--replication"], bootstrap)
        rows = [line.split() for line in said.splitlines()]
        # node id, directory id, log end offset, lag, …
        return any(row[:2] == follower and row[3:4] == ["0"] for row in rows)

    wait_for(caught_up, what=f"{node.name} to follow the quorum", timeout_s=FOLLOW_S, interval_s=0.5)
    config = Path(lab.disks[node.name]) / "format.properties"
    tools.run(lab.classpath, TOOL, ["--command-config", str(config), "add-controller"], bootstrap)
