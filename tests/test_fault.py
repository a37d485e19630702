"""Faults prove themselves: one that does not take hold, last or heal is unknown and raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyhooks.checker.faults import check_faults
from pyhooks.cluster import topology
from pyhooks.cluster.topology import Node
from pyhooks.errors import RackgateError
from pyhooks.fault import rack
from pyhooks.fault.rack import Question
from pyhooks.history import History


class Cluster:
    """Does what a lab does, in memory."""

    topology = topology.load(topology.find("az3-outside"))

    def brokers(self, rack: str | None = None) -> tuple[Node, ...]:
        return self.topology.site(rack or "b").nodes

    def wait_unfenced(self, nodes: object, timeout_s: float = 0) -> None:
        assert nodes
        assert timeout_s > 0


@dataclass
class Fault:
    """A fault whose effect on its one probe is written down for each look."""

    answers: list[bool]
    cluster: Cluster = field(default_factory=Cluster)
    op: str = "kill-rack"
    rack: str = "b"
    injected: int = 0
    healed: int = 0

    def probes(self) -> dict[str, Question]:
        return {"connect": lambda: self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}

    def expects(self, probe: str, *, during: bool) -> bool:
        assert probe == "connect"
        return not during

    def inject(self) -> None:
        self.injected += 1

    def heal(self) -> None:
        self.healed += 1


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack, "PORT_TIMEOUT_S", 0.2)


def run(fault: Fault, history: History) -> None:
    with rack.applied(fault, history):  # type: ignore[arg-type]
        pass


def steps(history: History) -> list[tuple[str, str]]:
    return [(str(event.data["step"]), event.outcome) for event in history.events()]


def test_a_good_fault(tmp_path: Path) -> None:
    history, fault = History(tmp_path / "h"), Fault([True, False, False, True])
    run(fault, history)
    assert [step for step, _ in steps(history)] == ["before", "inject", "proved", "held", "heal", "healed"]
    assert (fault.injected, fault.healed) == (1, 1)
    assert check_faults(list(history.events())).valid == "true"


def test_a_port_that_opens_late_is_awaited(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    run(Fault([True, False, False, False, True]), history)
    assert steps(history)[-1] == ("healed", "ok")


@pytest.mark.parametrize(
    ("answers", "step", "healed"),
    [
        ([False], "before", 0),
        ([True, True], "proved", 1),
        ([True, False, True], "held", 1),
        ([True, False, False, False], "healed", 1),
    ],
)
def test_a_fault_that_is_not_proved_is_unknown_and_raises(
    tmp_path: Path, answers: list[bool], step: str, healed: int
) -> None:
    history, fault = History(tmp_path / "h"), Fault(answers)
    with pytest.raises(RackgateError, match=r"results are unknown; .*connect ="):
        run(fault, history)
    assert (step, "unknown") in steps(history)
    assert fault.healed == healed
    assert check_faults(list(history.events())).valid == "unknown"


def test_a_body_that_fails_is_healed_under_its_own_error(tmp_path: Path) -> None:
    fault = Fault([True, False, True])
    with (
        pytest.raises(ZeroDivisionError),
        rack.applied(fault, History(tmp_path / "h")),  # type: ignore[arg-type]
    ):
        _ = 1 / 0
    assert fault.healed == 1
