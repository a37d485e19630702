"""Brokers and controllers of two editions of the overlay in one cluster; both have the same feature level.

The earlier edition is built from the last commit before the second edition, which takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest

from feature_tools import (
    RACKS,
    RACKS_REJECTED,
    SETTLES_S,
    TOPIC,
    configs,
    create_topic,
    produce,
    wait_in_sync,
)
from loopback_brokers import Brokers
from pyhooks.checkers.delivery import check_delivery
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History, Outcome
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import read_all
from untyped_events import note

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
EARLIER = "9b384390e93654628280e6d41017d5fd69165edb"
CONTROLLER = 100
A1, A2, B = ALL = (1, 2, 3)
TWO = {"min.insync.replicas": "2", RACKS: "2"}
CLASSPATH = "from pyhooks.build.distribution import Distribution; print(Distribution.load().classpath())"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the earlier edition and return its class path."""
    tree = tmp_path_factory.mktemp("earlier")
    archive = tree.with_suffix(".tar")
    subprocess.run(["git", "-C", str(paths.REPO), "archive", "-o", str(archive), EARLIER], check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    archive.unlink()
    env = {**os.environ, "PYTHONPATH": str(tree)}
    python = partial(subprocess.run, cwd=tree, env=env, check=True, text=True)
    python([sys.executable, "-m", "pyhooks.cli", "build"])
    return str(python([sys.executable, "-c", CLASSPATH], stdout=subprocess.PIPE).stdout.strip())


def restart(brokers: Brokers, node: int, classpath: str) -> None:
    """Restart a node with another class path and wait until all replicas are in sync."""
    brokers.restart(node, classpath)
    wait_in_sync(brokers, ALL)


def three_brokers(folder: Path) -> Brokers:
    # only restarts may move the leader
    return Brokers(folder, {A1: "a", A2: "a", B: "b"}, CONTROLLER, extra={"auto.leader.rebalance.enable": "false"})


def write(brokers: Brokers, history: History, step: str) -> None:
    """Produce ten records with acks=all and record their outcomes."""
    with Producer(brokers.bootstrap, {"acks": "all"}) as producer:
        for number in range(10):
            key = f"{step}-{number}"

            def done(response: Acknowledged | JavaError, key: str = key) -> None:
                outcome: Outcome | None = "ok" if isinstance(response, Acknowledged) else "unknown"
                note(history, "test", "produce", outcome, topic=TOPIC, key=key, value=key)

            producer.send(TOPIC, key, key, done)


def set_racks(brokers: Brokers, classpath: str, racks: int) -> None:
    done = configs(classpath, brokers, "topics", TOPIC, "--add-config", f"{RACKS}={racks}")
    assert done.status == 0, done.text


@pytest.mark.parametrize("back", [False, True])
def test_the_documented_change_of_editions_loses_nothing(earlier: str, tmp_path: Path, back: bool) -> None:
    current = Distribution.load().classpath()
    first, second = (current, earlier) if back else (earlier, current)
    history = History(tmp_path / "history.jsonl")
    brokers = three_brokers(tmp_path)
    brokers.format(first)
    with brokers.running(first):
        create_topic(brokers, TWO, replicas=ALL)
        write(brokers, history, "first edition")
        set_racks(brokers, first, 1)
        for node in (CONTROLLER, *ALL):
            restart(brokers, node, second)
            write(brokers, history, f"node {node} restarted")
        set_racks(brokers, second, 2)
        brokers.kill(B)
        wait_in_sync(brokers, (A1, A2))
        wait_for(lambda: produce(brokers) == RACKS_REJECTED, goal=RACKS_REJECTED, timeout_s=SETTLES_S)
        brokers.start(B, second)
        wait_in_sync(brokers, ALL)
        write(brokers, history, "second edition")
        read_all(brokers.bootstrap, [TOPIC], history, values=True)
    events = list(history.events())
    assert sum(event.op == "produce" and event.outcome == "ok" for event in events) == 60
    delivery = check_delivery(events)
    assert delivery.valid == "true", delivery.because


def test_with_r_2_a_leader_of_the_earlier_edition_counts_a_missing_rack(earlier: str, tmp_path: Path) -> None:
    """Show why R must be 1 while two editions run: with the same ISR, only the current one rejects writes."""
    current = Distribution.load().classpath()
    brokers = three_brokers(tmp_path)
    brokers.format(earlier)
    with brokers.running(earlier):
        create_topic(brokers, TWO, replicas=ALL)
        restart(brokers, CONTROLLER, current)
        brokers.set_rack(A2, "")
        restart(brokers, A2, current)
        brokers.kill(B)
        wait_in_sync(brokers, (A1, A2))
        assert produce(brokers) == "ok", "broker 1 leads, and takes broker 2 for one in another rack"
        brokers.restart(A1, current)
        wait_in_sync(brokers, (A1, A2))
        assert produce(brokers) == RACKS_REJECTED
