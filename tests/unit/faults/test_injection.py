"""Verification of faults: a fault that does not take effect, last or heal fails the run."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.faults import check_faults
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.faults import injection, kinds
from pyhooks.faults.injection import FaultTarget, Probe
from pyhooks.history.event_log import History
from pyhooks.lab import cluster_control, network, quorum_changes, topology
from pyhooks.lab.echo import RoundTripTimes
from pyhooks.lab.topology import Node, Quality
from scripted_faults import AZ3, CLUSTER, RACK_B, InMemoryCluster, ScriptedFault, UnchangedLinks, apply_fault


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "PORT_TIMEOUT_S", 0.2)


def steps(history: History) -> list[tuple[str, str | None]]:
    return [(str(event.data["step"]), event.outcome) for event in history.events()]


def test_a_verified_fault(tmp_path: Path) -> None:
    history, fault = History(tmp_path / "h"), ScriptedFault([True, False, False, True])
    apply_fault(fault, history)
    assert [step for step, _ in steps(history)] == ["before", "inject", "proved", "held", "heal", "healed"]
    assert (fault.injected, fault.healed) == (1, [{"disk": "d"}])
    assert check_faults(list(history.events())).valid == "true"


def test_healing_waits_for_the_port(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    apply_fault(ScriptedFault([True, False, False, False, True]), history)
    assert steps(history)[-1] == ("healed", "ok")


@pytest.mark.parametrize(
    ("responses", "step", "healed"),
    [
        ([False], "before", 0),
        ([True, True], "proved", 1),
        ([True, False, True], "held", 1),
        ([True, False, False, False], "healed", 1),
    ],
)
def test_a_fault_that_its_probes_contradict_fails_and_raises(
    tmp_path: Path, responses: list[bool], step: str, healed: int
) -> None:
    history, fault = History(tmp_path / "h"), ScriptedFault(responses)
    with pytest.raises(RackgateError, match=r"results are unknown; .*connect ="):
        apply_fault(fault, history)
    assert (step, "fail") in steps(history)
    assert len(fault.healed) == healed
    # a fault that was not injected is unknown
    assert check_faults(list(history.events())).valid == ("unknown" if step == "before" else "false")


@pytest.mark.parametrize(("failing_sample", "step"), [(1, "before"), (2, "proved"), (3, "held")])
def test_a_probe_that_fails_makes_the_step_unknown_and_raises(tmp_path: Path, failing_sample: int, step: str) -> None:
    history, fault = History(tmp_path / "h"), ScriptedFault([True, False, False, True])
    samples = 0

    def probes() -> dict[str, Probe]:
        def probe() -> bool:
            nonlocal samples
            samples += 1
            if samples == failing_sample:
                raise RackgateError("ping is not installed")
            return fault.replies.pop(0) if len(fault.replies) > 1 else fault.replies[0]

        return {"connect": probe}

    fault.replies = [reply for number, reply in enumerate(fault.replies, 1) if number != failing_sample]
    vars(fault)["probes"] = probes
    with pytest.raises(RackgateError, match="results are unknown: ping is not installed"):
        apply_fault(fault, history)
    events = list(history.events())
    (unverified,) = [event for event in events if event.outcome not in ("ok", None)]
    assert (unverified.data["step"], unverified.outcome, unverified.data["probes"]) == (
        step,
        "unknown",
        {"connect": None},
    )
    verdict = check_faults(events)
    assert verdict.valid == "unknown"
    assert "ping is not installed" in "; ".join(verdict.because)


def test_checking_that_the_fault_lasts_writes_no_event(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    fault = ScriptedFault([False])
    injected = injection.Injection(fault, history)
    assert injected.contradiction() == ""
    fault.replies = [True]
    assert injected.contradiction() == "kill-rack rack b: connect = True"

    def failing_probe() -> bool:
        raise RackgateError("ping is not installed")

    vars(fault)["probes"] = lambda: {"connect": failing_probe}
    assert injected.contradiction() == "kill-rack rack b: connect: ping is not installed"
    vars(fault)["probes"] = dict
    assert injected.contradiction() == "kill-rack rack b: no probe could be run"
    assert steps(history) == []
    assert fault.healed == []


def test_an_error_of_the_body_heals_the_fault_and_is_raised(tmp_path: Path) -> None:
    fault = ScriptedFault([True, False, True])
    with (
        pytest.raises(ZeroDivisionError),
        injection.inject_all(fault, History(tmp_path / "h")),
    ):
        _ = 1 / 0
    assert len(fault.healed) == 1


def test_several_faults_are_healed_in_reverse_order(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    replies = [True, False, False, True]
    with injection.inject_all([ScriptedFault(list(replies)), ScriptedFault(list(replies), kind="cut")], history):
        pass
    ops = [(event.op, event.data["step"]) for event in history.events() if event.data["step"] in ("inject", "heal")]
    assert ops == [("kill-rack", "inject"), ("cut-rack", "inject"), ("cut-rack", "heal"), ("kill-rack", "heal")]
    assert check_faults(list(history.events())).valid == "true"


def test_targets_are_found_by_name_or_id_and_others_are_listed() -> None:
    rack, broker = FaultTarget.rack(CLUSTER, "b"), FaultTarget.broker(CLUSTER, "3")
    assert [node.node_id for node in rack.nodes] == [3, 4]
    assert (str(rack), str(broker), broker.site) == ("rack b", "broker-3", "b")
    assert FaultTarget.broker(CLUSTER, "broker-3") == broker
    with pytest.raises(RackgateError, match=r"'outside'; .*a, b, c$"):
        FaultTarget.rack(CLUSTER, "outside")
    with pytest.raises(RackgateError, match="no broker '101'; it has 1, 2, 3, 4, 5"):
        FaultTarget.broker(CLUSTER, "101")


def test_several_brokers_form_one_target() -> None:
    several = FaultTarget.broker(CLUSTER, "2,broker-4,5")
    assert [node.node_id for node in several.nodes] == [2, 4, 5]
    assert (several.kind, several.site, str(several)) == ("broker", "a", "broker-2,broker-4,broker-5")
    # the name of a target selects the same target
    assert FaultTarget.broker(CLUSTER, several.name) == several
    for duplicate in ("2,2", "2,4,broker-2"):
        with pytest.raises(RackgateError, match=f"{duplicate}: contains a duplicate broker"):
            FaultTarget.broker(CLUSTER, duplicate)
    for unknown in ("2,101", "2,", "2, 4"):
        with pytest.raises(RackgateError, match=r"no broker .*; it has 1, 2, 3, 4, 5"):
            FaultTarget.broker(CLUSTER, unknown)


@pytest.mark.parametrize("kind", ["kill", "pause", "cut", "wipe"])
def test_only_slow_accepts_several_brokers(kind: str) -> None:
    with pytest.raises(RackgateError, match=f"^broker-2,broker-4: only slow takes several brokers; inject {kind} for"):
        kinds.create_fault(CLUSTER, kind, FaultTarget.broker(CLUSTER, "2,4"), {})


def test_slow_brokers_are_probed_only_from_other_nodes_and_each_is_delayed() -> None:
    calls: list[tuple[str, str, Quality | None]] = []

    class Links(UnchangedLinks):
        def slow_node(self, node: Node, added: Quality) -> None:
            calls.append(("slow", node.name, added))

        def restore_node(self, node: Node) -> None:
            calls.append(("restore", node.name, None))

    cluster: Any = InMemoryCluster()
    cluster.network = Links()
    fault = kinds.create_fault(cluster, "slow", FaultTarget.broker(cluster, "2,4,5"), {"rtt_ms": 20.0})
    paths = {(source.name if source else "clients", node.name) for source, node in fault.paths()}
    targets = {"broker-2", "broker-4", "broker-5"}
    assert {node for _, node in paths} == targets
    assert not {source for source, _ in paths} & targets
    # from the clients, and from the undelayed brokers of racks a and b
    assert {source for source, node in paths if node == "broker-2"} >= {"clients", "broker-1", "broker-3"}
    assert {source for source, node in paths if node == "broker-4"} >= {"clients", "broker-1", "broker-3"}
    assert {source for source, node in paths if node == "broker-5"} >= {"clients", "broker-1", "broker-3"}
    assert len(fault.probes()) == len(paths)
    fault.inject()
    assert calls == [("slow", name, Quality(20.0)) for name in ("broker-2", "broker-4", "broker-5")]
    calls.clear()
    fault.heal({})
    assert calls == [("restore", name, None) for name in ("broker-2", "broker-4", "broker-5")]


def test_the_expected_delay_of_each_slow_broker_is_that_of_its_own_links() -> None:
    """The link of a broker's own rack counts, not that of the first broker's."""
    cluster: Any = InMemoryCluster()
    cluster.topology = topology.parse(
        {
            "name": "uneven",
            "site": [
                {"name": "a", "brokers": [1], "controllers": [101], "client": True},
                {"name": "b", "brokers": [2]},
                {"name": "c", "brokers": [3]},
            ],
            "link": [
                {"between": ["a", "b"], "rtt_ms": 2.0},
                {"between": ["a", "c"], "rtt_ms": 30.0},
                {"between": ["b", "c"], "rtt_ms": 5.0},
            ],
        },
        source="uneven",
    )
    fault = kinds.create_fault(cluster, "slow", FaultTarget.broker(cluster, "2,3"), {"rtt_ms": 40.0})
    assert set(fault.probes()) == {
        "clients to broker-2 takes 34 ms",
        "broker-1 to broker-2 takes 34 ms",
        "clients to broker-3 takes 62 ms",
        "broker-1 to broker-3 takes 62 ms",
    }


EMPTY: Any = InMemoryCluster()
EMPTY.topology = topology.parse(
    {
        "name": "empty",
        "site": [
            {"name": "b", "brokers": [1], "client": True},
            {"name": "c", "controllers": [101]},
            {"name": "e"},
        ],
    },
    source="empty",
)
SINGLE: Any = InMemoryCluster()
SINGLE.topology = topology.load(topology.find("single"))


@pytest.mark.parametrize(
    ("cluster", "kind", "settings", "error"),
    [
        (CLUSTER, "cut", {"peers": ["b"]}, "can't be cut off from 'b'; there are a, c, outside"),
        (CLUSTER, "slow", {"rtt_ms": 0.0}, "a round trip above 0 ms"),
        (CLUSTER, "slow", {"rtt_ms": 1.0, "jitter_ms": 2.0}, "more than half the round trip"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "jitter_ms": -1.0}, "can't be less than 0"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "jitter_ms": 1.0}, "indistinguishable from a busy machine"),
        (CLUSTER, "slow", {"rtt_ms": 2000.0}, "indistinguishable from a cut"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "loss_percent": 0.1}, "can't be proved: from 1 to 90"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "loss_percent": 100.0}, "can't be proved: from 1 to 90"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "rate_mbit": 0.5}, "can't be proved: from 1 to 100"),
        (CLUSTER, "slow", {"rtt_ms": 9.0, "rate_mbit": 20.0, "loss_percent": 2.0}, "together with jitter or loss"),
        (EMPTY, "cut", {"peers": ["e"]}, "site 'e' has no node or client"),
        (SINGLE, "cut", {}, "no other site"),
        (SINGLE, "slow", {"rtt_ms": 5.0}, "no other site"),
        (SINGLE, "wipe", {}, "records and metadata on one disk"),
        (SINGLE, "wipe", {"controllers": True}, "1 of 1 controllers"),
    ],
)
def test_an_impossible_fault_is_rejected_with_the_reason(
    cluster: Any, kind: str, settings: dict[str, Any], error: str
) -> None:
    name = "a" if cluster is SINGLE else "b"
    with pytest.raises(RackgateError, match=error):
        kinds.create_fault(cluster, kind, FaultTarget.rack(cluster, name), settings)


def test_a_rack_with_a_minority_of_the_voters_can_be_wiped() -> None:
    fault = kinds.create_fault(AZ3, "wipe", FaultTarget.rack(AZ3, "b"), {"controllers": True})
    assert {probe for probe in fault.probes() if probe.startswith("disk")} == {
        "disk of broker-3",
        "disk of broker-4",
        "disk of controller-102",
    }
    without_controllers = kinds.create_fault(AZ3, "wipe", FaultTarget.rack(AZ3, "b"), {})
    assert "connect controller-102" in without_controllers.probes()
    assert "disk of controller-102" not in without_controllers.probes()


ONE_CONTROLLER: Any = InMemoryCluster()
ONE_CONTROLLER.topology = topology.parse(
    {
        "name": "split",
        "site": [{"name": "a", "brokers": [1], "controllers": [101], "client": True}, {"name": "b", "brokers": [2]}],
    },
    source="split",
)
ALL_BROKERS_IN_A: Any = InMemoryCluster()
ALL_BROKERS_IN_A.topology = topology.parse(
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
    assert kinds.create_fault(ONE_CONTROLLER, "wipe", FaultTarget.rack(ONE_CONTROLLER, "a"), {}).kind == "wipe"
    with pytest.raises(RackgateError, match="1 of 1 controllers"):
        kinds.create_fault(ONE_CONTROLLER, "wipe", FaultTarget.rack(ONE_CONTROLLER, "a"), {"controllers": True})
    with pytest.raises(RackgateError, match="it has all brokers"):
        kinds.create_fault(ALL_BROKERS_IN_A, "wipe", FaultTarget.rack(ALL_BROKERS_IN_A, "a"), {"controllers": True})


@pytest.mark.parametrize("unresponsive", [set(), {101}, {101, 103}])
def test_a_wipe_of_voters_needs_a_running_majority(monkeypatch: pytest.MonkeyPatch, unresponsive: set[int]) -> None:
    monkeypatch.setattr(kinds, "responds", lambda node: node.node_id not in unresponsive)
    ids = {node.node_id: f"id-{node.node_id}" for node in AZ3.topology.nodes}
    monkeypatch.setattr(quorum_changes, "voters", lambda *_: {node_id: ids[node_id] for node_id in (101, 102, 103)})
    monkeypatch.setattr(AZ3, "directory_id", lambda node: ids[node.node_id], raising=False)
    fault = kinds.create_fault(AZ3, "wipe", FaultTarget.rack(AZ3, "b"), {"controllers": True})
    if not unresponsive:
        assert fault.prepare()["directories"]["controller-102"] == "id-102"
        return
    with pytest.raises(RackgateError, match=r"of 3 voters only .* would remain"):
        fault.prepare()


def test_a_stopped_process_is_not_taken_for_a_paused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    state, samples = "up", 0

    def responds(node: Node, tries: int) -> bool:
        nonlocal samples
        samples += 1
        # the first response gets lost
        return (tries, state, samples > 1) == (1, "up", True) and node in RACK_B.nodes

    monkeypatch.setattr(kinds, "responds", responds)
    monkeypatch.setattr(CLUSTER, "process_state", lambda _: state, raising=False)
    fault = kinds.create_fault(CLUSTER, "pause", FaultTarget.broker(CLUSTER, "3"), {})

    def contradictions(*, during: bool) -> list[str]:
        return [name for name, probe in fault.probes().items() if probe() is not fault.expects(name, during=during)]

    assert contradictions(during=False) == []
    assert len(contradictions(during=True)) == 2
    state, samples = "paused", 0
    assert contradictions(during=True) == []
    assert samples == 1, "a paused process is not queried again"
    state = "down"
    assert contradictions(during=True) == ["broker-3 is stopped"]
    assert contradictions(during=False) == ["broker-3 responds"]


@pytest.mark.parametrize(
    ("raised", "remaining"),
    [
        ([TimeoutError(), ConnectionRefusedError(), TimeoutError()], 1),
        (
            [OSError(errno.EHOSTUNREACH, "-"), OSError(errno.ENETUNREACH, "-"), ConnectionResetError(), TimeoutError()],
            1,
        ),
        ([TimeoutError()] * (cluster_control.TRIES + 1), 1),
        ([TimeoutError(), OSError(errno.EMFILE, "-"), TimeoutError()], -1),
        ([OSError(errno.EADDRNOTAVAIL, "-"), TimeoutError()], -1),
    ],
)
def test_a_timeout_is_retried_and_a_rejection_is_not(
    monkeypatch: pytest.MonkeyPatch, raised: list[OSError], remaining: int
) -> None:
    """``remaining`` is the number of errors not raised; negative if the client side fails, which is an error."""
    for function in (cluster_control.reachable, cluster_control.responds):
        errors = list(raised)
        monkeypatch.setattr(socket, "create_connection", lambda _, timeout: raise_error(errors.pop(0), timeout))  # noqa: B023
        if remaining < 0:
            with pytest.raises(RackgateError, match=f"{RACK_B.nodes[0].name}: can't connect"):
                function(RACK_B.nodes[0])
        else:
            assert not function(RACK_B.nodes[0])
        assert len(errors) == abs(remaining)


def raise_error(error: OSError, timeout: float) -> None:
    assert timeout > 0
    raise error


def test_a_server_that_accepts_connections_but_sends_nothing_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        node = replace(RACK_B.nodes[0], ip="127.0.0.1")
        monkeypatch.setattr(Node, "port", server.getsockname()[1])
        assert cluster_control.reachable(node, tries=1)
        monkeypatch.setattr(cluster_control, "WAIT_S", 0.1)
        assert not cluster_control.responds(node, tries=2), "accepts connections, sends nothing"


def test_an_undetectable_fault_is_rejected_and_not_recorded(tmp_path: Path) -> None:
    class Undetectable(ScriptedFault):
        def expects(self, probe: str, *, during: bool) -> bool:
            return bool(probe) and during in (True, False)

    fault = Undetectable([True])
    with pytest.raises(RackgateError, match="nothing could be probed that would change"):
        apply_fault(fault, History(tmp_path / "h"))
    assert (fault.injected, steps(History(tmp_path / "h"))) == (0, [])


def test_a_broker_is_probed_from_its_rack_and_from_the_clients() -> None:
    for kind, settings in (("cut", {}), ("slow", {"rtt_ms": 40.0})):
        second = kinds.create_fault(CLUSTER, kind, FaultTarget.broker(CLUSTER, "4"), settings)
        first = kinds.create_fault(CLUSTER, kind, FaultTarget.broker(CLUSTER, "3"), settings)
        assert {"broker-3 to broker-4", "clients to broker-4"} <= {name.split(" takes")[0] for name in second.probes()}
        assert {"broker-4 to broker-3", "clients to broker-3"} <= {name.split(" takes")[0] for name in first.probes()}
    # also in a topology with a single rack
    single = kinds.create_fault(SINGLE, "slow", FaultTarget.broker(SINGLE, "1"), {"rtt_ms": 40.0})
    assert list(single.probes()) == [f"clients to {SINGLE.topology.brokers[0].name} takes 32 ms"]


@pytest.mark.parametrize("added", [Quality(40, 10, 0), Quality(40, 0, 5), Quality(1500, 100, 60)])
def test_delay_jitter_and_loss_are_verified_separately(monkeypatch: pytest.MonkeyPatch, added: Quality) -> None:
    fault = kinds.create_fault(CLUSTER, "slow", RACK_B, vars(added))
    samples: list[int] = []

    def rtt(_target: Node, _source: Node | None, count: int) -> RoundTripTimes:
        samples.append(count)
        return RoundTripTimes("x", "y", count, round(count * kept), p50_ms, p50_ms, p50_ms, spread_ms)

    monkeypatch.setattr(CLUSTER, "rtt", rtt)
    aspects = 1 + bool(added.jitter_ms) + bool(added.loss_percent)
    kept, p50_ms, spread_ms = (1 - added.loss_percent / 100) ** 2, 2 + added.rtt_ms, 0.6 * added.jitter_ms
    probes = fault.probes()
    assert len(probes) == aspects * len(fault.paths())
    assert all(probe() for probe in probes.values())
    # a path that appears slow or lossy is measured again
    assert len(samples) == (5 if added.loss_percent else 3) * len(fault.paths())
    assert min(samples) * kept >= 5
    for changed in range(aspects):
        kept, p50_ms, spread_ms = (1 - added.loss_percent / 100) ** 2, 2 + added.rtt_ms, 0.6 * added.jitter_ms
        if changed == 0:
            p50_ms = 2
        elif changed == 1 and added.jitter_ms:
            spread_ms = 0.5
        else:
            kept = 1
        assert [probe() for probe in fault.probes().values()].count(False) == len(fault.paths())


@pytest.mark.parametrize("rate_mbit", [1.0, 20.0, 100.0])
def test_a_rate_is_verified_by_a_burst(monkeypatch: pytest.MonkeyPatch, rate_mbit: float) -> None:
    fault = kinds.create_fault(CLUSTER, "slow", RACK_B, {"rtt_ms": 40.0, "rate_mbit": rate_mbit})

    def rtt(_target: Node, _source: Node | None, count: int, *, burst: bool = False) -> RoundTripTimes:
        p50_ms = 42 + (count / 2 * 8 * 1442 / (carried_mbit[-1] * 1e3) if burst else 0)
        return RoundTripTimes("x", "y", count, count, p50_ms, p50_ms, p50_ms)

    monkeypatch.setattr(CLUSTER, "rtt", rtt)
    outcomes, carried_mbit = [], [rate_mbit]
    for factor in (1, 4):
        carried_mbit.append(factor * rate_mbit)
        probes = {name: probe for name, probe in fault.probes().items() if "carries" in name}
        assert len(probes) == len(fault.paths())
        assert all(name.endswith(f" carries at most {rate_mbit:g} Mbit/s") for name in probes)
        outcomes.append({probe() for probe in probes.values()})
    assert outcomes == [{True}, {False}]


def test_delays_of_slow_racks_add_up_on_shared_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shaped: dict[str, Quality] = {}
    monkeypatch.setattr(network, "SLOW_SITES", tmp_path / "slow.json")
    monkeypatch.setattr(
        network, "shape", lambda _topology, link, quality: shaped.update({network.link_name(link): quality})
    )
    of_lab = network.LabNetwork(AZ3.topology, lambda node: NamespaceMachine(node.name, 0))
    of_lab.slow("a", Quality(40))
    of_lab.slow("b", Quality(20, 4))
    link = next(link for link in AZ3.topology.links if {link.left, link.right} == {"a", "b"})
    name = network.link_name(link)
    assert shaped[name] == Quality(link.rtt_ms + 60, link.quality.jitter_ms + 4)
    assert of_lab.quality(link, without="b") == link.quality.plus(Quality(40))
    for _ in range(2):
        of_lab.restore_links("a")
        assert shaped[name] == link.quality.plus(Quality(20, 4))
    of_lab.restore_links("b")
    assert all(shaped[network.link_name(link)] == link.quality for link in AZ3.topology.links_of("b"))


@pytest.mark.parametrize(
    ("first", "second", "invalid"),
    [
        (("cut", "a", {}), ("cut", "b", {}), True),
        (("cut", "a", {}), ("slow", "b", {"rtt_ms": 9.0}), True),
        (("cut", "a", {"peers": ["c"]}), ("slow", "b", {"rtt_ms": 9.0}), False),
        (("slow", "a", {"rtt_ms": 9.0}), ("slow", "b", {"rtt_ms": 9.0}), False),
        (("slow", "a", {"rtt_ms": 9.0, "loss_percent": 60.0}), ("cut", "b", {}), True),
        (("slow", "a", {"rtt_ms": 9.0, "loss_percent": 5.0}), ("slow", "b", {"rtt_ms": 9.0, "rate_mbit": 9.0}), True),
        (("slow", "a", {"rtt_ms": 9.0, "rate_mbit": 9.0}), ("slow", "b", {"rtt_ms": 9.0, "rate_mbit": 9.0}), True),
        (("slow", "a", {"rtt_ms": 9.0}), ("slow", "b", {"rtt_ms": 9.0, "rate_mbit": 9.0}), False),
        (("slow", "a", {"rtt_ms": 9.0}), ("cut", "b", {}), True),
        (("slow", "a", {"rtt_ms": 9.0}), ("cut", "b", {"peers": ["c"]}), False),
        (("slow", "a", {"rtt_ms": 40.0, "jitter_ms": 8.0}), ("slow", "b", {"rtt_ms": 20.0}), False),
        (("slow", "a", {"rtt_ms": 40.0, "jitter_ms": 8.0}), ("slow", "b", {"rtt_ms": 19.0}), True),
        (("slow", "a", {"rtt_ms": 40.0, "jitter_ms": 8.0}), ("slow", "b", {"rtt_ms": 40.0, "jitter_ms": 8.0}), True),
        (("kill", "a", {}), ("cut", "b", {}), False),
    ],
)
def test_faults_that_invalidate_each_other_s_probes(first: Any, second: Any, invalid: bool) -> None:
    one_fault, other_fault = (
        kinds.create_fault(CLUSTER, kind, FaultTarget.rack(CLUSTER, rack), settings)
        for kind, rack, settings in (first, second)
    )
    assert (one_fault.invalidates(other_fault) or other_fault.invalidates(one_fault)) is invalid


def test_durations_are_parsed() -> None:
    assert [seconds(text, "--for") for text in ("30s", "500ms", "2m", "1.5h")] == [30, 0.5, 120, 5400]
    for invalid in ("30", "s", "0s", "25h", "-1s", "1 day"):
        with pytest.raises(RackgateError, match=r"--for .*expected a duration"):
            seconds(invalid, "--for")
