"""Events of a lab's disks and metrics in the history of its run, with a fake lab."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from pyhooks.checkers.promise import disks_of
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.lab import cli, disks, lab_processes, mbeans
from pyhooks.lab.disks import stop_and_read
from pyhooks.lab.lab import Lab
from pyhooks.lab.mbeans import MetricsReading
from pyhooks.lab.topology import Node, find, load

TOPOLOGY = load(find("az3-outside"))


class Made:
    """A lab whose processes are entries of a set, all on disks with one partition of two records."""

    name = "made-up"
    bare = False

    def __init__(self, folder: Path) -> None:
        self.nodes = TOPOLOGY.nodes
        self.running = {node.name for node in self.nodes}
        self.did: list[str] = []
        self.disks = {node.name: str(folder / node.name) for node in self.nodes}
        self.history_path = folder / "history.jsonl"
        for node in self.nodes:
            (folder / node.name / "data").mkdir(parents=True)

    def brokers(self) -> tuple[Node, ...]:
        return TOPOLOGY.brokers

    def kafka_pid(self, node: Node) -> int | None:
        return 1 if node.name in self.running else None

    def signal_kafka(self, node: Node, number: signal.Signals) -> bool:
        assert number is signal.SIGKILL
        self.did.append("signal")
        self.running.discard(node.name)
        return True

    def kill_kafka(self, node: Node) -> None:
        self.did.append("wait")
        assert node.name not in self.running

    def dump(self, folders: Sequence[Path]) -> Mapping[str, list[dict[str, Any]]]:
        """Instead of the JVM that reads."""
        assert not self.running
        found = {}
        for folder in map(str, folders):
            chunk = {"folder": folder, "topic": "t", "partition": 0, "low": 0, "begin": 0, "next": 2, "end": 2}
            chunk |= {"runs": [[0, 2]], "keys": ["r/t/0/0", "r/t/0/1"]}
            found[folder] = [chunk, {"folder": folder, "done": True}]
        return found

    @property
    def lab(self) -> Lab:
        return cast(Lab, self)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    lab = Made(tmp_path)
    monkeypatch.setattr(disks, "_dump", lab.dump)
    monkeypatch.setattr(lab_processes, "runs_inside", lambda _: True)
    monkeypatch.setattr(Lab, "attach", staticmethod(lambda: lab.lab))
    return lab


def run_lab_command(*arguments: str) -> str:
    done = CliRunner().invoke(cli.lab_app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_all_processes_are_stopped_together_and_the_disks_can_be_judged(made: Made) -> None:
    output = json.loads(run_lab_command("disks", "--json"))
    count = len(made.nodes)
    assert made.did == ["signal"] * count + ["wait"] * count
    assert output["history"] == str(made.history_path)
    assert [one["records"] for one in output["brokers"]] == [2] * len(TOPOLOGY.brokers)
    assert all(one["stopped"] for one in output["brokers"])
    read = disks_of(list(History(made.history_path).events()))
    assert read is not None
    assert read.complete == {node.node_id for node in TOPOLOGY.brokers}
    assert not read.missing


def test_findings_are_reported(made: Made) -> None:
    text = run_lab_command("disks", "--topic", "other")
    assert "broker 1 (rack a): 0 records in 0 partitions" in text
    assert f"written to {made.history_path}" in text


def test_a_broker_that_starts_meanwhile_is_not_stopped(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    back = TOPOLOGY.brokers[0]

    def dump(folders: Sequence[Path]) -> Mapping[str, list[dict[str, Any]]]:
        found = made.dump(folders)
        made.running.add(back.name)
        return found

    monkeypatch.setattr(disks, "_dump", dump)
    found = stop_and_read(made.lab, History(made.history_path))
    assert [one.broker for one in found if not one.stopped] == [back.node_id]
    read = disks_of(list(History(made.history_path).events()))
    assert read is not None
    assert back.node_id not in read.complete
    with pytest.raises(RackgateError, match=f"broker {back.node_id} was started"):
        run_lab_command("disks")


class Told:
    """A source that answers, or does not."""

    def __init__(self, node: Node, problem: str = "") -> None:
        self.broker, self.name, self.rack, self.problem = node.node_id, node.name, node.site, problem
        self.refused = 0

    def read(self, _timeout_s: float) -> MetricsReading:
        if self.problem:
            raise RackgateError(self.problem)
        self.refused += 4
        bean = "kafka.server:type=ReplicaManager,name="
        return MetricsReading(
            (
                (f"{bean}LeaderCount", "Value", "3"),
                (f"{bean}RackCheckFailureRate", "Count", str(self.refused)),
                (f"{bean}UnderMinRackIsrPartitionCount", "Value", str(self.refused % 8)),
            )
        )


def sources(*found: Told) -> Callable[[Lab], tuple[Told, ...]]:
    return lambda _lab: found


def test_metrics_go_into_the_run_s_history(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, *_ = TOPOLOGY.brokers
    monkeypatch.setattr(mbeans, "lab_sources", sources(Told(one), Told(other, "it is paused")))
    output = json.loads(run_lab_command("metrics", "--for", "300ms", "--interval", "100ms", "--json"))
    polls = {row["node"]: row for row in output["nodes"]}
    assert polls[one.name]["answered"] == polls[one.name]["polls"] >= 2
    assert (polls[other.name]["answered"], polls[other.name]["problem"]) == (0, "it is paused")
    count = polls[one.name]["polls"]
    assert polls[one.name]["gate"] == {
        "RackCheckFailureRate.Count": {"first": 4, "max": 4 * count, "last": 4 * count},
        "UnderMinRackIsrPartitionCount": {"first": 4, "max": 4, "last": 4 * (count % 2)},
    }
    events = list(History(made.history_path).events())
    assert len(events) == sum(row["polls"] for row in output["nodes"])
    assert {event.outcome for event in events if event.rack == one.site} >= {"ok"}
    text = run_lab_command("metrics", "--for", "100ms")
    assert f"{other.name}: 0 of 1 polls" in text
    assert "it is paused" in text


def test_missing_metrics_are_an_error(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbeans, "lab_sources", sources(Told(made.nodes[0], "it is paused")))
    with pytest.raises(RackgateError, match=r"lab made-up: .*metrics: it is paused"):
        run_lab_command("metrics", "--for", "50ms")


def test_a_lab_without_kafka_has_neither(made: Made) -> None:
    made.bare = True
    for arguments in (["disks"], ["metrics", "--for", "1s"]):
        with pytest.raises(RackgateError, match="is bare"):
            run_lab_command(*arguments)
