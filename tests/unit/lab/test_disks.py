"""History events of replica logs read from brokers' disks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.promise import disks_of
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.lab import disks
from pyhooks.lab.disks import BrokerDisk, read_disks


def log_chunk(folder: Path, partition: int, first: int, end_exclusive: int, **more: object) -> dict[str, Any]:
    keys = [f"run/t/{partition}/{offset}" for offset in range(first, end_exclusive)]
    offset_runs = [[first, end_exclusive - first]]
    location = {"folder": str(folder), "topic": "t", "partition": partition, "low": 0}
    return {**location, "begin": first, "next": end_exclusive, "runs": offset_runs, "keys": keys, **more}


def test_a_disk_with_a_read_error_is_unknown_and_the_other_disks_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, healthy = tmp_path / "1", tmp_path / "2"
    for folder in (failing, healthy):
        folder.mkdir()
    outputs = {
        str(failing): [
            log_chunk(failing, 0, 0, 3, end=3),
            log_chunk(failing, 1, 0, 5),
            log_chunk(failing, 1, 5, 10),
            {"folder": str(failing), "error": "Input/output error"},
        ],
        str(healthy): [
            log_chunk(healthy, 0, 0, 2),
            log_chunk(healthy, 0, 2, 3, end=3),
            {"folder": str(healthy), "done": True},
        ],
    }

    def dump(_folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
        return outputs

    monkeypatch.setattr(disks, "_dump", dump)
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match="broker 1: Input/output error"):
        read_disks([BrokerDisk(1, "a", failing, stopped=True), BrokerDisk(2, "b", healthy, stopped=True)], history)
    recorded = [
        (event.op, event.outcome, event.data["broker"], event.data.get("partition"), event.data.get("end"))
        for event in history.events()
    ]
    assert recorded == [
        ("disk", "ok", 1, 0, 3),
        ("disk", "ok", 1, 1, 10),
        ("disk", "unknown", 1, 1, 10),
        ("disk-end", "unknown", 1, None, None),
        ("disk", "ok", 2, 0, 3),
        ("disk", "ok", 2, 0, 3),
        ("disk-end", "ok", 2, None, None),
    ]
    disk_logs = disks_of(list(history.events()))
    assert disk_logs is not None
    assert disk_logs.complete == {2}
    assert any("t-1 on broker 1: Input/output error" in text for text in disk_logs.missing)
    assert not any("broker 2" in text for text in disk_logs.missing)
