"""Fault records: each outlives its command and is deleted only after a complete heal."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.faults import injection, kinds, orphan_healer, registry
from pyhooks.faults.injection import FaultTarget, Probe
from pyhooks.faults.registry import FaultRecord
from pyhooks.history.event_log import History
from pyhooks.lab import topology


class Lab:
    """A lab in memory; while its only fault is in force, ``down`` is true."""

    topology = topology.load(topology.find("az3"))

    def __init__(self, folder: Path) -> None:
        self.history_path = folder / "history.jsonl"
        self.down = False
        self.known: list[Mapping[str, Any]] = []
        self.dies_in = ""
        self.error: BaseException | None = None

    def wait_unfenced(self, nodes: object, timeout_s: float = 0) -> None:
        assert nodes
        assert timeout_s > 0

    def dies(self, where: str) -> None:
        if self.dies_in == where:
            self.dies_in = ""
            raise self.error or RackgateError(f"dies in {where}")


class Fault:
    """Fault that sets ``down`` of its lab."""

    def __init__(self, lab: Any, kind: str, target: FaultTarget, settings: Mapping[str, Any]) -> None:
        self.cluster, self.kind, self.target, self.settings = lab, kind, target, settings

    def probes(self) -> dict[str, Probe]:
        return {"there": lambda: not self.cluster.down}

    def expects(self, probe: str, *, during: bool) -> bool:
        assert probe == "there"
        return not during

    def prepare(self) -> Mapping[str, Any]:
        return {"id": 7}

    def inject(self) -> None:
        self.cluster.down = True
        self.cluster.dies("inject")

    def heal(self, facts: Mapping[str, Any]) -> None:
        self.cluster.known.append(facts)
        self.cluster.dies("heal")
        self.cluster.down = False

    def paths(self) -> tuple[()]:
        return ()

    def event_data(self) -> Mapping[str, Any]:
        return {}

    def invalidates(self, other: object) -> bool:
        return self.kind == "cut" and isinstance(other, Fault)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(registry, "FOLDER", tmp_path / "faults")
    monkeypatch.setattr(registry, "PATIENCE_S", 0.1)
    monkeypatch.setattr(injection, "PORT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(kinds, "create_fault", Fault)
    return Lab(tmp_path)


def fault(target: str = "b", *, for_s: float | None = None, **settings: Any) -> FaultRecord:
    now_ns = time.monotonic_ns()
    until_ns = None if for_s is None else now_ns + round(for_s * 1e9)
    return FaultRecord("kill", "rack", target, settings, now_ns, until_ns)


def inject(lab: Any, one: FaultRecord) -> None:
    with registry.fault_injected(lab, one, stays=True):
        pass


def steps(lab: Any) -> list[str]:
    return [str(event.data["step"]) for event in History(lab.history_path).events()]


def heal_orphans(lab: Any) -> list[str]:
    """Reports of all heals, in order."""
    event_data = [registry.heal_orphan(lab, one.since_ns) for one in registry.orphaned_faults()]
    return [one for one in event_data if one]


def killed(lab: Any, where: str, monkeypatch: pytest.MonkeyPatch, one: FaultRecord) -> None:
    """Run a command that dies in one of its steps as from SIGKILL."""
    child = os.fork()
    if child == 0:
        name = where if where in ("inject", "heal") else "_prove"
        owner = Fault if name in ("inject", "heal") else injection.Injection
        monkeypatch.setattr(owner, name, lambda *_, **__: os._exit(9))
        try:
            inject(lab, one)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_fault_persists_and_is_healed_by_another_command(lab: Any) -> None:
    inject(lab, fault())
    assert [one.phase for one in registry.active_faults()] == ["in force"]
    assert registry.orphaned_faults() == ()
    assert [one.target for one in registry.heal(lab, ["broker-3"])] == ["b"]
    assert (lab.down, lab.known, registry.active_faults()) == (False, [{"id": 7}], ())
    assert steps(lab) == ["before", "inject", "proved", "held", "heal", "healed"]


def test_the_record_of_a_heal_is_written_before_the_fault(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(lab, "inject", monkeypatch, fault())
    assert [(one.phase, one.facts) for one in registry.active_faults()] == [("injecting", {"id": 7})]
    assert len(registry.orphaned_faults()) == 1
    assert heal_orphans(lab) == []
    assert (lab.known, registry.active_faults()) == ([{"id": 7}], ())
    # no event claims that it was unavailable
    assert steps(lab)[-2:] == ["heal", "healed"]
    assert "held" not in steps(lab)


def test_a_command_killed_before_the_fault_leaves_no_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(lab, "before", monkeypatch, fault(for_s=3600))
    assert [one.phase for one in registry.active_faults()] == ["planned"]
    assert heal_orphans(lab) == []
    assert (lab.known, registry.active_faults()) == ([], ())


@pytest.mark.parametrize("error", [RackgateError("no"), OSError("disk"), KeyboardInterrupt()])
def test_a_heal_that_fails_keeps_the_record_and_can_be_repeated(lab: Any, error: BaseException) -> None:
    inject(lab, fault())
    lab.dies_in, lab.error = "heal", error
    with pytest.raises(type(error)):
        registry.heal(lab, ["broker-3"])
    (kept,) = registry.active_faults()
    assert (kept.phase, kept.failed) == ("healing", str(error))
    # what a person interrupted the lab goes on with; what failed waits for a person
    assert len(registry.orphaned_faults()) == isinstance(error, KeyboardInterrupt)
    assert len(registry.heal(lab, ["broker-3"])) == 1
    assert (lab.down, lab.known, registry.active_faults()) == (False, [{"id": 7}] * 2, ())


def test_a_target_that_is_not_restored_keeps_the_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, fault())
    with monkeypatch.context() as broken:
        broken.setattr(Fault, "heal", lambda _, facts: lab.known.append(facts))
        with pytest.raises(RackgateError, match="'healed' is not proved"):
            registry.heal(lab, ["broker-3"])
    assert "'healed' is not proved" in registry.active_faults()[0].failed
    assert len(registry.heal(lab, ["broker-3"])) == 1
    assert registry.active_faults() == ()


def test_an_injection_that_fails_and_does_not_heal_keeps_the_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.dies_in = "inject"
    with monkeypatch.context() as broken:
        broken.setattr(Fault, "heal", lambda *_: None)
        with pytest.raises(RackgateError, match=r"dies in inject; and then it does not heal: .*'healed' is not proved"):
            inject(lab, fault())
    assert [one.phase for one in registry.active_faults()] == ["healing"]
    lab.dies_in = "inject"
    registry.heal(lab, ["broker-3"])
    with pytest.raises(RackgateError, match="dies in inject"):
        inject(lab, fault())
    assert (lab.down, registry.active_faults()) == (False, ())


def test_a_command_killed_in_its_heal_does_not_record_that_the_fault_ended_early(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Fault, "heal", lambda *_: os._exit(9))
        try:
            with registry.fault_injected(lab, fault(), stays=False):
                raise KeyboardInterrupt
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [one.phase for one in registry.active_faults()] == ["healing"]
    assert heal_orphans(lab) == []
    assert "held" not in steps(lab)


def test_a_fault_that_does_not_heal_does_not_block_others(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("a", "b"):
        inject(lab, fault(target))
        lab.down = False
    lab.down = True
    healing = Fault.heal

    def heal(self: Fault, facts: Mapping[str, Any]) -> None:
        if self.target.name == "b":
            raise RackgateError("b stays away")
        healing(self, facts)

    monkeypatch.setattr(Fault, "heal", heal)
    nodes = [node.name for node in lab.topology.nodes]
    with pytest.raises(RackgateError, match="b stays away"):
        registry.heal(lab, nodes)
    assert [one.target for one in registry.active_faults()] == ["b"]


def test_a_stale_observation_causes_no_second_heal(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, fault())
    seen = registry.active_faults()
    registry.heal(lab, ["broker-3"])
    with monkeypatch.context() as late:
        late.setattr(registry, "active_faults", lambda: seen)
        assert registry.heal(lab, ["broker-3"]) == ()
    assert len(lab.known) == 1
    assert not list(registry.FOLDER.glob("*.json"))
    # a later fault on the same target is another one
    inject(lab, fault())
    monkeypatch.setattr(registry, "active_faults", lambda: seen)
    assert registry.heal(lab, ["broker-3"]) == ()
    assert lab.down


def test_a_fault_of_a_running_command_is_no_orphan(lab: Any) -> None:
    with registry.fault_injected(lab, fault(for_s=0.001), stays=False):
        assert registry.orphaned_faults() == ()
        with pytest.raises(RackgateError, match="another command works on it"):
            registry.heal(lab, ["broker-3"])
    assert registry.active_faults() == ()


def test_an_error_of_an_orphan_s_heal_is_kept_as_the_reason(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, fault(for_s=0.001))
    monkeypatch.setattr(Fault, "heal", lambda *_: 1 // 0)
    assert len(heal_orphans(lab)) == 1
    assert "division" in registry.active_faults()[0].failed
    assert registry.orphaned_faults() == ()


def test_a_fault_that_another_makes_unprovable_is_refused_and_not_recorded(lab: Any) -> None:
    inject(lab, fault())
    noted = steps(lab)
    with pytest.raises(RackgateError, match="kill rack b for 0 s is in force"):
        inject(lab, FaultRecord("cut", "rack", "a", {}, time.monotonic_ns()))
    assert steps(lab) == noted
    assert [one.target for one in registry.active_faults()] == ["b"]


def test_a_fault_of_a_killed_process_is_healed_by_the_lab(lab: Any, tmp_path: Path) -> None:
    target, history = FaultTarget.rack(lab, "b"), History(tmp_path / "own.jsonl")
    child = os.fork()
    if child == 0:
        try:
            with registry.fault_applied(lab, "kill", target, history, rtt_ms=3):
                os._exit(0 if registry.orphaned_faults() == () else 7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lab.down = True
    assert [(one.phase, one.settings) for one in registry.orphaned_faults()] == [("in force", {"rtt_ms": 3})]
    assert heal_orphans(lab) == []
    assert registry.active_faults() == ()
    with registry.fault_applied(lab, "kill", target, history):
        pass
    assert [event.data["step"] for event in history.events()][-2:] == ["heal", "healed"]
    assert registry.active_faults() == ()


def healer_of(lab: Any, monkeypatch: pytest.MonkeyPatch, program: str) -> orphan_healer.OrphanHealer:
    monkeypatch.setattr(orphan_healer, "COMMAND", ("sh", "-c", program, "heal"))
    lab.variables = {}
    return orphan_healer.OrphanHealer(lab)


def test_a_failing_healer_is_started_a_few_times(lab: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    event_data = tmp_path / "starts"
    killed(lab, "inject", monkeypatch, fault("b"))
    killed(lab, "inject", monkeypatch, fault("c"))
    healer = healer_of(lab, monkeypatch, f"echo $1 >> {event_data}")
    first, second = (str(one.since_ns) for one in registry.active_faults())

    def given_up() -> bool:
        healer.check()
        return all(one.failed for one in registry.active_faults())

    wait_for(given_up, goal="them to be given up", timeout_s=10)
    # each in its turn, so that one does not keep the other from it
    assert event_data.read_text().split() == [first, second] * 3
    healer.check()
    assert healer.child is None


def test_one_process_heals_at_a_time(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(lab, "inject", monkeypatch, fault("b"))
    healer = healer_of(lab, monkeypatch, "exec sleep 300")
    healer.check()
    child = healer.child
    assert child is not None
    for _ in range(9):
        healer.check()
    assert healer.child is child
    child.kill()
    child.wait()
    healer.check()
    assert healer.child is not None
    assert healer.child is not child
    healer.child.kill()
    healer.child.wait()


def test_a_heal_by_another_command_is_left_to_it(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(lab, "inject", monkeypatch, fault("b"))
    (one,) = registry.active_faults()
    healer = healer_of(lab, monkeypatch, "true")
    with registry._fault_lock(one):
        healer.check()
        assert healer.child is None
        assert registry.heal_orphan(lab, one.since_ns) == ""
    assert [left.failed for left in registry.active_faults()] == [""]
