"""Fault records: they outlive the command and are deleted only after a complete heal."""

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


class FakeLab:
    """In-memory lab.

    Attributes:
        down: whether the fault is in force.
        healed: facts that the heals were given, in order.
        fails_in: name of the step that fails once, with ``error``.
    """

    topology = topology.load(topology.find("az3"))

    def __init__(self, folder: Path) -> None:
        self.history_path = folder / "history.jsonl"
        self.down = False
        self.healed: list[Mapping[str, Any]] = []
        self.fails_in = ""
        self.error: BaseException | None = None

    def wait_unfenced(self, nodes: object, timeout_s: float = 0) -> None:
        assert nodes
        assert timeout_s > 0

    def fail_if_set(self, where: str) -> None:
        if self.fails_in == where:
            self.fails_in = ""
            raise self.error or RackgateError(f"fails in {where}")


class FakeFault:
    """Fake fault that sets ``down`` of its lab."""

    def __init__(self, lab: Any, kind: str, target: FaultTarget, settings: Mapping[str, Any]) -> None:
        self.cluster, self.kind, self.target, self.settings = lab, kind, target, settings

    def probes(self) -> dict[str, Probe]:
        return {"up": lambda: not self.cluster.down}

    def expects(self, probe: str, *, during: bool) -> bool:
        assert probe == "up"
        return not during

    def prepare(self) -> Mapping[str, Any]:
        return {"id": 7}

    def inject(self) -> None:
        self.cluster.down = True
        self.cluster.fail_if_set("inject")

    def heal(self, facts: Mapping[str, Any]) -> None:
        self.cluster.healed.append(facts)
        self.cluster.fail_if_set("heal")
        self.cluster.down = False

    def paths(self) -> tuple[()]:
        return ()

    def event_data(self) -> Mapping[str, Any]:
        return {}

    def invalidates(self, other: object) -> bool:
        return self.kind == "cut" and isinstance(other, FakeFault)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(registry, "FOLDER", tmp_path / "faults")
    monkeypatch.setattr(registry, "PATIENCE_S", 0.1)
    monkeypatch.setattr(injection, "PORT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(kinds, "create_fault", FakeFault)
    return FakeLab(tmp_path)


def record(target: str = "b", *, for_s: float | None = None, **settings: Any) -> FaultRecord:
    now_ns = time.monotonic_ns()
    until_ns = None if for_s is None else now_ns + round(for_s * 1e9)
    return FaultRecord("kill", "rack", target, settings, now_ns, until_ns)


def inject(lab: Any, fault: FaultRecord) -> None:
    with registry.fault_injected(lab, fault, stays=True):
        pass


def steps(lab: Any) -> list[str]:
    return [str(event.data["step"]) for event in History(lab.history_path).events()]


def heal_orphans(lab: Any) -> list[str]:
    """Heal all orphaned faults; return the errors, in order."""
    errors = [registry.heal_orphan(lab, fault.since_ns) for fault in registry.orphaned_faults()]
    return [error for error in errors if error]


def run_killed_command(lab: Any, step: str, monkeypatch: pytest.MonkeyPatch, fault: FaultRecord) -> None:
    """Inject a fault in a child process that ends in this step as if killed."""
    child = os.fork()
    if child == 0:
        name = step if step in ("inject", "heal") else "_prove"
        owner = FakeFault if name in ("inject", "heal") else injection.Injection
        monkeypatch.setattr(owner, name, lambda *_, **__: os._exit(9))
        try:
            inject(lab, fault)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_fault_persists_and_is_healed_by_another_command(lab: Any) -> None:
    inject(lab, record())
    assert [fault.phase for fault in registry.active_faults()] == ["in force"]
    assert registry.orphaned_faults() == ()
    assert [fault.target for fault in registry.heal(lab, ["broker-3"])] == ["b"]
    assert (lab.down, lab.healed, registry.active_faults()) == (False, [{"id": 7}], ())
    assert steps(lab) == ["before", "inject", "proved", "held", "heal", "healed"]


def test_the_record_is_written_before_the_fault_is_injected(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_killed_command(lab, "inject", monkeypatch, record())
    assert [(fault.phase, fault.facts) for fault in registry.active_faults()] == [("injecting", {"id": 7})]
    assert len(registry.orphaned_faults()) == 1
    assert heal_orphans(lab) == []
    assert (lab.healed, registry.active_faults()) == ([{"id": 7}], ())
    # no event claims that the fault was in force
    assert steps(lab)[-2:] == ["heal", "healed"]
    assert "held" not in steps(lab)


def test_a_command_killed_before_the_fault_leaves_no_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_killed_command(lab, "before", monkeypatch, record(for_s=3600))
    assert [fault.phase for fault in registry.active_faults()] == ["planned"]
    assert heal_orphans(lab) == []
    assert (lab.healed, registry.active_faults()) == ([], ())


@pytest.mark.parametrize("error", [RackgateError("no"), OSError("disk"), KeyboardInterrupt()])
def test_a_heal_that_fails_keeps_the_record_and_can_be_repeated(lab: Any, error: BaseException) -> None:
    inject(lab, record())
    lab.fails_in, lab.error = "heal", error
    with pytest.raises(type(error)):
        registry.heal(lab, ["broker-3"])
    (remaining,) = registry.active_faults()
    assert (remaining.phase, remaining.failed) == ("healing", str(error))
    # the lab resumes an interrupted heal; a failed one needs the user
    assert len(registry.orphaned_faults()) == isinstance(error, KeyboardInterrupt)
    assert len(registry.heal(lab, ["broker-3"])) == 1
    assert (lab.down, lab.healed, registry.active_faults()) == (False, [{"id": 7}] * 2, ())


def test_a_target_that_is_not_restored_keeps_the_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, record())
    with monkeypatch.context() as broken:
        broken.setattr(FakeFault, "heal", lambda _, facts: lab.healed.append(facts))
        with pytest.raises(RackgateError, match="'healed' is not verified"):
            registry.heal(lab, ["broker-3"])
    assert "'healed' is not verified" in registry.active_faults()[0].failed
    assert len(registry.heal(lab, ["broker-3"])) == 1
    assert registry.active_faults() == ()


def test_an_injection_that_fails_and_does_not_heal_keeps_the_record(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.fails_in = "inject"
    with monkeypatch.context() as broken:
        broken.setattr(FakeFault, "heal", lambda *_: None)
        with pytest.raises(
            RackgateError, match=r"fails in inject; and then it does not heal: .*'healed' is not verified"
        ):
            inject(lab, record())
    assert [fault.phase for fault in registry.active_faults()] == ["healing"]
    lab.fails_in = "inject"
    registry.heal(lab, ["broker-3"])
    with pytest.raises(RackgateError, match="fails in inject"):
        inject(lab, record())
    assert (lab.down, registry.active_faults()) == (False, ())


def test_a_command_killed_in_its_heal_does_not_record_that_the_fault_ended_early(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(FakeFault, "heal", lambda *_: os._exit(9))
        try:
            with registry.fault_injected(lab, record(), stays=False):
                raise KeyboardInterrupt
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [fault.phase for fault in registry.active_faults()] == ["healing"]
    assert heal_orphans(lab) == []
    assert "held" not in steps(lab)


def test_a_fault_that_does_not_heal_does_not_block_others(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("a", "b"):
        inject(lab, record(target))
        lab.down = False
    lab.down = True
    original_heal = FakeFault.heal

    def heal(self: FakeFault, facts: Mapping[str, Any]) -> None:
        if self.target.name == "b":
            raise RackgateError("b stays down")
        original_heal(self, facts)

    monkeypatch.setattr(FakeFault, "heal", heal)
    nodes = [node.name for node in lab.topology.nodes]
    with pytest.raises(RackgateError, match="b stays down"):
        registry.heal(lab, nodes)
    assert [fault.target for fault in registry.active_faults()] == ["b"]


def test_a_stale_observation_causes_no_second_heal(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, record())
    stale = registry.active_faults()
    registry.heal(lab, ["broker-3"])
    with monkeypatch.context() as outdated:
        outdated.setattr(registry, "active_faults", lambda: stale)
        assert registry.heal(lab, ["broker-3"]) == ()
    assert len(lab.healed) == 1
    assert not list(registry.FOLDER.glob("*.json"))
    # a later fault on the same target has its own record
    inject(lab, record())
    monkeypatch.setattr(registry, "active_faults", lambda: stale)
    assert registry.heal(lab, ["broker-3"]) == ()
    assert lab.down


def test_a_fault_of_a_running_command_is_not_orphaned(lab: Any) -> None:
    with registry.fault_injected(lab, record(for_s=0.001), stays=False):
        assert registry.orphaned_faults() == ()
        with pytest.raises(RackgateError, match="another command works on it"):
            registry.heal(lab, ["broker-3"])
    assert registry.active_faults() == ()


def test_the_error_of_an_orphan_s_heal_is_recorded(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(lab, record(for_s=0.001))
    monkeypatch.setattr(FakeFault, "heal", lambda *_: 1 // 0)
    assert len(heal_orphans(lab)) == 1
    assert "division" in registry.active_faults()[0].failed
    assert registry.orphaned_faults() == ()


def test_a_fault_that_would_invalidate_the_probes_of_another_is_rejected(lab: Any) -> None:
    inject(lab, record())
    steps_before = steps(lab)
    with pytest.raises(RackgateError, match="kill rack b for 0 s is in force"):
        inject(lab, FaultRecord("cut", "rack", "a", {}, time.monotonic_ns()))
    assert steps(lab) == steps_before
    assert [fault.target for fault in registry.active_faults()] == ["b"]


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
    assert [(fault.phase, fault.settings) for fault in registry.orphaned_faults()] == [("in force", {"rtt_ms": 3})]
    assert heal_orphans(lab) == []
    assert registry.active_faults() == ()
    with registry.fault_applied(lab, "kill", target, history):
        pass
    assert [event.data["step"] for event in history.events()][-2:] == ["heal", "healed"]
    assert registry.active_faults() == ()


def create_healer(lab: Any, monkeypatch: pytest.MonkeyPatch, program: str) -> orphan_healer.OrphanHealer:
    monkeypatch.setattr(orphan_healer, "COMMAND", ("sh", "-c", program, "heal"))
    lab.variables = {}
    return orphan_healer.OrphanHealer(lab)


def test_a_failing_healer_is_started_three_times_per_fault(
    lab: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    run_killed_command(lab, "inject", monkeypatch, record("b"))
    run_killed_command(lab, "inject", monkeypatch, record("c"))
    healer = create_healer(lab, monkeypatch, f"echo $1 >> {starts}")
    first, second = (str(fault.since_ns) for fault in registry.active_faults())

    def given_up() -> bool:
        healer.check()
        return all(fault.failed for fault in registry.active_faults())

    wait_for(given_up, goal="the healer to give up", timeout_s=10)
    # faults alternate, so that one does not block the other
    assert starts.read_text().split() == [first, second] * 3
    healer.check()
    assert healer.child is None


def test_one_process_heals_at_a_time(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_killed_command(lab, "inject", monkeypatch, record("b"))
    healer = create_healer(lab, monkeypatch, "exec sleep 300")
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


def test_the_healer_skips_a_fault_that_another_command_heals(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_killed_command(lab, "inject", monkeypatch, record("b"))
    (fault,) = registry.active_faults()
    healer = create_healer(lab, monkeypatch, "true")
    with registry._fault_lock(fault):
        healer.check()
        assert healer.child is None
        assert registry.heal_orphan(lab, fault.since_ns) == ""
    assert [fault.failed for fault in registry.active_faults()] == [""]
