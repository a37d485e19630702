"""``lab disks`` and ``lab metrics``: events in the run's history, with a fake lab."""

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


class FakeLab:
    """Fake lab: a set of running nodes, each with a disk that has one partition of two records."""

    name = "made-up"
    bare = False

    def __init__(self, folder: Path) -> None:
        self.nodes = TOPOLOGY.nodes
        self.running = {node.name for node in self.nodes}
        self.actions: list[str] = []
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
        self.actions.append("signal")
        self.running.discard(node.name)
        return True

    def kill_kafka(self, node: Node) -> None:
        self.actions.append("wait")
        assert node.name not in self.running

    def dump(self, folders: Sequence[Path]) -> Mapping[str, list[dict[str, Any]]]:
        """Return the log dumps, in place of the JVM that reads them."""
        assert not self.running
        dumps = {}
        for folder in map(str, folders):
            chunk = {"folder": folder, "topic": "t", "partition": 0, "low": 0, "begin": 0, "next": 2, "end": 2}
            chunk |= {"runs": [[0, 2]], "keys": ["r/t/0/0", "r/t/0/1"]}
            dumps[folder] = [chunk, {"folder": folder, "done": True}]
        return dumps

    @property
    def lab(self) -> Lab:
        return cast(Lab, self)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    lab = FakeLab(tmp_path)
    monkeypatch.setattr(disks, "_dump", lab.dump)
    monkeypatch.setattr(lab_processes, "runs_inside", lambda _: True)
    monkeypatch.setattr(Lab, "attach", staticmethod(lambda: lab.lab))
    return lab


def run_lab_command(*arguments: str) -> str:
    result = CliRunner().invoke(cli.lab_app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_lab_disks_kills_all_nodes_first_and_reads_every_disk(fake: FakeLab) -> None:
    output = json.loads(run_lab_command("disks", "--json"))
    count = len(fake.nodes)
    assert fake.actions == ["signal"] * count + ["wait"] * count
    assert output["history"] == str(fake.history_path)
    assert [broker["records"] for broker in output["brokers"]] == [2] * len(TOPOLOGY.brokers)
    assert all(broker["stopped"] for broker in output["brokers"])
    disk_logs = disks_of(list(History(fake.history_path).events()))
    assert disk_logs is not None
    assert disk_logs.complete == {node.node_id for node in TOPOLOGY.brokers}
    assert not disk_logs.missing


def test_lab_disks_prints_counts_and_the_history_file(fake: FakeLab) -> None:
    text = run_lab_command("disks", "--topic", "other")
    assert "broker 1 (rack a): 0 records in 0 partitions" in text
    assert f"written to {fake.history_path}" in text


def test_a_broker_that_starts_during_the_read_is_an_error(fake: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = TOPOLOGY.brokers[0]

    def dump(folders: Sequence[Path]) -> Mapping[str, list[dict[str, Any]]]:
        dumps = fake.dump(folders)
        fake.running.add(restarted.name)
        return dumps

    monkeypatch.setattr(disks, "_dump", dump)
    brokers = stop_and_read(fake.lab, History(fake.history_path))
    assert [broker.broker for broker in brokers if not broker.stopped] == [restarted.node_id]
    disk_logs = disks_of(list(History(fake.history_path).events()))
    assert disk_logs is not None
    assert restarted.node_id not in disk_logs.complete
    with pytest.raises(RackgateError, match=f"broker {restarted.node_id} was started"):
        run_lab_command("disks")


class FakeSource:
    """Fake metrics source; with ``problem``, every read fails."""

    def __init__(self, node: Node, problem: str = "") -> None:
        self.broker, self.name, self.rack, self.problem = node.node_id, node.name, node.site, problem
        self.rejected = 0

    def read(self, _timeout_s: float) -> MetricsReading:
        if self.problem:
            raise RackgateError(self.problem)
        self.rejected += 4
        bean = "kafka.server:type=ReplicaManager,name="
        return MetricsReading(
            (
                (f"{bean}LeaderCount", "Value", "3"),
                (f"{bean}RackCheckFailureRate", "Count", str(self.rejected)),
                (f"{bean}UnderMinRackIsrPartitionCount", "Value", str(self.rejected % 8)),
            )
        )


def sources(*fakes: FakeSource) -> Callable[[Lab], tuple[FakeSource, ...]]:
    return lambda _lab: fakes


def test_lab_metrics_records_polls_in_the_history(fake: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    responsive, paused, *_ = TOPOLOGY.brokers
    monkeypatch.setattr(mbeans, "lab_sources", sources(FakeSource(responsive), FakeSource(paused, "broker is paused")))
    output = json.loads(run_lab_command("metrics", "--for", "300ms", "--interval", "100ms", "--json"))
    polls = {row["node"]: row for row in output["nodes"]}
    assert polls[responsive.name]["answered"] == polls[responsive.name]["polls"] >= 2
    assert (polls[paused.name]["answered"], polls[paused.name]["problem"]) == (0, "broker is paused")
    count = polls[responsive.name]["polls"]
    assert polls[responsive.name]["gate"] == {
        "RackCheckFailureRate.Count": {"first": 4, "max": 4 * count, "last": 4 * count},
        "UnderMinRackIsrPartitionCount": {"first": 4, "max": 4, "last": 4 * (count % 2)},
    }
    events = list(History(fake.history_path).events())
    assert len(events) == sum(row["polls"] for row in output["nodes"])
    assert {event.outcome for event in events if event.rack == responsive.site} >= {"ok"}
    text = run_lab_command("metrics", "--for", "100ms")
    assert f"{paused.name}: 0 of 1 polls" in text
    assert "broker is paused" in text


def test_metrics_without_any_response_are_an_error(fake: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbeans, "lab_sources", sources(FakeSource(fake.nodes[0], "broker is paused")))
    with pytest.raises(RackgateError, match=r"lab made-up: .*metrics: broker is paused"):
        run_lab_command("metrics", "--for", "50ms")


def test_a_bare_lab_has_neither_disks_nor_metrics(fake: FakeLab) -> None:
    fake.bare = True
    for arguments in (["disks"], ["metrics", "--for", "1s"]):
        with pytest.raises(RackgateError, match="is bare"):
            run_lab_command(*arguments)
