"""Counting records before a lowering: bounded, and unknown where a leader does not report."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.jvm.admin import ClusterNode, OffsetAndEpoch
from pyhooks.outage import cluster_access
from pyhooks.outage.cluster_access import OutageCluster
from pyhooks.outage.lowering_cost import RecordCounts
from pyhooks.placement.gate_forecast import ReportedPartition
from pyhooks.placement.topic_observation import ObservedTopic

LEADERS = range(1, 41)
PARTITIONS = tuple(ReportedPartition("orders", number, number, (number,), (number,)) for number in LEADERS)
ORDERS = ObservedTopic("orders", frozenset({2}), 1, 1, PARTITIONS, {}, frozenset(LEADERS))


class FakeAdmin:
    """Admin client whose leaders report 10 acknowledged records of each partition."""

    deadline = 0.0

    @classmethod
    @contextmanager
    def responsive(cls, *_: object, **__: object) -> Iterator[FakeAdmin]:
        yield cls()

    def cluster(self) -> tuple[str, tuple[ClusterNode, ...]]:
        return "id", tuple(ClusterNode(leader, f"k{leader}", 9092, "a", False) for leader in LEADERS)

    def offsets(self, partitions: Collection[tuple[str, int]], *, latest: bool) -> dict[tuple[str, int], Any]:
        return {partition: OffsetAndEpoch(10 if latest else 0, 3) for partition in partitions}


def test_leaders_that_hang_do_not_hold_up_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def log_ends(*arguments: Any) -> Mapping[tuple[str, int], int]:
        clock[0] += 5.0
        return dict.fromkeys(arguments[2], 12)

    monkeypatch.setattr(cluster_access, "Admin", FakeAdmin)
    monkeypatch.setattr(cluster_access, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(cluster_access, "_query_log_ends", log_ends)
    counts = OutageCluster("k1:9092", {}, timeout_s=30.0, report_step=lambda _: None).count_records([ORDERS])
    assert clock[0] == 10.0
    assert list(counts.values()).count(RecordCounts(10, 2)) == 2
    assert list(counts.values()).count(RecordCounts(10, None)) == len(LEADERS) - 2
