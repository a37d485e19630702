"""Replacement of a quorum voter's lost disk, interrupted at any step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import tools
from pyhooks.kafka.quorum_state import Member, Quorum
from pyhooks.lab import quorum_changes, topology
from pyhooks.lab.topology import Node

AZ3 = topology.load(topology.find("az3"))
LOST = next(node for node in AZ3.controllers if node.node_id == 102)
BROKER = next(node for node in AZ3.brokers if node.site == LOST.site)


class Killed(BaseException):
    """The process was killed at this step."""


class FakeLab:
    """Fake lab: disks, and a quorum that rejects the same changes as Kafka."""

    classpath = "x"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disks = {node.name: str(folder / node.name) for node in AZ3.nodes}
        self.voters = {node.node_id: f"id-{node.node_id}-0" for node in AZ3.controllers}
        self.formats = 0
        self.running: set[str] = set()
        self.steps = 0
        self.killed_at = -1
        for node in (LOST, BROKER):
            self._write(node, f"id-{node.node_id}-0")

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.killed_at:
            raise Killed

    def _write(self, node: Node, identity: str) -> None:
        self.data(node).mkdir(parents=True, exist_ok=True)
        (self.data(node) / "meta.properties").write_text(identity, encoding="utf-8")

    def brokers(self) -> tuple[Node, ...]:
        return AZ3.brokers

    def data(self, node: Node) -> Path:
        return self.folder / node.name / "data"

    def formatted(self, node: Node) -> bool:
        return (self.data(node) / "meta.properties").exists()

    def directory_id(self, node: Node) -> str:
        return (self.data(node) / "meta.properties").read_text(encoding="utf-8")

    def format(self, nodes: Sequence[Node], *, joins: bool) -> None:
        assert joins
        for node in nodes:
            assert not self.data(node).exists()
            self.step()
            self.formats += 1
            self._write(node, f"id-{node.node_id}-{self.formats}")

    def start_kafka(self, node: Node) -> None:
        self.step()
        self.running.add(node.name)

    def clear_disk(self, node: Node) -> None:
        quorum_changes.clear_disk(self.data(node))

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        assert BROKER not in brokers
        self.step()
        voters = tuple(Member(voter, directory, 9) for voter, directory in self.voters.items())
        observers = (Member(LOST.node_id, self.directory_id(LOST), 9),) if self.formatted(LOST) else ()
        return Quorum(101, voters, observers)

    def change_quorum(self, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        return tools.run(self.classpath, quorum_changes.TOOL, arguments, quorum_changes.addresses(brokers))

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        assert node == LOST
        self.change_quorum(["--command-config", "x", "add-controller"], brokers)

    @property
    def as_lab(self) -> Any:
        return self

    def check_running(self, nodes: Sequence[Node]) -> None:
        assert all(node.name in self.running for node in nodes)

    def tool(self, classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        assert (classpath, name) == ("x", quorum_changes.TOOL)
        assert BROKER.address not in bootstrap
        self.step()
        if "remove-controller" in arguments:
            assert self.voters[int(arguments[2])] == arguments[4], "Kafka rejects an id that is not a voter's"
            del self.voters[int(arguments[2])]
        elif "add-controller" in arguments:
            assert LOST.node_id not in self.voters, "Kafka rejects a duplicate voter id"
            self.voters[LOST.node_id] = self.directory_id(LOST)
        return ""


@pytest.mark.parametrize("killed_at", range(1, 13))
@pytest.mark.parametrize("wiped", [(LOST, BROKER), (BROKER,), ()])
def test_an_interrupted_change_is_completed_by_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, wiped: tuple[Node, ...]
) -> None:
    fake = FakeLab(tmp_path)
    lab: Any = fake
    monkeypatch.setattr(tools, "run", fake.tool)
    for node in wiped:
        quorum_changes.delete_disk(fake.data(node))
    fake.killed_at = killed_at
    try:
        quorum_changes.replace_disks(lab, [LOST, BROKER])
    except Killed:
        quorum_changes.replace_disks(lab, [LOST, BROKER])
    assert fake.voters[102] == fake.directory_id(LOST)
    assert sorted(fake.voters) == [101, 102, 103]
    assert fake.running == {LOST.name, BROKER.name}
    for node in (LOST, BROKER):
        assert fake.directory_id(node).endswith("-0") is (node not in wiped)


def test_an_interrupted_disk_deletion_is_completed_by_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab: Any = FakeLab(tmp_path)
    (lab.data(BROKER) / "log").write_text("records", encoding="utf-8")

    def delete_log_and_die(path: Path, **_: object) -> None:
        if path.exists():
            (path / "log").unlink()
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", delete_log_and_die)
        with pytest.raises(Killed):
            quorum_changes.delete_disk(lab.data(BROKER))
    assert not lab.formatted(BROKER)
    monkeypatch.setattr(tools, "run", lab.tool)
    quorum_changes.replace_disks(lab, [BROKER])
    assert sorted(path.name for path in lab.data(BROKER).parent.iterdir()) == ["data"]


@pytest.mark.parametrize("command", ["remove-controller", "add-controller"])
@pytest.mark.parametrize("applied", [False, True])
def test_a_rejected_quorum_change_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, applied: bool
) -> None:
    fake = FakeLab(tmp_path)
    rejections: list[str] = []

    def reject_command(classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        if command in arguments and not rejections:
            rejections.append(command)
            if applied:
                # The change is applied; only its response is lost.
                fake.tool(classpath, name, arguments, bootstrap)
            raise RackgateError("another change is in progress")
        return fake.tool(classpath, name, arguments, bootstrap)

    monkeypatch.setattr(tools, "run", reject_command)
    quorum_changes.delete_disk(fake.data(LOST))
    quorum_changes.replace_disks(fake.as_lab, [LOST, BROKER])
    assert fake.voters[LOST.node_id] == fake.directory_id(LOST) != f"id-{LOST.node_id}-0"
    assert rejections == [command]


@pytest.mark.parametrize(("command", "error"), [("remove-controller", "controller-102"), ("add-controller", "voter")])
def test_a_persistent_rejection_is_an_error_with_the_last_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, error: str
) -> None:
    fake = FakeLab(tmp_path)

    def reject_command(classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        if command in arguments:
            raise RackgateError("request rejected", detail="details")
        return fake.tool(classpath, name, arguments, bootstrap)

    monkeypatch.setattr(tools, "run", reject_command)
    monkeypatch.setattr(quorum_changes, "FOLLOW_S", 0.1)
    quorum_changes.delete_disk(fake.data(LOST))
    with pytest.raises(RackgateError, match=f"{error}.*: request rejected") as caught:
        quorum_changes.replace_disks(fake.as_lab, [LOST, BROKER])
    assert caught.value.detail == "details"
