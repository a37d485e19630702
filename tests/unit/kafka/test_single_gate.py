"""``rackgate check`` and ``watch`` agree with the gate, ``pyhooks.kafka.gate.decide``."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pyhooks.kafka import gate
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
    forecast_partition,
)
from pyhooks.watch.observation import BrokerObservation, Observation, PartitionObservation, TopicRequirements
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import PartitionSummary


@dataclass(frozen=True)
class PartitionCase:
    """A partition in a cluster; brokers missing from ``racks`` are unknown to the cluster."""

    racks: dict[int, str]
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_replicas: int
    min_racks: int

    def gate_decision(self, *, enforced: bool = True) -> gate.GateDecision:
        racks = self.min_racks if enforced else 1
        return gate.decide(
            self.isr, self.racks, min_replicas=self.min_replicas, min_racks=racks, replicas=len(self.replicas)
        )


@st.composite
def partition_cases(draw: st.DrawFn) -> PartitionCase:
    racks = draw(st.dictionaries(st.integers(1, 7), st.sampled_from(["", " ", "a", "b", "c"])))
    replicas = tuple(draw(st.lists(st.integers(1, 7), unique=True, min_size=1, max_size=6)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    return PartitionCase(racks, replicas, isr, draw(st.integers(1, 7)), draw(st.integers(1, 7)))


def watched(case: PartitionCase, *, enforced: bool | None) -> PartitionSummary:
    leader = case.isr[0] if case.isr else case.replicas[0]
    ids = {*case.racks, *case.replicas}
    observed = Observation(
        mono_ns=1,
        wall_ms=1,
        cluster="c",
        brokers=tuple(BrokerObservation(broker, case.racks.get(broker), True, "up", True) for broker in sorted(ids)),
        partitions=(PartitionObservation("t", 0, case.replicas, leader, case.isr),),
        requirements={"t": TopicRequirements(case.min_replicas, case.min_racks)},
        racks_enforced=enforced,
    )
    (found,) = take_snapshot(observed).partitions
    return found


@settings(max_examples=400, deadline=None)
@given(partition_cases(), st.booleans())
def test_check_agrees_with_the_gate(case: PartitionCase, enforced: bool) -> None:
    requirements = IsrRequirements(ConfigValue(case.min_replicas, "topic"), ConfigValue(case.min_racks, "topic"))
    leader = case.isr[0] if case.isr else -1
    partition = ReportedPartition("t", 0, leader, case.replicas, case.isr)
    topic = CheckedTopic("t", False, (partition,), requirements)
    brokers = {broker: Broker(broker, rack) for broker, rack in case.racks.items()}
    cluster = ClusterSnapshot("id", brokers, (topic,), enforced)
    state = forecast_partition(partition, requirements, case.min_racks, cluster, cluster.racks)
    decision = case.gate_decision(enforced=enforced)
    assert state.decision == decision
    assert state.writable == decision.passes
    all_replicas = gate.decide(
        case.replicas, case.racks, min_replicas=1, min_racks=case.min_racks, replicas=len(case.replicas)
    )
    assert state.reachable == all_replicas.enough_racks
    for broker in case.isr if decision.passes else ():
        remaining = set(case.isr) - {broker}
        decision_without = gate.decide(
            remaining,
            case.racks,
            min_replicas=case.min_replicas,
            min_racks=case.min_racks if enforced else 1,
            replicas=len(case.replicas),
        )
        assert (broker in state.stopped_by.brokers) is not decision_without.passes


@settings(max_examples=400, deadline=None)
@given(partition_cases(), st.sampled_from([True, False, None]))
def test_watch_agrees_with_the_gate(case: PartitionCase, enforced: bool | None) -> None:
    found, decision = watched(case, enforced=enforced), case.gate_decision(enforced=enforced is not False)
    known = set(case.isr) <= case.racks.keys()
    assert (found.min_replicas, found.min_racks) == (decision.need_replicas, decision.need_racks)
    assert found.isr_racks == (len(decision.racks) if known else None)
    rejects = "rejects" in found.verdict
    if decision.need_racks > 1 and not known:
        # brokers with an unknown rack may add the missing racks
        assert (found.level, found.verdict) == ("unknown", "the rack of a replica is not known")
    elif enforced is None and not decision.enough_racks and decision.enough_replicas:
        assert (found.level, rejects) == ("unknown", False)
    else:
        assert rejects is not decision.passes
        assert (found.level == "down") is rejects
        assert bool(found.short_observations) is rejects
