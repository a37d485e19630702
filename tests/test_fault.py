"""Faults prove themselves: one that does not take hold, last or heal is unknown and raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checker.faults import check_faults
from pyhooks.cluster import topology
from pyhooks.cluster.topology import Node
from pyhooks.durations import seconds
from pyhooks.errors import RackgateError
from pyhooks.fault import injection, kinds
from pyhooks.fault.injection import Question, Target
from pyhooks.history import History


class Cluster:
    """Does what a lab does, in memory."""

    topology = topology.load(topology.find("az3-outside"))

    def members(self, site: str) -> tuple[Node, ...]:
        return self.topology.site(site).nodes

    def formatted(self, node: Node) -> bool:
        raise AssertionError(node)

    def wait_unfenced(self, nodes: object, timeout_s: float = 0) -> None:
        assert nodes
        assert timeout_s > 0


CLUSTER: Any = Cluster()
RACK_B = Target.rack(CLUSTER, "b")


@dataclass
class Fault:
    """A fault whose effect on its one probe is written down for each look."""

    answers: list[bool]
    cluster: Any = CLUSTER
    kind: str = "kill"
    target: Target = RACK_B
    injected: int = 0
    healed: list[Mapping[str, Any]] = field(default_factory=list)

    def probes(self) -> dict[str, Question]:
        return {"connect": lambda: self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}

    def expects(self, probe: str, *, during: bool) -> bool:
        assert probe == "connect"
        return not during

    def prepare(self) -> Mapping[str, Any]:
        return {"disk": "d"}

    def inject(self) -> None:
        self.injected += 1

    def heal(self, facts: Mapping[str, Any]) -> None:
        self.healed.append(facts)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "PORT_TIMEOUT_S", 0.2)


def run(fault: Fault, history: History) -> None:
    with injection.applied(fault, history):
        pass


def steps(history: History) -> list[tuple[str, str]]:
    return [(str(event.data["step"]), event.outcome) for event in history.events()]


def test_a_good_fault(tmp_path: Path) -> None:
    history, fault = History(tmp_path / "h"), Fault([True, False, False, True])
    run(fault, history)
    assert [step for step, _ in steps(history)] == ["before", "inject", "proved", "held", "heal", "healed"]
    assert (fault.injected, fault.healed) == (1, [{"disk": "d"}])
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
    assert len(fault.healed) == healed
    assert check_faults(list(history.events())).valid == "unknown"


def test_a_body_that_fails_is_healed_under_its_own_error(tmp_path: Path) -> None:
    fault = Fault([True, False, True])
    with (
        pytest.raises(ZeroDivisionError),
        injection.applied(fault, History(tmp_path / "h")),
    ):
        _ = 1 / 0
    assert len(fault.healed) == 1


def test_several_at_a_time_are_healed_the_last_first(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    good = [True, False, False, True]
    with injection.applied([Fault(list(good)), Fault(list(good), kind="cut")], history):
        pass
    ops = [(event.op, event.data["step"]) for event in history.events() if event.data["step"] in ("inject", "heal")]
    assert ops == [("kill-rack", "inject"), ("cut-rack", "inject"), ("cut-rack", "heal"), ("kill-rack", "heal")]
    assert check_faults(list(history.events())).valid == "true"


def test_targets_are_found_by_name_or_id_and_others_are_listed() -> None:
    rack, broker = Target.rack(CLUSTER, "b"), Target.broker(CLUSTER, "3")
    assert [node.node_id for node in rack.nodes] == [3, 4]
    assert (str(rack), str(broker), broker.site) == ("rack b", "broker-3", "b")
    assert Target.broker(CLUSTER, "broker-3") == broker
    with pytest.raises(RackgateError, match="no rack 'outside'; it has a, b, c"):
        Target.rack(CLUSTER, "outside")
    with pytest.raises(RackgateError, match="no broker '101'; it has 1, 2, 3, 4, 5"):
        Target.broker(CLUSTER, "101")


AZ3: Any = Cluster()
AZ3.topology = topology.load(topology.find("az3"))
SINGLE: Any = Cluster()
SINGLE.topology = topology.load(topology.find("single"))


@pytest.mark.parametrize(
    ("cluster", "kind", "settings", "says"),
    [
        (CLUSTER, "cut", {"peers": ["b"]}, "can't be cut off from 'b'; there are a, c, outside"),
        (CLUSTER, "slow", {"rtt_ms": 0.0}, "a round trip above 0 ms"),
        (CLUSTER, "slow", {"rtt_ms": 1.0, "jitter_ms": 2.0}, "more than the round trip"),
        (SINGLE, "cut", {}, "no other site"),
        (SINGLE, "slow", {"rtt_ms": 5.0}, "no other site"),
        (SINGLE, "wipe", {}, "records and metadata on one disk"),
        (SINGLE, "wipe", {"controllers": True}, "1 of 1 controllers"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    cluster: Any, kind: str, settings: dict[str, Any], says: str
) -> None:
    name = "a" if cluster is SINGLE else "b"
    with pytest.raises(RackgateError, match=says):
        kinds.build(cluster, kind, Target.rack(cluster, name), settings)


def test_a_rack_with_a_minority_of_the_voters_can_be_wiped() -> None:
    fault = kinds.build(AZ3, "wipe", Target.rack(AZ3, "b"), {"controllers": True})
    assert {probe for probe in fault.probes() if probe.startswith("disk")} == {
        "disk of broker-3",
        "disk of broker-4",
        "disk of controller-102",
    }
    kept = kinds.build(AZ3, "wipe", Target.rack(AZ3, "b"), {})
    assert "connect controller-102" in kept.probes()
    assert "disk of controller-102" not in kept.probes()


SINGLE_SPLIT: Any = Cluster()
SINGLE_SPLIT.topology = topology.parse(
    {
        "name": "split",
        "site": [{"name": "a", "brokers": [1], "controllers": [101], "client": True}, {"name": "b", "brokers": [2]}],
    },
    source="split",
)
TWO: Any = Cluster()
TWO.topology = topology.parse(
    {
        "name": "two",
        "site": [
            {"name": "a", "brokers": [1], "controllers": [101], "client": True},
            {"name": "b", "controllers": [102, 103]},
        ],
    },
    source="two",
)


def test_controllers_that_keep_their_disks_need_no_majority() -> None:
    assert kinds.build(SINGLE_SPLIT, "wipe", Target.rack(SINGLE_SPLIT, "a"), {}).prepare
    with pytest.raises(RackgateError, match="1 of 1 controllers"):
        kinds.build(SINGLE_SPLIT, "wipe", Target.rack(SINGLE_SPLIT, "a"), {"controllers": True})
    with pytest.raises(RackgateError, match="all brokers are in it"):
        kinds.build(TWO, "wipe", Target.rack(TWO, "a"), {"controllers": True})


@pytest.mark.parametrize("dead", [set(), {101}, {101, 103}])
def test_a_wipe_of_voters_needs_a_majority_that_is_alive(monkeypatch: pytest.MonkeyPatch, dead: set[int]) -> None:
    monkeypatch.setattr(kinds, "serves", lambda node: node.node_id not in dead)
    ids = {node.node_id: f"id-{node.node_id}" for node in AZ3.topology.nodes}
    monkeypatch.setattr(AZ3, "voters", lambda _: {one: ids[one] for one in (101, 102, 103)}, raising=False)
    monkeypatch.setattr(AZ3, "directory_id", lambda node: ids[node.node_id], raising=False)
    fault = kinds.build(AZ3, "wipe", Target.rack(AZ3, "b"), {"controllers": True})
    if not dead:
        assert fault.prepare()["directories"]["controller-102"] == "id-102"
        return
    with pytest.raises(RackgateError, match=r"of 3 voters only .* would be left alive"):
        fault.prepare()


def test_durations() -> None:
    assert [seconds(text, "--for") for text in ("30s", "500ms", "2m", "1.5h")] == [30, 0.5, 120, 5400]
    for wrong in ("30", "s", "0s", "25h", "-1s", "1 day"):
        with pytest.raises(RackgateError, match=r"--for .*expected a duration"):
            seconds(wrong, "--for")
