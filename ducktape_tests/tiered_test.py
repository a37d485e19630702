"""Tiered storage in an outage of a rack, and when a rack with remote segments is destroyed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ducktape.tests.test_context import TestContext

from ducktape_tests.scenario import AAB, FAILED_RACK, LoadSpec, RackScenario, require_true
from pyhooks.core.wait import wait_for
from pyhooks.history.events import RemoteSegmentsDetails
from pyhooks.kafka import gate, reassignments, topics
from pyhooks.kafka.topics import TopicSpec
from pyhooks.patchset import recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.workload.final_reader import ISOLATIONS, read_all

METADATA_TOPIC = "__remote_log_metadata"
STORAGE = "kafka-tiered-storage"
# the least that Kafka allows
SEGMENT_BYTES = 1 << 20
# a segment in two seconds
RATE_PER_S, RECORD_BYTES = 30, 16384
COPIED_S = 60.0
WAITS = 3
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
}
GATED, FREE = "gated", "free"


class TieredStorageTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside, with Kafka's ``LocalTieredStorage``."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "1000",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "log.initial.task.delay.ms": "1000",
        "log.retention.check.interval.ms": "2000",
    }

    # Controllers reject the configs of such a topic otherwise.
    CONTROLLER_PROPERTIES: ClassVar[Mapping[str, str]] = {"remote.log.storage.system.enable": "true"}

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        plan = recipe.load()
        jar = Workspace.of(plan).store.path(plan.find("kafka-storage", "test"))
        # All brokers of a lab see this folder.
        self.remote = Path(TestContext.results_dir(test_context, test_context.test_index)).resolve() / "remote"
        paths = {"remote.log.storage.manager.class.path": str(jar), "rsm.config.dir": str(self.remote)}
        topology = self.kafka.topology
        self.kafka.topology = replace(topology, broker_properties={**topology.broker_properties, **paths})

    def test_segments_wait_and_survive(self) -> None:
        """While too few racks are in sync, no segment beyond the high watermark is copied; remote records survive.

        A producer with acks=1 fills segments. In an outage of rack b those of the topic with R=2 wait, and those of the
        topic with R=1, the control, are copied. Then rack a, with the leader, loses its disks: its brokers return with
        local segments only, and each acknowledged record is read, from the remote storage or a disk.
        """
        self.kafka.wait_log(METADATA_TOPIC, self._placement(METADATA_TOPIC), timeout_s=COPIED_S)
        moves = {METADATA_TOPIC: AAB}
        self.kafka.reassign(moves)
        reassignments.wait_placed(self.kafka.topology.bootstrap, moves)
        specs = [
            TopicSpec(name, AAB, {**TIERED, gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: str(racks)})
            for name, racks in ((GATED, 2), (FREE, 1))
        ]
        names = f"{GATED},{FREE}"
        large = LoadSpec(names, rate_per_s=RATE_PER_S, options=("--acks", "1", "--record-bytes", str(RECORD_BYTES)))
        with self.under_load(specs, [LoadSpec(GATED), LoadSpec(FREE)]):
            with self.producing([large]), self.client("visibility_reader", names):
                self._listed("remote segments", lambda: all(len(self._remote(name)) >= WAITS for name in (GATED, FREE)))
                with self.fault("kill", rack=FAILED_RACK):
                    self.wait_isr({1, 2})
                    before = len(self._remote(FREE))
                    self.keep_producing()
                    self._listed(
                        f"{WAITS} segments that wait, and {WAITS} more remote ones of the control",
                        lambda: len(self._waiting()) >= WAITS and len(self._remote(FREE)) >= before + WAITS,
                    )
                    self.keep_producing()
                topics.wait_settled(self.kafka.admin, specs)
                self._listed("no segment that waits", lambda: len(self._waiting()) <= 1)
            # A new leader with too few in sync returns no high watermark, so that no reader could judge acks=1 here.
            with self.fault("wipe", rack="a"):
                self.wait_isr({3})
                self.keep_producing()
            topics.wait_settled(self.kafka.admin, specs)
            self.keep_producing()
        # Broker 1 lost its disk and leads again: what is below its first segment is in the remote storage alone.
        remote_only = {name: self._local(name)[0] for name in (GATED, FREE)}
        assert all(remote_only.values()), f"local segments from {remote_only}: no record is in the remote storage alone"
        # Not the disks, which lack these records.
        read_all(self.kafka.topology.bootstrap, [GATED, FREE], self.history, isolations=ISOLATIONS)
        self.final_state_read = True
        self.kill_all()
        self.figures(
            seed=self.seed,
            segments={name: len(self._remote(name)) for name in (GATED, FREE)},
            records_in_remote_storage_alone=remote_only,
        )
        require_true(self.verdicts(("delivery", "offsets", "progress", "visibility", "remote")))

    def _placement(self, topic: str) -> tuple[int, ...]:
        """Wait until brokers have created a topic, and return the replicas of its partition."""

        def placed() -> tuple[int, ...]:
            found = topics.try_states(self.kafka.admin, [topic])
            return tuple(found[topic].isr) if topic in found else ()

        return wait_for(placed, goal=f"topic {topic}", timeout_s=COPIED_S, interval_s=0.5)

    def _remote(self, topic: str) -> list[int]:
        """Return the base offsets of a topic's segments in the remote storage."""
        found = self.remote.glob(f"{STORAGE}/{topic}-0-*/*.log")
        return sorted(int(path.name.partition("-")[0]) for path in found)

    def _local(self, topic: str) -> list[int]:
        """Return the base offsets of a topic's segments on the disk of broker 1, which leads."""
        command = f"cd {self.kafka.data}/{topic}-0 && ls -- *.log"
        return sorted(int(name.partition(".")[0]) for name in self.kafka.run_on(self.kafka.broker(1), command).split())

    def _waiting(self) -> list[int]:
        """Return the complete segments of the topic with R=2 that are not remote."""
        return sorted({*self._local(GATED)[:-1]} - {*self._remote(GATED)})

    def _listed(self, goal: str, reached: Callable[[], bool]) -> None:
        """Record the segments of both topics until a goal is reached."""

        def listed() -> bool:
            for topic in (GATED, FREE):
                asked_ns = time.monotonic_ns()
                remote = tuple(self._remote(topic))
                details = RemoteSegmentsDetails(
                    topic=topic, asked_ns=asked_ns, local=tuple(self._local(topic)), remote=remote
                )
                self.history.add(details)
            return reached()

        wait_for(listed, goal=goal, timeout_s=COPIED_S, interval_s=1.0)
