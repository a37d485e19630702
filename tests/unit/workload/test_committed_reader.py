"""Committed offsets of groups, written into a history as their coordinators report them."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.workload.group_offsets import note_committed


class FakeAdmin:
    """Fake admin client that returns the same offsets, or the same error, for every group."""

    def __init__(self, result: list[TopicPartition] | Exception) -> None:
        self.result = result

    def list_consumer_group_offsets(self, groups: Any, **_: Any) -> dict[str, Future[Any]]:
        (group,) = groups
        future: Future[Any] = Future()
        if isinstance(self.result, Exception):
            future.set_exception(self.result)
        else:
            future.set_result(ConsumerGroupTopicPartitions(group.group_id, self.result))
        return {group.group_id: future}


def test_all_partitions_of_each_group_are_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    client: Any = FakeAdmin([TopicPartition("d", 0, 7), TopicPartition("d-1", 2, 0)])
    note_committed(client, ["g", "h"], history)
    assert [event.data for event in history.events()] == [
        {"group": group, "offsets": {"d-0": 7, "d-1-2": 0}} for group in ("g", "h")
    ]


def test_a_coordinator_without_a_response_is_unknown(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    client: Any = FakeAdmin(KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)))
    with pytest.raises(RackgateError, match="group g"):
        note_committed(client, ["g"], history)
    assert not list(history.events())
