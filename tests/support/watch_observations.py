"""Observations for tests of the watch: five brokers in racks a, a, b, b, c; rack b can be lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyhooks.lab.cluster_control import ProcessState
from pyhooks.watch.observation import (
    ANY_PARTITION,
    BrokerMetrics,
    BrokerObservation,
    FaultObservation,
    Observation,
    PartitionObservation,
    ProduceCounts,
    TopicRequirements,
)

SECOND = 1_000_000_000
RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
# topic -> replicas, min.insync.racks, min.insync.replicas
TOPICS: Mapping[str, tuple[tuple[int, ...], int, int]] = {
    "orders": ((1, 2, 3), 2, 1),
    "orders-ungated": ((2, 1, 4), 1, 1),
    "payments": ((1, 3, 5), 2, 2),
    "audit": ((5, 1, 4), 3, 1),
    "__consumer_offsets": ((2, 3, 5), 1, 1),
}


def at(seconds: float, *, lost: bool = False, rates: float = 100.0) -> Observation:
    """Return an observation ``seconds`` after the start; if ``lost``, brokers 3 and 4 are down from second 10 on."""
    now_ns = int(seconds * SECOND)
    up_s = min(seconds, 10.0) if lost else seconds
    partitions = []
    for topic, (replicas, racks, _) in TOPICS.items():
        isr = tuple(one for one in replicas if not (lost and RACKS[one] == "b"))
        rejected = len({RACKS[one] for one in isr}) < racks
        offset = int((up_s if rejected else seconds) * rates)
        partitions.append(PartitionObservation(topic, 0, replicas, isr[0], isr, offset, now_ns))
    ends = {seen.key: seen for seen in partitions}
    metrics = {}
    for broker, rack in RACKS.items():
        if lost and rack == "b":
            continue
        own = {key: {"LogEndOffset": seen.high_watermark or 0} for key, seen in ends.items() if seen.leader == broker}
        values = {
            "RackCheckFailureRate.Count": max(0.0, seconds - 10) * 3 if lost and broker == 1 else 0,
            "UnderMinRackIsrPartitionCount": int(lost and broker in (1, 5)),
            "AtMinRackIsrPartitionCount": int(broker == 1),
            "UnderMinIsrPartitionCount": 0,
            "UnderReplicatedPartitions": len(own) if lost else 0,
            "MessagesInPerSec.Count": seconds * rates,
            "ErrorsPerSec.Produce.NONE.Count": seconds * 10,
        }
        if lost and broker == 1:
            values["ErrorsPerSec.Produce.NOT_ENOUGH_RACKS.Count"] = (seconds - 10) * 3
        topics = {"orders": {"FailedProduceRequestsPerSec.Count": (seconds - 10) * 3}} if lost and broker == 1 else {}
        metrics[broker] = BrokerMetrics(now_ns, values, topics, own)
    metrics[101] = BrokerMetrics(now_ns, {"ActiveControllerCount": 1, "OfflinePartitionsCount": 0})
    produced = {
        ("orders", 0): ProduceCounts(int(up_s * 3)),
        ("orders", ANY_PARTITION): ProduceCounts(0, int((seconds - 10) * 3) if lost else 0, 0),
        ("orders-ungated", 0): ProduceCounts(int(seconds * 3)),
        ("payments", 0): ProduceCounts(int(seconds * 3)),
        ("audit", 0): ProduceCounts(int(up_s * 3), 0, int((seconds - 10) * 3) if lost else 0),
    }
    there: ProcessState = "down" if lost else "up"
    return Observation(
        mono_ns=now_ns,
        wall_ms=1_800_000_000_000 + int(seconds * 1000),
        cluster="az3-outside",
        brokers=tuple(
            BrokerObservation(one, rack, not (lost and rack == "b"), there if rack == "b" else "up", True)
            for one, rack in RACKS.items()
        ),
        partitions=tuple(partitions),
        requirements={
            topic: TopicRequirements(min_replicas, racks) for topic, (_, racks, min_replicas) in TOPICS.items()
        },
        racks_enforced=True,
        metrics=metrics,
        produced=produced,
        produced_ns=now_ns,
        faults=(FaultObservation("kill-rack", "b", "", "proved", True, 10 * SECOND, 11 * SECOND),) if lost else (),
    )


def blind(seconds: float) -> Observation:
    """Return an observation without any response; only the static parts are known."""
    observed = at(seconds)
    return replace(
        observed,
        brokers=tuple(replace(one, listed=None, responds=None, process=None) for one in observed.brokers),
        partitions=tuple(replace(one, leader=None, isr=None, high_watermark=None) for one in observed.partitions),
        metrics={},
        problems=("metadata: no response for 7 s",),
    )
