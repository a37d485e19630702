"""Whether Kafka runs on the nodes of a cluster, and what faults their logs tell of: for the checker ``crashes``.

Nothing of ducktape is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ducktape_tests.services.hosts import Hosts
from pyhooks.core.errors import RackgateError
from pyhooks.history import process_events
from pyhooks.history.event_log import History
from pyhooks.lab.topology import Node


def note_states(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Writes what each node's Kafka does now; that a host can't be asked is written, too."""
    for node in nodes:
        try:
            state = hosts.process_state(node)
        except RackgateError as error:
            history.note(process_events.PROCESS, process_events.STATE, "unknown", node=node.node_id, error=str(error))
        else:
            history.note(process_events.PROCESS, process_events.STATE, "ok", node=node.node_id, state=state)


def note_faults(hosts: Hosts, nodes: Sequence[Node], history: History) -> None:
    """Writes what the nodes have logged of faults of Kafka's own; that a log can't be read is written, too."""
    for node in nodes:
        try:
            answer = hosts.run_on(node, process_events.question(hosts.log))
        except RackgateError as error:
            process_events.note_unread(history, node.node_id, str(error))
        else:
            process_events.note_logged(history, node.node_id, answer)
