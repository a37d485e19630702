"""Append-only log model in Go: accepts correct histories, and refutes each violation of order or content."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from pyhooks.checkers.realtime_order import check_realtime_order
from pyhooks.core import process
from pyhooks.history.event_log import Event, History
from pyhooks.verify.second_opinion import PLANTED, build, compare
from written_histories import MS, event, outage

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


def random_log(choice: random.Random, topic: str) -> list[Event]:
    """Return acknowledged records whose offsets are in the order of their appends, or nearly so."""
    times = []
    for _ in range(choice.randint(2, 12)):
        sent = choice.randint(0, 100)
        appended = sent + choice.randint(1, 30)
        times.append((appended, sent, appended + choice.randint(1, 30)))
    times.sort()
    offsets = list(range(len(times)))
    if choice.random() < 0.7:
        at = choice.randrange(len(offsets) - 1)
        offsets[at], offsets[at + 1] = offsets[at + 1], offsets[at]
    return [
        event(done * MS, "producer", "produce", "ok", topic=topic, partition=0, key=f"k{offset}", offset=offset,
              sent_ns=sent * MS)
        for offset, (_, sent, done) in zip(offsets, times, strict=True)
    ]  # fmt: skip


def test_the_model_and_the_checker_of_order_agree_on_random_logs(tmp_path: Path) -> None:
    choice = random.Random(1)  # noqa: S311 - a seeded test
    logs = {f"t{number}": random_log(choice, f"t{number}") for number in range(1000)}
    path = tmp_path / "history.jsonl"
    History(path).extend(one for log in logs.values() for one in log)
    output = process.run([build(), path], task="the model")
    results = {row["partition"]: row["result"] for row in map(json.loads, output.splitlines())}
    refuted = {topic for topic, log in logs.items() if check_realtime_order(log).valid == "false"}
    assert {name.removesuffix("-0") for name, result in results.items() if result == "Illegal"} == refuted
    assert len(results) == 1000
    assert set(results.values()) == {"Ok", "Illegal"}
    assert 100 < len(refuted) < 500
