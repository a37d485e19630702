"""Process states and logged faults of Kafka nodes, recorded for the checker ``crashes``.

This module does not import ducktape.
"""

from __future__ import annotations

from collections.abc import Sequence

from ducktape_tests.services.hosts import Hosts
from pyhooks.core.errors import RackgateError
from pyhooks.history import process_events
from pyhooks.history.event_log import History
from pyhooks.lab.topology import Node


def note_states(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Record the state of each node's Kafka process, or that its host can't be reached."""
    for node in nodes:
        try:
            state = hosts.process_state(node)
        except RackgateError as error:
            history.note(process_events.PROCESS, process_events.STATE, "unknown", node=node.node_id, error=str(error))
        else:
            history.note(process_events.PROCESS, process_events.STATE, "ok", node=node.node_id, state=state)


def note_faults(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Record the faults in the log of each node's Kafka, or that the log can't be read."""
    for node in nodes:
        try:
            answer = hosts.run_on(node, process_events.question(hosts.log))
        except RackgateError as error:
            process_events.note_unread(history, node.node_id, str(error))
        else:
            process_events.note_logged(history, node.node_id, answer)
