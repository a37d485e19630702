"""Append-only log model in Go: accepts correct histories, and refutes each violation of order or content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyhooks.history.event_log import History
from pyhooks.verify.second_opinion import PLANTED, build, compare
from written_histories import outage

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


@pytest.mark.parametrize("mode", ["plain", "idempotent", "transactional"])
def test_the_model_and_the_checkers_agree(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "history.jsonl"
    History(path).extend(outage(mode).finish())
    opinions = compare([path], build(), seed=1)
    assert (opinions[0].valid, opinions[0].checkers, opinions[0].partitions) == ("true", "true", 1)
    assert opinions[0].operations > 10
    assert {(one.valid, one.checkers) for one in opinions[1:]} == {("false", "false")}
    planted = {one.violation for one in opinions[1:]}
    assert planted >= {"drop-record", "swap-in-reads", "rotate-record", "share-offset"}
    assert planted <= set(PLANTED)
