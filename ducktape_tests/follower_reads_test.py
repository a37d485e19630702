"""Consumers that read from followers (KIP-392) while too few racks are in sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ducktape_tests.scenario import AAB, ABC, FAILED_RACK, NEEDS, LoadSpec, RackScenario, spec
from pyhooks.kafka import topics

# Rack of the readers: that of a follower of the topic with R=3, which stays in sync in the outages.
READERS_RACK = "c"
HIDDEN_S = 8.0
# of rack b: from all others, and from rack a alone
OUTAGES: Sequence[tuple[str, Mapping[str, Any]]] = (("kill", {}), ("cut", {"peers": ["a"]}))
# A follower that can't reach its leader leaves the ISR after 30 to 45 s (replica.lag.time.max.ms).
LAG_S = 90.0


class FollowerReadsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; consumers read from any replica."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    }

    def test_no_replica_shows_hidden_records(self) -> None:
        """While too few racks are in sync, no replica shows a record beyond the leader's high watermark.

        Producers with acks=1 and acks=all run all the time, so that replicas have records that are not committed. A
        program reads from every replica of each topic, and a consumer prefers the followers of its rack. Rack b is
        killed. Later racks a and b can't reach each other, but clients can reach both: the follower in rack b is
        readable without being in sync. A topic with R=1 is the control: in the same outages its replicas show records.
        """
        specs = [spec("gated", AAB, 2, 2), spec("wide", ABC, 2, 3), spec("free", AAB, 2, 1)]
        names = ",".join(topic.name for topic in specs)
        loads = [
            LoadSpec(names, options=("--acks", "1")),
            # A topic that stops would delay others of its producer.
            LoadSpec("gated,wide"),
            LoadSpec("free"),
        ]
        brokers = ",".join(f"{node.node_id}={node.address}" for node in self.kafka.brokers())
        remaining = {
            topic.name: frozenset(broker for broker in topic.replicas if self.racks[broker] != FAILED_RACK)
            for topic in specs
        }
        with (
            self.under_load(specs, loads),
            self.client("visibility_reader", names, "--client-rack", READERS_RACK),
            # It ends before the other reader, which has to read the leaders' high watermarks once more.
            self.client("replica_reader", names, "--brokers", brokers),
        ):
            self.keep_producing()
            for kind, settings in OUTAGES:
                with self.fault(kind, rack=FAILED_RACK, **settings):
                    topics.wait_isrs(self.kafka.admin, remaining, timeout_s=LAG_S)
                    self.keep_producing(HIDDEN_S)
                topics.wait_settled(self.kafka.admin, specs)
                self.keep_producing()
        self.judge((*NEEDS, "visibility", "replicas"))
