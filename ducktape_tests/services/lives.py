"""Process states and logged faults of Kafka nodes, recorded for the checker ``crashes``.

This module does not import ducktape.
"""

from __future__ import annotations

from collections.abc import Sequence

from ducktape_tests.services.hosts import Hosts
from pyhooks.core.errors import RackgateError
from pyhooks.history import process_events
from pyhooks.history.event_log import History
from pyhooks.history.events import NodeStateDetails, NodeStateFailureDetails
from pyhooks.lab.topology import Node


def note_states(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Record the state of each node's Kafka process, or that its host can't be reached."""
    for node in nodes:
        try:
            state = hosts.process_state(node)
        except RackgateError as error:
            history.add(NodeStateFailureDetails(node=node.node_id, error=str(error)), "unknown")
        else:
            history.add(NodeStateDetails(node=node.node_id, state=state), "ok")


def note_faults(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Record the faults in the log of each node's Kafka, or that the log can't be read."""
    for node in nodes:
        try:
            output = hosts.run_on(node, process_events.fault_query(hosts.log))
        except RackgateError as error:
            process_events.note_unread(history, node.node_id, str(error))
        else:
            process_events.note_logged(history, node.node_id, output)
