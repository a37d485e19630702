"""Reassignments: the tool's input file, and the end of a move."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import reassignments
from pyhooks.kafka.cluster_metadata import Metadata, Partition

UNDER_WAY = Metadata({}, 1, {("t", 0): Partition(1, (1, 2), (1, 5, 2))})
LATE = Metadata({}, 1, {("t", 0): Partition(1, (1,), (1, 5))})
OVER = Metadata({}, 1, {("t", 0): Partition(1, (5, 1), (1, 5))})


def test_the_input_file_of_the_tool() -> None:
    assert json.loads(reassignments.document({"t": (1, 5)})) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 5]}],
    }


@pytest.mark.parametrize(
    ("metadata", "brokers", "in_sync", "placed"),
    [
        (UNDER_WAY, (1, 5), False, False),
        (LATE, (1, 5), False, True),
        (LATE, (1, 5), True, False),
        (OVER, (1, 5), True, True),
        (OVER, (5, 1), True, False),
        (Metadata({}, 1, {}), (1, 5), False, False),
    ],
)
def test_a_move_ends_when_replicas_are_placed_and_in_sync(
    metadata: Metadata, brokers: tuple[int, ...], *, in_sync: bool, placed: bool
) -> None:
    assert reassignments.is_placed(metadata, "t", brokers, in_sync=in_sync) is placed


def test_a_move_is_awaited_through_missing_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[Metadata | None] = [None, UNDER_WAY, OVER]

    class Asked:
        def __init__(self, _bootstrap: str) -> None:
            self.asked = 0

        def query(self, topics: Sequence[str], _timeout_s: float) -> Metadata:
            assert list(topics) == ["t"]
            answer = responses[min(self.asked, len(responses) - 1)]
            self.asked += 1
            if answer is None:
                raise RackgateError("nobody")
            return answer

    monkeypatch.setattr(reassignments, "MetadataClient", Asked)
    reassignments.wait_placed("x:1", {"t": (1, 5)}, timeout_s=5)
    responses[:] = [UNDER_WAY]
    with pytest.raises(RackgateError, match=r"t on \[1, 5\]"):
        reassignments.wait_placed("x:1", {"t": (1, 5)}, timeout_s=0.5)
    reassignments.wait_led("x:1", ["t"], 1, timeout_s=5)
    with pytest.raises(RackgateError, match="broker 5 to lead t"):
        reassignments.wait_led("x:1", ["t"], 5, timeout_s=0.5)
