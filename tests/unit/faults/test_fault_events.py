"""Events of faults in a history: affected nodes, and the peers of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyhooks.faults import kinds
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from scripted_faults import AZ3, CLUSTER, ScriptedFault, apply_fault


@pytest.mark.parametrize(
    ("cluster", "settings", "fields"),
    [
        (CLUSTER, {"peers": ["a"]}, {"peers": ("a",), "brokers_alone": True}),
        (CLUSTER, {"peers": ["a", "outside"]}, {"peers": ("a", "outside"), "brokers_alone": False}),
        (AZ3, {"peers": ["a"]}, {"peers": ("a",), "brokers_alone": False}),
        (CLUSTER, {}, {}),
    ],
)
def test_a_partition_records_both_sides(cluster: Any, settings: dict[str, Any], fields: dict[str, Any]) -> None:
    assert kinds.create_fault(cluster, "cut", FaultTarget.rack(cluster, "b"), settings).event_data() == fields


@pytest.mark.parametrize(
    ("target", "fields"),
    [(FaultTarget.rack(CLUSTER, "b"), {"brokers": [3, 4]}), (FaultTarget.broker(CLUSTER, "3"), {"broker": 3})],
)
def test_each_step_records_the_affected_nodes(target: FaultTarget, fields: dict[str, Any], tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    apply_fault(ScriptedFault([True, False, False, True, True], target=target), history)
    events = list(history.events())
    assert len(events) == 6
    for event in events:
        assert {name: event.data[name] for name in ("brokers", "broker") if name in event.data} == fields
