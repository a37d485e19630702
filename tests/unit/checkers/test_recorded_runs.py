"""Checkers of acknowledgements and rejections on histories recorded in a lab (``tests/support/lab_histories``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.rejections import check_rejections
from pyhooks.core import paths
from pyhooks.history.event_log import Event, History

HISTORIES = sorted((paths.REPO / "tests/support/lab_histories").glob("*.jsonl"))


def with_settings(events: list[Event], **changes: int) -> list[Event]:
    return [
        replace(event, data={**event.data, **{key.replace("_", "."): value for key, value in changes.items()}})
        if event.op == "settings"
        else event
        for event in events
    ]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_recorded_runs_acknowledge_and_reject_as_the_gate_requires(path: Path) -> None:
    events = list(History(path).events())
    # unknown, since the histories are thinned: the outcome of left-out records is missing
    assert check_progress(events).valid != "false"
    assert check_rejections(events).valid == "true"


@pytest.mark.parametrize("changes", [{"min_insync_racks": 1}, {"min_insync_replicas": 3}])
def test_recorded_runs_contradict_another_requirement(changes: dict[str, int]) -> None:
    path = paths.REPO / "tests/support/lab_histories/whole_rack_shut_down.jsonl"
    events = with_settings(list(History(path).events()), **changes)
    assert "false" in (check_progress(events).valid, check_rejections(events).valid)
