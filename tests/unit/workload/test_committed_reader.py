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


class Answering:
    """An admin client that has one answer for every group."""

    def __init__(self, answer: list[TopicPartition] | Exception) -> None:
        self.answer = answer

    def list_consumer_group_offsets(self, groups: Any, **_: Any) -> dict[str, Future[Any]]:
        (one,) = groups
        future: Future[Any] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(ConsumerGroupTopicPartitions(one.group_id, self.answer))
        return {one.group_id: future}


def test_all_partitions_of_each_group_are_recorded(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    client: Any = Answering([TopicPartition("d", 0, 7), TopicPartition("d-1", 2, 0)])
    note_committed(client, ["g", "h"], history)
    assert [one.data for one in history.events()] == [
        {"group": group, "offsets": {"d-0": 7, "d-1-2": 0}} for group in ("g", "h")
    ]


def test_a_coordinator_without_a_response_is_unknown(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    client: Any = Answering(KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)))
    with pytest.raises(RackgateError, match="group g"):
        note_committed(client, ["g"], history)
    assert not list(history.events())
