"""``rackgate check`` and ``watch`` use the gate of ``pyhooks.kafka.gate.decide`` and have none of their own."""

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
    forecast_topic,
)
from pyhooks.watch.observation import BrokerObservation, Observation, PartitionObservation, TopicRequirements
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import PartitionSummary


@dataclass(frozen=True)
class Scene:
    """A partition somewhere; brokers that are not in ``racks`` are unknown to the cluster."""

    racks: dict[int, str]
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_replicas: int
    min_racks: int

    def gate_answer(self, *, enforced: bool = True) -> gate.GateDecision:
        racks = self.min_racks if enforced else 1
        return gate.decide(
            self.isr, self.racks, min_replicas=self.min_replicas, min_racks=racks, replicas=len(self.replicas)
        )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    racks = draw(st.dictionaries(st.integers(1, 7), st.sampled_from(["", " ", "a", "b", "c"])))
    replicas = tuple(draw(st.lists(st.integers(1, 7), unique=True, min_size=1, max_size=6)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    return Scene(racks, replicas, isr, draw(st.integers(1, 7)), draw(st.integers(1, 7)))


def watched(scene: Scene, *, enforced: bool | None) -> PartitionSummary:
    leader = scene.isr[0] if scene.isr else scene.replicas[0]
    ids = {*scene.racks, *scene.replicas}
    observed = Observation(
        mono_ns=1,
        wall_ms=1,
        cluster="c",
        brokers=tuple(BrokerObservation(one, scene.racks.get(one), True, "up", True) for one in sorted(ids)),
        partitions=(PartitionObservation("t", 0, scene.replicas, leader, scene.isr),),
        requirements={"t": TopicRequirements(scene.min_replicas, scene.min_racks)},
        racks_enforced=enforced,
    )
    (found,) = take_snapshot(observed).partitions
    return found


@settings(max_examples=400, deadline=None)
@given(scenes(), st.booleans())
def test_check_agrees_with_the_gate(scene: Scene, enforced: bool) -> None:
    requirements = IsrRequirements(ConfigValue(scene.min_replicas, "topic"), ConfigValue(scene.min_racks, "topic"))
    leader = scene.isr[0] if scene.isr else -1
    topic = CheckedTopic("t", False, (ReportedPartition("t", 0, leader, scene.replicas, scene.isr),), requirements)
    brokers = {broker: Broker(broker, rack) for broker, rack in scene.racks.items()}
    cluster = ClusterSnapshot("id", brokers, (topic,), enforced)
    (state,) = forecast_topic(topic, cluster, cluster.racks)
    answer = scene.gate_answer(enforced=enforced)
    assert state.decision == answer
    assert state.writable == answer.passes
    whole = gate.decide(
        scene.replicas, scene.racks, min_replicas=1, min_racks=scene.min_racks, replicas=len(scene.replicas)
    )
    assert state.reachable == whole.enough_racks
    for broker in scene.isr if answer.passes else ():
        left = set(scene.isr) - {broker}
        again = gate.decide(
            left,
            scene.racks,
            min_replicas=scene.min_replicas,
            min_racks=scene.min_racks if enforced else 1,
            replicas=len(scene.replicas),
        )
        assert (broker in state.stopped_by.brokers) is not again.passes


@settings(max_examples=400, deadline=None)
@given(scenes(), st.sampled_from([True, False, None]))
def test_watch_agrees_with_the_gate(scene: Scene, enforced: bool | None) -> None:
    found, answer = watched(scene, enforced=enforced), scene.gate_answer(enforced=enforced is not False)
    known = set(scene.isr) <= scene.racks.keys()
    assert (found.min_replicas, found.min_racks) == (answer.need_replicas, answer.need_racks)
    assert found.isr_racks == (len(answer.racks) if known else None)
    refused = "refusing" in found.verdict
    if answer.need_racks > 1 and not known:
        # unknown racks could only add racks: it may pass
        assert (found.level, found.verdict) == ("unknown", "the rack of a replica is not known")
    elif enforced is None and not answer.enough_racks and answer.enough_replicas:
        assert (found.level, refused) == ("unknown", False)
    else:
        assert refused is not answer.passes
        assert (found.level == "down") is refused
        assert bool(found.short_observations) is refused
