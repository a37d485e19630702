"""Reassignments: the input file of Kafka's tool, and waiting for the end of a move."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import reassignments
from pyhooks.kafka.cluster_metadata import Metadata, Partition

IN_PROGRESS = Metadata({}, 1, {("t", 0): Partition(1, (1, 2), (1, 5, 2))})
NOT_IN_SYNC = Metadata({}, 1, {("t", 0): Partition(1, (1,), (1, 5))})
COMPLETED = Metadata({}, 1, {("t", 0): Partition(1, (5, 1), (1, 5))})


def test_the_input_file_of_the_tool() -> None:
    assert json.loads(reassignments.document({"t": (1, 5)})) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 5]}],
    }


@pytest.mark.parametrize(
    ("metadata", "brokers", "in_sync", "placed"),
    [
        (IN_PROGRESS, (1, 5), False, False),
        (NOT_IN_SYNC, (1, 5), False, True),
        (NOT_IN_SYNC, (1, 5), True, False),
        (COMPLETED, (1, 5), True, True),
        (COMPLETED, (5, 1), True, False),
        (Metadata({}, 1, {}), (1, 5), False, False),
    ],
)
def test_a_move_ends_when_replicas_are_placed_and_in_sync(
    metadata: Metadata, brokers: tuple[int, ...], *, in_sync: bool, placed: bool
) -> None:
    assert reassignments.is_placed(metadata, "t", brokers, in_sync=in_sync) is placed


def test_missing_responses_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[Metadata | None] = [None, IN_PROGRESS, COMPLETED]

    class FakeMetadataClient:
        def __init__(self, _bootstrap: str) -> None:
            self.queries = 0

        def query(self, topics: Sequence[str], _timeout_s: float) -> Metadata:
            assert list(topics) == ["t"]
            response = responses[min(self.queries, len(responses) - 1)]
            self.queries += 1
            if response is None:
                raise RackgateError("no broker responds")
            return response

    monkeypatch.setattr(reassignments, "MetadataClient", FakeMetadataClient)
    reassignments.wait_placed("x:1", {"t": (1, 5)}, timeout_s=5)
    responses[:] = [IN_PROGRESS]
    with pytest.raises(RackgateError, match=r"t on \[1, 5\]"):
        reassignments.wait_placed("x:1", {"t": (1, 5)}, timeout_s=0.5)
    reassignments.wait_led("x:1", ["t"], 1, timeout_s=5)
    with pytest.raises(RackgateError, match="broker 5 to lead t"):
        reassignments.wait_led("x:1", ["t"], 5, timeout_s=0.5)
