"""Events of replica logs that were read from disks."""

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


def chunk(folder: Path, partition: int, begin: int, after: int, **more: object) -> dict[str, Any]:
    keys = [f"run/t/{partition}/{offset}" for offset in range(begin, after)]
    runs = [[begin, after - begin]]
    place = {"folder": str(folder), "topic": "t", "partition": partition, "low": 0}
    return {**place, "begin": begin, "next": after, "runs": runs, "keys": keys, **more}


def test_a_disk_that_fails_within_a_log_is_unknown_and_the_others_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = tmp_path / "1", tmp_path / "2"
    for folder in (bad, good):
        folder.mkdir()
    outputs = {
        str(bad): [
            chunk(bad, 0, 0, 3, end=3),
            chunk(bad, 1, 0, 5),
            chunk(bad, 1, 5, 10),
            {"folder": str(bad), "error": "Input/output error"},
        ],
        str(good): [chunk(good, 0, 0, 2), chunk(good, 0, 2, 3, end=3), {"folder": str(good), "done": True}],
    }

    def dump(_folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
        return outputs

    monkeypatch.setattr(disks, "_dump", dump)
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match="broker 1: Input/output error"):
        read_disks([BrokerDisk(1, "a", bad, stopped=True), BrokerDisk(2, "b", good, stopped=True)], history)
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
    read = disks_of(list(history.events()))
    assert read is not None
    assert read.complete == {2}
    assert any("t-1 on broker 1: Input/output error" in text for text in read.missing)
    assert not any("broker 2" in text for text in read.missing)
