"""Committed offsets of consumer groups, queried from their coordinators, for ``pyhooks.checkers.group_commits``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import CommittedOffsetsDetails

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ASK_S = 20.0


def note_committed(client: AdminClient, groups: Iterable[str], history: History) -> None:
    """Query all committed offsets of groups and note them in a history.

    Raises:
        RackgateError: a coordinator does not respond.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    for group in groups:
        asked = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=ASK_S
        )
        try:
            positions = asked[group].result(timeout=2 * ASK_S).topic_partitions
        except (KafkaException, TimeoutError) as error:
            raise RackgateError(
                f"group {group}: its coordinator does not return its committed offsets: {error}"
            ) from error
        offsets = {f"{position.topic}-{position.partition}": int(position.offset) for position in positions}
        history.add(CommittedOffsetsDetails(group=group, offsets=offsets), "ok")
