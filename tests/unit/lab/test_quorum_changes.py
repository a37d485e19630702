"""A voter with a lost disk returns to the quorum, wherever the change was interrupted."""

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
    """The process ends here."""


class Lab:
    """Disks, and a quorum that refuses what Kafka refuses."""

    classpath = "x"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disks = {node.name: str(folder / node.name) for node in AZ3.nodes}
        self.voting = {node.node_id: f"id-{node.node_id}-0" for node in AZ3.controllers}
        self.drawn = 0
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
            self.drawn += 1
            self._write(node, f"id-{node.node_id}-{self.drawn}")

    def start_kafka(self, node: Node) -> None:
        self.step()
        self.running.add(node.name)

    def clear_disk(self, node: Node) -> None:
        quorum_changes.clear_disk(self.data(node))

    def quorum(self, brokers: Sequence[Node]) -> Quorum:
        assert BROKER not in brokers
        self.step()
        voting = tuple(Member(one, directory, 9) for one, directory in self.voting.items())
        observers = (Member(LOST.node_id, self.directory_id(LOST), 9),) if self.formatted(LOST) else ()
        return Quorum(101, voting, observers)

    def change_quorum(self, arguments: Sequence[str], brokers: Sequence[Node]) -> str:
        return tools.run(self.classpath, quorum_changes.TOOL, arguments, quorum_changes.addresses(brokers))

    def join_quorum(self, node: Node, brokers: Sequence[Node]) -> None:
        assert node == LOST
        self.change_quorum(["--command-config", "x", "add-controller"], brokers)

    @property
    def itself(self) -> Any:
        return self

    def check_running(self, nodes: Sequence[Node]) -> None:
        assert all(node.name in self.running for node in nodes)

    def tool(self, classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        assert (classpath, name) == ("x", quorum_changes.TOOL)
        assert BROKER.address not in bootstrap
        self.step()
        if "remove-controller" in arguments:
            assert self.voting[int(arguments[2])] == arguments[4], "Kafka refuses an id that is no voter's"
            del self.voting[int(arguments[2])]
        elif "add-controller" in arguments:
            assert LOST.node_id not in self.voting, "Kafka refuses a voter's id twice"
            self.voting[LOST.node_id] = self.directory_id(LOST)
        return ""


@pytest.mark.parametrize("killed_at", range(1, 13))
@pytest.mark.parametrize("wiped", [(LOST, BROKER), (BROKER,), ()])
def test_an_interrupted_change_is_completed_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, wiped: tuple[Node, ...]
) -> None:
    made = Lab(tmp_path)
    lab: Any = made
    monkeypatch.setattr(tools, "run", made.tool)
    for node in wiped:
        quorum_changes.delete_disk(made.data(node))
    made.killed_at = killed_at
    try:
        quorum_changes.replace_disks(lab, [LOST, BROKER])
    except Killed:
        quorum_changes.replace_disks(lab, [LOST, BROKER])
    assert made.voting[102] == made.directory_id(LOST)
    assert sorted(made.voting) == [101, 102, 103]
    assert made.running == {LOST.name, BROKER.name}
    for node in (LOST, BROKER):
        assert made.directory_id(node).endswith("-0") is (node not in wiped)


def test_a_disk_is_deleted_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab: Any = Lab(tmp_path)
    (lab.data(BROKER) / "log").write_text("records", encoding="utf-8")

    def die(path: Path, **_: object) -> None:
        if path.exists():
            (path / "log").unlink()
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(shutil, "rmtree", die)
        with pytest.raises(Killed):
            quorum_changes.delete_disk(lab.data(BROKER))
    assert not lab.formatted(BROKER)
    monkeypatch.setattr(tools, "run", lab.tool)
    quorum_changes.replace_disks(lab, [BROKER])
    assert sorted(path.name for path in lab.data(BROKER).parent.iterdir()) == ["data"]


@pytest.mark.parametrize("command", ["remove-controller", "add-controller"])
@pytest.mark.parametrize("done", [False, True])
def test_a_busy_quorum_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, done: bool) -> None:
    made = Lab(tmp_path)
    refusals: list[str] = []

    def refuses(classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        if command in arguments and not refusals:
            refusals.append(command)
            if done:
                # only the answer was lost
                made.tool(classpath, name, arguments, bootstrap)
            raise RackgateError("it is busy with another one just now")
        return made.tool(classpath, name, arguments, bootstrap)

    monkeypatch.setattr(tools, "run", refuses)
    quorum_changes.delete_disk(made.data(LOST))
    quorum_changes.replace_disks(made.itself, [LOST, BROKER])
    assert made.voting[LOST.node_id] == made.directory_id(LOST) != f"id-{LOST.node_id}-0"
    assert refusals == [command]


@pytest.mark.parametrize(
    ("command", "error"), [("remove-controller", "to let controller-102 go"), ("add-controller", "as a voter")]
)
def test_a_quorum_that_keeps_refusing_is_an_error_with_its_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, error: str
) -> None:
    made = Lab(tmp_path)

    def refuses(classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> str:
        if command in arguments:
            raise RackgateError("it takes no word", detail="at length")
        return made.tool(classpath, name, arguments, bootstrap)

    monkeypatch.setattr(tools, "run", refuses)
    monkeypatch.setattr(quorum_changes, "FOLLOW_S", 0.1)
    quorum_changes.delete_disk(made.data(LOST))
    with pytest.raises(RackgateError, match=f"{error}; its last answer: it takes no word") as caught:
        quorum_changes.replace_disks(made.itself, [LOST, BROKER])
    assert caught.value.detail == "at length"
