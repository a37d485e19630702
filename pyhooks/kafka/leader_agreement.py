"""Wait until partition leaders and the other brokers report the same leaders and ISRs.

Brokers apply metadata changes at different times. The broker that was queried may apply a change before the leader
does, and until then the leader acts on the previous state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient

AGREED_S = 30.0
QUERY_S = 2.0
# leader and ISR by topic
State = dict[str, tuple[int, tuple[int, ...]]]


def wait_agreed(
    brokers: Mapping[int, str], topics: Sequence[str], *, steady_s: float, timeout_s: float = AGREED_S
) -> dict[str, int]:
    """Wait until each topic's leader and the other brokers have reported the same leader and ISR for ``steady_s``.

    All brokers are queried. For each topic, only those count that respond and that its leader lists as unfenced: a
    fenced or unregistered broker receives no updates.

    Args:
        brokers: addresses of the brokers to query, by id.
        topics: topic names; partition 0 of each counts.
        steady_s: how long the reports must agree, in seconds; a broker reports a change before it acts on it.
        timeout_s: timeout in seconds.

    Returns:
        Leader by topic.

    Raises:
        RackgateError: no agreement in time; the detail has the last report of each broker.
    """
    clients = {broker: MetadataClient(address, each_s=QUERY_S) for broker, address in brokers.items()}
    responses: dict[int, Metadata | None] = {}
    last: State = {}
    since_s = 0.0

    def steady() -> dict[str, int]:
        nonlocal last, since_s
        responses.update({broker: client.query_or_none(topics, QUERY_S) for broker, client in clients.items()})
        now = _agreed(responses, topics)
        if now != last or not now:
            last, since_s = now, time.monotonic()
        return {topic: leader for topic, (leader, _) in now.items()} if time.monotonic() - since_s >= steady_s else {}

    goal = f"the leaders of {', '.join(topics)} to report for {steady_s:g} s the same ISR as the other brokers"
    try:
        return wait_for(steady, goal=goal, timeout_s=timeout_s, interval_s=0.2)
    except RackgateError as error:
        states = {broker: response and _state(response, topics) for broker, response in responses.items()}
        raise RackgateError(str(error), detail=f"last responses, by broker (leader, ISR): {states}") from error


def _state(metadata: Metadata, topics: Sequence[str]) -> State:
    partitions = {topic: metadata.partitions[topic, 0] for topic in topics if (topic, 0) in metadata.partitions}
    return {topic: (partition.leader, tuple(sorted(partition.isr))) for topic, partition in partitions.items()}


def _agreed(responses: Mapping[int, Metadata | None], topics: Sequence[str]) -> State:
    """Return the state on which all counted brokers agree; empty unless the leader of each topic responded."""
    agreed: State = {}
    for topic in topics:
        states = {broker: _state(state, topics).get(topic) for broker, state in responses.items() if state is not None}
        own = next((state for broker, state in states.items() if state is not None and state[0] == broker), None)
        if own is None:
            return {}
        leader = responses[own[0]]
        others = [state for broker, state in states.items() if leader is not None and broker in leader.racks]
        if any(state != own for state in others):
            return {}
        agreed[topic] = own
    return agreed
