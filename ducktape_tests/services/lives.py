"""Whether Kafka runs on the nodes of a cluster, and what faults their logs tell of: for the checker ``crashes``.

Nothing of ducktape is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ducktape_tests.services.hosts import Hosts
from pyhooks.cluster import nodelife
from pyhooks.cluster.topology import Node
from pyhooks.errors import RackgateError
from pyhooks.history import History


def note_states(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Writes what each node's Kafka does now; that a host can't be asked is written, too."""
    for node in nodes:
        try:
            state = hosts.process_state(node)
        except RackgateError as error:
            history.note(nodelife.PROCESS, nodelife.STATE, "unknown", node=node.node_id, error=str(error))
        else:
            history.note(nodelife.PROCESS, nodelife.STATE, "ok", node=node.node_id, state=state)


def note_faults(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Writes what the nodes have logged of faults of Kafka's own; that a log can't be read is written, too."""
    for node in nodes:
        try:
            answer = hosts.run_on(node, nodelife.question(hosts.log))
        except RackgateError as error:
            nodelife.note_unread(history, node.node_id, str(error))
        else:
            nodelife.note_logged(history, node.node_id, answer)
